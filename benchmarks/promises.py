"""What we promise, what holds each promise, and what measures it: the list behind `docs/reliability.md`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Promise(NamedTuple):
    """A sentence that users may rely on.

    Attributes:
        text: the sentence, in Markdown.
        tests: files of the tests that hold it, from the root.
        measured_by: names of `MEASUREMENTS` whose figures stand beside it.
    """

    text: str
    tests: tuple[str, ...] = ()
    measured_by: tuple[str, ...] = ()


class Measurement(NamedTuple):
    """A command that measures.

    Attributes:
        quick: the module and its arguments, for some minutes; `JSON` is the file that it writes.
        full: the same at the size of the bar.
        figure: what was found, in words: of the file's content, or None and the last line of the output.
    """

    quick: str
    full: str
    figure: Callable[[Any, str], str]


def _signals(found: Any, _: str) -> str:
    parts = found.values()
    counts = {name: sum(len(part["faults"][name]) for part in parts) for name in next(iter(parts))["faults"]}
    shown = ", ".join(f"{count} {name}" for name, count in counts.items())
    slowest = max(part["slowest_end_seconds"] for part in parts)
    signals, configs = sum(part["signals"] for part in parts), len(parts)
    return f"{signals} signals in {configs} configurations: {shown}; slowest end {slowest:.1f} s"


def _storm(name: str, *keys: str) -> Callable[[Any, str], str]:
    def figure(found: Any, _: str) -> str:
        case = found["cases"][name]
        shown = ", ".join(f"{_short(case[key])} {key.replace('_', ' ')}" for key in keys)
        return f"{shown}, {sum(case['faults'].values())} faults"

    return figure


def _health(found: Any, _: str) -> str:
    case = found["cases"]["health"]
    slowest = {name: row["ms_p100"] for name, row in case["attacks"].items()}
    worst = max(slowest, key=lambda name: slowest[name])
    return f"slowest /health of {len(slowest)} attacks {slowest[worst]:.0f} ms ({worst})"


def _soak(found: Any, _: str) -> str:
    return (
        f"{found['minutes']:g} min, {found['requests']} requests, {found['published']} publications: RSS "
        f"{found['rss_growth']:+.1%}, descriptors {found['descriptors_more']:+g}, throughput "
        f"{found['throughput_drift']:+.1%}, {sum(found['faults'].values())} faults"
    )


def _last_line(_: Any, line: str) -> str:
    return line


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _case(name: str, *keys: str) -> Measurement:
    words = f"benchmarks.storm --case {name} --json JSON"
    return Measurement(words, f"{words} --full", _health if name == "health" else _storm(name, *keys))


MEASUREMENTS: dict[str, Measurement] = {
    "kills": Measurement(
        "benchmarks.kills --kills 10 --configs all --json JSON",
        "benchmarks.kills --kills 500 --configs all --json JSON",
        _signals,
    ),
    "stops": Measurement(
        "benchmarks.kills --stops 2 --json JSON", "benchmarks.kills --stops 20 --configs all --json JSON", _signals
    ),
    "swaps": _case("swaps", "swaps", "corrupt_refused", "requests", "swap_ms_p99"),
    "drops": _case("drops", "requests", "cut_off", "seconds_to_baseline"),
    "health": _case("health"),
    "mutations": _case("mutations", "cases", "slowest_seconds"),
    "cycles": _case("cycles", "cycles"),
    "soak": Measurement(
        "benchmarks.soak --minutes 3 --json JSON", "benchmarks.soak --minutes 60 --train --json JSON", _soak
    ),
    "mutants": Measurement("tests.mutants --only credit-*", "tests.mutants", _last_line),
}
