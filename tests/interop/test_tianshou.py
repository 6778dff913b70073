"""Tianshou's `PettingZooEnv` steps our environments."""

import pytest

import legos_envs
from tests.interop.walk import IDS, LENIENT, answer, expected, library

PettingZooEnv = library("tianshou.env").PettingZooEnv
pytestmark = LENIENT


@pytest.mark.parametrize("env_id", IDS)
def test_whole_episodes_have_the_right_returns(env_id):
    env = PettingZooEnv(legos_envs.make(env_id))
    for seed in range(10):
        seen, info = env.reset(seed=seed)
        turns = dict.fromkeys(env.agents, 0)
        over = False
        while not over:
            agent = seen["agent_id"]
            assert info["role"] == agent
            action = answer(seen["obs"]["messages"][-1]["content"], turns[agent])
            turns[agent] += 1
            seen, rewards, terminated, truncated, info = env.step(action)
            over = terminated or truncated
        # These games pay at the end only, and to all seats at once, as Tianshou's multi-agent managers want it.
        assert dict(zip(env.agents, rewards)) == pytest.approx(expected(env_id, seed))


def test_in_a_vector_of_envs():
    from tianshou.env import DummyVectorEnv

    envs = DummyVectorEnv([lambda: PettingZooEnv(legos_envs.make("KuhnPoker-v0"))] * 2)
    seen, _ = envs.reset(seed=1)
    assert [observation["agent_id"] for observation in seen] == ["player_0", "player_0"]
    for _ in range(2):
        seen, rewards, terminated, _, _ = envs.step(["[check]", "[check]"])
    assert terminated.all() and rewards.shape == (2, 2) and (rewards.sum(axis=1) == 0).all()
