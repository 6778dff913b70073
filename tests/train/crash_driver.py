"""A small run made of everything that touches the disk, and a process that kills it at every named point.

`python -m tests.train.crash_driver FOLDER` forks a child per point and pass, which dies there; a second child resumes;
what it leaves must equal what an undisturbed run leaves. Forking after the imports makes a case cost milliseconds.
Prints JSON: cases, points that died, and faults as sentences.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx

from legos_train.disk import MetricsFile, RunDirectory, checkpoint, crash, fsops, run_directory, save_adapter
from legos_train.disk.fsops import write_text

STEPS, EVERY = 6, 2
UNFINISHED = "checkpoint.directory_synced:4"  # the last checkpoint, with two rows after the one before
Setup = Callable[[Path], None]


def weights(step: int) -> dict[str, mx.array]:
    return {"a": mx.arange(6).astype(mx.float32) * step, "b": mx.array([step]).astype(mx.bfloat16)}


def keep(path: Path, run: str, step: int, draft: bool = False) -> None:
    arrays = {"adapter": weights(step), f"league_step_{step}": weights(step - 1)}
    files = {"store.sqlite": b"rows" * step}
    checkpoint.save(path / "checkpoints", step, arrays, {"step": step, "draft": draft}, 2, files=files, run=run)


def run(path: Path) -> None:
    """Six steps: rows, checkpoints (the fourth twice, as after going back), adapters that change, reports."""
    with RunDirectory(path) as directory:
        if directory.finished:
            return
        directory.begin("steps = 6\n")
        found = checkpoint.load_newest(path / "checkpoints", directory.id, 2)
        start = found.state["step"] if found else 0
        if found is None:
            directory.write_json("start.json", {"nash_conv": 1.0})
        rows = MetricsFile(path / "metrics.jsonl", start or None, run=directory.id)
        if found and found.state["draft"]:
            keep(path, directory.id, start)
        for step in range(start + 1, STEPS + 1):
            rows.write({"step": step, "reward": step / 7})
            if step % EVERY:
                continue
            save_adapter(path / "last", weights(step), {"step": step})
            rows.sync()
            if step == 4:
                keep(path, directory.id, step, draft=True)
            keep(path, directory.id, step)
        rows.close()
        save_adapter(path / "adapter", weights(99), {"step": 99})
        write_text(path / "report.html", "<p>done</p>\n")
        write_text(path / "notes.txt", "done\n")
        directory.write_json("result.json", {"steps": STEPS})


def no_sync(function: Callable[..., Any], *arguments: Any) -> Any:
    """A killed process loses nothing that the system has taken, so the kills need no waiting for the disk."""
    return None if function is os.fsync else function(*arguments)


def in_child(work: Callable[[], None]) -> int:
    """Runs something in a fork and returns how it ended."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2 if "-v" not in sys.argv else 9)
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_at(path: Path, spec: str | None, exchange: bool = True) -> int:
    def work() -> None:
        crash.arm(spec)
        if not exchange:
            fsops.exchange = lambda one, other: False
        run(path)

    return in_child(work)


def contents(path: Path) -> dict[str, str]:
    """Digest by file; the note of a resume is not a difference, nor what was set aside."""
    found = {}
    for file in sorted(path.rglob("*")):
        if not file.is_file() or file.name == ".lock" or ".corrupt" in str(file):
            continue
        data = file.read_bytes()
        if file.name == "metrics.jsonl":
            rows = [json.loads(line) for line in data.splitlines()]
            data = json.dumps([{k: v for k, v in row.items() if k != "resumed_from"} for row in rows]).encode()
        found[str(file.relative_to(path))] = hashlib.sha256(data).hexdigest()
    return found


def torn(path: Path) -> list[str]:
    """What a reader would stumble over right after the kill, before anything is repaired."""
    faults = []
    for directory in sorted((path / "checkpoints").glob("step_*")):
        if ".corrupt" not in directory.name and (problem := checkpoint.damage(directory)):
            faults.append(f"{directory.name}: {problem}")
    for name in ("last", "adapter"):
        if (path / name).exists():
            config = json.loads((path / name / "adapter_config.json").read_text())
            saved = mx.load(str(path / name / "adapters.safetensors"))
            if saved["b"].item() != config["step"]:
                faults.append(f"{name} mixes two versions")
    steps = [row["step"] for row in MetricsFile.read(path / "metrics.jsonl")]
    if steps != list(range(1, len(steps) + 1)):
        faults.append(f"metrics.jsonl has the steps {steps}")
    return faults


def harm(path: Path) -> None:
    """Flips a bit in the newest checkpoint."""
    file = max((path / "checkpoints").glob("step_?")) / "adapter.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def prepared(point: str) -> tuple[list[str], Setup | None, bool]:
    """Kills that come before the one under test, further harm, and whether directories can be exchanged."""
    if point.startswith(("load.", "cut.")) or point == "sweep.removed":
        return [UNFINISHED], harm if point == "load.set_aside" else None, True
    if point == "sweep.restored":
        return ["checkpoint.old_moved"], None, True
    return [], None, point != "adapter.old_moved"


def case(folder: Path, point: str, number: int, reference: dict[str, str]) -> tuple[bool, list[str]]:
    """Whether the point was reached, and what went wrong."""
    path = folder / f"{point}.{number}"
    kills, setup, exchange = prepared(point)
    for spec in kills:
        assert killed_at(path, spec, exchange) == crash.EXIT_CODE, f"the preparation {spec} was not reached"
    if setup is not None:
        setup(path)
    code = killed_at(path, f"{point}:{number}", exchange)
    if code != crash.EXIT_CODE:
        return False, [] if code == 0 else [f"ended with {code} instead of dying"]
    faults: list[str] = []
    unreadable = in_child(
        lambda: sys.exit("; ".join(torn(path))) if exchange and setup is None and torn(path) else None
    )
    if unreadable:
        faults.append("unreadable right after the kill")
    if (code := killed_at(path, None)) != 0:
        faults.append(f"the resume ended with {code}")
    found = contents(path)
    for name in sorted(set(found) | set(reference)):
        if found.get(name) != reference.get(name):
            faults.append(f"{name} " + ("is missing" if name not in found else "differs from the undisturbed run"))
    if setup is not None and not list((path / "checkpoints").glob("*.corrupt")):
        faults.append("the broken checkpoint is gone")
    return True, faults


def main(folder: Path, passes: int) -> dict[str, Any]:
    fsops.gate = no_sync
    run_directory.new_run_id = lambda: "0123456789ab"  # one for all, so that they leave the same bytes
    assert killed_at(folder / "reference", None) == 0
    reference = contents(folder / "reference")
    reached: dict[str, int] = {}
    faults = {}
    cases = 0
    for point in crash.STORAGE_POINTS:
        for number in range(1, passes + 1):
            died, wrong = case(folder, point, number, reference)
            if wrong:
                faults[f"{point}:{number}"] = wrong
            if not died:
                break
            cases += 1
            reached[point] = number
    return {"cases": cases, "reached": reached, "faults": faults, "files": sorted(reference)}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]))))
