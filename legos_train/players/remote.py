"""An engine behind HTTP, with the interface that rollouts use: `legos serve` in another terminal, or several."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from inference import Client, Completion, Request, check_compatible
from legos_train.players.background import Background

WAIT = 0.05  # seconds that a step waits for the first answer
PATIENCE = 60.0  # seconds that all servers may be away


class RemoteEngine:
    """Submits requests to a pool of servers, which may be one, and publishes adapters there.

    A server that has been away, or was started again, is used again when it has all adapters published here. A run
    fails when there has been none for `PATIENCE` seconds.

    Args:
        urls: such as `("http://127.0.0.1:8000",)`; see `inference.client.Pool`.
        key_env: the environment variable with the API key.
    """

    def __init__(self, urls: Sequence[str], key_env: str = "LEGOS_API_KEY"):
        from inference import HttpClient, Pool
        from inference.client import retry

        self.urls = tuple(urls)
        self.background = Background()
        key = os.environ.get(key_env)

        async def connect() -> Client:
            return Pool([HttpClient(url, key) for url in self.urls], retry=retry.Retry(budget=PATIENCE))

        self.client: Client = self.background.call(connect())
        self._count = 0
        self._running: dict[int, Future[Any]] = {}

    def check(self, identity: Mapping[str, Any]) -> None:
        """Refuses servers that do not work on the trainer's model.

        Args:
            identity: the keywords of `inference.client.check_compatible` after the first.

        Raises:
            Incompatible: it names everything that differs.
        """
        check_compatible(self.background.call(self.client.info()), **identity)

    def submit(self, request: Request) -> int:
        """Sends a request; its completion comes out of `step` under the number returned."""
        self._count += 1
        number = self._count
        self._running[number] = self.background.submit(number, self.client.complete(request))
        return number

    def step(self) -> list[Completion]:
        """What has arrived since; waits a moment for the first.

        Raises:
            InferenceError: a server refused a request, or none answers any more.
        """
        out = []
        for number, answer in self.background.ready(WAIT):
            self._running.pop(number, None)
            if isinstance(answer, BaseException):
                raise answer
            out.append(replace(answer, request_id=number))
        return out

    def abort(self, request_id: int) -> None:
        """Cancels a request; the client tells the server."""
        future = self._running.pop(request_id, None)
        if future is not None:
            future.cancel()

    def settle(self) -> list[Completion]:
        """Nothing to do: `abort` has told the server."""
        return []

    def publish(
        self, name: str, weights: Mapping[str, Any], *, scale: float, version: int = 0, mode: str = "pin"
    ) -> str:
        """Makes the weights current at every server; returns their digest, which each of them has confirmed."""
        return self.background.call(self.client.publish(name, weights, scale, version, mode))  # type: ignore[arg-type]

    def unpublish(self, name: str) -> None:
        self.background.call(self.client.unpublish(name))

    def close(self) -> None:
        self.background.call(self.client.close())
        self.background.close()
