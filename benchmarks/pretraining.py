"""How long a bundled model takes to make, and what the second process gains.

    python -m benchmarks.pretraining [--recipe small] [--steps 10] [--one]

runs some steps of each stage of the recipe, texts included, with two processes, and prints wall-clock seconds a step
and the hours of all steps. `--one` runs the same rows with one process, too.
"""

from __future__ import annotations

import argparse
import time

import mlx.core as mx

from inference.forward import fastblas
from inference.loading import load_tokenizer, prepare_mlx
from legos_train.bootstrap import RECIPES, pretrain, recipe
from legos_train.bootstrap.tokenizer import ChatEncoder

WARM_UP = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", choices=list(RECIPES), default="small")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--one", action="store_true", help="also with one process")
    options = parser.parse_args()
    mx.set_default_device(mx.cpu)  # as `bootstrap` does
    prepare_mlx()
    fastblas.enable(1)
    made = RECIPES[options.recipe]
    tokenizer = load_tokenizer(options.recipe)
    encoder = ChatEncoder(tokenizer.backend_tokenizer)
    config = pretrain.model_config(len(tokenizer), made.shape)
    hours = dict.fromkeys((2, 1) if options.one else (2,), 0.0)
    print(f"{'stage':8}{'steps':>8}{'rows':>6}" + "".join(f"{f'{n} process' + 'es' * (n > 1):>14}" for n in hours))
    for number, stage in enumerate(made.stages):
        size = stage.batch_size or made.batch_size
        cells = ""
        for processes in hours:
            model = pretrain.new_model(config, 0)
            training = pretrain.Pretraining(model, [10**6], made.readers, 0, processes=processes)
            rows = recipe._rows(made, number, encoder, 0)
            with training.gradients:
                training.train(rows, size, WARM_UP)
                began = time.perf_counter()
                training.train(rows, size, WARM_UP + options.steps)
            seconds = (time.perf_counter() - began) / options.steps
            hours[processes] += seconds * stage.steps / 3600
            cells += f"{f'{seconds:.2f} s':>14}"
        print(f"{number + 1:<8}{stage.steps:8}{size:6}{cells}", flush=True)
    steps = sum(stage.steps for stage in made.stages)
    print(f"{'all':8}{steps:8}{'':6}" + "".join(f"{f'{total:.2f} h':>14}" for total in hours.values()))


if __name__ == "__main__":
    main()
