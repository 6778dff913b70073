"""Models by size, with settings that fit them: `legos train --preset NAME --size 4b`. The only list of real models.

Names are those of mlx-community's 4-bit checkpoints; base models without a 4-bit version there have their published
names. None was loaded while writing this. Shapes come from the models' `config.json`, so `--dry-run` needs no weights.
"""

from __future__ import annotations

import difflib
from typing import Any, NamedTuple

from legos_train.errors import ConfigError

DEFAULT = "1.7b"
"""The default size of a preset for a real model."""
SHARED: dict[str, Any] = {
    "optim": {"lr_end": 1.0, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "grad_clip": 1.0, "checkpoint_layers": True},
    "average": {"kind": "none"},
    "thinking": "off",
}
"""Settings of every real model; the presets of exactly solvable games have others, chosen for the bundled one. Thinking
would use up a preset's `sampling.max_tokens`: `with_thoughts` raises it when thinking is switched on."""


class Size(NamedTuple):
    """A model with settings that fit it.

    Attributes:
        model: its name on the hub.
        shape: its `config.json`, as mlx-lm reads it.
        lr, rank: learning rate and LoRA rank.
        batch: maximum episodes per step.
        tokens: maximum tokens per action.
        context: maximum tokens of a prompt with its action.
        part: maximum tokens per backward pass; with the vocabulary it determines a step's memory.
        rows: maximum distinct sequences decoded at once.
        bits: bits per weight.
    """

    model: str
    shape: dict[str, Any]
    lr: float
    rank: int
    batch: int
    tokens: int
    context: int
    part: int
    rows: int
    bits: int = 4

    def over(self, preset: dict[str, Any]) -> dict[str, Any]:
        """This size's settings for a preset: the task's settings can only shrink."""
        sampling = preset.get("sampling", {})
        return {
            "model": self.model,
            "batch_size": min(self.batch, preset.get("batch_size", self.batch)),
            "context": min(self.context, preset.get("context", self.context)),
            "max_batch_tokens": self.part,
            "max_rows": self.rows,
            "sampling": {"max_tokens": min(self.tokens, sampling.get("max_tokens", self.tokens))},
            "lora": {"rank": self.rank, "scale": 2.0},
            **SHARED,
            "optim": {**SHARED["optim"], "lr": self.lr},
        }


def with_thoughts(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of a preset with room for thoughts: its size's limit for an action, minus the tokens for the answer.

    An action is limited to the tokens of the size and to half the context, which must also hold the prompt. Settings of
    models that are not in the list are returned unchanged.
    """
    fits, sampling = shape_of(settings.get("model", "")), settings.get("sampling", {})
    answer = sampling.get("max_tokens")
    if fits is None or answer is None:
        return settings
    most = max(answer, min(fits.tokens, settings.get("context", fits.context) // 2))
    limits = {"max_tokens": most, "thinking_tokens": max(most - answer, most // 2)}
    return {**settings, "sampling": {**sampling, **limits}}


def _qwen3(hidden: int, layers: int, heads: int, inner: int, tied: bool = True) -> dict[str, Any]:
    return {
        "model_type": "qwen3",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": inner,
        "vocab_size": 151936,
        "tie_word_embeddings": tied,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "max_position_embeddings": 40960,
    }


def _qwen35(hidden: int, layers: int, heads: int, inner: int, linear_heads: int, tied: bool = True) -> dict[str, Any]:
    """Three in four layers have linear attention."""
    text = {
        **_qwen3(hidden, layers, heads, inner, tied),
        "model_type": "qwen3_5_text",
        "num_key_value_heads": heads // 4,
        "head_dim": 256,
        "vocab_size": 248320,
        "max_position_embeddings": 262144,
        "full_attention_interval": 4,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": linear_heads,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "rope_parameters": {"type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
    }
    return {"model_type": "qwen3_5", "text_config": text}


_ROWS = {  # size: shape, learning rate, rank, episodes, tokens of an action, context, tokens of a part, rows
    "0.6b": (_qwen3(1024, 28, 16, 3072), 1e-4, 32, 128, 2048, 4096, 4096, 64),
    "1.7b": (_qwen3(2048, 28, 16, 6144), 4e-5, 32, 128, 4096, 8192, 4096, 64),
    "4b": (_qwen3(2560, 36, 32, 9728), 4e-5, 32, 128, 4096, 8192, 2048, 32),
    "8b": (_qwen3(4096, 36, 32, 12288, tied=False), 2e-5, 16, 64, 2048, 4096, 2048, 32),
    "qwen3.5-0.8b": (_qwen35(1024, 24, 8, 3584, 16), 1e-4, 32, 128, 2048, 4096, 4096, 64),
    "qwen3.5-2b": (_qwen35(2048, 24, 8, 6144, 16), 4e-5, 32, 128, 4096, 8192, 4096, 64),
    "qwen3.5-4b": (_qwen35(2560, 32, 16, 9216, 32), 4e-5, 32, 128, 4096, 8192, 2048, 32),
    "qwen3.5-9b": (_qwen35(4096, 32, 16, 12288, 32, tied=False), 2e-5, 16, 64, 2048, 4096, 2048, 32),
}
_HUB = "mlx-community/"
SIZES = {
    "0.6b": Size(f"{_HUB}Qwen3-0.6B-4bit", *_ROWS["0.6b"]),
    "1.7b": Size(f"{_HUB}Qwen3-1.7B-4bit", *_ROWS["1.7b"]),
    "4b": Size(f"{_HUB}Qwen3-4B-4bit", *_ROWS["4b"]),
    "8b": Size(f"{_HUB}Qwen3-8B-4bit", *_ROWS["8b"]),
    "4b-instruct": Size(f"{_HUB}Qwen3-4B-Instruct-2507-4bit", *_ROWS["4b"]),
    "0.6b-base": Size(f"{_HUB}Qwen3-0.6B-Base-4bit", *_ROWS["0.6b"]),
    "1.7b-base": Size(f"{_HUB}Qwen3-1.7B-Base-4bit", *_ROWS["1.7b"]),
    "4b-base": Size("Qwen/Qwen3-4B-Base", *_ROWS["4b"], bits=16),
    "8b-base": Size(f"{_HUB}Qwen3-8B-Base-bf16", *_ROWS["8b"], bits=16),
    "qwen3.5-0.8b": Size(f"{_HUB}Qwen3.5-0.8B-4bit", *_ROWS["qwen3.5-0.8b"]),
    "qwen3.5-2b": Size(f"{_HUB}Qwen3.5-2B-4bit", *_ROWS["qwen3.5-2b"]),
    "qwen3.5-4b": Size(f"{_HUB}Qwen3.5-4B-4bit", *_ROWS["qwen3.5-4b"]),
    "qwen3.5-9b": Size(f"{_HUB}Qwen3.5-9B-4bit", *_ROWS["qwen3.5-9b"]),
}
"""Real models. Qwen3 and Qwen3.5 have a thinking switch; `4b-instruct` never thinks, base models may."""


BUNDLED_SIZES = {"small": Size("small", {}, 1e-3, 16, 64, 64, 2048, 3072, 256, bits=32)}
"""The bundled model that reads every environment: runs of it learn in minutes on a CPU, without a download.

With four times this learning rate, `gsm8k`, `self_distillation` and `proposer_solver` forgot what they learned."""


def names() -> list[str]:
    """The values that `--size` accepts."""
    return [*BUNDLED_SIZES, *SIZES]


def size(name: str) -> Size:
    """A row of `SIZES` or `BUNDLED_SIZES`.

    Raises:
        ConfigError: no such size exists; the message names the nearest.
    """
    every = BUNDLED_SIZES | SIZES
    if name in every:
        return every[name]
    near = difflib.get_close_matches(name.casefold(), every, 1, cutoff=0.5)
    hint = f", did you mean {near[0]!r}?" if near else "."
    raise ConfigError(f"unknown size {name!r}{hint} Available: {', '.join(every)}; for another model give --model")


def shape_of(model: str) -> Size | None:
    """The size of a model by its name on the hub; None for others."""
    return next((size for size in SIZES.values() if size.model == model.partition("@")[0]), None)
