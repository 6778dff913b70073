"""Small functions to patch, from `data/patches.toml`: most have a bug, some have none.

All were written for this project.
"""

from __future__ import annotations

import ast
import json
import tomllib
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from numpy.random import Generator

from legos_envs.tasks.code.code_items import Item
from legos_envs.tasks.code.input_domains import Domain, Int, Ints, Like, Text
from legos_envs.tasks.code.mutants import mutants
from legos_envs.tasks.code.sandboxed_calls import reference_results, results_of, same

FILE = Path(__file__).with_name("data") / "patches.toml"


@dataclass(frozen=True)
class PatchItem:
    """A function with its specification, as given (`code`) and as it should be (`reference`)."""

    name: str
    spec: str
    domain: Domain
    code: str
    reference: str
    witness: tuple[Any, ...] | None = None
    """Arguments that expose the bug; None if there is none."""
    partial: bool = False
    """Whether the reference may fail on arguments in the domain; these then count as outside it."""
    least: int | None = None
    """Minimum number of arguments, if the last ones are optional."""

    @property
    def _fewest(self) -> int:
        return len(self.domain) if self.least is None else self.least

    def holds(self, arguments: Any) -> bool:
        """Whether these are arguments of the stated domain."""
        if not isinstance(arguments, list) or not self._fewest <= len(arguments) <= len(self.domain):
            return False
        return all(part.holds(value) for part, value in zip(self.domain, arguments))

    def told(self) -> str:
        """The specification and the domain, as stated in a prompt."""
        functions = [node for node in ast.parse(self.code).body if isinstance(node, ast.FunctionDef)]
        parameters = [name for node in functions if node.name == self.name for name in _parameters(node.args)]
        parameters += parameters[-1:] * (len(self.domain) - len(parameters))  # repeated for `*values`
        notes = ["" if place < self._fewest else " (may be left out)" for place in range(len(self.domain))]
        lines = [f"- {parameter}{note}: {part}" for parameter, note, part in zip(parameters, notes, self.domain)]
        return "\n".join([f"`{self.name}` {self.spec}", "Arguments:", *lines])


def _parameters(of: ast.arguments) -> list[str]:
    """The names of a function's positional parameters; `*values` contributes its name, at the end."""
    return [part.arg for part in (*of.posonlyargs, *of.args, *([of.vararg] if of.vararg else []))]


def patch_of(item: Item, rng: Generator) -> PatchItem:
    """An exercise as a function to fix: three times in four with a bug, if one can be introduced."""
    bugs = mutants(item) if rng.integers(4) else ()
    code = reference = ast.unparse(ast.parse(item.reference))
    witness = None
    if bugs:
        code = bugs[int(rng.integers(len(bugs)))]
        results, _ = results_of(code, item.name, item.calls)
        shown = [call for call, *pair in zip(item.calls, results, reference_results(item)) if not same(*pair)]
        witness = tuple(shown[0])
    values = zip_longest(*[[json.dumps(value) for value in call] for call in item.calls])
    domain = tuple([Like(tuple(dict.fromkeys(filter(None, examples)))) for examples in values])
    told, least = f"should do this: {item.spec}", min(map(len, item.calls))
    return PatchItem(item.name, told, domain, code, reference, witness, partial=True, least=least)


def _read(row: dict[str, Any]) -> PatchItem:
    domain = tuple(DOMAINS[part.pop("kind")](**part) for part in row["domain"])
    code = row["code"].strip()
    witness = tuple(row["witness"]) if "witness" in row else None
    return PatchItem(row["name"], row["spec"], domain, code, row.get("reference", code).strip(), witness)


DOMAINS: dict[str, Any] = {"Int": Int, "Ints": Ints, "Text": Text}
ITEMS = tuple(map(_read, tomllib.loads(FILE.read_text(encoding="utf-8"))["item"]))
BY_NAME = {item.name: item for item in ITEMS}
