"""An engine behind HTTP with the interface that rollouts use: one or several servers, `legos serve` or vLLM."""

from __future__ import annotations

import asyncio
import os
import queue
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from inference import Completion, Fleet, InferenceError, Request, UnknownAdapter
from inference.address import OWN_KEY
from legos_train.rollout.players.background import Background

WAIT = 0.05  # seconds that a step waits for the first answer
OUTAGE = 180.0  # seconds that all servers may be away; loading a large model takes one or two minutes
CLEARING = 5.0  # seconds for removing adapters at the start and the end, and for those in transit
_ODD = re.compile(r"[^A-Za-z0-9_-]+")


class RemoteEngine:
    """Sends requests to servers and publishes adapters there.

    On the servers an adapter's name consists of run, adapter, version and weights (`RUN.policy-v3-DIGEST`). A name
    therefore always stands for the same weights, two runs on one server never share a name, and a completion is from
    exactly the requested version. Publishing does not wait for servers: a request brings the adapter to a server that
    lacks it.

    A server that was unreachable is used again once it is known to serve the same model. A run fails if no server was
    usable for `OUTAGE` seconds.

    Args:
        urls: such as `("http://127.0.0.1:8000", "vllm://gpu:8000")`.
        key_env: the environment variable with the API key.
        run: the id of the run. `start` removes what its earlier sessions left on the servers.
        follows: whether another rank removes adapters, so that this one does not.
        shelf: a folder that servers see under the same path and load adapters from.
        timeout: seconds for one call.
        sessions: see `Fleet`.
        vocab: see `Fleet`.
    """

    def __init__(
        self,
        urls: Sequence[str],
        key_env: str = OWN_KEY,
        *,
        run: str | None = None,
        follows: bool = False,
        shelf: Path | None = None,
        timeout: float = 600.0,
        sessions: int = 1,
        vocab: int | None = None,
    ):
        self.urls, self.follows = tuple(urls), follows
        self.run = run or secrets.token_hex(6)
        self.background = Background()
        self._answers: queue.SimpleQueue[tuple[int, Completion | InferenceError]] = queue.SimpleQueue()
        key = os.environ.get(key_env)

        async def connect() -> Fleet:
            def deliver(number: int, answer: Completion | InferenceError) -> None:
                self._answers.put((number, answer))

            options: dict[str, Any] = {"timeout": timeout, "patience": OUTAGE, "sessions": sessions, "vocab": vocab}
            return Fleet(self.urls, deliver, api_key=key, shelf=shelf, **options)

        try:
            self.fleet = self.background.call(connect())
        except BaseException:
            self.background.close()
            raise
        self._count = 0
        self._names: dict[str, str] = {}
        self._adapters: dict[int, str | None] = {}
        self._unsent: list[tuple[int, Request, str | None]] = []

    def start(self) -> None:
        """Waits for the servers, detects their kind, and removes what earlier sessions of the run left there.

        Raises:
            InferenceError: one of them does not answer, or is not a supported server.
        """
        self.background.call(self.fleet.start())
        if not self.follows:
            self._clear()

    def submit(self, request: Request) -> int:
        """Accepts a request; `step` sends it and returns its completion under the returned number.

        Raises:
            UnknownAdapter: the request names an adapter that is not published here.
        """
        there = self.name_of(request.adapter)
        self._count += 1
        self._adapters[self._count] = request.adapter
        self._unsent.append((self._count, request, there))
        return self._count

    def name_of(self, adapter: str | None) -> str | None:
        """The servers' current name of an adapter."""
        if adapter is not None and adapter not in self._names:
            raise UnknownAdapter(f"no adapter {adapter!r} is published (published: {', '.join(self._names) or 'none'})")
        return None if adapter is None else self._names[adapter]

    def step(self) -> list[Completion]:
        """Sends submitted requests and returns completions that have arrived; waits a moment for the first.

        Raises:
            InferenceError: a server refused a request, or none answers.
        """
        self._send()
        out: list[Completion] = []
        for number, answer in Background.drained(self._answers, WAIT):
            if number in self._adapters:  # else it was aborted meanwhile
                self._adapters.pop(number)
                if isinstance(answer, InferenceError):
                    raise answer
                out.append(replace(answer, request_id=number))
        return out

    def abort(self, request_id: int) -> None:
        """Drops a request; a call that is no longer needed is cancelled."""
        if self._adapters.pop(request_id, self) is self:
            return
        self._send()
        self.background.soon(self.fleet.cancel, request_id)

    def settle(self) -> list[Completion]:
        """Does nothing: `abort` has already notified the servers."""
        return []

    def publish(
        self, name: str, weights: Mapping[str, Any], *, scale: float, version: int = 0, mode: str = "pin"
    ) -> str:
        """Uses these weights from the next request on; returns their digest. Does not wait for servers.

        Raises:
            ValueError: a `mode` other than "pin": requests keep the name that they started with.
            OSError: the shelf cannot be written.
        """
        if mode != "pin":
            raise ValueError(f"on servers running requests keep their weights: mode must be 'pin', got {mode!r}")
        if self.fleet.adapters.base is None and any(endpoint.kind == "vllm" for endpoint in self.fleet.endpoints):
            nothing = {key: w * 0 if key.endswith("lora_b") else w for key, w in weights.items()}
            self.background.call(self._use_base(self.fleet.adapters.prepare(f"{self.run}.base", nothing, scale, 0)))
        publication = self.fleet.adapters.prepare(f"{self.run}.{_ODD.sub('_', name)[-20:]}", weights, scale, version)
        old, self._names[name] = self._names.get(name), publication.name
        if old != publication.name:
            self.background.soon(self.fleet.adapters.publish, publication)
            self._retire(old)
        return publication.packed.digest

    async def _use_base(self, publication: Any) -> None:
        self.fleet.adapters.use_base(publication)

    def unpublish(self, name: str) -> None:
        """Removes an adapter from every server once no request needs it."""
        there = self.name_of(name)
        del self._names[name]
        self._retire(there)

    def _retire(self, there: str | None) -> None:
        self._send()  # what was submitted before still needs it
        if there is not None and there not in self._names.values():
            self.background.soon(self.fleet.adapters.retire, there)

    def _send(self) -> None:
        if self._unsent:
            requests, self._unsent = self._unsent, []
            self.background.soon(self.fleet.submit, requests)

    def _clear(self) -> None:
        """Removes the run's adapters where that is possible now; a full server evicts the rest by itself."""
        with suppress(TimeoutError):
            self.background.call(asyncio.wait_for(self.fleet.adapters.clear(f"{self.run}."), CLEARING))

    def close(self) -> None:
        """Removes the run's adapters where that is possible at once, and closes the connections."""
        with ExitStack() as stack:  # everything, whatever fails
            stack.callback(self.background.close)
            stack.callback(lambda: self.background.call(self.fleet.close()))
            self.background.call(self.fleet.stop(CLEARING))
            if not self.follows:
                self._clear()
