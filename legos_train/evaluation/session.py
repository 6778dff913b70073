"""An evaluation by `legos eval` or `legos tournament`: who plays which games, and what is reported."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import legos_envs
from legos_train.config import parse_assignments
from legos_train.evaluation.env_words import SettingError, env_words, made
from legos_train.evaluation.exact_results import ExactResults
from legos_train.evaluation.games import Pairing, PlannedGame, Record, checksums, seeds_for
from legos_train.evaluation.journal import Journal
from legos_train.evaluation.outcomes import competitive, sides_by_info
from legos_train.evaluation.playing import Stage
from legos_train.evaluation.session_options import SessionOptions
from legos_train.evaluation.summary import Row, comparisons, row
from legos_train.evaluation.system_prompts import system_prompts
from legos_train.evaluation.trained_as import trained_otherwise
from legos_train.observe import ProgressLine
from legos_train.rollout.players import actors, replies, words

Played = list[tuple[Pairing, list[Record]]]
"""Pairings with the records of their games, in the order of the schedule."""
ITSELF = "self"


class Session:
    """An evaluation.

    Args:
        options: the envs, and how games are played.

    Attributes:
        envs: the environments by title.
        fixed: policies of `--seat`, by agent or role.
        samples_played: a few of the games that `evaluate` played, each as readable lines.
        system: the system prompt of all others; `systems` has those of agents and roles, by env; `prompts` those of
            trained seats, by the given name.
    """

    def __init__(self, options: SessionOptions):
        self.options = options
        self.envs = {
            title: word._replace(args=replies.formatted(word.args, options.reply, title))
            for title, word in env_words(options.env, options.arg).items()
        }
        self.fixed = {
            key: words.spelled(str(value)) for key, value in parse_assignments(options.seat, "--seat").items()
        }
        self._made: dict[str, Any] = {}
        addressed = any("=" in text for text in options.system)
        infos = {title: self.env(title).infos for title in self.envs} if addressed else {}
        self.system, self.systems, self.prompts = system_prompts(options.system, infos)
        body = parse_assignments(options.body, "--body")
        self.cast = words.Cast.from_options(options, system=self.system, body=body)
        self.samples_played: list[list[str]] = []
        self._identities: dict[tuple[str, bool], dict[str, Any]] = {}

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
        if "human" in {*players, *fixed.values()} and self.options.json:
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
        options = self.options
        policies, opponents = [[*map(words.spelled, given)] for given in (policies, opponents)]
        schedule: list[tuple[Pairing, list[PlannedGame]]] = []
        for title in self.envs:
            alone = len(self.pairing(title, "random", "random").sides) == 1
            against = [ITSELF] if alone else dict.fromkeys(opponents)
            for policy in dict.fromkeys(policies):
                pairings = [self.pairing(title, policy, opponent) for opponent in against]
                for pairing in {one.key: one for one in pairings}.values():  # `self` may be one of the others
                    games = list(pairing.games(options.games, options.seed, options.samples))
                    schedule.append((pairing, games))
        with self.playing(schedule) as (stage, journal, played, rows, failed):
            numbers = ExactResults(stage.player, lambda text: print(text, file=sys.stderr, flush=True), self.systems)
            for pairing, result in zip([pairing for pairing, _ in schedule], rows):
                result["advice"] += self.remarks(pairing)
                if exact:
                    result.update(numbers.of(pairing, self.env(pairing.title)))
                    result["advice"] += numbers.remarks(pairing)
            compared = comparisons(played, options.seed, options.samples)
            results = {"results": rows, "comparisons": compared, "setting": self.facts() | {"samples": options.samples}}
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
        people = "human" in {*self.fixed.values(), *(one for p, _ in schedule for one in (p.policy, p.opponent))}
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
                        samples=options.samples,
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
        names = "games seed temperature judge_temperature max_tokens system renderer thinking thinking_tokens reply"
        values = {name: getattr(self.options, name) for name in names.split()}
        values |= {"system": self.system, **self.cast.draw.unusual}
        values |= {"systems": self.systems} if self.systems else {}
        return {"version": legos_envs.__version__, **values, "seats": self.fixed, "body": self.cast.body}

    def remarks(self, pairing: Pairing) -> list[str]:
        """Notes on how the numbers of a pairing were obtained."""
        infos = self.env(pairing.title).infos
        free = [
            agent
            for agent, info in infos.items()
            if not info.get("trainable", True) and not {agent, info.get("role", agent)} & set(self.fixed)
        ]
        remarks = [f"{', '.join(free)} played by random; choose a policy with --seat ROLE=POLICY."] if free else []
        here = {name for agent, info in infos.items() for name in (agent, info.get("role", agent))}
        unprompted = here - set(self.systems.get(pairing.title, ())) if self.system is None else set()
        for word in dict.fromkeys((pairing.policy, pairing.opponent)):
            remarks += trained_otherwise(word, pairing, self.options, unprompted)
        problems = getattr(self.env(pairing.title).unwrapped, "problems", ())
        seeds = seeds_for(self.options.games, len(pairing.sides), self.options.samples)
        if len(pairing.sides) == 1 and seeds < len(problems):
            remarks.append(f"these games take {seeds} of {len(problems)} problems.")
        if {pairing.policy, pairing.opponent} & {"human"}:
            remarks.append("a person's games are few and not repeatable.")
        return remarks
