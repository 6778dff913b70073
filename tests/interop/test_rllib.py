"""RLlib's `PettingZooEnv` steps our environments."""

from collections import Counter

import pytest

import legos_envs
from tests.interop.walk import IDS, LENIENT, answer, expected, library

PettingZooEnv = library("ray.rllib.env.wrappers.pettingzoo_env").PettingZooEnv
pytestmark = LENIENT


@pytest.mark.parametrize("env_id", IDS)
def test_whole_episodes_have_the_right_returns(env_id):
    env = PettingZooEnv(legos_envs.make(env_id))
    lengths = set()
    for seed in range(10):
        observations, infos = env.reset(seed=seed)
        assert infos == {}  # RLlib drops what AEC puts into infos at reset: the prompt has the legal actions too
        turns, returns, over = Counter(), Counter(), False
        while not over:
            (agent,) = observations
            action = answer(observations[agent]["messages"][-1]["content"], turns[agent])
            turns[agent] += 1
            observations, rewards, terminations, truncations, infos = env.step({agent: action})
            returns.update(rewards)
            over = terminations["__all__"] or truncations["__all__"]
        assert set(observations) == set(env.possible_agents) == set(infos)
        assert dict(returns) == pytest.approx(expected(env_id, seed))
        lengths.add(turns.total())
    assert max(lengths) >= (5 if env_id == "TicTacToe-v0" else 2)


@pytest.mark.parametrize("env_id", IDS)
def test_spaces(env_id):
    env = PettingZooEnv(legos_envs.make(env_id))
    observations, _ = env.reset(seed=0)
    for agent, observation in observations.items():
        assert env.observation_spaces[agent].contains(observation)
        assert env.action_spaces[agent].contains(env.action_spaces[agent].sample())


def test_the_parallel_view_in_rllibs_parallel_wrapper():
    from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv

    from legos_envs.wrappers import ParallelView

    env = ParallelPettingZooEnv(ParallelView(legos_envs.make("MatrixGame-v0", game="rps")))
    _, infos = env.reset(seed=0)
    assert all(info["ready"] for info in infos.values())
    _, rewards, terminations, _, _ = env.step({"player_0": "[rock]", "player_1": "[paper]"})
    assert rewards == {"player_0": -1, "player_1": 1} and terminations["__all__"]
