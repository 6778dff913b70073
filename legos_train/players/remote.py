"""An engine behind HTTP, with the interface that rollouts use: `legos serve` in another terminal, or several."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

from inference import Completion, Pool, Request, UnknownAdapter, check_compatible
from legos_train.errors import ConfigError
from legos_train.players.background import Background

WAIT = 0.05  # seconds that a step waits for the first answer
PATIENCE = 180.0  # seconds that all servers may be away; to load a large model takes one or two minutes
CLEARING = 5.0  # seconds that taking adapters away may take at the beginning and at the end
_ODD = re.compile(r"[^A-Za-z0-9_-]+")


class RemoteEngine:
    """Submits requests to a pool of servers, which may be one, and publishes adapters there.

    On the servers every publication has a name of its own, which says run, session, number and version, so two runs on
    one server never share one, and a name stands for the same weights for ever. The pool refuses an answer by any other
    weights. A replaced name goes when the last request under it has ended, all of a session's when it is closed.

    A server that has been away, or was started again, is used again when it has all adapters published here. A run
    fails when there has been none for `PATIENCE` seconds.

    Args:
        urls: such as `("http://127.0.0.1:8000",)`; see `inference.client.Pool`.
        key_env: the environment variable with the API key.
        run: the id of the run. What earlier sessions of it left on the servers is taken away by `check`.
        session: tells the sessions of a run apart; by default a new one. Several ranks share one.
        follows: another rank publishes, and this one is only told what.
    """

    def __init__(
        self,
        urls: Sequence[str],
        key_env: str = "LEGOS_API_KEY",
        *,
        run: str | None = None,
        session: str | None = None,
        follows: bool = False,
    ):
        from inference import HttpClient
        from inference.client import retry

        self.urls, self.follows = tuple(urls), follows
        self.run = run or secrets.token_hex(6)
        self.session = session or self.new_session()
        self.background = Background()
        key = os.environ.get(key_env)

        async def connect() -> Pool:
            return Pool(
                [HttpClient(url, key) for url in self.urls], retry=retry.Retry(attempts=10_000, budget=PATIENCE)
            )

        self.client = self.background.call(connect())
        self._count = self._publications = 0
        self._names: dict[str, str] = {}
        self._replaced: list[str] = []  # names on the servers that go when nothing runs under them
        self._running: dict[int, tuple[Future[Any], str | None]] = {}

    @staticmethod
    def new_session() -> str:
        """A name for what one start of a run publishes."""
        return secrets.token_hex(3)

    def check(self, identity: Mapping[str, Any], adapters: int = 2) -> None:
        """Refuses servers that do not work on the trainer's model, or take too few adapters for the run.

        Args:
            identity: the keywords of `inference.client.check_compatible` after the first.
            adapters: most that are published at a time; two for a policy that is being replaced.

        Raises:
            Incompatible: it names everything that differs.
            ConfigError: there is a server that would refuse one of the adapters.
        """
        info = self.background.call(self.client.info())
        check_compatible(info, **identity)
        most = info.max_adapters
        if most is not None and most < adapters:
            raise ConfigError(
                f"a server of {', '.join(self.urls)} takes at most {most} adapters, and this run needs {adapters} at a "
                f"time (the policy, its next version, the league's snapshots): start it with --max-adapters {adapters}"
                + (f", or set league.pool = {most - 2}" if most > 2 else "")
            )
        others = sum(not name.startswith(f"{self.run}.") for name in info.adapters)
        if most is not None and most - others < adapters:
            warnings.warn(
                f"a server of {', '.join(self.urls)} has room for {most - others} more adapters beside the {others} of "
                f"others, and this run needs up to {adapters}: it ends where one is refused, unless others leave",
                stacklevel=2,
            )
        if not self.follows:
            self._clear(f"{self.run}.")

    def submit(self, request: Request) -> int:
        """Sends a request; its completion comes out of `step` under the number returned.

        Raises:
            UnknownAdapter: the request names one that is not published here.
        """
        there = self.name_of(request.adapter)
        self._count += 1
        label = (self._count, request.adapter)
        future = self.background.submit(label, self.client.complete(replace(request, adapter=there)))
        self._running[self._count] = future, there
        return self._count

    def name_of(self, adapter: str | None) -> str | None:
        """What the servers call an adapter."""
        if adapter is not None and adapter not in self._names:
            raise UnknownAdapter(f"no adapter {adapter!r} is published (published: {', '.join(self._names) or 'none'})")
        return None if adapter is None else self._names[adapter]

    def step(self) -> list[Completion]:
        """What has arrived since; waits a moment for the first.

        Raises:
            InferenceError: a server refused a request, or none answers any more.
        """
        out = []
        for (number, adapter), answer in self.background.ready(WAIT):
            self._running.pop(number, None)
            if isinstance(answer, BaseException):
                raise answer
            out.append(replace(answer, request_id=number, adapter=adapter))
        self._take_away()
        return out

    def abort(self, request_id: int) -> None:
        """Cancels a request; the client tells the server."""
        if (running := self._running.pop(request_id, None)) is not None:
            running[0].cancel()

    def settle(self) -> list[Completion]:
        """Nothing to do: `abort` has told the server."""
        return []

    def publish(
        self, name: str, weights: Mapping[str, Any], *, scale: float, version: int = 0, mode: str = "pin"
    ) -> str:
        """Makes the weights current at every server; returns their digest, which each of them has confirmed.

        Raises:
            ValueError: another `mode` than "pin": requests end under the name that they began with.
        """
        if mode != "pin":
            raise ValueError(f"on servers running requests keep their weights: mode must be 'pin', got {mode!r}")
        self._publications += 1
        label = f"{_ODD.sub('_', name)[-20:]}-v{version}"
        there = f"{self.run}.{self.session}.{self._publications}.{label}"
        send = self.client.expect if self.follows else self.client.publish
        digest = self.background.call(send(there, weights, scale, version))
        old, self._names[name] = self._names.get(name), there
        self._take_away(old)
        return digest

    def unpublish(self, name: str) -> None:
        """Takes an adapter away from every server, when the last request under it has ended."""
        there = self.name_of(name)
        del self._names[name]
        self._take_away(there)

    def _take_away(self, there: str | None = None) -> None:
        """Lets go of a name, and of those before it: a request that still runs may yet be sent to another server."""
        if there is not None:
            self._replaced.append(there)
        busy = {name for future, name in self._running.values() if not future.done()}
        for name in [name for name in self._replaced if name not in busy]:
            self._replaced.remove(name)
            self.background.call((self.client.forget if self.follows else self.client.unpublish)(name))

    def _clear(self, prefix: str) -> None:
        """Takes away what begins so where that is possible now; a server that is full lets go of the rest by itself."""
        with suppress(TimeoutError):
            self.background.call(asyncio.wait_for(self.client.clear(prefix), CLEARING))

    def close(self) -> None:
        """Takes this session's adapters away where that is possible at once, and closes everything, whatever fails."""
        with ExitStack() as stack:
            stack.callback(self.background.close)
            stack.callback(lambda: self.background.call(self.client.close()))
            if not self.follows:
                self._clear(f"{self.run}.{self.session}.")
