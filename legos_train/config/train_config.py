"""The settings of a training run and what they must agree on; `run_settings.py` has the fields.

Precedence, lowest first: defaults, preset, file, command line. The error for an unknown key names the nearest one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError, model_validator

from inference.address import SECRET_NAME, has_secret
from legos_train.config.assignments import merged
from legos_train.config.backend_rows import BACKENDS
from legos_train.config.preset_files import preset
from legos_train.config.run_settings import RunSettings
from legos_train.config.sections import (
    BranchSettings,
)
from legos_train.config.wording import explained
from legos_train.credit import METHODS
from legos_train.errors import ConfigError
from legos_train.league import MODES
from legos_train.loss import LOSSES
from legos_train.rollout.players import replies


class TrainConfig(RunSettings):
    """One training run."""

    if not TYPE_CHECKING:  # type checkers take the arguments from the fields

        def __init__(self, **values: Any) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise ConfigError("; ".join(explained(e, TrainConfig) for e in error.errors())) from None

    @model_validator(mode="after")
    def _without_secrets(self) -> TrainConfig:
        for place, text in _texts(self.plain()):
            if has_secret(text) or SECRET_NAME.fullmatch(place[-1]):
                raise ValueError(
                    f"{'.'.join(place)} holds a password or a key, which would end up in files and logs: it belongs in "
                    "an environment variable"
                )
        return self

    @model_validator(mode="after")
    def _consistent(self) -> TrainConfig:
        if not self.env:
            raise ValueError("env is empty: name at least one environment")
        labels = [entry.label for entry in self.env]
        if twice := {label for label in labels if labels.count(label) > 1}:
            raise ValueError(f"two environments are named {sorted(twice)[0]!r}; give each table [[env]] its own name")
        held_out = [entry.label for entry in self.eval.env]
        if twice := {label for label in held_out if [*labels, *held_out].count(label) > 1}:
            raise ValueError(
                f"eval.env: two environments are named {sorted(twice)[0]!r}; give the held-out one its own name"
            )
        if self.env_args and len(self.env) > 1:
            raise ValueError("env_args is for runs with one environment; with several, give args in each table [[env]]")
        if self.asynchronous.enabled and self.server.urls:
            if self.asynchronous.backend == "process":
                raise ValueError("asynchronous.backend = 'process' generates locally: with server.urls use 'auto'")
            if self.asynchronous.in_flight == "keep":
                raise ValueError(
                    "asynchronous.in_flight = 'keep' is for local generation: servers finish what they started"
                )
        self._check_backend()
        if self.monitor.action == "raise_kl" and not self.loss.kl:
            raise ValueError("monitor.action = 'raise_kl' multiplies loss.kl, which is 0: give it a value")
        if self.loss.token_loss.all_actions:
            self._check_all_actions()
        elif self.branch != BranchSettings():
            over_all = " and ".join(repr(name) for name, row in LOSSES.items() if row.all_actions)
            raise ValueError(
                f"[branch] values actions for the losses {over_all} and has no effect for {self.loss.name!r}; "
                "leave it out"
            )
        if self.loss.token_loss.imitates and self.filter.zero_advantages:
            name = repr(self.loss.name)
            raise ValueError(f"loss.name = {name} learns without advantages; leave out filter.zero_advantages")
        self._check_credit()
        self._check_learners()
        replies.read_reply(self.reply)
        if (limit := self.sampling.thinking_tokens) is not None and limit >= self.action_tokens:
            raise ValueError(
                f"sampling.thinking_tokens ({limit}) must be less than sampling.max_tokens ({self.action_tokens}), "
                "which counts thought and action"
            )
        if self.replay.reuse > 1 and not self.replay.max_staleness:
            raise ValueError(
                "replay.reuse has no effect with replay.max_staleness = 0: a batch used again is a step old"
            )
        if self.batch_size % self.grouped:
            raise ValueError(f"batch_size ({self.batch_size}) must be a multiple of group_size ({self.grouped})")
        return self

    @classmethod
    def load(cls, path: Path) -> TrainConfig:
        """The settings in a TOML file, over those of the preset that it names, if any (`preset = "spiral"`).

        Raises:
            ConfigError: the file is missing, is not TOML, or a key is unknown or wrong.
        """
        data = read_toml(path)
        if (name := data.pop("preset", None)) is not None:
            data = merged(preset(name), data)
        return from_dict(data, str(path))

    @property
    def credit_names(self) -> set[str]:
        """All credit methods of the run."""
        own = {one.credit.name for one in self.learners.values()}
        return self.credit.names | {entry.credit for entry in self.env if entry.credit} | own

    @property
    def learners(self) -> dict[str, TrainConfig]:
        """The settings of several learners by name; empty if a single policy is trained."""
        shared = {key: value for key, value in self.plain().items() if key != "learner"} if self.learner else {}
        out = {}
        for entry in self.learner:
            own: dict[str, Any] = {"optim": entry.optim, "loss": entry.loss, "credit": entry.credit}
            if entry.rank is not None:
                own["lora"] = {"rank": entry.rank}
            out[entry.name] = from_dict(merged(shared, own), f"learner {entry.name!r}")
        return out

    def _check_learners(self) -> None:
        names = [entry.name for entry in self.learner]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two learners are named {sorted(twice)[0]!r}; give each table [[learner]] its own name")
        for entry in self.learner:
            if unknown := {*entry.opponents} - {*names}:
                raise ValueError(
                    f"opponents of learner {entry.name!r} names {sorted(unknown)[0]!r}; the learners are "
                    f"{', '.join(names)} (other players go into league.opponents)"
                )
            if entry.opponents and self.league.rule.needs_opponents:
                raise ValueError(
                    f"opponents of learner {entry.name!r} has no effect with league.mode = {self.league.mode!r}: "
                    "learners do not meet; leave it out"
                )
            if entry.latest is not None and not self.league.rule.keeps_snapshots:
                others = ", ".join(name for name, row in MODES.items() if row.keeps_snapshots)
                raise ValueError(
                    f"latest of learner {entry.name!r} has no effect with league.mode = {self.league.mode!r}, which "
                    f"has no snapshots; use one of {others}, or leave it out"
                )
        try:
            own = self.learners
        except ConfigError as error:
            raise ValueError(str(error)) from None
        every = [self, *own.values()]
        kinds = {
            (one.loss.name, *one.loss.options.values(), one.credit.return_scale)
            if one.loss.token_loss.all_actions
            else None
            for one in every
        }
        if len(kinds) > 1:
            loss = next(one.loss for one in every if one.loss.token_loss.all_actions)
            same = ", ".join(f"loss.{name}" for name in loss.options)
            raise ValueError(
                f"loss.name = {loss.name!r} values a game for all learners at once: use it for all learners, with the "
                f"same {same} and credit.return_scale, or for none of them"
            )

    def _check_backend(self) -> None:
        """Checks that no settings of other backends are given, and none that this one refuses."""
        for name, row in BACKENDS.items():
            section = row.section
            if name != self.backend and section and (own := getattr(self, section)) != type(own)():
                raise ValueError(
                    f"{section}.* has no effect with backend = {self.backend!r}; give --backend {name}, or leave it out"
                )
        for setting, error in self.backend_row.refused:
            if attrgetter(setting)(self):
                raise ValueError(error)

    def _check_all_actions(self) -> None:
        """A loss over all actions learns from the current policy, so it cannot reuse or filter samples."""
        wrong = {
            "asynchronous.enabled": self.asynchronous.enabled,
            "replay.reuse": self.replay.reuse > 1,
            "filter.keep": self.filter.keep != type(self.filter)().keep,
            "filter.draws": bool(self.filter.draws),
            "filter.draw_retries": bool(self.filter.draw_retries),
            "filter.zero_advantages": self.filter.zero_advantages,
        }
        if unfit := [name for name, is_set in wrong.items() if is_set]:
            raise ValueError(f"loss.name = {self.loss.name!r} learns from no samples; leave out {unfit[0]}")

    def _check_credit(self) -> None:
        """Checks that names are known, and that every changed option is used by some method of the run."""
        used = {"name", "roles", "return_scale"}
        for name in sorted(self.credit_names):
            if name not in METHODS:
                raise ValueError(f"unknown credit method {name!r}; available: {', '.join(METHODS)}")
            used |= set(self.credit.options(name))
        for name, field in type(self.credit).model_fields.items():
            value = getattr(self.credit, name)
            if name not in used and value != field.get_default(call_default_factory=True):
                raise ValueError(
                    f"credit.{name} = {value!r} has no effect: "
                    f"{', '.join(sorted(self.credit_names))} takes no such option"
                )

    @property
    def grouped(self) -> int:
        """Episodes per group: `group_size`, or 8 when a method compares the episodes of a group, else 1."""
        every = list(self.learners.values()) or [self]
        return self.grouped_for(*(one.credit.make(name) for one in every for name in sorted(one.credit_names)))

    def grouped_for(self, *methods: Any) -> int:
        """`grouped`, for credit methods other than those of the config."""
        if self.group_size is not None:
            return self.group_size
        return 8 if any(getattr(credit, "groups", False) for credit in methods) else 1


def _texts(value: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every string in plain values, with its path of keys."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in inner:
            yield from _texts(one, (*place, str(key)))


def read_toml(path: Path) -> dict[str, Any]:
    """The plain values of a TOML file; raises `ConfigError` if it is missing or not TOML."""
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"cannot read the config file {str(path)!r}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{str(path)!r} is not valid TOML: {error}") from error


def from_dict(data: dict[str, Any], where: str = "config") -> TrainConfig:
    """Validates plain values; errors name their source."""
    try:
        return TrainConfig(**data)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def to_toml(config: TrainConfig) -> str:
    """The whole config as TOML; settings that are None are omitted, which is equivalent."""
    import tomli_w

    return tomli_w.dumps(config.plain())
