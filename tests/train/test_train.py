"""The loop: that it learns, that it notices when it would not, and that what it trains on is what was sampled."""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import mlx_lm
import numpy as np
import pytest

from inference import Engine
from legos_envs import exact
from legos_train import Trainer, TrainingError, train
from legos_train.loss.batch import pack
from legos_train.model import mlx_backend as backend_module
from legos_train.run import build
from tests.train.helpers import small


def test_training_moves_the_policy_towards_winning() -> None:
    """Four steps of Nim: the exact probability of an optimal move rises well above where it began."""
    settings = {"lr": 2e-3, "beta1": 0.9, "epochs": 2, "minibatches": 2}
    trainer = Trainer(build(small(env="Nim-v0", steps=4, batch_size=48, lora={"rank": 8}, optim=settings)))
    before = trainer.parts.measurer.measure("policy")["optimal_move"]
    for _ in range(4):
        trainer.step()
    after = trainer.parts.measurer.measure("policy")["optimal_move"]
    trainer.parts.close()
    assert after > before + 0.1, (before, after)


def test_what_is_trained_on_is_what_was_sampled() -> None:
    """Log-probabilities of the engine and of the trainer's forward pass agree before and after a publish."""
    trainer = Trainer(build(small(batch_size=16)))
    for _ in range(2):
        record = trainer.step()
        assert record["mismatch_max"] <= 1e-4
        assert record["ratio_min"] == pytest.approx(1, abs=1e-3) == record["ratio_max"]
    trainer.parts.close()


def test_tokens_are_carried_from_the_sampler_to_the_loss() -> None:
    trainer = Trainer(build(small(batch_size=8)))
    episodes = trainer.play(1)
    for episode in episodes:
        for trajectory in episode.trajectories.values():
            for turn in trajectory.turns:
                assert turn.action_tokens and len(turn.action_tokens) == len(turn.logprobs or ())
                assert trainer.parts.renderer.reply(turn.action_tokens) == turn.action
                assert tuple(turn.prompt_tokens or ()) == tuple(trainer.parts.renderer.start(turn.observation))
    trainer.parts.close()


def test_frozen_lora_is_an_error() -> None:
    trainer = Trainer(build(small()))
    trainer.parts.backend.policy.model.freeze()
    with pytest.raises(TrainingError, match="no LoRA weight is trainable"):
        trainer.step()
    trainer.parts.close()


def test_weights_that_the_loss_does_not_reach_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a compiled step does that captured the weights as constants."""
    trainer = Trainer(build(small()))
    logits = trainer.parts.backend.policy.logits
    states = logits.states
    cut = lambda found: found._replace(hidden=mx.stop_gradient(found.hidden))  # noqa: E731
    monkeypatch.setattr(logits, "states", lambda batch: cut(states(batch)))
    with pytest.raises(TrainingError, match="gradient is exactly zero"):
        trainer.step()
    trainer.parts.close()


def test_an_update_that_changes_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(build(small()))
    monkeypatch.setattr(trainer.parts.backend.optimizer, "apply_gradients", lambda grads, weights: weights)
    with pytest.raises(TrainingError, match="adapter did not change"):
        trainer.step()
    trainer.parts.close()


def test_an_engine_that_keeps_serving_old_weights_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(build(small()))
    monkeypatch.setattr(Engine, "publish", lambda self, name, weights, **rest: "stale")
    with pytest.raises(TrainingError, match="still serves the old ones"):
        trainer.step()
    trainer.parts.close()


def test_equal_rewards_are_no_error_and_train_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(build(small(loss={"kl": 0.0, "kl_end": None}, credit={"name": "grpo"}, group_size=8)))
    play = trainer.play

    def level(step: int):
        episodes = play(step)
        for episode in episodes:
            for trajectory in episode.trajectories.values():
                for turn in trajectory.turns:
                    turn.reward = 0.0
        return episodes

    monkeypatch.setattr(trainer, "play", level)
    record = trainer.step()
    assert record["updates"] == 0 and record["idle"] == 1 and record["zero_advantages"] == 1.0
    trainer.parts.close()


def test_steps_that_are_not_finite_are_skipped_counted_and_then_stop_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(build(small(steps=20, batch_size=2, optim={"max_skipped": 1})))
    before = trainer.parts.backend.policy.trainable()
    real = backend_module.loss_and_grad

    def poisoned(*args, **kwargs):
        loss, grads, numbers = real(*args, **kwargs)
        return loss, {k: v * float("nan") for k, v in grads.items()}, {**numbers, "finite": 0.0}

    monkeypatch.setattr(backend_module, "loss_and_grad", poisoned)
    with pytest.raises(TrainingError, match="not finite"):
        for _ in range(20):
            trainer.step()
    assert trainer.learner.skipped == trainer.config.optim.max_skipped + 1
    after = trainer.parts.backend.policy.trainable()
    assert all(mx.array_equal(before[name], after[name]).item() for name in before), "poison reached the weights"
    trainer.parts.close()


def test_only_the_roles_asked_for_are_trained() -> None:
    trainer = Trainer(build(small(train_roles=("player_1",))))
    episodes = trainer.play(1)
    batch = pack(episodes, trainer.parts.credit.assign(episodes))
    own = sum(len(t.action_tokens or ()) for e in episodes for t in e.trajectories["player_1"].turns)
    assert len(batch) == own > 0
    trainer.parts.close()


def test_the_published_adapter_loads_in_mlx_lm_and_is_what_was_measured(tmp_path: Path) -> None:
    from inference.loading import find_model

    result = train(small(tmp_path / "run", steps=1, batch_size=4), quiet=True)
    config = json.loads((tmp_path / "run/adapter/adapter_config.json").read_text())
    assert config["legos"]["weights"] == result.published
    base = str(find_model("tiny"))
    adapted, tokenizer = mlx_lm.load(base, adapter_path=str(tmp_path / "run/adapter"))[:2]
    plain, _ = mlx_lm.load(base)[:2]
    ids = mx.array([tokenizer.encode("Your card: K.")])
    assert not np.allclose(np.array(adapted(ids)), np.array(plain(ids))), "the adapter does nothing"

    engine = Engine.load("tiny", tmp_path / "run/adapter")
    ours = engine.next_logits([ids[0].tolist()], "default")
    assert np.abs(ours[0] - np.array(adapted(ids))[0, -1]).max() < 1e-3
    engine.close()


def test_files_of_a_run(tmp_path: Path) -> None:
    records: list[dict] = []
    result = train(small(tmp_path / "run", batch_size=4, eval={"every": 1}), quiet=True, on_step=records.append)
    run = tmp_path / "run"
    for name in ("adapter", "last", "best"):
        assert (run / name / "adapters.safetensors").exists() and (run / name / "adapter_config.json").exists()
    assert (run / "checkpoints/step_2/manifest.json").exists()
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in steps] == [1, 2] and all("nash_conv" in row["eval"] for row in steps)
    page = (run / "report.html").read_text()
    assert "<svg" in page and "<script" not in page and "http" not in page.replace("http-equiv", "")
    assert set(result.start) == set(result.last) == set(result.average)
    assert result.last["nash_conv"] == records[-1]["eval"]["nash_conv"]


def test_the_exact_numbers_are_those_of_the_sampled_play() -> None:
    """Move frequencies over many games equal the probabilities that NashConv is computed from."""
    from legos_train.evaluation.exact_values import action_probabilities

    trainer = Trainer(build(small(batch_size=512)))
    measurer, (task,) = trainer.parts.measurer, trainer.parts.measurer.tasks.values()
    infos = exact.info_sets(task.env.game)  # type: ignore[attr-defined]
    players = [measurer.player(task, agent, "policy") for agent in task.slot.seats]
    known, leftover = action_probabilities(task.env, players, infos)  # type: ignore[arg-type]
    assert max(leftover.values()) < 0.05
    views = {task.env.observation_in(info)["messages"][0]["content"]: info for info in infos}  # type: ignore[attr-defined]
    seen: dict = {}
    for step in range(1, 5):
        for episode in trainer.play(step):
            for trajectory in episode.trajectories.values():
                for turn in trajectory.turns:
                    info = views.get(turn.observation[0]["content"])
                    if info is not None:
                        seen.setdefault(info, []).append(turn.action)
    assert len(seen) == len(infos)
    for info, actions in seen.items():
        for move in info.legal:
            share = actions.count(f"[{move}]") / len(actions)
            p = known[info][move]
            assert abs(share - p) < 5 * np.sqrt(0.25 / len(actions)) + 0.02, (info, move, share, p, len(actions))
    trainer.parts.close()


def test_a_dialogue_is_one_row_and_matches_the_engine() -> None:
    """With `memory="chat"` a turn's prompt begins with all that came before, so an agent's match is one row."""
    trainer = Trainer(build(small(batch_size=4, env_args={"num_rounds": 3, "memory": "chat"}, credit={"name": "rae"})))
    episodes = trainer.play(1)
    batch = pack(episodes, trainer.parts.credit.assign(episodes))
    assert batch.counters.turns > batch.counters.rows == 2 * len(episodes)
    record = trainer.step()
    assert record["mismatch_max"] <= 1e-4
    trainer.parts.close()


@pytest.mark.quick
@pytest.mark.parametrize(
    ("name", "group"), [("rae", 1), ("grpo", 4), ("hierarchical_grpo", 4), ("same_prompt", 1), ("constant", 1)]
)
@pytest.mark.parametrize("loss", ["ppo", "importance_sampling"])
def test_every_credit_method_and_loss_takes_a_step(name: str, group: int, loss: str) -> None:
    trainer = Trainer(build(small(batch_size=16, group_size=group, credit={"name": name}, loss={"name": loss})))
    record = trainer.step()
    assert record["updates"] == 1 and record["adapter_change"] > 0 and np.isfinite(record["loss"])
    trainer.parts.close()


def test_wandb_is_imported_only_when_asked_for_and_gets_every_step(tmp_path: Path, monkeypatch) -> None:
    import sys
    import types

    logged: list[dict] = []
    session = types.SimpleNamespace(
        log=lambda row, step=None: logged.append(row), finish=lambda exit_code: logged.append({})
    )
    seen: dict = {}
    fake = types.SimpleNamespace(
        init=lambda **given: seen.update(given) or session,
        Settings=lambda **given: types.SimpleNamespace(**given),
        Table=lambda columns, data: len(data),
        Html=lambda text, inject: text,
    )
    monkeypatch.setitem(sys.modules, "wandb", fake)
    train(small(tmp_path / "run", batch_size=2, logs={"wandb": "project"}), quiet=True)
    assert [row["step"] for row in logged if "step" in row] == [1, 2] and logged[-1] == {}
    assert [row["sample_episodes"] for row in logged if "sample_episodes" in row][-1] > 0
    assert any("<svg" in text for row in logged for name, text in row.items() if name.startswith("figures/"))
    assert seen["project"] == "project" and seen["settings"].save_code is False


@pytest.mark.parametrize("nudge", [0.0, 1e-13])
def test_a_policy_that_has_become_deterministic_goes_on(monkeypatch: pytest.MonkeyPatch, nudge: float) -> None:
    """Gradients of 1e-12 move no float32 weight, or none that a logit shows: learning has ended, nothing is wrong."""
    trainer = Trainer(build(small(batch_size=8)))
    real = backend_module.loss_and_grad

    def faint(*args, **kwargs):
        loss, grads, numbers = real(*args, **kwargs)
        return loss, {k: v * 1e-20 for k, v in grads.items()}, {**numbers, "grad_norm": 1e-20}

    def nudged(grads, weights):
        return {name: weight + nudge for name, weight in weights.items()}

    monkeypatch.setattr(backend_module, "loss_and_grad", faint)
    monkeypatch.setattr(trainer.parts.backend.optimizer, "apply_gradients", nudged)
    try:
        record = trainer.step()
        assert record["updates"] == 1 and (record["adapter_change"] > 0.0) == (nudge > 0.0)
    finally:
        trainer.parts.close()
