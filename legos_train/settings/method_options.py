"""Options that become settings, with accepted values and help: arguments of methods, and `inference.DrawParams`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from pydantic import Field, create_model

from inference.types import NUMBERS, UNCHANGED, DrawParams
from legos_train.settings.section import Section


class Option(NamedTuple):
    """An option of one method, or of several that declare it alike."""

    annotation: Any
    default: Any
    text: str
    """What it means: its annotation's description, else the docstring under `Args:`."""
    methods: tuple[str, ...] = ()


def options_declared(kind: str, name: str, method: Callable[..., Any], given: Iterable[str] = ()) -> dict[str, Option]:
    """The options of a method by name.

    Args:
        kind: of method, for errors.
        name: of the method.
        method: a class, whose constructor's arguments are the options, or a function.
        given: arguments that are not options.

    Raises:
        TypeError: an option has no default.
    """
    function = method.__init__ if inspect.isclass(method) else method
    if function is object.__init__:  # it seems to take anything
        return {}
    options: dict[str, Option] = {}
    for option, parameter in inspect.signature(method).parameters.items():
        if option in given:
            continue
        if parameter.default is parameter.empty:
            raise TypeError(f"{kind} {name!r}: the option {option!r} needs a default, to be a setting")
        annotation = _evaluated(function, option, type(parameter.default))
        text = _described(annotation) or _described_below("Args", method).get(option, option.replace("_", " ") + ".")
        options[option] = Option(annotation, parameter.default, text, (name,))
    return options


def merged_options(kind: str, methods: Mapping[str, Mapping[str, Option]]) -> dict[str, Option]:
    """The options of all methods; those of the same name are one option.

    Raises:
        TypeError: two methods declare an option differently.
    """
    found: dict[str, Option] = {}
    for name, options in methods.items():
        for option, new in options.items():
            known = found.get(option, new._replace(methods=()))
            if known[:2] != new[:2]:
                raise TypeError(
                    f"{kind} option {option!r} is {_type(new.annotation)} = {new.default!r} in {name!r}, but "
                    f"{_type(known.annotation)} = {known.default!r} in {known.methods[0]!r}; give both the same "
                    "annotation and default, or rename one"
                )
            found[option] = known._replace(methods=(*known.methods, name))
    return found


def settings_with(base: type[Section], name: str, options: Mapping[str, Option]) -> Any:
    """A model called `name` in the module of its base, with a setting for each option."""
    fields = {option: (row.annotation, Field(row.default, description=_help(row))) for option, row in options.items()}
    return create_model(name, __base__=base, __doc__=base.__doc__, __module__=base.__module__, **fields)  # type: ignore[call-overload]


def _help(row: Option) -> str:
    return f"`{'`, `'.join(row.methods)}`: {row.text}" if row.methods else row.text[:1].upper() + row.text[1:]


def _evaluated(function: Any, name: str, default: type) -> Any:
    """The annotation of one argument; those of others may be names that only type checkers import."""
    if name not in function.__annotations__:
        return default

    def alone() -> None: ...

    alone.__annotations__ = {name: function.__annotations__[name]}
    return get_type_hints(alone, function.__globals__, include_extras=True)[name]


def _type(annotation: Any) -> str:
    kind = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    return str(getattr(kind, "__name__", kind))


def _described(annotation: Any) -> str:
    return next((text for part in get_args(annotation) if (text := getattr(part, "description", None))), "")


def _described_below(heading: str, thing: Any) -> dict[str, str]:
    """What a docstring says of each name below a heading, on one line."""
    _, _, rest = inspect.cleandoc(thing.__doc__ or "").partition(f"\n{heading}:\n")
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", rest.partition("\n\n")[0], re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


_texts = _described_below("Attributes", DrawParams)
_kinds: dict[str, Any] = {one.name: Annotated[one.kind, Field(**one.bounds)] for one in NUMBERS}  # type: ignore[call-overload]
DRAW_OPTIONS = {name: Option(_kinds[name], usual, _texts.get(name, name)) for name, usual in vars(UNCHANGED).items()}
"""The numbers of `DrawParams` as settings."""
