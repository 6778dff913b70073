"""One server of a fleet: its kind, how adapters reach it, its load, and whether it is usable."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from inference.client import completions
from inference.client.errors import BadAnswer, Incompatible, RequestRefused, ServerUnavailable
from inference.client.http import HttpClient
from inference.client.interface import ServerInfo
from inference.client.packing import PackedAdapter
from inference.client.shelf import Shelf
from inference.types import Completion, Request

Way = Literal["pull", "push", "upload"]
"""How a server gets an adapter: it pulls it from the shelf on request, is told to load it, or receives an upload."""
WINDOW = 256
"""Completions requested from one server at a time; fewer after it reported being full."""
MISSES = 4
"""How many times in a row a server may lack an adapter that it should have."""


@dataclass(eq=False, slots=True)
class Publication:
    """Weights under a name that is never reused. outstanding: requests that still need it."""

    name: str
    packed: PackedAdapter
    version: int
    outstanding: int = 0
    retired: bool = False


class Endpoint:
    """A server that speaks `/v1/completions` with token ids: `legos serve` or vLLM.

    Args:
        client: of the server; it must not retry by itself.
        shelf: where servers load adapters from; None: adapters are uploaded.
        kind: "vllm" if the address says so; otherwise detected.
        vocab: see `Fleet`.
    """

    def __init__(
        self, client: HttpClient, shelf: Shelf | None, kind: str | None = None, vocab: int | None = None
    ) -> None:
        self.client, self.shelf, self.url, self.vocab = client, shelf, client.url, vocab
        self._wanted = kind
        self.kind, self.version, self.base, self.root = "", "", "", ""
        self.context = 0
        self._accepted: tuple[str, str, str, str | None] | None = None
        """What was served first; anything else under this address is always refused."""
        self.info: ServerInfo | None = None
        self.way: Way | None = None
        self.usable = False
        self.error: str | None = None
        self.failures = self.misses = 0
        self.outstanding = self.served = 0
        self.window = WINDOW
        self.pace = 0.0
        """Recent seconds per token; 0 before the first answer."""
        self.reviving: asyncio.Task[None] | None = None
        self._there: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._changing = asyncio.Lock()  # room is made before it is taken, for servers with few adapter slots
        self.sending: asyncio.Task[None] | None = None
        """The last task that sent an adapter there; even if cancelled, the adapter may still arrive."""

    @property
    def most(self) -> int:
        """How many completions one call may ask for."""
        queue = self.info and self.info.max_queue
        return min(completions.MOST_PROMPTS, queue or completions.MOST_PROMPTS)

    @property
    def room(self) -> int:
        """How many more completions may be requested now."""
        return self.window - self.outstanding if self.usable else 0

    def took(self, seconds: float, tokens: int) -> None:
        """Records the duration of an answer with this many tokens."""
        now = seconds / (tokens + 1)
        self.pace = now if not self.pace else 0.8 * self.pace + 0.2 * now

    @property
    def bringing(self) -> list[asyncio.Task[None]]:
        """The tasks that are bringing adapters there."""
        return [task for task in self._tasks if not task.done()]

    # --- who it is ---------------------------------------------------------------------------------------------------

    async def identify(self) -> None:
        """Finds out what is served; adapters published there before count as forgotten.

        Raises:
            Incompatible: it is not the same server as before, or not a usable one.
        """
        self._there = {}
        self.info = await self._legos()
        if self.info is not None:
            if self._wanted == "vllm":
                raise Incompatible(f"{self.url} is `legos serve`, not vLLM: write its address with http://")
            self.kind, self.version, self.base, self.root = "legos", "", self.info.model, self.info.model
            self.context = self.info.context
        else:
            await self._vllm()
        now = (self.kind, self.base, self.root, self.info.base_digest if self.info else None)
        if self._accepted not in (None, now):
            told = " instead of ".join(
                f"{base!r} (weights {digest[:12]})" if digest else repr(base)
                for _, base, _, digest in (now, self._accepted or now)
            )
            raise Incompatible(f"{self.url} serves another model than before: {told}")
        self._accepted = now

    async def _legos(self) -> ServerInfo | None:
        try:
            return await self.client.info()
        except RequestRefused as error:
            if error.status in (404, 405):
                return None
            raise

    async def _vllm(self) -> None:
        answer = await self.client.call("GET", "/v1/models")
        models = answer.get("data") if isinstance(answer, dict) else None
        named = [model for model in models or () if isinstance(model, dict) and isinstance(model.get("id"), str)]
        bases = [model for model in named if not model.get("parent")]
        if not bases:
            raise BadAnswer(f"{self.url}: /v1/models names no base model: {str(answer)[:100]}")
        self.kind, self.base = "vllm", bases[0]["id"]
        self.root = str(bases[0].get("root") or self.base)
        self.context = int(bases[0].get("max_model_len") or 0)
        with suppress(RequestRefused, BadAnswer):
            self.version = str((await self.client.call("GET", "/version")).get("version", ""))

    # --- adapters ----------------------------------------------------------------------------------------------------

    async def ensure(self, publication: Publication) -> None:
        """Returns once the server has the adapter, or will pull it from the shelf on request.

        Raises:
            RequestRefused: the server refuses the adapter.
        """
        task = self._there.get(publication.name)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._there[publication.name] = asyncio.ensure_future(self._bring(publication))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        await asyncio.shield(task)

    async def _bring(self, publication: Publication) -> None:
        async with self._changing:
            self.sending = asyncio.current_task()
            if self.way is None:
                await self._find_way(publication)
            elif self.way != "pull":
                await self._send(publication, self.way)

    async def _find_way(self, publication: Publication) -> None:
        """Tries the ways in order of cost until one works."""
        ways: list[Way] = ["pull", "push"] if self.shelf is not None else []
        refused = ""
        for way in [*ways, *(["upload"] if self.kind == "legos" else [])]:
            try:
                await self._send(publication, way)  # type: ignore[arg-type]
            except RequestRefused as error:
                if error.status not in (400, 403, 404, 405):
                    raise
                refused += f"; {way}: {error}"
            else:
                self.way = way  # type: ignore[assignment]
                return
        where = self.shelf.root if self.shelf is not None else None
        raise Incompatible(
            f"{self.url} takes no adapters (server.adapters = {str(where) if where else None!r}{refused[:600]}). vLLM "
            "needs --enable-lora and a folder that it sees under the same path: set server.adapters to it, and start "
            "vLLM with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True (loads adapters when told to); to let it load them on "
            "request, add VLLM_PLUGINS=lora_filesystem_resolver VLLM_LORA_RESOLVER_CACHE_DIR=FOLDER"
        )

    async def _send(self, publication: Publication, way: Way) -> None:
        name = publication.name
        if way == "pull":  # the first request for it makes the server load it
            await self.client.call(
                "POST", "/v1/completions", {"model": name, "prompt": [[1]], "max_tokens": 1, "temperature": 0.0}
            )
        elif way == "push":
            assert self.shelf is not None
            path = str(self.shelf.path(name))
            try:
                body = {"lora_name": name, "lora_path": path}
                await self.client.call("POST", "/v1/load_lora_adapter", body, plain=True)
            except RequestRefused as error:
                if "already been loaded" not in error.message:
                    raise
        else:
            await self.client.publish(name, publication.packed, publication.packed.scale, publication.version)

    async def drop(self, name: str) -> None:
        """Makes the server forget an adapter, if that is possible now."""
        if self._there.pop(name, None) is not None and self.usable:
            async with self._changing:
                await self._unload(name)

    async def clear(self, prefix: str) -> None:
        """Makes the server forget all adapters whose name begins with the prefix, if that is possible now."""
        with suppress(ServerUnavailable, RequestRefused, BadAnswer):
            answer = await self.client.call("GET", "/v1/models")
            for model in answer["data"]:
                if str(model["id"]).startswith(prefix):
                    await self._unload(model["id"])
        self._there = {name: task for name, task in self._there.items() if not name.startswith(prefix)}

    async def _unload(self, name: str) -> None:
        with suppress(ServerUnavailable, RequestRefused, BadAnswer):
            await self.client.call("POST", "/v1/unload_lora_adapter", {"lora_name": name}, plain=True)

    # --- requests ----------------------------------------------------------------------------------------------------

    async def complete(
        self, requests: Sequence[Request], publication: Publication | None, session: str | None
    ) -> list[Completion]:
        """One call for requests that share a `completions.group_key`.

        Raises:
            InferenceError: as in `HttpClient`.
        """
        model = self.base if publication is None else publication.name
        if publication is not None:
            await self.ensure(publication)
        content = completions.body(model, requests, vllm=self.kind == "vllm")
        headers: Mapping[str, str] = {} if session is None else {"X-Session-ID": session}
        answer: Any = await self.client.call("POST", "/v1/completions", content, headers=headers)
        version, digest = (0, None) if publication is None else (publication.version, publication.packed.digest)
        try:
            found = completions.read(answer, model, requests, version, digest, self.vocab)
        except BadAnswer as error:
            raise BadAnswer(f"{self.url}: {error}") from None
        self.served += len(requests)
        self.failures = self.misses = 0
        self.window = min(WINDOW, self.window + len(requests))
        return found


SLOWEST = 8.0
"""Cap on how much slower than the fastest a server is rated, so that it still gets occasional requests."""


def choose(endpoints: Sequence[Endpoint], session: str | None, last: Endpoint | None) -> Endpoint | None:
    """The conversation's own server, unless it is lost or much busier than another; None if all are full.

    Args:
        endpoints: the servers, always in the same order.
        session: the conversation that the request belongs to, if any.
        last: the server that last failed on the request; tried again only if there is no other.
    """
    if len(endpoints) == 1:
        return endpoints[0] if endpoints[0].room > 0 else None
    able = [e for e in endpoints if e.room > 0]
    if last in able and len(able) > 1:
        able.remove(last)
    if len(able) <= 1:
        return able[0] if able else None
    fastest = min(e.pace for e in able)

    def load(endpoint: Endpoint) -> float:
        """The work queued at a server, measured in requests of the fastest one."""
        slower = min(endpoint.pace / fastest, SLOWEST) if fastest else 1.0
        return (endpoint.outstanding + 1) * slower

    least = min(able, key=load)
    if session is None:
        return least
    home = endpoints[zlib.crc32(session.encode()) % len(endpoints)]
    return home if home in able and load(home) <= 2 * load(least) + 32 else least
