"""The cost of generation over HTTP: a step of Kuhn poker here and through one `legos serve` on this machine.

    python -m benchmarks.remote --steps 6

Both runs take turns step by step, so that they see the same machine. "here" plays on the engine of this process. The
client's CPU time covers all threads of this process while it plays, per turn; in process it includes the engine, over
HTTP it does not.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.servers import Server
from legos_train import TrainConfig, Trainer
from legos_train.run import build


@contextmanager
def serving(count: int, folder: Path) -> Iterator[tuple[str, ...]]:
    """The addresses of so many `legos serve` on this machine."""
    command = [sys.executable, "-m", "legos_train", "serve"]
    servers = [Server(command, folder / f"log{number}", "tiny") for number in range(count)]
    try:
        for server in servers:
            server.wait()
        yield tuple(f"http://127.0.0.1:{server.port}" for server in servers)
    finally:
        for server in servers:
            server.stop()


def trainer(batch: int, urls: tuple[str, ...]) -> Trainer:
    config = TrainConfig.model_validate(
        {"batch_size": batch, "threads": 1, "eval": {"every": 0}, "checkpoint": {"every": 0}, "server": {"urls": urls}}
    )
    return Trainer(build(config))


def play(trainer: Trainer, step: int) -> tuple[float, float, int]:
    """Seconds, processor seconds of this process, and turns of one batch of games."""
    began, cpu = time.perf_counter(), time.process_time()
    episodes = trainer.play(step)
    spent = time.perf_counter() - began, time.process_time() - cpu
    turns = sum(len(t.turns) for episode in episodes for t in episode.trajectories.values())
    return *spent, turns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=6, help="measured steps of each (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=512, help="games per step (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, serving(1, Path(folder)) as urls:
        runs = {"here": trainer(options.batch, ()), "HTTP": trainer(options.batch, urls)}
        rows: dict[str, list[tuple[float, float, int]]] = {name: [] for name in runs}
        for step in range(options.steps + 1):
            for name, run in runs.items():
                rows[name].append(play(run, step + 1))
        for run in runs.values():
            run.parts.close()
    print("          seconds a step   ms of CPU a turn   turns a step")
    for name, found in rows.items():
        seconds = statistics.median(row[0] for row in found[1:])
        cpu = statistics.median(1000 * row[1] / row[2] for row in found[1:])
        print(f"{name:8}  {seconds:14.3f}   {cpu:16.3f}   {found[-1][2]:12}")
    ratio = statistics.median(b[0] / a[0] for a, b in list(zip(rows["here"], rows["HTTP"], strict=True))[1:])
    print(f"a step over HTTP takes {ratio:.1f} times as long (median of steps side by side)")


if __name__ == "__main__":
    main()
