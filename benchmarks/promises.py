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
        f"{found['rss_growth']:+.1%} (highest {found['rss_peak_growth']:+.1%}), "
        f"descriptors {found['descriptors_more']:+g}, throughput "
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

_CRASHES = "tests/train/test_crash_points.py", "tests/train/test_crash_signals.py"
PROMISES: dict[str, tuple[Promise, ...]] = {
    "Training": (
        Promise(
            "A run killed at any time and resumed ends with the same bytes as an uninterrupted one: adapter, last, "
            "best, checkpoints, metrics; no step is missing or doubled; with several ranks, any one may be killed, "
            "and where the others kept a checkpoint of the last step, the rows are equal up to rounding",
            ("tests/train/test_crash_runs.py", "tests/train/test_distributed.py"),
            ("kills",),
        ),
        Promise("After a kill at any of the named points, the disk holds the state before or after", _CRASHES),
        Promise(
            "Any system call for a checkpoint, an adapter, the metrics or a settings file may fail: the disk holds the "
            "state before or after, the message says what to do, and the next save works",
            ("tests/train/test_crash_faults.py",),
        ),
        Promise(
            "After a power loss the last checkpoint whose `save` returned is whole",
            ("tests/train/test_crash_power.py",),
        ),
        Promise(
            "A changed, cut or missing checkpoint file is noticed: the one before is used, the broken one kept",
            ("tests/train/test_checkpoint.py",),
        ),
        Promise(
            "Ctrl-C and SIGTERM end a run within 5 s, its steps kept, with exit code 130 or 143; a second one at once",
            ("tests/train/test_crash_stopping.py", "tests/train/test_interrupted.py"),
            ("stops",),
        ),
        Promise(
            "A run never takes another run's files for its own; no run starts over another, and `--resume` needs one",
            ("tests/train/test_run_id.py",),
        ),
        Promise(
            "A run removes nothing it did not write; links are replaced, never emptied; read-only folders, few "
            "descriptors and a jumping clock are reported, without a traceback",
            ("tests/train/test_checkpoint.py", "tests/train/test_run_disk.py"),
        ),
        Promise(
            "Extending a run equals running all its steps at once, or the run says why not",
            ("tests/train/test_longer.py",),
        ),
        Promise(
            "No secret in an address or a setting reaches a file, the output or a tracker",
            ("tests/train/test_secrets.py",),
        ),
        Promise(
            "A run leaves what it says it leaves: labels, schedules, seats, versions",
            ("tests/train/test_wiring.py", "tests/train/test_wiring_seats.py"),
            ("mutants",),
        ),
    ),
    "Server": (
        Promise(
            "A completion comes from one adapter or says which made each token; bad adapters leave the old one live",
            (
                "tests/server/test_adapters_http.py",
                "tests/server/test_bad_adapters.py",
                "tests/server/test_adapter_versions.py",
            ),
            ("swaps",),
        ),
        Promise(
            "Two runs on one server end with the same bytes as each alone, where it computes one row at a time and "
            "keeps no prompts (elsewhere up to rounding); answers from other weights stop a run",
            ("tests/train/test_two_runs.py", "tests/train/test_server_faults.py"),
        ),
        Promise(
            "A server killed or stalled in the middle of an answer changes no bit of a run on such servers",
            ("tests/train/test_server_faults.py",),
        ),
        Promise("A late, altered or deleted adapter version never wins", ("tests/server/test_adapter_versions.py",)),
        Promise(
            "`/health` is answered while others send slow requests; the bar is 100 ms",
            ("tests/server/test_bounds.py",),
            ("health",),
        ),
        Promise(
            "No request gets a 5xx, hangs or ends the server, or is smuggled in with another",
            ("tests/server/test_hostile.py", "tests/server/test_storm.py"),
            ("mutations",),
        ),
        Promise(
            "Clients that vanish leave nothing behind",
            ("tests/server/test_hostile.py", "tests/server/test_pausing.py", "tests/server/test_storm.py"),
            ("drops",),
        ),
        Promise("It starts, serves and ends with exit code 0", ("tests/server/test_running.py",), ("cycles",)),
        Promise("Memory and descriptors stay stable through an hour of mixed load", (), ("soak",)),
        Promise(
            "An engine fault ends only the requests it hits; a flood of clients is asked to come back later",
            ("tests/server/test_faults.py",),
        ),
        Promise(
            "Nothing named in a request, a model or an adapter is fetched; templates are sandboxed and bounded",
            ("tests/server/test_no_fetching.py", "tests/inference/test_hostile_templates.py"),
        ),
    ),
    "Environments": (
        Promise(
            "No answer raises an error or makes a step exceed 2 s of processor time, formulas and programs included",
            (
                "tests/envs/test_fuzz.py",
                "tests/envs/test_formulas.py",
                "tests/envs/test_formula_workers.py",
                "tests/envs/test_textarena_moves.py",
            ),
        ),
        Promise("A slow step stops no other episode", ("tests/train/test_slow_steps.py",)),
        Promise("No program in the sandbox forges its result", ("tests/envs/test_sandbox_os.py",)),
        Promise(
            "The same seed and answers give the same episode in every process",
            ("tests/test_supply_chain.py", "tests/envs/test_check_env.py"),
        ),
        Promise("Degenerate players earn no more than the stated floor", ("tests/envs/test_gameability.py",)),
    ),
    "Viewer, files of others": (
        Promise("Nothing in a transcript is executed", ("tests/view/test_page.py", "tests/view/test_browser.py")),
        Promise("`legos view --watch` withstands the same attacks as the server", ("tests/view/test_watch.py",)),
        Promise(
            "Files next to a model, an adapter or a data set are never run or unpickled; no import reaches the network",
            ("tests/test_supply_chain.py",),
        ),
    ),
    "Evaluation": (
        Promise(
            "An interrupted evaluation resumes to the same numbers; seats have their own temperatures and judges",
            ("tests/eval/test_resume.py", "tests/train/test_wiring_seats.py"),
        ),
    ),
}
"""By area, in the order of the page."""
