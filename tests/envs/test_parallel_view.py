"""All ready agents in one step."""

import asyncio
import pickle
import warnings

import pytest
from pettingzoo.test import parallel_api_test, parallel_seed_test

import legos_envs
from legos_envs import Decision, Seat, TextEnv, make, play
from legos_envs.wrappers import FillSeats, FirstAndLast, ParallelView, TurnLimit
from tests.envs.nested import Debate, Tournament
from tests.envs.small_envs import env_of, paying_early
from tests.envs.test_play import Elimination
from tests.envs.test_wrappers import by_seed

ENVS = {
    "matrix": lambda: make("MatrixGame-v0"),
    "iterated": lambda: make("MatrixGame-v0", game="stag_hunt", rounds=3),
    "debate": Debate,
    "tournament": Tournament,
    "kuhn": lambda: make("KuhnPoker-v0"),
    "tictactoe": lambda: make("TicTacToe-v0", memory="chat"),
    "filled": lambda: FillSeats(Tournament(), {"judge": by_seed}),
    "limited": lambda: FirstAndLast(TurnLimit(Tournament(), turns=4)),
}


@pytest.mark.parametrize("make_env", ENVS.values(), ids=ENVS)
def test_pettingzoos_tests_pass(make_env, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(ParallelView(make_env()), num_cycles=30)
        parallel_seed_test(lambda: ParallelView(make_env()), num_cycles=30)


@pytest.mark.parametrize("id", legos_envs.registered())
def test_registered(id, capsys):
    parallel_api_test(ParallelView(make(id)), num_cycles=20)
    parallel_seed_test(lambda: ParallelView(make(id)), num_cycles=20)


def episode(env, seed, everybody):
    """Returns and number of steps of an episode; with `everybody`, all agents act at every step."""
    observations, infos = env.reset(seed=seed)
    turns = dict.fromkeys(env.possible_agents, 0)
    returns = dict.fromkeys(env.possible_agents, 0.0)
    steps = 0
    while env.agents:
        actions = {}
        for agent in env.agents:
            if infos[agent]["ready"]:
                info = infos[agent]
                actions[agent] = by_seed(Decision(agent, info["role"], observations[agent], info, turns[agent], seed))
                turns[agent] += 1
            elif everybody:
                actions[agent] = "[ignored]"
        observations, rewards, terminations, truncations, infos = env.step(actions)
        assert set(observations) == set(rewards) == set(terminations) == set(truncations) == set(infos)
        for agent, reward in rewards.items():
            returns[agent] += reward
        steps += 1
    return returns, steps


@pytest.mark.parametrize("everybody", [False, True])
@pytest.mark.parametrize("name", ["iterated", "debate", "tournament", "kuhn"])
def test_it_is_the_same_episode(name, everybody):
    for seed in range(5):
        expected = asyncio.run(play(ENVS[name](), by_seed, seed))
        returns, steps = episode(ParallelView(ENVS[name]()), seed, everybody)
        assert returns == pytest.approx(expected.returns)
        turns = sum(len(t.turns) for t in expected.trajectories.values())
        assert steps == {"iterated": 3, "debate": 6, "tournament": 5, "kuhn": turns}[name]


def test_ready_agents_are_named_in_infos():
    env = ParallelView(Tournament())
    _, infos = env.reset(seed=0)
    assert [agent for agent in env.agents if infos[agent]["ready"]] == ["author_0", "author_1", "author_2"]
    *_, infos = env.step(dict.fromkeys(env.agents, "a plan"))
    assert [agent for agent in env.agents if infos[agent]["ready"]] == [f"match_{i}/pro_0" for i in range(3)]
    with pytest.raises(KeyError, match=r"no action for \['match_0/pro_0', 'match_2/pro_0'\]"):
        env.step({"match_1/pro_0": "x"})


def test_a_turn_limit_amid_a_step():
    env = ParallelView(Tournament(max_turns=2))
    env.reset(seed=0)
    *_, truncations, infos = env.step(dict.fromkeys(env.possible_agents, "x"))
    assert all(truncations.values()) and env.agents == []
    assert [agent for agent, _ in env.env.log] == ["author_0", "author_1"]
    assert not any(info["ready"] for info in infos.values())
    with pytest.raises(RuntimeError, match="after the end of the episode"):
        env.step({})


class Raffle(TextEnv):
    """Ends before anybody acts."""

    name = "Raffle-v0"
    seats = {"guest_0": Seat("guest"), "guest_1": Seat("guest")}

    def play(self, table):
        table.reward("guest_1", 2.0)
        yield from ()


def test_an_episode_that_ends_before_anybody_can_act():
    env = ParallelView(Raffle())
    env.reset(seed=0)
    assert env.step({})[1:4] == (
        {"guest_0": 0.0, "guest_1": 2.0},
        {"guest_0": True, "guest_1": True},
        {"guest_0": False, "guest_1": False},
    )
    assert env.agents == []


def test_an_env_without_ready_agents_is_refused():
    for foreign in (Elimination(), FillSeats(Elimination(), {"player_0": lambda decision: "[bet]"})):
        foreign.reset(seed=0)
        with pytest.raises(TypeError, match=r"has no ready_agents.*turn_based_aec_to_parallel"):
            ParallelView(foreign)


def test_it_pickles_and_renders():
    env = ParallelView(make("MatrixGame-v0", render_mode="ansi", rounds=2))
    env.reset(seed=0)
    env.step(dict.fromkeys(env.agents, "[rock]"))
    twin = pickle.loads(pickle.dumps(env))
    rest = dict.fromkeys(env.agents, "[paper]")
    assert twin.step(rest) == env.step(rest)
    assert env.render() == twin.render() and env.state() == twin.state() and str(env) == "ParallelView<MatrixGame-v0>"


@pytest.mark.parametrize("filled", [{}, {"a_0": by_seed}])
def test_what_is_paid_before_the_first_turn_comes_with_the_first_step(filled):
    made = env_of(paying_early)()
    env = ParallelView(FillSeats(made, filled) if filled else made)
    env.reset(seed=0)
    rewards = []
    while env.agents:
        rewards.append(env.step(dict.fromkeys(env.agents, "Yes."))[1]["b_0"])
    assert rewards == ([14.0] if filled else [4.0, 10.0])
