"""The programme in Python: actors, envs and requests of a user's own."""

from __future__ import annotations

import asyncio
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import legos_envs
from legos_envs.games.kuhn_poker import KuhnPoker
from legos_envs.policies import RandomPolicy
from legos_train import Actor, Arena, ConfigError, EpisodeRequest, Trainer, train
from legos_train.credit import make_credit
from legos_train.errors import RankLost, Stopped
from legos_train.run import build
from tests.train.helpers import small


def test_two_envs_are_drawn_by_weight_and_their_numbers_kept_apart(tmp_path: Path) -> None:
    envs = [{"id": "KuhnPoker-v0", "weight": 3.0}, {"id": "MatrixGame-v0", "name": "rps", "args": {"game": "rps"}}]
    result = train(config=small(tmp_path / "run", env=envs, batch_size=16), quiet=True)
    assert {"KuhnPoker-v0/nash_conv", "rps/nash_conv"} <= set(result.last)
    from legos_train.disk import MetricsFile

    first, _ = MetricsFile.read(tmp_path / "run" / "metrics.jsonl")
    assert set(first["reward"]) == {"KuhnPoker-v0/player_0", "KuhnPoker-v0/player_1", "rps/player_0", "rps/player_1"}
    arena = Arena(seed=3, batch_size=4000)
    arena.add_env("a", "KuhnPoker-v0", 3.0)
    arena.add_env("b", "Nim-v0")
    drawn = [request.env for request in arena.get_batch()]
    assert drawn.count("a") / 4000 == pytest.approx(0.75, abs=0.03)


def test_a_group_plays_one_deal() -> None:
    arena = Arena(seed=3, batch_size=12, group_size=4)
    arena.add_env("kuhn", "KuhnPoker-v0")
    jobs = arena.jobs(arena.get_batch())
    deals: dict[object, set[int]] = {}
    for job in jobs:
        deals.setdefault(job.group, set()).add(job.seed)
    assert [job.group for job in jobs] == ["1/0"] * 4 + ["1/1"] * 4 + ["1/2"] * 4
    assert all(len(seeds) == 1 for seeds in deals.values()) and len(set.union(*deals.values())) == 3
    assert len({job.salt for job in jobs}) == 12, "one deal, and other draws"


def test_only_what_the_live_policy_said_is_trained(tmp_path: Path) -> None:
    """One seat by a function, evaluation episodes beside: neither enters a batch, and the log says why."""
    arena = Arena()
    arena.add_env("nim", "Nim-v0")
    arena.add_actor(Actor("player_1", model=RandomPolicy()))
    trainer = Trainer(build(small(batch_size=8), arena))
    try:
        requests = [EpisodeRequest("nim")] * 3 + [EpisodeRequest("nim", train_roles=())] * 2
        episodes = asyncio.run(arena.generate_rollouts(requests))
        for episode in episodes[:3]:
            assert episode.trajectories["player_0"].trainable
            assert episode.trajectories["player_1"].info["untrained"] == "played by RandomPolicy"
        assert all(not t.trainable for e in episodes[3:] for t in e.trajectories.values())
        assert episodes[3].trajectories["player_0"].info["untrained"] == "role not trained"
        record = trainer.step()
        assert record["updates"] == 1
        trained = [a for e in trainer.last.kept for a, t in e.trajectories.items() if t.trainable]  # type: ignore[union-attr]
        assert set(trained) == {"player_0"}
    finally:
        trainer.parts.close()


def test_get_batch_of_a_user_decides_what_is_played(tmp_path: Path) -> None:
    class Mine(Arena):
        def get_batch(self) -> list[EpisodeRequest]:
            seeds = self.rng.integers(1000, size=2).tolist()
            return [EpisodeRequest("nim", seed=seed, options={}) for seed in seeds for _ in range(4)]

    arena = Mine()
    arena.add_env("nim", legos_envs.make("Nim-v0"))
    trainer = Trainer(build(small(batch_size=8, credit={"name": "grpo"}, group_size=1), arena))
    try:
        episodes = trainer.play(1)
        assert len(episodes) == 8 and len({e.seed for e in episodes}) == 2
        assert len({e.group for e in episodes}) == 2, "equal requests are a group"
        assert [e.seed for e in trainer.play(1)] == [e.seed for e in episodes], "a step draws the same each time"
        assert trainer.step()["updates"] == 1
    finally:
        trainer.parts.close()


def test_an_arena_alone_plays_with_the_base_model() -> None:
    arena = Arena()
    arena.add_env("KuhnPoker-v0")
    try:
        (episode,) = asyncio.run(arena.generate_rollouts([EpisodeRequest("KuhnPoker-v0", seed=1)]))
        assert episode.returns and not any(t.trainable for t in episode.trajectories.values())
    finally:
        arena.close()


def test_a_judge_without_an_entry_is_the_base_or_code_at_temperature_0_and_never_trained() -> None:
    trainer = Trainer(build(small(env="Debate-v0", batch_size=2, sampling={"max_tokens": 8})))
    try:
        slot = trainer.parts.arena.slot("Debate-v0")
        actor = trainer.parts.arena.players(slot)["*untrained"]
        assert (actor.model, actor.temperature, actor.trainable) == ("scripted:on_topic", 0.0, False)
        (episode, _) = trainer.play(1)
        judges = [t for t in episode.trajectories.values() if t.role == "judge"]
        assert judges and all(t.info["player"] == "scripted:on_topic" and not t.trainable for t in judges)
        assert {t.info["untrained"] for t in judges} == {"not trained by the environment"}, "nothing was taken back"
        trainer.parts.arena.model = "org/a-real-model"
        actor = trainer.parts.arena.players(slot)["*untrained"]
        assert (actor.model, actor.temperature, actor.trainable) == ("base", 0.0, False)
    finally:
        trainer.parts.close()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"actors": {"judge": {"model": "base"}}}, "has the roles"),
        ({"env": "MatrixGame-v0", "train_roles": ("dealer",)}, "dealer"),
        ({"actors": {"player_0": {"model": "nobody"}}}, "no policy 'nobody'"),
    ],
)
def test_what_does_not_fit_is_said(changes: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        trainer = Trainer(build(small(batch_size=4, **changes)))
        try:
            trainer.play(1)
        finally:
            trainer.parts.close()


def test_names_are_taken_once() -> None:
    arena = Arena()
    arena.add_env("kuhn", "KuhnPoker-v0")
    with pytest.raises(ValueError, match="already has an env"):
        arena.add_env("kuhn", "Nim-v0")
    with pytest.raises(ValueError, match="positive"):
        arena.add_env("nim", "Nim-v0", weight=0.0)
    with pytest.raises(ConfigError, match="two environments are named"):
        small(env=["Nim-v0", "Nim-v0"])


@pytest.mark.slow
def test_a_second_run_with_one_arena_has_only_its_own_config(tmp_path: Path) -> None:
    """The actors, envs and samplers of the first config stayed, whatever the second one's config.toml said."""
    arena = Arena()
    played: list[set[str]] = []
    configs: list[dict[str, Any]] = [
        {"env": "Nim-v0", "actors": {"player_1": {"model": "random"}}},
        {"env": "KuhnPoker-v0", "actors": {"player_1": {"model": "scripted:always_bet"}}},
        {"env": "Nim-v0"},
    ]
    for number, settings in enumerate(configs):
        path = tmp_path / str(number)
        train(arena, small(path, steps=1, batch_size=2, **settings), quiet=True)
        lines = [json.loads(line) for line in (path / "rollouts.jsonl").read_text().splitlines()]
        assert {line["env"] for line in lines} == {settings["env"]}
        played.append({line["players"]["player_1"] for line in lines})
        assert (json.loads((path / "run.json").read_text()))["arena"] == ""
    assert played == [{"random"}, {"scripted:always_bet"}, {"policy"}]
    arena.add_actor(Actor("player_1", model="random"))
    train(arena, small(tmp_path / "own", steps=1, batch_size=2, env="Nim-v0"), quiet=True)
    assert list(arena.actors) == ["player_1"], "what the user adds stays"


def test_samplers_and_stores_of_a_config_leave_with_it() -> None:
    arena = Arena()
    build(small(env="GSM8K-v0", model="small", batch_size=2, curriculum={"sampler": "learnability"}), arena).close()
    assert len(arena.samplers) == len(arena.stores) == 1
    build(small(env="GSM8K-v0", model="small", batch_size=2), arena).close()
    assert not arena.samplers and not arena.stores


def test_a_credit_method_of_the_arena_gets_its_groups() -> None:
    """Groups of one made GRPO a running baseline."""
    arena = Arena()
    arena.credit = make_credit("grpo")
    build(small(batch_size=16), arena).close()
    assert arena.group_size == 8
    build(small(batch_size=16, group_size=4), arena).close()
    assert arena.group_size == 4
    with pytest.raises(ConfigError, match=r"batch_size \(12\) must be a multiple of group_size \(8\)"):
        build(small(batch_size=12), arena)
    with pytest.raises(ConfigError, match=r"\[credit\] has no effect beside arena.credit"):
        build(small(batch_size=16, credit={"name": "rloo"}), arena)
    arena.credit = object()  # type: ignore[assignment]
    with pytest.raises(ConfigError, match=r"arena\.credit is of type object, which lacks assign"):
        build(small(batch_size=16), arena)


def test_actors_of_agents_inside_a_table_play_there() -> None:
    """One for an env was ignored, and a table with only a prompt made its seat the base model."""
    arena = Arena()
    arena.add_env("N", "ProposerSolver-v0")
    arena.add_actor(Actor("N/problem_0/solver_0", model="random"))
    prompts = {"problem_0/solver_1": "Be bold.", "N/problem_0/solver_2": "Be brief."}
    actors = {agent: {"system_prompt": prompt} for agent, prompt in prompts.items()}
    parts = build(small(batch_size=2, actors=actors), arena)
    (job,) = arena.jobs([EpisodeRequest("N", seed=1)])
    assert job.players["problem_0/solver_0"].model == "random"
    for agent in ("problem_0/solver_1", "problem_0/solver_2"):
        assert (job.players[agent].model, job.players[agent].temperature) == ("policy", 1.0)
    parts.close()


def test_requests_for_another_env_have_numbers_of_their_own(tmp_path: Path) -> None:
    class Two(Arena):
        def get_batch(self) -> list[EpisodeRequest]:
            return [EpisodeRequest("KuhnPoker-v0", seed=np.int64(n)) for n in range(2)] + [EpisodeRequest("Nim-v0")] * 2

    arena = Two()
    arena.add_env("KuhnPoker-v0")
    train(arena, small(tmp_path / "run", steps=1, batch_size=4, filter={"draw_retries": 1}), quiet=True)
    row = json.loads((tmp_path / "run/metrics.jsonl").read_text())
    assert {name.rpartition("/")[0] for name in row["reward"]} == {"KuhnPoker-v0", "Nim-v0"}
    with pytest.raises(ConfigError, match=r"train_roles of Nim-v0 names \['nobody'\]; it has the roles"):
        arena.jobs([EpisodeRequest("Nim-v0", train_roles=("nobody",))])


def test_arguments_that_only_python_has(tmp_path: Path) -> None:
    arena = Arena()
    arena.add_env("mine", lambda fn=None, **more: legos_envs.make("Nim-v0"), args={"fn": len, "n": np.int64(3)})
    train(arena, small(tmp_path / "run", steps=1, batch_size=2), quiet=True)
    assert 'fn = "<len>"' in (tmp_path / "run/config.toml").read_text()
    other = Arena()
    other.add_env("HeadToHead-v0", args={"match": KuhnPoker})
    with pytest.raises(ConfigError, match=r"args 'match' of env 'HeadToHead-v0' is of type \w+, which config\.toml"):
        train(other, small(tmp_path / "other", steps=1, batch_size=2), quiet=True)


def test_what_ends_a_run_can_be_sent_to_another_process() -> None:
    for error in (Stopped(2), Stopped(15), RankLost("rank 1 has ended")):
        again = pickle.loads(pickle.dumps(error))
        assert str(again) == str(error) and getattr(again, "exit_code", 0) == getattr(error, "exit_code", 0)
