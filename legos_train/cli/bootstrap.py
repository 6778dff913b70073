"""`legos bootstrap`: rebuild a bundled model from the texts of the registered environments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from inference.types import BUNDLED
from legos_train.cli.arguments import Parser

DESCRIPTION = """Rebuild a bundled model: tokenizer, chat template and weights, with fixed steps and seeds.

No outside data is used. `tiny` is trained on random play in four games (six minutes on one core); `small` on every
registered environment, played by mixtures of its scripted players (about two hours on two cores).
With fewer steps the model still works, but is worse. To continue an interrupted run, repeat the same command."""
EXAMPLES = """
legos bootstrap my_tiny                   # the full recipe of `tiny`
legos bootstrap my_small --recipe small   # a base for all environments, yours included
legos bootstrap my_tiny --steps 20        # a quick look at the result
legos bootstrap my_small --played         # its legality and returns in every environment
legos train --model my_tiny --steps 20    # use the new model like any other
"""


def make_parser() -> Parser:
    p = Parser("bootstrap", DESCRIPTION, EXAMPLES)
    p.add_argument("out", type=Path, metavar="OUT", help="folder for the model; it must not already contain one")
    p.add_argument(
        "--measure", action="store_true", help="do not train; print the model's exact probability of an illegal answer"
    )
    p.add_argument("--played", action="store_true", help="do not train; play every environment with the model in OUT")
    p.add_argument("--recipe", choices=BUNDLED, default=BUNDLED[0], help="which model to make (default: %(default)s)")
    p.value("--steps", type=int, metavar="N", help="pretraining steps (default: the recipe's)")
    p.number(
        "--processes",
        least=1,
        most=2,
        help="1 or 2; the result is the same (default: as many as there are idle CPUs)",
    )
    p.value("--seed", type=int, default=0, metavar="S", help="seed of the texts and the weights")
    return p


def run(arguments: Sequence[str]) -> int:
    options = make_parser().parse_args(arguments)
    if options.measure:
        from legos_train.bootstrap import report_evenness

        print(report_evenness(options.out))
        return 0
    if options.played:
        from legos_train.bootstrap import report_played

        for line in report_played(options.out):
            print(line, flush=True)
        return 0
    from inference.forward import threads
    from legos_train.bootstrap import bootstrap

    processes = options.processes or min(2, threads.idle_cpus())
    bootstrap(options.out, options.steps, options.seed, processes=processes, recipe=options.recipe)
    return 0
