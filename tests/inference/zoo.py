"""mlx-lm's architectures built small, with random weights: what the engine must serve right or refuse.

`ZOO` says for each which path serves it (see inference/engine/model_runner.py); test_zoo.py checks that, and
docs/engine.md repeats it.
"""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_flatten, tree_map_with_path
from mlx_lm.models import qwen2

VOCAB = 96
CONTEXT = 256
WINDOW = 12

_BASE = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "layer_norm_eps": 1e-5,
    "max_position_embeddings": CONTEXT,
    "rope_theta": 10000.0,
    "attention_bias": False,
    "tie_word_embeddings": True,
}
_MOE = {
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
}
_LINEAR_ATTENTION = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 2,
    "partial_rotary_factor": 0.5,
}
_MLA = {
    "kv_lora_rank": 32,
    "q_lora_rank": 32,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 32,
    "num_key_value_heads": 4,
    "n_shared_experts": 1,
    "n_routed_experts": 4,
    "first_k_dense_replace": 1,
    "n_group": 2,
    "topk_group": 1,
}
_MAMBA2 = {
    "mamba_n_heads": 4,
    "mamba_d_head": 32,
    "mamba_d_ssm": 128,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "mamba_n_groups": 1,
    "mamba_proj_bias": False,
    "mamba_conv_bias": True,
}


@dataclass(frozen=True)
class Kind:
    """An architecture: mlx-lm's module, what its config has beyond `_BASE`, and what the engine makes of it.

    path: "numpy", "mlx" or "mlx" for float32 on a CPU. quick: part of the default test run.
    """

    module: str
    path: str
    config: dict[str, Any] = field(default_factory=dict)
    quick: bool = False
    embedding: float = 0.5  # size of the embeddings; some architectures scale them up

    @property
    def quantised_path(self) -> str:
        """The path over 4-bit weights."""
        return "mlx" if self.path == "numpy" else self.path


_LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
_YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "mscale": 0.7, "mscale_all_dim": 0.7}
_LONGROPE = {
    "type": "longrope",
    "original_max_position_embeddings": 64,
    "short_factor": [1.0] * 8,
    "long_factor": [1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0],
}
_SLIDING = {"sliding_window": WINDOW, "sliding_window_pattern": 2}

ZOO: dict[str, Kind] = {
    "qwen2": Kind("qwen2", "numpy"),
    "qwen3": Kind("qwen3", "numpy", quick=True),
    "llama": Kind("llama", "numpy", {"tie_word_embeddings": False}),
    "llama, llama3 rope": Kind("llama", "mlx", {"rope_scaling": {**_LLAMA3, "original_max_position_embeddings": 32}}),
    "llama, linear rope": Kind("llama", "numpy", {"rope_scaling": {"type": "linear", "factor": 4.0}}),
    "llama, sliding window": Kind(
        "llama", "mlx", {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": WINDOW}
    ),
    "mistral": Kind("llama", "numpy", {"model_type": "mistral", "tie_word_embeddings": False}),
    "ministral3": Kind(
        "ministral3",
        "mlx",
        {
            "rope_parameters": {
                "rope_theta": 10000.0,
                "rope_type": "default",
                "llama_4_scaling_beta": 0.5,
                "original_max_position_embeddings": 16,
            }
        },
    ),
    "phi3": Kind("phi3", "mlx", {"tie_word_embeddings": False}),
    "phi3, longrope": Kind(
        "phi3", "mlx", {"rope_scaling": _LONGROPE, "original_max_position_embeddings": 64, "tie_word_embeddings": False}
    ),
    "gemma": Kind("gemma", "mlx", embedding=0.1),
    "gemma2": Kind("gemma2", "mlx", {"query_pre_attn_scalar": 16.0, "final_logit_softcapping": 4.0}),
    "gemma3_text": Kind("gemma3_text", "mlx", {**_SLIDING, "query_pre_attn_scalar": 16.0}, quick=True),
    "qwen3_moe": Kind("qwen3_moe", "mlx", _MOE, quick=True),
    "qwen2_moe": Kind("qwen2_moe", "mlx", _MOE),
    "mixtral": Kind("mixtral", "mlx", _MOE),
    "olmoe": Kind("olmoe", "mlx", _MOE),
    "qwen3_next": Kind("qwen3_next", "mlx", {**_MOE, **_LINEAR_ATTENTION}),
    "qwen3_5": Kind("qwen3_5", "numpy", _LINEAR_ATTENTION, quick=True),
    "mamba2": Kind(
        "mamba2",
        "mlx",
        {
            "num_heads": 4,
            "head_dim": 32,
            "state_size": 16,
            "layer_norm_epsilon": 1e-5,
            "conv_kernel": 4,
            "n_groups": 1,
            "use_bias": False,
            "use_conv_bias": True,
            "time_step_limit": (0.001, 100.0),
            "time_step_rank": 8,
        },
        quick=True,
    ),
    "mamba": Kind(
        "mamba",
        "mlx",
        {"state_size": 16, "conv_kernel": 4, "use_bias": False, "use_conv_bias": True, "time_step_rank": 8},
        embedding=0.2,
    ),
    "recurrent_gemma": Kind(
        "recurrent_gemma",
        "mlx",
        {
            "conv1d_width": 4,
            "logits_soft_cap": 30.0,
            "attention_window_size": WINDOW,
            "num_key_value_heads": 1,
            "block_types": ["recurrent", "attention"],
        },
    ),
    "falcon_h1": Kind("falcon_h1", "mlx", {**_MAMBA2, "lm_head_multiplier": 0.5}),
    "granite": Kind(
        "granite",
        "mlx",
        {
            "logits_scaling": 4.0,
            "attention_multiplier": 0.25,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.5,
            "mlp_bias": False,
        },
    ),
    "granitemoehybrid": Kind(
        "granitemoehybrid",
        "mlx",
        {
            **_MAMBA2,
            "logits_scaling": 4.0,
            "attention_multiplier": 0.25,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.5,
            "layer_types": ["mamba", "attention"],
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "shared_intermediate_size": 64,
        },
    ),
    "glm4": Kind("glm4", "mlx", {"partial_rotary_factor": 0.5}),
    "glm4_moe": Kind(
        "glm4_moe",
        "mlx",
        {**_MOE, **_MLA, "num_key_value_heads": 2, "routed_scaling_factor": 1.0, "rope_scaling": None}
        | {"use_qk_norm": True, "partial_rotary_factor": 0.5},
    ),
    "olmo2": Kind("olmo2", "mlx"),
    "olmo3": Kind(
        "olmo3",
        "mlx",
        {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": WINDOW},
    ),
    "cohere": Kind("cohere", "mlx", {"logit_scale": 0.5}),
    "cohere2": Kind("cohere2", "mlx", {**_SLIDING, "logit_scale": 0.5}),
    "smollm3": Kind("smollm3", "mlx", {"no_rope_layer_interval": 2}),
    "gpt_oss": Kind(
        "gpt_oss",
        "mlx",
        {**_MOE, "sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]},
    ),
    "lfm2": Kind(
        "lfm2",
        "mlx",
        {
            "norm_eps": 1e-5,
            "conv_bias": False,
            "conv_L_cache": 3,
            "block_dim": 64,
            "block_ff_dim": 128,
            "block_multiple_of": 32,
            "block_ffn_dim_multiplier": 1.0,
            "block_auto_adjust_ff_dim": False,
            "full_attn_idxs": [1],
        },
    ),
    "deepseek_v2": Kind("deepseek_v2", "mlx", {**_MOE, **_MLA, "rope_scaling": _YARN}),
    "deepseek_v3": Kind("deepseek_v3", "mlx", {**_MOE, **_MLA}),
    "minicpm3": Kind(
        "minicpm3",
        "mlx",
        {
            **_MLA,
            "rope_scaling": _LONGROPE,
            "dim_model_base": 32,
            "scale_depth": 1.4,
            "scale_emb": 2.0,
            "v_head_dim": 16,
        },
    ),
    "stablelm": Kind("stablelm", "mlx", {"use_qkv_bias": True, "partial_rotary_factor": 0.5}),
    "phi": Kind("phi", "mlx", {"partial_rotary_factor": 0.5, "num_key_value_heads": 4}),
    "starcoder2": Kind("starcoder2", "mlx"),
    "gpt2": Kind(
        "gpt2",
        "mlx",
        {"n_ctx": CONTEXT, "n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": CONTEXT, "layer_norm_epsilon": 1e-5},
    ),
    "hunyuan": Kind(
        "hunyuan",
        "mlx",
        {
            "moe_topk": 2,
            "num_experts": 4,
            "num_shared_expert": 1,
            "use_mixed_mlp_moe": True,
            "use_qk_norm": True,
            "use_cla": True,
            "cla_share_factor": 2,
            "rope_scaling": {"type": "dynamic", "factor": 1.0, "alpha": 1000.0},
        },
    ),
    "exaone4": Kind("exaone4", "mlx", {"rope_scaling": None, "sliding_window": WINDOW, "sliding_window_pattern": "LG"}),
    "internlm2": Kind("internlm2", "mlx", {"bias": False}),
    "gemma3": Kind(
        "gemma3",
        "mlx",
        {"text_config": {**_BASE, **_SLIDING, "model_type": "gemma3_text", "query_pre_attn_scalar": 16.0}},
    ),
    "mistral3": Kind("mistral3", "mlx", {"text_config": {**_BASE, "model_type": "mistral"}}),
    "gemma4_text": Kind(
        "gemma4_text",
        "mlx",
        {
            "vocab_size_per_layer_input": VOCAB,
            "global_head_dim": 32,
            "num_kv_shared_layers": 0,
            "hidden_size_per_layer_input": 32,
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention"],
        },
        embedding=0.1,
    ),
}


def kinds() -> dict[str, Kind]:
    """`ZOO` and the rest, wide_zoo.py."""
    import wide_zoo

    return {**wide_zoo.WIDE, **ZOO}


def build(name: str, *, dtype: mx.Dtype = mx.float32, bits: int = 0, group_size: int = 32, seed: int = 0) -> Any:
    """A model of the zoo whose distributions are neither flat nor one-hot; `bits` quantises what divides."""
    kind = kinds()[name]
    module = importlib.import_module(f"mlx_lm.models.{kind.module}")
    config = {**_BASE, "model_type": kind.module, **kind.config}
    if "text_config" in kind.config:
        config = {"model_type": kind.module, "vocab_size": VOCAB, "text_config": kind.config["text_config"]}
    elif "text_config" in getattr(module.ModelArgs, "__dataclass_fields__", {}):
        config = {"model_type": kind.module, "vocab_size": VOCAB, "text_config": config}
    mx.random.seed(seed)
    model = module.Model(module.ModelArgs.from_dict(config))
    spread(model, np.random.default_rng(seed), kind.embedding)
    model.set_dtype(dtype)
    if bits:
        nn.quantize(model, group_size, bits, class_predicate=lambda _, m: quantisable(m, group_size))
    mx.eval(model.parameters())
    model.eval()
    return model


def quantisable(module: nn.Module, group_size: int) -> bool:
    """As mlx-lm decides: layers that can be, with inputs that divide into groups."""
    return hasattr(module, "to_quantized") and module.weight.shape[-1] % group_size == 0


def spread(model: nn.Module, rng: np.random.Generator, embedding: float = 0.5) -> None:
    """Random numbers of a size that lets every part of the model show in its logits, and norms that are not 1.

    Nothing stays 0: a gate, a bias or a head of zeros would hide what is behind it.
    """
    more = np.random.default_rng(1)

    def draw(path: str, weight: mx.array) -> mx.array:
        leaf = path.rpartition(".")[2]
        if leaf == "weight" and weight.ndim in (2, 3) and "conv" not in path:
            size = embedding if "embed" in path else 1.2 * weight.shape[-1] ** -0.5
            return mx.array(rng.normal(0.0, size, weight.shape).astype(np.float32))
        if (leaf == "weight" and weight.ndim == 1) or leaf == "bias":
            return weight + mx.array(rng.normal(0.0, 0.1, weight.shape).astype(np.float32))
        if weight.size and not mx.any(weight != 0).item():
            size = 0.5 * weight.shape[-1] ** -0.5 if weight.ndim > 1 else 0.3
            return mx.array(more.normal(0.0, size, weight.shape).astype(np.float32)).astype(weight.dtype)
        return weight

    model.update(tree_map_with_path(draw, model.parameters()))


def adapter(shapes: dict[str, tuple[int, int]], seed: int, rank: int, size: float = 0.15) -> dict[str, mx.array]:
    """LoRA weights for every linear layer of the blocks; large enough that a mix-up would show."""
    rng = np.random.default_rng(seed)
    return {
        f"{path}.{leaf}": mx.array(rng.normal(0.0, size, shape).astype(np.float32))
        for path, (width, out) in shapes.items()
        if "layers." in path or "h." in path or "blocks." in path
        for leaf, shape in (("lora_a", (width, rank)), ("lora_b", (rank, out)))
    }


def save_qwen2_four_bits(folder: Path, vocab_size: int) -> None:
    """config.json and weights as in mlx-community/Qwen2.5-1.5B-Instruct-4bit, but small: bfloat16 scales, groups of 64.

    The tokenizer is the caller's.
    """
    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "attention_dropout": 0.0,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "hidden_size": 64,
        "initializer_range": 0.02,
        "intermediate_size": 128,
        "max_position_embeddings": 512,
        "max_window_layers": 2,
        "model_type": "qwen2",
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "quantization": {"group_size": 64, "bits": 4},
        "quantization_config": {"group_size": 64, "bits": 4},
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "sliding_window": 32768,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": vocab_size,
    }
    model = qwen2.Model(qwen2.ModelArgs.from_dict(config))
    spread(model, np.random.default_rng(3), 0.2)
    model.set_dtype(mx.bfloat16)
    nn.quantize(model, group_size=64, bits=4)
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config))
