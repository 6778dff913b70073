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

    Args:
        bias: added to both sides.
        tails: first seats get tails.
    """

    name = "coin"

    def __init__(self, bias: float = 0.5, tails: bool = False) -> None:
        self.first, self.bias = -1.0 if tails else 1.0, bias

    def side(self, seat):
        return self.first * (1.0 - 2.0 * seat) + self.bias

    def assign(self, episodes):
        return [{t.agent: np.full(len(t.turns), self.side(i)) for i, t in enumerate(trained(e))} for e in episodes]
'''
LOSS = """
from typing import Annotated

from pydantic import Field

from legos_train.loss.token_loss import loss

pushes = set()


@loss()
def plain(new, advantages, push: Annotated[float, Field(gt=0, le=9)] = 1.0):
    \"\"\"Log-likelihood times advantage.

    When: never.

    When not: ever.

    Source: this test.

    Args:
        push: factor on
            the advantage.
    \"\"\"
    pushes.add(push)
    return -push * new * advantages
"""
RENDERER = """
import inference.text.templates as templates

templates.RENDERERS["terse"] = templates.NamedTemplate(
    "{% for message in messages %}{{ message.role[0] + ' ' + message.content + eos_token + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'a ' }}{% endif %}",
    (),
)
"""
LEAGUE = """
from legos_train.league.modes import mode


@mode("its oldest version only")
def oldest(population):
    \"\"\"The first of the pool.

    When: never.

    When not: ever.

    Source: this test.
    \"\"\"
    shares = {name: float(not at) for at, name in enumerate(population.members)}
    return shares, shares
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
LEAGUE_OPTIONS = ("--league.mode", "oldest", "--league.snapshot-every", "1", "--league.latest", "0")
PAGES = """
import make_algorithm_pages, make_cli_pages, make_env_pages, make_guide_tables

new = ("coin", "plain", "oldest")
said.append([make_cli_pages.page(verb) for verb in ("train", "eval")])
said.append({one.name: make_algorithm_pages.page(one) for one in make_algorithm_pages.algorithms() if one.name in new})
said[-1]["pushes"] = sorted(pushes)
said.append(make_env_pages.table() + "".join(make_guide_tables.tables().values()))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """The folder of a run, and what `legos` and the docs say, in one process that declares all of them."""
    folder = tmp_path_factory.mktemp("declared")
    (folder / "coin.py").write_text(CREDIT)
    (folder / "echo_game.py").write_text(GAME)
    before = f"import legos_train.credit as room; room.__path__.append({str(folder)!r})"
    before = "\n".join([before, LOSS, RENDERER, LEAGUE, "import echo_game"])
    (folder / "coin.toml").write_text('[credit]\nname = "coin"\nbias = 0.25\n')
    chosen = (
        "--config",
        str(folder / "coin.toml"),
        "--credit.tails",
        "--loss.name",
        "plain",
        "--loss.push",
        "3",
        "--renderer",
        "terse",
        *LEAGUE_OPTIONS,
    )
    commands = [
        ("train", "--help"),
        ("eval", "--help"),
        ("envs", "list"),
        ("envs", "show", "Echo-v0"),
        (
            "train",
            "--env",
            "echo_game:Echo-v0",
            "--env",
            "Nim-v0",
            *chosen,
            *TWO_STEPS,
            "--run-dir",
            str(folder / "run"),
        ),
    ]
    return folder, declared(before, folder, *commands, page=PAGES)


@pytest.mark.parametrize(("setting", "name"), [("credit", "coin"), ("loss", "plain")])
def test_a_method_is_one_declaration_in_one_file(found: tuple[Path, list[Any]], setting: str, name: str) -> None:
    """A credit method is a class, a loss a function."""
    folder, (usage, *_, pages, _) = found
    choices = usage.partition(f"--{setting}.name {{")[2].partition("}")[0]
    assert name in choices
    assert f"legos train --{setting}.name {name}" in pages[name] and "## An example" in pages[name]
    settings = tomllib.loads((folder / "run/config.toml").read_text())
    assert settings[setting]["name"] == name and (folder / "run/metrics.jsonl").stat().st_size


def test_an_option_of_a_credit_method_is_an_argument_of_its_class(found: tuple[Path, list[Any]]) -> None:
    """A key in files, a flag, and a row of its page."""
    folder, (usage, *_, pages, _) = found
    settings = tomllib.loads((folder / "run/config.toml").read_text())["credit"]
    assert (settings["bias"], settings["tails"]) == (0.25, True)
    assert "--credit.bias FLOAT" in usage and "`coin`: added to both sides. (default: 0.5)" in usage
    assert "| `--credit.tails` | `true` or `false` | `false` | `coin`: first seats get tails. |" in pages["coin"]


def test_an_option_of_a_loss_is_an_argument_of_its_function(found: tuple[Path, list[Any]]) -> None:
    folder, (usage, *_, pages, _) = found
    assert tomllib.loads((folder / "run/config.toml").read_text())["loss"]["push"] == 3.0
    assert "--loss.push FLOAT" in usage and "`plain`: factor on the advantage. (default: 1.0)" in usage
    meaning = "`plain`: factor on the advantage."
    assert f"| `--loss.push` | number, above 0, at most 9 | `1.0` | {meaning} |" in pages["plain"]
    assert pages["pushes"] == [1.0, 3.0]  # of the page's example, and of the run


def test_a_league_rule_is_one_function_in_one_file(found: tuple[Path, list[Any]]) -> None:
    folder, (usage, *_, pages, _) = found
    assert "`oldest`: its oldest version only" in " ".join(usage.replace("│", " ").split())
    page = pages["oldest"]
    assert "legos train --league.mode oldest" in page and "`--league.snapshot-every`" in page
    assert "| `step_0` | 1.00 |" in page and "| `step_10` | 0.00 |" in page
    rows = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["league"]["members"] == 3  # of steps 0, 1 and 2
    assert tomllib.loads((folder / "run/config.toml").read_text())["league"]["mode"] == "oldest"


def test_a_chat_renderer_is_one_row_in_one_file(found: tuple[Path, list[Any]]) -> None:
    folder, (*usages, _, _, _, pages, _, _) = found
    assert len(usages) == len(pages) == 2 and all("terse" in text for text in [*usages, *pages])
    assert tomllib.loads((folder / "run/config.toml").read_text())["renderer"] == "terse"


def test_the_help_of_train_says_what_each_section_is_about(found: tuple[Path, list[Any]]) -> None:
    usage = found[1][0]
    assert "Creates a new" not in usage and "pydantic" not in usage
    for words in ("Which episodes are trained on.", "The objective at every sampled token.", "LoRA (arXiv 2106.09685)"):
        assert words in usage


def test_the_help_of_train_breaks_lines_only_where_the_terminal_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line breaks of docstrings would fall into the middle of sentences."""
    from legos_train.cli import train

    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit):
        train.run(["--help"])
    lines = [line.strip("│| ") for line in capsys.readouterr().out.partition("sampling options")[2].splitlines()]
    pairs = [(line, after) for line, after in pairwise(lines) if "--" not in line[:2] + after[:2]]
    pairs = [(line, after) for line, after in pairs if line[:1].isalnum() and after[:1].isalnum()]
    pairs = [(line, after) for line, after in pairs if not line.endswith(("}", " options:"))]
    assert len(pairs) > 40
    assert not [pair for pair in pairs if len(pair[0]) + 1 + len(pair[1].split()[0]) < 100 - 20]


def test_a_game_is_one_class_in_one_file(found: tuple[Path, list[Any]]) -> None:
    folder, (_, _, listed, shown, *_, guide) = found
    assert "Echo-v0" in listed and "Say yes" in shown
    assert all(f"| [`{name}`](" in guide for name in ("Echo-v0", "coin", "plain", "oldest"))
    assert len((folder / "run/metrics.jsonl").read_text().splitlines()) == 2


def test_unknown_names_are_refused_with_the_names_there_are() -> None:
    from legos_train import ConfigError
    from legos_train.config import from_dict

    for setting, name in (("credit", "rea"), ("loss", "pp0")):
        with pytest.raises(ConfigError, match=f"{setting}.name"):
            from_dict({setting: {"name": name}})
