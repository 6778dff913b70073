"""The credit methods by name. A method is one class, marked with `@method`, in any file of this folder."""

from __future__ import annotations

import difflib
import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable
from typing import Any

from legos_train.credit.assigner import METHODS, CreditAssigner
from legos_train.settings import Option, merged_options, options_declared

for _file in pkgutil.iter_modules(importlib.import_module("legos_train.credit").__path__):
    if _file.name not in ("methods", "credit_settings"):
        importlib.import_module(f"legos_train.credit.{_file.name}")
for _name in sorted(METHODS):  # in one order, whichever file was imported first
    METHODS[_name] = METHODS.pop(_name)


def make_credit(name: str, **options: Any) -> CreditAssigner:
    """The credit method called `name` (a key of `METHODS`) with its options.

    Raises:
        ValueError: the name is unknown, or a value is out of range.
        TypeError: the method has no such option.
    """
    accepted = options_of(name)
    for option in options:
        if option not in accepted:
            known = f"it takes {', '.join(accepted)}" if accepted else "it takes none"
            raise TypeError(f"credit {name!r} has no option {option!r}{_nearest(option, accepted)}; {known}")
    method: CreditAssigner = METHODS[name](**options)
    return method


def options_of(name: str) -> dict[str, Option]:
    """The options of a method by name; ValueError for an unknown method."""
    if name not in METHODS:
        raise ValueError(f"unknown credit method {name!r}{_nearest(name, METHODS)}; known: {', '.join(METHODS)}")
    method: Callable[..., Any] = METHODS[name]
    return _declared(name, method)


@functools.cache
def _declared(name: str, method: Callable[..., Any]) -> dict[str, Option]:
    """Every config asks for the options of its method, which take longer to read than the rest of it."""
    return options_declared("credit", name, method)


def declared_options() -> dict[str, Option]:
    """The options of all methods. Those of the same name are one option.

    Raises:
        TypeError: an option has no default, or two methods declare it differently.
    """
    return merged_options("credit", {name: options_of(name) for name in METHODS})


def _nearest(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""
