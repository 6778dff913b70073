"""`legos view DIR`: look at the episodes of a run or an evaluation, in the browser or in the terminal."""

from __future__ import annotations

import errno
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from legos_train.cli.arguments import Parser

DESCRIPTION = """Browse the episodes of a run or an evaluation: who saw what, every token, rewards and credit.

Reads DIR/rollouts.jsonl, writes DIR/view.html (one file that needs no network) and opens it in the browser.
DIR is a run directory (runs/NAME) or the --out of `legos eval`."""
EXAMPLES = """
legos view runs/kuhn                     # writes runs/kuhn/view.html and opens it
legos view runs/kuhn --no-open           # only writes it
legos view runs/a runs/b                 # both in one page, and their curves in runs/a/compare.html
legos view runs/kuhn --terminal          # the last episode, turn by turn, in the terminal
"""


def make_parser() -> Parser:
    p = Parser("view", DESCRIPTION, EXAMPLES)
    p.add_argument("dir", nargs="+", type=Path, metavar="DIR", help="a run or an evaluation; several are compared")
    p.add_argument("--no-open", action="store_true", help="do not open a browser")
    p.number("--last", help="show the newest N episodes of each; 0: all", default=5000)
    p.add_argument(
        "--watch", action="store_true", help="serve the page on this machine while a run goes on; new episodes appear"
    )
    p.number("--port", help="port of --watch (default: a free one)", default=0, most=65535, metavar="P")
    p.add_argument("--terminal", action="store_true", help="replay one episode turn by turn in the terminal")
    p.value("--episode", type=int, metavar="N", help="line in the log of the episode to replay (default: the last)")
    return p


def run(arguments: Sequence[str]) -> int:
    p = make_parser()
    options = p.parse_args(arguments)
    if options.terminal and options.watch:
        p.error("--terminal and --watch cannot be combined")
    if options.terminal and len(options.dir) > 1:
        p.error("--terminal takes a single DIR")
    if options.episode is not None and not options.terminal:
        p.error("--episode needs --terminal")
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
        print("no browser found; open the file yourself (--no-open skips this)")
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
