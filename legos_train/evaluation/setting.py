"""What the options of `legos eval` and `legos tournament` say, env by env."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import legos_envs
from legos_train.actors import UNTRAINED
from legos_train.cli import parse_assignments
from legos_train.evaluation.games import Pairing
from legos_train.evaluation.journal import Journal
from legos_train.evaluation.outcomes import sides_of
from legos_train.evaluation.playing import Stage
from legos_train.policies import Cast, is_code, is_endpoint, run_settings


def add_playing(p: argparse.ArgumentParser) -> None:
    """The options that `eval` and `tournament` share."""
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--temperature", type=float, default=1.0)
    p.add_argument("--max-tokens", type=int, help="of one action; default 64 for `tiny`, 1024 for other models")
    p.add_argument("--system", help="system prompt of models and endpoints")
    p.add_argument("--renderer", default="auto")
    p.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE", help="constructor argument of the envs")
    p.add_argument(
        "--seat", action="append", default=[], metavar="NAME=POLICY", help="who takes an agent or role: judges"
    )
    p.add_argument("--out", type=Path, metavar="DIR", help="keep every game there; go on where it stopped")
    p.add_argument("--concurrency", type=int, default=256, help="games under way at once (256)")
    p.add_argument("--connections", type=int, default=32, help="requests under way at one endpoint (32)")
    p.add_argument("--timeout", type=float, default=120.0, help="seconds for one attempt at an endpoint (120)")
    p.add_argument("--retries", type=int, default=1, help="how often games that an endpoint lost are replayed (1)")
    p.add_argument("--json", action="store_true", help="print one JSON object")


def check(p: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Ends with a usage error for numbers out of range."""
    for name in ("games", "concurrency", "connections"):
        if getattr(options, name) < 1:
            p.error(f"--{name} must be at least 1, got {getattr(options, name)}")
    for name in ("seed", "retries", "temperature"):
        if getattr(options, name) < 0:
            p.error(f"--{name} must be at least 0, got {getattr(options, name)}")
    if options.max_tokens is not None and options.max_tokens < 1:
        p.error(f"--max-tokens must be at least 1, got {options.max_tokens}")
    if not options.timeout > 0:
        p.error(f"--timeout must be above 0, got {options.timeout}")


class SettingError(ValueError):
    """The options do not fit an env; the message says why."""


class Setting:
    """What the options say, env by env."""

    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.args = parse_assignments(options.arg, "--arg")
        self.fixed = {key: str(value) for key, value in parse_assignments(options.seat, "--seat").items()}
        self.cast = Cast(
            temperature=options.temperature,
            max_tokens=options.max_tokens,
            renderer=options.renderer,
            system=options.system,
            timeout=options.timeout,
            connections=options.connections,
        )
        self._envs: dict[str, Any] = {}
        self._identities: dict[str, dict[str, Any]] = {}

    def env(self, name: str) -> Any:
        """An env after a reset."""
        if name not in self._envs:
            env = self._envs[name] = legos_envs.make(name, **self.args)
            env.reset(seed=0)
            known = {*env.infos, *(info.get("role", agent) for agent, info in env.infos.items())}
            if unknown := set(self.fixed) - known:
                raise SettingError(f"no agent or role {sorted(unknown)} in {name}; it has {sorted(known)}")
        return self._envs[name]

    def pairing(self, env: str, policy: str, opponent: str) -> Pairing:
        infos = self.env(env).infos
        taken = {a for a, info in infos.items() if a in self.fixed or info.get("role", a) in self.fixed}
        sides = tuple(side for side in sides_of(infos) if not taken.intersection(side))
        if not sides:
            raise SettingError(f"no seat of {env} is left for {policy}: the env trains none, or --seat gives all away")
        fixed = {UNTRAINED: "random", **self.fixed}
        identity = {word: self.identity(word) for word in {policy, opponent, *fixed.values()}}
        return Pairing(env, policy, opponent, sides, self.args, fixed, identity)

    def zero_sum(self, env: str) -> bool:
        """Whether what one side gets the others lose; unknown of foreign envs, which count as not."""
        return bool(getattr(self.env(env).unwrapped, "zero_sum", False))

    def identity(self, word: str) -> dict[str, Any]:
        if word not in self._identities:
            self._identities[word] = self.cast.identity(word)
        return self._identities[word]

    def stage(self, journal: Journal) -> Open:
        options = self.options
        alone = "human" in {*options.policy, *(getattr(options, "opponent", None) or ()), *self.fixed.values()}
        report = progress if sys.stderr.isatty() and not options.json else None
        return Open(
            Stage(
                self.cast,
                journal,
                concurrency=1 if alone else options.concurrency,
                retries=options.retries,
                report=report,
            ),
            self.cast,
        )

    def remarks(self, pairing: Pairing) -> list[str]:
        """What a reader of the numbers of a pairing should know of how they came about."""
        infos = self.env(pairing.env).infos
        free = [
            agent
            for agent, info in infos.items()
            if not info.get("trainable", True) and not {agent, info.get("role", agent)} & set(self.fixed)
        ]
        said = [f"{', '.join(free)} played by random; name somebody with --seat ROLE=POLICY."] if free else []
        for word in dict.fromkeys((pairing.policy, pairing.opponent)):
            trained = trained_args(word, pairing.env)
            if trained is not None and trained != self.args:
                said.append(
                    f"{word} was trained with the env arguments {trained}; these games have {self.args} (--arg)."
                )
            if self.options.system is None and (roles := told_roles(word)):
                said.append(f"{word} was trained with system prompts for {', '.join(roles)}; here is none (--system).")
        if {pairing.policy, pairing.opponent} & {"human"}:
            said.append("a person's games are few and not repeatable.")
        return said


class Open:
    """Closes a stage and its cast at the end of a `with`."""

    def __init__(self, stage: Stage, cast: Cast):
        self.stage, self.cast = stage, cast

    def __enter__(self) -> Stage:
        return self.stage

    def __exit__(self, *error: object) -> None:
        self.stage.close()
        self.cast.close()


def trained_args(word: str, env: str) -> dict[str, Any] | None:
    """The env arguments that a run was trained with; None for what is no run, or was not trained on that env."""
    settings = _run_of(word)
    given = settings.get("env", [])
    for entry in [given] if isinstance(given, str | dict) else given:
        if isinstance(entry, str) and entry == env:
            return dict(settings.get("env_args", {}))
        if isinstance(entry, dict) and entry.get("id") == env:
            return dict(entry.get("args", {}))
    return None


def told_roles(word: str) -> list[str]:
    """The roles that had a system prompt when a run was trained."""
    return sorted(role for role, actor in _run_of(word).get("actors", {}).items() if actor.get("system_prompt"))


def _run_of(word: str) -> dict[str, Any]:
    """The settings of the run that a word means; none for other policies."""
    run = Path(word.partition("@")[0])
    return {} if is_code(word) or is_endpoint(word) or not (run / "config.toml").exists() else run_settings(run)


def progress(done: int, wanted: int) -> None:
    print(f"\r{done}/{wanted} games", end="\n" if done >= wanted else "", file=sys.stderr, flush=True)
