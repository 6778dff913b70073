"""The parser of every verb: one layout for all help pages, and errors that name the nearest flag."""

from __future__ import annotations

import argparse
import difflib
import functools
import math
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, get_type_hints

from inference.address import hide_secrets
from legos_train.cli import elsewhere

ENV = "an id from `legos envs list`, module:Name-v0 or file.py:Name-v0"
FLAG = re.compile(r"^--[^=]*")
MANY = 50
"""So many flags that an error names only the nearest."""


@functools.cache
def _annotations(kind: type) -> dict[str, Any]:
    """Those of a class, evaluated once: each of its options asks for them."""
    return get_type_hints(kind, include_extras=True)


class HelpLayout(argparse.HelpFormatter):
    """Fills each paragraph to the terminal's width, except those with indented lines, such as examples and tables."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        whole = [p if "\n " in p else "\n".join(self._split_lines(p, width)) for p in text.split("\n\n")]
        return textwrap.indent("\n\n".join(whole), indent)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


class Parser(argparse.ArgumentParser):
    """A parser whose help fills the terminal and ends with example commands.

    Args:
        verb: what follows `legos`.
        description: printed above the options.
        examples: command lines, printed below them.
    """

    def __init__(self, verb: str = "", description: str = "", examples: str = "", **kwargs: Any):
        epilog = "examples:\n" + textwrap.indent(examples.strip(), "  ") if examples else None
        kwargs = {"prog": f"legos {verb}", "formatter_class": HelpLayout, **kwargs}
        super().__init__(description=description, epilog=epilog, **kwargs)
        self._negative_number_matcher = re.compile(r"-\.?\d")  # as in Python 3.14: -1e-4, too, is a value
        self._checks: list[Callable[[argparse.Namespace], object]] = []

    def value(self, *flags: str, metavar: str, help: str, default: Any = None, type: Any = str) -> None:
        """An option with a value. Its help ends with the default, unless the help already states one."""
        help += " (default: %(default)s)" if default is not None and "(default:" not in help else ""
        self.add_argument(*flags, metavar=metavar, help=help, default=default, type=type)

    def repeated(self, *flags: str, metavar: str, help: str) -> None:
        """An option that may be given several times; its values are a list."""
        help += " (repeatable)" * ("(repeatable" not in help)
        self.add_argument(*flags, metavar=metavar, help=help, default=[], action="append")

    def number(
        self,
        *flags: str,
        help: str,
        default: float | None = None,
        least: float = 0,
        most: float = math.inf,
        above: bool = False,
        type: type = int,
        metavar: str = "N",
    ) -> None:
        """An option with a number from `least` (or `above` it) to `most`; anything else is a usage error."""
        self.value(*flags, metavar=metavar, help=help, default=default, type=type)
        name = flags[-1].lstrip("-")

        def check(options: argparse.Namespace) -> None:
            value = getattr(options, name.replace("-", "_"))
            if value is None:
                return
            if not (math.isfinite(value) and value <= most and (value > least if above else value >= least)):
                low = f"above {least}" if above else f"at least {least}"
                limits = (
                    low if most == math.inf else f"{low} and at most {most}" if above else f"from {least} to {most}"
                )
                self.error(f"--{name} must be {limits}, got {value}")

        self._checks.append(check)

    def option(self, kind: type, name: str, *flags: str, **changes: Any) -> None:
        """A field of a dataclass of options, such as `PlayerOptions`, with `flags` before that of its name.

        `changes`: what differs from the field's declaration.
        """
        (how,) = _annotations(kind)[name].__metadata__
        how = {key: value for key, value in how._asdict().items() if value not in (None, (), "")}
        how |= {"default": getattr(kind, name), **changes}
        flags = (*flags, f"--{name.replace('_', '-')}")
        if how["default"] is False:
            self.add_argument(*flags, action="store_true", help=how["help"])
        elif how["default"] == ():
            del how["default"]
            self.repeated(*flags, **how)
        elif "choices" in how:
            self.add_argument(*flags, **how)
        else:
            (self.number if "least" in how else self.value)(*flags, **how)

    def env_arguments(self, help: str = "constructor argument of the env", metavar: str = "NAME=VALUE") -> None:
        """The `--arg` option, the same in all verbs."""
        self.repeated("--arg", metavar=metavar, help=help)

    def error(self, message: str) -> NoReturn:
        """Exits with 2; the message hides passwords and keys in what the user typed."""
        super().error(hide_secrets(message))

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Like argparse, but the error for an unknown flag suggests the closest known one."""
        options, rest = self.parse_known_args(args, namespace)
        if rest:
            self.unknown(rest)
        return options

    def unknown(self, rest: Sequence[str]) -> NoReturn:
        """Exits with 2; the message names the flags nearest to unknown ones."""
        known = self.flags()
        flags = [word.partition("=")[0] for word in rest if word.startswith("--")]
        theirs = [elsewhere.named_here(flag, known) for flag in flags]
        near = [found for flag in flags for found in difflib.get_close_matches(flag, known, 1, cutoff=0.7)]
        near = [flag for flag in theirs if flag] or near
        accepted = ", ".join(known) if len(known) < MANY else f"those of `{self.prog} --help`"
        hint = f"; did you mean {' and '.join(near)}?" if near else f"; accepted: {accepted}" * bool(flags)
        self.error(f"unrecognized arguments: {' '.join(rest)}{hint}")

    def flags(self) -> list[str]:
        """The long flags of this parser and of its subcommands."""
        shown = (action for action in self._actions if action.help != argparse.SUPPRESS)
        own = [flag for action in shown for flag in action.option_strings if flag.startswith("--")]
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                own += [flag for each in action.choices.values() for flag in each.flags() if flag not in own]
        return own

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Like argparse, but underscores in flags count as dashes."""
        words = [FLAG.sub(lambda flag: flag[0].replace("_", "-"), word) for word in args]
        options, rest = super().parse_known_args(words, namespace)
        for check in self._checks:
            check(options)
        return options, rest
