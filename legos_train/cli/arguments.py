"""Parsers for the verbs: one layout for all help pages, and the options that several verbs share."""

from __future__ import annotations

import argparse
import difflib
import math
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, get_args

from inference.address import hide_secrets
from inference.text import RENDERERS
from inference.thoughts import THINKING
from inference.types import NUMBERS, Dequantize, Threads
from legos_train.cli import elsewhere
from legos_train.players import actors, replies
from legos_train.settings import DRAW_OPTIONS

ENV = "an id from `legos envs list`, module:Name-v0 or file.py:Name-v0"


class Parser(argparse.ArgumentParser):
    """A parser whose help keeps its line breaks and ends with example commands.

    Args:
        verb: what follows `legos`.
        description: printed above the options.
        examples: command lines, printed below them.
    """

    def __init__(self, verb: str = "", description: str = "", examples: str = "", **kwargs: Any):
        epilog = "examples:\n" + textwrap.indent(examples.strip(), "  ") if examples else None
        kwargs = {"prog": f"legos {verb}", "formatter_class": argparse.RawDescriptionHelpFormatter, **kwargs}
        super().__init__(description=description, epilog=epilog, **kwargs)
        self._checks: list[Callable[[argparse.Namespace], object]] = []

    def value(self, *flags: str, metavar: str, help: str, default: Any = None, type: Any = str) -> None:
        """An option with a value. Its help ends with the default, unless the help already states one."""
        help += " (default: %(default)s)" if default is not None and "(default:" not in help else ""
        self.add_argument(*flags, metavar=metavar, help=help, default=default, type=type)

    def repeated(self, *flags: str, metavar: str, help: str) -> None:
        """An option that may be given several times; its values are a list."""
        self.add_argument(*flags, metavar=metavar, help=f"{help} (repeatable)", default=[], action="append")

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
            known = self._flags()
            flags = [word.partition("=")[0] for word in rest if word.startswith("--")]
            theirs = [elsewhere.named_here(flag, known) for flag in flags]
            near = [found for flag in flags for found in difflib.get_close_matches(flag, known, 1, cutoff=0.7)]
            near = [flag for flag in theirs if flag] or near
            hint = f"; did you mean {' and '.join(near)}?" if near else f"; accepted: {', '.join(known)}" * bool(flags)
            self.error(f"unrecognized arguments: {' '.join(rest)}{hint}")
        return options

    def _flags(self) -> list[str]:
        """The long flags of this parser and of its subcommands."""
        own = [flag for flag in self._option_string_actions if flag.startswith("--")]
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                own += [flag for each in action.choices.values() for flag in each._flags() if flag not in own]
        return own

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        options, rest = super().parse_known_args(args, namespace)
        for check in self._checks:
            check(options)
        return options, rest


def add_loading(p: Parser, threads: Threads = "auto") -> None:
    """Adds the options for loading models; `legos train` has them among its settings."""
    p.value(
        "--threads",
        type=_threads,
        default=threads,
        metavar="N|auto",
        help="threads of the matrix library on a CPU; auto: one per core that is idle at startup for models of 50 "
        "million weights or more, otherwise 1",
    )
    p.add_argument(
        "--dequantize",
        choices=get_args(Dequantize),
        default="auto",
        help="whether to dequantise weights at load: faster on a CPU, for four to eight times the memory (default: "
        "auto, on a CPU with enough memory)",
    )


def _threads(text: str) -> Threads:
    if text == "auto":
        return "auto"
    if not (text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, or auto; got {text!r}")
    return int(text)


def add_asking(p: Parser) -> None:
    """Adds the options of `eval`, `tournament` and `play` for how models and endpoints are prompted."""
    p.add_argument(
        "--thinking",
        choices=tuple(THINKING),
        default="auto",
        help="whether models think before they answer, if their chat template has that switch; sent to endpoints as "
        "chat_template_kwargs.enable_thinking (default: auto, the template's default)",
    )
    p.number(
        "--thinking-tokens",
        help="maximum tokens per thought; they count towards the limit per action; sent to endpoints as "
        "thinking_token_budget (default: no separate limit)",
    )
    p.value(
        "--reply",
        default="env",
        metavar="TEMPLATE",
        help=f"how to ask for an answer: {', '.join(replies.REPLIES)}, or your own text with {{observation}} in it",
    )
    add_loading(p)


def add_drawing(p: Parser) -> None:
    """Adds the numbers of `inference.DrawParams`."""
    for option in (option for option in NUMBERS if option.name in DRAW_OPTIONS):
        row, bounds = DRAW_OPTIONS[option.name], option.bounds
        p.number(
            f"--{option.name.replace('_', '-')}",
            help=row.text.rstrip("."),
            default=row.default,
            least=bounds.get("ge", bounds.get("gt", 0)),
            above="gt" in bounds,
            most=bounds.get("le", math.inf),
            type=option.kind,
            metavar="N" if option.kind is int else option.name.split("_")[-1][0].upper(),
        )


def add_sampling(p: Parser) -> None:
    """Adds the sampling options for models and endpoints, for `eval`, `tournament` and `exploit`."""
    add_drawing(p)
    bundled = ", ".join(f"{most} for `{model}`" for model, most in actors.BUNDLED_TOKENS.items())
    usual = f"(default: {bundled}, otherwise {actors.TOKENS})"
    p.number("--max-tokens", help=f"maximum tokens per action {usual}", least=1)
    p.repeated(
        "--system",
        metavar="[NAME=]TEXT",
        help="system prompt for models and endpoints; with NAME, only for that agent or role",
    )
    p.value(
        "--renderer",
        default="auto",
        metavar="NAME",
        help=f"how conversations become tokens: {', '.join(RENDERERS)}; auto uses the model's chat template",
    )
    add_asking(p)


def add_connecting(p: Parser, unit: str = "games") -> None:
    """Adds the connection options for the same verbs; `unit` names what runs concurrently, such as games."""
    p.number("--concurrency", help=f"{unit} at a time", default=256, least=1)
    p.number("--connections", help="concurrent requests to a server", default=actors.CONNECTIONS, least=1)
    p.repeated(
        "--body",
        metavar="NAME=VALUE",
        help="extra field in requests to endpoints, such as top_p=0.9 or reasoning_effort=low",
    )
    p.number(
        "--timeout",
        help="seconds for one request to a server",
        default=actors.TIMEOUT,
        least=1e-3,
        type=float,
        metavar="S",
    )
    p.number("--retries", help=f"how many times to retry {unit} lost to a server error", default=1)
    p.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def add_playing(p: Parser) -> None:
    """Adds the options that `eval` and `tournament` share: how games are played, and where they are saved."""
    p.number("--seed", help="first seed; the same seed deals the same games", default=0, metavar="S")
    add_sampling(p)
    p.number(
        "--judge-temperature",
        help="temperature of --seat policies in seats that the env does not train",
        default=0.0,
        type=float,
        metavar="T",
    )
    p.env_arguments("constructor argument of every env, or of the one named ENV", "[ENV:]NAME=VALUE")
    p.add_argument(
        "--seat",
        action="append",
        default=[],
        metavar="NAME=POLICY",
        help="who plays an agent or role in every game, such as judge=tiny (repeatable; default: random for seats "
        "that the env does not train)",
    )
    p.value(
        "--out", type=Path, metavar="DIR", help="save every game and the results in DIR; rerun the command to resume"
    )
    add_connecting(p)


def env_names(p: Parser, nargs: str) -> None:
    """Adds the environments of `eval` and `tournament`."""
    p.add_argument("env", nargs=nargs, metavar="ENV", help=f"{ENV}; NAME=ENV calls it NAME in results")
