"""Parts of generated pages: tables, docstrings as Markdown, and the settings of a section as rows of a table."""

from __future__ import annotations

import inspect
import re
import textwrap
import types
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

KINDS = {bool: "`true` or `false`", int: "whole number", float: "number", str: "text", Path: "path", dict: "table"}
RANGES = {
    annotated_types.Ge: ("ge", "at least {}"),
    annotated_types.Gt: ("gt", "above {}"),
    annotated_types.Le: ("le", "at most {}"),
    annotated_types.Lt: ("lt", "below {}"),
}
HEADS = ("When", "When not", "Source")
ARXIV = re.compile(r"arXiv (\d{4}\.\d{4,5})")
GUIDE = re.compile(r"\bdocs/(\w+)\.md\b")


class Setting(NamedTuple):
    """One field of a settings model, in words."""

    name: str
    kind: str
    default: str
    meaning: str


def put(file: Path, text: str) -> None:
    """Writes a file unless it says so already, so that Sphinx reads again only what has changed."""
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        file.write_text(text, encoding="utf-8")


def write_pages(folder: Path, pages: Mapping[str, str]) -> None:
    """Writes `NAME.md` for each page into a folder of its own; a page that is no longer made goes away."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        put(folder / f"{name}.md", text.rstrip() + "\n")
    for old in folder.glob("*.md"):
        if old.stem not in pages:
            old.unlink()


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table. Bars in cells are escaped."""
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def settings(model: type[BaseModel], only: Iterable[str] | None = None) -> list[Setting]:
    """The fields of a settings model in their order, or `only` those. Raises ValueError for a field without a text."""
    texts = model.field_texts()
    fields = {name: model.model_fields[name] for name in (model.model_fields if only is None else only)}
    if missing := [name for name in fields if name not in texts]:
        raise ValueError(f"{model.__name__}.{missing[0]} has no text below it: write what it means in its next line")
    return [Setting(name, kind(field), default(field), texts[name]) for name, field in fields.items()]


def settings_table(rows: Iterable[Setting], prefix: str = "", head: str = "setting") -> str:
    """Settings as a table; `prefix` stands before every name."""
    lines = [[f"`{prefix}{row.name}`", row.kind, row.default, row.meaning] for row in rows]
    return table([head, "accepted", "default", "meaning"], lines)


def kind(field: FieldInfo) -> str:
    """What a field accepts, in words."""
    words = _kind(field.annotation)
    limits = [
        RANGES[type(part)][1].format(format(getattr(part, RANGES[type(part)][0]), "g"))
        for part in field.metadata
        if type(part) in RANGES
    ]
    optional = "" if type(None) not in get_args(field.annotation) else ", or none"
    return ", ".join([words, *limits]) + optional


def _kind(annotation: Any) -> str:
    if get_origin(annotation) is Annotated:
        return _kind(get_args(annotation)[0])
    arguments = [part for part in get_args(annotation) if part is not type(None)]
    if get_origin(annotation) in (Union, types.UnionType):
        return " or ".join(_kind(part) for part in arguments)
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{part}`" for part in arguments)
    if get_origin(annotation) is tuple:
        return "list of texts" if Ellipsis in arguments else f"{len(arguments)} numbers"
    return KINDS[get_origin(annotation) or annotation]


def default(field: FieldInfo) -> str:
    """The default of a field as the table shows it."""
    value = field.get_default(call_default_factory=True)
    if field.is_required():
        return "required"
    if value is None:
        return "none"
    if value in ("", (), {}):
        return "empty"
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{value}`"


def docstring(thing: Any) -> tuple[str, dict[str, str]]:
    """The docstring of a class or function as Markdown, and its paragraphs `When:`, `When not:` and `Source:`.

    What comes after `Args:`, `Returns:`, `Raises:` or `Attributes:` is for readers of code and left out. Raises
    ValueError when there is none.
    """
    text = inspect.cleandoc(vars(thing).get("__doc__") or "" if inspect.isclass(thing) else thing.__doc__ or "")
    if not text:
        raise ValueError(f"{thing!r} has no docstring to make a page from")
    text = re.split(r"^(?:Args|Returns|Raises|Attributes):$", text, maxsplit=1, flags=re.MULTILINE)[0].strip()
    body: list[str] = []
    heads: dict[str, str] = {}
    for paragraph in text.split("\n\n"):
        head, colon, rest = paragraph.partition(":")
        if colon and head in HEADS:
            heads[head] = capital(link(" ".join(rest.split())))
        else:
            body.append(link(paragraph))
    return "\n\n".join(body), heads


def link(text: str) -> str:
    """A text with arXiv numbers and guides as links; the pages stand two folders below the guides."""
    text = ARXIV.sub(r"[arXiv \1](https://arxiv.org/abs/\1)", text)
    return GUIDE.sub(r"[docs/\1.md](../../\1.md)", text)


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def sentence(text: str) -> str:
    """The first sentence, on one line."""
    return re.split(r"(?<=[.!?])\s", " ".join(text.split()), maxsplit=1)[0]


def code(language: str, text: str) -> str:
    """A fenced block."""
    return f"```{language}\n{textwrap.dedent(text).strip()}\n```"


def toctree(entries: Iterable[str]) -> str:
    return "\n".join(["```{toctree}", ":maxdepth: 1", ":hidden:", "", *entries, "```"])
