"""The state that the routes share: the engine, the adapters, the queue limit, the gate."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from inference import loading
from inference.engine import AsyncEngine, Engine
from inference.files import adapter_files
from inference.forward import heap, threads
from inference.server.adapter_store import Adapters
from inference.server.bodies import Reader
from inference.server.generation import CompletionHandler
from inference.server.guides import Guides, make_guides
from inference.server.metrics import Metrics
from inference.server.protocol import ServerError
from inference.server.settings import Settings
from inference.text import PROTOCOL, Conversations, Renderer, template_digest, tokenizer_digest
from inference.types import Completion

logger = logging.getLogger(__name__)

TRIM_SECONDS = 20.0
"""Seconds between two returns of unused memory to the system."""


class Server:
    """State shared by the routes. `ready` once the model is loaded; `draining` once the server is asked to stop."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics(lambda: self.adapters.versions)
        self.reader = Reader()
        self.engine = AsyncEngine(self._make_engine, self._count_unread)
        self.adapters = Adapters(
            self.engine,
            self.metrics,
            settings.model,
            settings.adapter_root,
            settings.max_adapters,
            settings.max_lora_rank,
        )
        self.ready = self.draining = False
        self.failure: BaseException | None = None
        self.threads: int | None = None
        """Threads of the matrix library, once the model is loaded."""
        self.info: dict[str, Any] = {}
        self._parts: dict[str, Any] = {}
        self.generator: CompletionHandler | None = None
        self.guides = Guides(None)
        self.when_ready: Callable[[], None] = lambda: None
        self.gate = asyncio.Event()  # shut while /pause?mode=wait lets running requests finish
        self.gate.set()
        self._coming = 0  # choices that are being tokenised, or wait at the gate

    def _make_engine(self) -> Engine:
        """In the engine's thread: make the model, its renderer, and their digests."""
        settings = self.settings
        model, tokenizer, info = loading.load(settings.model, dequantize=settings.dequantize)
        self.threads = threads.use_threads(settings.threads, model)
        engine = Engine(
            model,
            tokenizer,
            max_lora_rank=settings.max_lora_rank,
            adapter_slots=settings.max_adapters,
            **settings.engine,
        )
        renderer = Renderer(tokenizer)
        for name, path in settings.adapters.items():
            adapter = adapter_files.read_adapter(path, model, max_rank=settings.max_lora_rank)
            engine.publish(name, adapter.weights, scale=adapter.scale, version=1)
        self.guides = make_guides(tokenizer, engine.vocab_size, lambda: renderer.end_id)
        self._parts = {"tokenizer": tokenizer, "renderer": renderer, "context": engine.context}
        self.info = {
            "protocol": PROTOCOL,
            "model": settings.model,
            "base_digest": info.digest,
            "tokenizer_digest": tokenizer_digest(info.path),
            "template_digest": template_digest(tokenizer),
            "vocab_size": engine.vocab_size,
            "context": engine.context,
            "max_lora_rank": settings.max_lora_rank,
            "max_adapters": settings.max_adapters,
            "max_queue": settings.max_queue,
        }
        return engine

    async def start(self) -> None:
        """Loads the model in the background; requests get 503 until then."""
        for name in self.settings.adapters:
            self.adapters.check_name(name)
        self.engine.begin()
        self._loading = asyncio.ensure_future(self._finish_loading())
        self._trimming = asyncio.ensure_future(self._return_memory())

    async def _finish_loading(self) -> None:
        try:
            await asyncio.wrap_future(self.engine.worker.ready)
        except BaseException as error:
            self.failure = error
            logger.error("the model could not be loaded: %s", error)
            return
        parts = self._parts
        talk = Conversations(parts["renderer"])
        self.generator = CompletionHandler(
            self.engine, talk, parts["tokenizer"], parts["context"], self.metrics, self.guides
        )
        self.adapters.versions.update(dict.fromkeys(self.settings.adapters, 1))
        self.adapters.fixed = frozenset(self.settings.adapters)
        self.metrics.watch("legos_running", "Choices waiting or running", lambda: self.engine.running)
        self.metrics.watch("legos_adapters", "Adapters loaded", lambda: len(self.adapters.versions))
        self.metrics.watch("legos_steps", "Engine steps", lambda: self.engine.worker.steps)
        self.when_ready()
        self.ready = True

    def _count_unread(self, done: Completion) -> None:
        """Adds the completion of a client that left to the metrics."""
        if self.generator is not None:
            self.generator.count(done)

    async def _return_memory(self) -> None:
        while True:
            await asyncio.sleep(TRIM_SECONDS)
            await asyncio.to_thread(heap.return_freed_memory)

    async def drain(self, seconds: float, hurry: Callable[[], bool]) -> None:
        """Refuses new requests and waits for running ones; after `seconds`, or when `hurry` returns true, ends them."""
        self.draining = True
        self.engine.worker.resume()
        end = time.monotonic() + seconds
        while self._works() and time.monotonic() < end and not hurry():
            await asyncio.sleep(0.05)
        if self._works():
            logger.warning("%d completions cut off: the drain timeout has expired", self.engine.running)
            await self.engine.call(lambda engine: engine.abort_all())

    def _works(self) -> bool:
        return self.engine.running > 0 and self.engine.worker.healthy(self.settings.stuck_after)

    async def stop(self) -> None:
        """Ends the engine."""
        self.draining = True
        self._trimming.cancel()
        self.reader.close()
        self.guides.close()
        await asyncio.to_thread(self.adapters.close)
        await self.engine.close()

    def open(self) -> CompletionHandler:
        """The generator. ServerError 503 while loading, draining or after a failed load."""
        if self.failure is not None:
            raise ServerError(503, "the model could not be loaded; see the server's log", "server_error")
        if not self.ready or self.generator is None or self.draining:
            what = "shutting down" if self.draining else "loading the model"
            raise ServerError(503, f"the server is {what}", "server_error", retry_after=2)
        return self.generator

    async def fetch(self, model: str | None) -> None:
        """Loads an adapter from the root if it is not loaded yet; unknown names are left to `resolve`."""
        if model is not None and model != self.settings.model and model not in self.adapters.versions:
            await self.adapters.fetch(model)

    def resolve(self, model: str | None) -> str | None:
        """The adapter that a `model` names; None for the base model. On the event loop only, which owns the names.

        ServerError 404 if it is not served.
        """
        if model is None or model == self.settings.model:
            return None
        if model not in self.adapters.versions:
            raise ServerError(404, f"no model {model!r:.100} is served; see /v1/models", "not_found_error")
        self.adapters.use(model)
        return model

    @contextmanager
    def room(self, count: int) -> Iterator[None]:
        """Keeps room for choices until they are handed to the engine.

        Raises:
            ServerError: 429 if the queue has no room for so many now, 400 if it never will.
        """
        if count > self.settings.max_queue:
            raise ServerError(400, f"{count} completions in one request; at most {self.settings.max_queue} are served")
        here = self.engine.held + self._coming
        if here + count > self.settings.max_queue:
            raise ServerError(
                429,
                f"{here} completions are waiting, running or not yet read; try again later",
                "rate_limit_error",
                retry_after=1,
            )
        self._coming += count
        try:
            yield
        finally:
            self._coming -= count
