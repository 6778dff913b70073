"""Small functions to find and patch, from `data/patches.toml`: most have a bug, some have none.

All were written for this project.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from legos_envs.tasks.code.input_domains import Domain, Int, Ints, Text

FILE = Path(__file__).with_name("data") / "patches.toml"


@dataclass(frozen=True)
class PatchItem:
    """A function with its specification, as it is found (`code`) and as it should be (`reference`)."""

    name: str
    spec: str
    domain: Domain
    code: str
    reference: str
    witness: tuple[Any, ...] | None = None
    """Arguments that show the bug; None when there is none."""

    def holds(self, arguments: Any) -> bool:
        """Whether these are arguments of the stated domain."""
        if not isinstance(arguments, list) or len(arguments) != len(self.domain):
            return False
        return all(part.holds(value) for part, value in zip(self.domain, arguments))

    def told(self) -> str:
        """Specification and domain, for a prompt."""
        parameters = self.code.partition("(")[2].partition(")")[0].split(", ")
        lines = [f"- {parameter}: {part}" for parameter, part in zip(parameters, self.domain)]
        return "\n".join([f"`{self.name}` {self.spec}", "Arguments:", *lines])


def _read(row: dict[str, Any]) -> PatchItem:
    domain = tuple(DOMAINS[part.pop("kind")](**part) for part in row["domain"])
    code = row["code"].strip()
    witness = tuple(row["witness"]) if "witness" in row else None
    return PatchItem(row["name"], row["spec"], domain, code, row.get("reference", code).strip(), witness)


DOMAINS: dict[str, Any] = {"Int": Int, "Ints": Ints, "Text": Text}
ITEMS = tuple(map(_read, tomllib.loads(FILE.read_text(encoding="utf-8"))["item"]))
BY_NAME = {item.name: item for item in ITEMS}
