"""Averages of weights, folded step by step: numbers worked out by hand."""

from __future__ import annotations

import mlx.core as mx
import pytest

from legos_train.config import sections
from legos_train.model.weight_average import WeightAverage


def average(**settings: object) -> float:
    """Of a weight that is 1, 2 and 3 after the steps of a run."""
    out = WeightAverage(sections.AverageSettings(**settings), 3, {"w": mx.zeros(1)})  # type: ignore[arg-type]
    for step in (1, 2, 3):
        out.fold(step, {"w": mx.array([float(step)])})
    value = out.value()
    assert value is not None
    return float(value["w"].item())


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"kind": "polynomial", "degree": 0}, 2.0),  # the mean
        ({"kind": "polynomial", "degree": 1}, (1 * 1 + 2 * 2 + 3 * 3) / 6),  # step t counts t
        ({"kind": "polynomial", "degree": 2}, (1 * 1 + 3 * 2 + 6 * 3) / 10),  # step t counts t (t + 1) / 2
        ({"kind": "ema", "decay": 0.5}, (1 + 2 * 2 + 4 * 3) / 7),
        ({"kind": "uniform", "start": 0.34}, 2.5),  # steps 2 and 3
    ],
    ids=str,
)
def test_averages_by_hand(settings: dict[str, object], expected: float) -> None:
    assert average(**settings) == pytest.approx(expected)
