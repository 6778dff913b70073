"""Formatting of numbers, times and small bars for the dashboard."""

from __future__ import annotations

import math
import os
import resource
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

BARS = "▁▂▃▄▅▆▇█"


def number(record: Mapping[str, Any], key: str, form: str) -> str:
    return shown(record.get(key), form)


def shown(value: Any, form: str) -> str:
    return format(value, form) if isinstance(value, int | float) else "-"


def milliseconds(record: Mapping[str, Any]) -> str:
    value = record.get("seconds_publish")
    return f"{value * 1000:.0f} ms" if isinstance(value, int | float) else "-"


def clock(seconds: float) -> str:
    """`1:02:03`, or `2:03` below an hour."""
    whole = round(seconds)
    minutes = f"{whole % 3600 // 60:02d}:{whole % 60:02d}"
    return f"{whole // 3600}:{minutes}" if whole >= 3600 else f"{whole // 60}:{whole % 60:02d}"


def memory() -> str:
    """Resident memory of this process: current, or the peak if the system reports only that."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        size = int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return f"{size / 2**20:,.0f} MiB"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return f"{peak / 2**20:,.0f} MiB at most"


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """A row of at most `width` bars with eight levels; with more values, each bar is a mean."""
    finite = [float(v) for v in values if math.isfinite(v)]
    if not finite:
        return ""
    count = min(width, len(finite))
    edges = [len(finite) * k // count for k in range(count + 1)]
    bars = [sum(finite[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(bars), max(bars)
    if high == low:
        return BARS[0] * count
    return "".join(BARS[round((v - low) / (high - low) * 7)] for v in bars)
