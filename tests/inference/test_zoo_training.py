"""Every architecture of zoo.py takes a step of LoRA training, or is refused by name when the policy is made."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
import zoo

from inference import UnsupportedModel
from legos_envs.records import Episode, Trajectory, Turn
from legos_train.loss import LossSettings
from legos_train.loss.batch import pack
from legos_train.model import site_logits
from legos_train.model.gradients import loss_and_grad
from legos_train.model.policy import LoRAPolicy

REFUSED = {"afm7": "'list' object has no attribute 'dtype'", "deepseek_v41": "Cannot calculate VJP"}
"""Fused projections that return lists; a gather with indices that are computed."""
QUICK = ("qwen3_5", "phi", "recurrent_gemma", "rwkv7", *REFUSED)
DROP = 2e-3
"""Of the loss, to first order: so small that no router chooses other experts."""


def batch(prompts: list[list[int]], answers: list[list[int]] | None = None):
    pairs = zip(prompts, answers or [[5, 6, 7]] * len(prompts), strict=True)
    turns = [Turn((), "", 0.0, None, prompt, answer, [-4.5] * len(answer)) for prompt, answer in pairs]
    episodes = [Episode("t", i, {}, {"a": Trajectory("a", "a", turns=[turn])}) for i, turn in enumerate(turns)]
    return pack(episodes, [{"a": np.ones(1)}] * len(turns))


BATCHES = {
    "one row": batch([list(range(1, 12))]),
    "nothing shared": batch([[3, 2, 1], [9, 8, 7, 6]]),
    "a shared beginning": batch([[*range(1, 12), 3], [*range(1, 12), 4, 5]]),
}


@pytest.mark.quick(*QUICK)
@pytest.mark.parametrize("name", zoo.kinds())
def test_a_step_lowers_the_loss(name: str) -> None:
    model = zoo.build(name)
    if name in REFUSED:
        with pytest.raises(UnsupportedModel, match=f"cannot be trained with LoRA.*{REFUSED[name]}"):
            LoRAPolicy(model)
        return
    settings = LossSettings(name="sft", kl=0.0)
    for what, rows in BATCHES.items():
        policy = LoRAPolicy(model, seed=0)
        before, gradient, _ = loss_and_grad(policy, rows, settings)
        norm = sum((g * g).sum().item() for g in gradient.values()) ** 0.5
        assert np.isfinite(norm) and norm > 1e-3, what
        policy.load({key: w - DROP / norm**2 * gradient[key] for key, w in policy.trainable().items()})
        after, _, _ = loss_and_grad(policy, rows, settings)
        assert before - after == pytest.approx(DROP, rel=0.2), (what, norm)


@pytest.mark.quick("qwen3_5", "gemma3_text", "nemotron_h", "llama4", "recurrent_gemma")
@pytest.mark.parametrize("name", sorted(set(zoo.kinds()) - set(REFUSED) - {"phixtral"}))
def test_a_shared_beginning_is_computed_once(name: str) -> None:
    """Longer than the windows and chunks of these models; also with layers computed again in the backward pass."""
    prompt = np.random.default_rng(0).integers(1, 60, 70).tolist()
    settings = LossSettings(name="sft", kl=0.0)
    model = zoo.build(name)
    policy, forgetful = LoRAPolicy(model, seed=0), LoRAPolicy(model, seed=0, checkpoint_layers=True)
    for one in (policy, forgetful):
        one.load({key: weight + 0.02 for key, weight in one.trainable().items()})
        assert one.logits.path in ("sites", "prefix")
    noted = [note for note in forgetful.notes if "checkpoint_layers" in note]
    assert bool(noted) == (name == "iquestloopcoder"), noted  # computes with parts of its layers
    ends = {"short": ([[3], [4]], [[5], [7]]), "long": ([[3]] * 3, [[5, 6, 7], [7, 8, 9, 1, 2], [4] * 12])}
    for what, (last, answers) in ends.items():
        rows = batch([[*prompt, *end] for end in last], answers)
        assert rows.prefix == 70 and rows.distinct_rows > 1, what
        results = [loss_and_grad(one, rows, settings)[:2] for one in (policy, forgetful)]
        policy.logits.path, path = "plain", policy.logits.path
        expected, plain, _ = loss_and_grad(policy, rows, settings)
        policy.logits.path = path
        norm = sum((g * g).sum().item() for g in plain.values()) ** 0.5
        for loss, gradient in results:
            assert loss == pytest.approx(expected, rel=1e-4), what
            off = sum(((g - plain[key]) ** 2).sum().item() for key, g in gradient.items()) ** 0.5
            assert off < 1e-3 * norm, (what, off / norm)


def test_two_positions_follow_a_shared_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Metal mlx-lm computes one position after a state by a kernel that has no gradient."""
    policy, starts = LoRAPolicy(zoo.build("granitemoehybrid"), seed=0), []
    through = site_logits.hidden_states

    def hidden_states(model, body, tokens: mx.array, prefix: int) -> mx.array:
        starts.append((prefix, tokens.shape[1]))
        return through(model, body, tokens, prefix)

    monkeypatch.setattr(site_logits, "hidden_states", hidden_states)
    for length in (8, 9, 20):
        beginning = list(range(1, length + 1))
        policy.forward(batch([[*beginning, 30], [*beginning, 31]], [[5], [7]]))
    assert starts == [(0, 9), (8, 10), (19, 21)]


def test_queries_scaled_by_position_are_so_in_training() -> None:
    """Beyond 16 positions here; the tokens that a policy tries are fewer."""
    model = zoo.build("ministral3")
    policy, rows = LoRAPolicy(model, seed=0), batch([list(range(1, 33)), [*range(1, 25), 40, 41]])
    assert policy.logits.path == "prefix"
    whole = model(mx.array(rows.tokens))[mx.array(rows.rows), mx.array(rows.cols)]
    np.testing.assert_allclose(np.asarray(policy.forward(rows)), np.asarray(whole), rtol=1e-3, atol=1e-4)


def test_a_gradient_that_is_not_finite_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a square root of 0 or a kernel of another device is in the way."""
    module = type(zoo.build("qwen3").layers[0].mlp)

    def call(self, x: mx.array) -> mx.array:
        return self.down_proj(mx.sqrt(mx.maximum(self.up_proj(x) * 0, 0)) + self.gate_proj(x))

    monkeypatch.setattr(module, "__call__", call)
    with pytest.raises(UnsupportedModel, match=r"qwen3 cannot be trained .*gradient of a few tokens is not finite"):
        LoRAPolicy(zoo.build("qwen3"))
