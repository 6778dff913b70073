"""The generated pages of the docs: one for every algorithm and every command, made from the code and true to it."""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

from legos_train import TrainConfig
from legos_train.arena.curriculum import SAMPLERS
from legos_train.cli.main import VERBS
from legos_train.config import from_dict
from legos_train.config import sections as sections
from legos_train.credit import METHODS, CreditSettings
from legos_train.league import MODES, LeagueSettings
from legos_train.loss import LOSSES, LossSettings

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
Pages = dict[str, str]


@pytest.fixture(scope="module")
def makers() -> Iterator[tuple[ModuleType, ...]]:
    """The modules of docs/ that make the pages, imported as conf.py does."""
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        names = ("make_algorithm_pages", "make_cli_pages", "page_parts", "make_guide_tables")
        yield tuple(importlib.import_module(name) for name in names)
    finally:
        sys.path.remove(str(ROOT / "docs"))


@pytest.fixture(scope="module")
def algorithms(makers: tuple[ModuleType, ...], tmp_path_factory: pytest.TempPathFactory) -> Pages:
    return written(makers[0], tmp_path_factory.mktemp("algorithms"))


@pytest.fixture(scope="module")
def commands(makers: tuple[ModuleType, ...], tmp_path_factory: pytest.TempPathFactory) -> Pages:
    return written(makers[1], tmp_path_factory.mktemp("commands"))


def written(maker: ModuleType, folder: Path) -> Pages:
    maker.write(folder)
    return {file.stem: file.read_text() for file in folder.iterdir()}


def test_every_algorithm_has_a_page_with_equation_source_settings_and_example(algorithms: Pages) -> None:
    assert set(get_args(CreditSettings.model_fields["name"].annotation)) == set(METHODS)
    assert set(get_args(LossSettings.model_fields["name"].annotation)) == set(LOSSES)
    assert set(get_args(LeagueSettings.model_fields["mode"].annotation)) == set(MODES)
    every = [*METHODS, *LOSSES, *MODES, *SAMPLERS]
    known = {name for name in every if every.count(name) == 1} | {"mirror_loss", "mirror_league"}
    others = {"per_env", "per_learner", "per_role", "truncate_ratio", "mask_ratio", "kl", "entropy", "legality", "keep"}
    assert set(algorithms) == known | others | {"index"}
    for name in known | others:
        page = algorithms[name]
        assert f"({name}.md)" in algorithms["index"], name
        for heading in ("## When to choose it", "**When not:**", "## How to turn it on", "## Source"):
            assert heading in page, (name, heading)
        routed = ("per_env", "per_learner", "per_role", "mirror_league", "keep")
        assert "$$" in page or name in routed, f"{name} has no equation"
        assert "## An example" in page or name == "mirror_league", f"{name} has no example"
        assert "Args:" not in page and "PydanticUndefined" not in page, name


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("rae", "| 3 | 1 | dealer | card Q; card Q, raised | +1.00, +2.00 | +3.00, +3.00 | +2.25, +2.25 |"),
        (
            "grpo",
            "| 1 | 0 | dealer | card K; card K, raised | +0.00, +2.00 | +1.50, +1.50 | +1.00, +1.00 | +2.00, +2.00 |",
        ),
        ("maxrl", "| 1 | 0 | solver | problem 0 | +1.00 | +3.00 | +0.75 |"),
        ("ppo", "| 2 | -1.20 | +0.00 | +2.00 | +2.00 |"),
        ("gspo", "| 1 | 1.5 | 1.11 | -1.11 | +0.00 |"),
        ("truncate_ratio", "| 0.05 | 0.5 | 10.00 | 2.00 |"),
        ("kl", "| 0.97, 0.01, 0.01, 0.01 | 1.22 |"),
        ("psro", "| `step_5` | 0.50 |"),
        ("learnability", "| 1 of 8 | 0.160 |"),
        ("keep", "| 1 | +2.00, -2.00 | player_0, player_1 | player_0 | player_0 |"),
    ],
)
def test_examples_on_pages_are_right(algorithms: Pages, name: str, row: str) -> None:
    """Numbers that can be checked by hand: they come from the code, and so does the page."""
    assert row in algorithms[name]


def test_every_verb_has_a_page_with_all_of_its_options(makers: tuple[ModuleType, ...], commands: Pages) -> None:
    assert set(commands) == {*VERBS, "index"}
    for verb in VERBS:
        page = commands[verb]
        assert f"({verb}.md)" in commands["index"]
        for heading in ("## Examples", "## Files", "## Exit codes", "More: ["):
            assert heading in page, (verb, heading)
        for parser in parsers(verb):
            for action in parser._actions:
                if isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
                    continue
                if action.help == argparse.SUPPRESS:
                    continue
                positional = "\\|".join(action.choices) if action.choices else str(action.metavar or action.dest)
                for written in action.option_strings or [positional]:
                    assert f"`{written}" in page, (verb, written)
                assert action.help, f"legos {verb}: {action.dest} has no help"
    options = makers[1].commands("export")[0].options
    assert ["`--by turn|episode`", "parquet, jsonl: what a row is", "turn"] in options
    assert any(row[0] == "`-n N`, `--games N`" and row[2] == "256" for row in makers[1].commands("eval")[0].options)


def parsers(verb: str) -> list[argparse.ArgumentParser]:
    parser = importlib.import_module(VERBS[verb][0]).make_parser()
    inner = [a.choices.values() for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    return [parser, *(one for group in inner for one in group)]


def test_every_setting_has_a_text_and_is_on_the_page_of_train(makers: tuple[ModuleType, ...], commands: Pages) -> None:
    page = commands["train"]
    texts = TrainConfig.field_texts()
    for name, field in TrainConfig.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, sections.Section):
            inner = field.annotation.field_texts()
            assert field.annotation.__doc__
            for one in field.annotation.model_fields:
                assert inner.get(one), f"{name}.{one} has no text below it"
                assert f"| `--{name}.{one}`".replace("_", "-") in page
        else:
            assert texts.get(name), f"{name} has no text below it"
            assert name in ("env", "actors", "learner") or f"| `--{name}`".replace("_", "-") in page
    for section in (sections.EnvEntry, sections.LearnerEntry, sections.ActorEntry):
        assert set(section.field_texts()) == set(section.model_fields)


def test_ranges_and_kinds_of_settings(makers: tuple[ModuleType, ...]) -> None:
    rows = {row.name: row for row in makers[2].settings(LossSettings)}
    assert rows["clip_low"][1:3] == ("number, above 0, at most 1", "`0.2`")
    assert rows["mask_ratio"][1:3] == ("2 numbers, or none", "none")
    assert rows["mask_truncated"][1:3] == ("`true` or `false`", "`false`")
    assert rows["kl_schedule"].kind == "`geometric`, `linear`"
    (env,) = makers[2].settings(sections.EnvEntry, ["id"])
    assert env.default == "required"


def test_commands_and_settings_on_the_pages_are_accepted(algorithms: Pages, commands: Pages) -> None:
    lines = []
    for name, page in {**algorithms, **commands}.items():
        for language, text in BLOCK.findall(page):
            if language == "bash":
                lines += [(name, line) for line in text.splitlines() if line and not line.startswith("#")]
            elif language == "toml":
                from_dict(tomllib.loads(text), name)
    assert len(lines) > 60
    for name, line in lines:
        program, verb, *words = shlex.split(line.partition(" > ")[0])
        assert program == "legos" and "  " not in line, (name, line)
        if verb == "train":
            assert read_train(words)
        else:
            importlib.import_module(VERBS[verb][0]).make_parser().parse_args(words)


def read_train(words: list[str]) -> TrainConfig:
    """The config that flags of `legos train` make, without the files of `--config`."""
    from legos_train.cli import setting_flags
    from legos_train.cli import train as cli_train

    assert not [word for word in words if word.startswith("--") and "_" in word.partition("=")[0]]
    options = cli_train.full_parser().parse_args(words)
    options.config = []
    return setting_flags.applied(setting_flags.given(options), from_dict(cli_train.settings(options)))


def test_facts_beside_the_parsers_are_in_the_code(makers: tuple[ModuleType, ...], commands: Pages) -> None:
    """Names of files and environment variables that the pages tell of; other libraries read the listed ones."""
    facts = importlib.import_module("cli_facts")
    packages = ("legos_train", "inference", "legos_envs")
    code = "\n".join(file.read_text() for package in packages for file in (ROOT / package).rglob("*.py"))
    others = {"HF_TOKEN", "BROWSER", "WANDB_MODE", "WANDB_API_KEY"}
    for name in set(facts.VARIABLES) - others:
        assert f'"{name}"' in code, name
    for one in facts.FACTS.values():
        assert set(one.variables) <= set(facts.VARIABLES)
        for file in re.findall(r"`([\w]+\.(?:jsonl?|toml|html|sqlite|safetensors))`", one.reads + one.writes):
            assert file in code, file
    assert set(facts.FACTS) == set(VERBS)
    assert "| 143 | ended by SIGTERM |" in commands["train"]


def test_the_guides_list_every_method(makers: tuple[ModuleType, ...]) -> None:
    """After a change of a method: python docs/make_guide_tables.py"""
    maker = makers[3]
    for kind, text in maker.tables().items():
        assert maker.written(kind) == text, maker.GUIDES[kind]


def test_links_of_the_pages_lead_somewhere(algorithms: Pages, commands: Pages) -> None:
    for kind, pages in (("algorithms", algorithms), ("commands", commands)):
        for name, page in pages.items():
            for target in re.findall(r"\]\(([\w./-]+\.md)\)", page):
                place = (ROOT / "docs/_generated" / kind / target).resolve().relative_to(ROOT / "docs")
                if place.parts[0] != "_generated":
                    assert (ROOT / "docs" / place).exists(), (name, target)
                elif len(place.parts) == 3:
                    assert place.stem in (algorithms if place.parts[1] == "algorithms" else commands), (name, target)


def test_a_page_that_is_gone_is_removed_and_one_that_is_the_same_is_not_written(
    makers: tuple[ModuleType, ...], tmp_path: Path
) -> None:
    makers[2].write_pages(tmp_path, {"a": "# A", "b": "# B"})
    before = (tmp_path / "a.md").stat().st_mtime_ns
    makers[2].write_pages(tmp_path, {"a": "# A", "c": "# C"})
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.md", "c.md"]
    assert (tmp_path / "a.md").stat().st_mtime_ns == before
