"""The options that `legos eval` and `legos tournament` share."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

ENVS = "ids of `legos envs list`, module:Name-v0 or file.py:Name-v0; NAME=ENV calls it NAME"


def add_playing(p: argparse.ArgumentParser) -> None:
    """The options that `eval` and `tournament` share."""
    p.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="S",
        help="first seed; the same seed, the same deals (default: 0)",
    )
    p.add_argument(
        "--temperature", type=float, default=1.0, metavar="T", help="of models and endpoints (default: %(default)s)"
    )
    p.add_argument(
        "--judge-temperature",
        type=float,
        default=0.0,
        metavar="T",
        help="of --seat policies in seats that the env does not train (default: %(default)s)",
    )
    p.add_argument(
        "--max-tokens",
        type=int,
        metavar="N",
        help="most tokens of an action (default: 64 for `tiny`, else 1024)",
    )
    p.add_argument("--system", metavar="TEXT", help="system prompt of models and endpoints (default: none)")
    p.add_argument(
        "--renderer",
        default="auto",
        metavar="NAME",
        help="how conversations become tokens: chatml, qwen3, llama3, deepseek, plain; auto: the model's chat template "
        "(default: %(default)s)",
    )
    p.add_argument(
        "--arg",
        action="append",
        default=[],
        metavar="[ENV:]NAME=VALUE",
        help="constructor argument of all envs, or of the one called ENV (repeatable)",
    )
    p.add_argument(
        "--seat",
        action="append",
        default=[],
        metavar="NAME=POLICY",
        help="who takes an agent's or a role's seat in all games, such as judge=tiny (repeatable; default: random for "
        "seats that the env does not train)",
    )
    p.add_argument(
        "--out", type=Path, metavar="DIR", help="keep every game and the results there; the same command again goes on"
    )
    p.add_argument("--concurrency", type=int, default=256, metavar="N", help="games at once (default: %(default)s)")
    p.add_argument(
        "--connections",
        type=int,
        default=32,
        metavar="N",
        help="requests at once to a server (default: %(default)s)",
    )
    p.add_argument(
        "--body",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="one more field of requests to endpoints, such as top_p=0.9 or reasoning_effort=low (repeatable)",
    )
    p.add_argument(
        "--timeout", type=float, default=120.0, metavar="S", help="seconds for one request to a server (default: 120)"
    )
    p.add_argument(
        "--retries",
        type=int,
        default=1,
        metavar="N",
        help="replays of games that a server lost (default: %(default)s)",
    )
    p.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def check(p: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Ends with a usage error for numbers out of range."""
    for name in ("games", "concurrency", "connections"):
        if getattr(options, name) < 1:
            p.error(f"--{name} must be at least 1, got {getattr(options, name)}")
    for name in ("seed", "retries", "temperature", "judge_temperature"):
        value = getattr(options, name)
        if not 0 <= value < math.inf:
            p.error(f"--{name.replace('_', '-')} must be at least 0, got {value}")
    if options.max_tokens is not None and options.max_tokens < 1:
        p.error(f"--max-tokens must be at least 1, got {options.max_tokens}")
    if not options.timeout > 0:
        p.error(f"--timeout must be above 0, got {options.timeout}")
