"""One client of a pool: how busy it is, whether it can be used, and when it is asked again."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from inference.client.http import HttpClient
from inference.client.interface import Client
from inference.client.retry import Retry

_turns = itertools.count(1)
logger = logging.getLogger(__name__)


class Endpoint:
    """Not usable at first: it is taken in when it has said what it serves.

    epoch: changes whenever it is taken in; a failure of a request that began in an earlier epoch says nothing now.
    """

    def __init__(self, client: Client, number: int, retry: Retry) -> None:
        # The pool repeats elsewhere, so a client must not insist.
        self.client: Client = client.once() if isinstance(client, HttpClient) else client
        self.name: str = getattr(client, "url", None) or f"client {number} ({client!r})"
        self._retry = retry
        self.usable = False
        self.epoch = self.outstanding = self.served = self.turn = 0
        self.error: str | None = None
        self.revival: asyncio.Future[None] | None = None
        self._failures = 0
        self._ask_at = 0.0

    @property
    def due(self) -> bool:
        """Left out long enough to be asked again."""
        return not self.usable and self.revival is None and time.monotonic() >= self._ask_at

    @contextmanager
    def busy(self) -> Iterator[None]:
        """While a request is with this endpoint."""
        self.outstanding += 1
        self.turn = next(_turns)
        try:
            yield
            self.served += 1
        finally:
            self.outstanding -= 1

    def leave_out(self, epoch: int, error: BaseException) -> None:
        """A request of that epoch has failed: no more for now."""
        if self.usable and epoch == self.epoch:
            self.usable = False
            self.failed_again(error)

    def failed_again(self, error: BaseException) -> None:
        """It is still not to be used; the longer that goes on, the less often it is asked."""
        self._failures += 1
        self._ask_at = time.monotonic() + self._retry.wait(self._failures)
        if str(error) != self.error:
            logger.warning("%s is left out: %s", self.name, error)
        self.error = str(error)

    def take_in(self) -> None:
        """Use it (again)."""
        self.usable, self.error, self._failures = True, None, 0
        self.epoch += 1
