"""Contests whose matches have more than two trained seats."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from legos_envs import Episode, play
from legos_envs.policies import make_policy
from legos_envs.tasks.contests.contest import Contest
from legos_envs.tasks.contests.elo_arena import EloArena
from legos_envs.tasks.contests.head_to_head import HeadToHead
from legos_envs.tasks.contests.matches import round_robin
from legos_envs.tasks.contests.tournament import Tournament
from legos_envs.testing import check_env


def played(env: Any, seed: int) -> Episode:
    return asyncio.run(play(env, make_policy("random", env), seed))


def test_entrants_have_to_fit_the_seats_of_a_match():
    with pytest.raises(ValueError, match=r"exactly 2 trainable seats; Contest has 3: \['answer_0', 'answer_1'"):
        HeadToHead(Contest, {"num_answers": 3})
    with pytest.raises(ValueError, match=r"needs at least two trainable seats; GSM8K-v0 has \['solver_0'\]"):
        HeadToHead("GSM8K-v0")
    for made in (EloArena, Tournament):
        with pytest.raises(ValueError, match="at least the number of seats of a match; got 2; Negotiation-v0 has 3"):
            made(2, match="Negotiation-v0", match_kwargs={"num_players": 3})
    with pytest.raises(ValueError, match=r"bracket needs matches with two .*use format='round_robin'; Contest has 3"):
        Tournament(4, "bracket", match=Contest, match_kwargs={"num_answers": 3})
    with pytest.raises(ValueError, match="a round robin of 16 entrants has 560 matches, more than 128"):
        Tournament(16, match=Contest, match_kwargs={"num_answers": 3})


TALK = {"match": "Negotiation-v0", "match_kwargs": {"num_players": 3, "rounds": 1}}
"""A match with three trained seats."""


def test_three_entrants_take_every_seat_on_the_same_deal():
    episode = played(HeadToHead(num_entrants=3, **TALK), 4)
    records = episode.info["records"]
    sat = [record["entrants"] for record in records]
    a, b, c = "entrant_0", "entrant_1", "entrant_2"
    assert sat == [[a, b, c], [b, c, a], [c, a, b]]
    opening = [episode.trajectories[f"match_{k}/player_0"].turns[0].observation for k in range(3)]
    assert opening[0] == opening[1] == opening[2], "one deal"
    points = episode.info["points"]
    assert sum(points.values()) == pytest.approx(3 * 1.5) and set(points) == {a, b, c}


def test_an_arena_of_three_seats_rates_everybody_against_everybody():
    for kwargs in ({"schedule": "round_robin"}, {"schedule": "random", "matches": 5}):
        env = EloArena(4, k=20.0, **kwargs, **TALK)
        episode = played(env, 1)
        records, ratings = episode.info["records"], episode.info["ratings"]
        assert len(records) == (4 if kwargs["schedule"] == "round_robin" else 5)
        assert all(len(set(record["entrants"])) == 3 for record in records)
        assert sum(ratings.values()) == pytest.approx(4 * 1500) and max(ratings.values()) > 1500
    met = [who for record in records for who in record["entrants"]]
    assert max(map(met.count, env.entrants)) - min(map(met.count, env.entrants)) <= 1


def test_a_round_robin_of_three_seats_is_balanced_and_ranks_by_points():
    groups = round_robin([f"entrant_{k}" for k in range(6)], 3)
    assert len({frozenset(group) for group in groups}) == 20
    for name in {who for group in groups for who in group}:
        seats = [[group[seat] for group in groups].count(name) for seat in range(3)]
        assert sum(seats) == 10 and max(seats) - min(seats) <= 2
    episode = played(Tournament(4, **TALK), 0)
    standings = episode.info["standings"]
    assert sum(row["points"] for row in standings) == pytest.approx(4 * 1.5)
    assert all(row["wins"] + row["draws"] + row["losses"] == 3 for row in standings)
    assert [row["points"] for row in standings] == sorted((row["points"] for row in standings), reverse=True)


def test_they_conform():
    for made in (lambda: HeadToHead(num_entrants=3, **TALK), lambda: Tournament(4, **TALK)):
        check_env(made, seeds=1)
