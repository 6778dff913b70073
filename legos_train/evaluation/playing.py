"""Plays games with policies that may fail: a failing one only costs its own games, which are retried."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import legos_envs
from inference import InferenceError
from legos_envs.records import Episode
from legos_train.evaluation.exact_values import solvable
from legos_train.evaluation.games import Pairing, PlannedGame, keep_endings, record
from legos_train.evaluation.journal import Journal, line_of
from legos_train.evaluation.outcomes import in_words
from legos_train.observe import ProgressLine
from legos_train.rollout import Job, Rollouts
from legos_train.rollout.players import actors, words

TOLERATED = (InferenceError, OSError)
"""Failures of endpoints; any other exception is a bug and is raised."""

TURNS, CHARACTERS = 12, 160
"""Limits of a `transcript`: turns, and characters per turn."""


class Stage:
    """Envs and players of an evaluation, shared by all its games.

    Args:
        cast: creates players from names.
        journal: receives the finished games.
        concurrency: concurrent games.
        retries: how often failed games are played again.
        judging: the temperature of judges.
        report: shows how many games are finished, wanted and lost.
        systems: system prompts of agents and roles, by env and name, instead of the cast's.

    Attributes:
        samples: one of the new games in a few lines, for each outcome of the policy.
    """

    def __init__(
        self,
        cast: words.Cast,
        journal: Journal,
        *,
        concurrency: int,
        retries: int,
        judging: float,
        report: ProgressLine | None = None,
        systems: Mapping[str, Mapping[str, str]] | None = None,
    ):
        self.cast, self.journal, self.retries, self.report = cast, journal, retries, report
        self.judging, self.systems = judging, systems or {}
        self.rollouts = Rollouts(legos_envs.make, concurrency=concurrency)
        self._players: dict[tuple[str, str, str, bool, str | None], Any] = {}
        self._truths: dict[tuple[str, str], Callable[[Episode], Any] | None] = {}
        self._seated: dict[tuple[str, int], dict[str, Any]] = {}
        self.samples: dict[str, list[str]] = {}

    def play(self, games: Sequence[PlannedGame]) -> dict[str, str]:
        """Plays the games that the journal does not have yet.

        Returns:
            For each game that could not be played, its key and the reason.

        Raises:
            PolicyError: a name matches no policy.
            ServerUnavailable: an endpoint cannot be reached.
        """
        left = [game for game in games if game.key not in self.journal.records]
        plays = [self._play(game) for game in left]  # an unknown name is reported before anything is played
        self.cast.reach(word for game in left for word in game.players.values())
        failures: dict[str, str] = {}
        for round_ in range(self.retries + 1):
            if round_:
                self.cast.revive()
            failures = self._round(left, plays, len(games))
            plays = [p for p, game in zip(plays, left) if game.key in failures]
            left = [game for game in left if game.key in failures]
            if not left:
                break
        return failures

    def _round(self, games: Sequence[PlannedGame], plays: Sequence[Job], wanted: int) -> dict[str, str]:
        failures: dict[str, str] = {}
        finished = wanted - len(games)

        def done(index: int, episode: Episode, declared: Mapping[str, bool]) -> None:
            nonlocal finished
            self._keep(games[index], episode, declared)
            finished += 1

        def failed(index: int, error: BaseException) -> None:
            if not isinstance(error, TOLERATED):
                raise error
            failures[games[index].key] = str(error)

        for _ in self.rollouts.stream(plays, done, failed):
            if self.report is not None:
                lost = f"; {len(failures)} lost to failing endpoints" if failures else ""
                self.report(finished, wanted, lost)
        return failures

    def _keep(self, game: PlannedGame, episode: Episode, declared: Mapping[str, bool]) -> None:
        who = {
            agent: actors.lookup(game.players, agent, t.role, declared.get(agent, True))
            for agent, t in episode.trajectories.items()
        }
        keep_endings(episode)
        data = record(game, episode, who)
        ended = " ".join(sorted(set(data["outcomes"].values())))
        if ended not in self.samples:
            self.samples[ended] = transcript(game, episode, who, game.pairing.outcomes(episode))

        def line() -> dict[str, Any]:
            truth = self._truth(game.pairing)
            outcomes = game.pairing.outcomes(episode)
            decode = self._decoders(game, episode, declared)
            return line_of(episode, data, outcomes, who, None if truth is None else truth(episode), decode)

        self.journal.add(data, line)

    def _decoders(
        self, game: PlannedGame, episode: Episode, declared: Mapping[str, bool]
    ) -> dict[str, Callable[[int], str]]:
        """The text of a token, for the seats that a model in this process played."""
        players = self._seated[game.pairing.key, game.side]
        decoders: dict[str, Callable[[int], str]] = {}
        for agent, trajectory in episode.trajectories.items():
            player = actors.lookup(players, agent, trajectory.role, declared.get(agent, True))
            if (renderer := getattr(player, "renderer", None)) is not None:
                decoders[agent] = partial(_text, renderer.tokenizer)
        return decoders

    def _truth(self, pairing: Pairing) -> Callable[[Episode], Any] | None:
        """The cost of each move in solved games, with which the viewer points to the worst move of a lost game."""
        key = (pairing.env, repr(sorted(pairing.args.items())))
        if key not in self._truths:
            env: Any = legos_envs.make(pairing.env, **pairing.args)
            self._truths[key] = None
            if solvable(env):
                from legos_train.observe.viewer import exact_values

                with suppress(ValueError):  # a game without a known equilibrium
                    self._truths[key] = exact_values(env)
        return self._truths[key]

    def _play(self, game: PlannedGame) -> Job:
        pairing = game.pairing
        key = pairing.key, game.side
        if key not in self._seated:
            systems = self.systems.get(pairing.title, {})
            self._seated[key] = {
                seat: self.player(pairing.env, pairing.args, word, seat in pairing.judges, systems.get(seat))
                for seat, word in game.players.items()
            }
        return Job(pairing.env, game.seed, self._seated[key], args=pairing.args, salt=game.salt, title=pairing.title)

    def player(
        self, env: str, args: Mapping[str, Any], word: str, judge: bool = False, system: str | None = None
    ) -> Any:
        """The player named `word` in an env. Raises PolicyError if there is none."""
        key = (env, repr(sorted(args.items())), word, judge, system)
        if key not in self._players:
            draw = replace(self.cast.draw, temperature=self.judging) if judge else None
            self._players[key] = self.cast.player(word, env=legos_envs.make(env, **args), draw=draw, system=system)
        return self._players[key]

    def close(self) -> None:
        self.rollouts.close()


def _text(tokenizer: Any, token: int) -> str:
    return str(tokenizer.decode([token]))


def transcript(
    game: PlannedGame, episode: Episode, seated: Mapping[str, str], outcomes: Mapping[str, str]
) -> list[str]:
    """Who won and the answers by seat; long games and answers are shortened.

    Args:
        game: the scheduled game.
        episode: its episode.
        seated: the players, by agent.
        outcomes: how it ended, by agent.
    """
    rivals = game.pairing.competitive and len(game.pairing.sides) > 1
    words = {agent: in_words(outcome, rivals) for agent, outcome in outcomes.items()}
    ends = ", ".join(
        f"{agent} ({seated[agent]}) {trajectory.total:+g} {words.get(agent) or ''}".rstrip()
        for agent, trajectory in episode.trajectories.items()
    )
    said = [
        (number, agent, _line(turn.action))
        for agent, trajectory in episode.trajectories.items()
        for number, turn in enumerate(trajectory.turns)
    ]
    said.sort(key=lambda one: one[0])
    lines = [f"  {agent}: {text}" for _, agent, text in said[:TURNS]]
    more = [f"  and {len(said) - TURNS} more turns"] if len(said) > TURNS else []
    return [f"{game.pairing.title}, seed {game.seed}: {ends}", *lines, *more]


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= CHARACTERS else f"{line[:CHARACTERS]} …"
