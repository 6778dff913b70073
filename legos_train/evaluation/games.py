"""The schedule of games, every policy in every seat on the same seeds, and the record of a finished game."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from legos_envs.records import Episode, Trajectory, jsonable
from legos_train.evaluation.outcomes import TIE, outcome_of
from legos_train.rollout.players import actors

Record = dict[str, Any]
"""A finished game as JSON values, see `record`."""
SHORT = {"length": "cut_off", "overflow": "too_long"}
"""The names in `usage` for the reasons of incomplete answers."""


@dataclass(frozen=True, slots=True)
class Pairing:
    """A policy against an opponent in an env.

    Args:
        policy, opponent: as the user wrote them.
        sides: the groups of seats that the policy takes, one side after the other; the opponent has all others.
        fixed: players of other seats, such as judges, by agent or role.
        identity: anything else that affects the games (sampling, the weights), as JSON values.
        judges: those of `fixed` that the env does not train; they have a separate temperature.
        title: the user's name for the env in results; its id by default.
        competitive: whether returns of different seats are compared, see `outcomes.competitive`.

    Attributes:
        key: identifies the pairing in journals and on leaderboards; equal only for equal games.
    """

    env: str
    policy: str
    opponent: str
    sides: tuple[tuple[str, ...], ...]
    args: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, str] = field(default_factory=dict)
    identity: Mapping[str, Any] = field(default_factory=dict)
    judges: frozenset[str] = frozenset()
    title: str = ""
    competitive: bool = True
    key: str = field(init=False, default="")

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", self.title or self.env)
        facts = [self.env, self.policy, self.opponent, self.sides, self.args, self.fixed, self.identity]
        object.__setattr__(self, "key", key_of(facts))

    @property
    def seated(self) -> dict[str, str]:
        """The players of `fixed` that the user named."""
        return {seat: player for seat, player in self.fixed.items() if seat != actors.UNTRAINED}

    def outcomes(self, episode: Episode, agents: Sequence[str] | None = None) -> dict[str, str]:
        """How an episode ended for agents, by default for all seats: against the others, or each by itself."""
        seats = [agent for side in self.sides for agent in side]
        return {a: outcome_of(episode, a, seats if self.competitive else (a,)) for a in agents or seats}

    def games(self, count: int, seed: int, samples: int = 1) -> Iterator[PlannedGame]:
        """`count` games, rounded up to whole seeds: on each seed every side, `samples` times."""
        for number in range(seed, seed + seeds_for(count, len(self.sides), samples)):
            for sample in range(samples):
                for side in range(len(self.sides)):
                    yield PlannedGame(self, number, side, sample)


def key_of(facts: Sequence[Any]) -> str:
    """A key for facts; equal facts have equal keys."""
    return hashlib.blake2b(json.dumps(jsonable(facts), sort_keys=True).encode(), digest_size=8).hexdigest()


def checksums(source: Any) -> dict[str, str]:
    """The start of the SHA-256 of each local file behind an env, by path.

    Args:
        source: a path of a file or a directory, or a list of them; for anything else the result is empty.
    """
    paths = source if isinstance(source, list | tuple) else [source]
    found = [Path(path) for path in paths if isinstance(path, str | Path) and os.path.exists(path)]  # or a text itself
    files = [file for path in found for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    stats = {file: file.stat() for file in files if file.is_file()}
    return {str(file): _checksum(file, stat.st_mtime_ns, stat.st_size) for file, stat in stats.items()}


@functools.lru_cache(256)
def _checksum(file: Path, changed: int, size: int) -> str:
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()[:12]


def seeds_for(count: int, sides: int, samples: int = 1) -> int:
    return max(1, math.ceil(count / (sides * samples)))


@dataclass(frozen=True, slots=True)
class PlannedGame:
    """One game: `side` is where the policy sits, `sample` counts repetitions of a seed with other random numbers."""

    pairing: Pairing
    seed: int
    side: int
    sample: int = 0

    @property
    def key(self) -> str:
        return f"{self.pairing.key}/{self.seed}/{self.side}/{self.sample}"

    @property
    def salt(self) -> int:
        """Differs between sides: with the same chance on both, a policy against itself would always break even."""
        return self.sample * len(self.pairing.sides) + self.side

    @property
    def players(self) -> dict[str, str]:
        """Policies by agent, role or `*`."""
        own = self.pairing.sides[self.side]
        seats = {agent: self.pairing.opponent for side in self.pairing.sides for agent in side}
        return {"*": self.pairing.opponent, **self.pairing.fixed, **seats, **dict.fromkeys(own, self.pairing.policy)}


def record(game: PlannedGame, episode: Episode, seated: Mapping[str, str]) -> Record:
    """The stored record of a game.

    `returns`, `roles` and `outcomes` by seat of the policy; `score`: its share of the rivals beaten, draws half, None
    if nothing can be compared; `turns` of the policy; `usage` by policy; `correct` if the env reports it.

    Args:
        game: the scheduled game.
        episode: its episode.
        seated: the players, by agent.
    """
    pairing, own = game.pairing, game.pairing.sides[game.side]
    seats = [agent for side in pairing.sides for agent in side]
    tables = episode.trajectories
    outcomes = pairing.outcomes(episode, own)
    scores = [s for agent in own if (s := _score(tables, agent, outcomes[agent], seats, own)) is not None]
    right = tables[own[0]].info.get("correct") if len(seats) == 1 else None
    index = tables[own[0]].info.get("index") if len(seats) == 1 else None
    return {
        "key": game.key,
        "env": pairing.title,
        "env_id": pairing.env,
        "policy": pairing.policy,
        "opponent": pairing.opponent,
        "seed": game.seed,
        "side": game.side,
        "sample": game.sample,
        "problem": index if isinstance(index, int) else None,
        "returns": {agent: float(tables[agent].total) for agent in own},
        "roles": {agent: tables[agent].role for agent in own},
        "outcomes": outcomes,
        "score": sum(scores) / len(scores) if scores else None,
        "correct": right if isinstance(right, bool) else None,
        "turns": sum(len(tables[agent].turns) for agent in own),
        "usage": usage_of(tables, seated),
    }


def _score(
    tables: Mapping[str, Trajectory], agent: str, outcome: str, seats: Sequence[str], own: Sequence[str]
) -> float | None:
    if outcome == "unscored":
        return None
    here = tables[agent].parent
    others = [a for a in seats if a not in own]
    rivals = [a for a in others if tables[a].parent == here] or others
    if not rivals:
        return None
    if outcome == "invalid" or (outcome == "opponent_invalid" and len(rivals) == 1):
        return float(outcome != "invalid")
    margins = [tables[agent].total - tables[a].total for a in rivals]
    return sum(0.5 if abs(m) <= TIE else float(m > 0) for m in margins) / len(margins)


def keep_endings(episode: Episode) -> None:
    """Records how an endpoint's answers ended, at the turns that it answered."""
    for trajectory in episode.trajectories.values():
        for turn in trajectory.turns:
            if turn.finish_reason is None:
                turn.finish_reason = getattr(turn.action, "finish_reason", None)


def usage_of(tables: Mapping[str, Trajectory], seated: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """By policy: `actions`, and if known `prompt_tokens`, `completion_tokens` and `cost` in US dollars; how many
    answers were `cut_off` by the token limit, and how many prompts were `too_long` for the model's context.
    """
    usage: dict[str, dict[str, float]] = {}
    for agent, trajectory in tables.items():
        for turn in trajectory.turns:
            total = usage.setdefault(seated[agent], {"actions": 0})
            total["actions"] += 1
            if (kind := SHORT.get(turn.finish_reason or "")) is not None:
                total[kind] = total.get(kind, 0) + 1
            reported = getattr(turn.action, "usage", None)
            if turn.prompt_tokens is not None and turn.action_tokens is not None:
                counts: dict[str, float] = {
                    "prompt_tokens": len(turn.prompt_tokens),
                    "completion_tokens": len(turn.action_tokens),
                }
            elif reported is not None:
                counts = {"prompt_tokens": reported.prompt_tokens, "completion_tokens": reported.completion_tokens}
                if reported.cost is not None:
                    counts["cost"] = reported.cost
            else:
                continue
            for name, value in counts.items():
                total[name] = total.get(name, 0) + value
    return usage
