"""Forecasts what a run will need: memory and time from measured steps."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np

from inference.loading import is_here
from legos_envs import Episode
from legos_envs.tasks.problems import DataSetUnavailable
from legos_train.config import TrainConfig, sizes
from legos_train.loss.batch import Batch, BatchByLearner
from legos_train.model import Learners, backends
from legos_train.rollout import LocalGenerator
from legos_train.run.build import arena_of, build, credit_of
from legos_train.run.extrapolation import Measured, batch_sizes, continued, filled
from legos_train.run.garbage import rarely_collected
from legos_train.run.places import GivenBackend
from legos_train.run.preflight.legal_play import play_legally
from legos_train.run.preflight.memory import needs
from legos_train.run.preflight.without_effect import without_effect
from legos_train.run.trainer import Trainer

CHANGED = 0.1
"""Relative change in episode length over the measured steps above which it is reported."""
OFTEN = 0.1
"""Share of episodes ended by invalid moves above which steps without these are measured too."""
OF_SOURCE = ("source", "fields", "config", "split")
"""Arguments of an env for reading a data set from the hub."""
LONGEST = 30.0
"""Maximum seconds of a measured step; the needs of a larger batch are extrapolated from the last two."""


@dataclass(frozen=True)
class Forecast:
    """The needs of a run: bytes of the base model and of the trained state (`weights` numbers), and its steps.

    `measured`: steps of the run with growing numbers of episodes; `whole`: a full step, extrapolated from them;
    `legal`: one without invalid moves, if these end many episodes now (`OFTEN`);
    `ceiling`: MLX's peak once a batch fills parts of the largest size with rows as long as those measured.
    """

    base: int
    state: int
    weights: int
    measured: tuple[Measured, ...]
    whole: Measured
    legal: Measured | None
    ceiling: float
    steps: int

    def __str__(self) -> str:
        whole, last = self.whole, self.measured[-1]
        first, now = (step.turns / step.size for step in (self.measured[0], last))
        how = "" if last.size == whole.size else f", extrapolated from {last.size}"
        moving = f" ({first:.1f} at first: may keep changing)" if abs(now - first) > CHANGED * now else ""
        later, most = [], ""
        if (legal := self.legal) is not None:
            turns = legal.turns / legal.size
            later = [
                f"invalid moves   end {whole.broken:.0%} of the episodes; without them {turns:.1f} turns per episode,",
                f"                {legal.play:.2f} s of play and {legal.learn:.2f} s of learning per step, "
                f"{_mib(legal.peak)} of MLX",
            ]
            most = f", {_long(legal.seconds * self.steps)} without invalid moves"
        return "\n".join(
            [
                f"base model      {_mib(self.base)}",
                f"LoRA, optimiser, average  {_mib(self.state)} ({self.weights:,} weights trained)",
                f"peak memory     {_mib(whole.peak)} of MLX in a step, {_mib(whole.process)} of the process",
                f"at most         {_mib(self.ceiling)} of MLX, once rows as long as these fill max_batch_tokens",
                f"per episode     {now:.1f} turns{moving}, prompts of {last.tokens:.0f} tokens",
                f"per step        {whole.play:.2f} s of play and {whole.learn:.2f} s of learning for {whole.size} "
                f"episodes{how}",
                *later,
                f"{f'{self.steps} steps':<15} {_long(whole.seconds * self.steps)} if episodes keep this length{most}, "
                "evaluations not counted",
            ]
        )


def estimate(config: TrainConfig, backend: GivenBackend | None = None) -> str:
    """Loads the model, takes steps with batches growing up to the run's size, and discards the weights.

    Equal parts are computed once and episodes share prompts, so a small batch says little about a large one. For a
    model in `config.sizes` that would have to be downloaded, the estimate comes from its shape. Settings without effect
    are listed at the end.

    Args:
        config: settings of the run.
        backend: the caller's own, as in `train`; the steps train it.

    Raises:
        ConfigError: the settings do not fit the envs or each other.
    """
    return "\n".join([_estimate(config, backend), *(f"note            {said}" for said in without_effect(config))])


def _estimate(config: TrainConfig, backend: GivenBackend | None) -> str:
    if backend is not None:
        return str(forecast(config, backend=backend))
    if (said := backends.named_by(config).dry_run_note(config)) is not None:
        credit_of(config, arena_of(config))
        return said
    known = sizes.shape_of(config.model)
    if known is not None and not is_here(config.model):
        config, note = _checked_without_hub(config)
        return f"{note}{needs(config, known)}"
    return str(forecast(config))


def _checked_without_hub(config: TrainConfig) -> tuple[TrainConfig, str]:
    """The settings after creating envs and credit from them, with a readable note.

    If a data set on the hub cannot be loaded, its envs use their own items: the shape does not depend on them.
    """
    try:
        credit_of(config, arena_of(config))
        return config, ""
    except DataSetUnavailable as error:
        entries = [entry.model_copy(update={"args": _own_items(entry.args)}) for entry in config.env]
        own = config.model_copy(update={"env": tuple(entries), "env_args": _own_items(config.env_args)})
        credit_of(own, arena_of(own))
        return own, f"checked with the environment's own items instead: {error}\n"


def _own_items(args: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of an env without those of a source on the hub."""
    source = args.get("source")
    hub = isinstance(source, str) and source.partition(":")[0] == "hf"
    return {key: value for key, value in args.items() if not (hub and key in OF_SOURCE)}


def forecast(
    config: TrainConfig, clock: Callable[[], float] = time.perf_counter, backend: GivenBackend | None = None
) -> Forecast:
    """The numbers behind `estimate` for weights in this process, timed with `clock`."""
    parts = build(config, backend=backend)
    learners = list(parts.learner.members.values()) if isinstance(parts.learner, Learners) else [parts.learner]
    try:
        found = [one.backend.footprint() for one in learners]
        base, state, weights = found[0].base, sum(one.state for one in found), sum(one.weights for one in found)
        trainer, legal = Trainer(parts), None
        steps = measured = _growing(trainer, clock)
        whole = continued(steps, config.batch_size, config.max_batch_tokens)
        quick = steps[0].seconds < LONGEST  # without invalid moves it may take ten times as long
        if whole.broken > OFTEN and quick and isinstance(parts.arena.generator, LocalGenerator):
            play_legally(parts.arena.generator)
            measured = [*steps, *(longer := _growing(trainer, clock))]
            legal = continued(longer, config.batch_size, config.max_batch_tokens)
        ceiling = filled(measured, base + state, config.max_batch_tokens)
        most = max(ceiling, whole.peak, legal.peak if legal else 0.0)
        return Forecast(base, state, weights, tuple(steps), whole, legal, most, config.steps)
    finally:
        parts.close()


def _growing(trainer: Trainer, clock: Callable[[], float]) -> list[Measured]:
    """Steps of more and more episodes, as long as the next one will not take too long."""
    config, steps = trainer.config, list[Measured]()
    with rarely_collected():
        for size in batch_sizes(config.batch_size, config.grouped):
            if steps and continued(steps, size, config.max_batch_tokens).seconds > LONGEST:
                break
            steps.append(_step(trainer, size, clock))
    return steps


def process_peak() -> int:
    """Peak resident memory of this process, in bytes."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _step(trainer: Trainer, size: int, clock: Callable[[], float]) -> Measured:
    """One step on `size` new episodes, as in a run."""
    parts = trainer.parts
    parts.arena.batch_size = size
    parts.replay.records.clear()
    mx.reset_peak_memory()
    began = clock()
    episodes = trainer.play(trainer.learner.step + 1)
    trainer.assign_credit(episodes, trainer.learner.step)
    played = clock()
    trainer.learn(0.0)
    learned = clock()
    prompts = [len(t.prompt_tokens or ()) for e in episodes for x in e.trajectories.values() for t in x.turns]
    tokens = float(np.mean(prompts)) if prompts else 0.0
    peak = mx.get_peak_memory()
    part, shared = _largest_part(trainer.batch, parts.config.max_batch_tokens)
    times = played - began, learned - played
    return Measured(size, len(prompts), tokens, part, *times, peak, process_peak(), _broken(episodes), shared)


def _broken(episodes: Sequence[Episode]) -> float:
    """The share that an invalid move ended where the legal ones were known."""
    ended = [episode for episode in episodes if episode.outcome == "invalid"]
    known = [e for e in ended if any(turn.legal_actions for x in e.trajectories.values() for turn in x.turns)]
    return len(known) / len(episodes)


def _largest_part(batch: Batch | BatchByLearner | None, most: int) -> tuple[int, int]:
    """Maximum tokens computed at once, and those of them with which all rows begin."""
    batches = batch.parts.values() if isinstance(batch, BatchByLearner) else [batch] if batch is not None else []
    parts = [part for each in batches if len(each) for part, _ in each.parts(most)]
    return max(((p.prefix + p.distinct_rows * (p.tokens.shape[1] - p.prefix), p.prefix) for p in parts), default=(0, 0))


def _long(seconds: float) -> str:
    return f"{max(seconds, 1):.0f} s" if seconds < 60 else f"{seconds / 60:.1f} minutes"


def _mib(count: float) -> str:
    return f"{count / 2**20:,.1f} MiB"
