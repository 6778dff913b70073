"""A client of an engine in this process, with the same results as a server with the same model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from inference.client import wire
from inference.client.errors import RequestRefused, ServerUnavailable
from inference.client.interface import ChatReply, Client, Message, ServerInfo, Usage, chat_options
from inference.client.packing import PackedAdapter, check_name, pack
from inference.text import PROTOCOL, template_digest, tokenizer_digest
from inference.types import Completion, InferenceError, PublishMode, Request, UnknownAdapter, VersionConflict

if TYPE_CHECKING:
    from inference.engine import AsyncEngine
    from inference.text import Conversations


class LocalClient(Client):
    """`Client` of an `AsyncEngine`.

    An engine that has not been started is started on entering and closed with the client; one already running is left
    running.

    Args:
        engine: the engine.
        model: name or directory of its model; `info` takes the digests from there.
    """

    def __init__(self, engine: AsyncEngine, model: str | Path | None = None) -> None:
        self.engine, self.model = engine, model
        self._owned = False
        self._base: str | None = None
        self._talk: Conversations | None = None  # also None for an engine without a tokenizer
        self._talk_tried = False
        self._lock = asyncio.Lock()

    @classmethod
    def load(cls, model: str | Path = "tiny", **options: Any) -> Self:
        """A client with its own engine. options: those of `Engine`."""
        from inference.engine import AsyncEngine, Engine

        return cls(AsyncEngine(lambda: Engine.load(model, **options)), model)

    def __repr__(self) -> str:
        return f"LocalClient({str(self.model)!r})"

    async def complete(self, request: Request) -> Completion:
        if request.stream:
            raise RequestRefused(400, "stream has no meaning for a whole completion; use the engine or the HTTP API")
        if request.sampling.stop_ids is None:
            talk = await self._conversations()
            stop_ids = None if talk is None else talk.renderer.stop_ids
            request = replace(request, sampling=replace(request.sampling, stop_ids=stop_ids))
        with _as_refusals():
            done = await self.engine.complete(request)
        if done.finish_reason == "error":
            if self.engine.closing:
                raise ServerUnavailable(f"the engine was closed: {done.error}")
            raise RequestRefused(500, f"generation failed: {done.error}")
        return done

    async def chat(self, messages: Sequence[Message], *, session: str | None = None, **options: Any) -> ChatReply:
        from inference.text import TextStream

        adapter, choices, params = chat_options(**options)
        talk = await self._conversations()
        if talk is None:
            raise RequestRefused(400, "this engine has no tokenizer: send token ids with complete()")
        plain = wire.plain_messages(messages)
        try:
            prompt = talk.prompt(plain)
            end = () if choices is None else (talk.renderer.end_id,)
        except ValueError as error:
            raise RequestRefused(400, f"these messages or choices cannot be rendered: {error}"[:300]) from error
        if choices is not None:
            if params.allowed is not None:
                raise RequestRefused(400, "give either choices or allowed")
            params = replace(params, allowed=[(*talk.renderer.encode(choice), *end) for choice in choices])
        request = Request(prompt, params, adapter, park=True)
        done = await self.complete(request)
        text = TextStream(talk.renderer.tokenizer, params.stop, talk.renderer.stop_ids)
        text.push(done.tokens, last=True)
        if done.finish_reason in ("stop", "length") and not text.stopped:  # else tokens go on behind the text
            talk.remember(plain, prompt, done.tokens, text.text)
        return ChatReply(
            text=text.text,
            token_ids=done.tokens,
            logprobs=done.logprobs,
            sampled_logprobs=done.sampled_logprobs,
            finish_reason=done.finish_reason,
            adapter=done.adapter,
            policy_version=done.policy_version,
            usage=Usage(done.prompt_tokens, done.cached_tokens, len(done.tokens)),
            prompt_ids=list(prompt),
            top_logprobs=done.top_logprobs,
            token_versions=done.token_versions,
            adapter_digest=done.adapter_digest,
        )

    async def publish(
        self,
        name: str,
        weights: Mapping[str, Any] | PackedAdapter,
        scale: float,
        version: int,
        mode: PublishMode = "pin",
    ) -> str:
        import mlx.core as mx

        from inference.files import adapter_tensors

        check_name(name)
        if isinstance(weights, PackedAdapter):
            packed = pack(weights, scale)  # checks the scale
            arrays = adapter_tensors(packed.body)
        else:
            arrays = {key: w if isinstance(w, mx.array) else mx.array(w) for key, w in weights.items()}
        mx.eval(arrays)  # in this thread, as the engine's cannot evaluate arrays made here
        with _as_refusals():
            return await self.engine.call(
                lambda e: e.publish(name, arrays, scale=scale, version=version, mode=mode, monotone=True)
            )

    async def unpublish(self, name: str) -> None:
        check_name(name)

        with _as_refusals():
            await self.engine.call(lambda engine: engine.unpublish(name))

    async def info(self) -> ServerInfo:
        """See `Client`. InferenceError for a client without `model`."""
        if self.model is None:
            raise InferenceError("give LocalClient the model's name or directory: its digests come from there")
        from inference import loading

        with _as_refusals():
            tokenizer, vocab, context, adapters = await self.engine.call(
                lambda e: (e.tokenizer, e.vocab_size, e.context, e.adapters())
            )
        path = loading.find_model(self.model)
        if self._base is None:  # reads every weight file
            self._base = await asyncio.to_thread(loading.base_digest, path)
        return ServerInfo(
            PROTOCOL,
            str(self.model),
            self._base,
            tokenizer_digest(path),
            template_digest(tokenizer),
            vocab,
            context,
            adapters,
        )

    async def health(self) -> bool:
        return self.engine.worker.healthy()

    async def close(self) -> None:
        """Ends the engine, if this client started it."""
        if self._owned:
            self._owned = False
            await self.engine.close()

    async def __aenter__(self) -> Self:
        if not self.engine.started:
            self._owned = True
            await self.engine.start()
        return self

    async def _conversations(self) -> Conversations | None:
        """Conversations for the engine's tokenizer, if any; made once, off the loop, as this tries out the template."""
        from inference.text import Conversations, Renderer

        async with self._lock:
            if not self._talk_tried:
                with _as_refusals():
                    tokenizer = await self.engine.call(lambda engine: engine.tokenizer)
                if tokenizer is not None:
                    self._talk = await asyncio.to_thread(lambda: Conversations(Renderer(tokenizer)))
                self._talk_tried = True
        return self._talk


@contextmanager
def _as_refusals() -> Iterator[None]:
    """Turns the engine's errors into a server's."""
    try:
        yield
    except UnknownAdapter as error:
        raise RequestRefused(404, str(error)[:500]) from error
    except VersionConflict as error:
        raise RequestRefused(409, str(error)[:500]) from error
    except ValueError as error:
        raise RequestRefused(400, str(error)[:500]) from error
    except InferenceError as error:
        raise ServerUnavailable(str(error)) from error
