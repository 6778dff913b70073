"""Validation errors in the API's words rather than the validating library's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

MOST, MOST_CHARACTERS = 3, 500
_FIELD = re.compile(r"[a-z][a-z0-9_]*")
_KINDS = {
    "string_type": "a text",
    "list_type": "a list",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}
_BRANCHES = {*_KINDS, "literal_error"}
"""Errors of one form of a field with several, which are irrelevant if another form matched deeper."""
_NO_FIELDS = {"str", "int", "float", "bool", "dict", "list"}


def problems(errors: Sequence[Mapping[str, Any]], skip: int = 0) -> str:
    """The first few errors of a validation, each with its location, minus the first `skip` parts of it.

    For a field with several forms, only errors of the form that matched deepest are reported; if none did, all are.
    """
    found = [(_place(error["loc"][skip:]), error) for error in errors[:50]]
    said: dict[tuple[Any, ...], list[str]] = {}
    for place, error in found:
        deeper = any(other[: len(place)] == place and len(other) > len(place) for other, _ in found)
        if not (deeper and error["type"] in _BRANCHES):
            words = said.setdefault(place, [])
            words += [] if (text := _words(error)) in words else [text]
    lines = [f"{'.'.join(map(str, place)) or 'body'}: {', or '.join(words)}" for place, words in said.items()]
    return "; ".join(lines[:MOST])[:MOST_CHARACTERS].encode("utf-8", "replace").decode()


def _place(loc: Sequence[Any]) -> tuple[Any, ...]:
    """Field names and item numbers; the type names among them are left out."""
    return tuple(p for p in loc if isinstance(p, int) or (_FIELD.fullmatch(p) and p not in _NO_FIELDS))[:5]


def _words(error: Mapping[str, Any]) -> str:
    kind, more, given = error["type"], error.get("ctx") or {}, error.get("input")
    shown = repr(given[:40]) if isinstance(given, str) else "this"
    if kind == "extra_forbidden":
        return "this field is not supported"
    if kind == "missing":
        return "this field is required"
    if kind in _KINDS:
        return f"must be {_KINDS[kind]}"
    if kind == "literal_error":
        return f"{shown} is not supported; accepted: {more['expected']}"
    if kind == "union_tag_invalid":
        return f"{more['tag'][:40]!r} is not supported; accepted: {more['expected_tags']}"
    if kind in ("too_short", "too_long"):
        least = "at least" if kind == "too_short" else "at most"
        return f"must have {least} {more.get('min_length', more.get('max_length'))} items"
    message = str(error["msg"]).removeprefix("Value error, ")
    message = message.replace("greater than or equal to", "at least").replace("less than or equal to", "at most")
    return re.sub(r"^(?:Input|String|List|Dictionary|Tuple) should (?:be )?", _must, message)


def _must(match: re.Match[str]) -> str:
    return "must be " if match[0].endswith("be ") else "must "
