"""When to retry: exponential backoff with jitter, at least as long as the server asks, within a limit.

Our own loop: `Retry-After` sets the waits, an attempt must know that it is a retry, and a fleet switches servers in
between. A library such as stamina would only replace this one formula.
"""

from __future__ import annotations

import asyncio
import email.utils
import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from inference.client.errors import ServerUnavailable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Retry:
    """How often to try, and how long to wait in between.

    Attributes:
        attempts: tries in all.
        first: seconds of the first wait, before jitter.
        most: seconds of the longest wait, before jitter.
        budget: seconds after the first failure within which a new attempt may start; a longer `Retry-After` ends it
            too.
    """

    attempts: int = 12
    first: float = 0.1
    most: float = 8.0
    budget: float = 60.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or not 0 <= self.first <= self.most or self.budget < 0:
            raise ValueError(f"attempts of at least 1, 0 <= first <= most and budget >= 0 are needed; got {self}")

    def wait(self, failures: int, retry_after: float | None = None) -> float:
        """Seconds to wait after the n-th failure (from 1): between half of the backoff and all of it."""
        backoff = min(self.most, self.first * 2.0 ** min(failures - 1, 60))
        return max(backoff * random.uniform(0.5, 1.0), retry_after or 0.0)

    async def run(self, attempt: Callable[[int], Awaitable[T]]) -> T:
        """Calls attempt(number from 0) until it does not raise ServerUnavailable; never retries after a timeout."""
        started: float | None = None
        number = 0
        while True:
            try:
                return await attempt(number)
            except ServerUnavailable as error:
                number += 1
                now = time.monotonic()
                started = now if started is None else started
                pause = self.wait(number, error.retry_after)
                if error.timed_out or number >= self.attempts or now - started + pause > self.budget:
                    raise
            await asyncio.sleep(pause)


def retry_after(value: str | None) -> float | None:
    """Seconds that a `Retry-After` header asks for: a number or a date. None if missing or malformed."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError, IndexError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
