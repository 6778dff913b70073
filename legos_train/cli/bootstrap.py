"""`legos bootstrap`: remake the bundled model from the texts of the registered environments."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from legos_train.cli.main import parser

DESCRIPTION = """Remake the bundled model `tiny`: tokenizer, chat template and weights, by fixed steps and seeds.

No data comes from outside: the texts are random play of every registered environment. The full recipe is
1500 steps; fewer show that it works and make a worse model."""
EXAMPLES = """
legos bootstrap my_tiny                   # the whole recipe
legos bootstrap my_tiny --steps 20        # a quick look at what it makes
legos train --model my_tiny --steps 20    # the new model is used like any other
"""


def make_parser() -> argparse.ArgumentParser:
    p = parser("bootstrap", DESCRIPTION, EXAMPLES)
    p.add_argument("out", type=Path, metavar="OUT", help="folder to write the model to; it must not hold one already")
    p.add_argument("--measure", action="store_true", help="OUT is a model: print how well it plays legally")
    p.add_argument("--steps", type=int, metavar="N", help="pretraining steps (default: 1500)")
    p.add_argument("--seed", type=int, default=0, metavar="S", help="of texts and weights (default: %(default)s)")
    return p


def run(arguments: Sequence[str]) -> int:
    options = make_parser().parse_args(arguments)
    if options.measure:
        from legos_train.bootstrap import report_evenness

        print(report_evenness(options.out))
        return 0
    from legos_train.bootstrap import bootstrap

    steps = {} if options.steps is None else {"steps": options.steps}
    bootstrap(options.out, seed=options.seed, **steps)
    return 0
