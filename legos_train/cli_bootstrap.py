"""`legos bootstrap`: remake the bundled model from the texts of the registered environments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from legos_train.cli import parser


def run(arguments: Sequence[str]) -> int:
    p = parser("bootstrap", "Remake the bundled model `tiny`: fixed steps and seeds, no data from outside.")
    p.add_argument("out", type=Path, help="directory to write the model to")
    p.add_argument("--steps", type=int, help="pretraining steps (default: the recipe's)")
    p.add_argument("--seed", type=int, default=0)
    options = p.parse_args(arguments)
    from legos_train.bootstrap import bootstrap

    steps = {} if options.steps is None else {"steps": options.steps}
    bootstrap(options.out, seed=options.seed, **steps)
    return 0
