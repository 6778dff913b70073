"""What survives when training is killed: `python -m benchmarks.kills --kills 100 [--stops 20] [--json out.json]`.

Starts real `legos train` runs (Kuhn poker with `tiny`), sends SIGKILL to the process group at random times between 10 %
and 90 % of its steps (a random row of metrics.jsonl, then a random part of a step; by seconds, a busy machine would
mostly be hit while it starts), and resumes with --resume, up to four kills to a run, until it is finished. Then every
file that it leaves must be that of the undisturbed run, but for the times in it.

* unreadable: checkpoints or adapters that were broken right after a kill;
* lost: steps without a row in metrics.jsonl, and checkpoints that were there after a kill and not after the next;
* doubled: steps with two rows;
* different: files that are not those of the undisturbed run.

With --stops, SIGINT and SIGTERM in turn instead: how long until the process has ended (bar: 5 s), how it ended, whether
its checkpoints are whole, and whether the resumed run ends like the undisturbed one. Exit code 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from legos_train.disk import MetricsFile, checkpoint

STEPS, EVERY = 12, 2
FLAGS = ["--env", "KuhnPoker-v0", "--steps", str(STEPS), "--batch-size", "8", "--threads", "1", "--lora.rank", "4"]
FLAGS += ["--eval.every", "6", "--checkpoint.every", str(EVERY), "--logs.rollouts", "2", "--logs.rollouts-every", "2"]
TIMES = ("seconds", "seconds_play", "seconds_pack", "seconds_learn", "seconds_publish", "tokens_per_second")
STEP_SECONDS = 0.5
"""About what a step takes here; how far into it the signal comes is drawn from this."""
KILLS_PER_RUN = 4
LIMIT = 300.0  # seconds; a run that takes longer hangs


RUN_ID = "0123456789ab"
"""Of all runs here, which are to leave the same bytes."""


def start(run: Path, resume: bool, extra: list[str]) -> subprocess.Popen[bytes]:
    run.mkdir(parents=True, exist_ok=True)
    (run / "run.json").write_text(json.dumps({"id": RUN_ID}, indent=2) + "\n")
    command = [sys.executable, "-m", "legos_train.cli.main", "train", *FLAGS, *extra, "--run-dir", str(run)]
    log = open(run.with_name(run.name + ".log"), "ab")  # noqa: SIM115 - the child's from here on
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command += ["--resume"] if resume else []
    with log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment)


def finish(run: Path, resume: bool, extra: list[str]) -> float:
    """Runs to the end; returns seconds."""
    began = time.monotonic()
    process = start(run, resume, extra)
    try:
        code = process.wait(LIMIT)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    if code:
        raise SystemExit(f"legos train ended with {code}:\n{run.with_name(run.name + '.log').read_text()[-4000:]}")
    return time.monotonic() - began


def outcome(run: Path) -> dict[str, str]:
    """Digest by file, without what depends on the clock."""
    found = {}
    for file in sorted(path for path in run.rglob("*") if path.is_file()):
        name = str(file.relative_to(run))
        if name in (".lock", "report.html") or name.startswith("figures/"):  # they draw seconds per step
            continue
        data = file.read_bytes()
        if name == "metrics.jsonl":
            unequal = {*TIMES, "resumed_from"}
            rows = [{k: v for k, v in row.items() if k not in unequal} for row in MetricsFile.read(file)]
            data = json.dumps(rows).encode()
        elif name == "result.json":
            data = json.dumps({k: v for k, v in json.loads(data).items() if k != "seconds"}).encode()
        found[name] = hashlib.sha256(data).hexdigest()
    return found


def unreadable(run: Path) -> list[str]:
    """Checkpoints and adapters that are not whole, before anything could repair them."""
    import mlx.core as mx

    faults = []
    for directory in sorted((run / "checkpoints").glob("step_*")):
        if problem := checkpoint.damage(directory):
            faults.append(f"{directory.name}: {problem}")
    for name in ("adapter", "last", "best"):
        folder = run / name
        if folder.exists():
            try:
                json.loads((folder / "adapter_config.json").read_text())
                mx.eval(mx.load(str(folder / "adapters.safetensors")))
            except (OSError, ValueError, RuntimeError) as error:
                faults.append(f"{name}: {error}")
    return faults


def newest(run: Path) -> int:
    return max((int(d.name[5:]) for d in (run / "checkpoints").glob("step_*") if d.name[5:].isdigit()), default=0)


def disturb(run: Path, resume: bool, row: int, delay: float, number: int, extra: list[str]) -> tuple[int, float]:
    """Starts, waits for a step's row and a part of the next step, sends the signal; returns the exit status (0: it had
    finished before) and how long it took.
    """
    process = start(run, resume, extra)
    while len(MetricsFile.read(run / "metrics.jsonl")) < row:
        if process.poll() is not None:
            return process.returncode, 0.0
        time.sleep(0.005)
    try:
        process.wait(delay)
        return process.returncode, 0.0
    except subprocess.TimeoutExpired:
        pass
    began = time.monotonic()
    try:
        if number == signal.SIGKILL:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        process.wait(60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return process.returncode, time.monotonic() - began


def compare(run: Path, reference: dict[str, str], stopped: bool = False) -> dict[str, list[Any]]:
    """`stopped`: a stop writes a checkpoint of its own, so an older one is pruned; those that both runs kept count."""
    steps = Counter(row["step"] for row in MetricsFile.read(run / "metrics.jsonl"))
    found = outcome(run)
    names = sorted({*found, *reference})
    if stopped:
        kept = {Path(name).parent for name in found} & {Path(name).parent for name in reference}
        kept.add(Path(f"checkpoints/step_{STEPS}"))
        names = [n for n in names if not n.startswith("checkpoints/") or Path(n).parent in kept]
    return {
        "lost": [step for step in range(1, STEPS + 1) if not steps[step]],
        "doubled": [step for step, count in steps.items() if count > 1],
        "different": [name for name in names if found.get(name) != reference.get(name)],
    }


def campaign(
    folder: Path,
    whole: float,
    reference: dict[str, str],
    count: int,
    numbers: tuple[int, ...],
    seed: int,
    extra: list[str],
) -> dict[str, Any]:
    """Sends `count` signals to as many runs as that takes."""
    began = time.monotonic()
    rng = random.Random(seed)
    faults: dict[str, list[Any]] = {"unreadable": [], "lost": [], "doubled": [], "different": []}
    endings: Counter[int] = Counter()
    slowest, sent, runs, at_step = 0.0, 0, 0, []
    while sent < count:
        run = folder / f"run{runs}"
        runs += 1
        seen = 0
        for k in range(KILLS_PER_RUN):
            number = numbers[sent % len(numbers)]
            rows = len(MetricsFile.read(run / "metrics.jsonl"))
            row = min(max(rows + 1, math.ceil(0.1 * STEPS)) + rng.randrange(3), math.floor(0.9 * STEPS))
            code, seconds = disturb(run, k > 0, row, rng.uniform(0, STEP_SECONDS), number, extra)
            if code == 0:
                break
            sent += 1
            endings[code] += 1
            slowest = max(slowest, seconds)
            faults["unreadable"] += [f"{run.name}: {fault}" for fault in unreadable(run)]
            if newest(run) < seen:
                faults["lost"].append(f"{run.name}: checkpoint {seen}")
            seen = newest(run)
            at_step.append(len(MetricsFile.read(run / "metrics.jsonl")))
            if sent == count:
                break
        finish(run, True, extra)
        for kind, wrong in compare(run, reference, signal.SIGKILL not in numbers).items():
            faults[kind] += [f"{run.name}: {item}" for item in wrong]
        told = {kind: wrong for kind, wrong in faults.items() if wrong} or "no faults"
        print(f"{sent} of {count} signals, {runs} runs, {told}", file=sys.stderr, flush=True)
        if not any(item.startswith(f"{run.name}:") for wrong in faults.values() for item in wrong):
            shutil.rmtree(run)
    return {
        "signals": sent,
        "runs": runs,
        "undisturbed_seconds": round(whole, 2),
        "seconds": round(time.monotonic() - began, 1),
        "exit_codes": {str(code): n for code, n in sorted(endings.items())},
        "slowest_end_seconds": round(slowest, 2),
        "rows_when_hit": {str(step): n for step, n in sorted(Counter(at_step).items())},
        "files_compared": len(reference),
        "faults": faults,
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=0, help="how many SIGKILLs")
    parser.add_argument("--stops", type=int, default=0, help="how many SIGINTs and SIGTERMs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path, help="work here and leave runs with faults, instead of a temporary folder")
    parser.add_argument("train", nargs="*", help="more flags for legos train, after --")
    options = parser.parse_args(arguments)
    kinds = {"kills": (signal.SIGKILL,), "stops": (signal.SIGINT, signal.SIGTERM)}
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        root = options.keep or Path(temporary)
        root.mkdir(parents=True, exist_ok=True)
        whole = finish(root / "reference", False, options.train)
        reference = outcome(root / "reference")
        for kind, numbers in kinds.items():
            if count := getattr(options, kind):
                folder = root / kind
                folder.mkdir()
                results[kind] = campaign(folder, whole, reference, count, numbers, options.seed, options.train)
    bad = False
    head = ("signals", "runs", "unreadable", "lost", "doubled", "different", "end s")
    print(" ".join(f"{name:>10}" for name in ("", *head)))
    for kind, found in results.items():
        counts = {name: len(wrong) for name, wrong in found["faults"].items()}
        bad = bad or any(counts.values()) or (kind == "stops" and found["slowest_end_seconds"] > 5)
        cells = (kind, found["signals"], found["runs"], *counts.values(), found["slowest_end_seconds"])
        print(" ".join(f"{cell:>10}" for cell in cells))
    print(json.dumps(results))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
