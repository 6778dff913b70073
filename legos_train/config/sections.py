"""The sections of a training run's settings, one typed model per concern; `config.TrainConfig` puts them together."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from inference.address import OWN_KEY, Address, SecretError
from legos_train.config.curriculum_settings import SAMPLER_ROWS as SAMPLER_ROWS  # noqa: PLC0414
from legos_train.config.curriculum_settings import CurriculumSettings as CurriculumSettings  # noqa: PLC0414
from legos_train.config.eval_settings import EvaluationSettings as EvaluationSettings  # noqa: PLC0414
from legos_train.config.eval_settings import HeldOutEntry as HeldOutEntry  # noqa: PLC0414
from legos_train.config.sampling_settings import SamplingSettings as SamplingSettings  # noqa: PLC0414
from legos_train.players.actors import checked_word, listed
from legos_train.settings import Arguments, Section, as_named


def _server_address(text: str) -> str:
    """An address of `legos serve` or vLLM; vllm:// marks it as vLLM."""
    plain = re.sub(r"^vllm://", "http://", text)
    address = str(Address.parse(plain))
    return address if plain == text else re.sub(r"^http://", "vllm://", address)


ServerAddress = Annotated[str, AfterValidator(_server_address)]


def _variable_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w*", value, re.ASCII):
        raise SecretError(f"api_key_env is the name of an environment variable, such as {OWN_KEY}, not the key itself")
    return value


VariableName = Annotated[str, AfterValidator(_variable_name)]


class EnvEntry(Section):
    """One environment of the run: a table `[[env]]`, or `--env ID`."""

    id: str
    """An id from `legos envs list`, or `module:Name-v0`, or `file.py:Name-v0`."""
    name: str = ""
    """Its name in metrics and in `[actors."NAME/role"]`; its id by default."""
    weight: float = Field(default=1.0, gt=0)
    """How often its episodes are drawn, relative to the other envs of the run."""
    args: Arguments = Field(default_factory=dict)
    """Constructor arguments; the text "null" stands for None."""
    options: Arguments = Field(default_factory=dict)
    """Passed to every `reset(options=...)`."""
    train_roles: tuple[str, ...] | None = None
    """Roles to train on; none: every seat that the environment declares trainable."""
    credit: str | None = None
    """A credit method for this env's episodes, instead of `credit.name`."""
    league: bool | None = None
    """Whether league members play here; none: only if the policy trains two seats or more."""

    @property
    def label(self) -> str:
        return self.name or self.id


class ActorEntry(Section):
    """Who plays a role: a table `[actors.ROLE]`. See `legos_train.Actor`."""

    system_prompt: str = ""
    """Prepended to every conversation of the role."""
    temperature: float | None = Field(default=None, ge=0)
    """Sampling temperature; none: `sampling.temperature`, or 0 for a seat that is not trained."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Maximum tokens per action; none: `sampling.max_tokens`."""
    model: Annotated[str, AfterValidator(checked_word)] | None = Field(
        default=None,
        description=f"Who plays: {listed('policy', 'base')}. None: the policy for seats that are trained, the base "
        "model for judges.",
    )
    trainable: bool = True
    """Whether the role may be trained on; off: it plays, but its actions never enter a batch."""


class LearnerEntry(Section):
    """One of several policies trained together: a table `[[learner]]`, or `--learner NAME=ROLE,ROLE`."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,32}$")
    """Its name in metrics, and the folder of its adapter."""
    roles: tuple[str, ...] = Field(min_length=1)
    """The roles or agents it plays and learns from; with the prefix `ENV/`, only in that env."""
    rank: int | None = Field(default=None, ge=1, le=512)
    """Rank of its adapter; none: `lora.rank`."""
    optim: dict[str, Any] = Field(default_factory=dict)
    """Settings of `[optim]` that differ for this learner."""
    loss: dict[str, Any] = Field(default_factory=dict)
    """Settings of `[loss]` that differ for this learner."""
    credit: dict[str, Any] = Field(default_factory=dict)
    """Settings of `[credit]` that differ for this learner."""

    _named = field_validator("credit", "loss", mode="before")(as_named)

    @field_validator("optim", "loss", "credit")
    @classmethod
    def _writable(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Writes None as the text that stands for it in files, so that the table round-trips."""
        return {name: "none" if value is None else value for name, value in values.items()}


class LoRASettings(Section):
    """LoRA (arXiv 2106.09685) on all linear layers."""

    rank: int = Field(default=16, ge=1, le=512)
    """Rank of every adapter matrix pair."""
    scale: float = Field(default=8.0, gt=0)
    """Factor on the product B A (mlx-lm's `scale`, PEFT's alpha / rank)."""


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
    keep: Literal["all", "winners", "success", "positive"] = "all"
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
    progress: Literal["auto", "rich", "plain", "json"] = "auto"
    """What is printed: a live dashboard (`rich`), a short line per step (`plain`; in a notebook every tenth), or each
    step as a line of JSON (`json`); auto: the dashboard on a terminal, otherwise short lines."""


class ServerSettings(Section):
    """Generation by `legos serve` or vLLM in other terminals or on other machines."""

    urls: tuple[ServerAddress, ...] = ()
    """Server addresses: http://127.0.0.1:8000 and the like (`legos serve` or vLLM, which is detected), or
    vllm://HOST:PORT. Empty: generate in this process."""
    adapters: Path | None = None
    """A folder from which the servers load adapters, under the same path on all machines: `--adapter-root` of
    `legos serve`, `VLLM_LORA_RESOLVER_CACHE_DIR` of vLLM, which needs one. None: adapters are uploaded."""
    timeout: float = Field(default=600.0, gt=0)
    """Maximum seconds per call, after which its games continue on another server."""
    sessions: int = Field(default=1, ge=1)
    """Behind a router: the number of session ids (header `X-Session-ID`) to spread conversations over. A conversation
    stays on the server that the router picks for its id. 1: no id is sent, and a call may mix turns of any games."""
    api_key_env: VariableName = OWN_KEY
    """The name of the environment variable that holds the key."""

    @model_validator(mode="before")
    @classmethod
    def _one(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("urls"), str):
            return {**data, "urls": tuple(data["urls"].split(","))}
        return data


class TinkerSettings(Section):
    """`--backend tinker`: weights, optimiser and sampling are at a service that speaks the Tinker API."""

    url: ServerAddress | None = None
    """Address of the service, such as http://127.0.0.1:8000 for SkyRL; none: the hosted one, or TINKER_BASE_URL."""
    base: str | None = None
    """The service's name for the base model; none: the same as `model`."""
    api_key_env: VariableName = "TINKER_API_KEY"
    """The name of the environment variable that holds the key."""
    mirror: bool = True
    """Evaluate with a local base model and adapters fetched from the service. Off: only the tokenizer of `model`
    is loaded, and answers are scored at the service."""
    in_flight: int = Field(512, ge=1)
    """Maximum number of concurrent samples."""
    multiple: int = Field(1, ge=1)
    """For servers that compile for each shape: pad the number of sequences in a training call to a multiple of this,
    with copies that have no effect."""
