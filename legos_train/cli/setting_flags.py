"""Every setting of a training run as a flag: `--optim.lr 1e-4` is `lr = 1e-4` in the table [optim] of a file."""

from __future__ import annotations

import argparse
import inspect
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from legos_train.cli.arguments import Layout, Parser
from legos_train.config import TrainConfig, from_dict
from legos_train.errors import ConfigError
from legos_train.settings import Section, field_texts

WRITTEN = {int: "INT", float: "FLOAT", str: "STR", Path: "PATH", NoneType: "none"}
INDENT = 8


def add_settings(p: Parser) -> None:
    """Adds every setting to a parser, which stores those that are given under their flag."""
    for section, flags in _sections(TrainConfig()):
        for name, flag in flags.items():
            _add(p, flag, type(section).model_fields[name].annotation)


def settings_help(config: TrainConfig, description: str) -> str:
    """The help text of all settings below a description, with the values in `config` as defaults."""
    layout: Any = partial(Layout, max_help_position=INDENT)
    p = Parser("train", description, usage=argparse.SUPPRESS, add_help=False, formatter_class=layout)
    for section, flags in _sections(config):
        title = next(iter(flags.values())).strip("-").rpartition(".")[0] or "run"
        group = p.add_argument_group(f"{title} options", inspect.getdoc(type(section)))
        texts = field_texts(type(section))
        for name, flag in flags.items():
            text = f"{texts[name]} (default: {_shown(getattr(section, name))})"
            _add(group, flag, type(section).model_fields[name].annotation, text.replace("%", "%%"))
    return p.format_help()


def given(options: argparse.Namespace) -> dict[str, Any]:
    """The settings among the options of a command line, by flag."""
    return {name: value for name, value in vars(options).items() if name.startswith("--")}


def applied(settings: dict[str, Any], base: TrainConfig) -> TrainConfig:
    """A config with settings, by flag, in place of its own; wrong ones exit with 2 and say what is accepted."""
    if not settings:
        return base
    data = base.plain()
    for flag, value in settings.items():
        *above, name = flag.removeprefix("--").replace("-", "_").split(".")
        section = data
        for one in above:
            section = section.setdefault(one, {})
        section[name] = value
    try:
        return from_dict(data, "command line")
    except ConfigError as error:
        Parser("train", usage=argparse.SUPPRESS).error(str(error))


def parse(arguments: Sequence[str], base: TrainConfig) -> TrainConfig:
    """Applies command-line settings on top of `base`; wrong usage exits with 2 and says what is accepted."""
    p = Parser("train", usage=argparse.SUPPRESS)
    add_settings(p)
    return applied(given(p.parse_args(arguments)), base)


class _Setting(argparse.Action):
    """Reads a setting; `none` where it may be None. A text that is no number stays one: the config refuses it."""

    def __init__(self, option_strings: Sequence[str], dest: str, parts: Sequence[Any], **more: Any):
        super().__init__(option_strings, dest, default=argparse.SUPPRESS, **more)
        self.parts = parts

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, self._value(values, option_string))

    def _value(self, values: Any, option_string: str | None) -> Any:
        if self.nargs == 0:
            return option_string == self.option_strings[0]
        if NoneType in self.parts and values in ("none", "None", ["none"], ["None"]):
            return None
        if any(get_origin(part) is dict for part in self.parts):
            if len(values) % 2:
                raise argparse.ArgumentError(self, f"takes pairs of {self.metavar}, got {' '.join(values)}")
            return dict(zip(values[::2], values[1::2]))
        for kind in (int, float):
            if kind in self.parts:
                try:
                    return kind(values)
                except ValueError:
                    pass
        return values


def _sections(config: TrainConfig) -> Iterator[tuple[Section, dict[str, str]]]:
    """The config and its sections, with the flags of their fields; tables of any name have none."""

    def flags(section: Section, prefix: str) -> dict[str, str]:
        fields = type(section).model_fields
        return {
            name: f"{prefix}{name.replace('_', '-')}"
            for name, field in fields.items()
            if not any(_is_table(part) for part in [field.annotation, *get_args(field.annotation)])
        }

    yield config, flags(config, "--")
    for name in type(config).model_fields:
        if isinstance(section := getattr(config, name), Section):
            yield section, flags(section, f"--{name.replace('_', '-')}.")


def _is_table(part: Any) -> bool:
    return part is Any or (isinstance(part, type) and issubclass(part, Section)) or Any in get_args(part)


def _add(p: argparse._ActionsContainer, flag: str, annotation: Any, help: str | None = None) -> None:
    parts = list(_parts(annotation))
    if bool in parts:
        section, dot, name = flag.rpartition(".")
        p.add_argument(flag, f"{section}{dot}no-{name}", dest=flag, action=_Setting, parts=parts, nargs=0, help=help)
        return
    metavar = "|".join(map(_written, parts))
    if help is not None:  # argparse does not break the line of the flag
        width = shutil.get_terminal_size().columns - 2
        line = textwrap.fill(f"  {flag} {metavar.replace(',', ', ')}", width, subsequent_indent=" " * INDENT)
        metavar = line.removeprefix(f"  {flag}").lstrip(" ")
    nargs = "*" if {tuple, dict} & {*map(get_origin, parts)} else None
    p.add_argument(flag, dest=flag, action=_Setting, parts=parts, nargs=nargs, metavar=metavar, help=help)


def _parts(annotation: Any) -> Iterator[Any]:
    """What an annotation accepts, without limits."""
    if get_origin(annotation) is Annotated:
        yield from _parts(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for part in get_args(annotation):
            yield from _parts(part)
    else:
        yield annotation


def _written(part: Any) -> str:
    """What stands for a value in the help."""
    arguments = [one for one in get_args(part) if one is not Ellipsis]
    if get_origin(part) is Literal:
        return f"{{{','.join(map(str, arguments))}}}"
    if get_origin(part) in (tuple, dict):
        return " ".join(_written(next(_parts(one))) for one in arguments)
    return WRITTEN.get(part, "VALUE")


def _shown(value: Any) -> str:
    """A default in the help."""
    if value is None or isinstance(value, bool):
        return "none" if value is None else str(value).lower()
    if isinstance(value, dict):
        value = [word for pair in value.items() for word in pair]
    return (" ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)) or "empty"
