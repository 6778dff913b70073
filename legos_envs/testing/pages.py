"""The page of an environment: the docstring of its module, plus the parts that all pages have in common.

Authors write only what cannot be generated. This module adds the row `creation`, the loop that steps the env, the
tables of constructor arguments (from `Args:` of the class and the defaults of its constructor) and of reset options,
and "v0: first." if the docstring has no section on versions. The loop plays `info["legal_actions"][0]`, or the Python
expression in the row `sample action`. A loop or a row `creation` written by the author is kept.

`legos envs show`, the documentation site and the tests read pages. `SECTIONS` lists what every page must have.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from dataclasses import dataclass
from typing import Any

from legos_envs import arguments, registry
from legos_envs.text_env import TextEnv

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
LOOP = """import legos_envs

env = legos_envs.make("{id}")
env.reset(seed=0)
for agent in env.agent_iter():
    observation, reward, terminated, truncated, info = env.last()
    env.step(None if terminated or truncated else {action})
"""


@dataclass(frozen=True)
class Claim:
    """A row of the table of scripted players: the players, the constructor arguments, and the mean returns.

    Attributes:
        players: policy names by agent or role; `*` is everybody else.
        returns: expected return by agent or role (the mean over its agents).
        arguments: constructor arguments of the env.
        floors: by agent or role, and for `together`, the most that a degenerate player (`legos_envs.testing`) in its
            seats may earn on average with the row's other players; a number without a name applies to all names of the
            returns, and to `together`. An entry under a degenerate player's name is an exception for that player.
    """

    players: dict[str, str]
    returns: dict[str, float]
    arguments: dict[str, Any]
    floors: dict[str, float]


@dataclass(frozen=True)
class Page:
    """A parsed page. `text` is the whole page in Markdown."""

    env_id: str
    text: str
    pitch: str
    facts: dict[str, str]
    code: str
    sections: dict[str, str]

    @property
    def missing(self) -> list[str]:
        """Required parts that this page lacks."""
        lacking = [f"fact {name!r}" for name in FACTS if name not in self.facts]
        lacking += [f"section {name!r}" for name in SECTIONS if not self.sections.get(name)]
        return lacking + ["a python block with the loop"] * ("agent_iter" not in self.code)

    @property
    def claims(self) -> list[Claim]:
        """The rows `| players | expected return | arguments | floor |` of scripted players (the last two optional)."""
        return [_claim(row) for row in _rows(self.sections.get("Scripted players", ""))[1:]]


def page(env_id: str) -> Page:
    """The page of a registered environment, `module:Name-v0` or `file.py:Name-v0`.

    Raises:
        UnknownEnv: nothing is registered under the id.
    """
    env = registry.make(env_id).unwrapped
    text = inspect.cleandoc(sys.modules[type(env).__module__].__doc__ or "")
    if example := getattr(env, "page_example", None):  # a page shared by many ids names one of them
        text = text.replace(example, env_id)
    head, *parts = re.split(r"^## +(.+)$", text, flags=re.MULTILINE)
    own = {name.strip(): body.strip() for name, body in zip(parts[::2], parts[1::2])}
    pitch, table, prose = _apart(head)
    facts = {"creation": f'`legos_envs.make("{env_id}")`'} | {cells[0]: cells[1] for cells in _rows(table) if cells[0]}
    action = facts.pop("sample action", '`info["legal_actions"][0]`').strip("`")
    if "```python" not in prose:
        prose = f"```python\n{LOOP.format(id=env_id, action=action)}```\n\n{prose}".strip()
    code = re.search(r"^```python\n(.*?)^```", prose, re.MULTILINE | re.DOTALL)
    added = {"Arguments": "\n\n".join(filter(None, (_arguments(env), own.get("Arguments"))))}
    sections = dict.fromkeys(SECTIONS, "") | {"Versions": "v0: first."} | own | added
    sections = {name: body for name, body in sections.items() if body}
    fact_table = "\n".join(["| | |", "|---|---|", *(f"| {name} | {what} |" for name, what in facts.items())])
    blocks = [pitch, fact_table, prose, *(f"## {name}\n\n{body}" for name, body in sections.items())]
    return Page(env_id, "\n\n".join(blocks), pitch, facts, code.group(1) if code else "", sections)


def _apart(head: str) -> tuple[str, str, str]:
    """The parts before the first heading: the pitch, the table of facts, the rest."""
    lines = head.strip().splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith(("|", "```"))), len(lines))
    last = next((i for i in range(first, len(lines)) if not lines[i].startswith("|")), len(lines))
    return tuple("\n".join(part).strip() for part in (lines[:first], lines[first:last], lines[last:]))  # type: ignore[return-value]


# --- constructor arguments and reset options --------------------------------------------------------------------------


def constructor_arguments(cls: type) -> list[inspect.Parameter]:
    """The named constructor arguments of a class and its base classes, each once, its own first."""
    return list((arguments.accepted(cls) or {}).values())


def described_arguments(cls: type) -> dict[str, str]:
    """The descriptions of constructor arguments under `Args:` in the docstring of a class, by name or names."""
    block = re.search(r"^Args:\n(.*?)(?:\n\n|\Z)", inspect.getdoc(cls) or "", re.DOTALL | re.MULTILINE)
    entries = re.findall(r"^ {4}(\S.*?): (.*(?:\n {8}.*)*)", block[1] if block else "", re.MULTILINE)
    return {names: " ".join(text.split()) for names, text in entries}


def _arguments(env: Any) -> str:
    """The tables of constructor arguments and reset options."""
    if not isinstance(env, TextEnv):
        return ""
    defaults = {parameter.name: _default(parameter) for parameter in constructor_arguments(type(env))}
    parts = []
    if described := described_arguments(type(env)):
        parts.append(_argument_table("argument", described, defaults))
    common = described_arguments(TextEnv)
    values = {name: getattr(env, name, None) for name in common}  # a default of None means one of these
    in_force = {name: f"`{value!r}`".replace("'", '"') for name, value in values.items() if value is not None}
    parts.append(_argument_table("argument of every environment", common, defaults | in_force))
    if env.reset_options:
        options = {name: text.replace("|", "\\|") for name, text in env.reset_options.items()}
        rows = "".join(f"\n| `{name}` | {text} |" for name, text in options.items())
        parts.append(f"| reset option | meaning |\n|---|---|{rows}")
    else:
        parts.append("There are no reset options.")
    return "\n\n".join(parts)


def _argument_table(heading: str, described: dict[str, str], defaults: dict[str, str]) -> str:
    table = f"| {heading} | default | meaning |\n|---|---|---|"
    for names, text in described.items():
        shown = ", ".join(f"`{name}`" for name in names.split(", ")) if names != "**kwargs" else "others"
        table += f"\n| {shown} | {defaults.get(names, '')} | {text.rstrip('.')} |"
    return table


def _default(parameter: inspect.Parameter) -> str:
    if parameter.default is parameter.empty:
        return ""
    shown = repr(parameter.default).replace("'", '"')
    return f"`{shown}`" if len(shown) <= 40 else "built in"


# --- tables -----------------------------------------------------------------------------------------------------------


def _rows(text: str) -> list[list[str]]:
    """The cells of the table rows in a text, without the rule between head and body."""
    lines = [line.strip() for line in text.splitlines() if line.lstrip().startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in rows if not all(set(cell) <= {"-", ":"} for cell in row) or not any(row)]


def _claim(row: list[str]) -> Claim:
    players, returns, given, floors = (cell.strip("`") for cell in [*row, "", ""][:4])
    call = ast.parse(f"f({given})", mode="eval").body
    assert isinstance(call, ast.Call)
    arguments = {keyword.arg or "": ast.literal_eval(keyword.value) for keyword in call.keywords}
    earned, most = _numbers(returns), _numbers(floors)
    if (every := most.pop("", None)) is not None:
        most = dict.fromkeys((*earned, "together"), every) | most
    return Claim(dict(item.split("=", 1) for item in players.split()), earned, arguments, most)


def _numbers(cell: str) -> dict[str, float]:
    """A cell such as `coder +1, tester 0`; a bare number gets the empty name."""
    items = [item.rpartition(" ") for item in cell.split(", ") if item]
    return {name: float(value) for name, _, value in items}
