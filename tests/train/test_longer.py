"""A run that is asked for more steps is the longer run where no schedule goes over all steps; else it says so."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from legos_train import train
from legos_train.disk import MetricsFile
from legos_train.errors import RunError
from legos_train.run import same_run
from tests.train.helpers import digest, identify, small

GAMES: dict[str, Any] = {"batch_size": 2, "checkpoint": {"every": 1}, "logs": {"rollouts": 0, "progress": "plain"}}
WEIGHTS = "checkpoints/step_3/adapter.safetensors"


def rows(run: Path) -> list[dict[str, Any]]:
    return MetricsFile.read(run / "metrics.jsonl")


FLAT: dict[str, Any] = {"optim": {"lr_end": 1.0}, "loss": {"kl_end": None}}


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (FLAT, None),
        pytest.param({**FLAT, "optim": {"lr_end": 0.5}}, "optim.lr_end", marks=pytest.mark.slow),
        pytest.param(
            {**FLAT, "loss": {"kl": 0.1, "kl_end": 0.01}, "average": {"kind": "uniform"}},
            "loss.kl_end, average.start",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_more_steps(settings: Any, named: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("whole", "longer"):
        identify(tmp_path / name)
    train(small(tmp_path / "longer", steps=2, **GAMES, **settings), quiet=True)
    with pytest.raises(RunError, match="may only grow"):
        train(small(tmp_path / "longer", steps=1, **GAMES, **settings), resume=True, quiet=True)
    assert train(small(tmp_path / "longer", steps=3, **GAMES, **settings), resume=True).steps == 3
    assert [row["step"] for row in rows(tmp_path / "longer")] == [1, 2, 3]
    assert json.loads((tmp_path / "longer/result.json").read_text())["steps"] == 3
    assert "steps = 3" in (tmp_path / "longer/config.toml").read_text()
    said = "--steps was 2 and is 3: "
    out = capsys.readouterr().out
    assert (said + f"{named} span all steps" in out) if named else (said not in out)
    assert [row.get("steps_were") for row in rows(tmp_path / "longer")] == [None, None, 2 if named else None]
    if named:  # a run that is killed before its next checkpoint says so again
        shutil.rmtree(tmp_path / "longer/checkpoints/step_3")
        (tmp_path / "longer/result.json").unlink()
        train(small(tmp_path / "longer", steps=3, **GAMES, **settings), resume=True)
        assert said in capsys.readouterr().out and rows(tmp_path / "longer")[-1]["steps_were"] == 2
    if named in (None, "optim.lr_end"):
        train(small(tmp_path / "whole", steps=3, **GAMES, **settings), quiet=True)
        same = digest(tmp_path / "whole" / WEIGHTS) == digest(tmp_path / "longer" / WEIGHTS)
        assert same == (named is None)


def test_a_run_that_its_monitor_stopped_is_not_continued_by_more_steps(tmp_path: Path) -> None:
    """It said that nothing was left to do."""
    settings: dict[str, Any] = {**GAMES, "monitor": {"action": "stop", "entropy": 50.0, "patience": 1, "window": 1}}
    result = train(small(tmp_path / "run", steps=4, **settings), quiet=True)
    assert result.stopped and result.steps < 4
    assert train(small(tmp_path / "run", steps=4, **settings), resume=True, quiet=True).steps == result.steps
    with pytest.raises(RunError, match=rf"stopped itself at step {result.steps} .*--init-adapter"):
        train(small(tmp_path / "run", steps=6, **settings), resume=True, quiet=True)


def test_schedules_of_learners_are_said_too() -> None:
    pair = [{"name": "a", "roles": ["player_0"], "optim": {"lr_end": 0.1}}, {"name": "b", "roles": ["player_1"]}]
    assert same_run.schedules(small(learner=pair, **FLAT)) == ["optim.lr_end of a"]
    assert same_run.schedules(small(**FLAT)) == []


@pytest.mark.slow
def test_opponents_from_the_past_are_those_of_the_longer_run(tmp_path: Path) -> None:
    settings = {**GAMES, **FLAT, "env": "Debate-v0", "eval": {"every": 0, "games": 4}}
    train(small(tmp_path / "run", steps=4, **settings), quiet=True)
    result = train(small(tmp_path / "run", steps=8, **settings), resume=True, quiet=True)
    assert sorted(name for name in result.against if "step" in name and name.count("_") == 3) == [
        f"wins_vs_step_{step}" for step in (2, 4, 6)
    ]
