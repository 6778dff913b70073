"""A resumed run equals an uninterrupted one bit for bit, and a crash loses nothing that was reported."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import mlx.core as mx
import pytest

from legos_train import TrainConfig, train
from legos_train.cli.main import main
from legos_train.config import to_toml
from legos_train.disk import RunDirectory, checkpoint
from legos_train.errors import RunError
from legos_train.evaluation.trained_as import trained_args
from tests.train.helpers import digest, identify, small

RUN = [
    sys.executable,
    "-m",
    "legos_train.cli.main",
    "train",
    "--batch-size",
    "32",
    "--threads",
    "1",
    "--lora.rank",
    "4",
]
RUN += ["--eval.every", "4", "--checkpoint.every", "3", "--steps", "10"]


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow  # by default test_whole_state.py resumes bit for bit, test_crash_points.py kills
def test_ten_steps_equal_three_and_a_kill_and_seven(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    identify(whole)
    identify(broken)
    assert main([*RUN[3:], "--run-dir", str(whole)]) == 0  # here: a process changes nothing
    process = subprocess.Popen([*RUN, "--run-dir", str(broken)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (broken / "checkpoints" / "step_3").exists():
        assert process.poll() is None and time.monotonic() < deadline, "the run ended or hung before step 3"
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = len(lines(broken))
    assert before < 10, "the kill came too late to test anything"
    assert main([*RUN[3:], "--run-dir", str(broken), "--resume"]) == 0

    for name in ("adapter", "optimizer", "average", "best"):
        file = f"checkpoints/step_10/{name}.safetensors"
        assert digest(whole / file) == digest(broken / file), f"{name} differs after the resume"
    state = [json.loads((run / "checkpoints/step_10/state.json").read_text()) for run in (whole, broken)]
    assert state[0] == state[1]
    assert digest(whole / "adapter/adapters.safetensors") == digest(broken / "adapter/adapters.safetensors")

    resumed = lines(broken)
    assert [row["step"] for row in resumed] == list(range(1, 11))
    marked = [row["step"] for row in resumed if "resumed_from" in row]
    assert len(marked) == 1 and resumed[marked[0] - 1]["resumed_from"] == marked[0] - 1 >= 3
    unequal = {"seconds", "seconds_play", "seconds_pack", "seconds_learn", "seconds_publish", "tokens_per_second"}
    for a, b in zip(lines(whole), resumed, strict=True):
        b.pop("resumed_from", None)
        assert {k: v for k, v in a.items() if k not in unequal} == {k: v for k, v in b.items() if k not in unequal}


def test_arguments_that_are_none_are_those_of_the_resumed_run_too(tmp_path: Path) -> None:
    """TOML has no null, and what is left out is the default of the environment: another game."""
    options, held_out = {"deals": [1, None]}, {"id": "Nim-v0", "name": "other", "args": {"max_take": None}}
    envs = {"env": [{"id": "Nim-v0", "args": {"max_take": None}, "options": options}], "eval": {"env": [held_out]}}
    config = small(**envs)
    (tmp_path / "config.toml").write_text(to_toml(config))
    loaded = TrainConfig.load(tmp_path / "config.toml")
    assert loaded == config and loaded.envs[0].args == loaded.eval.env[0].arguments == {"max_take": None}
    assert loaded.envs[0].options == options
    (tmp_path / "config.toml").write_text(to_toml(small(env="Nim-v0", env_args={"max_take": None})))
    assert TrainConfig.load(tmp_path / "config.toml").envs[0].args == {"max_take": None}
    assert trained_args(str(tmp_path), "Nim-v0") == [{"max_take": None}], "who evaluates the run reads the file, too"


def test_resume_before_any_checkpoint_starts_at_zero_and_a_finished_run_stays_as_it_is(tmp_path: Path, capsys) -> None:
    config = small(tmp_path / "run", loss={"kl": 0.0})
    with RunDirectory(tmp_path / "run") as run:
        run.begin(to_toml(config))
    train(config, resume=True)
    said = capsys.readouterr().out
    assert "no checkpoint to resume from: starting at step 0" in said
    assert "the KL weight rises from 0 to 0.05, the default of loss.kl_end; --loss.kl-end none stops it" in said
    seen = {path: digest(path) for path in (tmp_path / "run").rglob("*") if path.is_file()}
    result = train(config, resume=True, quiet=True)
    assert result.steps == 2
    assert {path: digest(path) for path in (tmp_path / "run").rglob("*") if path.is_file()} == seen


def test_a_run_directory_is_not_overwritten_nor_shared(tmp_path: Path) -> None:
    config = small(tmp_path / "run", steps=1, batch_size=2)
    with RunDirectory(tmp_path / "run"), pytest.raises(RunError, match="in use"):
        train(config, quiet=True)
    train(config, quiet=True)
    with pytest.raises(RunError, match="already holds a run"):
        train(config, quiet=True)
    other = small(tmp_path / "run", steps=1, batch_size=64, optim={"lr": 1.0})
    with pytest.raises(RunError, match=r"\(batch_size: was 2, now 64; optim\.lr: was [\d.]+, now 1\.0\); use those it"):
        train(other, resume=True, quiet=True)


ARRAYS = {"adapter": {"a": mx.arange(6).astype(mx.float32)}}


@pytest.mark.slow
def test_a_run_goes_on_without_the_runs_that_it_began_from(tmp_path: Path) -> None:
    train(small(tmp_path / "first"), quiet=True)
    league = {"mode": "fsp", "pool_from": str(tmp_path / "first")}
    settings = {"init_adapter": str(tmp_path / "first"), "league": league, "checkpoint": {"every": 1}}
    train(small(tmp_path / "run", **settings), quiet=True)
    (tmp_path / "first").rename(tmp_path / "elsewhere")
    result = train(small(tmp_path / "run", steps=3, **settings), resume=True, quiet=True)
    assert result.steps == 3 and result.start != {}


def test_a_start_that_fails_leaves_no_run_behind(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="NoSuchGame"):
        train(small(tmp_path / "new", env="NoSuchGame-v0"), quiet=True)
    assert not (tmp_path / "new").exists()
    (tmp_path / "mine").mkdir()
    with pytest.raises(LookupError, match="NoSuchGame"):
        train(small(tmp_path / "mine", env="NoSuchGame-v0"), quiet=True)
    with RunDirectory(tmp_path / "mine") as run:
        assert not run.started


def test_checkpoints_are_pruned_and_the_newest_whole_one_is_loaded(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        checkpoint.save(tmp_path, step, ARRAYS, {"step": step}, keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step_2", "step_3"]
    (tmp_path / "step_3" / "adapter.safetensors").write_bytes(b"torn")
    found = checkpoint.load_newest(tmp_path)
    assert found is not None and found[1] == {"step": 2}
    assert (tmp_path / "step_3.corrupt").exists(), "a damaged checkpoint is set aside, not deleted"


@pytest.mark.parametrize("name", ["adapter.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("harm", ["flip", "truncate", "remove"])
def test_any_damage_is_found(tmp_path: Path, name: str, harm: str) -> None:
    checkpoint.save(tmp_path, 1, ARRAYS, {"step": 1}, keep=1)
    file = tmp_path / "step_1" / name
    data = bytearray(file.read_bytes())
    if harm == "remove":
        file.unlink()
    else:
        data[len(data) // 2] ^= 0x01
        file.write_bytes(bytes(data[: len(data) // 2] if harm == "truncate" else data))
    if name == "manifest.json" and harm == "flip":  # a flipped digit of a checksum, or of the JSON around it
        assert checkpoint.damage(tmp_path / "step_1")
    assert checkpoint.load_newest(tmp_path) is None


def test_every_failing_call_leaves_the_state_before_or_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails the n-th fsync or rename of a checkpoint with a full disk, for every n."""
    real = {name: getattr(os, name) for name in ("fsync", "rename")}
    for n in range(1, 20):
        root = tmp_path / str(n)
        checkpoint.save(root, 1, ARRAYS, {"step": 1}, keep=2)
        calls = 0

        def failing(name: str, at: int = n):
            def call(*args):
                nonlocal calls
                calls += 1
                if calls == at:
                    raise OSError(28, "No space left on device", str(args[0]))
                return real[name](*args)

            return call

        for name in real:
            monkeypatch.setattr(os, name, failing(name))
        try:
            checkpoint.save(root, 2, ARRAYS, {"step": 2}, keep=2)
            failed = False
        except OSError:
            failed = True
        monkeypatch.undo()
        found = checkpoint.load_newest(root)
        assert found is not None and found[1]["step"] in (1, 2)
        assert failed or found[1]["step"] == 2
        assert not list(root.glob(".tmp-*")), "a failed checkpoint leaves nothing behind"
        if not failed:
            assert n > 5, "the injected faults never fired"
            return
    pytest.fail("more calls than expected: raise the range")


@pytest.mark.slow
def test_a_full_disk_ends_the_run_with_a_message_and_loses_nothing(tmp_path: Path) -> None:
    """A real limit on file size (RLIMIT_FSIZE stands in for a full disk), then a resume with room."""
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "from legos_train.cli.main import main; from legos_train.disk import checkpoint; real = checkpoint.save\n"
        "def save(root, step, *a, **k):\n"
        "    if step == 4: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, resource.RLIM_INFINITY))\n"
        "    return real(root, step, *a, **k)\n"
        "checkpoint.save = save\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    flags = ["train", "--batch-size", "16", "--threads", "1", "--lora.rank", "4", "--eval.every", "0"]
    flags += ["--checkpoint.every", "2", "--steps", "4", "--run-dir", str(tmp_path / "run")]
    failed = subprocess.run([sys.executable, "-c", code, *flags], capture_output=True, text=True, timeout=120)
    assert failed.returncode == 1 and "error:" in failed.stderr and "Traceback" not in failed.stderr, failed.stderr
    assert checkpoint.damage(tmp_path / "run/checkpoints/step_2") is None
    assert main([*flags, "--resume"]) == 0
    assert [row["step"] for row in lines(tmp_path / "run")] == [1, 2, 3, 4]
