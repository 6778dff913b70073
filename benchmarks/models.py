"""Random models for the benchmarks, in memory and as directories that any server can load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten, tree_map

SIZES = {"4m": (256, 4, 2048), "100m": (640, 14, 32000)}
"""Name -> hidden size, layers, vocabulary: 3.7 and 89 million parameters."""
CONTEXT = 4096
_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def _config(hidden: int, layers: int, vocab: int) -> dict[str, Any]:
    return {
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "intermediate_size": hidden * 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": hidden // 4,
        "rms_norm_eps": 1e-6,
        "vocab_size": vocab,
        "max_position_embeddings": CONTEXT,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "eos_token_id": _SPECIAL.index("<|im_end|>"),
        "torch_dtype": "float32",
    }


def random_model(hidden: int, layers: int, vocab: int, **more: Any) -> Any:
    """A random float32 Qwen3; `more` goes over the config."""
    from mlx_lm.models import qwen3

    mx.random.seed(0)
    model = qwen3.Model(qwen3.ModelArgs.from_dict({**_config(hidden, layers, vocab), **more}))
    model.update(tree_map(lambda w: w * 4 if w.ndim == 2 and w.shape[0] == vocab else w, model.parameters()))
    mx.eval(model.parameters())
    return model


def random_adapter(model: Any, seed: int, rank: int = 8, size: float = 0.05) -> dict[str, mx.array]:
    """LoRA weights for every linear layer, evaluated; large enough to change what is said."""
    from inference.adapters import linear_shapes

    weights = {}
    for i, (path, (width, out)) in enumerate(sorted(linear_shapes(model).items())):
        keys = mx.random.split(mx.random.key(seed * 1000 + i))
        weights[f"{path}.lora_a"] = mx.random.normal((width, rank), key=keys[0]) * size
        weights[f"{path}.lora_b"] = mx.random.normal((rank, out), key=keys[1]) * size
    mx.eval(weights)
    return weights


def save_model(folder: Path, size: str) -> None:
    """A model directory in the Hugging Face layout, with a byte-level BPE as large as the model's vocabulary.

    The end token's embedding is zero, so that greedy decoding never ends before max_tokens.
    """
    hidden, layers, vocab = SIZES[size]
    save_tokenizer(folder, vocab)
    model = random_model(hidden, layers, vocab)
    config = _config(hidden, layers, vocab)
    weights = dict(tree_flatten(model.parameters()))
    table = np.array(weights["model.embed_tokens.weight"])
    table[: len(_SPECIAL)] = 0.0
    weights["model.embed_tokens.weight"] = mx.array(table)
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    (folder / "config.json").write_text(json.dumps(config))


def save_tokenizer(folder: Path, vocab: int) -> None:
    """A byte-level BPE of `vocab` tokens, in the Hugging Face layout."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=_SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = ["".join(rng.choice(letters, rng.integers(3, 8))) for _ in range(3000)]
    tokenizer.train_from_iterator([" ".join(rng.permutation(words)) for _ in range(3)], trainer)
    # The words give some ten thousand tokens at most; the rest of a larger vocabulary is never written. Added tokens
    # would do too, but take a loader of 150,000 of them nine seconds.
    written = json.loads(tokenizer.to_str())
    pieces = written["model"]["vocab"]
    pieces |= {f"<|unused_{i}|>": i for i in range(len(pieces), vocab)}
    (folder / "tokenizer.json").write_text(json.dumps(written))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "additional_special_tokens": _SPECIAL,
        "clean_up_tokenization_spaces": False,
        "chat_template": _TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
