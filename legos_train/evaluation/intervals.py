"""Confidence intervals of means, required sample sizes, and pass@k. Pure functions of numbers."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

LEVEL, POWER = 0.975, 0.8
DETECTED = NormalDist().inv_cdf(LEVEL) + NormalDist().inv_cdf(POWER)
"""The effect, in standard errors, that a test at the 5 % level detects with that probability."""
FEW = 8
CELLS = 4_000_000  # size of a block of resamples, to bound memory


def bootstrap_interval(
    values: ArrayLike, seed: int, resamples: int = 2000, bounds: tuple[float, float] = (-math.inf, math.inf)
) -> list[float]:
    """95 % interval of the mean of independent values: the expanded percentile bootstrap (Hesterberg 2015, arXiv
    1411.5279), with quantiles widened by Student's t, so that few values give no false certainty. Resamples of very few
    values (less than `FEW`) never leave their range, so there Student's interval is taken where it is wider. Values
    that all lie on a bound have no spread to resample, but an exact interval: N wins of N games show a share of at
    least 0.025^(1/N) (Clopper and Pearson 1934, Biometrika 26).

    Args:
        values: (N,), one per seed: games on one seed belong together and are averaged first.
        seed: seed of the resamples.
        resamples: number of resamples.
        bounds: what the mean can be, such as 0 and 1 for shares.

    Returns:
        Its two ends; without a bound, for N = 1 or equal values, the value twice, which is not informative.

    Raises:
        ValueError: there are no values.
    """
    sample = np.asarray(values, float)
    if sample.ndim != 1 or not len(sample):
        raise ValueError(f"an interval needs at least one value; got an array of shape {sample.shape}")
    if sample.min() == sample.max() and sample[0] in bounds and all(map(math.isfinite, bounds)):
        least = sample[0] + (sum(bounds) - 2 * sample[0]) * (1.0 - (1.0 - LEVEL) ** (1.0 / len(sample)))
        return sorted([float(sample[0]), float(least)])
    low, high = np.quantile(resampled_means(sample, seed, resamples), expanded_levels(len(sample)))
    if 1 < len(sample) < FEW:
        half = student(len(sample) - 1) * sample.std(ddof=1) / math.sqrt(len(sample))
        low, high = min(low, sample.mean() - half), max(high, sample.mean() + half)
    return [max(float(low), bounds[0]), min(float(high), bounds[1])]


def resampled_means(sample: NDArray[np.float64], seed: int, resamples: int) -> NDArray[np.float64]:
    """(resamples,) means of samples drawn with replacement from (N,) values."""
    rng = np.random.default_rng(seed)
    n, block = len(sample), max(1, CELLS // len(sample))
    return np.concatenate(
        [
            sample[rng.integers(0, n, (min(block, resamples - done), n))].mean(axis=1)
            for done in range(0, resamples, block)
        ]
    )


def expanded_levels(n: int) -> tuple[float, float]:
    """The quantiles of resamples of n values for a 95 % interval: the normal distribution's at t sqrt(n/(n-1))."""
    if n < 2:
        return 0.0, 1.0
    tail = NormalDist().cdf(-student(n - 1) * math.sqrt(n / (n - 1)))
    return tail, 1 - tail


def student(degrees: int) -> float:
    """The 97.5 % quantile of Student's t (Abramowitz and Stegun 26.7.5; tabulated where the series is inaccurate)."""
    few = {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764}
    if degrees in few:
        return few[degrees]
    z = NormalDist().inv_cdf(LEVEL)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return float(sum(term / degrees**power for power, term in enumerate(terms)))


def needed(values: ArrayLike) -> int | None:
    """How many independent values would distinguish their mean from 0.

    Enough to detect an effect as large as the observed one with probability `POWER` at the 5 % level (two-sided normal
    approximation). None if there is no effect, or no spread to judge by.

    Args:
        values: (N,) as of `bootstrap_interval`.
    """
    sample = np.asarray(values, float)
    effect = float(sample.mean())
    spread = float(sample.std(ddof=1)) if len(sample) > 1 else 0.0
    if not effect or not spread:
        return None
    return math.ceil((DETECTED * spread / effect) ** 2)


def advice(values: Sequence[float], interval: Sequence[float], per_value: int, what: str) -> str | None:
    """A note on a sample that is too small for the difference it seems to show; None if it is large enough.

    Args:
        values: (N,), one per seed.
        interval: its 95 % interval.
        per_value: games behind each value.
        what: the difference, in words.
    """
    n, mean = len(values), float(np.mean(values))
    games = f"{n * per_value} games on {n} seeds"
    if n < 2:
        return f"{what} of {mean:+.3g} is based on one seed: there is no interval. Play more games (-n)."
    if np.ptp(values) == 0:
        unseen = 1 - 0.05 ** (1 / n)
        return (
            f"{what} was {mean:+.3g} on all {n} seeds, so there is no interval; with 95 % confidence, other results "
            f"are rarer than {unseen:.1%}."
        )
    if not interval[0] <= 0 <= interval[1]:
        return None
    count = needed(values)
    if count is None:
        return f"{what}: none was seen in {games}; the interval shows how large it may still be."
    detectable = DETECTED * float(np.std(values, ddof=1)) / n**0.5
    return (
        f"{what} of {mean:+.3g} cannot be distinguished from 0: {games} are too few. If it is real, about "
        f"{count * per_value} games would show it with 80 % probability; this many can show {detectable:.2g} or more."
    )


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """The unbiased estimate that at least one of k answers is right, from `correct` right ones among `samples`.

    `1 - C(n - c, k) / C(n, k)` (Chen et al. 2021, arXiv 2107.03374, equation 1).

    Raises:
        ValueError: not 1 <= k <= samples, or not 0 <= correct <= samples.
    """
    if not 1 <= k <= samples or not 0 <= correct <= samples:
        raise ValueError(
            f"pass@k needs 1 <= k <= samples and 0 <= correct <= samples; got k = {k}, {correct} of {samples}"
        )
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


def mean_and_pass(correct: Sequence[Sequence[bool]], seed: int, samples: int = 1) -> dict[str, float | list[float]]:
    """mean@K and pass@k for k = 1, 2, 4, ... K and `samples`, each with its interval over problems.

    Args:
        correct: per problem, whether each of its answers was right; K is the smallest number of answers.
        seed: seed of the resamples.
        samples: one more k, at most K.

    Raises:
        ValueError: no problem, or one without answers.
    """
    most = min(map(len, correct), default=0)
    if not most:
        raise ValueError("mean@k and pass@k need at least one problem with an answer each")
    shares = [sum(c) / len(c) for c in correct]
    out: dict[str, float | list[float]] = {"problems": len(correct), "samples": most}
    interval = functools.partial(bootstrap_interval, seed=seed, bounds=(0, 1))
    out |= {f"mean@{most}": float(np.mean(shares)), f"mean@{most}_ci95": interval(shares)}
    for k in sorted({*(2**i for i in range(most.bit_length()) if 2**i <= most), samples, most}):
        each = [pass_at_k(len(c), sum(c), k) for c in correct]
        out |= {f"pass@{k}": float(np.mean(each)), f"pass@{k}_ci95": interval(each)}
    return out
