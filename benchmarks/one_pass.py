"""What one pass over the base model for several learners would save: the gradient of eight batches, one after the
other, against that of all their rows at once.

    python -m benchmarks.one_pass --env TicTacToe-v0 --games 256

Rows of different learners meet in the matrix products of the base model only: after the first adapter every activation
differs. So both sides compute whole rows, without shared beginnings, and the joint side uses a single adapter, which
makes its result the best that a joint pass could do: products with eight adapters would come on top. The third number
is what learners do: one after the other, each with its own shared beginning.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np

from legos_train import Trainer
from legos_train.config import from_dict
from legos_train.loss import objective
from legos_train.loss.batch import Batch
from legos_train.run import build


def together(batch: Batch, learners: int) -> Batch:
    """The rows of a batch as often as there are learners, without a shared beginning."""
    places = ("position", len(batch.rows)), ("rows", batch.distinct_rows), ("row", batch.distinct_rows)
    numbered = {name: [getattr(batch, name) + k * size for k in range(learners)] for name, size in places}
    numbered["sequence"] = [batch.sequence + k * (int(batch.sequence.max()) + 1) for k in range(learners)]
    same = ("lengths", "cols", "target", "old_logprobs", "advantages", "sequence_length", "trajectory", "version")
    repeated = {name: [getattr(batch, name)] * learners for name in (*same, "legal", "weight", "tokens")}
    arrays: dict[str, Any] = {name: np.concatenate(each) for name, each in {**repeated, **numbered}.items()}
    return replace(batch, prefix=0, keys=batch.keys * learners, **arrays)


def seconds(compute: Callable[[], Any], repeats: int) -> float:
    """CPU seconds of one call, without the first."""
    compute()
    began = time.process_time()
    for _ in range(repeats):
        compute()
    return (time.process_time() - began) / repeats


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--env", default="TicTacToe-v0")
    p.add_argument("--model", default="tiny")
    p.add_argument("--games", type=int, default=256, help="of all learners together")
    p.add_argument("--learners", type=int, default=8)
    p.add_argument("--repeats", type=int, default=3)
    options = p.parse_args()
    games = options.games // options.learners
    off: dict[str, Any] = {"eval": {"every": 0}, "checkpoint": {"every": 0}, "loss": {"kl": 0.0}}
    trainer = Trainer(build(from_dict({"env": options.env, "model": options.model, "batch_size": games, **off})))
    trainer.step()
    batch, policy, loss = trainer.batch, trainer.learner.backend.policy, trainer.config.loss
    assert isinstance(batch, Batch)

    def gradient(rows: Batch) -> None:
        mx.eval(policy.value_and_grad(rows, partial(objective, batch=rows, settings=loss, reference=None)))

    joint, apart = together(batch, options.learners), replace(batch, prefix=0)
    sides = {
        "one after the other": lambda: [gradient(apart) for _ in range(options.learners)],
        "all rows at once": lambda: gradient(joint),
        "one after the other, shared beginnings": lambda: [gradient(batch) for _ in range(options.learners)],
    }
    print(f"{options.learners} learners, {batch.distinct_rows} rows of {batch.tokens.shape[1]} tokens each")
    spent = {name: seconds(compute, options.repeats) for name, compute in sides.items()}
    for name, value in spent.items():
        print(f"{name:40} {value:7.3f} CPU-s  {spent['one after the other'] / value:5.2f} x")
    trainer.parts.close()


if __name__ == "__main__":
    main()
