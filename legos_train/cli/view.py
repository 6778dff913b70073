"""`legos view DIR`: the episodes of a run or an evaluation, in the browser or the terminal; or all runs in a folder."""

from __future__ import annotations

import errno
import sys
import webbrowser
from argparse import Namespace
from collections.abc import Callable, Sequence
from http.server import HTTPServer
from pathlib import Path

from legos_train.cli.arguments import Parser
from legos_train.errors import RunError

DESCRIPTION = """Browse the episodes of a run or an evaluation: who saw what, every token, rewards and credit.

Reads DIR/rollouts.jsonl, writes DIR/view.html (one file that needs no network) and opens it in the browser.
DIR is a run directory (runs/NAME) or the --out of `legos eval`. Given a folder with several of these, it shows a list
to filter, sort and compare, served only on this machine; with --no-open it writes DIR/browse.html instead."""
EXAMPLES = """
legos view runs/kuhn                     # writes runs/kuhn/view.html and opens it
legos view runs/kuhn --no-open           # only writes the page
legos view runs                          # all runs and evaluations in runs/, also while they run
legos view runs/a runs/b                 # both in one page, and their curves in runs/a/compare.html
legos view runs/kuhn --terminal          # the last episode, turn by turn, in the terminal
"""


def make_parser() -> Parser:
    p = Parser("view", DESCRIPTION, EXAMPLES)
    several = "a run, an evaluation or a folder of them; several share a page"
    p.add_argument("dir", nargs="+", type=Path, metavar="DIR", help=several)
    p.add_argument("--no-open", action="store_true", help="do not open a browser")
    p.number("--last", help="show the newest N episodes of each; 0: all", default=5000)
    p.add_argument(
        "--watch", action="store_true", help="serve the page on this machine and show new episodes as they appear"
    )
    p.number("--port", help="like --watch, on this port (default: a free one)", most=65535, metavar="P")
    p.add_argument("--terminal", action="store_true", help="replay one episode turn by turn in the terminal")
    p.value("--episode", type=int, metavar="N", help="episode to replay, as its line in the log (default: the last)")
    return p


def run(arguments: Sequence[str]) -> int:
    p = make_parser()
    options = p.parse_args(arguments)
    watch = options.watch or options.port is not None
    if options.terminal and watch:
        p.error("--terminal and --watch or --port cannot be combined")
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
    if len(options.dir) == 1:
        from legos_train.observe.browser import holds_several, serve_folder, write_folder_page

        if holds_several(options.dir[0]):
            if options.no_open and not watch:
                print(f"wrote {write_folder_page(options.dir[0])}")
                return 0
            return _watch(lambda port: serve_folder(options.dir[0], port, newest), options)
    if watch:
        from legos_train.observe.viewer import serve

        return _watch(lambda port: serve(options.dir, port, newest), options)
    from legos_train.observe.viewer import write_page

    try:
        path, remarks = write_page(options.dir, newest)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        place = options.dir[0]
        raise RunError(
            f"the page cannot be written to {str(place)!r} ({error.strerror}); `legos view {place} --watch` serves it "
            "without writing, and --terminal prints the episodes"
        ) from error
    for remark in remarks:
        print(remark, file=sys.stderr)
    print(f"wrote {path}")
    if len(options.dir) > 1 and all((folder / "config.toml").exists() for folder in options.dir):
        from legos_train.observe.report import write_comparison

        print(f"wrote {write_comparison(options.dir)}, the curves of these runs side by side")
    if not options.no_open and not webbrowser.open(path.resolve().as_uri()):
        print("no browser found; open the file yourself (--no-open skips this)")
    return 0


def _watch(serve: Callable[[int], HTTPServer], options: Namespace) -> int:
    port = options.port or 0
    try:
        server = serve(port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        print(f"error: port {port} is taken; give another --port, or omit it for a free one", file=sys.stderr)
        return 1
    with server:
        address = f"http://127.0.0.1:{server.server_port}/"
        print(f"watching at {address} (Ctrl-C stops it)", flush=True)
        if not options.no_open:
            webbrowser.open(address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0
