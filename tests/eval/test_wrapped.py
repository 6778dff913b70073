"""Environments in a wrapper that changes rewards or players: nothing of the bare game is said about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from legos_envs.testing.gameability import attack
from legos_train.cli.main import main

RULES = """
from legos_envs import Rubric, make, register
from legos_envs.wrappers import FillSeats, RubricReward, TurnLimit


def brief(text):
    return float("check" in text or "fold" in text)


register("Brief-v0", lambda **k: RubricReward(make("KuhnPoker-v0", **k), Rubric([brief]), mode="replace"))
register("Filled-v0", lambda **k: FillSeats(make("KuhnPoker-v0", **k), {"player_1": "optimal"}))
register("Short-v0", lambda **k: TurnLimit(make("KuhnPoker-v0", **k), turns=1))
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "wrapped.py").write_text(RULES)
    return tmp_path / "wrapped.py"


@pytest.mark.parametrize(("name", "competitive"), [("Brief", False), ("Filled", False), ("Short", True)])
def test_numbers_are_those_of_the_games_played(
    name: str, competitive: bool, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env, out = f"{file}:{name}-v0", tmp_path / "e"
    assert main(["eval", env, "-m", "random", "--opponent", "optimal", "-n", "8", "--out", str(out), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)["results"][0]
    assert "exact" not in found and found["competitive"] is competitive
    games = [json.loads(line) for line in (out / "rollouts.jsonl").read_text().splitlines()]
    assert len(games) == 8 and not any(game.get("exact") for game in games)
    assert main(["exploit", env, "-m", "random"]) == 1
    assert "a wrapper around it" in capsys.readouterr().err


def test_its_page_is_not_that_of_the_env_inside(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("Brief", "Filled"):
        (table,) = attack(f"{file}:{name}-v0", episodes=1).tables
        assert table.floors is None, "the claims are those of KuhnPoker-v0"
    assert main(["envs", "show", f"{file}:Brief-v0"]) == 0
    assert "In RubricReward, which may change rewards and players." in capsys.readouterr().out
