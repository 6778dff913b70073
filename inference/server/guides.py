"""Grammars for requests: compiled in their own thread within a time limit, and cached by schema."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from inference.server.grammars import Grammar, GrammarError, Grammars
from inference.server.protocol import ServerError

logger = logging.getLogger(__name__)

SECONDS, MOST_WAITING = 5.0, 32
MISSING = 'needs llguidance on the server: uv sync --extra grammar, or pip install "legos-selfplay[grammar]"'


class Guides:
    """Compiles the grammars that requests ask for.

    Args:
        grammars: of the model's vocabulary; None if unavailable.
        missing: why they are unavailable.
    """

    def __init__(self, grammars: Grammars | None, missing: str = MISSING) -> None:
        self._grammars, self._missing = grammars, missing
        self._thread = ThreadPoolExecutor(1, "grammars")
        self._waiting = 0

    async def compile(self, what: str, end_id: int, make: Callable[[Grammars], Grammar]) -> Grammar:
        """The grammar that `make` returns.

        Args:
            what: the field of the request, for messages.
            end_id: the token that ends the reply.
            make: called in that thread.

        Raises:
            ServerError: 400 for a grammar that is refused or takes more than 5 s, 429 if too many are waiting, 501
                without llguidance.
        """
        grammars = self._grammars
        if grammars is None:
            raise ServerError(501, f"{what} {self._missing}")
        if grammars.end_id != end_id:
            raise ServerError(400, f"{what} cannot be used: another token ends replies under this thinking switch")
        if self._waiting >= MOST_WAITING:
            why = f"{self._waiting} grammars are waiting; try again later"
            raise ServerError(429, why, "rate_limit_error", retry_after=1)
        self._waiting += 1
        try:
            work = asyncio.get_running_loop().run_in_executor(self._thread, make, grammars)
            return await asyncio.wait_for(work, SECONDS)
        except GrammarError as error:
            raise ServerError(400, f"{what} cannot be followed: {error}"[:500]) from error
        except TimeoutError as error:
            raise ServerError(400, f"{what} cannot be followed: it takes more than {SECONDS:g} s to compile") from error
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Accepts no further work."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def make_guides(tokenizer: Any, vocab: int, end_id: Callable[[], int]) -> Guides:
    """The guides of a model; without llguidance or an end token, requests for one get an error that says so.

    Called while the server loads: for a large vocabulary it takes seconds during which no other thread runs.
    """
    try:
        return Guides(Grammars(tokenizer, vocab, end_id()))
    except ModuleNotFoundError:
        return Guides(None)
    except ValueError as error:
        logger.warning("no JSON mode and no required tool calls: %s", error)
        return Guides(None, f"cannot be used with this model: {error}"[:300])
