"""Every setting of a training run as a flag: `--optim.lr 1e-4` is `lr = 1e-4` in the table [optim] of a file."""

from __future__ import annotations

import argparse
import inspect
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from functools import partial, reduce
from itertools import zip_longest
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from legos_train.cli.arguments import HelpLayout, Parser
from legos_train.config import TrainConfig, from_dict
from legos_train.errors import ConfigError
from legos_train.settings import Section

INDENT = 8


def add_settings(p: Parser, section: Section, prefix: str = "--", *, described: bool = False) -> None:
    """Adds every setting to a parser, which stores those that are given under their flag.

    Args:
        p: the parser.
        section: the config or a section; its values are the defaults in the help.
        prefix: what the flags begin with.
        described: whether to add help texts, which takes a tenth of a second.
    """
    group = p.add_argument_group(f"{prefix.strip('-.') or 'run'} options", inspect.getdoc(type(section)))
    texts = section.field_texts() if described else {}
    for name, field in type(section).model_fields.items():
        flag, parts = f"{prefix}{name.replace('_', '-')}", list(_parts(field.annotation))
        value = getattr(section, name)
        if isinstance(value, Section) or any(_is_table(part) for part in parts):
            continue
        help = f"{texts[name]} (default: {_shown(value)})".replace("%", "%%") if described else None
        add = partial(group.add_argument, dest=flag, default=argparse.SUPPRESS, help=help)
        if bool in parts:
            add(flag, f"{prefix}no-{flag.removeprefix(prefix)}", nargs=0, action=_Switch)
        else:
            nargs = "*" if {tuple, dict} & {*map(get_origin, parts)} else None
            add(flag, nargs=nargs, type=partial(_read, parts), metavar=_metavar(flag, parts))
    for name in type(section).model_fields:
        if isinstance(below := getattr(section, name), Section):
            add_settings(p, below, f"{prefix}{name.replace('_', '-')}.", described=described)


def settings_help(config: TrainConfig, description: str) -> str:
    """The help text of all settings below a description, with the values in `config` as defaults."""
    layout: Any = partial(HelpLayout, max_help_position=INDENT)
    p = Parser("train", description, usage=argparse.SUPPRESS, add_help=False, formatter_class=layout)
    add_settings(p, config, described=True)
    return p.format_help()


def given(options: argparse.Namespace) -> dict[str, Any]:
    """The settings among the options of a command line, by flag."""
    return {name: value for name, value in vars(options).items() if name.startswith("--")}


def applied(settings: dict[str, Any], base: TrainConfig) -> TrainConfig:
    """A config with settings, by flag, in place of its own; wrong ones exit with 2 and say what is accepted."""
    data = base.plain()
    for flag, value in settings.items():
        *above, name = flag.removeprefix("--").replace("-", "_").split(".")
        in_pairs = isinstance(getattr(reduce(getattr, above, base), name), dict)
        table = reduce(lambda section, key: section.setdefault(key, {}), above, data)
        table[name] = dict(zip_longest(value[::2], value[1::2])) if in_pairs else None if value == [None] else value
    try:
        return from_dict(data, "command line") if settings else base
    except ConfigError as error:
        Parser("train", usage=argparse.SUPPRESS).error(str(error))


def parse(arguments: Sequence[str], base: TrainConfig) -> TrainConfig:
    """Applies command-line settings on top of `base`; wrong usage exits with 2 and says what is accepted."""
    p = Parser("train", usage=argparse.SUPPRESS)
    add_settings(p, base)
    return applied(given(p.parse_args(arguments)), base)


class _Switch(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, option_string == self.option_strings[0])


def _parts(annotation: Any) -> Iterator[Any]:
    """What an annotation accepts, without limits."""
    if get_origin(annotation) is Annotated:
        yield from _parts(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for part in get_args(annotation):
            yield from _parts(part)
    else:
        yield annotation


def _is_table(part: Any) -> bool:
    """Whether values are tables, which only files have."""
    return any(one is Any or (isinstance(one, type) and issubclass(one, Section)) for one in get_args(part))


def _read(parts: Sequence[Any], text: str) -> Any:
    """A value, None for `none` where that is accepted. What is no number stays text: the config refuses it."""
    if NoneType in parts and text in ("none", "None"):
        return None
    for kind in (int, float):
        if kind in parts:
            try:
                return kind(text)
            except ValueError:
                pass
    return text


def _metavar(flag: str, parts: Sequence[Any]) -> str:
    """What stands for a value in the help, over several lines if need be: argparse does not break that of a flag."""
    width = shutil.get_terminal_size().columns - 2
    text = f"  {flag} {'|'.join(map(_written, parts))}"
    return textwrap.fill(text, width, subsequent_indent=" " * INDENT)[len(flag) + 3 :]


def _written(part: Any) -> str:
    arguments = [one for one in get_args(part) if one is not Ellipsis]
    if get_origin(part) is Literal:
        return f"{{{', '.join(map(str, arguments))}}}"
    if arguments:
        return " ".join(_written(next(_parts(one))) for one in arguments)
    return "none" if part is NoneType else str(part.__name__).upper()


def _shown(value: Any) -> str:
    """A default in the help."""
    if value is None or isinstance(value, bool):
        return "none" if value is None else str(value).lower()
    if isinstance(value, dict):
        value = [word for pair in value.items() for word in pair]
    return (" ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)) or "empty"
