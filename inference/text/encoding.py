"""Encodes text in two ways: template text, whose markers become control ids, and seats' text, whose markers cannot.

A chat marker such as `<|im_end|>` is one *added token*: a tokenizer looks for those strings before anything else, so
a player who types one closes their own turn and opens another speaker's. `split_special_tokens=True` of transformers
helps with tokens flagged `special` only; `<think>`, `<tool_call>` and DeepSeek's `<|User|>` are added without
that flag and get through. So seats' text is encoded by a copy of the tokenizer that has no markers.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tokenizers import AddedToken, Encoding, Tokenizer

__all__ = ["TextEncoder", "replace_surrogates"]

_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_LONG = 1 << 12  # characters that can be tokenised without holding up other threads
_EMPTY_MODEL = {"type": "BPE", "vocab": {}, "merges": []}


def replace_surrogates(text: str) -> str:
    """Returns `text` as valid Unicode: surrogate pairs become their character, lone surrogates become U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


class TextEncoder:
    """Both ways from text to ids for one tokenizer.

    Attributes:
        control_ids: ids of the added tokens that no seat may produce: all but those made only of white space (some
            vocabularies add runs of spaces, which mark nothing), the byte tokens `<0x..>` and the unknown token (used
            for characters that the vocabulary lacks).
        markers: their strings, with these ids.

    Raises:
        TypeError: the tokenizer has no `tokenizers` backend.
        ValueError: the copy still finds markers.
    """

    def __init__(self, tokenizer: Any) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, Tokenizer):
            raise TypeError(
                f"{type(tokenizer).__name__} has no `tokenizers` backend, so seats' text cannot be kept apart from "
                "chat markers; load a fast tokenizer (a model folder with tokenizer.json)"
            )
        self._tokenizer = tokenizer
        added = backend.get_added_tokens_decoder()
        blank = {i: token for i, token in added.items() if not token.content.strip()}
        unknown = tokenizer.unk_token_id if tokenizer.unk_token_id != tokenizer.eos_token_id else None
        self.markers = {
            token.content: i
            for i, token in added.items()
            if i not in blank and i != unknown and not _BYTE_TOKEN.fullmatch(token.content)
        }
        self.control_ids = frozenset(self.markers.values())

        before = {name: _description(getattr(backend, name)) for name in ("normalizer", "pre_tokenizer")}
        bare = {name: _without_dummy_space(part) for name, part in before.items()}
        self._plain = _Copy(backend, bare, blank)
        self._inner = _Copy(backend, bare, added) if bare != before else None
        forged = self.control_ids.intersection(self.plain(" ".join(self.markers)))
        if forged:
            raise ValueError(f"{type(tokenizer).__name__}: plain text still reaches the control ids {sorted(forged)}")

    def markup(self, text: str, *, first: bool = False) -> list[int]:
        """Encodes template text, markers as control ids. `first`: the text opens the prompt.

        SentencePiece-style tokenizers put a space before the first word, which is right at the start of a prompt and
        wrong in its middle; a text that begins with a marker keeps the tokenizer's own behaviour.
        """
        if self._inner is None or first or text.startswith(tuple(self.markers)):
            return list(self._tokenizer.encode(text, add_special_tokens=False))
        return self._inner.encode(text)[0]

    def plain(self, text: str) -> list[int]:
        """Encodes a seat's text: every marker in it as ordinary characters, no id in `control_ids`, no added space."""
        text = replace_surrogates(text)
        ids, encoding = self._plain.encode(text)
        if self.control_ids.isdisjoint(ids):
            return ids
        # Unigram and WordLevel models list markers among their words and may match one whole: spell it out instead.
        spelt: list[int] = []
        for token, (begin, end) in zip(ids, encoding.offsets, strict=True):
            if token not in self.control_ids:
                spelt.append(token)
                continue
            for character in text[begin:end]:
                spelt += [i for i in self._plain.encode(character)[0] if i not in self.control_ids]
        return spelt


class _Copy:
    """A tokenizer that shares another's model (vocabulary and merges), with its own steps before the model."""

    def __init__(self, backend: Tokenizer, before: dict[str, Any], added: dict[int, AddedToken]) -> None:
        parts = Tokenizer.from_str(json.dumps({"model": _EMPTY_MODEL, "added_tokens": [], **before}))
        self._tokenizer = Tokenizer(backend.model)
        for name in before:
            if getattr(parts, name) is not None:
                setattr(self._tokenizer, name, getattr(parts, name))
        self._tokenizer.add_tokens([added[i] for i in sorted(added)])
        # The copy numbers its added tokens from the end of the vocabulary; the original may not.
        renumbered = {self._tokenizer.token_to_id(token.content): i for i, token in added.items()}
        self._renumbered = {new: old for new, old in renumbered.items() if new != old}

    def encode(self, text: str) -> tuple[list[int], Encoding]:
        """Returns the ids, and the encoding that knows which characters each of them covers."""
        if len(text) < _LONG:
            encoding = self._tokenizer.encode(text, add_special_tokens=False)
        else:  # lets other Python threads run meanwhile, unlike `encode`
            [encoding] = self._tokenizer.encode_batch([text], add_special_tokens=False)
        ids = encoding.ids
        return ([self._renumbered.get(i, i) for i in ids] if self._renumbered else ids), encoding


def _description(component: Any) -> Any:
    """Returns a normalizer or pre-tokenizer as the JSON value it has in tokenizer.json."""
    return None if component is None else json.loads(component.__getstate__())


def _without_dummy_space(part: Any) -> Any:
    """Copies a normalizer or pre-tokenizer description without the space it puts before the text."""
    if isinstance(part, list):
        return [_without_dummy_space(item) for item in part if item.get("type") != "Prepend"]
    if not isinstance(part, dict):
        return part
    if part.get("type") == "Prepend":
        return None
    part = {key: _without_dummy_space(v) if isinstance(v, (list, dict)) else v for key, v in part.items()}
    if part.get("type") == "Metaspace":
        part["prepend_scheme"] = "never"
    if part.get("type") == "ByteLevel":
        part["add_prefix_space"] = False
    return part
