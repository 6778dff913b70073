"""A policy against an opponent, with existing players: used by evaluations during training.

Games, records and rows match `legos eval`: same seeds, same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from legos_train.evaluation.games import Pairing, record
from legos_train.evaluation.summary import Row, row

if TYPE_CHECKING:
    from legos_train.rollout import Rollouts
    from legos_train.rollout.players import Player


class NothingScored(ValueError):
    """No seed was scored in every seat, for example if no verdict could be parsed. `row`: results without a mean."""

    def __init__(self, message: str, row: Row):
        super().__init__(message)
        self.row = row


def head_to_head(
    rollouts: Rollouts,
    env_id: str,
    seats: Sequence[str | Sequence[str]],
    policy: Player | Mapping[str, Player],
    opponent: Player | Mapping[str, Player],
    games: int,
    seed: int,
    *,
    samples: int = 1,
    others: Mapping[str, Player] | None = None,
    options: Mapping[str, Any] | None = None,
    competitive: bool = True,
    report: Callable[[int, int], None] | None = None,
) -> Row:
    """Plays `games` games, rounded up to whole seeds: on each seed the policy takes every side in turn.

    Args:
        rollouts: plays the episodes.
        env_id: the env, as `rollouts` creates it.
        seats: the sides: single seats, or groups of seats that the policy takes together.
        policy: the player of these, by agent if there are several.
        opponent: the player of the other sides, by agent if there are several.
        games: how many to play.
        seed: the first seed.
        samples: how often each seed is played from each side.
        others: players of seats outside the competition, such as judges, as in `Job.players`.
        options: the env's reset options.
        competitive: whether returns of different seats are compared, see `outcomes.competitive`.
        report: called with how many games are done, and of how many.

    Returns:
        The row of `legos eval`, see `summary.row`.

    Raises:
        NothingScored: no seed was scored in every seat.
        ValueError: `games` is less than 1, or a mapping of players lacks a seat.
    """
    if games < 1:
        raise ValueError(f"games must be at least 1; got {games}")
    from legos_train.rollout import Job

    sides = tuple((side,) if isinstance(side, str) else tuple(side) for side in seats)
    agents = [agent for side in sides for agent in side]
    for name, given in (("policy", policy), ("opponent", opponent)):
        if isinstance(given, Mapping) and (missing := [agent for agent in agents if agent not in given]):
            raise ValueError(f"the {name} has players for {', '.join(given)}; no player for {', '.join(missing)}")
    players = policy if isinstance(policy, Mapping) else dict.fromkeys(agents, policy)
    schedule = list(Pairing(env_id, "policy", "opponent", sides, competitive=competitive).games(games, seed, samples))
    foes = opponent if isinstance(opponent, Mapping) else dict.fromkeys(agents, opponent)
    rest = {"*": foes[agents[0]], **(others or {}), **foes}
    mine = [{**rest, **{agent: players[agent] for agent in side}} for side in sides]
    episodes = rollouts.run(
        [Job(env_id, game.seed, mine[game.side], options=options or {}, salt=game.salt) for game in schedule],
        None if report is None else lambda done: report(done, len(schedule)),
    )
    records = []
    for game, episode in zip(schedule, episodes, strict=True):
        who = dict.fromkeys(episode.trajectories, "others") | dict.fromkeys(agents, "opponent")
        records.append(record(game, episode, who | dict.fromkeys(sides[game.side], "policy")))
    result = row(schedule[0].pairing, records, seed, samples=samples, failed=(), zero_sum=True)
    if result["mean"] is None:
        reasons = [str(t.info["reason"]) for e in episodes for t in e.trajectories.values() if t.info.get("reason")]
        first = next(iter(reasons), "not told")
        raise NothingScored(f"no seed of {env_id} was scored in every seat; the first reason: {first}", result)
    return result
