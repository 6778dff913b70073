"""Games that nobody could score, as where a judge is never understood, end no training run."""

from __future__ import annotations

from pathlib import Path

import pytest

import legos_envs
from legos_envs.policies import make_policy
from legos_train import Trainer, train
from legos_train.evaluation.duel import NothingScored, head_to_head
from legos_train.rollout import Rollouts
from legos_train.run import build
from tests.train.helpers import small


def test_training_goes_on_where_no_judge_was_understood(tmp_path: Path) -> None:
    """As at the start of a run of `tiny`, which cannot judge: there is no mean, and there are no best weights yet."""
    judge = {"judge": {"model": "base"}}
    config = small(tmp_path / "run", env="Debate-v0", actors=judge, batch_size=2, steps=1, eval={"games": 2})
    result = train(config, quiet=True)
    assert result.start["unscored"] == result.last["unscored"] == 1.0
    assert "return" not in result.last and not result.best
    assert (tmp_path / "run" / "adapter").exists() and (tmp_path / "run" / "report.html").exists()


def test_what_was_not_scored_is_left_out_of_training_and_says_so() -> None:
    judge = {"judge": {"model": "base"}}
    trainer = Trainer(build(small(env="Debate-v0", actors=judge, batch_size=2)))
    try:
        spoken = [t for e in trainer.play(1) for t in e.trajectories.values() if t.role != "judge"]
    finally:
        trainer.parts.close()
    assert len(spoken) == 4 and not any(t.trainable for t in spoken)
    assert {t.info["untrained"] for t in spoken} == {"unscored"}


def test_a_duel_without_a_scored_game_says_why() -> None:
    env = legos_envs.make("Debate-v0")
    speaker, rollouts = make_policy("scripted:long", env), Rollouts(legos_envs.make)
    judge = {"judge": lambda decision: "nonsense"}
    with pytest.raises(NothingScored, match=r"no seed of Debate-v0 .* judge_0 was not understood") as caught:
        head_to_head(rollouts, "Debate-v0", [("pro_0",), ("con_0",)], speaker, speaker, 2, 0, others=judge)
    rollouts.close()
    assert caught.value.row["mean"] is None and caught.value.row["unscored"] == 1.0


def test_a_duel_needs_games_and_a_player_for_each_seat() -> None:
    env = legos_envs.make("KuhnPoker-v0")
    player, rollouts = make_policy("random", env), Rollouts(legos_envs.make)
    seats = ["player_0", "player_1"]
    with pytest.raises(ValueError, match="at least 1; got 0"):
        head_to_head(rollouts, "KuhnPoker-v0", seats, player, player, 0, 0)
    with pytest.raises(ValueError, match="the opponent has players for player_0; no player for player_1"):
        head_to_head(rollouts, "KuhnPoker-v0", seats, player, {"player_0": player}, 2, 0)
    rollouts.close()
