"""Ctrl-C at any crash point of a run: whatever it leaves is whole, and its resume ends as if nothing had been."""

from __future__ import annotations

import signal
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import kill_runs
from legos_train import TrainConfig, train
from legos_train.disk import crash, run_directory
from legos_train.errors import Stopped
from tests.train.helpers import small

STEPS = 3
NOT_HERE = {
    *("load.set_aside", "sweep.restored", "adapter.old_moved", "adapter.swapped", "checkpoint.old_moved"),
    *("file.torn", "file.written", "file.renamed"),
}
"""Points that no run passes by itself: they need damage, a second run, a file system that cannot exchange names, or
files that a run does not write."""


def config(run: Path) -> TrainConfig:
    logs = {"rollouts": 2, "rollouts_every": 1}
    return small(run, steps=STEPS, batch_size=4, checkpoint={"every": 1, "keep": 1}, logs=logs, league={"mode": "fsp"})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The undisturbed run; all runs here have one id, so that they leave the same bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_directory, "new_run_id", lambda: "0123456789ab")
        run = tmp_path_factory.mktemp("whole") / "run"
        train(config(run), quiet=True)
        yield run


def interrupted(run: Path, spec: str, resume: bool, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Runs with SIGINT at a point; returns whether it came by there."""
    came: list[int] = []

    def interrupt(code: int) -> None:
        came.append(code)
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(crash, "os", types.SimpleNamespace(_exit=interrupt))
        crash.arm(spec)
        try:
            train(config(run), quiet=True, resume=resume)
        except (Stopped, KeyboardInterrupt):
            assert came, f"{spec}: stopped by nothing"
        finally:
            crash.arm(None)
    return bool(came)


def check(spec: str, whole: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    resume = spec.startswith(("load.", "cut.", "sweep."))
    if resume:  # passed by a run that goes on after a kill: one row and half a checkpoint too many
        assert interrupted(run, "loop.metrics_written:2", False, monkeypatch)
        (run / "checkpoints" / ".tmp-step_3-1").mkdir()
        with open(run / "metrics.jsonl", "a") as rows:
            rows.write('{"step": 3}\n{"st')
    came = interrupted(run, spec, resume, monkeypatch)
    assert kill_runs.unreadable(run) == [], spec
    steps = [row["step"] for row in kill_runs.rows_of(run)]
    assert steps == list(range(1, len(steps) + 1)) or resume, spec
    train(config(run), quiet=True, resume=(run / "config.toml").exists())
    found, wanted = kill_runs.outcome(run), kill_runs.outcome(whole)
    assert sorted(found) == sorted(wanted), spec
    assert [name for name in found if found[name] != wanted[name]] == [], spec
    return came


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["checkpoint.torn:2"])
def test_ctrl_c_in_the_middle_of_a_checkpoint(
    spec: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check(spec, whole, tmp_path / "run", monkeypatch)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", [1, 2])
def test_ctrl_c_at_every_crash_point(number: int, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missed = {
        point for point in crash.CRASH_POINTS if not check(f"{point}:{number}", whole, tmp_path / point, monkeypatch)
    }
    assert missed == NOT_HERE if number == 1 else len(crash.CRASH_POINTS) - len(missed) >= 25
