"""The crossed grid of the gradient microscope: all of it is measured once, and shown where it belongs."""

from __future__ import annotations

import argparse

import pytest

from benchmarks import microscope_grid
from benchmarks.microscope_grid import AGES, CREDITS, GAMES, LOSSES, cells, tables


def test_parts_are_the_whole_grid_and_nothing_twice() -> None:
    parts = [cell for part in (1, 2, 3) for cell in cells(part, 3)]
    assert len(parts) == len(set(parts)) == len(CREDITS) * len(LOSSES) * len(AGES) * len(GAMES)
    assert sorted(parts) == sorted(cells())
    for word in ("0/3", "4/3", "2", "a/b"):
        with pytest.raises(argparse.ArgumentTypeError, match="give K/N"):
            microscope_grid._part(word)


def test_a_number_stands_in_its_row_and_column() -> None:
    row = {"credit": "rae", "loss": "cispo", "age": 4, "games": 64}
    text = tables([{**row, "cosine": [0.9, 0.88, 0.92], "length": [1.03, 1, 1.1], "noise": [34.2, 30, 40]}])
    before, _, after = text.partition("4 versions old, 64 games:")
    assert "0.90" not in before and after.index("| `rae` | - | - | - | 0.90 \u00b1 0.02, 1.03 (34) | - |") > 0


@pytest.mark.slow  # by default test_microscope.py measures batches, and numbers by hand
def test_a_cell_is_measured() -> None:
    (row,) = microscope_grid.study([("grpo", "ppo", 0, 64)], 4, 0)
    assert row["credit"] == "grpo" and 0.5 < row["cosine"][0] < 1.2 and row["noise"][0] > 0
