"""Values from the command line or files: `NAME=VALUE` pairs, and merged tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from inference.address import hide_secrets

PYTHON = {"True": True, "False": False, "None": None}
"""Python's names of constants, as messages about arguments use; JSON has true, false and null."""


def merged(base: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    """Nested settings, with those of `top` taking precedence."""
    out = dict(base)
    for key, value in top.items():
        both = isinstance(value, dict) and isinstance(out.get(key), dict)
        out[key] = merged(out[key], value) if both else value
    return out


def parse_assignments(pairs: Sequence[str] | Mapping[str, object], what: str) -> dict[str, object]:
    """`["num_rounds=3", "wild=True", "memory=chat"]` as a dict: values are read as JSON or Python constants if
    possible, else as text; in double quotes everything is text. A mapping stays as it is.

    Raises:
        SystemExit: a pair has no `=`; usage errors exit with 2.
    """
    if isinstance(pairs, Mapping):
        return dict(pairs)
    found: dict[str, object] = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key:
            print(f"legos: {what} takes NAME=VALUE, got {hide_secrets(pair)!r}", file=sys.stderr)
            raise SystemExit(2)
        try:
            found[key] = json.loads(value)
            json.dumps(found[key], allow_nan=False)  # NaN and 1e999 are no JSON: they stay text
        except ValueError:
            found[key] = PYTHON.get(value, value)
    return found
