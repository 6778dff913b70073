"""Trackers get every number of every step, stay on this machine, and are imported only when asked for."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from legos_train import train
from legos_train.cli import train as cli_train
from legos_train.cli.setting_flags import given
from legos_train.config.sections import LogSettings
from legos_train.errors import RunError
from legos_train.observe.report.trackers import COLUMNS, TRACKERS, episode_rows, flatten
from tests.train.helpers import small

HAVE = {name: importlib.util.find_spec(name) is not None for name in ("wandb", "tensorboardX", "trackio")}


def test_every_tracker_of_the_settings_can_be_opened() -> None:
    """Those that take a project's name are options of `legos train` too."""
    assert {name for name, field in LogSettings.model_fields.items() if field.title} == set(TRACKERS)
    assert set(cli_train.PROJECTS) == {"wandb", "trackio"}
    assert given(cli_train.make_parser().parse_args(["--wandb", "mine"])) == {"--logs.wandb": "mine"}


def test_nested_numbers_become_flat() -> None:
    record = {"step": 3, "reward": {"a/b": 0.5}, "eval": {"nash_conv": 0.1}, "outcomes": {"ended": 4}, "text": "x"}
    expected = {"step": 3.0, "reward/a/b": 0.5, "eval/nash_conv": 0.1, "outcomes/ended": 4.0}
    assert flatten(record) == expected


def test_sample_episodes_are_rows_of_a_table(tmp_path: Path) -> None:
    turn = {"observation": [{"role": "user", "content": "Your card: K"}], "action": "[bet]", "reward": 1.0}
    episode = {"seed": 7, "trajectories": [{"agent": "player_0", "turns": [turn]}]}
    line = {
        "step": 3,
        "env": "E",
        "players": {"player_0": "policy"},
        "outcome": {"player_0": "win"},
        "episode": episode,
    }
    (tmp_path / "rollouts.jsonl").write_text(json.dumps(line) + "\n")
    (row,) = episode_rows(tmp_path)
    assert dict(zip(COLUMNS, row)) == {
        "step": 3, "game": 0, "env": "E", "seed": 7, "agent": "player_0", "player": "policy", "told": "Your card: K",
        "action": "[bet]", "reward": 1.0, "outcome": "win",
    }  # fmt: skip
    assert episode_rows(tmp_path / "none") == []


@pytest.mark.slow
@pytest.mark.skipif(not HAVE["wandb"], reason="needs the extra wandb")
def test_wandb_offline_keeps_the_run_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    train(config=small(tmp_path / "run", batch_size=8, logs={"wandb": "legos-test"}), quiet=True)
    (kept,) = (tmp_path / "run" / "wandb").glob("offline-run-*")
    assert list(kept.glob("*.wandb")), "nothing was logged"
    (table,) = (kept / "files/media/table").glob("sample_episodes*.json")
    episodes = json.loads(table.read_text())
    assert tuple(episodes["columns"]) == COLUMNS and "KuhnPoker-v0" in episodes["data"][0]
    assert {file.name.split("_")[0] for file in (kept / "files/media/html/figures").iterdir()} >= {"reward", "entropy"}
    assert not list((kept / "files").glob("**/*.py")), "code was captured"


def test_a_resumed_run_goes_on_in_its_wandb_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an id a second one began, and its first steps were there twice."""
    begun: list[dict[str, Any]] = []
    logged: list[int | None] = []
    ended: list[int] = []
    session = SimpleNamespace(
        log=lambda told, step=None: logged.append(step), finish=lambda exit_code: ended.append(exit_code)
    )
    fake = SimpleNamespace(
        init=lambda **given: begun.append(given) or session, Settings=dict, Table=lambda **given: None,
        Html=lambda *given, **more: None, errors=SimpleNamespace(Error=KeyError),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "wandb", fake)
    for steps in (1, 2):
        train(
            config=small(tmp_path / "run", steps=steps, batch_size=2, logs={"wandb": "p"}), resume=steps > 1, quiet=True
        )
    own = json.loads((tmp_path / "run/run.json").read_text())["id"]
    assert [(one["id"], one["resume"]) for one in begun] == [(own, "allow")] * 2
    assert ended == [0, 0] and logged == [1, 1, 2, 2], (
        "pictures under a step of their own would take that of the resumed run's first row"
    )


def test_a_tracker_that_cannot_start_leaves_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(Exception):
        pass

    def init(**given: Any) -> None:
        raise Refused("No API key configured.")

    fake = SimpleNamespace(init=init, Settings=dict, errors=SimpleNamespace(Error=Refused))
    monkeypatch.setitem(sys.modules, "wandb", fake)
    settings = small(tmp_path / "run", steps=1, batch_size=2, logs={"wandb": "p"})
    evaluated: list[Any] = []  # which may take long with a real model
    monkeypatch.setattr("legos_train.run.loop._first_numbers", lambda *a: evaluated.append(a) or {})
    with pytest.raises(RunError, match="No API key configured; with WANDB_MODE=offline"):
        train(config=settings, quiet=True)
    assert not evaluated
    monkeypatch.undo()
    assert train(config=small(tmp_path / "run", steps=1, batch_size=2), quiet=True).steps == 1


def test_a_resumed_run_takes_back_the_curves_of_the_steps_that_it_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Any] = []
    writer = SimpleNamespace(add_scalar=lambda *told: None, close=lambda: None)
    fake = SimpleNamespace(SummaryWriter=lambda path, purge_step: begun.append(purge_step) or writer)
    monkeypatch.setitem(sys.modules, "tensorboardX", fake)
    for steps in (1, 2):
        changes = {"steps": steps, "batch_size": 2, "logs": {"tensorboard": True}, "checkpoint": {"every": 1}}
        train(config=small(tmp_path / "run", **changes), resume=steps > 1, quiet=True)
    assert begun == [None, 2]


class Stub:
    """Trackio's functions; `broken` names the one that fails."""

    def __init__(self, broken: str = "") -> None:
        self.broken, self.calls = broken, []  # type: ignore[var-annotated]

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any, **named: Any) -> None:
            print("* Trackio says something")
            self.calls.append((name, named.get("name"), named.get("step")))
            if name == self.broken:
                raise ConnectionResetError("Connection lost")

        return call


@pytest.mark.slow
def test_trackio_gets_the_steps_of_one_run_and_prints_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "trackio", stub := Stub())
    for steps in (1, 2):
        train(small(tmp_path / "run", steps=steps, batch_size=2, logs={"trackio": "p"}), resume=steps > 1, quiet=True)
    name = f"run-{json.loads((tmp_path / 'run/run.json').read_text())['id']}"
    once = [("init", name, None), ("log", None, 1), ("finish", None, None)]
    assert stub.calls == [*once, ("init", name, None), ("log", None, 2), ("finish", None, None)]
    assert capsys.readouterr().out == ""


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["log", "finish"])
def test_a_tracker_that_fails_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], broken: str
) -> None:
    """A finished training was left without an adapter, and could not be resumed without the tracker either."""
    monkeypatch.setitem(sys.modules, "trackio", stub := Stub(broken))
    logs = {"trackio": "p", "progress": "plain"}
    assert train(small(tmp_path / "run", steps=2, batch_size=2, logs=logs)).steps == 2
    assert "trackio failed and gets no more numbers: ConnectionResetError: Connection lost" in capsys.readouterr().out
    assert [call[0] for call in stub.calls] == (
        ["init", "log"] if broken == "log" else ["init", "log", "log", "finish"]
    )
    assert (tmp_path / "run/adapter").is_dir()
    monkeypatch.delitem(sys.modules, "trackio")
    assert train(small(tmp_path / "run", steps=3, batch_size=2), resume=True, quiet=True).steps == 3


def test_a_run_that_fails_is_not_shown_as_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    session = SimpleNamespace(log=lambda told, step=None: None, finish=lambda exit_code: ended.append(exit_code))
    fake = SimpleNamespace(
        init=lambda **given: session, Settings=dict, Table=lambda **given: None, Html=lambda *given, **more: None,
        errors=SimpleNamespace(Error=KeyError),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "wandb", fake)

    def interrupt(record: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config=small(tmp_path / "run", steps=2, batch_size=2, logs={"wandb": "p"}), quiet=True, on_step=interrupt)
    assert ended == [1]


@pytest.mark.skipif(not HAVE["tensorboardX"], reason="needs tensorboardX")
def test_tensorboard_writes_event_files(tmp_path: Path) -> None:
    train(config=small(tmp_path / "run", batch_size=8, logs={"tensorboard": True}), quiet=True)
    assert list((tmp_path / "run" / "tensorboard").glob("events.*"))


@pytest.mark.parametrize(("name", "logs"), [("wandb", {"wandb": "p"}), ("trackio", {"trackio": "p"})])
def test_what_is_not_installed_is_said(tmp_path: Path, name: str, logs: dict) -> None:
    if HAVE[name]:
        pytest.skip(f"{name} is installed")
    with pytest.raises(RunError, match=f"pip install .*{name}"):
        train(config=small(tmp_path / "run", batch_size=8, logs=logs), quiet=True)
