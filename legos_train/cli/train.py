"""`legos train`: the fields of `TrainConfig` are the flags."""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from legos_train.cli import completion, elsewhere
from legos_train.cli.arguments import Parser
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
from legos_train.players import actors

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
SETTINGS = """All settings, by section. Defaults reflect the options given with --help (without any: --preset kuhn).
Each setting is also a key in a TOML file for --config: --optim.lr 1e-4 is `lr = 1e-4` in the table [optim], and none
is written "none"."""
PROJECTS = {
    name: field.title
    for name, field in sections.LogSettings.model_fields.items()
    if field.title and field.annotation is not bool
}
"""The settings of trackers that take a project's name, and what they are called."""
ALIASES = {
    "generate": "--server.urls",
    **{name: f"--logs.{name.replace('_', '-')}" for name in PROJECTS},
    "run_dir": "--run-dir",
}
"""Options that are aliases of settings; `--run-dir` is also parsed here because `--resume` needs it."""


def make_parser() -> Parser:
    """The parser of all options except the settings; it leaves unknown arguments to tyro, which parses those."""
    p = Parser("train", DESCRIPTION, EXAMPLES, usage=argparse.SUPPRESS, add_help=False, allow_abbrev=False)
    p.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="ID",
        help="environment to train on; with several, ID=2 is drawn twice as often (repeatable; default: --preset kuhn)",
    )
    p.env_arguments("constructor argument of the environment")
    p.add_argument(
        "--eval-env",
        action="append",
        default=[],
        metavar="[NAME=]ID",
        help="environment to evaluate in but never train on; replaces the config's [[eval.env]] (repeatable)",
    )
    p.repeated("--eval-arg", metavar="[NAME:]KEY=VALUE", help="constructor argument of an --eval-env")
    p.repeated(
        "--actor",
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
    p.value(
        "--generate",
        "--server",
        metavar="URL",
        help="generate on servers (`legos serve` or vLLM); separate several with commas (--server.urls)",
    )
    for name, title in PROJECTS.items():
        p.value(f"--{name.replace('_', '-')}", metavar="PROJECT", help=f"also log to {title} ({ALIASES[name]})")
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
    p.add_argument("--run-dir", "--run_dir", help=argparse.SUPPRESS)
    return p


def help_text() -> str:
    """The part of `legos train --help` above the settings."""
    presets = textwrap.fill(f"presets: {', '.join(preset_names())}", 100, subsequent_indent="  ")
    return f"{make_parser().format_help().strip()}\n\n{presets}\n\n{SETTINGS}"


def run(arguments: Sequence[str]) -> int:
    p = make_parser()
    options, rest = p.parse_known_args(arguments)
    if mistake := elsewhere.translated(rest, completion.settings()):
        p.error(mistake)
    for name, flag in ALIASES.items():
        if (value := getattr(options, name)) is not None:
            rest += [flag, value]
    rest = list(split_urls(rest))
    config = parse(rest, from_dict(settings(options, rest), options.config[-1] if options.config else "settings"))
    if note := fitted_to_another(options, rest, config):
        print(note, file=sys.stderr)
    if options.dry_run:
        from legos_train.run import estimate

        print(to_toml(config))
        print(estimate(config))
        return 0
    from legos_train.run import train

    result = train(config=config, resume=options.resume, watch=options.watch)
    return NothingToLearn.exit_code if result.updates == 0 else 0


def fitted_to_another(options: argparse.Namespace, rest: Sequence[str], config: TrainConfig) -> str | None:
    """A note if a preset for real models runs another model, but keeps the learning rate of its default model."""
    flags, default = dict(_flags(rest)), sizes.size(sizes.DEFAULT)
    if not options.preset or options.size or options.smoke or "--model" not in flags or "--optim.lr" in flags:
        return None
    if config.optim.lr != default.lr or config.model == default.model:
        return None
    return (
        f"note: the learning rate {default.lr:g} fits the size {sizes.DEFAULT}, and perhaps not {config.model}; --size "
        "takes a model with settings that fit it, --optim.lr sets the rate"
    )


def split_urls(arguments: Iterable[str]) -> Iterator[str]:
    """The arguments with comma-separated addresses split, as tyro takes the values of a tuple."""
    takes = False
    for word in arguments:
        flag, sign, value = word.partition("=")
        if flag.startswith("--"):
            takes = flag == "--server.urls"
            yield from (flag, *value.split(",")) if takes and sign else (word,)
        else:
            yield from word.split(",") if takes else (word,)


def settings(options: argparse.Namespace, rest: Sequence[str] = ()) -> dict[str, Any]:
    """The settings from presets, files, a resumed run and the options above, as plain values.

    If none of them says what to train, the preset `PLAIN` applies; `rest`: the flags of single settings. Presets that
    files name count as if given before those of `options`, and are added there.
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
    flags = dict(_flags(rest))
    own = "--sampling.max-tokens" in flags or _in_files(options.config, "sampling", "max_tokens") is not None
    if flags.get("--thinking", _in_files(options.config, "thinking")) == "on" and not own:
        data = sizes.with_thoughts(data)
    for of_file in files:
        data = merged(data, of_file)
    if options.resume and not data and options.run_dir and (file := Path(options.run_dir) / "config.toml").exists():
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
    for word in options.actor:
        role, sign, model = word.partition("=")
        if not sign or not role or not model:
            raise ConfigError(f"--actor takes ROLE=MODEL, got {word!r}")
        data["actors"] = merged(data.get("actors", {}), {role: {"model": model}})
    if options.learner:
        data["learner"] = [_learner(word) for word in options.learner]
    return data


def _flags(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each flag with the argument after it, as tyro reads them; underscores count as dashes."""
    for word, following in zip(words, [*words[1:], ""]):
        flag, sign, value = word.partition("=")
        yield flag.replace("_", "-"), value if sign else following


def _in_files(files: Sequence[str], *keys: str) -> Any:
    """A setting in the last of the files that has it."""
    found = None
    for file in files:
        value: Any = read_toml(Path(file))
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        found = found if value is None else value
    return found


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


def parse(arguments: Sequence[str], base: TrainConfig) -> TrainConfig:
    """Applies command-line settings on top of `base`; wrong usage exits with 2 and says what is accepted."""
    if not arguments:
        return base
    import tyro

    parsed = tyro.cli(
        TrainConfig,
        prog="legos train",
        description=help_text(),
        args=list(arguments),
        default=base,
        registry=_unchecked(),
    )
    try:
        return from_dict(parsed.plain(), "command line")
    except ConfigError as error:
        make_parser().error(str(error))


def _unchecked() -> Any:
    """Makes tyro fill in settings unchecked: `from_dict` checks them and, unlike tyro, reports the value it got.

    tyro's `None` is shown as `none`, as in settings files; both are accepted. Docs of settings and sections lose their
    line breaks, which tyro would keep, so that they fill the terminal.
    """
    from pydantic import BaseModel
    from tyro import constructors
    from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructTypeInfo

    registry = ConstructorRegistry()

    @registry.primitive_rule
    def none(info: constructors.PrimitiveTypeInfo) -> constructors.PrimitiveConstructorSpec[None] | None:
        if info.type is not type(None):
            return None
        return constructors.PrimitiveConstructorSpec(
            nargs=1,
            metavar="none",
            instance_from_str=lambda words: None,
            is_instance=lambda value: value is None,
            str_from_instance=lambda value: ["none"],
            choices=("none", "None"),
        )

    asked: list[StructTypeInfo] = []

    @registry.struct_rule
    def fill_in(info: StructTypeInfo) -> StructConstructorSpec | None:
        if asked or not (isinstance(info.type, type) and issubclass(info.type, BaseModel)):
            return None
        asked.append(info)
        try:
            usual = ConstructorRegistry.get_struct_spec(info)
        finally:
            asked.clear()
        if not isinstance(usual, StructConstructorSpec):
            return None
        model = info.type

        def settings(**values: Any) -> BaseModel:
            return model.model_construct(**values)

        settings.__doc__ = _flowing(model.__doc__)  # the help text of the section
        fields = [replace(field, helptext=_flowing(field.helptext)) for field in usual.fields]
        return StructConstructorSpec(settings, tuple(fields))

    return registry


def _flowing(text: Any) -> Any:
    """A text, or a function that returns one, with each paragraph on one line; None stays."""
    if callable(text):
        return lambda: _flowing(text())
    return text if text is None else re.sub(r"(?<!\n)\n[ \t]*(?!\s)", " ", text)
