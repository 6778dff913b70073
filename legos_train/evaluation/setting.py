"""What the options of `legos eval` and `legos tournament` say, env by env."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import legos_envs
from legos_train.config import parse_assignments
from legos_train.evaluation.env_words import SettingError, env_words, made
from legos_train.evaluation.games import Pairing, seeds_for
from legos_train.evaluation.journal import Journal
from legos_train.evaluation.outcomes import sides_of
from legos_train.evaluation.playing import Stage
from legos_train.evaluation.progress import Progress
from legos_train.evaluation.text import count
from legos_train.players import actors, words


class Setting:
    """What the options say, env by env."""

    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.envs = env_words(options.env, options.arg)
        self.fixed = {key: str(value) for key, value in parse_assignments(options.seat, "--seat").items()}
        self.cast = words.Cast(
            temperature=options.temperature,
            max_tokens=options.max_tokens,
            renderer=options.renderer,
            system=options.system,
            timeout=options.timeout,
            connections=options.connections,
            body=parse_assignments(options.body, "--body"),
        )
        self._made: dict[str, Any] = {}
        self._identities: dict[tuple[str, bool], dict[str, Any]] = {}

    def env(self, title: str) -> Any:
        """An env after a reset."""
        if title not in self._made:
            word = self.envs[title]
            env = self._made[title] = made(word.id, word.args)
            env.reset(seed=0)
            known = {*env.infos, *(info.get("role", agent) for agent, info in env.infos.items())}
            if unknown := set(self.fixed) - known:
                raise SettingError(f"no agent or role {sorted(unknown)} in {title}; it has {sorted(known)}")
        return self._made[title]

    def pairing(self, title: str, policy: str, opponent: str) -> Pairing:
        infos, word = self.env(title).infos, self.envs[title]
        taken = {a for a, info in infos.items() if a in self.fixed or info.get("role", a) in self.fixed}
        sides = tuple(side for side in sides_of(infos) if not taken.intersection(side))
        if not sides:
            raise SettingError(f"{title} has no seat left for {policy}: the env trains none, or --seat gives all away")
        fixed = {actors.UNTRAINED: "random", **self.fixed}
        trained = {name for a, info in infos.items() if info.get("trainable", True) for name in (a, info.get("role"))}
        judges = frozenset(self.fixed) - trained
        players = {policy, opponent, *(one for seat, one in fixed.items() if seat not in judges)}
        identity = {one: self.identity(one) for one in players}
        identity |= {f"judge {one}": self.identity(one, judge=True) for one in {fixed[seat] for seat in judges}}
        return Pairing(word.id, policy, opponent, sides, word.args, fixed, identity, judges, title)

    def zero_sum(self, title: str) -> bool:
        """Whether what one side gets the others lose; unknown of foreign envs, which count as not."""
        return bool(getattr(self.env(title).unwrapped, "zero_sum", False))

    def identity(self, word: str, judge: bool = False) -> dict[str, Any]:
        if (word, judge) not in self._identities:
            warmth = self.options.judge_temperature if judge else None
            self._identities[word, judge] = self.cast.identity(word, warmth)
        return self._identities[word, judge]

    def stage(self, journal: Journal) -> Open:
        options = self.options
        alone = "human" in {*options.policy, *(getattr(options, "opponent", None) or ()), *self.fixed.values()}
        report = None if alone else Progress()  # whoever sits at this terminal would find it in between
        return Open(
            Stage(
                self.cast,
                journal,
                concurrency=1 if alone else options.concurrency,
                retries=options.retries,
                judging=options.judge_temperature,
                report=report,
            ),
            self.cast,
            journal,
            report,
        )

    def facts(self) -> dict[str, Any]:
        """What decided the results beside envs and policies, for who reads them later."""
        names = ("games", "samples", "seed", "temperature", "judge_temperature", "max_tokens", "system", "renderer")
        found = {name: getattr(self.options, name) for name in names if hasattr(self.options, name)}
        return {"version": legos_envs.__version__, **found, "seats": self.fixed, "body": self.cast.body}

    def remarks(self, pairing: Pairing) -> list[str]:
        """What a reader of the numbers of a pairing should know of how they came about."""
        infos = self.env(pairing.title).infos
        free = [
            agent
            for agent, info in infos.items()
            if not info.get("trainable", True) and not {agent, info.get("role", agent)} & set(self.fixed)
        ]
        said = [f"{', '.join(free)} played by random; name somebody with --seat ROLE=POLICY."] if free else []
        for word in dict.fromkeys((pairing.policy, pairing.opponent)):
            trained = trained_args(word, pairing.env)
            if trained is not None and trained != pairing.args:
                said.append(
                    f"{word} was trained with the env arguments {trained}; these games have {pairing.args} (--arg)."
                )
            if self.options.system is None and (roles := told_roles(word)):
                said.append(f"{word} was trained with system prompts for {', '.join(roles)}; here is none (--system).")
        problems = getattr(self.env(pairing.title).unwrapped, "problems", ())
        asked = seeds_for(self.options.games, len(pairing.sides), getattr(self.options, "samples", 1))
        if len(pairing.sides) == 1 and asked < len(problems):
            said.append(f"{asked} of {len(problems)} problems.")
        if {pairing.policy, pairing.opponent} & {"human"}:
            said.append("a person's games are few and not repeatable.")
        return said


class Open:
    """Closes a stage, its cast and the line of its progress at the end of a `with`."""

    def __init__(self, stage: Stage, cast: words.Cast, journal: Journal, report: Progress | None):
        self.stage, self.cast, self.journal, self.report = stage, cast, journal, report

    def __enter__(self) -> Stage:
        return self.stage

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if self.report is not None:
            self.report.close()
        if kind is not None and self.journal.folder is not None:
            kept = f"{count(len(self.journal.records), 'game')} kept in {self.journal.folder}"
            print(f"{kept}; the same command goes on from there", file=sys.stderr)
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
    return (
        {}
        if words.is_code(word) or words.is_endpoint(word) or not (run / "config.toml").exists()
        else words.run_settings(run)
    )
