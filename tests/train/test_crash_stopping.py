"""The first Ctrl-C or SIGTERM ends a run cleanly, the second at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from legos_train.disk import MetricsFile, checkpoint
from legos_train.errors import Stopped
from legos_train.run.stopping import Stopping

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_asks(number: signal.Signals, code: int, capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(number)
    with Stopping() as stopping:
        stopping.check()
        os.kill(os.getpid(), number)
        time.sleep(0)  # the handler runs between two instructions
        assert stopping.asked
        with pytest.raises(Stopped, match=f"stopped by {number.name}") as caught:
            stopping.check()
    assert caught.value.exit_code == code
    assert "once more to end at once" in capfd.readouterr().err
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_at_once(second: signal.Signals) -> None:
    code = (
        "import time\nfrom legos_train.run.stopping import Stopping\n"
        "with Stopping() as stopping:\n"
        "    print('ready', flush=True)\n"
        "    while not stopping.asked: time.sleep(0.01)\n"
        "    print('asked', flush=True)\n"
        "    time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == b"asked\n"
    process.send_signal(second)
    process.communicate(timeout=10)
    assert process.returncode == -second


def test_outside_the_main_thread_signals_are_left_alone() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def work() -> None:
        with Stopping() as stopping:
            seen.append((signal.getsignal(signal.SIGINT), stopping.asked))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(before, False)]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM])
def test_a_run_stops_within_five_seconds_with_a_whole_checkpoint(tmp_path: Path, number: signal.Signals) -> None:
    flags = ["--steps", "500", "--batch-size", "16", "--threads", "1", "--lora.rank", "4", "--eval.every", "0"]
    command = [sys.executable, "-m", "legos_train.cli.main", "train", *flags, "--run-dir", str(tmp_path / "run")]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        rows = tmp_path / "run" / "metrics.jsonl"
        deadline = time.monotonic() + 120
        while len(MetricsFile.read(rows)) < 2:
            assert process.poll() is None and time.monotonic() < deadline, (
                "the run ended or hung before its second step"
            )
            time.sleep(0.02)
        process.send_signal(number)
        began = time.monotonic()
        output, _ = process.communicate(timeout=30)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert time.monotonic() - began < 5
    assert process.returncode == 128 + number, output
    assert "Traceback" not in output and "--resume" in output
    found = checkpoint.load_newest(tmp_path / "run" / "checkpoints")
    assert found is not None, "the steps done were not kept"
    steps = [row["step"] for row in MetricsFile.read(rows)]
    assert steps == list(range(1, len(steps) + 1)) and len(steps) >= 2
    assert [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()] == [f"step_{len(steps)}"]
    assert not (tmp_path / "run" / "result.json").exists(), "a stopped run is not a finished one"
