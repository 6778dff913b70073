"""What a run meets on a disk that is not its own alone: links, no permission, few open files, a clock that jumps."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from legos_train import train
from legos_train.cli.main import main
from legos_train.disk import MetricsFile, checkpoint, fsops, save_adapter
from tests.train.helpers import small

ROOT = Path(__file__).parents[2]
ARRAYS = {"adapter": {"a": mx.arange(6).astype(mx.float32)}}


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_linked_checkpoint_is_read_and_what_it_links_to_is_never_touched(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "checkpoints", tmp_path / "elsewhere"
    checkpoint.save(root, 1, ARRAYS, {"step": 1}, keep=2)
    (root / "step_1").rename(elsewhere)
    (root / "step_1").symlink_to(elsewhere, target_is_directory=True)
    seen = files(elsewhere)
    found = checkpoint.load_newest(root)
    assert found is not None and found.state == {"step": 1}
    checkpoint.save(root, 1, ARRAYS, {"step": 1, "again": True}, keep=2)  # replaces the link
    assert files(elsewhere) == seen and not (root / "step_1").is_symlink()
    (root / "step_2").symlink_to(elsewhere, target_is_directory=True)  # says step 1: damaged as a step 2
    assert checkpoint.load_newest(root).state == {"step": 1, "again": True}  # type: ignore[union-attr]
    assert (root / "step_2.corrupt").is_symlink()
    (root / "step_0").symlink_to(elsewhere, target_is_directory=True)
    (root / "step_3").symlink_to(tmp_path / "nowhere")
    for step in (3, 4):  # prunes the old ones
        checkpoint.save(root, step, ARRAYS, {"step": step}, keep=1)
    assert files(elsewhere) == seen
    assert sorted(path.name for path in root.iterdir()) == ["step_2.corrupt", "step_3.corrupt", "step_4"]


@pytest.mark.parametrize("exchange", [True, False])
def test_a_linked_adapter_is_replaced_and_what_it_links_to_is_never_touched(
    exchange: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exchange:
        monkeypatch.setattr(fsops, "exchange", lambda one, other: False)
    weights = {"a": mx.array([1.0])}
    save_adapter(tmp_path / "mine", weights, {"by": "hand"})
    seen = files(tmp_path / "mine")
    for target in (tmp_path / "mine", tmp_path / "nowhere"):
        (tmp_path / "adapter").symlink_to(target, target_is_directory=True)
        save_adapter(tmp_path / "adapter", weights, {"by": "run"})
        assert files(tmp_path / "mine") == seen and not (tmp_path / "adapter").is_symlink()
        assert json.loads((tmp_path / "adapter" / "adapter_config.json").read_text()) == {"by": "run"}
        for path in (tmp_path / "adapter").iterdir():
            path.unlink()
        (tmp_path / "adapter").rmdir()
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


READ_ONLY = """
import os, sys
from pathlib import Path
from legos_train.cli.main import main
root = Path(sys.argv[1])
flags = ["train", "--batch-size", "8", "--lora.rank", "2", "--eval.every", "0", "--checkpoint.every", "1"]
assert main([*flags, "--steps", "1", "--run-dir", str(root / "run")]) == 0
mine = [root, *root.rglob("*")]
for path in mine:
    os.chmod(path, 0o555 if path.is_dir() else 0o444)
if os.geteuid() == 0:  # root may write anywhere
    os.setgroups([]), os.setegid(65534), os.seteuid(65534)
codes = [main([*flags, "--run-dir", str(root / "new" / "run")])]
codes.append(main([*flags, "--steps", "2", "--run-dir", str(root / "run"), "--resume"]))
print(codes)
"""


@pytest.mark.slow
def test_a_read_only_directory_is_told() -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # pytest's own are closed to others
        root = Path(folder)
        done = subprocess.run(
            [sys.executable, "-c", READ_ONLY, folder], cwd=ROOT, capture_output=True, text=True, timeout=120
        )
        for path in [root, *root.rglob("*")]:
            path.chmod(0o755)
        assert done.returncode == 0 and done.stdout.splitlines()[-1] == "[1, 1]", done.stdout + done.stderr
        errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        said = "error: cannot use the run directory '{}': Permission denied"
        assert errors == [said.format(root / "new" / "run"), said.format(root / "run")], done.stderr
        assert "Traceback" not in done.stderr
        assert [row["step"] for row in MetricsFile.read(root / "run" / "metrics.jsonl")] == [1]


@pytest.mark.slow
def test_a_directory_that_becomes_read_only_ends_the_run_with_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def gate(function: Callable[..., Any], *arguments: Any) -> Any:
        writes = function in (os.mkdir, os.rename) or (function is os.open and arguments[1] & (os.O_WRONLY | os.O_RDWR))
        if writes and (tmp_path / "run" / "checkpoints" / "step_1").exists():
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), arguments[0])
        return function(*arguments)

    monkeypatch.setattr(fsops, "gate", gate)
    flags = ["--batch-size", "8", "--lora.rank", "2", "--eval.every", "0", "--checkpoint.every", "1", "--threads", "1"]
    flags += ["--run-dir", str(tmp_path / "run"), "--steps", "2"]
    assert main(["train", *flags]) == 1
    err = capsys.readouterr().err
    assert (
        "error: the file system is read-only" in err and "continue with --resume: nothing written before is lost" in err
    )
    monkeypatch.undo()
    assert main(["train", *flags, "--resume"]) == 0
    assert [row["step"] for row in MetricsFile.read(tmp_path / "run" / "metrics.jsonl")] == [1, 2]


@pytest.mark.slow
def test_few_open_files_are_told(tmp_path: Path) -> None:
    command = f"ulimit -n 128; exec '{sys.executable}' -m legos_train --steps 1 --run-dir '{tmp_path}/run'"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("error: mlx-lm needs a limit of 4096 open files; raise the hard limit (ulimit -Hn)")
    assert "Traceback" not in done.stderr and not (tmp_path / "run").exists()


def test_a_resumed_run_took_as_long_as_all_its_parts(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(small(run, steps=2, batch_size=2), quiet=True)
    rows = [json.loads(line) | {"seconds": 100.0} for line in (run / "metrics.jsonl").read_text().splitlines()]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    began = time.perf_counter()
    result = train(small(run, steps=3, batch_size=2), resume=True, quiet=True)
    took = time.perf_counter() - began
    assert 200 + MetricsFile.read(run / "metrics.jsonl")[-1]["seconds"] < result.seconds <= 200 + took


@pytest.mark.slow
def test_a_clock_that_jumps_changes_no_duration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The wall clock goes back an hour whenever it is read; durations are measured by another."""
    now = [4e9]

    def backwards() -> float:
        now[0] -= 3600
        return now[0]

    monkeypatch.setattr(time, "time", backwards)
    monkeypatch.setattr(time, "time_ns", lambda: int(backwards() * 1e9))
    began = time.perf_counter()
    result = train(small(tmp_path / "run", batch_size=2, logs={"progress": "plain"}, checkpoint={"every": 1}))
    took = time.perf_counter() - began
    rows = MetricsFile.read(tmp_path / "run" / "metrics.jsonl")
    for row in rows:
        assert all(0 <= row[name] <= took for name in row if name.startswith("seconds")), row
    assert 0 < sum(row["seconds"] for row in rows) <= result.seconds <= took
    assert json.loads((tmp_path / "run" / "result.json").read_text())["seconds"] == result.seconds
    assert "left" in capsys.readouterr().out


def test_a_path_in_a_text_is_written_as_the_file_system_has_it(tmp_path: Path) -> None:
    """Where the locale lacks a character, Python gives a path surrogates, which `str.encode` refuses."""
    fsops.write_text(tmp_path / "page.html", "run é".encode().decode("ascii", "surrogateescape"))
    assert (tmp_path / "page.html").read_text() == "run é"
