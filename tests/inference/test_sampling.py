"""Keyed draws: the right distribution, parameters as data, filters by hand-worked numbers."""

from __future__ import annotations

import numpy as np
import pytest

from inference import SamplingParams
from inference.engine.sampling import draw, log_normalisers, most_likely_tokens, uniforms

LOGITS = np.log(np.array([[0.5, 0.25, 0.125, 0.125]], dtype=np.float32))


def numbers(count: int, position: int = 0) -> np.ndarray:
    return uniforms(np.arange(count, dtype=np.uint64), np.full(count, position, dtype=np.uint64))


def chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    return float(((counts - expected) ** 2 / expected).sum())


def test_uniforms_fill_the_unit_interval_and_differ_by_seed_and_position() -> None:
    u = numbers(20_000)
    assert u.min() >= 0.0
    assert u.max() < 1.0
    assert len(np.unique(u)) == len(u)
    counts, _ = np.histogram(u, bins=20, range=(0, 1))
    assert chi_square(counts, np.full(20, 1000.0)) < 43.8  # 0.001 quantile for 19 degrees of freedom
    assert abs(np.corrcoef(u, numbers(20_000, position=1))[0, 1]) < 0.03
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 0.03


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (SamplingParams(), [0.5, 0.25, 0.125, 0.125]),
        (SamplingParams(temperature=0.5), [4 / 5.5, 1 / 5.5, 0.25 / 5.5, 0.25 / 5.5]),
        (SamplingParams(top_k=2), [2 / 3, 1 / 3, 0, 0]),
        (SamplingParams(top_p=0.7), [2 / 3, 1 / 3, 0, 0]),
        (SamplingParams(top_p=0.4), [1, 0, 0, 0]),
        (SamplingParams(min_p=0.3), [2 / 3, 1 / 3, 0, 0]),
        # top_p counts within what top_k left: 0.5 / 0.75 is short of 0.7, so both stay.
        (SamplingParams(top_k=2, top_p=0.7), [2 / 3, 1 / 3, 0, 0]),
        (SamplingParams(top_k=2, top_p=0.6), [1, 0, 0, 0]),
        # Equal probabilities: the smaller id is kept.
        (SamplingParams(top_k=3), [4 / 7, 2 / 7, 1 / 7, 0]),
    ],
)
def test_draws_follow_the_distribution(params: SamplingParams, expected: list[float]) -> None:
    n = 8000
    [drawn] = draw(LOGITS, params, [numbers(n)])
    counts = np.bincount(drawn.tokens, minlength=4)
    p = np.array(expected)
    assert (counts[p == 0] == 0).all()
    assert chi_square(counts[p > 0], n * p[p > 0]) < 16.3  # 0.001 quantile for 3 degrees of freedom
    assert np.allclose(drawn.logprobs, np.log(p[drawn.tokens]), atol=1e-6)


def test_rows_drawn_together_are_drawn_as_alone() -> None:
    """Bit for bit, with one number or several a row, from 0 to the last below 1, and tokens of probability 0."""
    rng = np.random.default_rng(0)
    logits = (3.0 * rng.normal(size=(9, 700))).astype(np.float32)
    logits[:, -5:] = logits[:, :3] = -np.inf
    each = [SamplingParams(temperature=float(t)) for t in rng.choice([0.7, 1.0, 1.3], 9)]
    own = [rng.random(count) for count in (1, 1, 3, 1, 2, 1, 1, 5, 1)]
    for some in own[:5]:
        some[-1] = 1.0 - 2.0**-53
    own[2][0] = own[7][0] = 0.0
    together = draw(logits, each, own)
    for i, drawn in enumerate(together):
        [alone] = draw(logits[i : i + 1], each[i], own[i : i + 1])
        assert (drawn.tokens == alone.tokens).all() and (drawn.logprobs == alone.logprobs).all()
        for number, token in zip(own[i], drawn.tokens):
            weights = np.exp(logits[i] / np.float32(each[i].temperature) - (logits[i] / each[i].temperature).max())
            sums = np.cumsum(weights, dtype=np.float64)
            below = sums[token - 1] / sums[-1] if token else 0.0
            assert below - 1e-6 <= number < sums[token] / sums[-1] + 1e-6 and weights[token] > 0
            assert 3 <= token < 695


def test_greedy_takes_the_most_likely_with_certainty() -> None:
    [drawn] = draw(LOGITS, SamplingParams(temperature=0.0), [numbers(5)])
    assert drawn.tokens.tolist() == [0] * 5
    assert drawn.logprobs.tolist() == [0.0] * 5


def test_a_row_gives_the_same_draws_alone_and_among_others() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(7, 503)).astype(np.float32) * 3
    each = [numbers(4, position=i) for i in range(7)]
    for params in (
        SamplingParams(temperature=0.8),
        SamplingParams(temperature=0.8, top_p=0.9, top_k=20, min_p=0.01),
        SamplingParams(top_p=0.5),
    ):
        together = draw(logits, params, each)
        for i in range(7):
            [alone] = draw(logits[i : i + 1], params, [each[i]])
            assert np.array_equal(alone.tokens, together[i].tokens)
            assert np.array_equal(alone.logprobs, together[i].logprobs)


def test_top_p_over_a_large_flat_vocabulary_equals_a_full_sort() -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(1, 5000)).astype(np.float32)  # the nucleus is far larger than the first candidates
    [drawn] = draw(logits, SamplingParams(top_p=0.9), [numbers(4000)])
    p = np.exp(logits[0].astype(np.float64))
    order = np.argsort(-p, kind="stable")
    nucleus = order[: np.searchsorted(np.cumsum(p[order]), 0.9 * p.sum()) + 1]
    assert set(drawn.tokens.tolist()) <= set(nucleus.tolist())
    assert np.allclose(drawn.logprobs, np.log(p[drawn.tokens] / p[nucleus].sum()), atol=1e-5)


def test_log_normalisers_show_rows_that_are_not_finite() -> None:
    logits = np.zeros((4, 3), dtype=np.float32)
    logits[1, 0], logits[2, 1], logits[3] = np.nan, np.inf, -np.inf
    with np.errstate(all="ignore"):
        finite = np.isfinite(log_normalisers(logits))
    assert finite.tolist() == [True, False, False, False]
    assert log_normalisers(logits[:1])[0] == pytest.approx(np.log(3))


def test_most_likely_tokens_are_sorted_and_normalised() -> None:
    top = most_likely_tokens(LOGITS[0], float(log_normalisers(LOGITS)[0]), 3)
    assert [i for i, _ in top] == [0, 1, 2]
    assert [p for _, p in top] == pytest.approx(np.log([0.5, 0.25, 0.125]))
