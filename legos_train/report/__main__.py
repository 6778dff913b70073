"""`python -m legos_train.report DIR ...`: the report of a run again, also of one that goes on; several are compared."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from legos_train.cli import explained, message, parser


def main(arguments: Sequence[str] | None = None) -> int:
    p = parser(
        "report",
        "Writes DIR/report.html and DIR/figures/*.svg from the files of a run, finished or not.\n"
        "With several runs also compare.html, into the first.",
    )
    p.prog = "python -m legos_train.report"
    p.add_argument("dir", nargs="+", type=Path, metavar="DIR", help="a run directory")
    p.add_argument(
        "--png", action="store_true", help="also figures/*.png (needs Chromium or Chrome, or the extra `png`)"
    )
    options = p.parse_args(arguments)
    from legos_train.report import report_again, write_comparison, write_pngs

    try:
        for path in options.dir:
            print(f"wrote {report_again(path)}")
            if options.png:
                print(f"wrote {len(write_pngs(path / 'figures'))} PNG files into {path / 'figures'}")
        if len(options.dir) > 1:
            print(f"wrote {write_comparison(options.dir)}")
    except (ValueError, RuntimeError, OSError) as error:
        if not explained(error) and type(error) is not RuntimeError:
            raise
        print(f"error: {message(error)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
