"""`legos doctor`: versions, device, BLAS, memory, disk, ports, caches, extras; no secrets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from legos_train.cli.arguments import Parser

DESCRIPTION = """Show what is installed here and how it is set up, for bug reports: versions, device, memory, extras.

Keys and tokens are only reported as set or not set. Nothing is sent anywhere."""
EXAMPLES = """
legos doctor
legos doctor --json    # one JSON object, for scripts
"""


def make_parser() -> Parser:
    p = Parser("doctor", DESCRIPTION, EXAMPLES)
    p.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    return p


def run(arguments: Sequence[str]) -> int:
    options = make_parser().parse_args(arguments)
    from legos_train.cli.doctor_report import examine

    report = examine()
    print(json.dumps(report, indent=1) if options.json else "\n".join(lines(report)))
    return 0


def lines(report: dict[str, Any]) -> list[str]:
    """The report for people: a heading per section, one line per fact."""
    out: list[str] = []
    for section, facts in report.items():
        if section != "advice":
            out += [section, *_facts(facts, section)]
    return [
        *out,
        "advice",
        *(f"  {text}" for text in report.get("advice") or ["nothing is missing that training needs"]),
    ]


def _facts(facts: Any, section: str) -> list[str]:
    if section == "versions":
        there = [f"{name} {version}" for name, version in facts.items() if version]
        absent = [name for name, version in facts.items() if not version]
        return [f"  {line}" for line in there] + ([f"  not installed: {', '.join(absent)}"] if absent else [])
    if section == "extras":
        return [f"  {name:12} {_extra(fact)}" for name, fact in facts.items()]
    if not facts:
        return ["  none"]
    lines = []
    for name, value in facts.items():
        many = value if isinstance(value, list) and value else [value]
        unit = " GiB" if section == "memory" and name != "error" else ""
        lines += [f"  {name if i == 0 else '':18} {_shown(part)}{unit}" for i, part in enumerate(many)]
    return lines


def _extra(fact: Any) -> str:
    if not isinstance(fact, dict) or "installed" not in fact:
        return _shown(fact)
    return "installed" if fact["installed"] else f"missing {', '.join(fact['missing'])}: {fact['install']}"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        units = {"free": " GiB", "gib": " GiB"}
        facts = {key: f"{_shown(v)}{units.get(key, '')}" for key, v in value.items() if v not in (None, [], "")}
        return "  ".join(f"{'size' if key == 'gib' else key} {text}" for key, text in facts.items())
    if isinstance(value, list):
        return "; ".join(_shown(inner) for inner in value)
    return str(value)
