"""Single-file pages: template, style, script and data, under a policy that allows nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

BASE_STYLE = files("legos_train.observe") / "assets" / "base.css"
BASE_SCRIPT = files("legos_train.observe") / "assets" / "dom.js"
HEAD = files("legos_train.observe") / "assets" / "head.html"


def self_contained(
    template: Traversable,
    *,
    title: str,
    styles: Sequence[Traversable],
    scripts: Sequence[Traversable],
    data: Sequence[str],
    live: bool,
) -> str:
    """A page as HTML text.

    Args:
        template: HTML with {{head}}, {{data}} and {{script}}.
        title: plain text.
        styles: assets to embed, in this order.
        scripts: the same; they share one scope.
        data: JSON texts from `script_json`, one per line in the element #data.
        live: whether the script may poll the page's own server.
    """
    style = "\n".join(file.read_text(encoding="utf-8") for file in styles)
    script = "\n".join(file.read_text(encoding="utf-8") for file in scripts)
    script = f'(() => {{\n"use strict";\n{script}\n}})();\n'
    parts = {
        "csp": csp(script, style, live=live),
        "title": html.escape(title),
        "style": style,
        "script": script,
        # one line per JSON text: none contains a line break, or a `<` that could end the script element
        "data": "\n".join(data),
    }
    return _filled(template, {**parts, "head": _filled(HEAD, parts).rstrip()})


def _filled(template: Traversable, parts: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template.read_text(encoding="utf-8"))


def csp(script: str, style: str, *, live: bool) -> str:
    """The content security policy: this script, this style, no other source, no HTML built from text."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {_hash(script)}",
            f"style-src {_hash(style)}",
            *(["connect-src 'self'"] if live else []),
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        ]
    )


def script_json(value: Any) -> str:
    """JSON in ASCII on one line that is safe inside a script element; NaN and infinities become strings."""
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(value), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"
