"""A run directory as a finished run leaves it, made without training, and a log of real episodes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import legos_envs
from legos_envs.policies import RandomPolicy
from legos_train import TrainConfig
from legos_train.config import to_toml
from legos_train.observe.viewer import rollout_line

RESULT = {
    "steps": 40,
    "seconds": 12.5,
    "start": {"nash_conv": 0.9167, "illegal": 0.0008},
    "last": {"nash_conv": 0.31, "illegal": 0.0004},
    "average": {"nash_conv": 0.25, "illegal": 0.0005},
    "best": {"nash_conv": 0.22, "illegal": 0.0003, "step": 30},
    "published": "average",
    "stopped": None,
}


@pytest.fixture(scope="session")
def lines() -> list[dict[str, Any]]:
    """Lines of a log: 12 games of Kuhn poker as a trainer would write them, and 2 debates with a judge."""
    found = []
    kuhn = legos_envs.play_many(lambda: legos_envs.make("KuhnPoker-v0"), RandomPolicy(), seeds=range(12))
    for number, episode in enumerate(asyncio.run(kuhn)):
        for trajectory in episode.trajectories.values():
            for turn in trajectory.turns:
                turn.prompt_tokens, turn.action_tokens, turn.logprobs = [1, 2, 3], [4, 5], [-0.5, -0.25]
                turn.policy_version, turn.finish_reason = number // 6, "stop"
        episode.group = f"{number // 6}/0"
        episode.trajectories["player_0"].info["learner"] = "bluffer"
        found.append(
            rollout_line(
                episode,
                step=1 + number // 6,
                policy_version=number // 6,
                advantages={a: [0.5] * len(t.turns) for a, t in episode.trajectories.items()},
                why_not={"player_1": "opponent: step_0"} if number % 2 else None,
                players={"player_1": "league:step_0"} if number % 2 else None,
            )
        )
    debates = legos_envs.play_many(
        lambda: legos_envs.make("Debate-v0"), RandomPolicy('I say \u2028 "yes"\n.'), seeds=[3, 4]
    )
    found += [rollout_line(e, step=2, policy_version=1, env="talk") for e in asyncio.run(debates)]
    return found


@pytest.fixture(scope="session")
def run_dir(tmp_path_factory: pytest.TempPathFactory, lines: list[dict[str, Any]]) -> Path:
    """config.toml, result.json, rollouts.jsonl and the adapters `adapter`, `last`, `best`."""
    import mlx.core as mx

    from legos_train.disk import checkpoint, save_adapter

    path = tmp_path_factory.mktemp("runs") / "kuhn"
    path.mkdir()
    league = {"mode": "fsp", "opponents": ["random"]}
    (path / "config.toml").write_text(to_toml(TrainConfig(steps=40, batch_size=64, seed=7, league=league)))  # type: ignore[arg-type]
    (path / "result.json").write_text(json.dumps(RESULT))
    (path / "rollouts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    number = np.random.default_rng(0)
    for name in ("adapter", "last", "best"):
        weights = {
            f"model.layers.{layer}.self_attn.q_proj.lora_{kind}": mx.array(number.normal(size=shape).astype(np.float32))
            for layer in (0, 1)
            for kind, shape in (("a", (128, 4)), ("b", (4, 128)))
        }
        parameters = {"rank": 4, "scale": 8.0, "dropout": 0.0, "keys": ["self_attn.q_proj"]}
        legos = {"env": "KuhnPoker-v0", "base_model": "tiny", "step": 40, "weights": name}
        config = {"fine_tune_type": "lora", "num_layers": 2, "lora_parameters": parameters, "legos": legos}
        save_adapter(path / name, weights, config)
        if name == "last":
            checkpoint.save(path / "checkpoints", 40, {"adapter": weights}, {}, keep=2)
    (path / "start.json").write_text(json.dumps(RESULT["start"]))
    row = {"step": 40, "eval": RESULT["last"] | {"nash_conv_average": 0.25}}
    (path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    return path
