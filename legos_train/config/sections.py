"""The sections of a training run's settings, one typed model per concern; `RunSettings` puts them together."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from legos_train.config.curriculum_settings import SAMPLER_ROWS as SAMPLER_ROWS  # noqa: PLC0414
from legos_train.config.curriculum_settings import CurriculumSettings as CurriculumSettings  # noqa: PLC0414
from legos_train.config.eval_settings import EvaluationSettings as EvaluationSettings  # noqa: PLC0414
from legos_train.config.eval_settings import HeldOutEntry as HeldOutEntry  # noqa: PLC0414
from legos_train.config.role_entries import ActorEntry as ActorEntry  # noqa: PLC0414
from legos_train.config.role_entries import EnvEntry as EnvEntry  # noqa: PLC0414
from legos_train.config.role_entries import LearnerEntry as LearnerEntry  # noqa: PLC0414
from legos_train.config.sampling_settings import OF_A_SEAT as OF_A_SEAT  # noqa: PLC0414
from legos_train.config.sampling_settings import SamplingSettings as SamplingSettings  # noqa: PLC0414
from legos_train.config.server_settings import ServerSettings as ServerSettings  # noqa: PLC0414
from legos_train.config.server_settings import TinkerSettings as TinkerSettings  # noqa: PLC0414
from legos_train.rollout import filters
from legos_train.settings import Section

ProgressMode = Literal["auto", "rich", "plain", "json"]


class LoRASettings(Section):
    """LoRA (arXiv 2106.09685) on the linear layers of the blocks."""

    rank: int = Field(default=16, ge=1, le=512)
    """Rank of every adapter matrix pair."""
    scale: float = Field(default=8.0, gt=0)
    """Factor on the product B A (mlx-lm's `scale`, PEFT's alpha / rank)."""
    layers: int = Field(default=0, ge=0)
    """Train the last so many blocks only, which saves memory and time (mlx-lm's `num_layers`); 0: all."""
    targets: tuple[str, ...] = ()
    """Train linear layers only if their name within a block contains one of these, such as `self_attn`, `q_proj` or
    `mlp.down_proj` (PEFT's `target_modules`); none: all."""

    def takes(self, name: str) -> bool:
        """Whether `targets` choose a linear layer, given its name within a block."""
        return not self.targets or any(f".{target}." in f".{name}." for target in self.targets)


class OptimSettings(Section):
    """AdamW (arXiv 1711.05101) and its schedule."""

    lr: float = Field(default=2e-4, gt=0)
    """Peak learning rate."""
    lr_end: float = Field(default=0.1, ge=0, le=1)
    """Learning rate at the last step, as a share of the peak; the decay is linear."""
    warmup: int = Field(default=0, ge=0)
    """Steps of linear warm-up."""
    beta1: float = Field(default=0.0, ge=0, lt=1)
    """Adam's first-moment decay. 0: no momentum, which would keep pushing after the opponent has changed."""
    beta2: float = Field(default=0.999, gt=0, lt=1)
    """Adam's second-moment decay."""
    eps: float = Field(default=1e-8, gt=0)
    """Adam's epsilon. A value about as large as the gradient's entries turns Adam into SGD near a fixed point: steps
    shrink with the gradient, and the last iterate can settle."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay, multiplied by the learning rate."""
    grad_clip: float = Field(default=0.3, gt=0)
    """Maximum global norm of the gradient; a larger one is scaled down."""
    epochs: int = Field(default=1, ge=1)
    """Passes over the episodes of one step."""
    minibatches: int = Field(default=1, ge=1)
    """Optimiser updates per pass."""
    max_skipped: int = Field(default=5, ge=0)
    """How many non-finite updates in a row may be skipped before the run stops."""
    checkpoint_layers: bool = False
    """Recompute each block in the backward pass instead of keeping its activations: less memory, more time."""


class FilterSettings(Section):
    """Which episodes are trained on."""

    draws: float = Field(default=0.0, ge=0, le=1)
    """Share of episodes ending in a draw to drop."""
    draw_retries: int = Field(default=0, ge=0)
    """How many times an episode ending in a draw may be played again, each time on another seed."""
    keep: filters.Kept = "all"
    """`winners`: only trajectories with the best return of their episode, if it is better than the worst; `success`:
    only those with a right answer, or a return above 0 where nothing is right or wrong; `positive`: only those with a
    return above 0, including wrong answers rewarded for their format. Usually set with `loss.name = "sft"`."""
    zero_advantages: bool = False
    """Drop turns whose advantage is exactly 0, as when all returns of a group are equal. Steps get cheaper as more
    problems are solved; the loss is a mean over the remaining turns, and the KL penalty covers only those."""


class BranchSettings(Section):
    """Losses over all actions in games that cannot be solved: each action is played out from sampled decision points.

    For each episode, a step plays `points` x legal actions x `rollouts` extra games from the middle.
    """

    when: Literal["auto", "always", "never"] = "auto"
    """`auto`: in games whose action values cannot be computed exactly; `always`: even if they can; `never`: reject runs
    that would need it."""
    points: int = Field(default=1, ge=1)
    """Maximum decision points evaluated per episode, chosen at random."""
    rollouts: int = Field(default=1, ge=1)
    """How many times each legal action at these points is played out to the end."""


class AsyncSettings(Section):
    """Generation and training at the same time."""

    enabled: bool = False
    """Generate the next episodes while training on the current ones."""
    backend: Literal["auto", "process", "thread"] = "auto"
    """Where episodes are generated: in a second process, or in a thread of this one, which can also use servers. auto:
    `process` on CPU and CUDA; `thread` on Metal, where two processes on one GPU crash Macs, and with `server.urls`."""
    max_off_policy_steps: int = Field(default=2, ge=0)
    """How many optimiser steps may pass between sampling an episode and training on it; older ones are dropped."""
    queue: int = Field(default=2, ge=1)
    """Maximum batches generated ahead of training."""
    in_flight: Literal["pin", "keep"] = "pin"
    """When new weights are published, running requests finish on the old ones (`pin`) or continue on the new
    (`keep`)."""


class ReplaySettings(Section):
    """Training on episodes more than once."""

    reuse: int = Field(default=1, ge=1)
    """Maximum number of steps that may use an episode."""
    max_staleness: int = Field(default=5, ge=0)
    """Maximum age of an episode, in optimiser steps; older ones are dropped before use."""
    capacity: int = Field(default=8, ge=1)
    """Maximum batches kept; the oldest is dropped first."""


class MonitorSettings(Section):
    """Watches for collapse and for steps that teach nothing; set a limit to none to switch it off."""

    action: Literal["warn", "raise_kl", "inject_opponents", "rollback", "stop"] = "warn"
    """What to do when a limit has been crossed for `patience` steps in a row."""
    patience: int = Field(default=5, ge=1)
    """How many steps in a row a running mean must be beyond its limit."""
    window: int = Field(default=10, ge=1)
    """Number of steps in a running mean."""
    role_gap: float | None = None
    """Maximum difference between the mean returns of two roles."""
    unscored: float | None = Field(default=0.5, ge=0, le=1)
    """Maximum share of episodes that could not be scored."""
    invalid: float | None = Field(default=0.3, ge=0, le=1)
    """Maximum share of games ended by an invalid move of the policy."""
    illegal: float | None = Field(default=0.3, ge=0, le=1)
    """Maximum share of illegal actions, where the env lists the legal ones."""
    idle: float | None = Field(default=0.5, ge=0, le=1)
    """Maximum share of steps without an update."""
    live: float | None = Field(default=0.02, ge=0, le=1)
    """Minimum share of tokens with a gradient."""
    worse: float | None = Field(default=0.0, ge=0)
    """How far an evaluation may fall below the one before the first step, beyond what chance explains."""
    average_lag: float | None = Field(default=0.6, ge=0)
    """Maximum share of the last weights' improvement that the weight average may lack, beyond what chance explains."""
    standstill: float | None = Field(default=0.1, ge=0)
    """Maximum share of the distance to the optimum that may remain once an exact number has stopped changing."""
    entropy: float | None = Field(default=1e-3, ge=0)
    """Minimum entropy of the next token."""
    length: tuple[float, float] | None = None
    """Minimum and maximum tokens per action, as multiples of the mean over the first steps."""
    zero_advantages: float | None = Field(default=0.95, ge=0, le=1)
    """Maximum share of advantages that are exactly 0."""
    kl: float | None = None
    """Maximum KL to the reference."""
    kl_factor: float = Field(default=2.0, gt=1)
    """`raise_kl`: factor on the KL weight."""


class AverageSettings(Section):
    """The weight average, published at the end and evaluated along with the last weights."""

    kind: Literal["ema", "uniform", "polynomial", "none"] = "ema"
    """`ema`: exponential moving average of the weights; `uniform`: their mean; `polynomial`: their mean with step t
    weighted by t to the power of `degree`, so that its window grows with the run (arXiv 1212.1824); `none`: no average,
    only the last weights."""
    decay: float = Field(default=0.98, ge=0, lt=1)
    """`ema`: decay per step."""
    start: float = Field(default=0.25, ge=0, lt=1)
    """`uniform`: share of the run to leave out at the start."""
    degree: float = Field(default=7.0, ge=0)
    """`polynomial`: 0 is the mean of all steps; with 7, half of the weight is on the last twelfth of the run."""

    def kept(self, step: int, steps: int, total: float) -> tuple[float, float] | None:
        """The share of its value that the sum keeps when it takes in `step` of `steps`, and the new total weight given
        the old one, `total`; None if the step is left out.
        """
        if self.kind == "none" or (self.kind == "uniform" and step <= self.start * steps):
            return None
        if self.kind == "uniform":
            return total / (total + 1), total + 1
        keep = self.decay if self.kind == "ema" else (step - 1) / (step + self.degree)
        return keep, keep * total + (1 - keep)


class CheckpointSettings(Section):
    """The checkpoints that `--resume` continues from."""

    every: int = Field(default=50, ge=0)
    """Steps between checkpoints; 0 writes one only at the end."""
    keep: int = Field(default=2, ge=1)
    """How many of the newest checkpoints to keep."""


class LogSettings(Section):
    """Logs besides metrics.jsonl."""

    rollouts: int = Field(default=8, ge=0)
    """Episodes per step kept in rollouts.jsonl, evenly spaced in the batch."""
    rollouts_every: int = Field(default=10, ge=1)
    """Steps between such samples; the first and the last step are always logged."""
    # Each field with a title is a tracker, opened by its row of `TRACKERS` in observe/report/trackers.py.
    wandb: str | None = Field(default=None, title="Weights & Biases")
    """Project name: also log to Weights & Biases (extra `wandb`; WANDB_MODE=offline keeps it on this machine)."""
    trackio: str | None = Field(default=None, title="trackio")
    """Project name: also log to trackio (install it yourself)."""
    tensorboard: bool = Field(default=False, title="TensorBoard")
    """Also write TensorBoard event files into the run directory (needs tensorboardX or torch)."""
    progress: ProgressMode = "auto"
    """What is printed: a live dashboard (`rich`), a short line per step (`plain`; in a notebook every tenth), or each
    step as a line of JSON (`json`); auto: the dashboard on a terminal, otherwise short lines."""
