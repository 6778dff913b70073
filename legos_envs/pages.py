"""The page of an environment is the docstring of its module; here it is found and taken apart.

`legos envs show`, the documentation site and the tests read it. `SECTIONS` says what every page has.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from dataclasses import dataclass
from typing import Any

from legos_envs import registry

FACTS = ("creation", "seats", "horizon", "sum of rewards")
SECTIONS = (
    "What each seat is told",
    "Actions",
    "Rewards",
    "End",
    "Arguments",
    "Scripted players",
    "Versions",
    "Source",
)


@dataclass(frozen=True)
class Claim:
    """A row of the table of scripted players: who plays, with which constructor arguments, and the mean returns."""

    players: dict[str, str]
    """Policy names by agent or role; `*` is everybody else."""
    returns: dict[str, float]
    """Expected return by agent or role (the mean over its agents)."""
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Page:
    """A page, taken apart. `text` is all of it, Markdown."""

    env_id: str
    text: str
    pitch: str
    facts: dict[str, str]
    code: str
    sections: dict[str, str]

    @property
    def missing(self) -> list[str]:
        """What a page must have and this one has not."""
        lacking = [f"fact {name!r}" for name in FACTS if name not in self.facts]
        lacking += [f"section {name!r}" for name in SECTIONS if not self.sections.get(name)]
        return lacking + ["a python block with the loop"] * ("agent_iter" not in self.code)

    @property
    def claims(self) -> list[Claim]:
        """The rows `| players | expected return | arguments |` of the scripted players, the last column optional."""
        return [_claim(row) for row in _rows(self.sections.get("Scripted players", ""))[1:]]


def page(env_id: str) -> Page:
    """The page of a registered environment, `module:Name-v0` or `file.py:Name-v0`.

    Raises:
        UnknownEnv: nothing is registered under the id.
    """
    env = registry.make(env_id).unwrapped
    text = inspect.cleandoc(sys.modules[type(env).__module__].__doc__ or "")
    if example := getattr(env, "page_example", None):  # one page for many ids names one of them
        text = text.replace(example, env_id)
    head, *parts = re.split(r"^## +(.+)$", text, flags=re.MULTILINE)
    code = re.search(r"^```python\n(.*?)^```", head, re.MULTILINE | re.DOTALL)
    facts = {cells[0]: cells[1] for cells in _rows(head) if len(cells) == 2 and cells[0]}
    pitch = re.split(r"^(?:\||```)", head, maxsplit=1, flags=re.MULTILINE)[0].strip()
    sections = {name.strip(): body.strip() for name, body in zip(parts[::2], parts[1::2])}
    return Page(env_id, text, pitch, facts, code.group(1) if code else "", sections)


def _rows(text: str) -> list[list[str]]:
    """The cells of the table rows in a text, rules between head and body left out."""
    lines = [line.strip() for line in text.splitlines() if line.lstrip().startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in rows if not all(set(cell) <= {"-", ":"} for cell in row) or not any(row)]


def _claim(row: list[str]) -> Claim:
    players = dict(item.split("=", 1) for item in row[0].strip("`").split())
    returns = [item.rsplit(" ", 1) for item in row[1].strip("`").split(", ")]
    call = ast.parse(f"f({row[2].strip('`') if len(row) > 2 else ''})", mode="eval").body
    assert isinstance(call, ast.Call)
    arguments = {keyword.arg or "": ast.literal_eval(keyword.value) for keyword in call.keywords}
    return Claim(players, {name: float(value) for name, value in returns}, arguments)
