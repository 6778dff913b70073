"""How a run asks for answers: the reply template, the thinking switch, and what is learned of a cut thought."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from legos_envs.records import Episode, Trajectory, Turn, episode_from_json, episode_to_json
from legos_train.arena import Arena
from legos_train.config import TrainConfig, from_dict
from legos_train.errors import ConfigError
from legos_train.loss.batch import pack
from legos_train.rollout.players import replies
from legos_train.run import train
from legos_train.run.build import arena_of

SMALL = {"steps": 1, "batch_size": 4, "lora": {"rank": 4}, "eval": {"every": 0, "games": 2}, "logs": {"rollouts": 16}}


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_a_thought_is_cut_in_training_and_the_cut_is_not_learned(thinking_model_dir: Path, tmp_path: Path) -> None:
    """A random model opens a thought now and then; with this seed in one of its turns."""
    asked = {"model": str(thinking_model_dir), "thinking": "on", "reply": "boxed_reasoning", "max_rows": 8}
    sampling = {"max_tokens": 24, "thinking_tokens": 2}
    train(from_dict({**SMALL, **asked, "sampling": sampling, "run_dir": tmp_path / "run", "batch_size": 8}))
    tokenizer_file = json.loads((thinking_model_dir / "tokenizer.json").read_text())
    ids = {token["content"]: token["id"] for token in tokenizer_file["added_tokens"]}
    closed = 0
    for line in lines(tmp_path / "run" / "rollouts.jsonl"):
        episode = line.get("episode", line)
        for trajectory in episode["trajectories"]:
            for turn in trajectory["turns"]:
                assert "reason step by step" not in turn["observation"][0]["content"]  # the env's own text is recorded
                tokens = turn["action_tokens"]
                begun = tokens.index(ids["<think>"]) if ids["<think>"] in tokens else None
                for place in turn.get("written", ()):
                    assert tokens[place] == ids["</think>"] and place == begun + 3
                    closed += 1
                if begun is not None and ids["</think>"] not in tokens:
                    assert len(tokens) - begun - 1 <= 2  # nobody thinks longer than the limit
    record = lines(tmp_path / "run" / "metrics.jsonl")[-1]
    assert closed == record["action_tokens"] - sum(record["staleness"].values()) > 0


def test_what_a_rule_wrote_is_in_the_context_and_not_in_the_loss() -> None:
    turn = Turn((), "", 1.0, None, (1, 2), (3, 9, 4), (-0.5, -7.0, -0.25), 0, "stop", None, (1,))
    episode = Episode("G", 0, {}, {"a": Trajectory("a", "player", True, [turn])})
    batch = pack([episode], [{"a": np.array([2.0])}])
    assert batch.target.tolist() == [3, 4] and batch.old_logprobs.tolist() == [-0.5, -0.25]
    assert batch.tokens[0].tolist() == [1, 2, 3, 9] and batch.cols[batch.position].tolist() == [1, 3]
    assert batch.counters.forced_tokens == 1 and batch.sequence_length.tolist() == [3, 3]
    again = episode_from_json(json.loads(json.dumps(episode_to_json(episode))))
    assert again.trajectories["a"].turns[0].written == (1,)


def test_reply_templates() -> None:
    assert replies.read_reply("boxed")[:2] == ("boxed", "") and replies.read_reply("env")[:2] == ("", "")
    assert replies.read_reply("spiral").ask.startswith("You are playing a two-player zero-sum game.")
    own = replies.read_reply("Think first, then answer in \\boxed{}.")
    assert own[:2] == ("boxed", "{observation}\nThink first, then answer in \\boxed{}.")
    assert replies.read_reply("Be quick: {observation}")[:2] == ("", "Be quick: {observation}")
    with pytest.raises(ConfigError, match=r"unknown reply template 'boxd', did you mean 'boxed'\?"):
        replies.read_reply("boxd")


def test_the_format_reaches_the_envs() -> None:
    config = from_dict({"reply": "boxed_reasoning", "env": ["KuhnPoker-v0", "Nim-v0"]})
    assert [entry.args for entry in config.envs] == [{"action_format": "boxed"}] * 2
    assert from_dict({"reply": "env"}).envs == TrainConfig().env
    clash = from_dict({"reply": "boxed", "env_args": {"action_format": "bracket"}})
    with pytest.raises(ConfigError, match=r"needs action_format = 'boxed', but KuhnPoker-v0 has 'bracket'"):
        _ = clash.envs


def test_envs_that_are_made_already_must_have_the_format() -> None:
    arena = Arena()
    arena.add_env("Nim-v0")
    with pytest.raises(ConfigError, match=r"asks for 'boxed' actions, but Nim-v0 reads 'bracket': add it with args="):
        arena_of(from_dict({"reply": "boxed"}), arena)
    fitting = Arena()
    fitting.add_env("Nim-v0", args={"action_format": "boxed"})
    assert arena_of(from_dict({"reply": "boxed"}), fitting).envs.keys() == {"Nim-v0"}


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"thinking": "on"}, "tiny: this model's chat template has no enable_thinking"),
        ({"sampling": {"thinking_tokens": 12}}, r"thinking_tokens \(12\) must be less than sampling.max_tokens \(12\)"),
        ({"thinking": "maybe"}, "thinking: .*'auto', 'on' or 'off', got 'maybe'"),
    ],
)
def test_what_cannot_be_is_refused_before_the_first_step(settings: dict, error: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=error):
        train(from_dict({**SMALL, **settings, "run_dir": tmp_path / "run"}))
