"""The options that several verbs share: how models are loaded and asked, and how games are played."""

from __future__ import annotations

import argparse
import math
from dataclasses import fields
from typing import Any, TypeVar

from inference.types import NUMBERS, Threads
from legos_train.cli.arguments import ENV, Parser
from legos_train.evaluation import SessionOptions
from legos_train.rollout.players.words import PlayerOptions
from legos_train.settings import DRAW_OPTIONS

Options = TypeVar("Options", bound=PlayerOptions)


def chosen(kind: type[Options], options: argparse.Namespace) -> Options:
    """The fields of a dataclass of options as the command line gives them, the others with their defaults."""
    names = {one.name for one in fields(kind)}
    return kind(**{name: value for name, value in vars(options).items() if name in names})


def add_loading(p: Parser, **changes: Any) -> None:
    """Adds the options for loading models; `legos train` has them among its settings."""
    p.option(PlayerOptions, "threads", type=_threads, **changes)
    p.option(PlayerOptions, "dequantize")


def _threads(text: str) -> Threads:
    if text == "auto":
        return "auto"
    if not (text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, or auto; got {text!r}")
    return int(text)


def add_asking(p: Parser) -> None:
    """Adds the options of `eval`, `tournament` and `play` for how models and endpoints are prompted."""
    for name in ("thinking", "thinking_tokens", "reply"):
        p.option(PlayerOptions, name)
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
    for name in ("max_tokens", "system", "renderer"):
        p.option(SessionOptions, name)
    add_asking(p)


def add_connecting(p: Parser, unit: str = "games") -> None:
    """Adds the connection options for the same verbs; `unit` names what runs concurrently, such as games."""
    p.option(SessionOptions, "concurrency", help=f"{unit} at a time")
    for name in ("connections", "body", "timeout"):
        p.option(SessionOptions, name)
    p.option(SessionOptions, "retries", help=f"how many times to retry {unit} lost to a server error")
    p.option(SessionOptions, "json")


def add_playing(p: Parser) -> None:
    """Adds the options that `eval` and `tournament` share: how games are played, and where they are saved."""
    p.option(SessionOptions, "seed")
    add_sampling(p)
    for name in ("judge_temperature", "arg", "seat", "out"):
        p.option(SessionOptions, name)
    add_connecting(p)


def env_names(p: Parser, nargs: str) -> None:
    """Adds the environments of `eval` and `tournament`."""
    p.add_argument("env", nargs=nargs, metavar="ENV", help=f"{ENV}; NAME=ENV calls it NAME in results")
