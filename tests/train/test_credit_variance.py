"""The variance of the policy gradient on Kuhn poker at the uniform policy, the seats' payoffs shifted by +2 and -2.

Exact: all 48 equally likely games are one batch, so every mean over the batch is the true expectation.
"""

from __future__ import annotations

import numpy as np
import pytest

from legos_envs.games.kuhn_poker import KuhnPokerGame
from legos_envs.records import Episode, Trajectory, Turn
from legos_train.credit.group import GRPOCredit
from legos_train.credit.rae import RAECredit
from legos_train.credit.reinforce import ReinforceCredit
from legos_train.credit.role_norm import PerRoleNormCredit
from legos_train.credit.same_prompt import SamePromptCredit

GAME = KuhnPokerGame()
SHIFT = 2.0


def every_game():
    """Each hand of Kuhn poker as often as uniform play brings it about in 48 games."""
    games, open_ = [], [(round(48 * chance), state, ([], [])) for chance, state in GAME.initial()]
    while open_:
        count, state, turns = open_.pop()
        seat = GAME.player(state)
        if seat is None:
            payoffs = (GAME.returns(state)[0] + SHIFT, GAME.returns(state)[1] - SHIFT)
            games += [(turns, payoffs)] * count
            continue
        view = ({"role": "user", "content": GAME.view(state, seat)},)
        for move in GAME.legal(state):
            more = [*turns[seat], (view, move)]
            after = (more, turns[1]) if seat == 0 else (turns[0], more)
            open_.append((count // 2, GAME.next(state, move), after))
    made = []
    for number, (turns, payoffs) in enumerate(games):
        seats = {}
        for seat in range(2):
            played = [Turn(view, move) for view, move in turns[seat]]
            played[-1].reward = payoffs[seat]
            seats[f"p{seat}"] = Trajectory(f"p{seat}", f"p{seat}", True, played)
        made.append(Episode("Kuhn", number, {}, seats, group=0))
    return made


@pytest.fixture(scope="module")
def games():
    made = every_game()
    assert len(made) == 48 and np.mean([e.returns["p0"] for e in made]) == pytest.approx(1 / 8 + SHIFT)
    return made


def gradients(credit, games):
    """Per game, the gradient of A log softmax by the logits of betting: (48, 12)."""
    sets = sorted({turn.observation[0]["content"] for e in games for t in e.trajectories.values() for turn in t.turns})
    out = np.zeros((len(games), len(sets)))
    for row, played, advantages in zip(out, games, credit.assign(games), strict=True):
        for agent, values in advantages.items():
            for turn, advantage in zip(played.trajectories[agent].turns, values, strict=True):
                score = 0.5 if turn.action in ("bet", "call") else -0.5  # at the uniform policy
                row[sets.index(turn.observation[0]["content"])] += score * advantage
    return out


def variance(credit, games):
    """Of the gradient's mean over 64 games, summed over its entries."""
    return gradients(credit, games).var(axis=0).sum() / 64


def warm_rae(games):
    credit = RAECredit()
    credit.assign(games)  # bias-corrected, so that one batch from cold is its mean: here the true value
    return credit


def test_a_baseline_per_role_cuts_the_variance_of_a_lopsided_game(games):
    none, joint = variance(ReinforceCredit(), games), variance(GRPOCredit(per_role=False, singleton="zero"), games)
    rae, seat = variance(warm_rae(games), games), variance(GRPOCredit(singleton="zero"), games)
    assert joint == pytest.approx(none, rel=1e-12)  # in a zero-sum game the joint mean is exactly 0
    assert none == pytest.approx(0.05558, abs=1e-5) and rae == pytest.approx(0.01848, abs=1e-5)
    assert seat == pytest.approx(rae, rel=1e-9)
    assert joint / rae >= 2.5
    assert variance(SamePromptCredit(pseudo_count=0), games) < rae


def test_baselines_leave_the_gradient_as_it_is(games):
    """Up to what a role's normalisation multiplies it with."""
    expected = gradients(ReinforceCredit(), games).mean(axis=0)
    assert np.abs(expected).max() > 0.05
    assert gradients(warm_rae(games), games).mean(axis=0) == pytest.approx(expected)
    assert gradients(GRPOCredit(per_role=False, singleton="zero"), games).mean(axis=0) == pytest.approx(expected)
    spread = np.std([e.returns["p0"] for e in games])
    scaled = gradients(PerRoleNormCredit(), games).mean(axis=0)
    assert scaled * spread == pytest.approx(expected, rel=1e-4)
