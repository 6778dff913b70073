"""What the terminal or the pipe behind a command is like does not decide whether it works."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

LEGOS = [sys.executable, "-m", "legos_train"]
TOURNAMENT = ["tournament", "Nim-v0", "-m", "random", "-m", "optimal", "-n", "8", "--no-leaderboard"]


@pytest.mark.slow
def test_an_encoding_that_lacks_characters_costs_those_characters() -> None:
    """Intervals have a plus-minus sign."""
    done = subprocess.run(
        [*LEGOS, *TOURNAMENT], capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}, timeout=60
    )
    assert done.returncode == 0 and b"?" in done.stdout, done.stderr


@pytest.mark.slow
def test_a_closed_output_is_no_failure() -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", '"$@" >&-', "sh", *LEGOS, "eval", "Nim-v0", "-m", "random", "-n", "2"],
        stderr=subprocess.PIPE,
        timeout=60,
    )
    assert done.returncode == 0 and b"Traceback" not in done.stderr


@pytest.mark.parametrize("closed", [*(pytest.param(one, marks=pytest.mark.slow) for one in ("<&-", ">&-")), "2>&-"])
def test_a_closed_stream_is_no_file_of_the_model(closed: str, tmp_path: Path) -> None:
    """With fd 0 closed the next file was number 0, which MLX took for a failure; without stdout nothing trained."""
    verb = "eval KuhnPoker-v0 -m tiny --opponent random -n 2 --out out" if closed == "<&-" else "envs list"
    if closed == ">&-":
        verb = "train --steps 1 --batch-size 2 --eval.every 0 --eval.games 2 --run-dir out --lora.rank 2"
    command = f'"$@" {closed}'
    done = subprocess.run(
        ["/bin/sh", "-c", command, "sh", *LEGOS, *verb.split()], capture_output=True, cwd=tmp_path, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert verb == "envs list" or any((tmp_path / "out").iterdir())


def test_input_that_is_no_text_is_read_as_far_as_it_is() -> None:
    utf8 = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [*LEGOS, "play", "Nim-v0", "--opponent", "random"], input=b"h\xe4\n", capture_output=True, env=utf8, timeout=60
    )
    assert b"Traceback" not in done.stderr and b"no more input" in done.stdout + done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_behind_the_output_is_said_once() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*LEGOS, "envs", "list"], stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: the disk is full") and b"ignored" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["connection", "reader"])
def test_a_lost_connection_leaves_a_checkpoint(tmp_path: Path, lost: str) -> None:
    """SIGHUP, and a pipe whose reader ended, took everything since the last checkpoint without a word."""
    run = tmp_path / "run"
    settings = ["--env", "Nim-v0", "--steps", "2000", "--batch-size", "2", "--eval.every", "0", "--eval.games", "2"]
    command = [*LEGOS, "train", *settings, "--checkpoint.every", "0", "--run-dir", str(run), "--logs.progress", "plain"]
    rows = run / "metrics.jsonl"
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        while not rows.exists() or rows.read_text().count("\n") < 3:
            assert process.poll() is None
            time.sleep(0.1)
        if lost == "connection":
            process.send_signal(signal.SIGHUP)
            process.communicate(timeout=60)
        else:
            process.stdout.close()
        assert process.wait(60) == (129 if lost == "connection" else 141)
    last = json.loads(rows.read_text().splitlines()[-1])["step"]
    (kept,) = (run / "checkpoints").iterdir()
    assert int(kept.name.removeprefix("step_")) in (last, last - (lost == "reader")), (
        "a row is written before it is shown"
    )
