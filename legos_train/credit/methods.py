"""The credit methods by name. A method is one class, marked with `@method`, in any file of this folder."""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from legos_train.credit.assigner import METHODS, CreditAssigner

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


def options_of(name: str) -> dict[str, inspect.Parameter]:
    """The options of a method by name; ValueError for an unknown method."""
    if name not in METHODS:
        raise ValueError(f"unknown credit method {name!r}{_nearest(name, METHODS)}; known: {', '.join(METHODS)}")
    kind = METHODS[name]
    # Without an __init__ of its own a class shows object's, which seems to take anything.
    return {} if kind.__init__ is object.__init__ else dict(inspect.signature(kind).parameters)


class Option(NamedTuple):
    """An option of credit methods, as the constructors of all that take it declare it."""

    annotation: Any
    default: Any
    methods: tuple[str, ...]
    text: str
    """What it means: its annotation's description, else the class's docstring under `Args:`."""


def declared_options() -> dict[str, Option]:
    """The options of all methods. Those of the same name are one option.

    Raises:
        TypeError: an option has no default, or two methods declare it differently.
    """
    found: dict[str, Option] = {}
    for name, kind in METHODS.items():
        parameters = options_of(name)
        hints = get_type_hints(kind.__init__, include_extras=True) if parameters else {}
        for option, parameter in parameters.items():
            if parameter.default is parameter.empty:
                raise TypeError(f"credit {name!r}: the option {option!r} needs a default, to be a setting")
            annotation = hints.get(option, type(parameter.default))
            known = found.get(option)
            if known is None:
                text = _described(annotation) or _arguments(kind).get(option, option.replace("_", " ") + ".")
                known = Option(annotation, parameter.default, (), text)
            elif (known.annotation, known.default) != (annotation, parameter.default):
                raise TypeError(
                    f"credit option {option!r} is {_type(annotation)} = {parameter.default!r} in {name!r}, but "
                    f"{_type(known.annotation)} = {known.default!r} in {known.methods[0]!r}; give both the same "
                    "annotation and default, or rename one"
                )
            found[option] = known._replace(methods=(*known.methods, name))
    return found


def _type(annotation: Any) -> str:
    kind = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    return str(getattr(kind, "__name__", kind))


def _described(annotation: Any) -> str:
    return next((text for part in get_args(annotation) if (text := getattr(part, "description", None))), "")


def _arguments(kind: type[Any]) -> dict[str, str]:
    """What the docstring of a class says of each argument, on one line."""
    _, _, rest = inspect.cleandoc(kind.__doc__ or "").partition("\nArgs:\n")
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", rest.partition("\n\n")[0], re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def _nearest(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""
