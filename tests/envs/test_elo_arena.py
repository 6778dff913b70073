"""The arena: schedules, and ratings that follow the schedule and never the order of arrival."""

from collections import Counter
from random import Random

import pytest

from legos_envs.scoring.judging import unquoted
from legos_envs.scoring.ratings import Elo, openskill_ratings
from legos_envs.tasks.contests import elo_arena
from legos_envs.tasks.contests.elo_arena import EloArena
from legos_envs.tasks.contests.matches import round_robin
from legos_envs.testing.harness import Player, drive
from tests.envs.test_matches import play


def best_has_the_lowest_number(decision):
    """Answers name their entrant; the judge prefers the lower number."""
    if decision.role != "judge":
        return decision.info["entrant"]
    shown = unquoted(decision.messages[0]["content"])
    return "[A]" if shown["A"] < shown["B"] else "[B]"


def arena(seed=0, options=None, **kwargs):
    return play(EloArena(**kwargs), dict.fromkeys(("answer", "judge"), best_has_the_lowest_number), seed, options)


# --- schedules -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", range(2, 17))
def test_round_robin_is_every_pair_once_and_fair_in_seats(count):
    names = [f"entrant_{i}" for i in range(count)]
    pairs = round_robin(names)
    assert len(pairs) == len({frozenset(pair) for pair in pairs}) == count * (count - 1) // 2
    first = Counter(pair[0] for pair in pairs)
    assert all(abs(2 * first[name] - (count - 1)) <= 1 for name in names)


@pytest.mark.parametrize(("num_entrants", "matches"), [(2, 5), (3, 7), (4, 6), (5, 13), (7, 3), (8, 9)])
def test_random_schedules_are_balanced_and_vary(num_entrants, matches):
    env = EloArena(num_entrants, matches=matches)
    drawn = set()
    for seed in range(12):
        env.reset(seed=seed)
        pairs = [tuple(env.infos[f"match_{k}/answer_{i}"]["entrant"] for i in (0, 1)) for k in range(matches)]
        assert all(one != two for one, two in pairs)
        played = Counter(name for pair in pairs for name in pair)
        assert max(played.values()) - min(played[name] for name in env.entrants) <= 1
        drawn.add(tuple(pairs))
    assert len(drawn) > 6


def test_a_round_robin_has_its_entrants_from_the_start():
    env = EloArena(3, schedule="round_robin")
    assert [(env.seats[f"match_{k}/answer_0"].entrant, env.seats[f"match_{k}/answer_1"].entrant) for k in range(3)] == (
        round_robin(env.entrants)
    )


def test_all_matches_are_played_side_by_side():
    env = EloArena()
    env.reset(seed=0)
    assert len(env.ready_agents) == 12 and all("answer" in agent for agent in env.ready_agents)


# --- ratings ---------------------------------------------------------------------------------------------------------


def test_elo_in_the_order_of_the_schedule():
    episode = arena(schedule="round_robin", k=20)
    # Entrant 0 wins from 1, then from 2 and 3; the expected numbers follow Elo's formula match by match.
    elo = Elo(20, ratings=dict.fromkeys(["entrant_0", "entrant_1", "entrant_2", "entrant_3"], 1500.0))
    for first, second in round_robin(list(elo.ratings)):
        elo.update(first, second, float(first < second))
    assert episode.info["ratings"] == elo.ratings and episode.info["leader"] == episode.outcome == "entrant_0"
    assert sum(episode.info["ratings"].values()) == pytest.approx(6000)
    for trajectory in episode.trajectories.values():
        if trajectory.role == "answer":
            assert trajectory.info["rating"] == elo.ratings[trajectory.info["entrant"]]
    assert [record["match"] for record in episode.info["records"]] == [f"match_{k}" for k in range(6)]
    assert episode.returns["match_0/answer_0"] == 1 and sum(episode.returns.values()) == 0


def test_ratings_do_not_depend_on_who_finishes_first():
    def run(order=None):
        env = EloArena(5, matches=8)
        env.reset(seed=7)
        return drive(env, Player(best_has_the_lowest_number, 0), order=order)

    plain = run()
    orders = {tuple(step.agent for step in run(Random(n)).steps) for n in range(4)}
    assert len(orders) == 4
    for n in range(4):
        assert run(Random(n)).last == plain.last


def test_openskill():
    episode = arena(ratings="openskill", schedule="round_robin")
    records = episode.info["records"]
    expected = openskill_ratings([dict(zip(record["entrants"], record["scores"])) for record in records])
    assert episode.info["ratings"] == {name: list(skill) for name, skill in sorted(expected.items())}
    assert episode.outcome == "entrant_0"
    mu = [episode.info["ratings"][f"entrant_{i}"][0] for i in range(4)]
    assert mu == sorted(mu, reverse=True)


def test_openskill_is_asked_for_when_the_env_is_made(monkeypatch):
    def missing(*args):
        raise ImportError("no openskill")

    monkeypatch.setattr(elo_arena, "openskill_ratings", missing)
    assert EloArena().ratings == "elo"
    with pytest.raises(ImportError, match="no openskill"):
        EloArena(ratings="openskill")


def test_ratings_are_carried_on():
    start = {"entrant_1": 1900.0}
    episode = arena(options={"start": start}, num_entrants=2, matches=1)
    # Entrant 0 wins from somebody 400 points ahead: it gains 32 * 10/11.
    assert episode.info["ratings"] == pytest.approx({"entrant_0": 1500 + 320 / 11, "entrant_1": 1900 - 320 / 11})
    skilled = arena(options={"start": {"entrant_1": [40.0, 1.0]}}, num_entrants=2, matches=1, ratings="openskill")
    assert skilled.info["ratings"]["entrant_1"][0] > 39 and skilled.info["ratings"]["entrant_0"][0] > 25


def test_void_matches_and_double_forfeits_are_not_rated():
    said = {"match_0/judge_0": "hm", "match_1/answer_0": "", "match_1/answer_1": ""}
    episode = play(EloArena(2, matches=3), said)  # in the third match the judge always names A: a draw
    assert episode.info["ratings"] == {"entrant_0": 1500.0, "entrant_1": 1500.0}
    assert [record["ending"] for record in episode.info["records"]] == ["unscored", "forfeit", "played"]
    assert episode.info["leader"] is None and episode.outcome == "shared"
    ahead = {"entrant_0": 1900.0, "entrant_1": 1500.0}  # whom a match that counts as a draw would cost points
    assert play(EloArena(2, matches=2), said, options={"start": ahead}).info["ratings"] == ahead


def test_a_forfeit_is_rated_as_a_loss():
    env = EloArena(2, matches=1)
    episode = play(env, {"match_0/answer_1": ""})
    loser = episode.trajectories["match_0/answer_1"].info
    assert loser["rating"] == 1484 and episode.returns["match_0/answer_1"] == -1 and episode.outcome != loser["entrant"]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"num_entrants": 17}, "num_entrants must be a whole number from 2 to 16; got 17"),
        ({"schedule": "roundrobin"}, "schedule must be one of .*did you mean 'round_robin'"),
        ({"schedule": "round_robin", "matches": 3}, "matches is for schedule 'random'; .* got 3"),
        ({"matches": 0}, "matches must be a whole number from 1 to 128; got 0"),
        ({"ratings": "glicko"}, "ratings must be one of 'elo', 'openskill'; got 'glicko'"),
        ({"k": -1}, "k must be a finite number from 0 to 1000; got -1"),
    ],
)
def test_arguments(kwargs, message):
    with pytest.raises(ValueError, match=message):
        EloArena(**kwargs)


@pytest.mark.parametrize(
    ("start", "kwargs", "message"),
    [
        ([1500], {}, r"option start must be ratings by entrant, .*; got \[1500\]"),
        ({"entrant_9": 1500}, {}, r"option start: entrant 'entrant_9' is unknown\. Did you mean 'entrant_"),
        ({"entrant_0": "high"}, {}, r"ratings\['entrant_0'\] must be a finite number"),
        ({"entrant_0": 1500}, {"ratings": "openskill"}, r"the start of 'entrant_0' must be \(mu, sigma\); got 1500"),
    ],
)
def test_start_option(start, kwargs, message):
    with pytest.raises(ValueError, match=message):
        EloArena(**kwargs).reset(seed=0, options={"start": start})
