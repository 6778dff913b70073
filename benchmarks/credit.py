"""Credit methods compared in self-play, with and without KL regularisation: how does the advantage affect the outcome?

    python -m benchmarks.credit --out credit.jsonl              # both parts; the same command resumes
    python -m benchmarks.credit --out credit.jsonl --part tabular
    python -m benchmarks.credit --out credit.jsonl --report     # markdown tables of what is there

Part `tabular`: softmax tables on Kuhn and Leduc poker, Nim and a lopsided matrix game, 10 seeds; about ten CPU minutes.
Part `tiny`: the bundled model through `legos_train.train` on Kuhn poker and the lopsided game, 3 seeds; about a minute
a run, 72 runs. Every finished cell is one line of the file; finished cells are not run again, so an interrupted run
resumes where it stopped. See `docs/credit.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks import credit_tabular
from benchmarks.credit_games import GAMES, LOPSIDED, Arrays
from benchmarks.credit_report import tables

TINY_METHODS = ("none", "joint GRPO", "RAE", "per-role", "turn-level", "(agent, turn)")
TINY_GAMES: dict[str, dict[str, Any]] = {
    "kuhn": {"id": "KuhnPoker-v0"},
    "lopsided": {
        "id": "MatrixGame-v0",
        "args": {
            "payoffs": [[list(row) for row in table] for table in LOPSIDED],
            "actions": ["rock", "paper", "scissors"],
        },
    },
}
TINY = {"steps": 100, "batch": 256}
SEEDS = {"tabular": 10, "tiny": 3}
KEY = ("part", "game", "method", "kl", "seed", "setup")
Cell = dict[str, Any]


def read(path: Path) -> list[Cell]:
    """The finished cells; a last line that was cut off by a crash is removed from the file."""
    if not path.exists():
        return []
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        os.truncate(path, len(whole))
    return [json.loads(line) for line in whole.splitlines()]


def key(cell: Cell) -> str:
    return json.dumps([cell[name] for name in KEY], sort_keys=True)


def append(path: Path, cell: Cell) -> None:
    with path.open("a") as file:
        file.write(json.dumps(cell) + "\n")
        file.flush()
        os.fsync(file.fileno())


def grid(args: argparse.Namespace) -> Iterator[tuple[Cell, Callable[[], Cell]]]:
    """Every cell that was asked for, seeds in the outermost loop, with what runs it."""
    for part in args.part:
        tabular = part == "tabular"
        setup: dict[str, float] = (
            {"updates": args.updates, "batch": credit_tabular.BATCH, "rate": args.rate} if tabular else dict(TINY)
        )
        games = [g for g in (GAMES if tabular else TINY_GAMES) if g in (args.games or GAMES)]
        methods = args.methods or (credit_tabular.METHODS if tabular else TINY_METHODS)
        arrays = {game: Arrays(game) for game in games} if tabular else {}
        seeds = range(SEEDS[part] if args.seeds is None else args.seeds)
        for seed, game, method, kl in product(seeds, games, methods, (False, True)):
            cell = {"part": part, "game": game, "method": method, "kl": kl, "seed": seed, "setup": setup}
            if tabular:
                yield cell, partial(credit_tabular.run, arrays[game], method, kl, seed, args.updates, args.rate)
            else:
                yield cell, partial(run_tiny, game, method, kl, seed)


def run_tiny(game: str, method: str, kl: bool, seed: int) -> Cell:
    """One run of the trainer with the bundled model; everything not named here is the default.

    A run that the trainer gave up has `last` None and `failed`, which says why.
    """
    from legos_train import TrainingError, train
    from legos_train.config import from_dict

    name, options, group = credit_tabular.METHODS[method]
    settings = {"pseudo_count" if option == "k" else option: value for option, value in options.items()}
    with tempfile.TemporaryDirectory() as root:
        config = from_dict(
            {
                "env": [TINY_GAMES[game]],
                "steps": TINY["steps"],
                "batch_size": TINY["batch"],
                "group_size": group,
                "seed": seed,
                "run_dir": Path(root) / "run",
                "credit": {"name": name, **settings},
                "loss": {} if kl else {"kl": 0.0, "kl_end": None},
                "eval": {"every": 0},
                "checkpoint": {"every": 0},
            }
        )
        try:
            result: Any = train(config=config, quiet=True)
        except TrainingError as error:  # kept as a failure, so that the other cells still run and the report says so
            return {"start": None, "last": None, "average": None, "failed": str(error)}
    return {
        weights: {"nash_conv": float(found["nash_conv"])} if (found := getattr(result, weights)) else None
        for weights in ("start", "last", "average")
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one per finished cell")
    parser.add_argument("--part", nargs="+", choices=list(SEEDS), default=list(SEEDS))
    parser.add_argument("--games", nargs="+", choices=list(GAMES))
    parser.add_argument("--methods", nargs="+", choices=list(credit_tabular.METHODS))
    parser.add_argument("--seeds", type=int, help="number of seeds, from 0 (10 for tabular, 3 for tiny)")
    parser.add_argument("--updates", type=int, default=credit_tabular.UPDATES, help="updates of a tabular run")
    parser.add_argument("--rate", type=float, default=credit_tabular.RATE, help="learning rate of a tabular run")
    parser.add_argument("--report", action="store_true", help="print tables of the finished cells, run nothing")
    args = parser.parse_args()
    cells = read(args.out)
    if args.report:
        print(tables(cells, list(credit_tabular.METHODS)))
        return
    finished = {key(cell) for cell in cells}
    for cell, run in grid(args):
        if key(cell) in finished:
            continue
        began = time.process_time()
        cell |= run()
        cell["cpu_seconds"] = round(time.process_time() - began, 2)
        append(args.out, cell)
        last = cell["last"]["nash_conv"] if cell["last"] else float("nan")
        print(
            f"{cell['part']} {cell['game']} {cell['method']} kl={cell['kl']} seed={cell['seed']}: {last:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
