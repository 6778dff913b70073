"""Several ranks on MLX's ring do what one process does, and none outlives another by much."""

from __future__ import annotations

import json
import os
import queue
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from inference.files import tensors
from legos_train import ConfigError, Trainer, TrainingError, train
from legos_train.disk import MetricsFile
from legos_train.errors import RankLost
from legos_train.model import World, joined, rank_watch
from legos_train.model.gradients import loss_and_grad, prepare
from legos_train.model.lora import grad_norm
from legos_train.model.rank_watch import Watch
from legos_train.run import build
from tests.train.helpers import plain_loss, small

ROOT = Path(__file__).parents[2]
FILE = "adapters.safetensors"


def ranks(tmp_path: Path, *command: str) -> list[subprocess.Popen[str]]:
    """Two processes that find each other; `mlx.launch` sets the same variables."""
    with socket.create_server(("127.0.0.1", 0)) as a, socket.create_server(("127.0.0.1", 0)) as b:
        ports = [s.getsockname()[1] for s in (a, b)]
    hosts = tmp_path / "hosts.json"
    hosts.write_text(json.dumps([[f"127.0.0.1:{port}"] for port in ports]))
    return [
        subprocess.Popen(
            [sys.executable, "-m", *command],
            env={**os.environ, "MLX_HOSTFILE": str(hosts), "MLX_RANK": str(rank), "OPENBLAS_NUM_THREADS": "1"},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]


def ended(processes: list[subprocess.Popen[str]], timeout: float) -> list[tuple[int, str, str]]:
    try:
        said = [process.communicate(timeout=timeout) for process in processes]
        return [(p.returncode, out, err) for p, (out, err) in zip(processes, said, strict=True)]
    finally:
        for process in processes:
            process.kill()


def driven(folder: Path, what: str, second: int) -> dict[str, Any]:
    """What two ranks found, of which the second has to end with this code."""
    (code, _, error), (other, _, its_error) = ended(ranks(folder, "tests.train.ring_driver", str(folder), what), 120)
    assert code == 0, error
    assert other == second, its_error
    found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """What two ranks found in their runs, in which the second dies."""
    folder = tmp_path_factory.mktemp("ring")
    return folder, driven(folder, "runs", -9)


class Alone(World):
    """One rank whose others are not there: what it would send for a sum, it gets back."""

    def __init__(self, rank: int):
        self.rank, self.size = rank, 2

    def total(self, arrays: Mapping[str, mx.array]) -> dict[str, mx.array]:
        return dict(arrays)

    def total_numbers(self, numbers: Mapping[str, float]) -> dict[str, float]:
        return dict(numbers)

    def gather(self, data: bytes) -> list[bytes]:
        return [data, b"of the other"]


@pytest.mark.parametrize("chosen", [{"truncate_ratio": 2.0}, {"name": "gspo"}])
def test_what_two_ranks_compute_adds_up_to_the_gradient_of_one(trainer: Trainer, chosen: dict[str, Any]) -> None:
    """`test_gradients_of_two_ranks_are_those_of_one_with_the_whole_batch` has them sent, between processes."""
    policy, whole = trainer.parts.backend.policy, trainer.batch
    assert whole is not None
    for batch in (whole, whole.select(whole.sequence == whole.sequence[0])):
        settings = plain_loss(kl=0.1, entropy=0.01, **chosen)
        loss, own, _ = loss_and_grad(policy, prepare(policy, batch, settings), settings)
        parts = [
            loss_and_grad(policy, prepare(policy, batch, settings, world=world), settings, world=world)
            for world in (Alone(0), Alone(1))
        ]
        assert sum(part[0] for part in parts) == pytest.approx(loss, abs=1e-6)
        assert {n for _, grads, _ in parts for n in grads} == set(own)
        assert grad_norm({n: parts[0][1][n] + parts[1][1][n] - g for n, g in own.items()}) < 1e-6 * grad_norm(own)
        shares = [len(Alone(rank).part(batch)[0]) for rank in range(2)]
        assert sum(shares) == len(batch) and (min(shares) > 0) == (batch is whole)


def test_ranks_that_differ_are_named() -> None:
    with pytest.raises(TrainingError, match="the rank of rank 1 differs from rank 0's"):
        Alone(0).agree("the rank", b"0")


@pytest.fixture(scope="module")
def trainer() -> Iterator[Trainer]:
    """After two steps: from now on both factors of LoRA have a gradient."""
    one = Trainer(build(small(steps=2, batch_size=8)))
    one.step()
    one.step()
    yield one
    one.parts.close()


@pytest.mark.slow
def test_gradients_of_two_ranks_are_those_of_one_with_the_whole_batch(tmp_path: Path) -> None:
    found = driven(tmp_path, "gradients", 0)
    assert "the rank of rank 1 differs from rank 0's" in found["differs"]
    cases = found["gradients"]
    for name, case in cases.items():
        assert case["relative"] < 1e-6 and case["largest"] < 1e-6, (name, case)
        assert case["loss"] < 1e-6 and case["names"], (name, case)
        assert sum(case["shares"]) == case["tokens"], (name, case)
    assert min(cases["ppo"]["shares"]) > 0, "both ranks have work"
    assert min(cases["one turn"]["shares"]) == 0, "a rank without tokens takes part all the same"


@pytest.mark.slow
def test_a_run_of_two_ranks_is_that_of_one_and_rank_0_alone_writes_it(
    found: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder, facts = found
    assert facts["broken"] and facts["steps"] == facts["again"] == 3
    assert not (folder / "run_1").exists() and not (folder / "dies_1").exists()
    settings: dict[str, Any] = {"checkpoint": {"every": 1}, "league": {"mode": "fsp", "snapshot_every": 1}}
    train(small(tmp_path / "alone", steps=3, batch_size=24, **settings), quiet=True)
    alone, together = (MetricsFile.read(path / "metrics.jsonl") for path in (tmp_path / "alone", folder / "run_0"))
    assert [r["step"] for r in together] == [1, 2, 3] and together[1]["resumed_from"] == 1
    for a, b in zip(alone, together, strict=True):
        assert a["reward"] == b["reward"] and a["action_tokens"] == b["action_tokens"] and a["league"] == b["league"]
        assert a["loss"] == pytest.approx(b["loss"], abs=1e-5)
        assert a["grad_norm"] == pytest.approx(b["grad_norm"], rel=1e-4)
    own, ours = (tensors.from_bytes((p / "last" / FILE).read_bytes()) for p in (tmp_path / "alone", folder / "run_0"))
    off = {n: float(np.asarray(mx.max(mx.abs(w - ours[n])))) for n, w in own.items()}
    assert max(off.values()) < 1e-4, off


@pytest.mark.slow
def test_ranks_that_die_end_the_run(found: tuple[Path, dict[str, Any]]) -> None:
    facts = found[1]
    assert "rank" in facts["lost"] and "--resume" in facts["lost"] and facts["seconds"] < 10


@pytest.mark.slow
def test_a_rank_deep_in_its_own_work_ends_too(tmp_path: Path) -> None:
    processes = ranks(tmp_path, "tests.train.ring_driver", str(tmp_path), "sleep")
    assert processes[1].wait(60) == -9
    began = time.monotonic()
    (code, _, err), _ = ended(processes, 20)
    assert code == 1 and "rank 1 has ended" in err and time.monotonic() - began < 10


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_rank_of_the_command_line_ends_the_other_and_the_run_goes_on(victim: int, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = ["legos_train", "--run-dir", str(run), "--steps", "12", "--batch-size", "16", "--threads", "1"]
    command += ["--eval.every", "0", "--checkpoint.every", "2", "--lora.rank", "4"]
    processes = ranks(tmp_path, *command)
    end = time.monotonic() + 60
    while not (run / "checkpoints" / "step_2").exists():
        assert time.monotonic() < end and processes[0].poll() is None
        time.sleep(0.05)
    processes[victim].kill()
    began = time.monotonic()
    code, _, err = ended(processes, 20)[1 - victim]
    assert code == 1 and "Start all ranks again with --resume" in err and "Traceback" not in err
    assert time.monotonic() - began < 10
    (code, _, err), other = ended(ranks(tmp_path, *command, "--resume"), 120)
    assert code == other[0] == 0, err
    assert [r["step"] for r in MetricsFile.read(run / "metrics.jsonl")] == list(range(1, 13))


def test_a_watch_notices_the_end_of_its_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_watch, "GRACE", 600.0)  # after which a lost peer ends this process
    told: queue.Queue[bytes] = queue.Queue()

    def share(data: bytes) -> bytes:
        if data:
            told.put(data)
        return data or told.get(timeout=10)

    watches: dict[int, Watch] = {}
    begin = threading.Thread(target=lambda: watches.setdefault(0, Watch(0, 2, share)))
    begin.start()
    watches[1] = Watch(1, 2, share)
    begin.join(10)
    try:
        time.sleep(0.2)
        watches[0].check()
        watches[1].check()
        watches[1].close()
        end = time.monotonic() + 30
        while watches[0].lost is None and time.monotonic() < end:
            time.sleep(0.02)
        with pytest.raises(RankLost, match="rank 1 has ended"):
            watches[0].check()
        watches[1].check()  # it left by itself
    finally:
        watches[0].close()
        watches[1].close()


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_rank_whose_others_never_come_ends(interrupted: bool, tmp_path: Path) -> None:
    """It waited for ever, deaf to signals, when rank 0 was killed before the ring was there."""
    hosts = tmp_path / "hosts.json"
    with socket.create_server(("127.0.0.1", 0)) as a, socket.create_server(("127.0.0.1", 0)) as b:
        hosts.write_text(json.dumps([[f"127.0.0.1:{s.getsockname()[1]}"] for s in (a, b)]))
    code = f"from legos_train.model import ranks; ranks.MEET = {60 if interrupted else 1}; ranks.joined().__enter__()"
    environment = {**os.environ, "MLX_HOSTFILE": str(hosts), "MLX_RANK": "1"}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert "Start all ranks again with --resume" in process.stderr.readline()
            if interrupted:
                time.sleep(0.3)
                process.send_signal(signal.SIGINT)
            assert process.wait(10) == (-signal.SIGINT if interrupted else 1)
        finally:
            process.kill()


def test_a_process_on_its_own_is_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    with joined() as world:
        assert world is None
    monkeypatch.setenv("MLX_RANK", "1")  # as if started by hand, without the host file
    monkeypatch.delenv("MLX_HOSTFILE", raising=False)
    with pytest.raises(ConfigError, match="no other rank"), joined():
        pass


def test_asynchronous_generation_is_refused_on_several_ranks() -> None:
    class Ranks:
        rank = 0

    with pytest.raises(ConfigError, match=r"asynchronous\.enabled must be off"):
        Trainer(build(small(asynchronous={"enabled": True}), world=Ranks()))  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_documented_command_runs(tmp_path: Path) -> None:
    """With fewer steps, and in another folder."""
    [line] = re.findall(r"^mlx\.launch .*$", (ROOT / "docs/training.md").read_text(), re.MULTILINE)
    words = shlex.split(line.replace("runs/two", str(tmp_path / "run")))
    words[0] = str(Path(sys.executable).with_name(words[0]))
    words[words.index("python")] = sys.executable
    short = ["--steps", "2", "--batch-size", "16", "--eval.every", "0", "--threads", "1"]
    done = subprocess.run([*words, *short], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert (tmp_path / "run/result.json").exists(), done.stdout + done.stderr
    assert [row["step"] for row in MetricsFile.read(tmp_path / "run/metrics.jsonl")] == [1, 2]
