"""Several learners in one run: each with its own weights, and each with what it would have learned alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from inference import load, read_adapter
from legos_train import ConfigError, TrainConfig, Trainer, train
from legos_train.config import sizes
from legos_train.errors import PolicyError
from legos_train.loss.batch import BatchByLearner
from legos_train.model import Learner, Learners
from legos_train.model.mlx_backend import MLXBackend
from legos_train.rollout.players import words
from legos_train.run import build, estimate
from legos_train.run.alarm_actions import respond
from legos_train.run.parts.monitor import Alarm
from legos_train.run.periodic_eval import evaluate
from tests.inference.live import LiveServer
from tests.train.helpers import digest, identify, small

BOTH: list[dict[str, Any]] = [
    {"name": "first", "roles": ["player_0"]},
    {"name": "second", "roles": ["player_1"], "rank": 2, "optim": {"lr": 1e-3}, "loss": {"kl": 0.05}},
]
TIMES = {"seconds", "seconds_play", "seconds_pack", "seconds_learn", "seconds_publish", "tokens_per_second"}


def rows(run: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in record.items() if k not in {*TIMES, "run", "resumed_from"}} for record in records]


@pytest.fixture
def kuhn() -> Iterator[Trainer]:
    trainer = Trainer(build(small(learner=BOTH)))
    yield trainer
    trainer.parts.close()


def test_one_learner_is_a_run_without_the_table_bit_for_bit(tmp_path: Path) -> None:
    table = [{"name": "all", "roles": ["player_0", "player_1"]}]
    for name, learner in (("plain", []), ("table", table)):
        identify(tmp_path / name)
        train(small(tmp_path / name, steps=2, batch_size=4, eval={"every": 2}, learner=learner), quiet=True)
    weights = tmp_path / "plain/adapter/adapters.safetensors", tmp_path / "table/adapter/all/adapters.safetensors"
    assert digest(weights[0]) == digest(weights[1])
    for plain, row in zip(rows(tmp_path / "plain"), rows(tmp_path / "table"), strict=True):
        assert {"all"} == set(row.pop("learners")) and row == plain


def test_backends_are_given_by_the_name_of_their_learner() -> None:
    config = small(learner=BOTH)
    own = {name: MLXBackend(load("tiny")[0], settings) for name, settings in config.learners.items()}
    parts = build(config, backend=own)
    assert isinstance(parts.learner, Learners) and [one.backend for one in parts.learner.members.values()] == [
        *own.values()
    ]
    parts.close()
    wrong: list[tuple[Any, TrainConfig]] = [(own["first"], config), ({"first": own["first"]}, config), (own, small())]
    for given, settings in wrong:
        with pytest.raises(ConfigError, match="one backend for each learner"):
            build(settings, backend=given)


def test_each_learns_what_it_would_alone_from_the_same_turns(kuhn: Trainer) -> None:
    record, learners = kuhn.step(), kuhn.learner
    assert isinstance(learners, Learners) and isinstance(kuhn.batch, BatchByLearner) and kuhn.last is not None
    seen = {(t.agent, t.info["learner"]) for e in kuhn.last.episodes for t in e.trajectories.values()}
    assert seen == {("player_0", "first"), ("player_1", "second")}
    turns = [t for e in kuhn.last.kept for t in e.trajectories.values()]
    for name, part in kuhn.batch.parts.items():
        assert part.counters.turns == sum(len(t.turns) for t in turns if t.info["learner"] == name)
    base = load("tiny")[0]
    for name, own in kuhn.config.learners.items():
        begun = Trainer(build(small(learner=BOTH)))
        start = begun.learner.members[name].backend.snapshot(0)  # type: ignore[union-attr]
        begun.parts.close()
        alone = Learner(MLXBackend(base, own), own)
        alone.backend.load(start)
        numbers = alone.update(kuhn.batch.parts[name])
        kept = record["learners"][name]
        assert numbers == {key: kept[key] for key in numbers}
        (seat,) = next(one["roles"] for one in BOTH if one["name"] == name)
        assert kept["reward"] == record["reward"][seat] and kept["win_rate"] == record["win_rate"][seat]
        got = learners.members[name].backend.snapshot(1).content
        for key, array in alone.backend.snapshot(1).content.items():
            assert mx.array_equal(array, got[key]), (name, key)
    assert record["learners"]["first"]["lr"] != record["learners"]["second"]["lr"]
    assert record["updates"] == 2 and record["action_tokens"] == sum(len(p) for p in kuhn.batch.parts.values())


def test_each_seat_is_played_and_measured_with_the_weights_of_its_own_learner(kuhn: Trainer) -> None:
    kuhn.step()
    engine, measurer = kuhn.parts.engine, kuhn.parts.measurer
    (task,) = measurer.tasks.values()
    for agent, name in (("player_0", "policy.first"), ("player_1", "policy.second")):
        assert measurer.player(task, agent, "policy").adapter == name
    assert measurer.player(task, "player_0", None).adapter is None
    versions = {name: info.version for name, info in engine.adapters().items()}
    assert versions == {"policy.first": 1, "policy.second": 1}
    both = measurer.measure("policy")["nash_conv"]
    kuhn.parts.backend.members["first"].load(kuhn.parts.backend.members["first"].snapshot(0))  # type: ignore[attr-defined]
    assert both == measurer.measure("policy")["nash_conv"] != measurer.measure(None)["nash_conv"]
    again = kuhn.step()["learners"]
    assert all(own["mismatch_max"] < 1e-4 for own in again.values()), "each was sampled from its own new weights"


def test_a_run_leaves_an_adapter_for_each_and_they_are_those_that_were_measured(tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = train(
        small(run, steps=1, batch_size=4, eval={"every": 1}, learner=BOTH, average={"kind": "none"}), quiet=True
    )
    for folder in ("adapter", "last", "best"):
        for name, rank in (("first", 4), ("second", 2)):
            adapter = read_adapter(run / folder / name)
            assert adapter.config["lora_parameters"]["rank"] == rank and adapter.config["legos"]["learner"] == name
    trainer = Trainer(build(small(learner=BOTH)))
    for name, one in trainer.parts.backend.members.items():  # type: ignore[attr-defined]
        one.load(one.read(run / "last" / name))
    trainer.parts.sync.policy()
    assert trainer.parts.measurer.measure("policy")["nash_conv"] == pytest.approx(result.last["nash_conv"], abs=1e-6)
    trainer.parts.close()
    with pytest.raises(PolicyError, match=r"several learners, first, second: name one, such as .*adapter/first"):
        words.locate(str(run))
    with pytest.raises(PolicyError, match=r"@step_1 holds several learners.*last/first"):
        words.locate(f"{run}@step_1")
    assert words.locate(str(run / "adapter" / "second")) == ("tiny", run / "adapter" / "second")
    for word, folder in ((str(run), "adapter"), (f"{run}@last", "last"), (f"{run}@best", "best")):
        again = Trainer(build(small(learner=BOTH, init_adapter=word)))
        for name, one in again.parts.backend.members.items():  # type: ignore[attr-defined]
            assert one.distance(one.read(run / folder / name)) == 0.0
        again.parts.close()


@pytest.mark.slow  # by default test_whole_state.py resumes bit for bit, and the table comes back from its file below
@pytest.mark.parametrize("league", [{}, {"mode": "fsp", "snapshot_every": 1, "pool": 2}])
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path, league: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"learner": BOTH, "league": league, "checkpoint": {"every": 2}, "batch_size": 12}
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for run in (whole, broken):
        identify(run)
    settings |= {"steps": 4, "eval": {"every": 2}}
    train(small(whole, **settings), quiet=True)

    class Enough(Exception): ...

    def stop(record: dict[str, Any]) -> None:
        if record["step"] == 3:
            raise Enough

    with pytest.raises(Enough):
        train(small(broken, **settings), quiet=True, on_step=stop)
    train(small(broken, **settings), quiet=True, resume=True)
    for name in ("first", "second"):
        assert digest(whole / f"last/{name}/adapters.safetensors") == digest(
            broken / f"last/{name}/adapters.safetensors"
        )
        for group in ("adapter", "optimizer"):
            file = f"checkpoints/step_4/{group}.{name}.safetensors"
            assert digest(whole / file) == digest(broken / file)
    assert rows(whole) == rows(broken)


def test_members_of_a_league_are_all_learners_and_each_seat_meets_its_own_kind() -> None:
    trainer = Trainer(build(small(learner=BOTH, league={"mode": "fsp", "snapshot_every": 1, "pool": 1, "latest": 0.0})))
    try:
        for _ in range(2):
            trainer.step()
        assert trainer.last is not None
        for episode in trainer.last.episodes:
            player, member = sorted(episode.trajectories.values(), key=lambda t: "member" in t.info)
            assert (player.agent, player.info["learner"]) in {("player_0", "first"), ("player_1", "second")}
            assert member.info["member"] in {"step_0", "step_1"} and not member.trainable
        names = set(trainer.parts.engine.adapters())
        assert names == {f"{weights}.{name}" for weights in ("policy", "step_2") for name in ("first", "second")}
    finally:
        trainer.parts.close()


def test_a_pool_is_filled_from_the_learners_of_the_same_names(tmp_path: Path) -> None:
    other = tmp_path / "other"
    league = {"mode": "fsp", "pool": 3, "snapshot_every": 1}
    train(small(other, steps=1, batch_size=4, learner=BOTH, league=league), quiet=True)
    filled = {**league, "pool": 9, "pool_from": str(other)}
    trainer = Trainer(build(small(learner=BOTH, batch_size=4, league=filled)))
    try:
        assert trainer.parts.league is not None
        weights = trainer.parts.league.weights["other.step_1"].content
        for name in ("first", "second"):
            saved = read_adapter(other / "last" / name).weights
            assert saved.keys() == weights[name].content.keys()
            assert all(mx.array_equal(saved[key], array) for key, array in weights[name].content.items())
        trainer.step()
    finally:
        trainer.parts.close()
    with pytest.raises(ValueError, match="has the learners first, second, not 'third'"):
        build(small(learner=[{**BOTH[0], "name": "third"}, BOTH[1]], league=filled)).close()
    with pytest.raises(ValueError, match="has the learners first, second, this run has one policy"):
        build(small(league=filled)).close()


def test_envs_may_have_learners_of_their_own_and_one_without_episodes_waits() -> None:
    config = small(
        env=[{"id": "KuhnPoker-v0", "weight": 1e-9}, {"id": "Nim-v0"}],
        learner=[
            {"name": "cards", "roles": ["KuhnPoker-v0/player_0", "KuhnPoker-v0/player_1"]},
            {"name": "heaps", "roles": ["player_0", "player_1"]},
        ],
    )
    trainer = Trainer(build(config))
    try:
        record = trainer.step()
        cards, heaps = record["learners"]["cards"], record["learners"]["heaps"]
        assert (cards["updates"], cards["idle"], heaps["updates"]) == (0, 1, 1)
        assert trainer.learner.members["cards"].step == trainer.learner.members["heaps"].step == 1  # type: ignore[union-attr]
        assert record["learning_updates"] == 1
    finally:
        trainer.parts.close()


def test_an_update_of_a_learner_without_an_advantage_teaches_nothing() -> None:
    """`maxrl` has nothing to compare in groups of one: what moves the second learner is its entropy bonus."""
    second = {**BOTH[1], "credit": {"name": "maxrl"}, "loss": {"entropy": 0.1}}
    trainer = Trainer(build(small(learner=[BOTH[0], second], group_size=1)))
    try:
        record = trainer.step()
        assert record["updates"] == 2 and record["learning_updates"] == 1
    finally:
        trainer.parts.close()


@pytest.mark.slow
def test_every_action_of_every_learner() -> None:
    expected = {"loss": {"name": "expected", "aggregation": "constant", "kl": 0.0}, "batch_size": 4}
    trainer = Trainer(build(small(learner=[BOTH[0], {"name": "second", "roles": ["player_1"]}], **expected)))
    try:
        record = trainer.step()
        assert isinstance(trainer.batch, BatchByLearner)
        assert [part.counters.turns for part in trainer.batch.parts.values()] == [12, 12]
        assert record["learners"]["first"]["updates"] == record["learners"]["second"]["updates"] == 1
    finally:
        trainer.parts.close()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["thread", pytest.param("process", marks=pytest.mark.slow)])
def test_playing_ahead(tmp_path: Path, backend: str) -> None:
    settings = {"enabled": True, "backend": backend, "max_off_policy_steps": 1}
    config = small(tmp_path / "run", steps=3, learner=BOTH, asynchronous=settings)
    train(config, quiet=True)
    last = rows(tmp_path / "run")[-1]
    assert last["staleness_max"] <= 1
    assert all(own["updates"] == 1 for own in last["learners"].values())


@pytest.mark.slow
def test_playing_ahead_against_snapshots_that_leave_the_pool(tmp_path: Path) -> None:
    """Each learner's part of a snapshot is an adapter, and is taken from the generator under its own name."""
    ahead = {"enabled": True, "backend": "thread", "max_off_policy_steps": 1}
    league = {"mode": "fsp", "pool": 1, "snapshot_every": 1, "latest": 0.0}
    train(small(tmp_path / "run", steps=3, batch_size=2, learner=BOTH, league=league, asynchronous=ahead), quiet=True)
    assert [row["step"] for row in rows(tmp_path / "run")] == [1, 2, 3]


@pytest.mark.slow
def test_a_server_plays_each_learner_under_its_own_name() -> None:
    server = LiveServer("tiny", max_adapters=6)
    at = {"learner": BOTH, "server": {"urls": [server.url]}}
    try:
        with pytest.raises(ConfigError, match=r"most 6 adapters.* needs 8 .*or set league\.pool = 1"):
            build(small(**at, league={"mode": "fsp", "snapshot_every": 1, "pool": 2}))
        trainer = Trainer(build(small(**at)))
        try:
            for _ in range(2):
                record = trainer.step()
            assert record["mismatch_max"] < 1e-4 and record["staleness_max"] == 0
        finally:
            trainer.parts.close()
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"learner": [BOTH[0]]}, "no learner plays player_1"),
        ({"learner": [*BOTH, {"name": "third", "roles": ["dealer"]}]}, "names 'dealer'.*has the roles"),
        ({"learner": [*BOTH, BOTH[0]]}, "two learners are named 'first'"),
        ({"learner": [{"name": "a.b", "roles": ["player_0"]}]}, "a.b"),
        ({"learner": [{"name": "a", "roles": []}]}, "roles"),
        (
            {"learner": [{**BOTH[0], "optim": {"lrr": 1}}, BOTH[1]]},
            "learner 'first': unknown key 'optim.lrr'.*'optim.lr'",
        ),
        ({"learner": [{**BOTH[0], "loss": "expected"}, BOTH[1]]}, "loss"),
        ({"learner": [{**BOTH[0], "loss": {"name": "expected"}}, BOTH[1]]}, "for all learners, with.*or for none"),
        ({"learner": BOTH, "actors": {"player_1": {"model": "random"}}}, "'second' has nothing to learn"),
        (
            {"learner": [BOTH[0], {**BOTH[1], "loss": {"name": "ppo"}}], "loss": "sft", "sampling": {"top_p": 0.9}},
            "'player_1' is trained but sampled at top_p 0.9",
        ),
    ],
)
def test_what_does_not_fit_is_said(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        build(small(**changes)).close()


def test_who_may_be_sampled_warm_is_decided_by_the_loss_of_the_learner() -> None:
    imitators = [{**one, "loss": {"name": "sft"}} for one in BOTH]
    build(small(learner=imitators, sampling={"temperature": 0.5})).close()


def test_groups_are_played_where_the_credit_of_a_learner_compares_them() -> None:
    tree = {"name": "hierarchical_grpo", "root_peers": "batch"}
    for shared, own, size in (("grpo", "rae", 1), (tree, {"root_peers": "group"}, 8), (tree, {}, 1)):
        assert small(credit=shared, learner=[{**one, "credit": own} for one in BOTH]).grouped == size


def test_the_table_comes_back_from_its_file(tmp_path: Path) -> None:
    from legos_train.config import to_toml

    config = small(learner=[{**BOTH[0], "loss": {"kl_end": None}}, BOTH[1]])
    (tmp_path / "config.toml").write_text(to_toml(config))
    loaded = TrainConfig.load(tmp_path / "config.toml")
    assert loaded.learners["first"].loss.kl_end is None, "and not its default"
    assert loaded.learner == config.learner and loaded.learners["second"].optim.lr == 1e-3
    assert loaded.learners["first"].lora.rank == 4 and loaded.learners["second"].lora.rank == 2


def test_a_dry_run_counts_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def trained(text: str) -> int:
        return int(re.findall(r"\(([0-9,]+) weights trained\)", text)[0].replace(",", ""))

    one = trained(estimate(small(batch_size=8)))
    assert trained(estimate(small(batch_size=8, learner=BOTH))) == one + one // 2  # ranks 4 and 2
    monkeypatch.setattr("legos_train.run.dry_run.is_here", lambda model: False)
    model = sizes.size("0.6b").model
    both = trained(estimate(small(model=model, learner=BOTH)))
    assert both == trained(estimate(small(model=model))) * 3 // 2


def test_what_an_alarm_does_is_done_to_all(kuhn: Trainer) -> None:
    kuhn.step()
    evaluate(kuhn.parts)
    best = kuhn.parts.best
    kuhn.step()
    assert best is not None and kuhn.parts.backend.distance(best.weights) > 0
    respond(kuhn.parts, Alarm("kl", 1.0, 0.5, "rollback", "too far"))
    assert kuhn.parts.backend.distance(best.weights) == 0.0
    respond(kuhn.parts, Alarm("kl", 1.0, 0.5, "raise_kl", "too far"))
    factor = kuhn.config.monitor.kl_factor
    assert [one.kl_factor for one in kuhn.learner.members.values()] == [factor, factor]  # type: ignore[union-attr]


def test_a_learner_may_have_a_seat_inside_a_table() -> None:
    learners = [
        {"name": "asks", "roles": ["proposer"]},
        {"name": "first", "roles": ["problem_0/solver_0", "ProposerSolver-v0/problem_0/solver_1"]},
        {"name": "others", "roles": ["solver"]},
    ]
    parts = build(small(env="ProposerSolver-v0", model="small", batch_size=4, learner=learners))
    try:
        (slot,) = parts.arena.envs.values()
        found = {agent: parts.arena.claimants(slot, agent) for agent in slot.seats}
        assert found["proposer_0"] == ("asks",) and found["problem_0/solver_0"] == ("first",)
        assert found["problem_0/solver_1"] == ("first",) and found["problem_0/solver_2"] == ("others",)
    finally:
        parts.close()
