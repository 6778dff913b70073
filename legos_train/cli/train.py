"""`legos train`: the fields of `TrainConfig` are the flags."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from legos_train.cli import elsewhere
from legos_train.cli.arguments import Parser
from legos_train.cli.setting_flags import add_settings, applied, given, settings_help
from legos_train.config import (
    TrainConfig,
    from_dict,
    merged,
    parse_assignments,
    preset,
    preset_names,
    read_toml,
    sections,
    sizes,
    to_toml,
)
from legos_train.errors import ConfigError, NothingToLearn
from legos_train.evaluation import env_words
from legos_train.rollout.players import actors

PLAIN = "kuhn"
DESCRIPTION = """Train a model by self-play. Plain `legos train` is `--preset kuhn`: the bundled model on Kuhn poker."""
EXAMPLES = """
legos train                                            # the bundled model on Kuhn poker
legos train --env Nim-v0 --steps 40                    # another game
legos train --credit.name rae                          # another credit method
legos train --eval-env Nim-v0 --eval-env gsm8k=GSM8K-v0 --eval-arg gsm8k:source=test.jsonl   # evaluated, not trained on
legos train --preset proposer_solver --smoke           # a small run of a task; without --smoke, a real model
legos train --preset debate --size 4b --dry-run        # what a real model of that size needs
legos train --resume --run-dir runs/kuhn               # continue a run
"""
SETTINGS = f"""presets: {", ".join(preset_names())}

All settings, by section. Defaults reflect the options given with --help (without any: --preset kuhn).
Each setting is also a key in a TOML file for --config: --optim.lr 1e-4 is `lr = 1e-4` in the table [optim], and none
is written "none"."""
PROJECTS = {
    name: field.title
    for name, field in sections.LogSettings.model_fields.items()
    if field.title and field.annotation is not bool
}
"""The settings of trackers that take a project's name, and what they are called."""


def make_parser(add_help: bool = False) -> Parser:
    """The parser of all options except the settings."""
    p = Parser("train", DESCRIPTION, EXAMPLES, usage=argparse.SUPPRESS, add_help=add_help, allow_abbrev=False)
    p.repeated(
        "--env",
        metavar="ID",
        help="environment to train on; with several, ID=2 is drawn twice as often (repeatable; default: --preset kuhn)",
    )
    p.env_arguments("constructor argument of the environment")
    p.repeated(
        "--eval-env",
        metavar="[NAME=]ID",
        help="environment to evaluate in but never train on; replaces the config's [[eval.env]]",
    )
    p.repeated("--eval-arg", metavar="[NAME:]KEY=VALUE", help="constructor argument of an --eval-env")
    p.repeated(
        "--seat",
        metavar="ROLE=MODEL",
        help=f"who plays a role: {actors.listed('policy', 'base', mark='')}",
    )
    p.repeated(
        "--learner",
        metavar="NAME=ROLE,ROLE",
        help="train a separate policy for these roles, instead of one for all; name every trained role",
    )
    p.repeated("--preset", metavar="NAME", help="settings for a task; the list below has all presets")
    p.add_argument("--smoke", action="store_true", help="with --preset: a small run of a bundled model")
    p.value(
        "--size",
        metavar="SIZE",
        help=f"a model, with the batch, LoRA, learning rate and token limits that fit it: {', '.join(sizes.names())} "
        f"(default: {sizes.DEFAULT} in presets for real models)",
    )
    p.repeated(
        "--config",
        metavar="FILE.toml",
        help="settings from a file, applied on top of --preset, or of the defaults if there is none; "
        "the file itself may name one: preset = 'spiral'",
    )
    p.add_argument(
        "--generate",
        "--server",
        dest="--server.urls",
        default=argparse.SUPPRESS,
        metavar="URL",
        help="generate on servers (`legos serve` or vLLM); separate several with commas (--server.urls)",
    )
    for name, title in PROJECTS.items():
        own, flag = (f"--{prefix}{name.replace('_', '-')}" for prefix in ("", "logs."))
        text = f"also log to {title} ({flag})"
        p.add_argument(own, dest=flag, default=argparse.SUPPRESS, metavar="PROJECT", help=text)
    p.add_argument(
        "--watch",
        nargs="?",
        type=int,
        const=0,
        metavar="PORT",
        help="show episodes in a browser on this machine while training (default: a free port)",
    )
    p.add_argument("--resume", action="store_true", help="continue the run in --run-dir from its latest checkpoint")
    p.add_argument(
        "--dry-run", action="store_true", help="print the settings with an estimate of memory and time; train nothing"
    )
    return p


def full_parser() -> Parser:
    """The parser of all options and settings."""
    p = make_parser()
    p.add_argument("-h", "--help", action="store_true")
    add_settings(p, TrainConfig())
    return p


def run(arguments: Sequence[str]) -> int:
    p = full_parser()
    options, rest = p.parse_known_args(arguments)
    if rest and not options.help:
        if mistake := elsewhere.translated(rest, p.flags()):
            p.error(mistake)
        p.unknown(rest)
    base = from_dict(settings(options), options.config[-1] if options.config else "settings")
    config = applied(given(options), base)
    if options.help:
        own = make_parser(add_help=True).format_help()
        print("usage: legos train [options]", own, settings_help(config, SETTINGS), sep="\n\n", end="")
        p.exit()
    if note := fitted_to_another(options, config):
        print(note, file=sys.stderr)
    if options.dry_run:
        from legos_train.run import estimate

        print(to_toml(config))
        print(estimate(config))
        return 0
    from legos_train.run import train

    result = train(config=config, resume=options.resume, watch=options.watch)
    return NothingToLearn.exit_code if result.updates == 0 else 0


def fitted_to_another(options: argparse.Namespace, config: TrainConfig) -> str | None:
    """A note if a preset for real models runs another model, but keeps the learning rate of its default model."""
    flags, default = given(options), sizes.size(sizes.DEFAULT)
    if not options.preset or options.size or options.smoke or "--model" not in flags or "--optim.lr" in flags:
        return None
    if config.optim.lr != default.lr or config.model == default.model:
        return None
    return (
        f"note: the learning rate {default.lr:g} fits the size {sizes.DEFAULT}, and perhaps not {config.model}; --size "
        "takes a model with settings that fit it, --optim.lr sets the rate"
    )


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """The settings from presets, files, a resumed run and the options of `make_parser`, as plain values.

    If none of them says what to train, the preset `PLAIN` applies. Presets that files name count as if given before
    those of `options`, and are added there.
    """
    files = [read_toml(Path(file)) for file in options.config]
    options.preset = [*(own.pop("preset") for own in files if "preset" in own), *options.preset]
    if options.smoke and not options.preset:
        raise ConfigError("--smoke is a small run of a preset: give --preset NAME too")
    if options.smoke and options.size:
        raise ConfigError("--smoke is a small run of a bundled model: leave out --size")
    data: dict[str, Any] = {}
    for name in options.preset:
        data = merged(data, preset(name, smoke=options.smoke, size=options.size))
    if options.size and not options.preset:
        data = sizes.size(options.size).over({})
    flags = given(options)
    of_files: dict[str, Any] = reduce(merged, files, {})
    sampling = of_files.get("sampling")
    own = "--sampling.max-tokens" in flags or (isinstance(sampling, dict) and "max_tokens" in sampling)
    if flags.get("--thinking", of_files.get("thinking")) == "on" and not own:
        data = sizes.with_thoughts(data)
    data = merged(data, of_files)
    run_dir = flags.get("--run-dir")
    if options.resume and not data and run_dir and (file := Path(run_dir) / "config.toml").exists():
        data = read_toml(file)
    if not (data or options.preset or options.config or options.env or flags.keys() & {"--model", "--backend"}):
        data = preset(PLAIN)
    if options.env:
        data["env"] = [_env(word) for word in options.env]
        if options.preset or options.config:
            data.pop("env_args", None)
    if options.eval_arg and not options.eval_env:
        raise ConfigError("--eval-arg is for an --eval-env: give --eval-env ID too")
    if options.eval_env:
        words = env_words(options.eval_env, options.eval_arg, "--eval-arg")
        entries = [{"id": w.id, "name": w.title if w.title != w.id else "", "args": w.args} for w in words.values()]
        data["eval"] = {**data.get("eval", {}), "env": entries}
    if options.arg:
        data["env_args"] = {**data.get("env_args", {}), **parse_assignments(options.arg, "--arg")}
    for word in options.seat:
        role, sign, model = word.partition("=")
        if not sign or not role or not model:
            raise ConfigError(f"--seat takes ROLE=MODEL, got {word!r}")
        data["actors"] = merged(data.get("actors", {}), {role: {"model": model}})
    if options.learner:
        data["learner"] = [_learner(word) for word in options.learner]
    return data


def _learner(word: str) -> dict[str, Any]:
    name, sign, roles = word.partition("=")
    if not sign or not name or not all(roles.split(",")):
        raise ConfigError(f"--learner takes NAME=ROLE or NAME=ROLE,ROLE, got {word!r}")
    return {"name": name, "roles": roles.split(",")}


def _env(word: str) -> dict[str, Any]:
    name, sign, weight = word.rpartition("=")
    if not sign:
        return {"id": word}
    try:
        return {"id": name, "weight": float(weight)}
    except ValueError:
        raise ConfigError(f"--env takes ID or ID=WEIGHT, got {word!r}") from None
