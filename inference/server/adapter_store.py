"""Adapters that clients load: by a path under one root, as bytes, or by requesting the name of a folder there.

Names are plain, files are safetensors. Loading a name again gives it a new version; a version that does not fit or
arrives late is refused, and the previous one keeps serving.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from inference import loading
from inference.adapters import PreparedAdapter
from inference.engine import AsyncEngine, Engine
from inference.files import adapter_files, adapter_folder
from inference.server.metrics import Metrics
from inference.server.protocol import ServerError
from inference.types import ADAPTER_NAME, AdapterError, PublishMode, VersionConflict

IDLE_SECONDS = 600.0
"""An adapter unused for this long may be evicted: its run was probably killed before it could clean up."""

PREPARED_AT_ONCE = 4
"""Number of adapters prepared concurrently; further ones wait."""

logger = logging.getLogger(__name__)


class Adapters:
    """The adapters of one server: at most `most` names at once.

    Attributes:
        versions: the current version of each name.
        fixed: names the server was started with, which are never evicted.
    """

    def __init__(
        self, engine: AsyncEngine, metrics: Metrics, model: str, root: Path | None, most: int, max_rank: int
    ) -> None:
        self.engine, self.metrics, self.model = engine, metrics, model
        self.root, self.most, self.max_rank = root, most, max_rank
        self.versions: dict[str, int] = {}
        self.fixed: frozenset[str] = frozenset()
        self._used: dict[str, float] = {}
        self._held: Counter[str | None] = Counter()
        self._fetched: set[str] = set()  # they can be fetched again
        self._fetching: dict[str, asyncio.Task[None]] = {}
        self._lock = asyncio.Lock()
        self._preparing = _Preparing()

    def close(self) -> None:
        """Stops publishing. Blocks until the adapters in preparation are finished."""
        self._preparing.close()

    def check_name(self, name: str) -> str:
        """The name, if it is allowed."""
        if not ADAPTER_NAME.fullmatch(name) or name == self.model:
            raise ServerError(
                400, "an adapter's name has 1 to 64 letters, digits, '.', '_' or '-', and is not the model's"
            )
        return name

    def use(self, name: str) -> None:
        """Notes that a loaded name was requested. On the event loop only: `_make_room` iterates over the times."""
        self._used[name] = time.monotonic()

    @contextmanager
    def held(self, name: str | None) -> Iterator[None]:
        """Keeps the name from eviction while a request for it is on its way to the engine. On the event loop only."""
        self._held[name] += 1
        try:
            yield
        finally:
            self._held[name] -= 1
            if not self._held[name]:
                del self._held[name]

    async def fetch(self, name: str) -> None:
        """Publishes the folder of that name directly below the root, as vLLM's `lora_filesystem_resolver` does.

        Does nothing if there is none. Concurrent requests wait for the same attempt.
        """
        if self.root is None or not ADAPTER_NAME.fullmatch(name) or not os.path.isdir(self.root / name):
            return  # none, or a root that may not be searched
        if name not in self._fetching:
            task = self._fetching[name] = asyncio.ensure_future(self._fetch(name))
            task.add_done_callback(lambda done: self._fetching.pop(name, None))
        await asyncio.shield(self._fetching[name])

    async def _fetch(self, name: str) -> None:
        await self.load(name, name, None, "pin")
        self._fetched.add(name)

    async def load(self, name: str, path: str, version: int | None, mode: PublishMode) -> dict[str, Any]:
        """Publishes an adapter in mlx-lm's or PEFT's layout from a directory below the root."""
        self.check_name(name)
        if self.root is None:
            raise ServerError(400, "this server was started without --adapter-root, so it loads no adapters by path")
        try:
            root = self.root.resolve(strict=True)
            folder = (root / path).resolve(strict=True)
            weights = adapter_files.weights_file(folder)
            files = [(folder / file).resolve(strict=True) for file in (weights, adapter_folder.CONFIG)]
        except (OSError, ValueError, RuntimeError):
            raise ServerError(404, "there is no such adapter below the adapter root") from None
        if not all(file.is_relative_to(root) for file in files):
            raise ServerError(404, "there is no such adapter below the adapter root")

        def prepare(engine: Engine) -> PreparedAdapter:
            try:
                adapter = adapter_files.read_adapter(folder, max_rank=self.max_rank)
            except AdapterError as error:  # do not reveal to clients where the root is
                raise AdapterError(str(error).replace(str(folder), path)) from error
            return engine.prepare(adapter.weights, scale=adapter.scale)

        return await self._install(name, prepare, version, mode)

    async def put(
        self, name: str, body: bytes, digest: str | None, scale: float | None, version: int | None, mode: PublishMode
    ) -> dict[str, Any]:
        """Publishes an adapter from the bytes of a safetensors file, which must match the SHA-256 sent with it."""
        self.check_name(name)
        actual = await asyncio.to_thread(lambda: hashlib.sha256(body).hexdigest())
        if digest is None or not hmac.compare_digest(digest.strip().lower().encode(), actual.encode()):
            raise ServerError(400, "the header X-Content-SHA256 must have the SHA-256 of the body, in hexadecimal")
        size = scale if scale is not None else await asyncio.to_thread(_scale_in, body)

        def prepare(engine: Engine) -> PreparedAdapter:
            return engine.prepare(adapter_files.adapter_tensors(body), scale=size)

        return await self._install(name, prepare, version, mode)

    async def unload(self, name: str, *, for_good: bool = True) -> None:
        """Removes a name; its running requests finish. Unless `for_good`, the same weights may come back under it."""
        async with self._lock:
            if name not in self.versions:
                raise ServerError(404, f"no adapter {name!r:.80} is loaded", "not_found_error")
            await self._remove(name, for_good=for_good)

    async def _remove(self, name: str, *, for_good: bool) -> None:
        version = self.versions.pop(name)  # first, so that who asks for it meanwhile fetches it and waits
        try:
            await self.engine.call(lambda engine: engine.unpublish(name, for_good=for_good))
        except BaseException:
            self.versions[name] = version
            raise
        self._used.pop(name, None)
        self._fetched.discard(name)

    async def _make_room(self) -> None:
        """Evicts the least recently used adapter. Its owner may publish the same version again."""
        before = time.monotonic() - IDLE_SECONDS
        running = {
            name for name, info in (await self.engine.call(lambda engine: engine.adapters())).items() if info.running
        }
        free = [
            name
            for name in self.versions
            if name not in self.fixed and (name in self._fetched or self._used[name] <= before)
        ]
        idle = [name for name in free if name not in running | self._held.keys()]
        if free and not idle:
            busy = f"{self.most} adapters are loaded (--max-adapters), and those that could be evicted are in use"
            raise ServerError(429, f"{busy}; try again later", "rate_limit_error", retry_after=1)
        if not idle:
            raise ServerError(
                400,
                f"{self.most} adapters are loaded already (--max-adapters), and each was used in the last "
                f"{IDLE_SECONDS / 60:g} minutes; unload one, or restart the server with more",
            )
        oldest = min(idle, key=self._used.__getitem__)
        logger.warning("the adapter %r is evicted to make room: it is the least recently used", oldest)
        await self._remove(oldest, for_good=False)

    async def _install(
        self, name: str, prepare: Callable[[Engine], PreparedAdapter], version: int | None, mode: PublishMode
    ) -> dict[str, Any]:
        seconds = 0.0

        def timed(engine: Engine) -> int:
            nonlocal seconds
            start = time.perf_counter()
            engine.publish(name, prepared, version=version, mode=mode, monotone=True)
            seconds = time.perf_counter() - start
            return engine.adapters()[name].version

        try:
            engine = await self.engine.call(lambda engine: engine)
            prepared = await self._preparing.run(prepare, engine)  # not locked: a refused adapter changes nothing
            async with self._lock:
                if name not in self.versions and len(self.versions) >= self.most:
                    if version is not None:  # a version that will be refused evicts nothing
                        await self.engine.call(lambda engine: engine.check_version(name, version, prepared.digest))
                    await self._make_room()
                number = await asyncio.shield(self.engine.call(timed))
                self.versions[name] = number
                self._fetched.discard(name)  # unless `_fetch` adds it, which is next
                self.use(name)
        except VersionConflict as error:
            raise ServerError(409, str(error)[:500], "conflict_error") from error
        except (AdapterError, ValueError) as error:
            raise ServerError(400, f"the adapter is refused: {error}"[:500]) from error
        self.metrics.publish_seconds.observe(seconds)
        return {"adapter": name, "version": number, "digest": prepared.digest, "mode": mode, "seconds": seconds}


class _Preparing:
    """A few threads that prepare adapters while the engine keeps running; a slow adapter holds up no other.

    They live as long as the server: MLX never frees what it keeps for a thread that has run a model (150 KiB).
    """

    def __init__(self) -> None:
        self._begun = 0
        self._threads = ThreadPoolExecutor(PREPARED_AT_ONCE, "adapters", initializer=self._count)

    def _count(self) -> None:
        self._begun += 1

    async def run(self, prepare: Callable[[Engine], PreparedAdapter], engine: Engine) -> PreparedAdapter:
        """Prepares an adapter in one of the threads."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, prepare, engine)

    def close(self) -> None:
        """Finishes pending work and ends the threads. Blocks."""
        threads = self._begun
        together = threading.Barrier(max(threads, 1))
        for _ in range(threads):
            self._threads.submit(_let_go_of_streams, together)
        self._threads.shutdown()


def _let_go_of_streams(together: threading.Barrier) -> None:
    loading.release_streams()
    with suppress(threading.BrokenBarrierError):  # each thread does it once
        together.wait(5.0)


def _scale_in(body: bytes) -> float:
    """The scale in the file's metadata."""
    try:
        return float(adapter_files.adapter_file(body).metadata["scale"])
    except AdapterError as error:
        raise ServerError(400, f"the adapter is refused: {error}"[:500]) from error
    except (ValueError, KeyError, TypeError):
        raise ServerError(400, "give the adapter's scale: ?scale=NUMBER, or 'scale' in the file's metadata") from None
