"""The base of all settings: typed, frozen, without unknown keys."""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

NULL = "null"
"""The text that stands for None in TOML arguments of an environment, like `--arg NAME=null`."""


class Section(BaseModel):
    """Base of all settings. TOML has no null: the text "none" stands for it if a setting may be None."""

    model_config = ConfigDict(
        extra="forbid", validate_assignment=True, frozen=True, hide_input_in_errors=True, allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _nulls(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        optional = {name for name, field in cls.model_fields.items() if type(None) in get_args(field.annotation)}
        return {k: None if v == "none" and k in optional else v for k, v in data.items()}

    def plain(self) -> dict[str, Any]:
        """The settings as values that TOML can hold; settings that are None by default and still None are omitted."""
        out: dict[str, Any] = {}
        for name, field in type(self).model_fields.items():
            value = _plain(getattr(self, name))
            if value is not None:
                out[name] = value
            elif field.default is not None:
                out[name] = "none"
        return out

    @classmethod
    def field_texts(cls) -> dict[str, str]:
        """What each field means: its description, or the string below it in the source, on one line."""
        found: dict[str, str] = {}
        for kind in reversed(cls.__mro__):
            if issubclass(kind, Section):
                found |= _texts(kind.__module__).get(kind.__name__, {})
        return found | {name: field.description for name, field in cls.model_fields.items() if field.description}


@cache
def _texts(module: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(inspect.getsource(sys.modules[module])).body:
        if not isinstance(node, ast.ClassDef):
            continue
        texts = found[node.name] = {}
        for field, after in zip(node.body, node.body[1:]):
            if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
                continue
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                texts[field.target.id] = " ".join(str(after.value.value).split())
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Section):
        return value.plain()
    if isinstance(value, dict):
        return {k: NULL if v is None else _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [NULL if v is None else _plain(v) for v in value]
    return str(value) if isinstance(value, Path) else value


def with_none(value: Any) -> Any:
    """Arguments from a file, with `NULL` replaced by None."""
    if isinstance(value, dict):
        return {k: with_none(v) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(with_none(v) for v in value)
    return None if isinstance(value, str) and value == NULL else value


Arguments = Annotated[dict[str, Any], AfterValidator(with_none)]
"""Arguments of an external function, any of which may be None."""


def as_named(value: Any) -> Any:
    """The settings of a method, which may be given as its name alone: `credit="rae"`."""
    return {"name": value} if isinstance(value, str) else value


def as_entries(value: Any) -> Any:
    """A list of tables; accepts a single table, and a bare id in place of a table with only an id."""
    many = [value] if isinstance(value, str | dict | Section) else value
    if not isinstance(many, list | tuple):
        return value
    return tuple({"id": entry} if isinstance(entry, str) else entry for entry in many)
