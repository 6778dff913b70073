"""Axes: tick positions and number formats; running means with their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from legos_train.observe.eval_numbers import Z95

T = TypeVar("T")
Point = tuple[float, float]


def nice_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten apart) from at most `low` to at least `high`; at least two."""
    if not high > low:
        pad = abs(low) * 0.1 or 1.0
        low, high = low - pad, high + pad
    rough = (high - low) / max(most - 1, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * k for k in (1, 2, 5, 10) if power * k >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [k * step for k in range(first, last + 1)]


def number(value: float, digits: int = 3) -> str:
    """A number for an axis or a cell: three digits, thousands as k, no `-0`."""
    size = abs(value)
    if size >= 1e6:
        text = f"{value / 1e6:.{digits}g}M"
    elif size >= 1e4:
        text = f"{value / 1e3:.{digits}g}k"
    elif size >= 100:
        text = f"{value:.{max(digits, 4)}g}"
    elif 0 < size < 1e-3:
        mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
        text = f"{mantissa.rstrip('0').rstrip('.')}e{int(power)}"
    else:
        text = f"{value:.{digits}g}"
    return "0" if text == "-0" else text.replace("-", "−", 1) if value < 0 else text


def tick_names(ticks: Sequence[float]) -> list[str]:
    """The numbers with as few digits as represent all exactly, so that no two ticks look the same."""
    exact = [number(tick, 10) for tick in ticks]
    digits = next((d for d in range(3, 10) if [number(tick, d) for tick in ticks] == exact), 10)
    return [number(tick, digits) for tick in ticks]


def window_of(count: int) -> int:
    """The window of a running mean in steps: a tenth of the run, at most 20."""
    return max(1, min(20, count // 10))


def running_mean(
    points: Sequence[Point], window: int, errors: Sequence[float | None] | None = None
) -> tuple[list[Point], list[tuple[float, float, float]]]:
    """Means over the last `window` points, and their 95 % intervals as (x, low, high).

    Args:
        points: (x, y) in the order of x.
        window: number of points per mean.
        errors: per point the standard error of its value; the error of the mean of m points is then
            sqrt(sum e^2) / m. Without them it is the spread of the points in the window over sqrt(m), so a window needs
            two points before it has an interval.
    """
    means: list[Point] = []
    bands: list[tuple[float, float, float]] = []
    for k, (x, _) in enumerate(points):
        first = max(0, k - window + 1)
        values = [y for _, y in points[first : k + 1]]
        mean = sum(values) / len(values)
        means.append((x, mean))
        error = _error(values, mean, None if errors is None else errors[first : k + 1])
        if error is not None:
            bands.append((x, mean - Z95 * error, mean + Z95 * error))
    return means, bands


def _error(values: Sequence[float], mean: float, errors: Sequence[float | None] | None) -> float | None:
    if errors is not None:
        sizes = [e for e in errors if e is not None]
        return math.sqrt(sum(e * e for e in sizes)) / len(sizes) if len(sizes) == len(values) else None
    if len(values) < 2:
        return None
    return math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1) / len(values))


def thinned(items: Sequence[T], most: int) -> list[T]:
    """About `most` items or fewer, evenly spaced, including the last one."""
    stride = -(-len(items) // most) if most else 1
    return [item for k, item in enumerate(items) if (len(items) - 1 - k) % max(stride, 1) == 0]
