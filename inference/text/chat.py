"""Messages to token ids, and tokens to text piece by piece.

A conversation answered here continues with the ids of that answer: earlier ids, sampled ids, and the delta of the new
messages. Re-rendering a reply often gives tokens other than those sampled, and then neither the KV cache nor the
recorded log-probabilities match.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from inference.bounded_cache import BoundedCache
from inference.text.render import Renderer
from inference.tool_calls import ARGUMENTS, NAME, ToolCall, spoken

Dialogue = tuple[tuple[str, str], ...]
Ids = tuple[int, ...]


class Conversations:
    """Renders conversations, and remembers the ids of answered ones: the last 4,096, within 64 MiB.

    Its renderer's own cache comes on top. Thread-safe.
    """

    def __init__(self, renderer: Renderer, most_bytes: int = 64 << 20) -> None:
        self.renderer = renderer
        self._answered: BoundedCache[tuple[Ids, Ids]] = BoundedCache(4096, most_bytes)

    def prompt(self, messages: Sequence[dict[str, str]]) -> tuple[int, ...]:
        """The ids of a conversation with the assistant's generation prompt. ValueError if the template refuses it."""
        dialogue = _dialogue(messages)
        for end in range(len(dialogue) - 1, 0, -1):
            if dialogue[end - 1][0] not in ("assistant", ARGUMENTS) or dialogue[end][0] == NAME:
                continue
            ids = self._answered.get(dialogue[:end])
            if ids is not None:
                prompt = self.renderer.extend(*ids, messages[end:])
                if prompt is not None:
                    return prompt
        return self.renderer.start(messages)

    def remember(
        self,
        messages: Sequence[dict[str, str]],
        prompt: Sequence[int],
        tokens: Sequence[int],
        text: str,
        calls: Sequence[ToolCall] = (),
    ) -> None:
        """Remembers the ids of a conversation's answer."""
        key = (*_dialogue(messages), *_dialogue(spoken(text, calls)))
        self._answered.put(key, (tuple(prompt), tuple(tokens)))


class TokenBytes:
    """The bytes that each token stands for. Tokens of byte-level vocabularies are often only parts of characters."""

    def __init__(self, tokenizer: Any) -> None:
        backend = tokenizer.backend_tokenizer
        self._tokenizer = tokenizer
        self._added = {i: token.content.encode() for i, token in backend.get_added_tokens_decoder().items()}
        decoder = json.loads(backend.decoder.__getstate__()) if backend.decoder is not None else {}
        kinds = {decoder.get("type"), *(part.get("type") for part in decoder.get("decoders", ()))}
        self._letters = _byte_letters() if "ByteLevel" in kinds else {}
        self._spelled: dict[int, bytes] = {}

    def __getitem__(self, token: int) -> bytes:
        spelled = self._spelled.get(token)
        if spelled is None:
            spelled = self._spelled[token] = self._added.get(token) or self._spell(token)
        return spelled

    def _spell(self, token: int) -> bytes:
        piece = str(self._tokenizer.convert_ids_to_tokens(token))
        if self._letters and all(letter in self._letters for letter in piece):
            return bytes(self._letters[letter] for letter in piece)
        byte = re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", piece)
        if byte is not None:
            return bytes.fromhex(byte[1])
        return str(self._tokenizer.decode([token], skip_special_tokens=False)).encode()


def _byte_letters() -> dict[str, int]:
    """Byte-level vocabularies map printable Latin-1 bytes to themselves and the others, in order, from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (byte for byte in range(256) if byte not in printable)
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


def _dialogue(messages: Sequence[dict[str, str]]) -> Dialogue:
    return tuple((message["role"], message["content"]) for message in messages)


class TextStream:
    """Tokens to text as they arrive: whole characters only, nothing from a stop text on, no end token.

    Args:
        tokenizer: of the model.
        stop: texts that end the text.
        hidden: ids that are not text (end tokens).
    """

    def __init__(self, tokenizer: Any, stop: Sequence[str], hidden: frozenset[int]) -> None:
        self._tokenizer, self._stop, self._hidden = tokenizer, stop, hidden
        self._withheld = max((len(text) for text in stop), default=1) - 1  # may be the beginning of a stop text
        self._ids: list[int] = []
        self._settled = 0  # ids whose text is in `text`
        self.text = ""
        self.stopped = False
        self._emitted = 0

    def push(self, tokens: Sequence[int], *, last: bool = False) -> str:
        """The text that is certain after these tokens and has not been returned yet."""
        self._ids += [token for token in tokens if token not in self._hidden]
        if not self.stopped:
            # Decode a few settled ids again before the new ones: some decoders look at the preceding token.
            start = max(0, self._settled - 4)
            before = self._decode(self._ids[start : self._settled])
            after = self._decode(self._ids[start:])
            if last or not after.endswith("\ufffd"):
                new = after[len(before) :] if after.startswith(before) else self._decode(self._ids[self._settled :])
                searched = max(0, len(self.text) - self._withheld)
                self.text += new
                self._settled = len(self._ids)
                ends = [at for at in (self.text.find(text, searched) for text in self._stop) if at >= 0]
                if ends:
                    self.text, self.stopped = self.text[: min(ends)], True
        certain = len(self.text) if last or self.stopped else max(self._emitted, len(self.text) - self._withheld)
        piece = self.text[self._emitted : certain]
        self._emitted = max(self._emitted, certain)
        return piece

    def _decode(self, ids: list[int]) -> str:
        return (
            str(self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))
            if ids
            else ""
        )
