"""Gradients: the same by every path and in float64, recomputed or not; large, clipped and not finite ones."""

from __future__ import annotations

from dataclasses import replace

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten, tree_map
from mlx_lm.models import llama

from legos_train.loss import objective
from legos_train.model import policy as policy_module
from legos_train.model.gradients import clip_grads, loss_and_grad, prepare
from legos_train.model.lora import grad_norm
from legos_train.model.policy import LoRAPolicy
from tests.train.helpers import plain_loss
from tests.train.policies import PREFIX, close, make_batch, make_model, make_policy, naive_logits

SETTINGS = {
    "ppo": plain_loss(),
    "by turn, exact kl, entropy": plain_loss(aggregation="sequence", kl=0.3, entropy=0.1),
    "k3": plain_loss(aggregation="constant", constant=3.0, kl=0.3, kl_estimator="k3"),
    "gspo": plain_loss(name="gspo", aggregation="sequence"),
    "cispo": plain_loss(name="cispo"),
}


def doubled(policy):
    """The policy with all weights in float64."""
    weights = policy.model.parameters()
    policy.model.update(tree_map(lambda w: w.astype(mx.float64) if w.dtype == mx.float32 else w, weights))
    return policy


PATHS = [("sites", None), ("sites", 60), ("sites", 1), ("prefix", None), ("prefix", 60), ("plain", None)]
SINGLE = 2e-5
"""How far a float32 gradient may be from that in float64. In 48 batches it was up to 1.1e-5, by path and by BLAS (an
earlier test may have changed MLX's); two of them, which round in their own ways, may well be 1e-5 apart."""


@pytest.fixture
def on_the_cpu():
    """Where float64 is."""
    before = mx.default_device()
    mx.set_default_device(mx.cpu)
    yield
    mx.set_default_device(before)


@pytest.mark.quick("by turn*")
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_gradients_do_not_depend_on_how_they_are_computed(settings, on_the_cpu):
    """One row per sampled token, one site per sampled token, on the plain model: the definition of the loss.

    In float64, where what is left of rounding is that of MLX's exponentials and of the loss, which are float32's.
    """
    policy, batch = doubled(make_policy()), make_batch(turns=7)
    apart = replace(
        batch,
        rows=np.arange(len(batch), dtype=np.int32),
        cols=batch.cols[batch.position],
        position=np.arange(len(batch), dtype=np.int32),
    )
    reference = None
    if settings.kl:
        logits = naive_logits(doubled(LoRAPolicy(make_model())).model, batch)
        reference = logits - mx.logsumexp(logits, axis=-1, keepdims=True)

    def definition():
        return objective(naive_logits(policy.model, batch), apart, settings, reference)[0]

    loss, tree = nn.value_and_grad(policy.model, definition)()
    expected = dict(tree_flatten(tree))
    assert min(mx.abs(g).max().item() for g in expected.values()) > 1e-4
    for single, path, budget in [*((False, *way) for way in PATHS), (True, "sites", None)]:
        tried = make_policy() if single else policy
        tried.logits.path = path
        tried.clear()
        got, grads, numbers = loss_and_grad(tried, batch, settings, max_tokens=budget)
        assert got == pytest.approx(loss.item(), rel=1e-5, abs=1e-6) and numbers["finite"] == 1.0
        assert grads.keys() == expected.keys()
        assert {g.dtype for g in grads.values()} == {mx.float32 if single else mx.float64}
        tolerance = SINGLE if single else 5e-6
        assert all(close(g, expected[name], tolerance) for name, g in grads.items()), (path, budget)
        assert numbers["grad_norm"] == pytest.approx(grad_norm(expected), rel=1e-5)


@pytest.mark.parametrize("prefix", [PREFIX, [5]], ids=["shared prefix", "short prefix"])
def test_recomputed_blocks_give_the_same_gradient(prefix, monkeypatch):
    monkeypatch.setattr(LoRAPolicy, "_eager", lambda *_: True)  # as blocks are computed, so that all bits are equal
    policy, batch = make_policy(make_model(num_hidden_layers=3)), make_batch(prefix=prefix)
    settings = plain_loss(kl=0.3, entropy=0.1)
    loss, grads, numbers = loss_and_grad(policy, batch, settings, max_tokens=80)
    policy.checkpoint_layers = True
    again, recomputed, same = loss_and_grad(policy, batch, settings, max_tokens=80)
    assert again == loss and same == numbers and list(recomputed) == list(grads)
    assert all(close(g, grads[name], 1e-6) for name, g in recomputed.items())
    assert min(mx.abs(g).max().item() for g in recomputed.values()) > 0


WINDOWED = {"layer_types": ["sliding_attention"] * 7 + ["full_attention"], "sliding_window": 4}


@pytest.mark.parametrize(("kind", "options"), [("qwen3", {}), ("llama", WINDOWED)], ids=["blocks", "one graph"])
def test_recomputing_keeps_less(kind, options):
    model, batch = make_model(kind, num_hidden_layers=8, **options), make_batch()
    peaks, results = [], []
    for policy in (LoRAPolicy(model), LoRAPolicy(model, checkpoint_layers=True)):
        assert "checkpoint_layers" not in str(policy.notes)
        assert policy.logits.path == ("prefix" if options else "sites")
        mx.reset_peak_memory()
        before = mx.get_active_memory()
        results.append(loss_and_grad(policy, batch, plain_loss()))
        peaks.append(mx.get_peak_memory() - before)
    assert peaks[1] < 0.6 * peaks[0]
    assert all(close(grad, results[0][1][name], 1e-6) for name, grad in results[1][1].items())


def test_layers_that_share_more_than_their_arguments_are_not_recomputed():
    class Block(llama.TransformerBlock):
        def __call__(self, x, mask=None, cache=None):
            out = super().__call__(x, mask, cache)
            if self.number == 0:
                first[out.shape] = out
            return out + first[out.shape]

    first: dict[tuple[int, ...], mx.array] = {}
    model = make_model("llama", num_hidden_layers=3)
    for number, block in enumerate(model.layers):
        block.__class__, block.number = Block, number
    policy, batch = LoRAPolicy(model, checkpoint_layers=True), make_batch(prefix=[5])
    assert "checkpoint_layers changes the gradient, of norm" in policy.notes[-1]
    loss, grads, _ = loss_and_grad(policy, batch, plain_loss())
    expected, plain, _ = loss_and_grad(LoRAPolicy(model), batch, plain_loss())
    assert loss == expected and all(close(grad, plain[name], 1e-6) for name, grad in grads.items())


def test_no_gradient_at_first_is_no_reason_against_recomputing():
    model = make_model("llama", num_hidden_layers=8, tie_word_embeddings=False, **WINDOWED)
    model.lm_head.weight = mx.zeros_like(model.lm_head.weight)
    assert "checkpoint_layers" not in str(LoRAPolicy(model, checkpoint_layers=True).notes)


def test_a_large_gradient_is_one_graph_with_the_same_numbers_in_less_memory(monkeypatch):
    policy, batch = make_policy(make_model(num_hidden_layers=6)), make_batch()
    results, peaks = [], []
    for most in (policy_module.EAGER_STATES, 0):
        monkeypatch.setattr(policy_module, "EAGER_STATES", most)
        mx.reset_peak_memory()
        before = mx.get_active_memory()
        results.append(loss_and_grad(policy, batch, plain_loss()))
        peaks.append(mx.get_peak_memory() - before)
    (loss, grads, _), (again, same, _) = results
    assert again == pytest.approx(loss, rel=1e-5) and all(close(same[n], g, 1e-4) for n, g in grads.items())
    assert peaks[1] < 0.7 * peaks[0]


@pytest.mark.parametrize("settings", [{"truncate_ratio": 1.5}, {"mask_ratio": (0.8, 1.2)}], ids=str)
def test_prepared_or_not_the_first_update_is_the_same_and_later_ones_remember(settings):
    policy, batch, settings = make_policy(), make_batch(), plain_loss(name="importance_sampling", **settings)
    noise = np.random.default_rng(0).normal(0, 0.5, len(batch))
    batch.old_logprobs[:] = policy.logprobs(batch) + noise
    ready = prepare(policy, batch, settings, max_tokens=40)
    assert prepare(policy, batch, plain_loss()) is batch and prepare(policy, ready, settings) is ready
    loss, grads, numbers = loss_and_grad(policy, batch, settings)
    prepared, same, _ = loss_and_grad(policy, ready, settings, max_tokens=40)
    assert prepared == pytest.approx(loss, rel=1e-4) and all(close(g, grads[n], 1e-4) for n, g in same.items())
    assert 0 < numbers.get("masked_share", 0.5) < 1 and 0 < numbers.get("truncated_share", 0.5) < 1
    policy.load({name: w + 0.05 for name, w in policy.trainable().items()})
    later = loss_and_grad(policy, ready, settings)[2]
    for name in ("masked_share", "truncated_share"):  # decided at the start
        assert later.get(name) == numbers.get(name)
    start = {turn: ready.start_logprobs[ready.sequence == turn].tolist() for turn in ready.sequence.tolist()}
    for part in ready.minibatches(3, seed=0):
        for turn in part.sequence.tolist():
            assert part.start_logprobs[part.sequence == turn].tolist() == start[turn]


def test_what_is_not_finite_is_reported():
    policy, batch = make_policy(), make_batch()
    batch.old_logprobs[0] = -500.0  # exp overflows float32
    batch.advantages[0] = -1.0
    loss, grads, numbers = loss_and_grad(policy, batch, plain_loss())
    assert not np.isfinite(loss) and numbers["finite"] == 0.0
    same, norm = clip_grads(grads, 1.0)
    assert not np.isfinite(norm) and same.keys() == grads.keys()


def test_clip_grads():
    grads = {"a": mx.array([3.0]), "b": mx.array([[0.0, 4.0]])}
    clipped, norm = clip_grads(grads, 1.0)
    assert norm == pytest.approx(5.0) and clipped["b"].tolist() == [[0.0, pytest.approx(0.8)]]
    assert clip_grads(grads, 6.0)[0]["a"].item() == 3.0
    with pytest.raises(ValueError, match="positive"):
        clip_grads(grads, 0.0)
