"""The completions of one request as they grow, and reports on their tokens."""

from __future__ import annotations

import codecs
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from inference.server.grammars import Grammar
from inference.text import Conversations, TextStream, TokenBytes
from inference.tool_calls import CallReader, ToolCall
from inference.types import AdapterInfo, Completion, Request

Tops = list[list[tuple[int, float]]]
BYTES_PER_NUMBER = 24
"""Writing a token's id, or its log-probability with its text, takes 2 to 7 us."""


@dataclass
class Choice:
    """One completion as it grows."""

    index: int
    request: Request
    text: TextStream
    messages: list[dict[str, str]] | None
    talk: Conversations
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    tops: Tops = field(default_factory=list)
    done: Completion | None = None
    reader: CallReader | None = None
    calls: list[ToolCall] = field(default_factory=list)
    told_calls: int = 0  # how many of the calls a stream has sent
    said: str = ""  # the text without tool calls
    prompt_text: str = ""
    prompt_logprobs: list[float | None] = field(default_factory=list)  # of an echoed prompt; its first token has none
    prompt_tops: list[list[tuple[int, float]] | None] = field(default_factory=list)
    prompt_adapter: AdapterInfo | None = None  # the adapter they were computed under
    offsets: list[int] = field(default_factory=list)  # characters before each token
    _characters: codecs.IncrementalDecoder = field(default_factory=codecs.getincrementaldecoder("utf-8"))
    _seen: int = 0
    secret: str = field(default_factory=lambda: secrets.token_hex(8))

    def __post_init__(self) -> None:
        self._characters.errors = "replace"

    @property
    def reason(self) -> str | None:
        """OpenAI's finish reason; "abort" if the adapter was published with that mode."""
        if self.done is None:
            return None
        if self.calls and self.done.finish_reason == "stop":
            return "tool_calls"
        return {"aborted": "abort"}.get(self.done.finish_reason, self.done.finish_reason)

    def size(self, with_ids: bool) -> int:
        """Roughly the work of writing its answer, in bytes as `Reader.run` counts them."""
        numbers = len(self.tokens) * (1 + self.request.sampling.top_logprobs) + with_ids * len(self.request.prompt)
        numbers += len(self.prompt_logprobs) + sum(len(top or ()) for top in self.prompt_tops)
        return BYTES_PER_NUMBER * numbers

    def read(self, tokens: Sequence[int], *, last: bool = False) -> str:
        """Adds tokens to the text; returns the part that is certain, new and not a tool call."""
        piece = self.text.push(tokens, last=last)
        if self.reader is not None:
            piece, calls = self.reader.push(piece, last=last)
            self.calls += calls
        self.said += piece
        return piece

    def made_calls(self) -> list[dict[str, Any]]:
        """The tool calls in the form of OpenAI's API."""
        return [
            {"id": f"call_{self.secret}{i}", "type": "function", "function": call._asdict()}
            for i, call in enumerate(self.calls)
        ]

    def fault(self) -> str:
        """Why its grammar could not be followed to the end; "" if it could, or if there was none."""
        guide = self.request.sampling.guide
        if self.done is None or not isinstance(guide, Grammar) or not (why := guide.fault(self.tokens[:-1])):
            return ""
        return f"the grammar of the reply became too complex after {len(self.tokens) - 1} tokens: {why}"

    def count_characters(self, of: TokenBytes) -> None:
        """Brings `offsets` up to date."""
        for token in self.tokens[len(self.offsets) :]:
            self.offsets.append(self._seen)
            self._seen += len(self._characters.decode(of[token]))


class TokenReport:
    """The log-probabilities of tokens, with their texts.

    Args:
        tokenizer: mlx-lm's wrapper.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.bytes = tokenizer, TokenBytes(tokenizer)
        self._words: dict[int, str] = {}

    def logprobs(self, choice: Choice, start: int, *, chat: bool) -> dict[str, Any]:
        """The log-probabilities of a choice's tokens from `start` on, in the form of either API."""
        if choice.prompt_logprobs and not chat:
            return self._with_prompt(choice)
        tokens = choice.tokens[start:]
        tops = choice.tops[start:] or [[] for _ in tokens]
        numbers = [finite(p) for p in choice.logprobs[start:]]
        if not chat:
            choice.count_characters(self.bytes)
            return {
                "tokens": [self._word(token) for token in tokens],
                "token_logprobs": numbers,
                # Reversed: partial characters look alike, and the most likely one should win.
                "top_logprobs": [{self._word(i): finite(p) for i, p in reversed(top)} for top in tops],
                "text_offset": choice.offsets[start:],
            }
        content = [
            self._entry(token, number) | {"top_logprobs": [self._entry(i, finite(p)) for i, p in top]}
            for token, number, top in zip(tokens, numbers, tops)
        ]
        return {"content": content, "refusal": None}

    def _with_prompt(self, choice: Choice) -> dict[str, Any]:
        """The log-probabilities of an echoed prompt and its completion, in the form of the older API."""
        tokens = [*choice.request.prompt, *choice.tokens]
        numbers = [*choice.prompt_logprobs, *choice.logprobs]
        tops = [*choice.prompt_tops, *(choice.tops or [[] for _ in choice.tokens])]
        characters = codecs.getincrementaldecoder("utf-8")("replace")
        offsets, seen = [], 0
        for token in tokens:
            offsets.append(seen)
            seen += len(characters.decode(self.bytes[token]))
        return {
            "tokens": [self._word(token) for token in tokens],
            "token_logprobs": [None if p is None else finite(p) for p in numbers],
            "top_logprobs": [
                None if top is None else {self._word(i): finite(p) for i, p in reversed(top)} for top in tops
            ],
            "text_offset": offsets,
        }

    def text(self, tokens: Sequence[int]) -> str:
        """The text of a prompt that came as token ids."""
        return b"".join(self.bytes[token] for token in tokens).decode("utf-8", "replace")

    def _entry(self, token: int, logprob: float) -> dict[str, Any]:
        return {"token": self._word(token), "logprob": logprob, "bytes": list(self.bytes[token])}

    def _word(self, token: int) -> str:
        word = self._words.get(token)
        if word is None:
            word = self._words[token] = str(self.tokenizer.decode([token], skip_special_tokens=False))
        return word


def finite(logprob: float) -> float:
    """JSON has no infinities; OpenAI writes -9999 for a probability of zero."""
    return max(logprob, -9999.0)


def usage(choices: Sequence[Choice]) -> dict[str, Any]:
    """Tokens used; a prompt that several choices share counts once."""
    per_prompt = max(1, len(choices) // max(1, len({id(choice.request.prompt) for choice in choices})))
    first = [choice for choice in choices if choice.index % per_prompt == 0]
    prompt = sum(len(choice.request.prompt) for choice in first)
    cached = sum(choice.done.cached_tokens for choice in first if choice.done is not None)
    completion = sum(len(choice.tokens) for choice in choices)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
