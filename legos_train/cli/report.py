"""`legos report`: rewrites the report of a run, finished or not, and compares several runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from legos_train.cli.arguments import Parser

DESCRIPTION = """Rewrite DIR/report.html and DIR/figures/*.svg from the files of a run, finished or not.
Given several runs, also write compare.html into the first."""
EXAMPLES = """
legos report runs/kuhn
legos report runs/kuhn runs/kuhn_fsp --png      # both reports and a comparison
"""


def make_parser() -> Parser:
    p = Parser("report", DESCRIPTION, EXAMPLES)
    p.add_argument("dir", nargs="+", type=Path, metavar="DIR", help="a run directory")
    p.add_argument(
        "--png", action="store_true", help="also write figures/*.png (needs Chromium or Chrome, or the extra `png`)"
    )
    return p


def run(arguments: Sequence[str]) -> int:
    options = make_parser().parse_args(arguments)
    from legos_train.observe.report import report_again, write_comparison, write_pngs

    for path in options.dir:
        print(f"wrote {report_again(path)}")
        if options.png:
            print(f"wrote {len(write_pngs(path / 'figures'))} PNG files into {path / 'figures'}")
    if len(options.dir) > 1:
        print(f"wrote {write_comparison(options.dir)}")
    return 0
