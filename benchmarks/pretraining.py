"""Pretraining a bundled model by two processes against one.

    python -m benchmarks.pretraining [--recipe small] [--steps 12] [--rounds 3]

prints wall-clock seconds a step in the first and in the longest rows of the recipe, and how many times as fast two
processes are. Both take the same rows, in turns; medians of the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from itertools import islice

from inference.forward import fastblas
from inference.loading import load_tokenizer, prepare_mlx
from legos_train.bootstrap import RECIPES, pretrain, recipe
from legos_train.bootstrap.tokenizer import ChatEncoder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", choices=list(RECIPES), default="small")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    prepare_mlx()
    fastblas.enable(1)
    made = RECIPES[options.recipe]
    tokenizer = load_tokenizer(options.recipe)
    encoder = ChatEncoder(tokenizer.backend_tokenizer)
    longest = max(range(len(made.stages)), key=lambda stage: made.stages[stage].limit)
    print(f"{'stage':6}{'rows':>6}{'one, s':>10}{'two, s':>10}{'times as fast':>16}")
    for stage in dict.fromkeys((0, longest)):
        size = made.stages[stage].batch_size or made.batch_size
        rows = list(islice(recipe._rows(made, stage, encoder, 0), size * options.steps))
        config = pretrain.model_config(len(tokenizer), made.shape)
        sides = [
            pretrain.Pretraining(
                pretrain.new_model(config, 0), [10**6], made.readers, 0, made.buckets, processes=processes
            )
            for processes in (1, 2)
        ]
        took: tuple[list[float], list[float]] = [], []
        with sides[1].gradients:
            for training in sides:  # warms up
                training.train(iter(rows), size, 1)
            for _ in range(options.rounds):
                for training, times in zip(sides, took, strict=True):
                    began = time.perf_counter()
                    training.train(iter(rows), size, training.step + options.steps)
                    times.append((time.perf_counter() - began) / options.steps)
        one, two = map(statistics.median, took)
        print(f"{stage + 1:<6}{size:6}{one:10.2f}{two:10.2f}{one / two:16.2f}", flush=True)


if __name__ == "__main__":
    main()
