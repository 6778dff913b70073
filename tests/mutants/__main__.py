"""`python -m tests.mutants [--only NAME ...] [--jobs N] [--skip-baseline]`: tries every mutant and prints a table.

Exit code 0: all killed or equivalent. The tests of each must pass without it, which is tried first.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.trees import SURVIVED, Trees


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument(
        "--only", action="extend", nargs="+", metavar="NAME", help="names or patterns such as 'credit-*'"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="mutants side by side")
    parser.add_argument("--timeout", type=float, default=300.0, metavar="SECONDS", help="for the tests of one mutant")
    parser.add_argument("--skip-baseline", action="store_true", help="do not run the tests without mutants first")
    told = parser.parse_args()
    chosen = [m for m in MUTANTS if told.only is None or any(fnmatch(m.name, pattern) for pattern in told.only)]
    if not chosen:
        parser.error(f"no mutant is called {' or '.join(told.only)}; there are {', '.join(m.name for m in MUTANTS)}")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        trees = Trees(Path(folder), told.jobs, told.timeout)
        if not told.skip_baseline:
            failed = trees.baseline(sorted({test for m in chosen for test in m.tests.split()}))
            if failed is not None:
                print(f"the tests do not pass without mutants, so they would kill anything:\n{failed}")
                return 2
        found: list[tuple[Mutant, str]] = []
        for mutant, fate, seconds in trees.tried(chosen):
            found.append((mutant, fate))
            print(f"{fate:10} {seconds:6.1f} s  {mutant.name:40} {mutant.file}", flush=True)
    return report(found, time.monotonic() - began)


def report(found: list[tuple[Mutant, str]], seconds: float) -> int:
    """Prints what is left to do, and returns the exit code."""
    for mutant, fate in found:
        if fate == "equivalent":
            print(f"equivalent: {mutant.name}: {mutant.equivalent}")
        elif fate != "killed":
            print(f"{fate}: {mutant.name} ({mutant.file})\n    - {mutant.old}\n    + {mutant.new}\n    {mutant.why}")
            print(f"    not seen by {mutant.tests}" if fate == SURVIVED else f"    tests: {mutant.tests}")
    counts = Counter(fate for _, fate in found)
    print(", ".join(f"{count} {fate}" for fate, count in counts.most_common()) + f"; {seconds:.0f} s")
    return int(any(fate not in ("killed", "equivalent") for fate in counts))


if __name__ == "__main__":
    sys.exit(main())
