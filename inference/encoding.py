"""Text to token ids in two ways: template text, where markers become control ids, and seats' text, where none can.

A chat marker such as ``<|im_end|>`` is one *added token*: a tokenizer looks for those strings before it does anything
else, so a player who types one closes their own turn and opens another speaker's. ``split_special_tokens=True`` of
transformers helps with tokens flagged ``special`` only; ``<think>``, ``<tool_call>`` and DeepSeek's ``<|User|>`` are
added without that flag and pass. So seats' text is encoded by a copy of the tokenizer that has no markers to find.
"""

from __future__ import annotations

import json
from typing import Any

from tokenizers import Tokenizer

__all__ = ["TextEncoder", "replace_surrogates"]


def replace_surrogates(text: str) -> str:
    """Return ``text`` as valid Unicode: surrogate pairs become their character, lone surrogates become U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


class TextEncoder:
    """The two ways from text to ids for one tokenizer.

    ``control_ids`` holds every added token's id that no seat may produce: all but those made of white space only
    (some vocabularies add runs of spaces, which mark nothing) and but the unknown token (which is what some
    vocabularies give for any odd character, hence no secret).

    Raises ``TypeError`` for a tokenizer without a ``tokenizers`` backend and ``ValueError`` where the copy still finds
    markers.
    """

    def __init__(self, tokenizer: Any) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, Tokenizer):
            raise TypeError(
                f"{type(tokenizer).__name__} has no `tokenizers` backend, so seats' text cannot be kept apart from chat "
                "markers; load a fast tokenizer (a model folder with tokenizer.json)"
            )
        self._tokenizer = tokenizer
        spec = json.loads(backend.to_str())
        added = spec["added_tokens"]
        blank = [token for token in added if not token["content"].strip()]
        unknown = tokenizer.unk_token_id if tokenizer.unk_token_id != tokenizer.eos_token_id else None
        self.control_ids = frozenset(t["id"] for t in added) - {t["id"] for t in blank} - {unknown}
        self.markers = {t["content"]: t["id"] for t in added if t["id"] in self.control_ids}

        inner = {**spec, "truncation": None, "padding": None, "post_processor": None}
        for part in ("normalizer", "pre_tokenizer"):
            inner[part] = _without_dummy_space(spec[part])
        same = all(inner[part] == spec[part] for part in ("normalizer", "pre_tokenizer"))
        self._inner = None if same else Tokenizer.from_str(json.dumps(inner))
        self._plain = Tokenizer.from_str(json.dumps({**inner, "added_tokens": blank}))
        # The copy numbers its remaining added tokens from the end of the vocabulary, the original may not have.
        renumbered = {self._plain.token_to_id(token["content"]): token["id"] for token in blank}
        self._renumbered = {new: old for new, old in renumbered.items() if new != old}

        forged = self.control_ids.intersection(self.plain(" ".join(self.markers)))
        if forged:
            raise ValueError(f"{type(tokenizer).__name__}: ordinary text still reaches the control ids {sorted(forged)}")

    def markup(self, text: str, *, first: bool = False) -> list[int]:
        """Encode template text, markers as control ids. ``first``: the text opens the prompt.

        SentencePiece-style tokenizers put a space before the first word they are given, which is right at the start
        of a prompt and wrong in its middle; a text that begins with a marker is left to the tokenizer's own habit.
        """
        if self._inner is None or first or text.startswith(tuple(self.markers)):
            return list(self._tokenizer.encode(text, add_special_tokens=False))
        return self._inner.encode(text, add_special_tokens=False).ids

    def plain(self, text: str) -> list[int]:
        """Encode a seat's text: every marker in it as ordinary characters, no id in ``control_ids``, no added space."""
        text = replace_surrogates(text)
        encoding = self._plain.encode(text, add_special_tokens=False)
        ids = encoding.ids
        if self._renumbered:
            ids = [self._renumbered.get(i, i) for i in ids]
        if self.control_ids.isdisjoint(ids):
            return ids
        # Unigram and WordLevel models list markers among their words and may find one whole: spell it instead.
        spelt: list[int] = []
        for token, (begin, end) in zip(ids, encoding.offsets, strict=True):
            if token not in self.control_ids:
                spelt.append(token)
                continue
            for character in text[begin:end]:
                letters = self._plain.encode(character, add_special_tokens=False).ids
                spelt += [self._renumbered.get(i, i) for i in letters if i not in self.control_ids]
        return spelt


def _without_dummy_space(part: Any) -> Any:
    """Copy a normalizer or pre-tokenizer description without its habit of putting a space before the text."""
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
