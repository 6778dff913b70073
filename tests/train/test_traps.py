"""Ways in which a run could train on the wrong thing, or on nothing, without a word."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from legos_train import Actor, Arena, ConfigError, EpisodeRequest, Trainer, make_credit, train
from legos_train.credit import CreditSettings, PerRole
from legos_train.credit.rae import RAECredit
from legos_train.rollout import filters
from legos_train.rollout.jobs import NOT_FINITE
from legos_train.run import build, state
from legos_train.run.overlap import overlapped
from legos_train.run.stopping import Stopping
from tests.train.helpers import small


def arena_of(**actors: Any) -> Arena:
    arena = Arena()
    arena.add_env("nim", "Nim-v0")
    for role, model in actors.items():
        arena.add_actor(Actor(role, model=model))
    return arena


@pytest.fixture
def trainer_of():
    made = []

    def make(arena: Arena | None = None, **settings: Any) -> Trainer:
        made.append(Trainer(build(small(**{"batch_size": 8, **settings}), arena)))
        return made[-1]

    yield make
    for trainer in made:
        trainer.parts.close()


def test_playing_before_training_leaves_the_actors_as_they_were(trainer_of) -> None:
    arena = arena_of(player_0="policy", player_1="policy")
    asyncio.run(arena.generate_rollouts([EpisodeRequest("nim", seed=1)]))
    arena.close()
    assert trainer_of(arena).step()["updates"] == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"env": "Debate-v0", "train_roles": ("judge",)},
        {"actors": {"player_0": {"model": "base"}, "player_1": {"trainable": False}}},
    ],
)
def test_a_run_that_could_train_nothing_is_refused(settings: dict) -> None:
    with pytest.raises(ConfigError, match="nothing to train"):
        Trainer(build(small(batch_size=4, **settings)))


def test_a_method_that_the_arena_names_brings_its_group_size() -> None:
    arena = Arena()
    arena.add_env("nim", "Nim-v0", credit="grpo")
    with pytest.raises(ConfigError, match=r"batch_size \(12\) must be a multiple of group_size \(8\)"):
        train(arena, small(batch_size=12, env="KuhnPoker-v0"), quiet=True)


@pytest.mark.parametrize(
    "wrong", [{"optim": {"lr": math.inf}}, {"loss": {"kl": math.nan}}, {"monitor": {"kl": math.nan}}, {"seed": 1 << 64}]
)
def test_numbers_that_no_run_can_use_are_refused(wrong: dict[str, Any]) -> None:
    """An infinite rate trained a step and broke off; an alarm at NaN was off without a word."""
    with pytest.raises(ConfigError, match=r"must be a finite number|must be less than"):
        small(**wrong)


@pytest.mark.parametrize("name", ["tiny", "random"])
def test_what_has_no_adapter_is_no_start(name: str) -> None:
    with pytest.raises(ConfigError, match=f"init_adapter '{name}' has no adapter; give a run"):
        build(small(init_adapter=name))


def test_roles_of_an_env_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"train_roles of Nim-v0 names \['plaayer'\]"):
        Trainer(build(small(batch_size=4, env=[{"id": "Nim-v0", "train_roles": ("plaayer",)}])))


@pytest.mark.quick(1)
@pytest.mark.parametrize("sampling", [{"temperature": 0.5}, {"top_p": 0.9}, {"temperature": 0.0}])
def test_trained_seats_are_sampled_as_the_loss_assumes(sampling: dict, trainer_of) -> None:
    with pytest.raises(ConfigError, match=r"A policy gradient needs (temperature|top_p) 1 "):
        trainer_of(sampling=sampling)
    assert trainer_of(sampling=sampling, loss={"name": "sft", "kl": 0.0, "kl_end": None}).step()["turns"]


@pytest.mark.slow
def test_a_learning_rate_that_ends_at_zero_ends_the_run_well(tmp_path: Path) -> None:
    assert train(config=small(tmp_path / "run", batch_size=8, optim={"lr_end": 0.0}), quiet=True).steps == 2


def test_baselines_see_the_losers_that_a_filter_leaves_out(trainer_of) -> None:
    trainer = trainer_of(batch_size=32, env="Nim-v0", credit={"name": "rae"}, filter={"keep": "winners"})
    records = [trainer.step() for _ in range(2)]
    assert all(r["zero_advantages"] == 0.0 and r["left_out"]["filtered"] == 32 for r in records)
    baseline = trainer.parts.credit.inner.baselines  # type: ignore[attr-defined]
    assert abs(baseline("Nim-v0", "player_0") + baseline("Nim-v0", "player_1")) < 1e-9, "only winners were folded in"


def test_turns_without_an_advantage_cost_nothing_and_change_nothing_on_request(trainer_of) -> None:
    """Adam's first step does not see the scale of a gradient, so what is left has the direction of the whole."""
    settings = {"batch_size": 32, "credit": {"name": "grpo"}, "group_size": 2, "loss": {"kl": 0.0, "kl_end": None}}
    settings |= {"optim": {"grad_clip": 1e9}}
    both, rows = [], []
    for wanted in (False, True):
        trainer = trainer_of(**settings, filter={"zero_advantages": wanted})
        rows.append(trainer.step())
        both.append(trainer.parts.backend.policy.trainable())
    whole, fewer = rows
    assert whole["zero_advantages"] == fewer["zero_advantages"] > 0.2 and whole["updates"] == fewer["updates"] == 1
    assert fewer["dropped"]["zero"] == round(fewer["zero_advantages"] * fewer["turns"]) > 0 == whole["dropped"]["zero"]
    assert fewer["distinct_rows"] < whole["distinct_rows"] and fewer["live_share"] == 1.0 > whole["live_share"]
    assert all(np.allclose(both[0][name], both[1][name], atol=2e-5) for name in both[0])


def test_imitation_has_no_advantages_to_leave_out() -> None:
    with pytest.raises(ConfigError, match="learns without advantages; leave out"):
        small(loss={"name": "sft"}, filter={"zero_advantages": True})


def test_winners_need_somebody_to_win_against() -> None:
    with pytest.raises(ConfigError, match="use 'success'"):
        Trainer(build(small(batch_size=4, env="GSM8K-v0", filter={"keep": "winners"})))


def test_a_reward_that_is_no_number_costs_its_episode_and_is_counted(trainer_of) -> None:
    """Our own envs refuse such a reward; one that was made elsewhere may not."""
    trainer = trainer_of(batch_size=8, credit={"name": "rae"})
    run = trainer.parts.sync.local.rollouts.stream

    def stream(plays: Any, done: Any, failed: Any = None) -> Any:
        def poisoned(index: int, episode: Any, declared: Any) -> None:
            if index < 3:
                next(t for t in episode.trajectories.values() if t.turns).turns[0].reward = math.nan
            done(index, episode, declared)

        return run(plays, poisoned, failed)

    trainer.parts.sync.local.rollouts.stream = stream
    record = trainer.step()
    assert record["left_out"]["not_finite"] == 3 and record["updates"] == 1
    whole = [e for e in trainer.last.episodes if not filters.is_not_finite(e)]
    assert record["reward"] == {r: np.mean([e.trajectories[r].total for e in whole]) for r in ("player_0", "player_1")}
    bad = [t for e in trainer.last.episodes for t in e.trajectories.values() if not t.trainable]
    assert len(bad) == 6 and all(t.info["untrained"] == NOT_FINITE for t in bad)


def test_what_is_said_for_one_env_comes_before_what_is_said_for_all() -> None:
    arena = arena_of(**{"nim/player_1": "random", "player_1": "optimal"})
    assert arena.players(arena.slot("nim"))["player_1"].model == "random"


def test_a_seat_with_an_actor_of_its_own_keeps_it_when_measured(trainer_of) -> None:
    """Against a fixed opponent the exact number of self-play would be about another game."""
    trainer = trainer_of(arena_of(player_1="random"), eval={"games": 8})
    assert {"return", "return_low", "return_high", "invalid"} <= set(trainer.parts.measurer.measure("policy"))
    assert "nash_conv" in trainer_of(arena_of()).parts.measurer.measure("policy")


def test_a_league_leaves_actors_alone() -> None:
    with pytest.raises(ConfigError, match="needs two trained seats"):
        Trainer(build(small(batch_size=4, league={"mode": "fsp"}), arena_of(player_1="random")))


def test_it_works_where_an_event_loop_runs_already(trainer_of) -> None:
    class Mine(Arena):
        async def generate_rollouts(self, requests):
            return await super().generate_rollouts(requests)

    arena = Mine()
    arena.add_env("nim", "Nim-v0")
    trainer = trainer_of(arena)

    async def notebook() -> dict:
        return trainer.step()

    assert asyncio.run(notebook())["updates"] == 1


def test_a_snapshot_stays_until_the_batches_that_play_against_it_are_in() -> None:
    league = {"mode": "fsp", "pool": 1, "snapshot_every": 1, "latest": 0.0}
    settings = {"enabled": True, "backend": "thread", "queue": 2, "max_off_policy_steps": 2}
    trainer = Trainer(build(small(steps=5, batch_size=8, league=league, asynchronous=settings)))
    gone: list[tuple[str, int]] = []
    used = trainer.parts.sync.use

    def use(generator: Any, members: Any) -> None:
        real = generator.unpublish
        generator.unpublish = lambda name: (gone.append((name, trainer.learner.step)), real(name))
        used(generator, members)

    trainer.parts.sync.use = use  # type: ignore[method-assign]
    try:
        with Stopping(quiet=True) as stopping:
            records = list(overlapped(trainer, 0, stopping))
        served = set(trainer.parts.engine.adapters())
    finally:
        trainer.parts.close()
    assert len(records) == 5
    # It left the pool after step 1, when batches 2 and 3 had been asked for; it went when batch 3 was in.
    assert gone[0] == ("step_0", 2), gone
    assert served <= {"policy", "average", *trainer.parts.league.pool}  # type: ignore[union-attr]


def test_a_batch_that_is_stopped_leaves_the_engine_idle(trainer_of, tmp_path: Path) -> None:
    """Ctrl-C comes between two decoding steps; the checkpoint that is then written needs an idle engine."""
    trainer, calls = trainer_of(batch_size=8), []

    def stop() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt

    trainer.parts.check = stop
    with pytest.raises(KeyboardInterrupt):
        trainer.step()
    assert not trainer.parts.engine.busy
    state.save(trainer.parts, tmp_path)
    trainer.parts.check = lambda: None
    assert trainer.step()["updates"] == 1


def test_roles_have_credit_methods_of_their_own(trainer_of) -> None:
    trainer = trainer_of(env="Nim-v0", credit={"name": "rae", "roles": {"player_1": "constant"}})
    advantages = trainer.parts.credit.assign(trainer.play(1))
    assert all((a["player_1"] == 1.0).all() for a in advantages)
    assert any((a["player_0"] != 1.0).any() for a in advantages)
    method = PerRole(CreditSettings(name="rae").make(), {"player_1": make_credit("constant")})
    method.load_state_dict(trainer.parts.credit.state_dict())
    assert method.state_dict() == trainer.parts.credit.state_dict()


def test_an_arena_brings_its_own_credit(trainer_of) -> None:
    arena = arena_of()
    arena.credit = RAECredit(decay=0.5)
    assert trainer_of(arena).parts.credit is arena.credit


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"credit": {"name": "rae", "std": True}}, "credit.std = True has no effect"),
        ({"credit": {"name": "grpo"}, "batch_size": 12}, "multiple of group_size"),
        ({"loss": {"clip_low": 2.0}}, "clip_low"),
        ({"loss": {"name": "sft", "truncate_ratio": 2.0}}, "does not need"),
        ({"monitor": {"action": "raise_kl"}, "loss": {"kl": 0.0, "kl_end": None}}, "which is 0"),
        ({"env": [{"id": "Nim-v0", "credit": "grpoo"}]}, "unknown credit method 'grpoo'"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_at_once(settings: dict, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        small(**settings)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"curriculum": {"low": 0.2}}, r"\[curriculum\] has no effect without a sampler"),
        ({"env": [{"id": "Nim-v0", "league": True}]}, "league = true of Nim-v0 has no effect in mirror play"),
        ({"league": {"opponents": ["random"]}}, "have no effect in mirror play"),
    ],
)
def test_settings_that_would_do_nothing_are_refused_before_anything_is_played(settings: dict, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build(small(**settings))


def test_a_kl_that_is_not_measured_is_no_number_and_cannot_be_watched(trainer_of) -> None:
    off: dict[str, Any] = {"kl": 0.0, "kl_end": None}
    assert "kl" not in trainer_of(batch_size=8, loss=off).step()
    learners = [{"name": "held", "roles": ["player_0"]}, {"name": "free", "roles": ["player_1"], "loss": off}]
    record = trainer_of(batch_size=8, learner=learners).step()
    assert record["kl"] == record["learners"]["held"]["kl"] and "kl" not in record["learners"]["free"]
    with pytest.raises(ConfigError, match=r"monitor\.kl has no effect"):
        build(small(monitor={"kl": 1.0}, loss=off))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"league": {"opponents": ["random"]}}, r"league\.opponents \(random\) have no effect in mirror play"),
        ({"credit": {"roles": {"plyer_0": "rae"}}}, r"credit\.roles names \['plyer_0'\].*'player_0', 'player_1'"),
    ],
)
def test_what_would_do_nothing_is_refused_at_the_start_of_a_run_only(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build(small(**settings))
    build(small(**settings), fresh=False).close()


def test_envs_of_an_arena_are_what_the_run_directory_says(tmp_path: Path) -> None:
    arena = Arena()
    arena.add_env("rps", "MatrixGame-v0", args={"game": "rps"}, credit="rae")
    train(arena, small(tmp_path / "run", batch_size=8), quiet=True)
    text = (tmp_path / "run" / "config.toml").read_text()
    assert 'id = "MatrixGame-v0"' in text and 'game = "rps"' in text and 'credit = "rae"' in text
    with pytest.raises(ConfigError, match="in only one"):
        train(arena, small(tmp_path / "other", env="Nim-v0"), quiet=True)
