"""`legos train`: the fields of `TrainConfig` are the flags."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from legos_train.config import (
    TrainConfig,
    from_dict,
    merged,
    parse_assignments,
    preset,
    preset_names,
    read_toml,
    to_toml,
)
from legos_train.errors import ConfigError

DESCRIPTION = """Train a model by self-play. Plain `legos train` trains the bundled model on Kuhn poker."""
EXAMPLES = """
legos train                                            # the bundled model on Kuhn poker
legos train --env Nim-v0 --steps 40                    # another game
legos train --env KuhnPoker-v0 --credit.name rae       # another credit method
legos train --preset proposer_solver --smoke           # a task's settings, small; without --smoke for a real model
legos train --resume --run-dir runs/kuhn               # go on with a run
"""
FLAGS = {
    "--env ID": "the environment; several times for several, ID=2 draws one twice as often (default: KuhnPoker-v0)",
    "--arg NAME=VALUE": "a constructor argument of the environment (repeatable)",
    "--actor ROLE=MODEL": "who answers for a role: policy, base, random, a run directory, an endpoint (repeatable)",
    "--preset NAME": "settings of a task, see the list of presets",
    "--smoke": "with --preset: a small run of `tiny` that shows that everything fits together",
    "--config FILE.toml": "settings from a file, on top of the preset",
    "--server URL": "generate on `legos serve`; several, separated by commas (--server.urls)",
    "--wandb PROJECT": "log to Weights & Biases too (--logs.wandb)",
    "--trackio PROJECT": "log to trackio too (--logs.trackio)",
    "--watch [PORT]": "show episodes in the browser while training, this machine only; without PORT: a free one",
    "--resume": "go on with --run-dir from its newest checkpoint",
    "--dry-run": "print the settings with an estimate of memory and time; train nothing",
}
"""What the command line takes besides the settings."""
SETTINGS = """Below are all settings, by section. Each is also a key of a TOML file for --config: --optim.lr 1e-4
is `lr = 1e-4` in the table [optim], and None is "none"."""
ALIASES = {"--server": "--server.urls", "--wandb": "--logs.wandb", "--trackio": "--logs.trackio"}


def help_text() -> str:
    """What stands above the settings in `legos train --help`."""
    flags = "\n".join(f"{flag:20} {what}" for flag, what in FLAGS.items())
    presets = textwrap.fill(f"presets: {', '.join(preset_names())}", 100, subsequent_indent="  ")
    examples = textwrap.indent(EXAMPLES.strip(), "  ")
    return f"{DESCRIPTION}\n\nexamples:\n{examples}\n\n{flags}\n\n{presets}\n\n{SETTINGS}"


def run(arguments: Sequence[str]) -> int:
    rest = [
        f"{ALIASES.get(a.partition('=')[0], a.partition('=')[0])}{''.join(a.partition('=')[1:])}" for a in arguments
    ]
    resume, dry_run, smoke = (take_flag(rest, flag) for flag in ("--resume", "--dry-run", "--smoke"))
    watch = _take_watch(rest)
    names, files = take_values(rest, "--preset"), take_values(rest, "--config")
    if smoke and not names:
        raise ConfigError("--smoke is a small run of a preset: give --preset NAME too")
    data: dict[str, Any] = {}
    for name in names:
        data = merged(data, preset(name, smoke=smoke))
    for file in files:
        data = merged(data, read_toml(Path(file)))
    kept = _run_dir(rest)
    if resume and not data and kept and (kept / "config.toml").exists():
        data = read_toml(kept / "config.toml")
    if envs := take_values(rest, "--env"):
        data["env"] = [_env(word) for word in envs]
        if names or files:
            data.pop("env_args", None)
    if assignments := take_values(rest, "--arg"):
        data["env_args"] = {**data.get("env_args", {}), **parse_assignments(assignments, "--arg")}
    for word in take_values(rest, "--actor"):
        role, sign, model = word.partition("=")
        if not sign or not role or not model:
            raise ConfigError(f"--actor takes ROLE=MODEL, got {word!r}")
        data["actors"] = merged(data.get("actors", {}), {role: {"model": model}})
    config = parse(rest, from_dict(data, files[-1] if files else "settings"))
    if dry_run:
        from legos_train.run import estimate

        print(to_toml(config))
        print(estimate(config))
        return 0
    from legos_train.run import train

    train(config=config, resume=resume, watch=watch)
    return 0


def _env(word: str) -> dict[str, Any]:
    name, sign, weight = word.rpartition("=")
    if not sign:
        return {"id": word}
    try:
        return {"id": name, "weight": float(weight)}
    except ValueError:
        raise ConfigError(f"--env takes ID or ID=WEIGHT, got {word!r}") from None


def parse(arguments: Sequence[str], base: TrainConfig) -> TrainConfig:
    """Command-line settings over those of `base`; wrong usage exits with 2 and names the nearest flag."""
    import tyro

    parsed = tyro.cli(
        TrainConfig,
        prog="legos train",
        description=help_text(),
        args=list(arguments),
        default=base,
    )
    return from_dict(parsed.plain(), "command line")


def take_flag(arguments: list[str], flag: str) -> bool:
    """Whether a flag is there; it is taken out."""
    found = flag in arguments
    while flag in arguments:
        arguments.remove(flag)
    return found


def take_values(arguments: list[str], flag: str) -> list[str]:
    """The values of every `FLAG VALUE` and `FLAG=VALUE`, which are taken out; exits with 2 when a value is missing."""
    found: list[str] = []
    i = 0
    while i < len(arguments):
        name, sign, value = arguments[i].partition("=")
        if name != flag:
            i += 1
        elif sign:
            found.append(value)
            del arguments[i]
        elif i + 1 < len(arguments):
            found.append(arguments[i + 1])
            del arguments[i : i + 2]
        else:
            print(f"legos train: {flag} takes a value", file=sys.stderr)
            raise SystemExit(2)
    return found


def _take_watch(arguments: list[str]) -> int | None:
    """The port of `--watch [PORT]`, 0 for any; None when it is not there."""
    for i, argument in enumerate(arguments):
        name, sign, value = argument.partition("=")
        if name == "--watch":
            following = arguments[i + 1] if i + 1 < len(arguments) and not sign else value
            del arguments[i : i + 1 + (not sign and following.isdecimal())]
            return int(following) if following.isdecimal() else 0
    return None


def _run_dir(arguments: Sequence[str]) -> Path | None:
    values = take_values([a.replace("--run_dir", "--run-dir") for a in arguments], "--run-dir")
    return Path(values[-1]) if values else None


__all__ = ["ConfigError", "parse", "run"]
