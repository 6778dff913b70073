"""Losses against hand-worked numbers, gradients against finite differences in float64, and the numbers for the log."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from inference.forward import fastmath
from legos_envs.records import Episode, Trajectory, Turn
from legos_train.loss import LOSSES, LossSettings, distribution, metrics, objective
from legos_train.loss.batch import pack
from legos_train.loss.penalties import entropy, kl_exact, kl_k3, token_logprobs
from legos_train.loss.tokens import cispo, gspo, importance_sampling, ppo
from tests.train.helpers import plain_loss

LOG2 = math.log(2.0)


def numbers(array):
    return pytest.approx(array.tolist(), rel=1e-5, abs=1e-6)


def make_batch(spec, version=3):
    """spec: (prompt, action, logprobs, advantage) per turn, each in an episode of its own."""
    episodes, advantages = [], []
    for prompt, action, logprobs, advantage in spec:
        turn = Turn((), "", 0.0, None, prompt, action, logprobs, version)
        episodes.append(Episode("G", 0, {}, {"a": Trajectory("a", "r", True, [turn])}))
        advantages.append({"a": np.array([advantage])})
    return pack(episodes, advantages)


# Ratios 2, 1/2, 2, 1/2 with advantages +, +, -, -.
NEW = mx.array([0.0, -2 * LOG2, 0.0, -2 * LOG2])
OLD = mx.array([-LOG2] * 4)
ADVANTAGES = mx.array([1.0, 1.0, -1.0, -1.0])


def test_importance_sampling_by_hand():
    assert numbers(importance_sampling(NEW, OLD, ADVANTAGES)) == [-2.0, -0.5, 2.0, 0.5]


def test_ppo_by_hand():
    # A > 0: min(2, 1.28) and min(.5, .8) -> -1.28, -.5. A < 0: min(-2, -1.28) and min(-.5, -.8) -> 2, .8.
    assert numbers(ppo(NEW, OLD, ADVANTAGES, 0.2, 0.28)) == [-1.28, -0.5, 2.0, 0.8]
    slope = mx.grad(lambda new: ppo(new, OLD, ADVANTAGES, 0.2, 0.28).sum())(NEW)
    assert numbers(slope) == [0.0, -0.5, 2.0, 0.0]  # no gradient where the clip holds


def test_cispo_by_hand():
    assert numbers(cispo(NEW, OLD, ADVANTAGES, 0.2, 0.28)) == [0.0, 0.8 * 2 * LOG2, 0.0, -0.8 * 2 * LOG2]
    slope = mx.grad(lambda new: cispo(new, OLD, ADVANTAGES, 0.2, 0.28).sum())(NEW)
    assert numbers(slope) == [-1.28, -0.8, 1.28, 0.8]  # bounded, never cut
    inside, one = (
        mx.log(mx.array([0.55, 0.45])),
        mx.array([1.0, -1.0]),
    )  # ratios 1.1 and 0.9, which the clip leaves alone
    slope = mx.grad(lambda new: cispo(new, mx.log(mx.array([0.5, 0.5])), one, 0.2, 0.28).sum())(inside)
    assert numbers(slope) == [-1.1, 0.9]  # the ratio is a weight: only log p is differentiated


def test_gspo_by_hand():
    # Turn 7 has log ratios log 2 and 0: ratio sqrt 2. Turn 2 has -log 2 twice: ratio 1/2.
    new, old = mx.array([0.0, -1.0, -2 * LOG2, -2 * LOG2]), mx.array([-LOG2, -1.0, -LOG2, -LOG2])
    sequence = np.array([7, 7, 2, 2], dtype=np.int32)
    out = gspo(new, old, mx.array([-1.0, -1.0, 1.0, 1.0]), sequence, clip_low=0.2, clip_high=0.2)
    assert [math.sqrt(2), math.sqrt(2), -0.5, -0.5] == numbers(out)


def test_distribution_kl_and_entropy_by_hand():
    logits = mx.array([[0.0, math.log(3.0)], [1000.0, 1000.0]])
    logprobs, probs = distribution(logits)
    assert [pytest.approx(row) for row in probs.tolist()] == [[0.25, 0.75], [0.5, 0.5]]
    assert [math.log(0.25), math.log(0.75)] == numbers(logprobs[0])
    assert [2 * LOG2 - 0.75 * math.log(3), LOG2] == numbers(entropy(logprobs, probs))
    uniform = mx.full((2, 2), -LOG2)
    assert [0.75 * math.log(3) - LOG2, 0.0] == numbers(kl_exact(logprobs, probs, uniform))
    picked = token_logprobs(logprobs, mx.array([0, 0, 1]), mx.array([1, 0, 0]))
    assert [math.log(0.75), math.log(0.25), -LOG2] == numbers(picked)


def test_k3_by_hand_and_on_average():
    assert numbers(kl_k3(mx.array([-1.0, -1.0, -1.0]), mx.array([-1.0, LOG2 - 1, -LOG2 - 1]))) == [
        0.0,
        2 - LOG2 - 1,
        0.5 + LOG2 - 1,
    ]
    (logprobs, probs), (reference, _) = (distribution(mx.random.normal((3, 6), key=mx.random.key(i))) for i in (0, 1))
    assert kl_exact(logprobs, probs, reference).tolist() == numbers((probs * kl_k3(logprobs, reference)).sum(-1))


def golden():
    """Two contexts, vocabulary 3. The policy is (1/2, 1/4, 1/4) and (1/3, 1/3, 1/3)."""
    batch = make_batch(
        [
            ([0], [0, 1], [-LOG2, math.log(1 / 3)], 1.0),  # ratio 1 twice
            ([0], [1], [-LOG2], -2.0),  # ratio (1/4) / (1/2)
        ]
    )
    logits = mx.array([[2 * LOG2, LOG2, LOG2], [5.0, 5.0, 5.0]])
    reference = mx.log(mx.array([[0.25, 0.5, 0.25], [0.5, 0.25, 0.25]]))
    return batch, logits, reference


def test_objective_by_hand():
    batch, logits, reference = golden()
    assert batch.tokens.tolist() == [[0, 0]] and batch.position.tolist() == [0, 1, 0]
    plain = plain_loss(name="importance_sampling")
    # Tokens -1, -1, -(1/2)(-2) = 1: mean -1/3; by turns (-1 + 1) / 2; divided by 4 per turn (-2 / 4 + 1 / 4) / 2.
    for aggregation, expected in (("token", -1 / 3), ("sequence", 0.0), ("constant", -1 / 8)):
        settings = plain.model_copy(update=dict(aggregation=aggregation, constant=4.0))
        assert objective(logits, batch, settings)[0].item() == pytest.approx(expected, abs=1e-6)
    # The clip floors the third token's ratio at .8, and -(.8)(-2) = 1.6 > 1 is the one that counts.
    assert objective(logits, batch, plain_loss())[0].item() == pytest.approx((-2 + 1.6) / 3)
    # KL at the contexts: (1/2) log 2 - (1/4) log 2 and log(1/3) - (log 1/2 + 2 log 1/4) / 3; visited twice and once.
    kl = (0.25 * LOG2, -math.log(3) + 5 / 3 * LOG2)
    for aggregation, weights in (("token", (2 / 3, 1 / 3)), ("sequence", (3 / 4, 1 / 4))):
        settings = plain.model_copy(update=dict(aggregation=aggregation, kl=2.0))
        bare = objective(logits, batch, settings.model_copy(update=dict(kl=0.0)))[0].item()
        loss, seen = objective(logits, batch, settings, reference)
        assert loss.item() - bare == pytest.approx(2.0 * np.dot(weights, kl), abs=1e-6)
        assert seen["kl"].item() == pytest.approx(np.dot((2 / 3, 1 / 3), kl))
    k3 = [0.5 + LOG2 - 1, 0.75 - math.log(0.75) - 1, 2 - LOG2 - 1]  # reference / policy: 1/2, 3/4, 2
    bare = objective(logits, batch, plain)[0].item()
    for form in (reference, reference[mx.array(batch.position), mx.array(batch.target)]):
        loss, _ = objective(logits, batch, plain.model_copy(update=dict(kl=1.0, kl_estimator="k3")), form)
        assert loss.item() - bare == pytest.approx(np.mean(k3), abs=1e-6)
    h = (1.5 * LOG2, math.log(3))
    loss, seen = objective(logits, batch, plain.model_copy(update=dict(entropy=0.5)))
    assert seen["entropy"].item() == pytest.approx(np.dot((2 / 3, 1 / 3), h))
    assert loss.item() == pytest.approx(bare - 0.5 * np.dot((2 / 3, 1 / 3), h))


def test_a_reference_of_the_wrong_kind_is_an_error():
    batch, logits, reference = golden()
    with pytest.raises(ValueError, match="no reference"):
        objective(logits, batch, plain_loss(kl=0.1))
    with pytest.raises(ValueError, match="use kl_estimator='k3'"):
        objective(logits, batch, plain_loss(kl=0.1), reference[0])


CASES = [
    plain_loss(truncate_ratio=1.3, aggregation="sequence"),
    plain_loss(name="importance_sampling", truncate_ratio=1.3),
    plain_loss(name="gspo", truncate_ratio=1.1),
    plain_loss(name="importance_sampling", mask_ratio=(0.8, 1.3), kl=0.7, entropy=0.3),
    plain_loss(entropy=0.3, entropy_over="legal", aggregation="sequence"),
    plain_loss(entropy=0.3, entropy_over="top", entropy_top=2),
    plain_loss(legality=0.3, aggregation="sequence"),
    *(plain_loss(name=loss, aggregation=a, constant=2.0) for loss in LOSSES for a in ("token", "sequence", "constant")),
    plain_loss(kl=0.7),
    plain_loss(kl=0.7, kl_estimator="k3", aggregation="sequence"),
    plain_loss(entropy=0.3, aggregation="sequence"),
]


def moved_batch():
    """Old log-probabilities near, but off, those of the policy, so that ratios lie on both sides of the clips."""
    rng = np.random.default_rng(0)
    spec = []
    for _ in range(12):
        prompt, action = rng.integers(0, 4, 2).tolist(), rng.integers(0, 4, 3).tolist()
        spec.append((prompt, action, rng.normal(-1.4, 0.4, 3).tolist(), rng.normal()))
    batch = make_batch(spec)
    batch.legal = rng.integers(-1, 3, len(batch)).astype(np.int32)
    return replace(batch, legal_sets=((), (1, 3), (0, 1, 2))).with_start(batch.old_logprobs + rng.normal(0, 0.3, 36))


@pytest.mark.parametrize("settings", CASES, ids=str)
def test_gradients_match_finite_differences(settings):
    """A tiny softmax model, logits = features @ weights, entirely in float64."""
    batch = moved_batch()
    with mx.stream(mx.cpu):
        keys = mx.random.split(mx.random.key(1), 3)
        features, weights, other = (
            mx.random.normal(shape, key=key).astype(mx.float64)
            for shape, key in zip([(len(batch.rows), 5), (5, 4), (len(batch.rows), 4)], keys, strict=True)
        )
        reference, _ = distribution(other)

        def loss(w):
            return objective(features @ (0.3 * w), batch, settings, reference if settings.kl else None)[0]

        grad = np.array(mx.grad(loss)(weights))
        numeric, step = np.zeros_like(grad), 1e-5
        base = np.array(weights)
        for place in np.ndindex(base.shape):
            ends = []
            for sign in (1, -1):
                bumped = base.copy()
                bumped[place] += sign * step
                ends.append(loss(mx.array(bumped, dtype=mx.float64)).item())
            numeric[place] = (ends[0] - ends[1]) / (2 * step)
    if settings.name == "cispo":  # its gradient is not that of its value: the ratio is held constant
        assert np.abs(grad).max() > 0.01
    else:
        np.testing.assert_allclose(grad, numeric, rtol=2e-5, atol=2e-7)


def test_settings_out_of_range_are_errors():
    for bad in (
        {"name": "pp0"},
        {"aggregation": "mean"},
        {"kl_estimator": "k2"},
        {"clip_low": 1.5},
        {"clip_high": -0.1},
        {"constant": 0.0},
        {"kl": -1.0},
        {"entropy": -1.0},
        {"entropy_over": "none"},
        {"entropy_top": 1},
        {"legality": -0.1},
        {"truncate_ratio": 0.0},
        {"mask_ratio": (1.1, 2.0)},
        {"skip_forced": 1.0},
        {"mask_ratio": (0.5, 2.0), "name": "sft"},
        {"magnet": "average"},
        {"magnet_base": 0.1},
        {"magnet_base": 1.0, "magnet_every": 5},
    ):
        with pytest.raises(ValueError, match=next(iter(bad))):
            plain_loss(**bad)


def test_metrics_by_hand():
    batch = make_batch(
        [([1], [0], [-LOG2], 1.0), ([2], [0], [-LOG2], 1.0), ([3], [0], [-LOG2], -1.0), ([4], [0], [-LOG2], 0.0)]
    )
    batch.version[:] = [3, 1, 3, -1]
    new = np.array([0.0, -LOG2, -2 * LOG2, -2 * LOG2], dtype=np.float32)  # ratios 2, 1, 1/2, 1/2
    out = metrics(new, batch, plain_loss(), policy_version=3)
    assert out["ratio_max"] == pytest.approx(2) and out["ratio_min"] == pytest.approx(0.5)
    assert out["clip_fraction"] == 0.5  # the first and the third; the last has nothing to clip
    assert out["kl_old_new"] == pytest.approx(((1 - LOG2) + 0 + 2 * (LOG2 - 0.5)) / 4)
    assert out["effective_sample_size"] == pytest.approx(16 / (4 * 5.5))
    assert out["mismatch_max"] == pytest.approx(LOG2) and out["mismatch_mean"] == pytest.approx(LOG2)
    assert out["staleness_max"] == 2 and out["staleness_mean"] == pytest.approx(2 / 3)
    assert out["staleness"] == {"0": 2, "2": 1, "unknown": 1} and out["live_share"] == 0.25
    assert "masked_share" not in out and "staleness" not in metrics(new, batch, plain_loss())
    assert out["advantage_mean"] == 0.25 and out["advantage_abs_mean"] == 0.75
    everything = metrics(new, batch, plain_loss())  # one of the four agrees
    assert everything["mismatch_mean"] == pytest.approx(0.75 * LOG2)
    assert everything["mismatch_max"] == pytest.approx(LOG2), "the one that agrees hides nothing"
    with pytest.raises(ValueError, match="no sampled tokens"):
        metrics(new[:0], make_batch([]), plain_loss())


@pytest.mark.parametrize(
    ("fast", "plain", "shapes"),
    [
        (fastmath.softmax, lambda x: mx.softmax(x, axis=-1), [(3, 7)]),
        (fastmath.exp, mx.exp, [(4, 5)]),
        (fastmath.swiglu, lambda g, u: g * mx.sigmoid(g) * u, [(4, 5), (4, 5)]),
    ],
    ids=["softmax", "exp", "swiglu"],
)
def test_numpy_in_the_graph_has_mlx_values_and_gradients(fast, plain, shapes):
    keys = mx.random.split(mx.random.key(0), 3)
    arrays = [4.0 * mx.random.normal(shape, key=key) for shape, key in zip(shapes, keys)]
    weights = mx.random.normal(shapes[0], key=keys[2])
    argnums = tuple(range(len(arrays)))
    results = []
    for function in (fast, plain):
        value, grads = mx.value_and_grad(lambda *a, f=function: (weights * f(*(2.0 * x for x in a))).sum(), argnums)(
            *arrays
        )
        results.append([np.array(value), *map(np.array, grads)])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6)


def test_fast_functions_at_the_edges():
    out = fastmath.softmax(mx.array([[0.0, -mx.inf, 0.0], [1e30, 0.0, -1e30]]))
    assert out.tolist() == [[0.5, 0.0, 0.5], [1.0, 0.0, 0.0]]
    assert fastmath.swiglu(mx.array([-1e4, 0.0, 1e4]), mx.array([1.0, 1.0, 2.0])).tolist() == pytest.approx(
        [0.0, 0.0, 2e4]
    )
    slope = mx.grad(lambda g: fastmath.swiglu(g, mx.ones(2)).sum())(mx.array([-1e4, 1e4]))
    assert slope.tolist() == pytest.approx([0.0, 1.0], abs=1e-30)


def test_masked_softmax_is_the_softmax_of_what_is_seen() -> None:
    rng = np.random.default_rng(5)
    x = mx.array(rng.standard_normal((40, 2, 3, 9, 150)).astype(np.float32))  # several blocks
    weights = mx.array(rng.standard_normal(x.shape).astype(np.float32))
    for seen in (mx.arange(150) <= mx.arange(141, 150)[:, None], mx.array(rng.random((40, 1, 1, 9, 150)) < 0.9)):

        def plain(x: mx.array, seen: mx.array = seen) -> mx.array:
            return mx.softmax(mx.where(seen, x, -mx.inf), axis=-1)

        assert np.abs(np.array(fastmath.softmax(x, seen) - plain(x))).max() < 1e-6
        ours = mx.grad(lambda x, seen=seen: (fastmath.softmax(x, seen) * weights).sum())(x)
        assert np.abs(np.array(ours - mx.grad(lambda x: (plain(x) * weights).sum())(x))).max() < 1e-6


def test_distribution_and_its_gradient_over_several_blocks() -> None:
    rng = np.random.default_rng(6)
    x = mx.array(3 * rng.standard_normal((70, 900)).astype(np.float32))
    a, b = (mx.array(rng.standard_normal(x.shape).astype(np.float32)) for _ in range(2))

    def weighed(logprobs: mx.array, probs: mx.array) -> mx.array:
        return (logprobs * a).sum() + (probs * b).sum()

    def plain(x: mx.array) -> tuple[mx.array, mx.array]:
        return x - mx.logsumexp(x, axis=-1, keepdims=True), mx.softmax(x, axis=-1)

    for ours, theirs in zip(fastmath.distribution(x), plain(x), strict=True):
        assert np.abs(np.array(ours - theirs)).max() < 1e-5  # log-probabilities reach -18
    gap = mx.grad(lambda x: weighed(*fastmath.distribution(x)))(x) - mx.grad(lambda x: weighed(*plain(x)))(x)
    assert np.abs(np.array(gap)).max() < 1e-4


def test_the_weight_of_the_kl_by_hand() -> None:
    def table(**settings: Any) -> list[float]:
        return [LossSettings(**settings).kl_weight(step, 5) for step in range(1, 6)]

    assert table(kl=0.4, kl_end=0.025) == pytest.approx([0.4, 0.2, 0.1, 0.05, 0.025])
    assert table(kl=0.4, kl_end=0.0) == pytest.approx([0.4, 0.3, 0.2, 0.1, 0.0]), "no ratio leads to zero"
    assert table(kl=0.0, kl_end=0.4) == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])
    assert table(kl=0.4, kl_end=0.2, kl_schedule="linear") == pytest.approx([0.4, 0.35, 0.3, 0.25, 0.2])
    assert table(kl=0.4, kl_end=None) == [0.4] * 5
    assert LossSettings(kl=0.4, kl_end=0.1).kl_weight(1, 1) == 0.4
