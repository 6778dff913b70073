"""`legos view DIR`: look at the episodes of a run or an evaluation, in the browser or in the terminal."""

from __future__ import annotations

import argparse
import errno
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from legos_train.cli.main import parser

DESCRIPTION = """Look at the episodes of a run or an evaluation: who saw what, every token, rewards and credit.

Reads DIR/rollouts.jsonl, writes DIR/view.html, one file that needs no network, and opens it in the browser.
DIR is the directory of a run (runs/NAME) or what `legos eval --out DIR` wrote."""
EXAMPLES = """
legos view runs/kuhn                     # writes runs/kuhn/view.html and opens it
legos view runs/kuhn --no-open           # only writes it
legos view runs/a runs/b                 # both in one page, and their curves in runs/a/compare.html
legos view runs/kuhn --terminal          # the last episode, turn by turn, in the terminal
"""


def make_parser() -> argparse.ArgumentParser:
    p = parser("view", DESCRIPTION, EXAMPLES)
    p.add_argument("dir", nargs="+", type=Path, metavar="DIR", help="a run or an evaluation; several are compared")
    p.add_argument("--no-open", action="store_true", help="only write the page (or, with --watch, only serve it)")
    p.add_argument(
        "--last",
        type=int,
        default=5000,
        metavar="N",
        help="the newest N of each; 0: all (default: %(default)s)",
    )
    p.add_argument(
        "--watch", action="store_true", help="serve the page on this machine while a run goes on; new episodes appear"
    )
    p.add_argument("--port", type=int, default=0, metavar="P", help="port of --watch (default: a free one)")
    p.add_argument("--terminal", action="store_true", help="replay one episode turn by turn in the terminal")
    p.add_argument(
        "--episode", type=int, metavar="N", help="which one --terminal replays: its line in the log (default: the last)"
    )
    return p


def run(arguments: Sequence[str]) -> int:
    p = make_parser()
    options = p.parse_args(arguments)
    if options.last < 0:
        p.error(f"--last must be at least 0, got {options.last}")
    if not 0 <= options.port <= 65535:
        p.error(f"--port must be from 0 to 65535, got {options.port}")
    if options.terminal and options.watch:
        p.error("--terminal and --watch exclude each other")
    if options.terminal and len(options.dir) > 1:
        p.error("--terminal replays an episode of one DIR")
    if options.episode is not None and not options.terminal:
        p.error("--episode goes with --terminal")
    newest = options.last or None
    if options.terminal:
        from legos_train.observe.viewer import read_log, replay

        lines, _ = read_log(options.dir[0])
        replay(lines, options.episode)
        return 0
    if options.watch:
        return _watch(options.dir, options.port, newest, show=not options.no_open)
    from legos_train.observe.viewer import write_page

    path, remarks = write_page(options.dir, newest)
    for remark in remarks:
        print(remark, file=sys.stderr)
    print(f"wrote {path}")
    if len(options.dir) > 1 and all((folder / "config.toml").exists() for folder in options.dir):
        from legos_train.observe.report import write_comparison

        print(f"wrote {write_comparison(options.dir)}, the curves of these runs beside each other")
    if not options.no_open and not webbrowser.open(path.resolve().as_uri()):
        print("no browser found here; open the file yourself (--no-open only writes)")
    return 0


def _watch(folders: Sequence[Path], port: int, newest: int | None, *, show: bool) -> int:
    from legos_train.observe.viewer import serve

    try:
        server = serve(folders, port, newest)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        print(f"error: port {port} is taken; give another --port, or leave it out for a free one", file=sys.stderr)
        return 1
    with server:
        address = f"http://127.0.0.1:{server.server_port}/"
        print(f"watching at {address} (Ctrl-C ends it)", flush=True)
        if show:
            webbrowser.open(address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0
