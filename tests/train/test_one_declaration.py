"""A new method is one class or one table row in one file: settings, help, docs and a training run find it there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

CREDIT = '''
"""Credit by a coin."""

import numpy as np

from legos_train.credit.assigner import Stateless, method, trained


@method
class CoinCredit(Stateless):
    r"""Heads for every first seat, tails for the others.

    $$A = 1$$

    When: never.

    When not: ever.

    Source: this test.
    """

    name = "coin"

    def assign(self, episodes):
        return [{t.agent: np.full(len(t.turns), 1.0 - 2.0 * i) for i, t in enumerate(trained(e))} for e in episodes]
'''
LOSS = """
from legos_train.loss.tokens import loss


@loss()
def plain(new, advantages):
    \"\"\"Log-likelihood times advantage.

    When: never.

    When not: ever.

    Source: this test.
    \"\"\"
    return -new * advantages
"""
GAME = '''
from legos_envs import Seat, TextEnv, register


class Echo(TextEnv):
    """Say yes."""

    name = "Echo-v0"
    seats = {"solo_0": Seat("solo")}

    def play(self, table):
        answer = yield from table.ask("solo_0", "Say yes or no.", legal=("yes", "no"))
        table.reward("solo_0", 1.0 if answer == "yes" else 0.0)


register("Echo-v0", Echo, family="Working together")
'''


def declared(before: str, tmp_path: Path, *commands: tuple[str, ...], page: str) -> list[Any]:
    """What `legos` prints for commands in a fresh process that declares something first, and the docs' page."""
    code = f"""
import contextlib, io, json, sys
sys.path.insert(0, "docs")
{before}
from legos_train.cli.main import main

said = []
for words in {list(commands)!r}:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code
    assert code in (None, 0, 3), (words, out.getvalue())  # 3: two steps may learn nothing
    said.append(out.getvalue())
{page}
print(json.dumps(said))
"""
    path = os.pathsep.join(map(str, [tmp_path, ROOT]))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, cwd=ROOT
    )
    assert not done.returncode, done.stderr[-3000:]
    result: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return result


TWO_STEPS = ("--steps", "2", "--batch-size", "4", "--lora.rank", "4", "--eval.every", "0", "--eval.games", "2")
PAGES = """
import make_algorithm_pages, make_env_pages

said += [[one.name for one in make_algorithm_pages.algorithms()], make_env_pages.table()]
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """The folder of a run, and what `legos` and the docs say, in one process that declares all three."""
    folder = tmp_path_factory.mktemp("declared")
    (folder / "coin.py").write_text(CREDIT)
    (folder / "echo_game.py").write_text(GAME)
    before = f"import legos_train.credit as room; room.__path__.append({str(folder)!r})\n{LOSS}\nimport echo_game"
    chosen = ("--credit.name", "coin", "--loss.name", "plain")
    commands = [
        ("train", "--help"),
        ("envs", "list"),
        ("envs", "show", "Echo-v0"),
        ("train", "--env", "echo_game:Echo-v0", *chosen, *TWO_STEPS, "--run-dir", str(folder / "run")),
    ]
    return folder, declared(before, folder, *commands, page=PAGES)


@pytest.mark.parametrize(("setting", "name"), [("credit", "coin"), ("loss", "plain")])
def test_a_method_is_one_declaration_in_one_file(found: tuple[Path, list[Any]], setting: str, name: str) -> None:
    """A credit method is a class, a loss a function."""
    folder, (usage, *_, algorithms, _) = found
    choices = usage.partition(f"--{setting}.name {{")[2].partition("}")[0]
    assert name in choices and name in algorithms
    settings = tomllib.loads((folder / "run/config.toml").read_text())
    assert settings[setting]["name"] == name and (folder / "run/metrics.jsonl").stat().st_size


def test_the_help_of_train_says_what_each_section_is_about(found: tuple[Path, list[Any]]) -> None:
    """tyro takes it from what makes a section, which was pydantic's `model_construct`."""
    usage = found[1][0]
    assert "Creates a new" not in usage and "pydantic" not in usage
    for words in ("Which episodes are trained on.", "The objective at every sampled token.", "LoRA (arXiv 2106.09685)"):
        assert words in usage


def test_the_help_of_train_breaks_lines_only_where_the_terminal_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """tyro keeps the line breaks of docstrings, which fell into the middle of sentences."""
    from legos_train.cli import train

    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit):
        train.run(["--help"])
    lines = [line.strip("│| ") for line in capsys.readouterr().out.partition("sampling options")[2].splitlines()]
    pairs = [(line, after) for line, after in pairwise(lines) if "--" not in line[:2] + after[:2]]
    pairs = [(line, after) for line, after in pairs if line[:1].isalnum() and after[:1].isalnum() and line[-1] != "}"]
    assert len(pairs) > 40
    assert not [pair for pair in pairs if len(pair[0]) + 1 + len(pair[1].split()[0]) < 100 - 20]


def test_a_game_is_one_class_in_one_file(found: tuple[Path, list[Any]]) -> None:
    folder, (_, listed, shown, *_, guide) = found
    assert "Echo-v0" in listed and "Say yes" in shown and "Echo-v0" in guide
    assert len((folder / "run/metrics.jsonl").read_text().splitlines()) == 2


def test_unknown_names_are_refused_with_the_names_there_are() -> None:
    from legos_train import ConfigError
    from legos_train.config import from_dict

    for setting, name in (("credit", "rea"), ("loss", "pp0")):
        with pytest.raises(ConfigError, match=f"{setting}.name"):
            from_dict({setting: {"name": name}})
