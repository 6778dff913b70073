"""Runs the measurements of our promises, and prints the list of promises with the latest figures.

    python -m benchmarks.reliability --quick            # some minutes
    python -m benchmarks.reliability --full             # hours, the soak alone one
    python -m benchmarks.reliability --only kills soak --full
    python -m benchmarks.reliability                    # measures nothing: prints the list

The latest figure of each measurement is kept in `docs/reliability.json`; a quick figure never replaces a full one. The
list is also written to `docs/reliability.md`, between its marks. Exit code 1 if a measurement misses its bar.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.promises import MEASUREMENTS, PROMISES, Measurement

DOCS = Path(__file__).parent.parent / "docs"
BEGIN, END = "<!-- promises: written by python -m benchmarks.reliability -->\n", "<!-- end of promises -->"


def measured(name: str, one: Measurement, full: bool) -> dict[str, Any]:
    """Runs a measurement in a process of its own, and returns what is kept of it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "found.json"
        words = (one.full if full else one.quick).replace("JSON", str(file))
        print(f"--- {name}: python -m {words}", flush=True)
        began = time.monotonic()
        line = ""
        with subprocess.Popen([sys.executable, "-m", *words.split()], stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout or ():
                print(line, end="", flush=True)
        status = process.returncode
        found = json.loads(file.read_text()) if file.exists() else None
        made = found is not None or "JSON" not in words
        figure = one.figure(found, line.strip()) if made else f"exit code {status}"
    return {
        "figure": figure if status == 0 else f"**missed**: {figure}",
        "how": "full" if full else "quick",
        "command": f"python -m {(one.full if full else one.quick).replace(' --json JSON', '')}",
        "date": datetime.date.today().isoformat(),
        "seconds": round(time.monotonic() - began),
        "passed": status == 0,
    }


def table(kept: dict[str, dict[str, Any]]) -> str:
    """All promises by area, each with what holds it and the last figure, as Markdown."""
    lines: list[str] = []
    for area, rows in PROMISES.items():
        lines += [f"**{area}**", "", "| promise | held by | last measured |", "|---|---|---|"]
        for row in rows:
            names = [name for name in row.measured_by if name in kept]
            figures = [f"{kept[name]['figure']} ({kept[name]['how']}, {kept[name]['date']})" for name in names]
            held = [f"`{test}`" for test in row.tests]
            held += [f"`python -m {MEASUREMENTS[name].full.replace(' --json JSON', '')}`" for name in row.measured_by]
            lines.append(f"| {row.text} | {'; '.join(held)} | {'; '.join(figures)} |")
        lines.append("")
    return "\n".join(lines)


def written(page: str, kept: dict[str, dict[str, Any]]) -> str:
    """The page with the list between its marks.

    Raises:
        ValueError: the page lacks the marks.
    """
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks the marks {BEGIN.strip()} and {END}")
    return f"{head}{begin}\n{table(kept)}{end}{tail}"


def main() -> int:
    """The command of the module text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--quick", action="store_true")
    how.add_argument("--full", action="store_true")
    parser.add_argument("--only", nargs="+", choices=list(MEASUREMENTS), metavar="NAME", help=", ".join(MEASUREMENTS))
    parser.add_argument("--docs", type=Path, default=DOCS)
    options = parser.parse_args()
    file, page = options.docs / "reliability.json", options.docs / "reliability.md"
    kept: dict[str, dict[str, Any]] = json.loads(file.read_text()) if file.exists() else {}
    passed = True
    for name in options.only or MEASUREMENTS if options.quick or options.full else ():
        found = measured(name, MEASUREMENTS[name], options.full)
        passed = passed and found.pop("passed")
        if options.full or kept.get(name, {}).get("how") != "full":
            kept[name] = found
            file.write_text(json.dumps(kept, indent=1) + "\n")
        print(f"{name}: {found['figure']}", flush=True)
    page.write_text(written(page.read_text(), kept))
    print(table(kept))
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main())
