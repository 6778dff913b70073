"""Checks constructor arguments and reset options; every error names the given value and the accepted ones."""

from __future__ import annotations

import difflib
import inspect
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


def one_of(name: str, value: Any, accepted: Sequence[Any]) -> Any:
    """Returns the value if it is one of the accepted ones."""
    if value not in accepted:
        near = (
            difflib.get_close_matches(value, [a for a in accepted if isinstance(a, str)], 1)
            if isinstance(value, str)
            else []
        )
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"{name} must be one of {', '.join(map(repr, accepted))}; got {value!r}{hint}")
    return value


def whole(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Returns the value as an int if it is a whole number from `least` to `most`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least or (most is not None and number > most) or isinstance(value, bool):
        between = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} must be a whole number {between}; got {value!r}")
    return number


def real(name: str, value: Any, least: float = -math.inf, most: float = math.inf) -> float:
    """Returns the value as a float if it is a finite number from `least` to `most`."""
    ok = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not ok or not least <= value <= most:
        raise ValueError(f"{name} must be a finite number from {least:g} to {most:g}; got {value!r}")
    return float(value)


def flag(name: str, value: Any) -> bool:
    """Returns the value if it is True or False."""
    return bool(one_of(name, value, (True, False)))


def mapping(name: str, value: Any) -> Mapping[str, Any]:
    """Returns the value if it is a mapping from names, an empty one for None."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"{name} must map names to values, as in {{'a': 1}}; got {value!r}")
    return value


def listed(name: str, value: Any) -> tuple[Any, ...]:
    """Returns the items of a list or another sequence that is no text."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ValueError(f"{name} must be a list; got {value!r}")
    return tuple(value)


def text(name: str, value: Any, most: int = 20_000) -> str:
    """Returns the value if it is a non-blank string of at most `most` characters."""
    if not isinstance(value, str) or not value.strip() or len(value) > most:
        got = f"a str of {len(value)} characters" if isinstance(value, str) and len(value) > most else repr(value)
        raise ValueError(f"{name} must be text of 1 to {most} characters; got {got}")
    return value


def accepted(factory: Callable[..., Any]) -> dict[str, inspect.Parameter] | None:
    """The keyword arguments of a class or function, including those that `**kwargs` passes on to base classes.

    A class's own come first. None if this cannot be determined: a function, or the last base class, takes `**kwargs`.
    """
    steps = (
        [vars(base)["__init__"] for base in inspect.getmro(factory) if "__init__" in vars(base)]
        if (inspect.isclass(factory))
        else [factory]
    )
    found: dict[str, inspect.Parameter] = {}
    for step in steps:
        parameters = list(inspect.signature(step).parameters.values())[inspect.isclass(factory) :]
        for parameter in parameters:
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                found.setdefault(parameter.name, parameter)
        if not any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters):
            return found
    return None


DISTRIBUTION = "legos-selfplay"
"""This project's name on the package index, where `legos` is a different project."""


def install(extra: str) -> str:
    """The command that installs an extra; it differs between a source checkout and an installed wheel."""
    return f"uv sync --extra {extra}" if _checkout() else f'pip install "{DISTRIBUTION}[{extra}]"'


def install_package(name: str) -> str:
    """The command that installs a package outside the extras; the environment of a checkout has no pip."""
    return f"{'uv ' if _checkout() else ''}pip install {name}"


def _checkout() -> bool:
    return (Path(__file__).parents[1] / "pyproject.toml").is_file()


def unknown(what: str, got: str, accepted: Sequence[str]) -> str:
    """The error message for an unknown name, with the nearest accepted one."""
    near = difflib.get_close_matches(got, accepted, 1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"{what} {got!r} is unknown.{hint} Accepted: {', '.join(map(repr, accepted)) or 'none'}."
