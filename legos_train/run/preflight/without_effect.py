"""Settings that differ from their defaults but have no effect, given the others: a run lists them when it starts.

They are not errors: a preset may set them, and a part of a run may be switched off without clearing its settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from legos_train.config import TrainConfig, sections
from legos_train.league import MODES
from legos_train.rollout.players import words
from legos_train.settings import Section


class Idle(NamedTuple):
    """Settings of one section that have no effect, and the reason, usually the value of another setting."""

    section: str
    names: tuple[str, ...]
    reason: str


AVERAGES = {"decay": "ema", "start": "uniform", "degree": "polynomial"}
"""The only kind of weight average that reads each option."""


def without_effect(config: TrainConfig) -> list[str]:
    """A sentence for each setting that was changed and has no effect."""
    said: dict[str, None] = {}
    for idle in _idle(config):
        said |= dict.fromkeys(_changed(getattr(config, idle.section), idle))
    for learner, own in config.learners.items():
        said |= dict.fromkeys(
            f"learner {learner}: {each}"
            for idle in _of_loss(own)
            for each in _changed(getattr(own, idle.section), idle)
        )
    for role, entry in config.actors.items():
        if entry.model is not None and (words.is_code(entry.model) or words.is_strategy(entry.model)):
            reason = f"{entry.model!r} is no language model"
            asked = Idle(f"actors.{role}", ("system_prompt", *sections.OF_A_SEAT), reason)
            said |= dict.fromkeys(_changed(entry, asked))
    return list(said)


def _changed(section: Section, idle: Idle) -> Iterator[str]:
    for name in idle.names:
        value, field = getattr(section, name), type(section).model_fields[name]
        if value != field.get_default(call_default_factory=True):
            yield f"{idle.section}.{name} = {_shown(value)} has no effect: {idle.reason}"


def _shown(value: Any) -> str:
    return repr(str(value)) if isinstance(value, str | Path) else str(value)


def _others(section: Section, *used: str) -> tuple[str, ...]:
    return tuple(name for name in type(section).model_fields if name not in used)


def _idle(config: TrainConfig) -> Iterator[Idle]:
    if not config.asynchronous.enabled:
        yield Idle("asynchronous", _others(config.asynchronous, "enabled"), "asynchronous.enabled is off")
    if config.replay.reuse == 1:
        yield Idle("replay", _others(config.replay, "reuse"), "replay.reuse is 1")
    if not config.server.urls:
        yield Idle("server", _others(config.server, "urls"), "server.urls is empty")
    if config.monitor.action != "raise_kl":
        yield Idle("monitor", ("kl_factor",), f"monitor.action is {config.monitor.action!r}")
    kind = config.average.kind
    yield Idle("average", tuple(name for name, of in AVERAGES.items() if of != kind), f"average.kind is {kind!r}")
    yield from _of_league(config)
    if not config.learner:
        yield from _of_loss(config)


def _of_league(config: TrainConfig) -> Iterator[Idle]:
    rule, reason = config.league.rule, f"league.mode is {config.league.mode!r}"
    if not rule.keeps_snapshots:
        yield Idle("league", _others(config.league, "mode", "opponents", "pool_from"), reason)
    else:
        of_others = dict.fromkeys(option for row in MODES.values() for option in row.options)
        yield Idle("league", tuple(option for option in of_others if option not in rule.options), reason)


def _of_loss(config: TrainConfig) -> Iterator[Idle]:
    loss = config.loss
    if loss.token_loss.all_actions:
        reason = f"loss.name is {loss.name!r}, which values every action by the game itself"
        yield Idle("credit", _others(config.credit, "return_scale"), reason)
    yield Idle("loss", loss.unused, f"loss.name is {loss.name!r}, which takes no such option")
    if loss.aggregation != "constant":
        yield Idle("loss", ("constant",), f"loss.aggregation is {loss.aggregation!r}")
    if not loss.entropy:
        yield Idle("loss", ("entropy_over", "entropy_top"), "loss.entropy is 0")
    elif loss.entropy_over != "top":
        yield Idle("loss", ("entropy_top",), f"loss.entropy_over is {loss.entropy_over!r}")
    if not loss.kl and not loss.kl_end:
        names = ("kl_schedule", "kl_estimator", "magnet_every", "magnet", "magnet_base")
        yield Idle("loss", names, "the KL weight is 0")
    elif loss.kl_end is None or loss.kl_end == loss.kl:
        yield Idle("loss", ("kl_schedule",), "the KL weight does not change")
