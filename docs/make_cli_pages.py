"""Writes a page for every verb of the command line, from its parser; and an index of them.

python docs/make_cli_pages.py    # the pages, into docs/_generated/commands; conf.py does it too
"""

from __future__ import annotations

import argparse
import importlib
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cli_facts import CODES, FACTS, VARIABLES
from page_parts import Setting, code, sentence, settings, settings_table, table, toctree, write_pages

from legos_train import TrainConfig
from legos_train.cli.main import VERBS
from legos_train.config import preset_names, sections
from legos_train.settings import Section

FOLDER = Path(__file__).parent / "_generated/commands"
DEFAULT = re.compile(r"\s*\((?:(repeatable)(?:[;,] )?)?(?:default: (.*))?\)$")


def write(folder: Path = FOLDER) -> list[str]:
    """Writes `index.md` and `VERB.md` for each verb into a folder; returns the verbs."""
    pages = {verb: page(verb) for verb in VERBS}
    rows = [[f"[`legos {verb}`]({verb}.md)", what] for verb, (_, what) in VERBS.items()]
    text = ["# Every command", "`legos VERB --help` says the same in the terminal, and `legos --version` the version."]
    write_pages(folder, {**pages, "index": "\n\n".join([*text, table(["command", "what"], rows), toctree(VERBS)])})
    return list(VERBS)


class Command(NamedTuple):
    """A verb, or a verb's own verb, as its page shows it."""

    words: str
    description: str
    examples: str
    synopsis: str
    options: list[list[str]]
    """Rows: how it is written, meaning, default."""


def page(verb: str) -> str:
    """The page of a verb as Markdown."""
    facts, parts = FACTS[verb], [f"# legos {verb}"]
    for number, command in enumerate(commands(verb)):
        parts += [f"## legos {command.words}"] if number else []
        first, _, more = command.description.partition("\n\n")
        parts += [prose(first), code("text", command.synopsis), *([prose(more)] if more else [])]
        parts += [f"{'###' if number else '##'} Examples", code("bash", commented(command.examples))]
        if command.options:
            parts += [f"{'###' if number else '##'} Options", table(["option", "meaning", "default"], command.options)]
    parts += list(train_settings()) if verb == "train" else []
    parts += ["## Files", table(["", ""], [["reads", facts.reads], ["writes", facts.writes]])]
    named = [[f"`{name}`", VARIABLES[name]] for name in facts.variables]
    parts += ["## Environment variables", table(["variable", "what it does"], named)] if named else []
    codes = [[str(number), what] for number, what in sorted({**CODES, **facts.codes}.items())]
    parts += ["## Exit codes", table(["code", "when"], codes)]
    return "\n\n".join([*parts, f"More: {facts.guides}."])


def commands(verb: str) -> list[Command]:
    """The verb, and below it those of its own where it has them."""
    module: Any = importlib.import_module(VERBS[verb][0])
    parser = module.make_parser()
    return [described(parser), *(described(inner) for inner in subparsers(parser))]


def subparsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    found = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return [inner for action in found for inner in action.choices.values()]


def described(parser: argparse.ArgumentParser) -> Command:
    """What a parser says of itself."""
    rows = [row(parser, action) for action in shown(parser)]
    examples = textwrap.dedent((parser.epilog or "").removeprefix("examples:\n"))
    words = parser.prog.removeprefix("legos ")
    return Command(words, parser.description or "", examples, synopsis(parser), rows)


def synopsis(parser: argparse.ArgumentParser) -> str:
    """The shortest form of a command: what has to be there, in the order of the parser, and `[options]`."""
    words = [parser.prog, *(["VERB"] if subparsers(parser) else [])]
    for action in shown(parser):
        if action.option_strings:
            words += [f"{action.option_strings[0]} {value(action)}"] if action.required else []
        else:
            word = value(action)
            words.append(f"[{word}]" if action.nargs in ("?", "*") else word)
    optional = any(action.option_strings and not action.required for action in shown(parser))
    words += ["[options]"] if optional or subparsers(parser) else []
    return " ".join([*words, *(["[--SECTION.SETTING VALUE ...]"] if parser.prog == "legos train" else [])])


def value(action: argparse.Action) -> str:
    """What stands for the value of an option or argument."""
    word = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    word = "|".join(map(str, action.choices)) if action.choices else word
    if action.nargs == "?" and action.option_strings:
        return f"[{word}]"
    return f"{word} ..." if action.nargs in ("+", "*") else word


def shown(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The options in the table: all but `--help`, the verb's own verbs and what is a setting."""
    for action in parser._actions:
        hidden = isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
        if not hidden and action.help != argparse.SUPPRESS:
            yield action


def row(parser: argparse.ArgumentParser, action: argparse.Action) -> list[str]:
    """An option: how it is written, what it means, and its default."""
    word = "" if action.nargs == 0 else value(action)
    written = ", ".join(f"`{option} {word}`".replace(" `", "`") for option in action.option_strings) or f"`{word}`"
    meaning, said = split(parser._get_formatter()._expand_help(action))
    must = action.required and action.nargs != "*"
    return [written, flags(meaning), "; ".join(["required"] * must + [flags(said)] * bool(said))]


def flags(text: str) -> str:
    """A text with its `--flags` as code, which would become dashes."""
    return re.sub(r"(?<![`\w-])(--[a-z][a-z.-]*[a-z])(?!`)", r"`\1`", text)


def split(text: str) -> tuple[str, str]:
    """A help text without its `(default: ...)`, and what stands there."""
    found = DEFAULT.search(text)
    if found is None or not (found[1] or found[2]):
        return text, ""
    return text[: found.start()], "; ".join(part for part in (found[1], found[2]) if part)


def prose(text: str) -> str:
    """A description as Markdown: indented lines are the rows of a table, other line breaks mean nothing."""
    parts = []
    for paragraph in text.split("\n\n"):
        lines = paragraph.split("\n")
        flowing = [line for line in lines if not line.startswith("  ")]
        parts += [flags(" ".join(flowing))] if flowing else []
        parts += [columns(lines[len(flowing) :])] if len(flowing) < len(lines) else []
    return "\n\n".join(parts)


def columns(lines: list[str]) -> str:
    """Lines with columns two or more spaces apart as a table; a line that begins far in goes on with the last cell."""
    rows: list[list[str]] = []
    for line in lines:
        cells = re.split(r"\s{2,}", line.strip())
        if len(cells) == 1 and rows:
            rows[-1][-1] += " " + cells[0]
        else:
            rows.append([f"`{cell}`" for cell in cells[:-1]] + [flags(cells[-1])])
    return table([""] * len(rows[0]), rows)


def commented(examples: str) -> str:
    """Example commands, each below what it does, so that no line is wider than the page."""
    lines = []
    for line in examples.strip().split("\n"):
        command, _, comment = line.partition(" # ")
        lines += [f"# {comment.strip()}", command.strip()] if comment else [command.strip()]
    return "\n".join(lines)


def train_settings() -> Iterator[str]:
    """All settings of a training run, a table for each section."""
    presets = ", ".join(f"`{name}`" for name in preset_names())
    yield f"## Presets\n\n{presets}: [examples and presets](../../examples.md)."
    yield (
        "## Settings\n\nEach is a flag of the command line, a key of the TOML file for `--config`, and a field of\n"
        "`legos_train.TrainConfig`: `--optim.lr 1e-4` is `lr = 1e-4` in the table `[optim]`. `none` is written\n"
        '`none` on the command line and `"none"` in TOML; a switch is `--asynchronous.enabled` or\n'
        "`--asynchronous.no-enabled`."
    )
    nested = {
        name: field.annotation
        for name, field in TrainConfig.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
    }
    plain = [name for name in TrainConfig.model_fields if name not in {*nested, *TOML}]
    yield "### The run\n\n" + named(settings(TrainConfig, plain), "--")
    for name, section in nested.items():
        yield f"### {name}\n\n{section.__doc__}\n\n{named(settings(section), f'--{name}.')}"
    for name, (shorter, model) in TOML.items():
        about = sentence(model.__doc__ or "")
        yield f"### {name}, in TOML only\n\n{about} {shorter}\n\n{settings_table(settings(model))}"


TOML: dict[str, tuple[str, type[Section]]] = {
    "env": ("Of these the command line has `--env ID` and `--env ID=WEIGHT`.", sections.EnvEntry),
    "learner": ("Of these the command line has `--learner NAME=ROLE,ROLE`.", sections.LearnerEntry),
    "actors": ("Of these the command line has `--seat ROLE=MODEL`.", sections.ActorEntry),
    "eval.env": ("Of these the command line has `--eval-env ID` and `--eval-arg NAME=VALUE`.", sections.HeldOutEntry),
}


def named(rows: list[Setting], prefix: str) -> str:
    """The table of settings as flags of the command line."""
    return settings_table([r._replace(name=r.name.replace("_", "-"), meaning=flags(r.meaning)) for r in rows], prefix)


if __name__ == "__main__":
    write()
