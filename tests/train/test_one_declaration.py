"""A new method is one class or one table row in one file: settings, help, docs and a training run find it there."""

from __future__ import annotations

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

DOCS = "import sys; sys.path.insert(0, 'docs')"
ALGORITHMS = f"{DOCS}; import make_algorithm_pages as m; print(*[a.name for a in m.algorithms()])"


def python(code: str, *extra_path: Path) -> str:
    """Runs code in a fresh process, in this checkout."""
    path = os.pathsep.join(map(str, [*extra_path, ROOT]))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, cwd=ROOT
    )
    assert not done.returncode, done.stderr[-3000:]
    return done.stdout


def legos(before: str, *arguments: str) -> str:
    """Runs the command line with something declared first."""
    return python(f"{before}\nfrom legos_train.cli.main import main\nraise SystemExit(main({list(arguments)!r}))")


TWO_STEPS = ("--steps", "2", "--batch-size", "16", "--lora.rank", "4", "--eval.every", "0", "--eval.games", "8")


@pytest.fixture
def credit_file(tmp_path: Path) -> str:
    (tmp_path / "coin.py").write_text(CREDIT)
    return f"import legos_train.credit as room; room.__path__.append({str(tmp_path)!r})"


def test_a_credit_method_is_one_class_in_one_file(credit_file: str, tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    assert "coin" in legos(credit_file, "train", "--help")
    legos(credit_file, "train", "--credit.name", "coin", *TWO_STEPS, "--run-dir", run)
    assert 'name = "coin"' in Path(run, "config.toml").read_text()
    assert "coin" in python(f"{credit_file}\n{ALGORITHMS}").split()


def test_a_loss_is_one_row_of_one_table(tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    assert "plain" in legos(LOSS, "train", "--help")
    legos(LOSS, "train", "--loss.name", "plain", *TWO_STEPS, "--run-dir", run)
    assert 'name = "plain"' in Path(run, "config.toml").read_text()
    assert "plain" in python(f"{LOSS}\n{ALGORITHMS}").split()


def test_a_game_is_one_class_in_one_file(tmp_path: Path) -> None:
    file = tmp_path / "echo_game.py"
    file.write_text(GAME)
    before = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import echo_game"
    assert "Echo-v0" in legos(before, "envs", "list")
    assert "Say yes" in legos(before, "envs", "show", "Echo-v0")
    page = "import sys; sys.path.insert(0, 'docs'); import make_env_pages as m; print(m.table())"
    assert "Echo-v0" in python(f"{before}\n{page}")
    legos("", "train", "--env", f"{file}:Echo-v0", *TWO_STEPS, "--run-dir", str(tmp_path / "run"))
    assert len(Path(tmp_path, "run/metrics.jsonl").read_text().splitlines()) == 2


def test_unknown_names_are_refused_with_the_names_there_are() -> None:
    from legos_train import ConfigError
    from legos_train.config import from_dict

    for setting, name in (("credit", "rea"), ("loss", "pp0")):
        with pytest.raises(ConfigError, match=f"{setting}.name"):
            from_dict({setting: {"name": name}})
