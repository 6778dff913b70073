"""Every setting of a training run: one typed model per concern. The command line and the TOML file are these fields.

Precedence: defaults, then the file, then the command line. An unknown key is an error that names the nearest one.
"""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError


class ConfigError(ValueError):
    """A setting is unknown, of the wrong type or out of range; the message names it."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_assignment=True, frozen=True)


class Lora(Section):
    """LoRA (arXiv 2106.09685) on all linear layers."""

    rank: int = Field(16, ge=1, le=512)
    """Rank of every adapter matrix pair."""
    scale: float = Field(8.0, gt=0)
    """What the product B A is multiplied with (mlx-lm's `scale`, PEFT's alpha / rank)."""


class Sampling(Section):
    """How actions are sampled during training."""

    temperature: float = Field(1.0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    max_tokens: int | None = Field(None, ge=1)
    """Most tokens of one action; by default 12 with the bundled model, which only names a move, else 512."""


class Optim(Section):
    """AdamW (arXiv 1711.05101) and its schedule."""

    lr: float = Field(2e-4, gt=0)
    """Peak learning rate."""
    lr_end: float = Field(0.1, ge=0, le=1)
    """Share of the peak left at the last step; the decay is linear."""
    warmup: int = Field(0, ge=0)
    """Steps of linear warm-up."""
    beta1: float = Field(0.0, ge=0, lt=1)
    """Adam's first-moment decay. 0: no momentum that goes on pushing after the opponent has changed."""
    beta2: float = Field(0.999, gt=0, lt=1)
    eps: float = Field(1e-8, gt=0)
    """Adam's epsilon. Around the size of a gradient's entries it turns Adam into SGD near a fixed point: steps shrink
    with the gradient, and the last iterate can settle."""
    weight_decay: float = Field(0.0, ge=0)
    grad_clip: float = Field(0.3, gt=0)
    """Largest global norm of the gradient."""
    epochs: int = Field(1, ge=1)
    """Passes over the episodes of one step."""
    minibatches: int = Field(1, ge=1)
    """Optimiser updates per pass."""


class Loss(Section):
    """The objective at every sampled token."""

    name: Literal["ppo", "importance_sampling"] = "ppo"
    clip_low: float = Field(0.2, gt=0)
    clip_high: float = Field(0.2, gt=0)
    aggregation: Literal["token", "sequence", "constant"] = "sequence"
    """What the sum over tokens is divided by: tokens; tokens of each turn, then turns; or turns only."""
    entropy: float = Field(0.0, ge=0)
    """Weight of a full-vocabulary entropy bonus."""
    kl: float = Field(0.2, ge=0)
    """Weight of the KL divergence to the frozen base model, at the first step."""
    kl_end: float | None = Field(0.05, ge=0)
    """The same at the last step, reached geometrically; none keeps `kl`."""
    kl_estimator: Literal["auto", "exact", "k3"] = "auto"
    """Whole-vocabulary KL at every visited token, or the k3 estimate from the sampled one; auto: by vocabulary size."""


class Credit(Section):
    """Who gets credit for an outcome."""

    name: Literal["rae", "grpo", "hierarchical_grpo", "same_prompt", "constant"] = "same_prompt"
    decay: float = Field(0.95, ge=0, lt=1)
    """Decay of RAE's moving baseline."""
    gamma: float = Field(1.0, gt=0, le=1)
    """Discount by turns from the end."""
    pseudo_count: float = Field(2.0, ge=0)
    """`same_prompt`: how many games the role's RAE baseline counts for."""
    std: bool = False
    """Group credit: divide by the group's standard deviation."""
    singleton: Literal["zero", "rae"] = "rae"
    """Group credit: the advantage of an agent without peers."""
    root_peers: Literal["group", "batch"] = "group"
    """`hierarchical_grpo`: who the agents at the root are compared with."""


class Average(Section):
    """The weight average that is published at the end, and evaluated beside the last weights."""

    kind: Literal["ema", "uniform", "none"] = "ema"
    decay: float = Field(0.98, ge=0, lt=1)
    start: float = Field(0.25, ge=0, lt=1)
    """`uniform`: share of the run that is left out."""


class Evaluation(Section):
    every: int = Field(10, ge=0)
    """Steps between evaluations; 0: only before the first and after the last. Games with many positions: see docs."""
    games: int = Field(256, ge=2)
    """Games against random play, where no exact value can be computed."""


class Checkpoint(Section):
    every: int = Field(50, ge=0)
    """Steps between checkpoints; 0 writes one at the end only."""
    keep: int = Field(2, ge=1)


class TrainConfig(Section):
    """One training run."""

    env: str = "KuhnPoker-v0"
    """An id of `legos envs list`, or `module:Name-v0`, or `file.py:Name-v0`."""
    env_args: dict[str, Any] = Field(default_factory=dict)
    """Constructor arguments of the environment."""
    model: str = "tiny"
    """`tiny`, a model directory in mlx-lm's layout, or a hub name."""
    renderer: Literal["auto", "chatml", "qwen3", "llama3", "deepseek", "plain"] = "auto"
    """How conversations become tokens; `auto` takes the model's own chat template."""
    system: dict[str, str] = Field(default_factory=dict)
    """System prompts by role."""
    train_roles: tuple[str, ...] = ()
    """Roles whose actions are trained on; empty: every seat that the environment declares trainable."""
    steps: int = Field(250, ge=1)
    """Optimiser steps (one batch of episodes each)."""
    batch_size: int = Field(512, ge=1)
    """Episodes per step."""
    group_size: int = Field(1, ge=1)
    """Episodes started from one seed, for group credit."""
    seed: int = Field(0, ge=0)
    run_dir: Path | None = None
    """Where the run is kept; by default a new directory below `runs/`."""
    threads: int = Field(1, ge=1)
    """Threads of the matrix library on CPU."""
    max_rows: int = Field(256, ge=1)
    """Most different sequences that the engine decodes at once; equal ones count as one."""
    max_batch_tokens: int = Field(16384, ge=64)
    """Most padded tokens in one forward and backward pass."""
    context: int = Field(4096, ge=16)
    """Most tokens of a prompt and its action; a seat that overflows has made an invalid move."""
    lora: Lora = Lora()
    sampling: Sampling = Sampling()
    optim: Optim = Optim()
    loss: Loss = Loss()
    credit: Credit = Credit()
    average: Average = Average()
    eval: Evaluation = Evaluation()
    checkpoint: Checkpoint = Checkpoint()
    wandb: str | None = None
    """Project name: also log to Weights & Biases (needs the extra `wandb`)."""

    @property
    def action_tokens(self) -> int:
        """Most tokens of one action."""
        return self.sampling.max_tokens or (12 if self.model == "tiny" else 512)

    def model_post_init(self, context: Any) -> None:
        if self.batch_size % self.group_size:
            raise ValueError(f"batch_size ({self.batch_size}) must be a multiple of group_size ({self.group_size})")


def load_toml(path: Path) -> TrainConfig:
    """Reads a TOML file.

    Raises:
        ConfigError: the file is missing, is not TOML, or a key is unknown or wrong.
    """
    try:
        data = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"cannot read the config file {str(path)!r}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{str(path)!r} is not valid TOML: {error}") from error
    return from_dict(data, str(path))


def from_dict(data: dict[str, Any], where: str = "config") -> TrainConfig:
    """Validates plain values; unknown keys are named together with the nearest known one."""
    try:
        return TrainConfig(**data)
    except ValidationError as error:
        raise ConfigError(f"{where}: " + "; ".join(_explain(e) for e in error.errors())) from None


def _explain(error: Any) -> str:
    path = ".".join(str(part) for part in error["loc"])
    if error["type"] != "extra_forbidden":
        return f"{path}: {error['msg']}, got {error['input']!r}"
    section: Any = TrainConfig
    for part in error["loc"][:-1]:
        section = section.model_fields[part].annotation
    known = list(section.model_fields)
    near = difflib.get_close_matches(str(error["loc"][-1]), known, 1)
    return f"unknown key {path!r}" + (f", did you mean {near[0]!r}?" if near else f"; accepted: {', '.join(known)}")


def to_toml(config: TrainConfig) -> str:
    """The whole config as TOML; settings that are None are left out, which means the same."""
    import tomli_w

    return tomli_w.dumps(_without_none(config.model_dump(mode="json")))


def _without_none(value: Any) -> Any:
    return {k: _without_none(v) for k, v in value.items() if v is not None} if isinstance(value, dict) else value
