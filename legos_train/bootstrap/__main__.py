"""`python -m legos_train.bootstrap make OUT_DIR` and `python -m legos_train.bootstrap measure MODEL_DIR`."""

from __future__ import annotations

import argparse
import sys

from legos_train.bootstrap import STEPS, bootstrap


def main(arguments: list[str] | None = None) -> int:
    """Run one of the two commands; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m legos_train.bootstrap", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("make", help="make a model folder from nothing")
    make.add_argument("out_dir")
    make.add_argument("--steps", type=int, default=STEPS)
    make.add_argument("--seed", type=int, default=0)
    measure = commands.add_parser("measure", help="exact illegal mass and evenness in every solvable environment")
    measure.add_argument("model_dir")
    given = parser.parse_args(arguments)
    if given.command == "make":
        try:
            folder = bootstrap(given.out_dir, given.steps, given.seed)
        except (FileExistsError, ValueError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        print(f"wrote {folder}")
    else:
        from legos_train.bootstrap.measure import report_evenness

        print(report_evenness(given.model_dir))
    return 0


if __name__ == "__main__":
    sys.exit(main())
