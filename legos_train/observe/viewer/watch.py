"""The live page of a run: a small local server that sends new lines of the log."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path

from legos_train.observe.local_server import LocalServer, Query, SiteReply
from legos_train.observe.self_contained import script_json
from legos_train.observe.viewer.compact import Json
from legos_train.observe.viewer.log import read_extras
from legos_train.observe.viewer.viewer_page import add_lines, build_page, gather, steps_of


class Feed:
    """All rows and bodies so far; `refresh` reads what was added. Safe to call from several threads.

    Args:
        folders, newest, every: as in `serve`.
        home: the address of a page that links to this one.
    """

    def __init__(self, folders: Sequence[Path], newest: int | None, every: float = 2.0, home: str = ""):
        self.home = home
        self.folders, self.newest, self.every = list(folders), newest, every
        self.lock = threading.Lock()
        self.generation = 0
        self._load()

    def _load(self) -> None:
        self.header, self.bodies, self.readers = gather(self.folders, self.newest)
        self._generations = [reader.generation for reader in self.readers]

    def refresh(self) -> None:
        """Reads new lines. If a log was replaced, everything is read again, and earlier pages are told to reload.

        Raises:
            LogError, OSError: a log has been removed or emptied.
        """
        with self.lock:
            for run, reader in enumerate(self.readers):
                lines = reader.read()
                if reader.generation != self._generations[run]:
                    self.generation += 1
                    self._load()
                    return
                add_lines(lines, run, reader, self.header["rows"], self.bodies)
                if lines:
                    _, metrics, played = read_extras(self.folders[run], steps_of(lines))
                    self.header["runs"][run]["metrics"] |= metrics
                    self.header["runs"][run]["played"] = played

    def page(self) -> str:
        with self.lock:
            live = {"generation": self.generation, "seen": len(self.bodies), "every": self.every}
            return build_page(self.header | {"live": live, "home": self.home}, self.bodies)

    def since(self, generation: int, seen: int) -> Json:
        """Rows and bodies after the first `seen`, or `reload` if the page is out of date."""
        with self.lock:
            if generation != self.generation or not 0 <= seen <= len(self.bodies):
                return {"reload": True}
            bodies, rows = [json.loads(text) for text in self.bodies[seen:]], self.header["rows"][seen:]
            metrics: list[Json] = [{} for _ in self.folders]
            for row in rows:
                known, step = self.header["runs"][row["run"]]["metrics"], str(row["step"])
                metrics[row["run"]] |= {step: known[step]} if step in known else {}
            played = [run["played"] for run in self.header["runs"]]
            return {"rows": rows, "bodies": bodies, "metrics": metrics, "seen": len(self.bodies), "played": played}

    def site(self, path: str, query: Query) -> SiteReply | None:
        """The page at `/`, new lines at `/lines`."""
        if path == "/":
            self.refresh()
            return SiteReply(self.page())
        if path == "/lines":
            generation, seen = (int(query[name][-1]) for name in ("generation", "seen"))
            self.refresh()
            return SiteReply(script_json(self.since(generation, seen)), "application/json")
        return None


def serve(
    folders: Path | Sequence[Path], port: int = 0, newest: int | None = 5000, *, every: float = 2.0
) -> LocalServer:
    """A server of the page, bound to 127.0.0.1: any user of this machine may see what a run plays.

    Args:
        folders: runs or evaluations to show.
        port: 0 for a free one, which `server_port` gives.
        newest: as in `write_page`.
        every: polling interval of an open page in seconds; ten if it is hidden.

    Raises:
        LogError: a folder has nothing to show.
        OSError: the port is taken.
    """
    return LocalServer(Feed([folders] if isinstance(folders, str | Path) else folders, newest, every).site, port)
