"""`legos bootstrap`: remake the bundled model from the texts of the registered environments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from legos_train.cli.arguments import Parser

DESCRIPTION = """Remake the bundled model `tiny`: tokenizer, chat template and weights, by fixed steps and seeds.

No outside data is used: the texts are random play in every registered environment. The full recipe takes
1500 steps; with fewer it still works, but the model is worse."""
EXAMPLES = """
legos bootstrap my_tiny                   # the full recipe
legos bootstrap my_tiny --steps 20        # a quick look at what it makes
legos train --model my_tiny --steps 20    # use the new model like any other
"""


def make_parser() -> Parser:
    p = Parser("bootstrap", DESCRIPTION, EXAMPLES)
    p.add_argument("out", type=Path, metavar="OUT", help="folder to write the model to; it must not hold one yet")
    p.add_argument("--measure", action="store_true", help="OUT is a model: print how well it plays legally")
    p.value("--steps", type=int, metavar="N", help="pretraining steps (default: 1500)")
    p.value("--seed", type=int, default=0, metavar="S", help="seed of texts and weights")
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
