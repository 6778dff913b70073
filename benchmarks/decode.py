"""The engine of this checkout against that of another, on random models in the shapes of the bundled ones and a larger.

    python -m benchmarks.decode DIR [--rounds 21] [--rows 1,8,64]

prints CPU milliseconds for that many requests at once, 32 + 64 tokens each at temperature 1, on this checkout and on
the one in DIR, and how many times as fast this one is. The two take turns, each in its own process with the packages of
this environment. Medians.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

SHAPES = {"tiny": (128, 2, 2048), "small": (192, 3, 2048), "4m": (256, 4, 2048)}
"""Hidden size, layers and vocabulary."""
PROMPT, NEW = 32, 64


def worker(shape: str) -> None:
    """Answers that many requests for every number that comes in, with CPU seconds."""
    from benchmarks.engine import NEVER, anew, texts
    from benchmarks.models import random_model
    from inference import Engine, Request, SamplingParams
    from inference.loading import prepare_mlx

    prepare_mlx()
    engine = Engine(random_model(*SHAPES[shape]), None)
    for line in sys.stdin:
        prompts = texts(int(line), PROMPT)
        params = [SamplingParams(max_tokens=NEW, stop_ids=NEVER, seed=seed) for seed in range(len(prompts))]
        requests = [Request(*one) for one in zip(prompts, params, strict=True)]
        began = time.process_time()
        anew(engine, requests)
        print(time.process_time() - began, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("against", type=Path, help="the other checkout")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--rows", default="1,8,64", help="requests at once, separated by commas")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker(options.worker)
    from benchmarks.play import Checkout  # not in older checkouts, where workers run

    print(f"{'shape':8}{'rows':>6}{'this, ms':>12}{'other, ms':>12}{'times as fast':>16}")
    for shape in SHAPES:
        trees = [tree.resolve() for tree in (Path(__file__).parents[1], options.against)]
        sides = [Checkout(tree, __file__, str(tree), "--worker", shape) for tree in trees]
        for rows in map(int, options.rows.split(",")):
            took: tuple[list[float], list[float]] = [], []
            for number in range(options.rounds + 1):
                for i in (0, 1) if number % 2 else (1, 0):
                    took[i].append(1e3 * float(sides[i].ask(str(rows))))
            ours, other = (statistics.median(one[1:]) for one in took)  # the first round warms up
            print(f"{shape:8}{rows:6}{ours:12.1f}{other:12.1f}{other / ours:16.2f}", flush=True)
        for side in sides:
            side.close()


if __name__ == "__main__":
    main()
