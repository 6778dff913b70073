"""Matchmaking, payoffs and state of the league."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import pytest

from legos_envs.records import Episode, Trajectory, Turn
from legos_train import League
from legos_train.league import LEARNER, LeagueSettings, mark
from legos_train.league.seating import draw

SEATS = ("player_0", "player_1")


def league(mode: Any = "fsp", members: int = 3, seed: int = 0, symmetric: bool = False, **changes: Any) -> League:
    made = League(LeagueSettings(mode=mode, **changes), seed, symmetric)
    for i in range(members):
        made.add(f"step_{i}", {"layer.lora_a": mx.full((2, 1), i), "layer.lora_b": mx.zeros((1, 2))})
    return made


def episode(returns: dict[str, float], outcome: str | None = None, judge: bool = False) -> Episode:
    trajectories = {a: Trajectory(a, a, turns=[Turn((), "x", r)]) for a, r in returns.items()}
    if judge:
        trajectories["judge"] = Trajectory("judge", "judge", trainable=False)
    return Episode("Env-v0", 0, {}, trajectories, info={"outcome": outcome})


def batch(made: League, step: int, size: int, seats: Any = SEATS, roles: Any = None) -> list[dict[str, str]]:
    return [made.plan(step, number, seats, roles) for number in range(size)]


@pytest.mark.parametrize("mode", ["fsp", "pfsp", "psro", "fixed"])
@pytest.mark.parametrize("seats", [2, 3])
def test_the_learner_takes_every_seat_equally_often(mode: str, seats: int) -> None:
    """A peer seats the learner always as player 0. Here: exactly balanced, and so is every member's share of seats."""
    agents = [f"player_{i}" for i in range(seats)]
    made = league(mode, members=0 if mode == "fixed" else 4, latest=0.0, opponents=("random", "optimal"))
    for step in range(3):
        plans = batch(made, step, 12 * seats, agents)
        assert all(len(plan) == seats - 1 for plan in plans)
        learner = Counter(next(a for a in agents if a not in plan) for plan in plans)
        assert set(learner.values()) == {12} and len(learner) == seats
        if seats == 2 and mode != "psro":
            met = Counter((member, seat) for plan in plans for seat, member in plan.items())
            assert all(met[m, SEATS[0]] == met[m, SEATS[1]] for m in made.members)


def test_seats_stay_balanced_beside_mirror_play_and_over_small_batches() -> None:
    """One episode a step and 30 % mirror play: both seats, and the share of mirror play, come out over the steps."""
    made = league(latest=0.3)
    plans = [plan for step in range(400) for plan in batch(made, step, 1)]
    empty = sum(not plan for plan in plans)
    assert 0.24 <= empty / 400 <= 0.36  # 120 +- 4 standard deviations of a binomial
    learner = Counter("player_1" in plan for plan in plans if plan)
    assert abs(learner[True] - learner[False]) <= 70
    for step in range(20):
        plans = batch(made, step, 40)
        assert sum(not plan for plan in plans) == 12
        seats = Counter("player_1" in plan for plan in plans if plan)
        assert seats[True] == seats[False] == 14


def test_plans_are_a_function_of_seed_step_number_and_state() -> None:
    made, again, other = league(members=9), league(members=9), league(members=9, seed=1)
    first = batch(made, 5, 64)
    assert first == [again.plan(5, n, SEATS) for n in reversed(range(64))][::-1]
    assert first != batch(other, 5, 64)
    assert first != batch(made, 6, 64)


def test_when_all_is_mirror_play() -> None:
    assert league("mirror", members=0).plan(0, 0, SEATS) == {}
    assert league("fsp", members=0).plan(0, 0, SEATS) == {}  # nobody there yet
    assert not any(batch(league(latest=1.0), 0, 20))
    assert league(latest=0.0).plan(0, 0, ["solver"]) == {}  # nobody to play against
    late = league(latest=0.0, start_from=10)
    assert late.plan(10, 0, SEATS) == {} and late.plan(11, 0, SEATS) != {}
    fixed = league("fixed", members=0, opponents=("random",), latest=1.0)
    assert all(list(plan.values()) == ["random"] for plan in batch(fixed, 0, 8))


def test_a_side_is_a_role() -> None:
    """Eight solvers are one side; where all have one role, each seat is a side."""
    seats = ["proposer", *(f"solver_{i}" for i in range(8))]
    roles = {seat: seat.partition("_")[0] for seat in seats}
    made = league(latest=0.0)
    plans = batch(made, 0, 2, seats, roles)
    assert sorted(len(plan) for plan in plans) == [1, 8]
    assert all(len(set(plan.values())) == 1 for plan in plans)
    assert {len(plan) for plan in batch(made, 0, 6, ["a", "b", "c"], dict.fromkeys("abc", "player"))} == {2}


def test_snapshots_are_due() -> None:
    made = league(members=0, snapshot_every=5, start_from=3)
    assert [step for step in range(20) if made.snapshot_due(step)] == [3, 8, 13, 18]
    assert not league("mirror", members=0).snapshot_due(0)
    assert not league("fixed", members=0, opponents=("random",)).snapshot_due(0)


@pytest.mark.parametrize("envs", ["AB", "BA"])
def test_psro_keeps_who_is_an_equilibrium_in_any_env(envs: str) -> None:
    league = League(LeagueSettings(mode="psro", pool=3, payoff_games=2), 0, dict.fromkeys(envs, True))
    for name in ("s1", "s2", "s3"):
        league.add(name, name)
    strength = {"A": {"s1": 2, "s2": 1, "s3": 0}, "B": {"s1": 0, "s2": 1, "s3": 2}}  # s1 is best in A, s3 in B
    for env, one, other in itertools.product("AB", league.pool, league.pool):
        if one != other:
            lead = strength[env][one] - strength[env][other]
            league.record_pair(one, other, [(lead, -lead)], env)
    assert league.add("s4", "s4") == ["s2"]


def test_the_oldest_leaves_first() -> None:
    made = league(members=3, pool=3)
    assert made.add("step_3", {"layer.lora_a": mx.zeros((2, 1)), "layer.lora_b": mx.zeros((1, 2))}) == ["step_0"]
    assert made.pool == list(made.weights) == ["step_1", "step_2", "step_3"]
    with pytest.raises(ValueError, match="step_2"):
        made.add("step_2", {})


def rps(made: League, payoffs: Sequence[Sequence[float]]) -> None:
    for a, b in made.missing_pairs():
        value = payoffs[made.members.index(a)][made.members.index(b)]
        made.record_pair(a, b, [(value, -value)] * made.pair_games)


@pytest.mark.parametrize("symmetric", [True, False])
def test_psro_plays_the_meta_nash_and_drops_who_has_no_part_in_it(symmetric: bool) -> None:
    made = league("psro", members=4, pool=4, latest=0.0, symmetric=symmetric, payoff_games=5)
    assert made.mixture() == {"step_0": 1.0, "step_1": 0.0, "step_2": 0.0, "step_3": 0.0}  # nothing is known yet
    assert made.pair_games == 3 and len(made.missing_pairs()) == (12 if symmetric else 16)
    # Biased RPS; the third snapshot loses to all.
    table = [[0, -1, 3, 2], [1, 0, 3, -1], [-3, -3, 0, -3], [-2, 1, 3, 0]]
    rps(made, table)
    assert made.missing_pairs() == []
    for side in (0, 1, None):
        assert made.mixture(side) == pytest.approx({"step_0": 0.25, "step_1": 0.5, "step_2": 0.0, "step_3": 0.25})
    met = Counter(member for plan in batch(made, 0, 2000) for member in plan.values())
    assert met["step_2"] == 0 and met["step_1"] / 2000 == pytest.approx(0.5, abs=0.07)
    weights = {"layer.lora_a": mx.zeros((2, 1)), "layer.lora_b": mx.zeros((1, 2))}
    assert made.add("step_4", weights) == ["step_2"]
    assert not any("step_2" in pair for pair in made.standing().pairs.games)
    assert made.mixture()["step_4"] == 0 and made.mixture()["step_1"] == pytest.approx(0.5)
    assert len(made.missing_pairs()) == (6 if symmetric else 7)
    assert all("step_4" in pair for pair in made.missing_pairs())


def test_psro_mixes_each_role_apart() -> None:
    """Who is good in the first seat only is met there only."""
    made = league("psro", members=2, latest=0.0)
    rps(made, [[1, 1], [-1, -1]])  # step_0 wins from the first seat, whoever is in the second
    assert made.mixture(0) == {"step_0": 1.0, "step_1": 0.0}
    made = league("psro", members=2, latest=0.0)
    rps(made, [[3, -1], [-2, 1]])
    assert made.mixture(0) == pytest.approx({"step_0": 3 / 7, "step_1": 4 / 7})
    assert made.mixture(1) == pytest.approx({"step_0": 2 / 7, "step_1": 5 / 7})
    plans = batch(made, 0, 3000)
    second = Counter(plan["player_1"] for plan in plans if "player_1" in plan)
    first = Counter(plan["player_0"] for plan in plans if "player_0" in plan)
    assert second["step_0"] / 1500 == pytest.approx(2 / 7, abs=0.06)
    assert first["step_0"] / 1500 == pytest.approx(3 / 7, abs=0.06)


def test_payoffs_where_the_sum_is_not_zero_are_relative() -> None:
    made = league("psro", members=2)
    made.record_pair("step_0", "step_1", [(3.0, 1.0), (2.0, 4.0), (5.0, 1.0)])
    assert made.standing().pairs.matrix(made.members)[0, 1] == pytest.approx((1 - 1 + 2) / 3)
    with pytest.raises(ValueError, match="step_7"):
        made.record_pair("step_0", "step_7", [])


def test_fictitious_play_and_fixed_opponents_are_drawn_evenly() -> None:
    even = {"step_0": 0.25, "step_1": 0.25, "step_2": 0.25, "random": 0.25}
    assert league("fsp", opponents=("random",)).mixture() == even
    assert league("fixed", members=0, opponents=("random", "optimal")).mixture() == {"random": 0.5, "optimal": 0.5}


def test_pfsp_prefers_who_is_hard_to_beat() -> None:
    made = league("pfsp", members=2, pfsp_power=2.0)
    assert made.mixture() == {"step_0": 0.5, "step_1": 0.5}
    wins = [episode({"player_0": 1, "player_1": -1})] * 9
    losses = [episode({"player_0": -1, "player_1": 1})] * 9
    made.observe(wins + losses, [{"player_1": "step_0"}] * 9 + [{"player_1": "step_1"}] * 9)
    # Rates 9.5 / 10 and 0.5 / 10 with the imagined draw; squares of 1/20 and 19/20.
    assert made.standing().against.win_rate("step_0") == pytest.approx(0.95)
    assert made.mixture()["step_1"] == pytest.approx(0.95**2 / (0.95**2 + 0.05**2))
    # Results about a learner of long ago fade: after many batches of losses the old wins weigh little.
    for _ in range(40):
        made.observe(losses[:1], [{"player_1": "step_0"}])
    assert made.standing().against.win_rate("step_0") < 0.2


def test_observe_counts_each_game_once_by_seat() -> None:
    made = league()
    games = [
        episode({"player_0": 1, "player_1": -1}, judge=True),
        episode({"player_0": 0.5, "player_1": -1.5}, outcome="invalid"),
        episode({"player_0": 0.1 + 0.2, "player_1": 0.3}),
        episode({"player_0": 1, "player_1": -1}),
        episode({"player_0": 0, "player_1": 0}, outcome="unscored"),
    ]
    plans = [{"player_1": "step_0"}, {"player_0": "step_0"}, {"player_0": "step_0"}, {}, {"player_1": "step_0"}]
    for game, plan in zip(games, plans):
        mark(game, plan)
    made.observe(games, plans)
    first, second = (made.standing().against.scores["step_0"][seat] for seat in SEATS)
    assert (first.wins, first.draws, first.losses, first.invalid, first.total) == (1, 0, 0, 0, 1.0)
    # A peer counts an invalid move twice. And a draw is a draw although 0.1 + 0.2 is not 0.3.
    assert (second.wins, second.draws, second.losses, second.invalid) == (0, 1, 1, 1)
    assert second.total == pytest.approx(-1.2)
    assert set(made.standing().against.scores) == {"step_0"}
    assert set(made.ratings) == {LEARNER, "step_0"}
    with pytest.raises(ValueError, match="one plan per episode"):
        made.observe(games, plans[:2])
    with pytest.raises(ValueError, match="no seat is left"):
        made.observe(games[:1], [dict.fromkeys(SEATS, "step_0")])
    with pytest.raises(ValueError, match="player_7"):
        made.observe(games[:1], [{"player_7": "step_0"}])


def test_only_the_learners_tokens_are_trained() -> None:
    """A peer trains on its opponents' tokens."""
    from legos_train import make_credit

    game = episode({"player_0": 1, "player_1": -1})
    mark(game, {"player_1": "step_0"})
    assert [t.trainable for t in game.trajectories.values()] == [True, False]
    assert game.trajectories["player_1"].info["member"] == "step_0"
    (advantages,) = make_credit("rae").assign([game])
    assert set(advantages) == {"player_0"}
    with pytest.raises(ValueError, match="player_9"):
        mark(game, {"player_9": "step_0"})


def test_ratings_follow_results_and_a_snapshot_begins_with_the_learners() -> None:
    made = league(members=1)
    for _ in range(10):
        made.observe([episode({"player_0": 1, "player_1": -1})] * 4, [{"player_1": "step_0"}] * 4)
    assert made.ratings[LEARNER].ordinal > made.ratings["step_0"].ordinal + 10
    before = made.ratings[LEARNER]
    made.add("step_5", made.weights["step_0"])
    assert made.ratings["step_5"] == before
    assert made.metrics()["rating"] == before.mu and made.metrics()["members"] == 2


def test_state_goes_through_json_and_nothing_is_lost() -> None:
    def go(made: League, steps: range) -> list[Any]:
        seen: list[Any] = []
        for step in steps:
            plans = batch(made, step, 8)
            games = [episode({"player_0": (n + step) % 3 - 1, "player_1": 1 - (n + step) % 3}) for n in range(8)]
            made.observe(games, plans)
            made.add(f"new_{step}", {"layer.lora_a": mx.zeros((2, 1)), "layer.lora_b": mx.zeros((1, 2))})
            for i, (a, b) in enumerate(made.missing_pairs()):
                made.record_pair(a, b, [(i % 5 - 2, 2 - i % 5)] * made.pair_games)
            seen.append((plans, made.mixture(), made.pool[:]))
        return seen

    for mode in ("pfsp", "psro"):
        options: dict[str, Any] = {"pool": 4, "payoff_games": 2, "opponents": ("random",)}
        whole = league(mode, **options)
        go(whole, range(3))
        state = json.loads(json.dumps(whole.state_dict()))
        resumed = league(mode, members=0, **options)
        resumed.load_state_dict(state, whole.weights)
        assert go(resumed, range(3, 6)) == go(whole, range(3, 6))
        assert resumed.state_dict() == whole.state_dict() and list(resumed.weights) == resumed.pool
        with pytest.raises(ValueError, match="no weights of the snapshots"):
            resumed.load_state_dict(whole.state_dict(), {})


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="name one"):
        league("fixed", members=0)
    with pytest.raises(ValueError, match="different words"):
        league(members=0, opponents=("random", "random"))
    with pytest.raises(ValueError, match="already"):
        league(members=0, opponents=("random",)).add("random", {})


def test_without_openskill_the_league_goes_on_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.warns(UserWarning, match=r"--extra tasks"):
        made = league()
    made.observe([episode({"player_0": 1, "player_1": -1})], [{"player_1": "step_0"}])
    assert made.ratings == {} and made.standing().against.scores["step_0"]["player_0"].wins == 1


def test_draw_never_picks_who_has_no_weight() -> None:
    shares = {"a": 0.0, "b": 0.3, "c": 0.0, "d": 0.7, "e": 0.0}
    assert [draw(shares, at) for at in (0.0, 0.299, 0.301, 0.999999999999)] == ["b", "b", "d", "d"]
