"""`expected` and `mirror` in games without a tree: every action of a decision point that came up is played on."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from legos_train import TrainConfig, Trainer, train
from legos_train.errors import ConfigError
from legos_train.rollout import Job
from legos_train.run import build
from tests.train.helpers import digest, identify, small

LOSS: dict[str, Any] = {"name": "expected", "aggregation": "constant", "kl": 0.0}
PIG: dict[str, Any] = {"env": "PigDice-v0", "env_args": {"goal": 12}, "loss": LOSS, "batch_size": 4}


def decided(config: TrainConfig) -> tuple[Any, Any]:
    """The batch and the decision points of a run's first step."""
    trainer = Trainer(build(config))
    try:
        trainer.assign_credit(trainer.play(1), 0)
        fresh, _ = trainer.parts.replay.take(0)
        assert fresh.decisions is not None
        return fresh, fresh.decisions
    finally:
        trainer.parts.close()


def by_action(decisions: Any) -> dict[Any, list[tuple[float, float]]]:
    """By what is read and written: weights and advantages."""
    out = defaultdict(list)
    for episode, advantages, weights in zip(decisions.episodes, decisions.advantages, decisions.weights):
        ((agent, seat),) = episode.trajectories.items()
        for turn, advantage, weight in zip(seat.turns, advantages[agent], weights[agent]):
            out[tuple(turn.prompt_tokens), tuple(turn.action_tokens)].append((weight, advantage))
    return out


def _story(episode: Any) -> list[Any]:
    """What was asked, answered and paid; log-probabilities depend on the batch in their last bits."""
    seats = episode.trajectories.items()
    return [(a, t.carry, [(u.observation, u.action, u.reward, u.prompt_tokens) for u in t.turns]) for a, t in seats]


def test_branches_give_what_the_tree_gives_on_average() -> None:
    same = {"loss": LOSS, "credit": {"return_scale": "none"}}
    _, tree = decided(small(**same, batch_size=2))
    branch = {"when": "always", "points": 3, "rollouts": 4}
    _, sampled = decided(small(**same, batch_size=128, branch=branch))
    true, found = by_action(tree), by_action(sampled)
    assert set(found) == set(true) and len(true) == 24
    assert sum(weight for some in found.values() for weight, _ in some) == pytest.approx(1.0, abs=0.01)
    assert sampled.branches["episodes"] == 4 * 2 * sampled.branches["points"] and sampled.branches["unvalued"] == 0
    for key, ((weight, advantage),) in true.items():
        weights, advantages = np.array(found[key]).T
        assert weights.sum() == pytest.approx(weight, abs=0.03)
        error = advantages.std() / np.sqrt(len(advantages)) if len(advantages) > 9 else 0.5
        assert advantages.mean() == pytest.approx(advantage, abs=4 * error + 0.05)


@pytest.mark.parametrize("args", [{"memory": "state"}, {"memory": "chat"}])
def test_an_episode_begun_in_the_middle_ends_as_it_did(args: dict[str, Any]) -> None:
    trainer = Trainer(build(small(env="PigDice-v0", env_args={"goal": 12, **args}, batch_size=2)))
    generator: Any = trainer.parts.arena.generator
    try:
        episodes = trainer.play(1)
        for job, episode in zip(trainer.jobs, episodes):
            given = dict.fromkeys(episode.trajectories, 0)
            begin: list[Any] = []
            for agent in episode.order:
                (again,) = generator.run([replace(job, begin=tuple(begin))])
                assert _story(again) == _story(episode)
                begin.append((agent, episode.trajectories[agent].turns[given[agent]]))
                given[agent] += 1
        other = replace(trainer.jobs[0], begin=tuple(begin))  # answers of the other episode, under this one's seed
        with pytest.raises(RuntimeError, match=r"PigDice-v0 cannot continue from the middle.*was not asked the"):
            generator.run([other])
    finally:
        trainer.parts.close()


@pytest.mark.slow
def test_other_learners_and_opponents_keep_their_seats() -> None:
    league = {"mode": "fixed", "opponents": ["random"]}
    fresh, decisions = decided(small(**PIG, league=league, branch={"points": 2}))
    own = {agent for episode in fresh.episodes for agent, t in episode.trajectories.items() if t.trainable}
    assert own and {agent for episode in decisions.episodes for agent in episode.trajectories} <= own
    assert {seating for _, seating in decisions.values} == {
        tuple(t.info.get("member") for t in episode.trajectories.values()) for episode in fresh.episodes
    }
    entries = [{"name": "one", "roles": ["player_0"]}, {"name": "two", "roles": ["player_1"]}]
    _, decisions = decided(small(**PIG, learner=entries))
    learners = {(a, t.info["learner"]) for e in decisions.episodes for a, t in e.trajectories.items()}
    assert learners == {("player_0", "one"), ("player_1", "two")}


def test_a_game_with_a_tree_and_one_without_share_a_step() -> None:
    envs = ["KuhnPoker-v0", {"id": "PigDice-v0", "args": {"goal": 12}}]
    fresh, decisions = decided(small(env=envs, loss=LOSS, batch_size=8))
    weights: dict[str, float] = defaultdict(float)
    for episode, one in zip(decisions.episodes, decisions.weights):
        ((agent, seat),) = episode.trajectories.items()
        legal = sum(np.exp(sum(turn.logprobs or ())) for turn in seat.turns)
        weights[episode.env_id] += float(one[agent].sum() / legal)
    played = [episode.env_id for episode in fresh.episodes]
    for name, weight in weights.items():
        assert weight == pytest.approx(played.count(name) / len(played))
    assert set(weights) == set(played) and len(weights) == 2


@pytest.mark.slow
def test_a_run_by_branches_resumes_bit_for_bit_and_says_what_it_played(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for run in (whole, parts):
        identify(run)
    settings = {
        **PIG,
        "batch_size": 2,
        "steps": 2,
        "checkpoint": {"every": 1},
        "eval": {"every": 0, "games": 2},
        "branch": {"points": 2},
    }
    train(small(whole, **settings))
    assert "PigDice-v0: branches value every legal action (2 decisions per game, once each)" in capsys.readouterr().out

    class Stop(Exception):
        pass

    def stop(record: dict[str, Any]) -> None:
        assert record["branches"]["points"] > 0 and record["branches"]["tokens"] > 0 and record["updates"] == 1
        raise Stop

    with pytest.raises(Stop):
        train(small(parts, **settings), on_step=stop)
    train(small(parts, **settings), resume=True)
    assert digest(whole / "adapter/adapters.safetensors") == digest(parts / "adapter/adapters.safetensors")


@pytest.mark.parametrize(
    "settings, message",
    [
        (
            {"branch": {"points": 2}},
            r"\[branch\] values actions for the losses 'expected' and 'mirror' and has no effect",
        ),
        ({"loss": LOSS, "branch": {"points": 2}}, r"\[branch\] has no effect: KuhnPoker-v0 is valued by its tree"),
        ({**PIG, "branch": {"when": "never"}}, r'PigDice-v0 it has no exact truth, and branch.when = "never"'),
        ({**PIG, "loss": {**LOSS, "explore": 0.1}}, r"loss.explore = 0.1 applies only to games valued by their tree"),
        ({**PIG, "env": "GSM8K-v0", "env_args": {}}, "GSM8K-v0 its first decisions list no legal actions. Use 'ppo'"),
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(small(**settings))


def test_a_job_that_begins_in_the_middle_is_not_sent_to_another_process() -> None:
    with pytest.raises(AssertionError, match="played in this process"):
        Job("PigDice-v0", 0, {}, begin=(("player_0", None),)).to_json()  # type: ignore[arg-type]


def test_long_episodes_count_for_all_their_decisions_and_no_two_branches_are_one() -> None:
    trainer = Trainer(build(small(loss=LOSS, batch_size=8, branch={"when": "always", "rollouts": 2})))
    table = trainer.parts.decisions
    assert table is not None
    played, play = [], table.branches.play
    try:
        table.branches.play = lambda jobs: play(played.extend(jobs) or jobs)  # type: ignore[func-returns-value]
        trainer.assign_credit(trainer.play(1), 0)
        fresh, _ = trainer.parts.replay.take(0)
    finally:
        trainer.parts.close()
    assert fresh.decisions is not None and len(played) == 8 * 2 * 2 == len({job.salt for job in played})
    lengths = [len(episode.order) for episode in fresh.episodes]
    assert len(set(lengths)) > 1
    for length, one, weights in zip(lengths, fresh.decisions.episodes, fresh.decisions.weights, strict=True):
        ((agent, seat),) = one.trajectories.items()
        legal = sum(np.exp(sum(turn.logprobs or ())) for turn in seat.turns)
        assert weights[agent].sum() / legal == pytest.approx(length / sum(lengths))
