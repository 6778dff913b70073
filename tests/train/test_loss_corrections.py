"""Truncated importance sampling, sequence mask, restricted entropy, legality, sft: hand-worked numbers and limits."""

from __future__ import annotations

import math
from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legos_train.loss import distribution, metrics, objective
from legos_train.loss.corrections import turn_means
from legos_train.loss.penalties import entropy, entropy_top, entropy_within, legality
from legos_train.loss.tokens import gspo
from tests.train.helpers import plain_loss
from tests.train.test_loss import LOG2, make_batch, numbers

AGGREGATIONS = ("token", "sequence", "constant")


def stale():
    """Two contexts over three tokens, policy (1/2, 1/4, 1/4) and (1/3, 1/3, 1/3), sampled by another policy.

    New / start is 2, 1, 1/2; start / old is 1, 4, 1/2.
    """
    batch = make_batch([([0], [0, 1], [math.log(1 / 4), math.log(1 / 12)], 1.0), ([0], [1], [math.log(1.0)], -2.0)])
    logits = mx.array([[2 * LOG2, LOG2, LOG2], [5.0, 5.0, 5.0]])
    return batch.with_start(np.log([1 / 4, 1 / 3, 1 / 2])), logits


# Per token with truncation at 2: the weight is 1, 2, 1/2, the advantage 1, 1, -2, so their product 1, 2, -1.
GOLDEN = {
    "importance_sampling": [-2.0, -2.0, 0.5],
    "ppo": [-1.2, -2.0, 0.8],
    "cispo": [1.2 * LOG2, 2 * math.log(3), -0.8 * 2 * LOG2],
    "gspo": [-1.2 * 2.0, -1.2 * 2.0, 0.8],  # turns: ratio sqrt 2, held at 1.2, and start / old = sqrt(1 * 4) = 2; 1/2
}


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("loss", GOLDEN)
def test_truncated_losses_by_hand(loss, aggregation):
    batch, logits = stale()
    a, b, c = GOLDEN[loss]
    expected = {"token": (a + b + c) / 3, "sequence": ((a + b) / 2 + c) / 2, "constant": (a + b + c) / 8}[aggregation]
    asked = plain_loss(name=loss, aggregation=aggregation, constant=4.0, truncate_ratio=2.0)
    assert objective(logits, batch, asked)[0].item() == pytest.approx(expected, rel=1e-5)


def test_truncation_in_the_log():
    batch, _ = stale()
    new = np.log([1 / 2, 1 / 3, 1 / 4]).astype(np.float32)
    out = metrics(new, batch, plain_loss(truncate_ratio=2.0))
    assert (out["ratio_min"], out["ratio_max"]) == pytest.approx((0.5, 2.0))
    assert out["truncated_share"] == pytest.approx(1 / 3) and out["clip_fraction"] == pytest.approx(2 / 3)
    assert out["mismatch_max"] == pytest.approx(math.log(4.0))  # against the sampler, not the start


def test_sft_by_hand_whatever_the_advantage():
    batch, logits = stale()
    a, b, c = LOG2, math.log(3), 2 * LOG2
    for aggregation, expected in zip(AGGREGATIONS, ((a + b + c) / 3, ((a + b) / 2 + c) / 2, (a + b + c) / 8)):
        asked = plain_loss(name="sft", aggregation=aggregation, constant=4.0)
        for advantages in (batch.advantages, 0 * batch.advantages):
            given_ = replace(batch, advantages=advantages)
            assert objective(logits, given_, asked)[0].item() == pytest.approx(expected)
    assert metrics(batch.old_logprobs, given_, asked)["live_share"] == 1.0


def test_turns_outside_the_mask_leave_the_loss():
    batch, logits = stale()  # geometric means of start / old: 2 and 1/2
    asked = plain_loss(name="importance_sampling", mask_ratio=(0.8, 3.0), entropy=1.0)
    loss = objective(logits, batch, asked)[0].item()
    # Ratios new / old of the first turn: 2, 4. Its two tokens weigh a third each, also for the entropy.
    assert loss == pytest.approx((-2 - 4) / 3 - (1.5 * LOG2 + math.log(3)) / 3)
    out = metrics(np.log([1 / 2, 1 / 3, 1 / 4]).astype(np.float32), batch, asked)
    assert out["masked_share"] == 0.5 and out["live_share"] == pytest.approx(2 / 3)
    assert objective(logits, batch, asked.model_copy(update=dict(mask_ratio=(0.0, 1.0))))[0].item() == pytest.approx(
        0.5 / 3 - 0.5 * LOG2
    )


@pytest.mark.parametrize("loss", GOLDEN)
def test_a_masked_turn_may_overflow(loss):
    batch, logits = stale()
    batch.old_logprobs[2] = -500.0  # exp overflows float32
    batch.advantages[:] = -1.0  # no clip holds a ratio above 1
    asked = plain_loss(name=loss, mask_ratio=(0.1, 10.0))
    value, slope = mx.value_and_grad(lambda x: objective(x, batch, asked)[0])(logits)
    assert np.isfinite(value.item()) and np.isfinite(np.array(slope)).all() and mx.abs(slope).max().item() > 0
    finite = objective(logits, batch, asked.model_copy(update=dict(mask_ratio=None)))[0].item()
    assert loss == "cispo" or not np.isfinite(finite)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(-2, 2, width=32), min_size=3, max_size=3), st.sampled_from(["importance_sampling", "gspo"]))
def test_a_loose_truncation_changes_nothing_where_no_clip_acts(start, loss):
    """new / start times start / old is new / old: without limits the correction is the plain importance ratio."""
    batch, logits = stale()
    moved = batch.with_start(np.array(start))
    loose = plain_loss(name=loss, clip_low=1.0, clip_high=1e6)
    truncated = loose.model_copy(update=dict(truncate_ratio=1e6))
    slopes = [
        mx.grad(lambda x, s=s, b=b: objective(x, b, s)[0])(logits) for s, b in ((loose, batch), (truncated, moved))
    ]
    np.testing.assert_allclose(np.array(slopes[0]), np.array(slopes[1]), rtol=1e-4, atol=1e-6)


def test_without_a_start_now_is_the_start():
    batch, logits = stale()
    now = np.log([1 / 2, 1 / 3, 1 / 4])
    for loss in GOLDEN:
        asked = plain_loss(name=loss, truncate_ratio=1.5, mask_ratio=(0.1, 3.5))
        bare = replace(batch, start_logprobs=None)
        pairs = [
            mx.value_and_grad(lambda x, b=b, s=asked: objective(x, b, s)[0])(logits)
            for b in (bare, batch.with_start(now))
        ]
        assert pairs[0][0].item() == pytest.approx(pairs[1][0].item())
        np.testing.assert_allclose(np.array(pairs[0][1]), np.array(pairs[1][1]), rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"shape \(3,\), got \(2,\)"):
        batch.with_start(now[:2])


def test_forced_tokens_of_a_turn_count_as_unmoved():
    sequence, lengths = np.array([4, 4, 9]), np.array([4, 4, 1])
    assert turn_means(np.array([1.0, 3.0, -1.0]), sequence, lengths).tolist() == [1.0, 1.0, -1.0]
    assert turn_means(np.array([1.0, 3.0, -1.0]), sequence).tolist() == [2.0, 2.0, -1.0]
    new, old, advantages = mx.array([2 * LOG2, 2 * LOG2, 0.0]), mx.zeros(3), mx.array([-1.0, -1.0, -1.0])
    out = gspo(new, old, advantages, sequence, clip_low=0.2, clip_high=0.2, lengths=lengths)
    assert numbers(out) == [2.0, 2.0, 1.0]


def test_restricted_entropies_by_hand():
    logprobs, _ = distribution(mx.log(mx.array([[0.1, 0.3, 0.6]] * 4)))
    h = lambda *p: -sum(x * math.log(x) for x in p)  # noqa: E731
    within = entropy_within(logprobs, [(0, 1), (2,), (), (0, 1, 2)])
    assert [h(0.25, 0.75), 0.0, 0.0, h(0.1, 0.3, 0.6)] == numbers(within)
    assert entropy_within(logprobs, [(), (), (), ()]).tolist() == [0.0] * 4
    assert [h(1 / 3, 2 / 3)] * 4 == numbers(entropy_top(logprobs, 2))
    assert [h(0.1, 0.3, 0.6)] * 4 == numbers(entropy_top(logprobs, 9))
    slope = mx.grad(lambda x: entropy_within(distribution(x)[0], [(0, 1), (1,), ()]).sum())(logprobs[:3])
    assert mx.abs(slope[0, 2]).item() < 1e-6 and slope[0, 0].item() > 0.1  # no mass goes to other tokens
    assert mx.abs(slope[1:]).max().item() < 1e-6


def test_the_bonus_by_hand():
    """Two turns at one context with other legal tokens; the third token may be anything."""
    batch, logits = stale()
    batch.legal[:] = [1, -1, 2]
    batch = replace(batch, legal_sets=((), (0, 1), (1, 2)))
    bare = plain_loss(name="importance_sampling", aggregation="sequence")
    asked = bare.model_copy(update=dict(entropy=0.5, entropy_over="legal"))
    thirds = -(2 / 3 * math.log(2 / 3) + 1 / 3 * math.log(1 / 3))
    loss, seen = objective(logits, batch, asked)
    bonus = objective(logits, batch, bare)[0].item() - loss.item()
    assert bonus == pytest.approx(0.5 * (thirds / 4 + math.log(3) / 4 + LOG2 / 2))
    assert seen["entropy_bonus"].item() == pytest.approx((thirds + math.log(3) + LOG2) / 3)
    assert seen["entropy"].item() == pytest.approx((2 * 1.5 * LOG2 + math.log(3)) / 3)
    _, top = objective(logits, batch, asked.model_copy(update=dict(entropy_over="top", entropy_top=2)))
    assert top["entropy_bonus"].item() == pytest.approx((2 * thirds + LOG2) / 3)
    everything = replace(batch, legal=np.full(3, 0, dtype=np.int32), legal_sets=((0, 1, 2),))
    whole = objective(logits, everything, asked.model_copy(update=dict(entropy_over="all")))[0].item()
    assert objective(logits, everything, asked)[0].item() == pytest.approx(whole)


def test_legality_by_hand():
    """Policy (1/2, 1/4, 1/4): leaving out the last token costs log 4/3, and its logit alone is pushed down."""
    probs = [1 / 2, 1 / 4, 1 / 4]
    logits = mx.log(mx.array([probs] * 3))
    cost = legality(distribution(logits)[0], [(0, 1), (2,), (0, 1, 2)])
    assert [math.log(4 / 3), math.log(4), 0.0] == numbers(cost)
    slope = np.array(mx.grad(lambda x: legality(distribution(x)[0], [(0, 1)]).sum())(logits[:1]))[0]
    np.testing.assert_allclose(slope, [1 / 2 - 2 / 3, 1 / 4 - 1 / 3, 1 / 4], atol=1e-6)  # p minus p within the set


def test_the_price_of_illegal_answers_by_hand():
    """The first token had two legal ones, the second could be anything; the third came after an illegal beginning."""
    batch, logits = stale()
    bare = plain_loss(name="importance_sampling", aggregation="sequence")
    asked = bare.model_copy(update=dict(legality=0.5))
    for legal, price, mass in (
        ([1, -1, 2], math.log(4 / 3) / 4 + LOG2 / 2, (math.log(4 / 3) + LOG2) / 2),
        ([1, 1, 0], math.log(4 / 3) / 4 + math.log(3 / 2) / 4, (math.log(4 / 3) + math.log(3 / 2)) / 2),
        ([-1, 0, 0], 0.0, 0.0),
    ):
        batch.legal[:] = legal
        listed = replace(batch, legal_sets=((), (0, 1), (1, 2)))
        loss, seen = objective(logits, listed, asked)
        assert loss.item() - objective(logits, listed, bare)[0].item() == pytest.approx(0.5 * price, abs=1e-6)
        assert seen["illegal_mass"].item() == pytest.approx(mass, abs=1e-6)


def test_top_entropy_of_everything_is_the_entropy():
    logprobs, probs = distribution(mx.random.normal((5, 8), key=mx.random.key(0)))
    assert entropy_top(logprobs, 8).tolist() == numbers(entropy(logprobs, probs))
