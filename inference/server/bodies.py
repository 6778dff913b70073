"""Request bodies: bounded before they are parsed, and parsed off the event loop when they are long.

A thread does not help while one call into C holds the interpreter, so the input to such calls is bounded: values before
JSON is parsed, keys of an object during parsing, errors by lists that stop at their first one (`protocol.py`), and the
text passed to a tokenizer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from inference.server.wording import problems

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

SHORT = 4 << 10
"""Bytes of work that keep the event loop busy for less than a millisecond."""
LONG_WORK = 1 << 30
MAX_VALUES = 1 << 18
MAX_KEYS = 1024
MAX_DIGITS = 400
PIECE = 64 << 10
"""Number of bytes scanned at a time."""


class Reader:
    """One thread for long bodies and long texts, so that they use one core and keep their order."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "reader")

    async def run(self, size: int, work: Callable[[], T]) -> T:
        """The result of work on `size` bytes: done here when short, else in the thread."""
        if size <= SHORT:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """Accepts no further work."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def route_class(reader: Reader) -> type[APIRoute]:
    """Routes whose body is parsed by `read`, off the event loop when it is long."""

    class Body(Request):
        """A request whose JSON is already an instance of the route's model."""

        kind: type[BaseModel]

        async def body(self) -> bytes:
            if not hasattr(self, "_body"):
                self._body = (await self.receive())["body"]  # the guard has read all of it; no copy
            return self._body

        async def json(self) -> Any:
            body = await self.body()
            return await reader.run(len(body), lambda: read(body, self.kind))

    class Route(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()
            kind: Any = self.body_field.field_info.annotation if self.body_field is not None else BaseModel

            async def with_bounds(request: Request) -> Response:
                body = Body(request.scope, request.receive)
                body.kind = kind
                return await handle(body)

            return with_bounds

    return Route


def read(body: bytes, kind: type[M]) -> M:
    """A request from its JSON. HTTPException 400 for invalid fields, and for too many values."""
    values = _values(body)
    if values > MAX_VALUES:
        counted = "a list or a key counts as 4, an object as 32"
        raise HTTPException(400, f"the body has {values} values or more ({counted}); at most {MAX_VALUES} are accepted")
    try:
        value = json.loads(body, object_pairs_hook=_object, parse_int=_number(int), parse_float=_number(float))
        return kind.model_validate(value)
    except ValidationError as error:
        raise HTTPException(400, problems(error.errors(include_url=False))) from None
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the body cannot be read as JSON: {error}"[:300]) from None


def _values(body: bytes) -> int:
    """An upper bound on the number of values, up to where the body stops being JSON. Text contents do not count."""
    values = quotes = 0
    rest = b""
    for start in range(0, len(body), PIECE):
        piece = rest + body[start : start + PIECE]
        slashes = len(piece) - len(piece.rstrip(b"\\"))
        rest = piece[len(piece) - slashes % 2 :]  # an escape that ends in the next piece
        parts = piece[: len(piece) - slashes % 2].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(parts[quotes % 2 :: 2])
        values += outside.count(b",") + 4 * (outside.count(b":") + outside.count(b"[")) + 32 * outside.count(b"{")
        quotes += len(parts) - 1
        if max(values, quotes // 2) > MAX_VALUES:
            break
    return max(values, quotes // 2)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MAX_KEYS:
        raise ValueError(f"an object has {len(pairs)} keys; at most {MAX_KEYS} are accepted")
    return dict(pairs)


def _number(kind: Callable[[str], T]) -> Callable[[str], T]:
    """Reads numbers one by one, so that other threads get a turn."""

    def number(digits: str) -> T:
        if len(digits) > MAX_DIGITS:
            raise ValueError(f"a number of {len(digits)} digits; at most {MAX_DIGITS} are accepted")
        return kind(digits)

    return number
