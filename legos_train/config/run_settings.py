"""The fields of a training run's settings: its flags and the keys of TOML files. sections.py has the sections."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator

from inference.text import RENDERERS
from inference.thoughts import THINKING
from inference.types import Dequantize
from legos_train.config.backend_rows import BACKENDS, BackendRow
from legos_train.config.sections import (
    ActorEntry,
    AsyncSettings,
    AverageSettings,
    BranchSettings,
    CheckpointSettings,
    CurriculumSettings,
    EnvEntry,
    EvaluationSettings,
    FilterSettings,
    HeldOutEntry,
    LearnerEntry,
    LogSettings,
    LoRASettings,
    MonitorSettings,
    OptimSettings,
    ReplaySettings,
    SamplingSettings,
    ServerSettings,
    TinkerSettings,
)
from legos_train.credit import CreditSettings
from legos_train.errors import ConfigError
from legos_train.league import LeagueSettings
from legos_train.loss import LossSettings
from legos_train.rollout.players import actors, replies
from legos_train.settings import Arguments, Section, as_entries, as_named

if TYPE_CHECKING:
    from inference.text import Renderer

    RendererName = str
    BackendName = str
else:
    RendererName = Literal["auto", *RENDERERS]
    BackendName = Literal[tuple(BACKENDS)]


class RunSettings(Section):
    """One training run, one setting at a time; `TrainConfig` checks that they fit together."""

    env: tuple[EnvEntry, ...] = (EnvEntry(id="KuhnPoker-v0"),)
    """The environments: an id, a list of ids, or tables `[[env]]` with id, weight and args."""
    env_args: Arguments = Field(default_factory=dict)
    """Constructor arguments, for a run with one environment."""
    actors: dict[str, ActorEntry] = Field(default_factory=dict)
    """Who plays each role: tables `[actors.ROLE]` or `[actors."ENV/ROLE"]`."""
    learner: tuple[LearnerEntry, ...] = ()
    """Several policies instead of one: tables `[[learner]]`, each with the roles it plays."""
    model: str = "tiny"
    """`tiny`, `small`, a model directory in mlx-lm's layout, or a hub name."""
    backend: BackendName = "mlx"
    """Where the weights are trained: on MLX in this process, or at a service that speaks the Tinker API."""
    init_adapter: Path | None = None
    """Adapter weights to start from: an adapter directory or a run directory."""
    renderer: RendererName = "auto"
    """How conversations become tokens; `auto` uses the model's own chat template."""
    thinking: Literal["auto", "on", "off"] = "auto"
    """Whether the model thinks before answering, if its chat template has that switch (`enable_thinking`); auto: the
    template's default."""
    reply: str = Field(
        default="env",
        description="How the prompt asks for an answer: "
        + ", ".join(f"`{name}`" + f" ({row.help})" * bool(row.help) for name, row in replies.REPLIES.items())
        + ", or your own text with `{observation}` in it.",
    )
    train_roles: tuple[str, ...] = ()
    """Roles to train on; empty: every seat that the environment declares trainable."""
    steps: int = Field(default=250, ge=1)
    """Optimiser steps (one batch of episodes each)."""
    batch_size: int = Field(default=512, ge=1)
    """Episodes per step."""
    group_size: int | None = Field(default=None, ge=1)
    """Episodes that share a seed, for credit methods that compare them; none: 8 for such methods, otherwise 1."""
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    """Seed of the whole run: initial weights, deals, sampling, opponents."""
    run_dir: Path | None = None
    """Directory of the run; none: a new one in `runs/`."""
    threads: Annotated[int, Field(ge=1)] | Literal["auto"] = 1
    """Threads of the matrix library on a CPU. auto: one per core that is idle at startup for models of 50 million
    weights or more, otherwise 1. The number of threads affects rounding."""
    dequantize: Dequantize = "auto"
    """Whether to dequantise weights at load: faster on a CPU, for four to eight times the memory. auto: on a CPU; if
    memory is short, each layer is dequantised when used instead."""
    max_rows: int = Field(default=256, ge=1)
    """Maximum distinct sequences the engine decodes at once; identical ones count once."""
    max_batch_tokens: int = Field(default=3072, ge=64)
    """Maximum padded tokens in one forward and backward pass, which bounds a step's memory. The prefix that all of its
    rows share is not counted, and a longer row is computed alone. A larger value is no faster on a CPU; on a GPU, where
    this has not been measured, it may suit small models."""
    context: int = Field(default=4096, ge=16)
    """Maximum tokens of a prompt and its action together; exceeding it is an invalid move."""
    lora: LoRASettings = LoRASettings()
    sampling: SamplingSettings = SamplingSettings()
    optim: OptimSettings = OptimSettings()
    loss: LossSettings = LossSettings()
    credit: CreditSettings = CreditSettings()
    filter: FilterSettings = FilterSettings()
    branch: BranchSettings = BranchSettings()
    league: LeagueSettings = LeagueSettings()
    asynchronous: AsyncSettings = AsyncSettings()
    replay: ReplaySettings = ReplaySettings()
    curriculum: CurriculumSettings = CurriculumSettings()
    monitor: MonitorSettings = MonitorSettings()
    average: AverageSettings = AverageSettings()
    eval: EvaluationSettings = EvaluationSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    logs: LogSettings = LogSettings()
    server: ServerSettings = ServerSettings()
    tinker: TinkerSettings = TinkerSettings()

    _named = field_validator("credit", "loss", mode="before")(as_named)
    _entries = field_validator("env", mode="before")(as_entries)

    @property
    def backend_row(self) -> BackendRow:
        """The row of `BACKENDS` that `backend` names."""
        return BACKENDS[self.backend]

    def plain(self) -> dict[str, Any]:
        """See `Section.plain`; environments with only an id are written as that id."""
        out = super().plain()
        entries = [e.id if e == EnvEntry(id=e.id) else _small(e) for e in self.env]
        out["env"] = entries[0] if len(entries) == 1 and isinstance(entries[0], str) else entries
        return {key: value for key, value in out.items() if value != {}}

    @property
    def envs(self) -> tuple[EnvEntry, ...]:
        """The environments with `env_args` and the action format of `reply` merged in."""
        entries = [entry.model_copy(update={"args": {**entry.args, **self.env_args}}) for entry in self.env]
        return tuple(entry.model_copy(update={"args": self.formatted(entry)}) for entry in entries)

    def formatted(self, entry: EnvEntry | HeldOutEntry) -> dict[str, Any]:
        """The constructor arguments of an env with the action format of `reply`."""
        args = entry.arguments if isinstance(entry, HeldOutEntry) else entry.args
        return replies.formatted(args, self.reply, entry.label)

    def make_renderer(self, tokenizer: Any) -> Renderer:
        """How conversations become tokens of this run's model.

        Raises:
            ConfigError: the model's chat template does not support it.
        """
        from inference.text import Renderer

        try:
            return Renderer(tokenizer, self.renderer, THINKING[self.thinking], ask=replies.read_reply(self.reply).ask)
        except ValueError as error:
            raise ConfigError(f"{self.model}: {error}") from None

    @property
    def title(self) -> str:
        """The readable names of the environments."""
        return " + ".join(entry.label for entry in self.env)

    @property
    def action_tokens(self) -> int:
        """Maximum tokens per action."""
        return self.sampling.max_tokens or actors.default_tokens(self.model)


def _small(entry: EnvEntry) -> dict[str, Any]:
    return {key: value for key, value in entry.plain().items() if value not in ("", {}, None)}
