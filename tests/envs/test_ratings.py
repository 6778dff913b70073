"""Ratings against numbers worked by hand, and against what must hold for any results."""

import builtins
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legos_envs.scoring.ratings import Elo, Skill, Strength, bradley_terry, expected_score, openskill_ratings

NAMES = ("a", "b", "c", "d")
RESULTS = st.lists(
    st.tuples(st.permutations(NAMES), st.sampled_from((0.0, 0.5, 1.0))).map(lambda x: (x[0][0], x[0][1], x[1])),
    max_size=30,
)


# --- Elo -------------------------------------------------------------------------------------------------------------


def test_expected_score():
    assert expected_score(1500, 1500) == 0.5
    assert expected_score(1900, 1500) == pytest.approx(10 / 11) and expected_score(1500, 1900) == pytest.approx(1 / 11)
    assert expected_score(1e9, -1e9) == 1.0 and 0 <= expected_score(-1e9, 1e9) < 1e-99


def test_elo_by_hand():
    elo = Elo(k=32, start=1500)
    assert elo.update("a", "b", 1) == (1516, 1484)
    # a is 32 points ahead of b: it expects 1 / (1 + 10^(-32/400)) = 0.545922 and gives away 32 * 0.045922 by a draw.
    assert elo.update("b", "a", 0.5) == pytest.approx((1485.469504, 1514.530496))
    assert elo.update("c", "a", 0) == pytest.approx((1500 - 32 * 0.479096, 1514.530496 + 32 * 0.479096), abs=1e-3)


def test_elo_depends_on_the_order():
    one, two = ("a", "b", 1.0), ("b", "c", 1.0)
    assert Elo().rate([one, two])["b"] != pytest.approx(Elo().rate([two, one])["b"])


@given(RESULTS, st.floats(0, 64))
def test_elo_keeps_its_sum_and_moves_the_winner_up(results, k):
    elo = Elo(k, ratings=dict.fromkeys(NAMES, 1500.0))
    for first, second, score in results:
        before = elo.ratings[first] - elo.ratings[second]
        elo.update(first, second, score)
        if score != 0.5:
            assert (elo.ratings[first] - elo.ratings[second] - before) * (score - 0.5) >= 0
    assert sum(elo.ratings.values()) == pytest.approx(6000)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Elo(k=-1), "k must be a finite number from 0 to inf; got -1"),
        (lambda: Elo(start=math.nan), "start must be a finite number"),
        (lambda: Elo(ratings={"a": "high"}), r"ratings\['a'\] must be a finite number from -inf to inf; got 'high'"),
        (lambda: Elo().update("a", "a", 1), "'a' cannot play against itself"),
        (lambda: Elo().update("a", "b", 2), "the score of 'a' against 'b' must be a finite number from 0 to 1; got 2"),
        (lambda: bradley_terry([("a", "a", 1.0)]), "'a' cannot play against itself"),
        (lambda: bradley_terry([("a", "b", -1.0)]), "the score of 'a' against 'b' must be"),
        (lambda: bradley_terry([], prior=0), "prior must be a finite number from 1e-06"),
        (lambda: openskill_ratings([{"a": 1.0}]), "a game needs the scores of at least two; got"),
        (lambda: openskill_ratings([{"a": 1.0, "b": math.inf}]), "the score of 'b' must be a finite number"),
        (lambda: openskill_ratings([], {"a": (25.0,)}), r"the start of 'a' must be \(mu, sigma\); got \(25.0,\)"),
        (lambda: openskill_ratings([], {"a": (25.0, 0.0)}), "sigma of 'a' must be a finite number from 1e-06"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# --- OpenSkill -------------------------------------------------------------------------------------------------------


def test_openskill_of_two():
    """One win between equals: mu moves by sigma^2 / (2 c), with c^2 = 2 (sigma^2 + beta^2) (Weng and Lin, 2011)."""
    sigma, beta, tau = 25 / 3, 25 / 6, 25 / 300
    grown = sigma**2 + tau**2
    moved = grown / (2 * math.sqrt(2 * (grown + beta**2)))
    won = openskill_ratings([{"a": 1.0, "b": 0.0}])
    assert won["a"].mu == pytest.approx(25 + moved) and won["b"].mu == pytest.approx(25 - moved)
    assert won["a"].sigma == won["b"].sigma < sigma


def test_openskill_draws_and_many_players():
    drawn = openskill_ratings([{"a": 0.5, "b": 0.5}])
    assert drawn["a"].mu == drawn["b"].mu == pytest.approx(25)
    four = openskill_ratings([dict(zip(NAMES, (3.0, 2.0, 2.0, -1.0)))])
    assert four["a"].mu > four["b"].mu == pytest.approx(four["c"].mu) and four["c"].mu > four["d"].mu


def test_openskill_start_is_carried_on():
    start = {"a": (30.0, 2.0), "c": (20.0, 1.0)}
    rated = openskill_ratings([{"a": 0.0, "b": 1.0}], start)
    assert rated["a"].mu < 30 and rated["c"] == Skill(20.0, 1.0) and rated["c"].ordinal == 17.0
    assert openskill_ratings([]) == {}


def test_openskill_that_is_not_installed_is_named(monkeypatch):
    found = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("openskill"):
            raise ImportError(name)
        return found(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"uv sync --extra tasks"):
        openskill_ratings([])


# --- Bradley-Terry ---------------------------------------------------------------------------------------------------


def test_bradley_terry_of_two_is_the_log_odds():
    """Three wins to one: with a vanishing prior the strengths are log(3) apart, the error that of a log odds."""
    games = [("a", "b", 1.0)] * 3 + [("b", "a", 1.0)]
    fit = bradley_terry(games, prior=1e-6)
    assert fit["a"].log - fit["b"].log == pytest.approx(math.log(3), abs=1e-4)
    assert fit["a"].log == pytest.approx(-fit["b"].log)
    # Var(log odds) = 1/3 + 1/1 for the difference; half of a difference has a quarter of its variance.
    assert fit["a"].error == pytest.approx(math.sqrt((1 / 3 + 1) / 4), abs=1e-4)


def test_bradley_terry_draws_are_half_wins_in_any_order():
    drawn = [("a", "b", 0.5), ("b", "a", 0.5), ("b", "c", 1.0), ("c", "a", 0.0)]
    split = [("a", "b", 1.0), ("b", "a", 1.0), ("b", "c", 1.0), ("c", "a", 0.0)]
    fit = bradley_terry(drawn)
    for other in (bradley_terry(split), bradley_terry(drawn[::-1])):
        assert all(other[name] == pytest.approx(fit[name]) for name in "abc")
    assert fit["a"].log == pytest.approx(fit["b"].log) and fit["c"].log < fit["a"].log


def test_bradley_terry_recovers_strengths_from_expected_scores():
    """Fed with the expected scores themselves, the fit is the model, but for the little that the prior pulls."""
    log = dict(zip(NAMES, (1.0, 0.3, -0.2, -1.1)))
    games = [(i, j, 1 / (1 + math.exp(log[j] - log[i]))) for i in NAMES for j in NAMES if i < j for _ in range(500)]
    fit = bradley_terry(games)
    assert all(fit[name].log == pytest.approx(log[name], abs=0.01) for name in NAMES)
    assert max(strength.error for strength in fit.values()) < 0.1


def test_undefeated_entrants_and_strangers_are_finite():
    fit = bradley_terry([("a", "b", 1.0)] * 10 + [("c", "d", 1.0)])
    assert all(math.isfinite(value) for strength in fit.values() for value in strength)
    assert fit["a"].log > fit["c"].log > fit["d"].log > fit["b"].log
    assert bradley_terry([]) == {}
    tight = bradley_terry([("a", "b", 1.0)] * 10, prior=10)
    assert 0 < tight["a"].log < fit["a"].log


def test_bradley_terry_maximises_the_penalised_likelihood():
    games = [("a", "b", 1.0), ("b", "c", 0.5), ("c", "a", 1.0), ("a", "d", 1.0), ("d", "c", 0.5), ("a", "b", 1.0)]

    def likelihood(log):
        total = sum(
            s * math.log(1 / (1 + math.exp(log[j] - log[i]))) + (1 - s) * math.log(1 / (1 + math.exp(log[i] - log[j])))
            for i, j, s in games
        )
        return total + 0.5 * sum(
            math.log(1 / (1 + math.exp(-v))) + math.log(1 / (1 + math.exp(v))) for v in log.values()
        )

    fit = {name: strength.log for name, strength in bradley_terry(games).items()}
    # The fit is centred; the optimum itself stands where its own shift is best.
    best = max((likelihood({n: v + shift / 1000 for n, v in fit.items()}), shift / 1000) for shift in range(-500, 501))
    for name in NAMES:
        for step in (-0.01, 0.01):
            assert likelihood({n: v + best[1] + step * (n == name) for n, v in fit.items()}) < best[0]


def test_a_fit_that_does_not_converge_says_so():
    with pytest.raises(RuntimeError, match=r"after 2 steps; give it a larger prior than 0\.5"):
        bradley_terry([("a", "b", 1.0)] * 50, most=2)


def test_strength_on_the_scale_of_elo():
    assert Strength(math.log(10), 0.1).elo() == pytest.approx(1900)
    assert expected_score(Strength(0.7, 0).elo(), Strength(0.2, 0).elo()) == pytest.approx(1 / (1 + math.exp(-0.5)))
