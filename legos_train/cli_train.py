"""`legos train`: the fields of `TrainConfig` are the flags."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from legos_train.config import ConfigError, TrainConfig, from_dict, load_toml, to_toml

HELP = """Train a model by self-play. Plain `legos train` trains the bundled model on Kuhn poker.

Besides the settings below: --config FILE.toml reads settings from a file; --resume goes on with --run-dir from its
newest checkpoint; --dry-run prints the settings with an estimate of memory and time and trains nothing."""


def run(arguments: Sequence[str]) -> int:
    rest = list(arguments)
    resume, dry_run = _take(rest, "--resume"), _take(rest, "--dry-run")
    base = load_toml(Path(path)) if (path := _take_value(rest, "--config")) else TrainConfig()
    if resume and (kept := _run_dir(rest)) and (kept / "config.toml").exists() and not path:
        base = load_toml(kept / "config.toml")
    config = parse(rest, base)
    if dry_run:
        from legos_train.preflight import estimate

        print(to_toml(config))
        print(estimate(config))
        return 0
    from legos_train.train import train

    train(config, resume=resume)
    return 0


def parse(arguments: Sequence[str], base: TrainConfig) -> TrainConfig:
    """Command-line settings over those of `base`; wrong usage exits with 2 and names the nearest flag."""
    import tyro

    parsed = tyro.cli(TrainConfig, prog="legos train", description=HELP, args=list(arguments), default=base)
    return from_dict(parsed.model_dump(), "command line")


def _take(arguments: list[str], flag: str) -> bool:
    found = flag in arguments
    while flag in arguments:
        arguments.remove(flag)
    return found


def _take_value(arguments: list[str], flag: str) -> str | None:
    for i, argument in enumerate(arguments):
        if argument.startswith(f"{flag}="):
            del arguments[i]
            return argument.partition("=")[2]
        if argument == flag:
            if i + 1 == len(arguments):
                print(f"legos train: {flag} takes a file", file=sys.stderr)
                raise SystemExit(2)
            value = arguments[i + 1]
            del arguments[i : i + 2]
            return value
    return None


def _run_dir(arguments: Sequence[str]) -> Path | None:
    rest = [a.replace("--run_dir", "--run-dir") for a in arguments]
    value = _take_value(rest, "--run-dir")
    return None if value is None else Path(value)


__all__ = ["ConfigError", "parse", "run"]
