"""A new method is one class or one table row in one file: settings, help, docs and a training run find it there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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


def declared(before: str, tmp_path: Path, *commands: tuple[str, ...], page: str) -> list[str]:
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
    result: list[str] = json.loads(done.stdout.splitlines()[-1])
    return result


TWO_STEPS = ("--steps", "2", "--batch-size", "16", "--lora.rank", "4", "--eval.every", "0", "--eval.games", "8")


ALGORITHMS = "import make_algorithm_pages as pages; said.append([one.name for one in pages.algorithms()])"


def test_a_credit_method_is_one_class_in_one_file(tmp_path: Path) -> None:
    (tmp_path / "coin.py").write_text(CREDIT)
    before = f"import legos_train.credit as room; room.__path__.append({str(tmp_path)!r})"
    run = ("train", "--credit.name", "coin", *TWO_STEPS, "--run-dir", str(tmp_path / "run"))
    usage, _, pages = declared(before, tmp_path, ("train", "--help"), run, page=ALGORITHMS)
    assert "coin" in usage and "coin" in pages
    assert 'name = "coin"' in (tmp_path / "run/config.toml").read_text()


def test_a_loss_is_one_function_in_one_file(tmp_path: Path) -> None:
    run = ("train", "--loss.name", "plain", *TWO_STEPS, "--run-dir", str(tmp_path / "run"))
    usage, _, pages = declared(LOSS, tmp_path, ("train", "--help"), run, page=ALGORITHMS)
    assert "plain" in usage and "plain" in pages
    assert 'name = "plain"' in (tmp_path / "run/config.toml").read_text()


def test_a_game_is_one_class_in_one_file(tmp_path: Path) -> None:
    (tmp_path / "echo_game.py").write_text(GAME)
    run = ("train", "--env", "echo_game:Echo-v0", *TWO_STEPS, "--run-dir", str(tmp_path / "run"))
    commands = (("envs", "list"), ("envs", "show", "Echo-v0"), run)
    page = "import make_env_pages; said.append(make_env_pages.table())"
    listed, shown, _, guide = declared("import echo_game", tmp_path, *commands, page=page)
    assert "Echo-v0" in listed and "Say yes" in shown and "Echo-v0" in guide
    assert len((tmp_path / "run/metrics.jsonl").read_text().splitlines()) == 2


def test_unknown_names_are_refused_with_the_names_there_are() -> None:
    from legos_train import ConfigError
    from legos_train.config import from_dict

    for setting, name in (("credit", "rea"), ("loss", "pp0")):
        with pytest.raises(ConfigError, match=f"{setting}.name"):
            from_dict({setting: {"name": name}})
