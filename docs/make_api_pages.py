"""Writes the reference of the Python API: a page for each public face, with its signatures and docstrings.

python docs/make_api_pages.py    # the pages, into docs/_generated/api; conf.py does it too
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from page_parts import code, table, toctree, write_pages

FOLDER = Path(__file__).parent / "_generated/api"
FACES = (
    "legos_envs",
    "legos_envs.wrappers",
    "legos_envs.wrappers.numeric",
    "legos_envs.policies",
    "legos_envs.exact",
    "legos_envs.scoring",
    "legos_envs.testing",
    "legos_envs.spaces",
    "legos_train",
    "legos_train.arena",
    "legos_train.config",
    "legos_train.evaluation",
    "legos_train.export",
    "inference",
)
"""The modules whose names a user's program may import; the rest may change without notice."""
SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises): *(.*)$")


def write(folder: Path = FOLDER) -> list[str]:
    """Writes `index.md` and a page for each face into a folder; returns the faces."""
    pages = {face: page(face) for face in FACES}
    rows = [[f"[`{face}`]({face}.md)", opening(importlib.import_module(face))] for face in FACES]
    head = ["# Python API", "What a program of yours may import, by module. All three packages are typed (`py.typed`)."]
    write_pages(folder, {**pages, "index": "\n\n".join([*head, table(["module", "what"], rows), toctree(FACES)])})
    return list(FACES)


def names(module: ModuleType) -> list[str]:
    """The public names: those of `__all__`, else the classes and functions that the module defines."""
    if listed := getattr(module, "__all__", None):
        return sorted(listed, key=str.casefold)
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    return sorted(
        [name for name in own if not name.startswith("_") and callable(getattr(module, name))], key=str.casefold
    )


def page(face: str) -> str:
    """The page of a module as Markdown."""
    module = importlib.import_module(face)
    parts = [f"# {face}", opening(module)]
    for name in names(module):
        value = getattr(module, name)
        parts += [f"## {name}", *entry(name, value)]
        if inspect.isclass(value):
            for method, function in methods(value).items():
                parts += [f"### {name}.{method}", *entry(method, function)]
    return "\n\n".join(part for part in parts if part)


def methods(cls: type) -> dict[str, Any]:
    """The public methods and properties that a class itself documents."""
    found = {}
    for name, value in vars(cls).items():
        plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if not name.startswith("_") and (inspect.isfunction(plain) or isinstance(plain, property)) and plain.__doc__:
            found[name] = plain
    return found


def entry(name: str, value: Any) -> list[str]:
    """The signature of a class, function or property, and its docstring; of other values what they are."""
    if inspect.ismodule(value):
        return [f"A module: {opening(value)}"]
    if isinstance(value, property):
        return [code("python", name), docstring(value)]
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return [code("python", f"{name} = {re.sub(r' at 0x[0-9a-f]+', '', repr(value))[:300]}")]
    return [code("python", f"{name}{signature(value)}"), docstring(value)]


class Annotation(str):
    """An annotation as it is written, without the quotes of a text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def signature(value: Any) -> str:
    """The signature, a parameter a line where it is long; empty where Python knows none."""
    try:
        shown = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    parameters = [p.replace(annotation=_written(p.annotation)) for p in shown.parameters.values()]
    whole = shown.replace(parameters=parameters, return_annotation=_written(shown.return_annotation))
    one = re.sub(r"<(?:function |class )?([^ >]+)[^>]*>", r"\1", str(whole))
    if len(one) <= 100:
        return one
    inner, _, returned = one[1:].rpartition(")")
    lines = [re.sub(r"<(?:function |class )?([^ >]+)[^>]*>", r"\1", str(p)) for p in parameters]
    return "(\n    " + ",\n    ".join(lines) + f",\n){returned}" if inner else one


def _written(annotation: Any) -> Any:
    return Annotation(annotation) if isinstance(annotation, str) else annotation


def docstring(value: Any) -> str:
    """A docstring in Google's style as Markdown: its sections become lists."""
    out, inside = [], False
    for line in (inspect.getdoc(value) or "").splitlines():
        if found := SECTION.match(line):
            out += [f"**{found[1]}:** {found[2]}".rstrip(), ""]
            inside = True
        elif inside and (item := re.match(r"^ {4}(\*{0,2}[\w., ]+?)(?: \([^)]*\))?: (.*)$", line)):
            out.append(f"- `{item[1]}`: {item[2]}")
        elif inside and line.startswith(" "):
            out.append(f"  {line.strip()}")
        else:
            inside &= not line
            out.append(line.replace("# ---", "---"))
    return "\n".join(out).strip()


def opening(module: ModuleType) -> str:
    """The first paragraph of a module's docstring, on one line."""
    return " ".join((inspect.getdoc(module) or "").partition("\n\n")[0].split())


if __name__ == "__main__":
    write()
