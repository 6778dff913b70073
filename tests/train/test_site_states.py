"""Logits computed some sites at a time give the same losses and gradients, in less memory."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from inference.forward import fastmath
from legos_train.loss import SiteStates, objective, site_states
from legos_train.model import policy as policy_module
from legos_train.model.gradients import loss_and_grad, prepare
from legos_train.model.policy import LoRAPolicy
from tests.train.helpers import plain_loss
from tests.train.policies import VOCABULARY, close, make_batch, make_model

SETTINGS = {
    "ppo": {},
    "exact kl": {"kl": 0.3, "kl_estimator": "exact", "entropy": 0.1},
    "k3": {"kl": 0.3, "kl_estimator": "k3"},
    "entropy of the likeliest": {
        "entropy": 0.2,
        "entropy_over": "top",
        "entropy_top": 5,
        "kl": 0.1,
        "kl_estimator": "exact",
    },
    "gspo": {"name": "gspo", "aggregation": "sequence"},
    "truncated": {"truncate_ratio": 1.1, "mask_ratio": (0.5, 2.0)},
    "legality": {"legality": 1.0, "entropy": 0.1, "entropy_over": "legal"},
}


@pytest.mark.parametrize("options", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("numbers", [1, 2 * VOCABULARY, 1 << 20], ids=["one at a time", "two", "all"])
def test_some_sites_at_a_time(options, numbers, monkeypatch):
    monkeypatch.setattr(site_states, "NUMBERS", numbers)
    monkeypatch.setattr(site_states, "AT_A_TIME", numbers)
    batch, settings, rng = make_batch(), plain_loss(**options), np.random.default_rng(0)
    sites, vocabulary = len(batch.rows), VOCABULARY
    hidden, weight, reference = (
        mx.array(rng.normal(size=shape).astype(np.float32))
        for shape in ((sites, 8), (8, vocabulary), (sites, vocabulary))
    )
    reference = reference - mx.logsumexp(reference, axis=-1, keepdims=True)

    def whole(hidden: mx.array) -> tuple[mx.array, dict[str, mx.array]]:
        return objective(hidden @ weight, batch, settings, reference)

    def apart(hidden: mx.array) -> tuple[mx.array, dict[str, mx.array]]:
        return objective(SiteStates(hidden, lambda h: h @ weight, vocabulary), batch, settings, reference)

    (expected, seen), slope = mx.value_and_grad(whole)(hidden)
    (loss, numbers_seen), own = mx.value_and_grad(apart)(hidden)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5) and close(own, slope, 1e-6)
    assert list(numbers_seen) == list(seen) and all(close(numbers_seen[name], seen[name], 1e-5) for name in seen)


@pytest.mark.parametrize("path", ["sites", "prefix", "body", "plain", "recomputed"])
def test_a_policy_computes_some_sites_at_a_time(path, monkeypatch):
    monkeypatch.setattr(policy_module, "FULL_ROW_VOCABULARY", 1)
    settings, batch = plain_loss(kl=0.2, kl_estimator="k3", truncate_ratio=1.5), make_batch()
    results = []
    for numbers in (1 << 20, 100):
        monkeypatch.setattr(site_states, "NUMBERS", numbers)
        monkeypatch.setattr(site_states, "AT_A_TIME", 100)
        policy = LoRAPolicy(make_model(), seed=0, checkpoint_layers=path == "recomputed")
        policy.logits.path = "sites" if path == "recomputed" else path
        policy.load({name: weight + 0.02 for name, weight in policy.trainable().items()})
        policy.anchor({name: weight * 0.5 for name, weight in policy.trainable().items()})
        assert policy.logits.states(batch).fits == (numbers > 100)
        started = prepare(policy, batch, settings, max_tokens=90)
        loss, grads, _ = loss_and_grad(policy, started, settings, max_tokens=90)
        results.append((loss, policy.logprobs(batch), policy.reference(batch, full=False, base=0.1), grads))
    (loss, logprobs, reference, grads), (own, *others, own_grads) = results
    assert own == pytest.approx(loss, rel=1e-5) and len(np.unique(logprobs)) > 5
    np.testing.assert_allclose(others[0], logprobs, atol=1e-5)
    assert close(others[1], reference, 1e-5) and all(close(own_grads[name], grad, 1e-5) for name, grad in grads.items())


def test_a_large_vocabulary_takes_less_memory(monkeypatch):
    batch, vocabulary, peaks = make_batch(), 1 << 17, []
    sites = len(batch.rows)
    hidden, weight = mx.random.normal((sites, 4)), mx.random.normal((4, vocabulary))
    mx.eval(hidden, weight)

    def loss(hidden: mx.array) -> mx.array:
        return objective(SiteStates(hidden, lambda h: h @ weight, vocabulary), batch, plain_loss(entropy=0.1))[0]

    for numbers in (sites * vocabulary, 1):
        monkeypatch.setattr(site_states, "NUMBERS", numbers)
        monkeypatch.setattr(site_states, "AT_A_TIME", 2 * vocabulary)
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        with fastmath.lazily():
            mx.eval(mx.grad(loss)(hidden))
        peaks.append((mx.get_peak_memory() - before) / (4 * sites * vocabulary))
    assert peaks[1] < 0.2 * peaks[0], peaks
