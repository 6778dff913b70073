"""Where a model's thought begins and ends, and when it must be closed: for the engine, renderers and training.

A thinking model answers `<think>...</think>answer`; some chat templates write the `<think>` themselves. A limit on the
thought is a rule on token ids: after that many tokens the next one is `</think>`, whatever the model would write. So
the tokens of a reply alone show which of them the rule wrote, in this process and over HTTP.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

OPEN, CLOSE = "<think>", "</think>"
NO_LIMIT = -1
THINKING: dict[str, bool | None] = {"auto": None, "on": True, "off": False}
"""The settings of the thinking switch, and the `enable_thinking` each passes to chat templates."""
_NEAR = 4  # a template that opens the thought ends with the marker and perhaps some white space


class ThoughtMarkers(NamedTuple):
    """The ids of `<think>` and `</think>` in one vocabulary."""

    open: int
    close: int

    def opened_by(self, prompt: Sequence[int]) -> bool:
        """Whether a prompt ends inside a thought that its template opened."""
        end = list(prompt[-_NEAR:])
        return self.open in end and self.close not in end[end.index(self.open) :]


class ThoughtLimit(NamedTuple):
    """A limit on the thought of one reply.

    Attributes:
        markers: those of the vocabulary.
        opened: whether the prompt has opened the thought.
        tokens: most tokens of the thought, not counting markers.
    """

    markers: ThoughtMarkers
    opened: bool
    tokens: int

    def must_close(self, said: Sequence[int]) -> bool:
        """Whether the next token has to close the thought."""
        if len(said) < self.tokens or self.markers.close in said:
            return False
        if self.opened:
            return len(said) == self.tokens
        return self.markers.open in said and len(said) - 1 - said.index(self.markers.open) == self.tokens

    def closed_at(self, said: Sequence[int]) -> int | None:
        """The index of the `</think>` that the limit wrote in a reply; None if the model closed its thought itself."""
        if self.markers.close not in said:
            return None
        at = said.index(self.markers.close)
        return at if self.must_close(said[:at]) else None


@functools.lru_cache(maxsize=8)
def _markers(backend: Any) -> ThoughtMarkers | None:
    added = {token.content: i for i, token in backend.get_added_tokens_decoder().items()}
    return ThoughtMarkers(added[OPEN], added[CLOSE]) if OPEN in added and CLOSE in added else None


def markers_of(tokenizer: Any) -> ThoughtMarkers | None:
    """The markers of a tokenizer; None if they are not single tokens, since any player could then type them."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return None if backend is None else _markers(backend)
