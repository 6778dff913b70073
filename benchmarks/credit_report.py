"""The finished cells of `benchmarks.credit` as markdown tables with bootstrap intervals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

RESAMPLES = 10_000
REFERENCE = "RAE"
Cells = dict[tuple[str, bool], list[Mapping[str, Any]]]


def resampled_means(values: Sequence[float], seed: int = 0) -> np.ndarray:
    """(RESAMPLES,) means of samples drawn from `values` with replacement; the same for the same values."""
    draws = np.random.default_rng(seed).integers(0, len(values), (RESAMPLES, len(values)))
    return np.asarray(values, float)[draws].mean(1)


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean and its 95 % percentile bootstrap interval."""
    low, high = np.percentile(resampled_means(values), [2.5, 97.5])
    return float(np.mean(values)), float(low), float(high)


def differs(values: Sequence[float], others: Sequence[float]) -> bool:
    """Whether the 95 % bootstrap interval of the difference of the two means leaves out 0."""
    low, high = np.percentile(resampled_means(values, 1) - resampled_means(others, 2), [2.5, 97.5])
    return bool(low > 0 or high < 0)


def tables(rows: Sequence[Mapping[str, Any]], methods: Sequence[str]) -> str:
    """Markdown: per part, setup and game one table of NashConv, and one of optimal moves where they were measured."""
    groups: dict[tuple[str, str, str], Cells] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        setup = ", ".join(f"{key} {value:g}" for key, value in row["setup"].items())
        groups[row["part"], setup, row["game"]][row["method"], row["kl"]].append(row)
    out: list[str] = []
    for (part, setup, game), cells in groups.items():
        counts = {len(found) for found in cells.values()}
        seeds = str(counts.pop()) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
        every = [row for found in cells.values() for row in found]
        start = np.mean([row["start"]["nash_conv"] for row in every if row["start"]])
        out += [f"### {part}: {game} ({setup}; {seeds} seeds)", ""]
        out += [f"NashConv, at the start {start:.3f}", "", *_table(cells, methods, "nash_conv", 3), ""]
        if any("optimal_move" in (row["last"] or {}) for row in every):
            out += ["Probability of an optimal move", "", *_table(cells, methods, "optimal_move", 4), ""]
        failed = [row for row in every if row["last"] is None]
        out += [f"{len(failed)} runs failed: {sorted({row['failed'] for row in failed})}", ""] if failed else []
    return "\n".join(out)


def _table(cells: Cells, methods: Sequence[str], metric: str, digits: int) -> list[str]:
    columns = [(kl, weights) for kl in (False, True) for weights in ("last", "average")]
    lines = [
        "| credit | " + " | ".join(f"{'KL' if kl else 'no KL'}, {weights}" for kl, weights in columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for method in methods:
        if any((method, kl) in cells for kl in (False, True)):
            shown = [_cell(cells, method, kl, weights, metric, digits) for kl, weights in columns]
            lines.append(f"| {method} | " + " | ".join(shown) + " |")
    return lines


def _cell(cells: Cells, method: str, kl: bool, weights: str, metric: str, digits: int) -> str:
    values, others = (
        [row[weights][metric] for row in cells.get((name, kl), []) if row[weights]] for name in (method, REFERENCE)
    )
    if not values:
        return ""
    mean, low, high = interval(values)
    star = "*" if method != REFERENCE and others and differs(values, others) else ""
    return f"{mean:.{digits}f}{star} [{low:.{digits}f}, {high:.{digits}f}]"
