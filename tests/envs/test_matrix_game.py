"""Matrix games: payoffs, equilibria, and that the two choices are made at the same time."""

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from legos_envs import exact, parsing, play
from legos_envs.games.bimatrix import best_equilibrium, equilibria
from legos_envs.games.matrix_game import MATRIX_GAMES, MatrixGame
from legos_envs.policies import ScriptedPolicy, make_policy


@pytest.mark.parametrize(
    ("name", "zero_sum", "row"),
    [
        ("rps", True, {"rock": 1 / 3, "paper": 1 / 3, "scissors": 1 / 3}),
        ("biased_rps", True, {"rock": 1 / 4, "paper": 1 / 2, "scissors": 1 / 4}),
        ("matching_pennies", True, {"heads": 1 / 2, "tails": 1 / 2}),
        ("prisoners_dilemma", False, {"cooperate": 0, "defect": 1}),
        ("stag_hunt", False, {"stag": 1, "hare": 0}),
    ],
)
def test_known_equilibria(name, zero_sum, row):
    env = MatrixGame(name)
    assert env.zero_sum is zero_sum
    assert env.game.equilibrium[0] == pytest.approx(row)
    assert exact.nash_conv(env.game, exact.nash(env.game)) == pytest.approx(0, abs=1e-12)


def test_uniform_play_is_far_from_equilibrium_in_biased_rps():
    game = MatrixGame("biased_rps").game
    assert exact.nash_conv(game, exact.uniform) == pytest.approx(2 / 3)
    assert exact.expected_returns(game, exact.nash(game)) == pytest.approx((0, 0))


def test_both_defecting_is_an_equilibrium_and_both_cooperating_is_not():
    game = MatrixGame("prisoners_dilemma").game
    assert exact.nash_conv(game, lambda infoset: {"defect": 1.0}) == 0
    assert exact.nash_conv(game, lambda infoset: {"cooperate": 1.0}) == 4  # each gains 5 - 3
    assert exact.expected_returns(game, lambda infoset: {"cooperate": 1.0}) == (3, 3)


def test_the_stag_hunt_has_three_equilibria():
    found = equilibria(*(np.array(table) for table in MatrixGame("stag_hunt").game.payoffs))
    assert sorted(tuple(np.round(row, 6)) for row, _ in found) == [(0, 1), (0.666667, 0.333333), (1, 0)]


@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(1, 4))
def test_a_random_game_has_an_equilibrium_and_nobody_gains_by_leaving_it(seed, rows, columns):
    """Random payoffs are nondegenerate, and by Wilson's theorem such a game has an odd number of equilibria."""
    row, column = np.random.default_rng(seed).normal(size=(2, rows, columns))
    assert len(equilibria(row, column)) % 2 == 1
    game = MatrixGame(payoffs=[row, column], actions=[list("abcd")[:rows], list("efgh")[:columns]]).game
    assert exact.nash_conv(game, exact.nash(game)) == pytest.approx(0, abs=1e-7)


def test_the_value_of_a_zero_sum_game_without_symmetry():
    x, y = best_equilibrium(np.array([[2.0, -1.0], [-1.0, 1.0]]), -np.array([[2.0, -1.0], [-1.0, 1.0]]))
    assert x == pytest.approx([0.4, 0.6])
    assert y == pytest.approx([0.4, 0.6])


def test_the_two_choose_at_the_same_time():
    env = MatrixGame()
    env.reset(seed=0)
    assert env.ready_agents == ["player_0", "player_1"]
    before = env.observe("player_1")
    env.step("[rock]")
    assert env.ready_agents == ["player_1"] and env.observe("player_1") == before
    env.step("[paper]")
    assert env._cumulative_rewards == {"player_0": -1.0, "player_1": 1.0}


@pytest.mark.parametrize("name", list(MATRIX_GAMES))
def test_each_player_gets_what_its_own_prompt_promises(name):
    env = MatrixGame(name)
    actions = env.game.actions[0]
    for first in actions:
        for second in actions:
            env.reset(seed=0)
            promised = {
                agent: promise(env.observe(agent)["messages"][0]["content"], own, other)
                for agent, own, other in (("player_0", first, second), ("player_1", second, first))
            }
            env.step(f"[{first}]")
            env.step(f"[{second}]")
            assert env._cumulative_rewards == promised


def promise(text, own, other):
    (line,) = [line for line in text.splitlines() if line.startswith(f"{own}: ")]
    (value,) = [
        part.split()[0]
        for part in line.removeprefix(f"{own}: ").rstrip(".").split(", ")
        if part.endswith(f"against {other}")
    ]
    return float(value)


def test_an_asymmetric_game():
    env = MatrixGame(
        payoffs=([[1, 2, 3], [4, 5, 6]], [[6, 5, 4], [3, 2, 1]]), actions=(("up", "down"), ("l", "m", "r"))
    )
    env.reset(seed=0)
    assert promise(env.observe("player_1")["messages"][0]["content"], "m", "down") == 2
    env.step("[down]")
    env.step("[r]")
    assert env._cumulative_rewards == {"player_0": 6.0, "player_1": 1.0}
    assert not env.zero_sum


def test_several_rounds_are_told_and_added_up():
    env = MatrixGame("prisoners_dilemma", rounds=2)
    env.reset(seed=0)
    for action in ("[cooperate]", "[defect]"):
        env.step(action)
    lines = env.observe("player_0")["messages"][0]["content"].splitlines()
    assert lines[-3:-1] == ["Round 1: you cooperate, other defect, you get 0.", "Round 2 of 2. Choose."]
    assert "Round 1: you defect, other cooperate, you get 5." in env.observe("player_1")["messages"][0]["content"]
    total = dict(env._cumulative_rewards)
    assert total == {"player_0": 0.0, "player_1": 5.0}
    env.step("[defect]")
    env.step("[defect]")
    assert env._cumulative_rewards == {"player_0": 1.0, "player_1": 1.0}  # AEC: what came since the last own action
    assert env.game.returns(("cooperate", "defect", "defect", "defect")) == (1.0, 6.0)


def test_repeated_defection_is_an_equilibrium_of_the_repeated_dilemma():
    game = MatrixGame("prisoners_dilemma", rounds=3).game
    assert len(exact.info_sets(game)) == 2 * (1 + 4 + 16)
    assert exact.nash_conv(game, exact.nash(game)) == pytest.approx(0, abs=1e-12)

    def tit_for_tat(infoset):
        last = infoset.view.rpartition("other ")[2].partition(",")[0]
        return {"defect" if last == "defect" else "cooperate": 1.0}

    assert exact.expected_returns(game, tit_for_tat) == (9, 9)
    assert exact.nash_conv(game, tit_for_tat) == 4  # each gains 2 by defecting in the last round


@pytest.mark.parametrize("kwargs", [{}, {"memory": "state"}, {"action_format": "boxed"}])
def test_tit_for_tat_does_what_was_done_to_it(kwargs):
    env = MatrixGame("prisoners_dilemma", rounds=4, **kwargs)
    others = ["defect", "cooperate", "defect", "defect"]
    for seat, other in (("player_0", "player_1"), ("player_1", "player_0")):
        policies = {seat: make_policy("scripted:tit_for_tat", env), other: ScriptedPolicy(others)}
        episode = asyncio.run(play(env, policies, 0))
        said = [turn.action for turn in episode.trajectories[seat].turns]
        assert said == [parsing.write_action(name, env.action_format) for name in ["cooperate", *others[:-1]]]


def test_tit_for_tat_where_the_other_has_other_moves():
    env = MatrixGame(payoffs=[[1, 2], [3, 4]], actions=[["up", "down"], ["left", "right"]], rounds=3)
    episode = asyncio.run(play(env, make_policy("scripted:tit_for_tat", env), 0))
    assert [turn.action for turn in episode.trajectories["player_0"].turns] == ["[up]"] * 3


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"game": "chess"}, "game must be one of 'rps'"),
        ({"game": "rps", "payoffs": [[0]]}, "either game or payoffs"),
        ({"payoffs": [[1, 2], [3]]}, "payoffs must be"),
        ({"payoffs": [[1, float("nan")]]}, "payoffs must be"),
        ({"payoffs": [[[1]], [[1]], [[1]]]}, "payoffs must be"),
        ({"payoffs": [[1, 2]], "actions": ["a", "b"]}, "1 distinct words for player_0 and 2 for player_1"),
        ({"actions": ["a", "A", "b"]}, "distinct words"),
        ({"actions": ["a b", "c", "d"]}, "distinct words"),
        ({"rounds": 0}, "rounds must be a whole number from 1 to 100"),
        ({"rounds": True}, "rounds must be a whole number from 1 to 100; got True"),
    ],
)
def test_bad_arguments_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        MatrixGame(**wrong)


def test_garbage_is_no_way_out_of_a_costly_game():
    assert MatrixGame(payoffs=[[-5, -4], [-6, -3]]).invalid_reward == -5
    both = [[[-5, -9], [-6, -3]], [[0, 0], [0, 0]]]
    assert MatrixGame(payoffs=both, rounds=3).invalid_reward == -18
    assert MatrixGame(payoffs=[[-5, 4], [-1, -3]]).invalid_reward == -3
    assert (
        MatrixGame(payoffs=[[-0.5]], rounds=6).invalid_reward == -3
        and MatrixGame(payoffs=[[-0.5]]).invalid_reward == -1
    )
    for name in MATRIX_GAMES:
        assert MatrixGame(game=name).invalid_reward == -1
    assert MatrixGame(payoffs=[[-5.0]], invalid_reward=-2).invalid_reward == -2
