"""What survives killing a training run: `python -m benchmarks.kills --kills 500 [--stops 20] [--configs all]`.

Starts real `legos train` runs of `tiny` in the configurations of `benchmarks/kill_runs.py` (leagues, replay, a store,
several envs, two ranks on a ring, asynchronous, generation on a server), sends SIGKILL to a process at random times
between 10 % and 90 % of its steps (a random row of metrics.jsonl, then a random part of a step; random seconds would
mostly hit the startup on a busy machine), and resumes with --resume, up to four kills per run, until it is done. With
several ranks, one is killed, and the others must end by themselves. Then every file of the run must equal the
undisturbed run's, except for recorded times (asynchronous: every step once; server: the same games).

* unreadable: checkpoints or adapters broken right after a kill;
* lost: steps without a row in metrics.jsonl, and checkpoints present after one kill but not after the next;
* doubled: steps with two rows;
* different: files or rows that differ from the undisturbed run;
* outlived: processes that continued after another process of their run was killed, or ended without saying why.

With --stops, SIGINT and SIGTERM in turn instead: how long the process takes to end (bar: 5 s), how it ends, whether its
checkpoints are intact, and whether the resumed run ends like the undisturbed one: if it stopped between two scheduled
checkpoints, with the same games and nearly the same numbers. Exit code 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks import kill_runs
from benchmarks.kill_runs import ALONE, CONFIGS, STEPS, Config, Started

STEP_SECONDS = 0.5
"""About what a step takes here; how far into it the signal comes is drawn from this."""
KILLS_PER_RUN = 4
FAULTS = ("unreadable", "lost", "doubled", "different", "outlived")


def disturb(started: Started, row: int, delay: float, number: int, rank: int) -> tuple[int, float, list[str]]:
    """Waits for a step's row and a part of the next step, and sends the signal to a rank.

    Returns:
        The exit status (0: it had finished before), how long all took to end, and what went on or said no reason.
    """
    while len(kill_runs.rows_of(started.run)) < row:
        if (code := started.ended()) is not None:
            return code, 0.0, []
        time.sleep(0.02)
    if started.wait(delay):
        return started.ended() or 0, 0.0, []
    began = time.monotonic()
    killed = started.processes[rank]
    killed.send_signal(number)
    faults = []
    if not started.wait(ALONE if number == signal.SIGKILL else 60.0) or started.outlived(ALONE):
        faults.append(f"a process lived {ALONE:.0f} s longer than rank {rank}")
    seconds = time.monotonic() - began
    others = [process.poll() for process in started.processes if process is not killed]
    if others and not (_complete(started.run) or _said_why(started, others)):
        faults.append(f"the other ranks ended with {others} without saying why")
    return killed.wait(), seconds, faults


def _complete(run: Path) -> bool:
    """Whether the signal came after the last barrier: everything is written, and the other ranks end as they should."""
    return len(kill_runs.rows_of(run)) == STEPS and (run / "result.json").exists()


def _said_why(started: Started, others: list[int | None]) -> bool:
    return 0 not in others and "Start all ranks again with --resume" in started.log.read_text()


def campaign(
    folder: Path, config: Config, count: int, numbers: tuple[int, ...], seed: int, extra: tuple[str, ...]
) -> dict[str, Any]:
    """Sends `count` signals to as many runs as that takes."""
    folder.mkdir(parents=True)
    rng = random.Random(seed)
    faults: dict[str, list[Any]] = {kind: [] for kind in FAULTS}
    endings: Counter[int] = Counter()
    slowest, sent, runs, at_step = 0.0, 0, 0, []
    reference = folder / "reference"
    with kill_runs.server_of(config) as url:
        whole = kill_runs.finish(reference, False, config, url, extra)
        began = time.monotonic()
        while sent < count:
            run = folder / f"run{runs}"
            runs += 1
            seen = 0
            for k in range(KILLS_PER_RUN):
                number = numbers[sent % len(numbers)]
                row = max(len(kill_runs.rows_of(run)) + 1, math.ceil(0.1 * STEPS)) + rng.randrange(3)
                row, delay, rank = (
                    min(row, math.floor(0.9 * STEPS)),
                    rng.uniform(0, STEP_SECONDS),
                    rng.randrange(config.ranks),
                )
                started = Started(run, k > 0, config, url, extra)
                try:
                    code, seconds, alone = disturb(started, row, delay, number, rank)
                finally:
                    started.end()
                if code == 0:
                    break
                sent += 1
                endings[code] += 1
                slowest = max(slowest, seconds)
                faults["unreadable"] += [f"{run.name}: {fault}" for fault in kill_runs.unreadable(run)]
                faults["outlived"] += [f"{run.name}: {fault}" for fault in alone]
                if kill_runs.newest(run) < seen:
                    faults["lost"].append(f"{run.name}: checkpoint {seen}")
                seen = kill_runs.newest(run)
                at_step.append(len(kill_runs.rows_of(run)))
                if sent == count:
                    break
            kill_runs.finish(run, True, config, url, extra)
            # A rank that lost another also keeps a checkpoint where it is, as after Ctrl-C.
            between = signal.SIGKILL not in numbers or config.ranks > 1
            wrong = kill_runs.compare(run, reference, config.compared, between)
            for kind, items in wrong.items():
                faults[kind] += [f"{run.name}: {item}" for item in items]
            told = {kind: items for kind, items in faults.items() if items} or "no faults"
            print(f"{folder.name}: {sent} of {count} signals, {runs} runs, {told}", file=sys.stderr, flush=True)
            if not any(item.startswith(f"{run.name}:") for items in faults.values() for item in items):
                shutil.rmtree(run)
    return {
        "signals": sent,
        "runs": runs,
        "undisturbed_seconds": round(whole, 2),
        "seconds": round(time.monotonic() - began, 1),
        "exit_codes": {str(code): n for code, n in sorted(endings.items())},
        "slowest_end_seconds": round(slowest, 2),
        "rows_when_hit": {str(step): n for step, n in sorted(Counter(at_step).items())},
        "files_compared": len(kill_runs.outcome(reference)) if config.compared == "bytes" else 0,
        "faults": faults,
    }


def chosen(names: list[str]) -> list[str]:
    """The configurations that are asked for; `all` is every one."""
    if unknown := set(names) - {*CONFIGS, "all"}:
        raise SystemExit(f"no configuration {sorted(unknown)}; there are {', '.join(CONFIGS)}, and all")
    return list(CONFIGS) if "all" in names else names


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=0, help="number of SIGKILLs, split over the configurations")
    parser.add_argument("--stops", type=int, default=0, help="number of SIGINTs and SIGTERMs, split likewise")
    parser.add_argument("--configs", default="plain", metavar="NAME,...", help=f"{', '.join(CONFIGS)}, or all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path, help="work here, not in a temporary folder, and keep faulty runs")
    parser.add_argument("train", nargs="*", help="extra flags for legos train, after --")
    options = parser.parse_args(arguments)
    kinds = {"kills": (signal.SIGKILL,), "stops": (signal.SIGINT, signal.SIGTERM)}
    names = chosen(options.configs.split(","))
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        root = options.keep or Path(temporary)
        for kind, numbers in kinds.items():
            for place, name in enumerate(names):
                count = getattr(options, kind) * (place + 1) // len(names) - getattr(options, kind) * place // len(
                    names
                )
                if count:
                    key = kind if len(names) == 1 else f"{kind}: {name}"
                    folder = root / f"{kind}-{name.replace(' ', '_')}"
                    results[key] = campaign(folder, CONFIGS[name], count, numbers, options.seed, tuple(options.train))
                    if options.json:
                        options.json.write_text(json.dumps(results, indent=1) + "\n")
    bad = False
    print(f"{'':22}" + " ".join(f"{name:>10}" for name in ("signals", "runs", *FAULTS, "end s")))
    for kind, found in results.items():
        counts = {name: len(wrong) for name, wrong in found["faults"].items()}
        bad = bad or any(counts.values()) or (kind.startswith("stops") and found["slowest_end_seconds"] > 5)
        cells = (found["signals"], found["runs"], *counts.values(), found["slowest_end_seconds"])
        print(f"{kind:22}" + " ".join(f"{cell:>10}" for cell in cells))
    print(json.dumps(results))
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
