"""The live page of a folder of runs, with their episodes, reports and comparisons."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from http import HTTPStatus
from pathlib import Path

from legos_train.errors import RunError
from legos_train.observe.browser.catalog import Catalog
from legos_train.observe.browser.entries import Json
from legos_train.observe.browser.folder_page import folder_page
from legos_train.observe.local_server import LocalServer, Query, SiteReply
from legos_train.observe.report import compare
from legos_train.observe.self_contained import script_json
from legos_train.observe.viewer.watch import Feed

OPEN = 4
"""Number of most recently used episode logs kept in memory."""
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""A report may only be styled here: the file may come from somebody else."""


class FolderSite:
    """Serves a folder: `/` and `/rows` (changes), `/run/NAME/` (its episodes), `/run/NAME/report`, and
    `/compare?run=NAME&run=NAME`. Names are those of the catalog; no other path is ever opened.
    """

    def __init__(self, folder: Path, newest: int | None, every: float):
        self.catalog, self.newest, self.every = Catalog(folder), newest, every
        self._lock = threading.Lock()
        self._generation, self._found = 0, self.catalog.read()
        self._read_at = time.monotonic()
        self._feeds: OrderedDict[str, Feed] = OrderedDict()

    def __call__(self, path: str, query: Query) -> SiteReply | None:
        if path == "/":
            generation, found = self._look()
            return SiteReply(folder_page(found, {"generation": generation, "every": self.every}))
        if path == "/rows":
            known = int(query["generation"][-1])
            generation, found = self._look()
            fresh = {} if generation == known else {"found": found}
            return SiteReply(script_json({"generation": generation, **fresh}), "application/json")
        if path == "/compare":
            return self._compare(query["run"])
        if path.startswith("/run/"):
            name, _, page = path.removeprefix("/run/").rpartition("/")
            return self._of_run(name, page, query)
        return None

    def _look(self) -> tuple[int, Json]:
        with self._lock:
            if time.monotonic() - self._read_at > self.every / 2:  # several open pages do not cause more reads
                found = self.catalog.read()
                self._generation += found != self._found
                self._found, self._read_at = found, time.monotonic()
            return self._generation, self._found

    def _of_run(self, name: str, page: str, query: Query) -> SiteReply | None:
        with self._lock:
            folder = self.catalog.folders.get(name)
        if folder is None:
            return None
        if page == "report":
            file = folder / "report.html"
            return SiteReply(file.read_text(encoding="utf-8"), policy=REPORT_POLICY) if file.is_file() else None
        with self._lock:
            feed = self._feeds.get(name)
            if feed is None:
                feed = self._feeds[name] = Feed([folder], self.newest, self.every, home="/")
            self._feeds.move_to_end(name)
            if len(self._feeds) > OPEN:
                self._feeds.popitem(last=False)
        return feed.site(f"/{page}", query)

    def _compare(self, names: list[str]) -> SiteReply | None:
        with self._lock:
            folders = [self.catalog.folders.get(name) for name in dict.fromkeys(names)]
        known = [folder for folder in folders if folder is not None]
        if len(known) < len(folders):
            return None
        try:
            return SiteReply(compare(known), policy=REPORT_POLICY)
        except RunError as error:
            return SiteReply(f"{error}\n", "text/plain", HTTPStatus.BAD_REQUEST)


def serve_folder(folder: Path, port: int = 0, newest: int | None = 5000, *, every: float = 2.0) -> LocalServer:
    """A server for the page of a folder, bound to 127.0.0.1.

    Args:
        folder: where to look for runs and evaluations.
        port: 0 for a free one, which `server_port` gives.
        newest: maximum number of newest episodes of each run; None for all.
        every: polling interval of an open page in seconds.

    Raises:
        OSError: the folder cannot be read, or the port is taken.
    """
    return LocalServer(FolderSite(folder, newest, every), port)
