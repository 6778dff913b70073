"""An evaluation by `legos eval` or `legos tournament`: who plays which games, and what is reported."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import legos_envs
from legos_train.config import parse_assignments
from legos_train.evaluation.env_words import SettingError, env_words, made
from legos_train.evaluation.exact_values import ExactResults
from legos_train.evaluation.games import Pairing, PlannedGame, Record, checksums, seeds_for
from legos_train.evaluation.journal import Journal
from legos_train.evaluation.outcomes import competitive, sides_by_info
from legos_train.evaluation.playing import Stage
from legos_train.evaluation.summary import Row, comparisons, row
from legos_train.observe import ProgressLine
from legos_train.players import actors, replies, words
from legos_train.settings import as_entries, with_none

Played = list[tuple[Pairing, list[Record]]]
"""Pairings with the records of their games, in the order of the schedule."""
ITSELF = "self"
ASKED = {"thinking": "auto", "reply": "env"}
"""Settings of a run for how answers are asked for, with their defaults."""


class Session:
    """An evaluation.

    Args:
        options: the command line, see `legos_train.cli.arguments.add_playing`.

    Attributes:
        envs: the environments by title.
        fixed: policies of `--seat`, by agent or role.
        samples_played: a few of the games that `evaluate` played, each as readable lines.
        system: the system prompt of all others; `systems` has those of agents and roles, by env; `prompts` those of
            trained seats, by the given name.
    """

    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.envs = {
            title: word._replace(args=replies.formatted(word.args, options.reply, title))
            for title, word in env_words(options.env, options.arg).items()
        }
        self.fixed = {
            key: words.spelled(str(value)) for key, value in parse_assignments(options.seat, "--seat").items()
        }
        self._made: dict[str, Any] = {}
        self.prompts: dict[str, str] = {}
        self.system, self.systems = self._systems(options.system)
        body = parse_assignments(options.body, "--body")
        self.cast = words.Cast.from_options(options, system=self.system, body=body)
        self.samples_played: list[list[str]] = []
        self.samples: int = getattr(options, "samples", 1)
        self._identities: dict[tuple[str, bool], dict[str, Any]] = {}

    def _systems(self, texts: Sequence[str]) -> tuple[str | None, dict[str, dict[str, str]]]:
        """The general system prompt, and by env those of agents; `NAME=` counts only if an env has that name.

        Raises:
            SettingError: there are two general prompts.
        """
        named: dict[str, str] = {}
        general = []
        titles = list(self.envs) if any("=" in text for text in texts) else []
        roles = {t: {a: info.get("role", a) for a, info in self.env(t).infos.items()} for t in titles}
        known = {name for of_env in roles.values() for pair in of_env.items() for name in pair}
        for text in texts:
            name, sign, own = text.partition("=")
            if sign and name in known:
                named[name] = own
            elif sign and name.isidentifier() and (near := difflib.get_close_matches(name, known, 1)):
                raise SettingError(f"--system {name}=TEXT names no role or agent; did you mean {near[0]}=TEXT?")
            else:
                general.append(text)
        if len(general) > 1:
            raise SettingError(
                f"--system {general[1]!r} is a second general prompt; for one role write --system ROLE=TEXT, "
                f"with one of {', '.join(sorted(known)) or 'the roles of `legos envs show`'}"
            )
        systems: dict[str, dict[str, str]] = {}
        for title, of_env in roles.items():
            for agent, role in of_env.items():
                if self.env(title).infos[agent].get("trainable", True):
                    self.prompts |= {name: named[name] for name in (agent, role) if name in named}
                for name, key in ((role, role), (agent, role), (agent, agent)):
                    if key in named:
                        systems.setdefault(title, {})[name] = named[key]
        return (general[0] if general else None), systems

    def env(self, title: str) -> Any:
        """An env after a reset."""
        if title not in self._made:
            word = self.envs[title]
            env = self._made[title] = made(word.id, word.args)
            env.reset(seed=0)
            names = {*env.infos, *(info.get("role", agent) for agent, info in env.infos.items())}
            if unknown := set(self.fixed) - names:
                raise SettingError(f"no agent or role {sorted(unknown)} in {title}; it has {sorted(names)}")
        return self._made[title]

    def pairing(self, title: str, policy: str, opponent: str) -> Pairing:
        """A policy against an opponent in an env; `self` as the opponent is the policy itself."""
        infos, word = self.env(title).infos, self.envs[title]
        opponent = policy if opponent == ITSELF else opponent
        taken = {a for a, info in infos.items() if a in self.fixed or info.get("role", a) in self.fixed}
        sides = tuple(side for side in sides_by_info(infos) if not taken.intersection(side))
        if not sides:
            raise SettingError(f"{title} has no seat left for {policy}: the env trains none, or --seat takes them all")
        fixed = {actors.UNTRAINED: "random", **self.fixed}
        trained = {name for a, info in infos.items() if info.get("trainable", True) for name in (a, info.get("role"))}
        judges = frozenset(self.fixed) - trained
        players = {policy, opponent, *(one for seat, one in fixed.items() if seat not in judges)}
        if "human" in {*players, *fixed.values()} and getattr(self.options, "json", False):
            raise SettingError(
                "`human` cannot be combined with --json, as both use standard output; use --out DIR to save the results"
            )
        identity = {one: self.identity(one) for one in players}
        identity |= {f"judge {one}": self.identity(one, judge=True) for one in {fixed[seat] for seat in judges}}
        if systems := self.systems.get(title):
            identity["system prompts"] = systems
        if sums := checksums(word.files):
            identity["source"] = sums
        competes = competitive(self.env(title))
        return Pairing(word.id, policy, opponent, sides, word.args, fixed, identity, judges, title, competes)

    def identity(self, word: str, judge: bool = False) -> dict[str, Any]:
        """The settings that affect how a policy plays, as JSON values."""
        if (word, judge) not in self._identities:
            temperature = self.options.judge_temperature if judge else None
            self._identities[word, judge] = self.cast.identity(word, temperature)
        return self._identities[word, judge]

    def evaluate(
        self, policies: Sequence[str], opponents: Sequence[str], *, exact: bool = True
    ) -> tuple[dict[str, Any], int]:
        """Plays every policy against every opponent in every env.

        Args:
            policies: the policies to evaluate.
            opponents: the policies in the other seats.
            exact: whether to add exact numbers if a game can be solved.

        Returns:
            `results` (see `summary.row`), `comparisons` and `setting`; and how many games failed.
        """
        policies, opponents = [[*map(words.spelled, given)] for given in (policies, opponents)]
        schedule: list[tuple[Pairing, list[PlannedGame]]] = []
        for title in self.envs:
            alone = len(self.pairing(title, "random", "random").sides) == 1
            against = [ITSELF] if alone else dict.fromkeys(opponents)
            for policy in dict.fromkeys(policies):
                pairings = [self.pairing(title, policy, opponent) for opponent in against]
                for pairing in {one.key: one for one in pairings}.values():  # `self` may be one of the others
                    games = list(pairing.games(self.options.games, self.options.seed, self.samples))
                    schedule.append((pairing, games))
        with self.playing(schedule) as (stage, journal, played, rows, failed):
            numbers = ExactResults(stage.player, lambda text: print(text, file=sys.stderr, flush=True), self.systems)
            for pairing, result in zip([pairing for pairing, _ in schedule], rows):
                result["advice"] += self.remarks(pairing)
                if exact:
                    result.update(numbers.of(pairing, self.env(pairing.title)))
                    result["advice"] += numbers.remarks(pairing)
            compared = comparisons(played, self.options.seed, self.samples)
            results = {"results": rows, "comparisons": compared, "setting": self.facts()}
            journal.write_results(results)
            self.samples_played = list(stage.samples.values())
        return results, failed

    @contextmanager
    def playing(
        self, schedule: Sequence[tuple[Pairing, Sequence[PlannedGame]]]
    ) -> Iterator[tuple[Stage, Journal, Played, list[Row], int]]:
        """Plays a schedule; within the block its players can still be used.

        Args:
            schedule: pairings with their games.

        Yields:
            The stage, the journal, the records and the row of each pairing, and how many games failed.
        """
        options = self.options
        people = "human" in {*options.policy, *(getattr(options, "opponent", None) or ()), *self.fixed.values()}
        report = None if people else ProgressLine("games")  # it would mix with the lines of a game in the terminal
        with Journal(options.out) as journal:
            stage = Stage(
                self.cast,
                journal,
                concurrency=1 if people else options.concurrency,
                retries=options.retries,
                judging=options.judge_temperature,
                report=report,
                systems=self.systems,
            )
            try:
                planned = {game.key: game for _, games in schedule for game in games}
                failures = stage.play(list(planned.values()))
                kept = journal.records
                if others := kept.keys() - planned.keys():
                    print(
                        f"{journal.folder} also holds {len(others)} game{'s' * (len(others) != 1)} of other commands, "
                        "which `legos view` counts with these; to see them apart, give each its own --out",
                        file=sys.stderr,
                    )
                played = [(pairing, [kept[g.key] for g in games if g.key in kept]) for pairing, games in schedule]
                rows = [
                    row(
                        pairing,
                        records,
                        options.seed,
                        samples=self.samples,
                        failed=[failures[game.key] for game in games if game.key in failures],
                        zero_sum=bool(getattr(self.env(pairing.title), "zero_sum", False)),
                    )
                    for (pairing, records), (_, games) in zip(played, schedule)
                ]
                yield stage, journal, played, rows, len(failures)
            except BaseException:
                if report is not None:
                    report.close()
                if journal.folder is not None:
                    count = len(journal.records)
                    kept_in = f"{count} game{'s' * (count != 1)} kept in {journal.folder}"
                    print(f"{kept_in}; run the same command again to resume", file=sys.stderr)
                raise
            finally:
                if report is not None:
                    report.close()
                stage.close()
                self.cast.close()

    def facts(self) -> dict[str, Any]:
        """The settings, besides envs and policies, that affect the results."""
        names = (
            *("games", "samples", "seed", "temperature", "judge_temperature", "max_tokens", "system", "renderer"),
            *("thinking", "thinking_tokens", "reply"),
        )
        values = {name: getattr(self.options, name) for name in names if hasattr(self.options, name)}
        values |= {"system": self.system, **self.cast.draw.unusual}
        values |= {"systems": self.systems} if self.systems else {}
        return {"version": legos_envs.__version__, **values, "seats": self.fixed, "body": self.cast.body}

    def _asked_otherwise(self, word: str) -> list[str]:
        """The differences between how a run asked for answers and how these games do."""
        return [
            f"{word} was trained with {name} = {value!r}; here it is {getattr(self.options, name)!r} (--{name})."
            for name, value in _asked(word).items()
            if value != getattr(self.options, name)
        ]

    def remarks(self, pairing: Pairing) -> list[str]:
        """Notes on how the numbers of a pairing were obtained."""
        infos = self.env(pairing.title).infos
        free = [
            agent
            for agent, info in infos.items()
            if not info.get("trainable", True) and not {agent, info.get("role", agent)} & set(self.fixed)
        ]
        remarks = [f"{', '.join(free)} played by random; choose a policy with --seat ROLE=POLICY."] if free else []
        for word in dict.fromkeys((pairing.policy, pairing.opponent)):
            trained = trained_args(word, pairing.env)
            if trained and pairing.args not in trained:
                remarks.append(
                    f"{word} was trained with the env arguments {' and '.join(map(str, trained))}; these games have "
                    f"{pairing.args} (--arg)."
                )
            remarks += self._asked_otherwise(word)
            here = {name for agent, info in infos.items() for name in (agent, info.get("role", agent))}
            roles = here & set(prompted_roles(word, pairing.env)) - set(self.systems.get(pairing.title, ()))
            if self.system is None and roles:
                remarks.append(
                    f"{word} was trained with system prompts for {', '.join(sorted(roles))}; there is none here "
                    "(--system ROLE=TEXT)."
                )
        problems = getattr(self.env(pairing.title).unwrapped, "problems", ())
        seeds = seeds_for(self.options.games, len(pairing.sides), self.samples)
        if len(pairing.sides) == 1 and seeds < len(problems):
            remarks.append(f"these games take {seeds} of {len(problems)} problems.")
        if {pairing.policy, pairing.opponent} & {"human"}:
            remarks.append("a person's games are few and not repeatable.")
        return remarks


def _asked(word: str) -> dict[str, str]:
    """How a run asked for answers in training; empty for other policies."""
    settings = _run_of(word)
    return {name: settings.get(name, default) for name, default in ASKED.items()} if settings else {}


def trained_args(word: str, env: str) -> list[dict[str, Any]]:
    """The arguments of each env with that id that a run was trained on, with the action format of its `reply`; empty
    for anything but a run.
    """
    settings = _run_of(word)
    args = [
        {**e.get("args", {}), **settings.get("env_args", {})}
        for e in as_entries(settings.get("env", ()))
        if e.get("id") == env
    ]
    return [replies.formatted(with_none(one), settings.get("reply", "env"), env) for one in args]


def prompted_roles(word: str, env: str) -> list[str]:
    """The roles that had a system prompt in an env in training, including those set for all envs."""
    settings = _run_of(word)
    entries = as_entries(settings.get("env", ()))
    label_of = [(entry.get("name") or entry["id"], entry.get("id")) for entry in entries]
    roles = set()
    for key in [role for role, actor in settings.get("actors", {}).items() if actor.get("system_prompt")]:
        found = [(key.removeprefix(f"{label}/"), name) for label, name in label_of if key.startswith(f"{label}/")]
        roles |= {role for role, name in found or [(key, env)] if name == env}
    return sorted(roles)


def _run_of(word: str) -> dict[str, Any]:
    """The settings of the run with that name; empty for other policies."""
    run = Path(words.run_and_weights(word)[0])
    if words.is_code(word) or words.is_endpoint(word) or not (run / "config.toml").exists():
        return {}
    return words.run_settings(run)
