"""Other libraries step, and learn on, games seen as numbers: Stable-Baselines3, Tianshou, SuperSuit, RLlib.

What learns takes about a minute: pytest -m slow tests/interop/test_numeric_learners.py
"""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

import legos_envs
from legos_envs.wrappers import FillSeats, SingleAgent
from legos_envs.wrappers.numeric import Numeric
from tests.interop.walk import LENIENT, library

pytestmark = [LENIENT, pytest.mark.timeout(1500)]
EXAMPLE = Path(__file__).parents[2] / "examples/ppo_in_numbers.py"


def seat(env_id="TicTacToe-v0", mask="info"):
    """The first seat against random play."""
    return SingleAgent(Numeric(FillSeats(legos_envs.make(env_id), {"player_1": "random"}), mask=mask))


def mean_return(env, choose, games=200):
    total = 0.0
    for game in range(games):
        observation, info = env.reset(seed=10_000 + game)
        over = False
        while not over:
            observation, reward, terminated, truncated, info = env.step(choose(observation, info))
            total += reward
            over = terminated or truncated
    return total / games


def at_random(_, info):
    return int(np.random.default_rng(int(info["action_mask"].sum())).choice(np.flatnonzero(info["action_mask"])))


@pytest.mark.slow
def test_maskable_ppo_of_stable_baselines3_learns_tic_tac_toe():
    sb3 = library("sb3_contrib")
    from sb3_contrib.common.wrappers import ActionMasker

    env = ActionMasker(seat(), lambda env: env.unwrapped.env.infos["player_0"]["action_mask"].astype(bool))
    model = sb3.MaskablePPO("MlpPolicy", env, n_steps=512, batch_size=128, ent_coef=0.01, seed=0)
    before = mean_return(seat(), at_random)
    model.learn(12_000)

    def choose(observation, info):
        return int(model.predict(observation, action_masks=info["action_mask"].astype(bool), deterministic=True)[0])

    after = mean_return(seat(), choose)
    print(f"MaskablePPO: {before:+.3f} before, {after:+.3f} after")
    assert after > max(0.75, before + 0.2)


@pytest.mark.slow
def test_dqn_of_stable_baselines3_learns_what_is_legal_in_tic_tac_toe():
    """Without masks: an illegal move is a lost game, so it has to be learned too."""
    sb3 = library("stable_baselines3")
    options = {
        "learning_starts": 500,
        "exploration_fraction": 0.5,
        "target_update_interval": 500,
        "learning_rate": 1e-3,
    }
    model = sb3.DQN("MlpPolicy", seat(), seed=0, **options)

    def choose(observation, info):
        return int(model.predict(observation, deterministic=True)[0])

    before = mean_return(seat(), choose)
    model.learn(15_000)
    after = mean_return(seat(), choose)
    print(f"DQN: {before:+.3f} before, {after:+.3f} after")
    assert after > max(0.2, before + 0.5)


def test_tianshou_finds_the_masks():
    PettingZooEnv = library("tianshou.env").PettingZooEnv
    env = PettingZooEnv(Numeric(legos_envs.make("ConnectFour-v0")))
    rng = np.random.default_rng(0)
    for seed in range(5):
        seen, _ = env.reset(seed=seed)
        over = False
        while not over:
            assert seen["obs"].shape == (84,) and len(seen["mask"]) == 7
            seen, rewards, terminated, truncated, _ = env.step(int(rng.choice(np.flatnonzero(seen["mask"]))))
            over = terminated or truncated
        assert sum(rewards) == 0


def test_supersuit_wraps_the_plain_box():
    supersuit = library("supersuit")
    env = Numeric(legos_envs.make("TicTacToe-v0"), mask="info")
    env = supersuit.pad_action_space_v0(supersuit.dtype_v0(supersuit.frame_stack_v1(env, 2), np.float32))
    env.reset(seed=0)
    for _ in env.agent_iter():
        observation, _, terminated, truncated, info = env.last()
        assert observation.shape == (36,) and observation.dtype == np.float32
        env.step(None if terminated or truncated else int(np.flatnonzero(info["action_mask"])[0]))


def test_rllib_steps_numbers_with_masks_and_encodes_them():
    PettingZooEnv = library("ray.rllib.env.wrappers.pettingzoo_env").PettingZooEnv
    torch = library("torch")
    from ray.rllib.core.models.catalog import Catalog

    env = PettingZooEnv(Numeric(legos_envs.make("KuhnPoker-v0")))
    box, actions = env.observation_spaces["player_0"]["observation"], env.action_spaces["player_0"]
    encoder = Catalog(box, actions, {"fcnet_hiddens": [16]}).build_encoder(framework="torch")
    rng = np.random.default_rng(0)
    for seed in range(10):
        observations, _ = env.reset(seed=seed)
        over = False
        while not over:
            ((agent, seen),) = observations.items()
            assert env.observation_spaces[agent].contains(seen) and seen["action_mask"].dtype == np.int8
            hidden = encoder({"obs": torch.as_tensor(seen["observation"])[None]})["encoder_out"]
            assert hidden.shape == (1, 16)
            observations, rewards, terminations, truncations, _ = env.step(
                {agent: int(rng.choice(np.flatnonzero(seen["action_mask"])))}
            )
            over = terminations["__all__"] or truncations["__all__"]
        assert abs(sum(rewards.values())) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(("env_id", "steps", "least"), [("KuhnPoker-v0", 30, "NashConv"), ("ConnectFour-v0", 8, "won")])
def test_ppo_in_one_file(env_id, steps, least, monkeypatch, capsys):
    library("torch")
    options = ["--steps", str(steps), "--games", "100", "--turns", "1024"]
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), env_id, *options])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    before, after = capsys.readouterr().out.splitlines()
    assert before.startswith("before") and after.startswith("after")

    def number(line, name):
        return float(line.replace(";", " ").partition(name)[2].split()[0])

    if least == "NashConv":
        assert number(after, least) < number(before, least) - 0.1
    else:
        assert number(after, least) > max(0.6, number(before, least))
