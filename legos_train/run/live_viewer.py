"""The live viewer of a run, beside its training."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from pathlib import Path

from legos_train.observe import viewer


class LiveViewer:
    """Serves a run's episodes on a thread, from the first ones in its log on."""

    def __init__(self, path: Path, port: int | None):
        self.path, self.port = path, port
        self._server: ThreadingHTTPServer | None = None

    def begin(self, say: Callable[[str], None]) -> None:
        """Starts serving if that was asked for and has not begun; `say` is told the address."""
        if self.port is None or self._server is not None or not (self.path / "rollouts.jsonl").exists():
            return
        try:
            self._server = viewer.serve([self.path], self.port)
        except OSError as error:  # a run does not end because nobody can watch it
            say(f"cannot be watched on port {self.port}: {error.strerror}; `legos view {self.path} --watch` can")
            self.port = None
            return
        threading.Thread(target=self._server.serve_forever, name="legos-watch", daemon=True).start()
        say(f"watch it at http://127.0.0.1:{self._server.server_port}/")

    def __enter__(self) -> LiveViewer:
        return self

    def __exit__(self, *error: object) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
