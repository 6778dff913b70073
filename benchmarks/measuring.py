"""Shared measuring code of the benchmarks: sides that take turns, medians over rounds, bars, a table, a JSON file.

A case returns its results; `report` prints them next to its bar. Times are CPU seconds of the process over all threads,
because wall time means little on a shared machine; the two sides alternate within each round, so that both see the same
load.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Found = dict[str, Any]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Case:
    """What a case compares, the bar it must reach, and how it is measured.

    key: which of the found numbers the bar is about. most: the bar is an upper bound.
    """

    about: str
    bar: float
    measure: Callable[[int], Found]
    key: str = "ratio"
    most: bool = False

    def passes(self, found: Found) -> bool:
        """Whether the bar is reached, and every condition in `must` holds."""
        value = found[self.key]
        return (value <= self.bar if self.most else value >= self.bar) and all(found.get("must", {}).values())


def alternate(sides: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Smallest CPU seconds of each side; sides take turns, after one unmeasured turn each."""
    return {name: min(times) for name, times in rounds(sides, repeats).items()}


def rounds(
    sides: Mapping[str, Callable[[], Any]], repeats: int, clock: Clock = time.process_time, *, warm: int = 1
) -> dict[str, list[float]]:
    """Seconds of each side in each round, after `warm` unmeasured ones; who begins changes from round to round."""
    spent: dict[str, list[float]] = {name: [] for name in sides}
    for round_ in range(repeats + warm):
        for name in sorted(sides, reverse=round_ % 2 == 0):
            start = clock()
            sides[name]()
            if round_ >= warm:
                spent[name].append(clock() - start)
    return spent


def best_of(variants: Mapping[str, Callable[[], Any]], turns: int = 1) -> tuple[str, dict[str, float]]:
    """The variant of the baseline that suits it best, and the smallest CPU seconds of each."""
    tried = alternate(variants, turns)
    return min(tried, key=lambda name: tried[name]), tried


def against(
    ours: Callable[[], Any], variants: Mapping[str, Callable[[], Any]], work: float, repeats: int, **more: Any
) -> Found:
    """Work per CPU second of our side and of the baseline, which may use the best of its variants."""
    chosen, tried = best_of(variants) if len(variants) > 1 else (next(iter(variants)), {})
    spent = rounds({"ours": ours, "baseline": variants[chosen]}, repeats)
    found = compare(spent["ours"], spent["baseline"], work) | more
    if tried:
        found |= {"baseline_is": chosen, "baseline_variants": {name: work / s for name, s in tried.items()}}
    return found


def compare(ours: list[float], baseline: list[float], work: float) -> Found:
    """Medians over the rounds as work per second, and of the ratio within a round; the same of the fastest rounds."""
    return {
        "ours": work / statistics.median(ours),
        "baseline": work / statistics.median(baseline),
        "ratio": statistics.median(theirs / mine for mine, theirs in zip(ours, baseline, strict=True)),
        "ratio_of_best": min(baseline) / min(ours),
        "seconds": {"ours": ours, "baseline": baseline},
    }


def options(about: str, cases: Mapping[str, Case]) -> argparse.Namespace:
    """--json, --cases and --rounds."""
    parser = argparse.ArgumentParser(
        description=about, epilog="; ".join(f"{name}: {case.about}" for name, case in cases.items())
    )
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--cases", default=",".join(cases), help=f"any of {','.join(cases)}")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds; medians are reported")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.cases.split(",") if name not in cases]
    if unknown:
        parser.error(f"--cases: {', '.join(unknown)} unknown; there are {', '.join(cases)}")
    if chosen.rounds < 1:
        parser.error(f"--rounds must be at least 1, got {chosen.rounds}")
    return chosen


def report(cases: Mapping[str, Case], chosen: argparse.Namespace) -> int:
    """Measure, print a line as each case ends, write the JSON; the number of bars that were missed."""
    print(f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}; {chosen.rounds} rounds")
    print(f"{'case':<10}{'what':<62}{'ours':>10}{'baseline':>10}{'measured':>10}{'bar':>11}")
    results: dict[str, Found] = {}
    for name in chosen.cases.split(","):
        case = cases[name]
        start = time.monotonic()
        found = results[name] = case.measure(chosen.rounds)
        found |= {"about": case.about, "bar": case.bar, "bar_on": case.key, "bar_is": "most" if case.most else "least"}
        found |= {"pass": case.passes(found), "wall_seconds": round(time.monotonic() - start, 1)}
        print(_line(name, case, found), flush=True)
        if chosen.json:
            chosen.json.write_text(json.dumps({"machine": _machine(), "cases": results}, indent=1) + "\n")
    missed = [name for name, found in results.items() if not found["pass"]]
    print(f"missed: {', '.join(missed)}" if missed else "all bars reached")
    return len(missed)


def _line(name: str, case: Case, found: Found) -> str:
    numbers = "".join(f"{_short(found.get(key)):>10}" for key in ("ours", "baseline"))
    verdict = "PASS" if found["pass"] else "MISS"
    broken = [text for text, holds in found.get("must", {}).items() if not holds]
    notes = f"  ({'; '.join('not ' + text for text in broken)})" if broken else ""
    bar = f"{'<=' if case.most else '>='} {case.bar:g}"
    return f"{name:<10}{case.about:<62}{numbers}{_short(found[case.key]):>10}{bar:>11}  {verdict}{notes}"


def _short(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _machine() -> Found:
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return {"cpu": model, "system": platform.platform(), "python": sys.version.split()[0]}
