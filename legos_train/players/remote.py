"""An engine behind HTTP, with the interface that rollouts use: `legos serve`, vLLM, or several of them."""

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
from legos_train.players.background import Background

WAIT = 0.05  # seconds that a step waits for the first answer
PATIENCE = 180.0  # seconds that all servers may be away; to load a large model takes one or two minutes
CLEARING = 5.0  # seconds for taking adapters away, at the beginning and at the end, and for those on their way there
_ODD = re.compile(r"[^A-Za-z0-9_-]+")


class RemoteEngine:
    """Sends requests to servers and publishes adapters there.

    On the servers an adapter is called after run, adapter, version and weights (`RUN.policy-v3-DIGEST`). So a name
    stands for the same weights for ever, two runs on one server never share one, and a completion is of exactly the
    version that it was asked of. Publishing waits for no server: a request brings the adapter to a server without it.

    A server that has been away is used again when it has shown that it serves the same model. A run fails when there
    has been none for `PATIENCE` seconds.

    Args:
        urls: such as `("http://127.0.0.1:8000", "vllm://gpu:8000")`.
        key_env: the environment variable with the API key.
        run: the id of the run. What earlier sessions of it left on the servers is taken away by `start`.
        follows: another rank takes adapters away, this one does not.
        shelf: a folder that servers see under the same path, and take adapters from.
        timeout: seconds for one call.
        sessions: see `Fleet`.
    """

    def __init__(
        self,
        urls: Sequence[str],
        key_env: str = "LEGOS_API_KEY",
        *,
        run: str | None = None,
        follows: bool = False,
        shelf: Path | None = None,
        timeout: float = 600.0,
        sessions: int = 1,
    ):
        self.urls, self.follows = tuple(urls), follows
        self.run = run or secrets.token_hex(6)
        self.background = Background()
        self._answers: queue.SimpleQueue[tuple[int, Completion | InferenceError]] = queue.SimpleQueue()
        key = os.environ.get(key_env)

        async def connect() -> Fleet:
            def deliver(number: int, answer: Completion | InferenceError) -> None:
                self._answers.put((number, answer))

            return Fleet(
                self.urls, deliver, api_key=key, shelf=shelf, timeout=timeout, patience=PATIENCE, sessions=sessions
            )

        self.fleet = self.background.call(connect())
        self._count = 0
        self._names: dict[str, str] = {}
        self._adapters: dict[int, str | None] = {}
        self._unsent: list[tuple[int, Request, str | None]] = []

    def start(self) -> None:
        """Waits for the servers, finds out what they are, and takes away what earlier sessions of the run left there.

        Raises:
            InferenceError: one of them does not answer, or is not a server that can be used.
        """
        self.background.call(self.fleet.start())
        if not self.follows:
            self._clear()

    def submit(self, request: Request) -> int:
        """Takes a request; `step` sends it off, and hands out its completion under the number returned.

        Raises:
            UnknownAdapter: the request names one that is not published here.
        """
        there = self.name_of(request.adapter)
        self._count += 1
        self._adapters[self._count] = request.adapter
        self._unsent.append((self._count, request, there))
        return self._count

    def name_of(self, adapter: str | None) -> str | None:
        """What the servers call an adapter now."""
        if adapter is not None and adapter not in self._names:
            raise UnknownAdapter(f"no adapter {adapter!r} is published (published: {', '.join(self._names) or 'none'})")
        return None if adapter is None else self._names[adapter]

    def step(self) -> list[Completion]:
        """Sends off what was submitted, and hands out what has arrived; waits a moment for the first.

        Raises:
            InferenceError: a server refused a request, or none answers any more.
        """
        self._send()
        out: list[Completion] = []
        with suppress(queue.Empty):
            entry = self._answers.get(timeout=WAIT)
            while True:
                number, answer = entry
                if number in self._adapters:  # else it was aborted meanwhile
                    self._adapters.pop(number)
                    if isinstance(answer, InferenceError):
                        raise answer
                    out.append(replace(answer, request_id=number))
                entry = self._answers.get_nowait()
        return out

    def abort(self, request_id: int) -> None:
        """Forgets a request; a call that nobody waits for any more is broken off."""
        if self._adapters.pop(request_id, self) is self:
            return
        self._send()
        self.background.soon(self.fleet.cancel, request_id)

    def settle(self) -> list[Completion]:
        """Nothing to do: `abort` has told the servers."""
        return []

    def publish(
        self, name: str, weights: Mapping[str, Any], *, scale: float, version: int = 0, mode: str = "pin"
    ) -> str:
        """Plays with these weights from the next request on; returns their digest. Waits for no server.

        Raises:
            ValueError: another `mode` than "pin": requests end under the name that they began with.
            OSError: the shelf cannot be written.
        """
        if mode != "pin":
            raise ValueError(f"on servers running requests keep their weights: mode must be 'pin', got {mode!r}")
        if self.fleet.base is None and any(endpoint.kind == "vllm" for endpoint in self.fleet.endpoints):
            nothing = {key: w * 0 if key.endswith("lora_b") else w for key, w in weights.items()}
            self.background.call(self._use_base(self.fleet.prepare(f"{self.run}.base", nothing, scale, 0)))
        publication = self.fleet.prepare(f"{self.run}.{_ODD.sub('_', name)[-20:]}", weights, scale, version)
        old, self._names[name] = self._names.get(name), publication.name
        if old != publication.name:
            self.background.soon(self.fleet.publish, publication)
            self._retire(old)
        return publication.packed.digest

    async def _use_base(self, publication: Any) -> None:
        self.fleet.use_base(publication)

    def unpublish(self, name: str) -> None:
        """Takes an adapter away from every server, when no request needs it any more."""
        there = self.name_of(name)
        del self._names[name]
        self._retire(there)

    def _retire(self, there: str | None) -> None:
        self._send()  # what was submitted before still needs it
        if there is not None and there not in self._names.values():
            self.background.soon(self.fleet.retire, there)

    def _send(self) -> None:
        if self._unsent:
            requests, self._unsent = self._unsent, []
            self.background.soon(self.fleet.submit, requests)

    def _clear(self) -> None:
        """Takes the run's adapters away where that is possible now; a full server lets go of the rest by itself."""
        with suppress(TimeoutError):
            self.background.call(asyncio.wait_for(self.fleet.clear(f"{self.run}."), CLEARING))

    def close(self) -> None:
        """Takes the run's adapters away where that is possible at once, and closes the connections."""
        with ExitStack() as stack:  # everything, whatever fails
            stack.callback(self.background.close)
            stack.callback(lambda: self.background.call(self.fleet.close()))
            self.background.call(self.fleet.stop(CLEARING))
            if not self.follows:
                self._clear()
