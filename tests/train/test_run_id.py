"""A run is one run: its id is in everything it writes, and nothing of another run is taken for its own."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from legos_train import Actor, Arena, Result, train
from legos_train.cli.main import main
from legos_train.disk import MetricsFile, checkpoint
from legos_train.errors import RunError
from legos_train.observe import read_run
from tests.train.helpers import small

GAMES: dict[str, Any] = {"batch_size": 4, "checkpoint": {"every": 1}, "logs": {"rollouts": 0}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`one` and `other`, two runs with the same settings."""
    root = tmp_path_factory.mktemp("runs")
    for name in ("one", "other"):
        train(small(root / name, **GAMES), quiet=True)
    return root


@pytest.fixture
def one(runs: Path, tmp_path: Path) -> Path:
    shutil.copytree(runs / "one", tmp_path / "one")
    return tmp_path / "one"


def id_of(run: Path) -> str:
    return json.loads((run / "run.json").read_text())["id"]


def go_on(run: Path, steps: int = 3) -> Result:
    return train(small(run, steps=steps, **GAMES), resume=True, quiet=True)


def test_everything_of_a_run_has_its_id_and_a_resume_keeps_it(runs: Path, one: Path) -> None:
    own = id_of(one)
    assert re.fullmatch("[0-9a-f]{12}", own) and own != id_of(runs / "other")
    go_on(one)
    assert id_of(one) == own
    assert [row["run"] for row in MetricsFile.read(one / "metrics.jsonl")] == [own] * 3
    manifests = [json.loads(file.read_text()) for file in one.glob("checkpoints/step_*/manifest.json")]
    assert [manifest["run"] for manifest in manifests] == [own] * 2
    for name in ("adapter", "last", "average", "best"):
        assert json.loads((one / name / "adapter_config.json").read_text())["legos"]["run"] == own


def test_checkpoints_and_rows_of_another_run_are_refused(runs: Path, one: Path) -> None:
    theirs, before = runs / "other", (one / "metrics.jsonl").read_bytes()
    shutil.copytree(theirs / "checkpoints" / "step_2", one / "checkpoints" / "step_3")
    manifest = one / "checkpoints" / "step_3" / "manifest.json"
    content = json.loads(manifest.read_text()) | {"step": 3}
    content["sha256"] = checkpoint._seal({key: value for key, value in content.items() if key != "sha256"})
    manifest.write_bytes(checkpoint._render(content))
    with pytest.raises(RunError, match=f"step_3' is from another run .{id_of(theirs)}; this one is {id_of(one)}"):
        go_on(one, steps=4)
    assert (one / "metrics.jsonl").read_bytes() == before
    shutil.rmtree(one / "checkpoints" / "step_3")
    shutil.copy(theirs / "metrics.jsonl", one / "metrics.jsonl")
    with pytest.raises(RunError, match=f"rows of another run .{id_of(theirs)}"):
        go_on(one)
    assert (one / "metrics.jsonl").read_bytes() == (theirs / "metrics.jsonl").read_bytes()


def test_a_start_over_what_another_run_left_is_refused(one: Path) -> None:
    seen = sorted(one.rglob("*"))
    with pytest.raises(RunError, match="already holds a run; --resume continues it, or give another --run-dir"):
        train(small(one, **GAMES), quiet=True)
    (one / "config.toml").unlink()
    for resume in (False, True):
        with pytest.raises(RunError, match=r"has checkpoints .*config\.toml"):
            train(small(one, **GAMES), quiet=True, resume=resume)
    assert sorted(one.rglob("*")) == [path for path in seen if path.name != "config.toml"]


@pytest.mark.slow
def test_a_run_of_an_earlier_version_gets_an_id(one: Path) -> None:
    (one / "run.json").unlink()
    for file in one.glob("checkpoints/step_*/manifest.json"):
        content = json.loads(file.read_text())
        del content["run"], content["sha256"]
        file.write_bytes(checkpoint._render(content | {"sha256": checkpoint._seal(content)}))
    rows = [json.loads(line) for line in (one / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        del row["run"]
    (one / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    go_on(one)
    assert [row.get("run") for row in MetricsFile.read(one / "metrics.jsonl")] == [None, None, id_of(one)]


def test_a_run_that_lost_files_goes_on_under_its_id_and_says_what_is_gone(
    one: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = id_of(one)
    (one / "run.json").unlink()
    rows = (one / "metrics.jsonl").read_text().splitlines(keepends=True)
    (one / "metrics.jsonl").write_text("".join(rows[:-1]) + rows[-1][:20])
    result = go_on(one)
    assert id_of(one) == own and {row["run"] for row in MetricsFile.read(one / "metrics.jsonl")} == {own}
    assert f"no rows of 1 of the {len(rows)} steps before the checkpoint" in capsys.readouterr().err
    assert result.updates is None, "not all are counted"


def test_resuming_where_no_run_is_names_the_nearest(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--resume", "--run-dir", str(runs / "ome"), "--steps", "2"]) == 1
    assert f"it has no run; the nearest is --run-dir {runs / 'one'}" in capsys.readouterr().err
    assert sorted(path.name for path in runs.iterdir()) == ["one", "other"], "a typo must not start a run"


def test_small_files_that_are_no_such_files_are_named(one: Path) -> None:
    for name, content, message in (
        ("run.json", '{"id": "me"}', "twelve hexadecimal digits; got 'me'"),
        ("run.json", "[]", r"run\.json' cannot be read: it holds a list"),
        ("result.json", "", r"result\.json' cannot be read"),
        ("result.json", '{"steps": "two", "seconds": 1}', "its steps are 'two'"),
        ("result.json", '{"stepz": 2}', r"result\.json' is not a run's result"),
        ("start.json", "{", r"start\.json' cannot be read: .*Remove it"),
        ("start.json", '{"nash_conv": "low"}', "must hold numbers, got"),
    ):
        kept = (one / name).read_bytes()
        (one / name).write_text(content)
        with pytest.raises(RunError, match=message):
            go_on(one)
        if name != "run.json" and content in ("", "{"):
            with pytest.raises(RunError, match=message):
                read_run(one)
        (one / name).write_bytes(kept)
    for name in ("start.json", "result.json"):
        (one / name).unlink(missing_ok=True)
    go_on(one)  # as the messages say


def test_a_run_with_actors_made_in_python_is_resumed_with_them_only(runs: Path, tmp_path: Path) -> None:
    """From the command line it went on with other opponents and other prompts, without a word."""

    def arena(model: str = "random", **settings: Any) -> Arena:
        made = Arena()
        made.add_env("KuhnPoker-v0")
        made.add_actor(Actor("player_1", model=model, **settings))
        return made

    run = tmp_path / "run"
    train(arena(), small(run, steps=1, **GAMES), quiet=True)
    for other in (None, arena("optimal"), arena(system_prompt="Bluff."), arena(temperature=0.5)):
        with pytest.raises(RunError, match=r"an arena of its own \(actor player_1=random\).*with the same arena"):
            train(other, small(run, steps=2, **GAMES), quiet=True, resume=True)
    again = arena()
    assert train(again, small(run, steps=2, **GAMES), quiet=True, resume=True).steps == 2
    assert train(again, small(run, steps=3, **GAMES), quiet=True, resume=True).steps == 3
    with pytest.raises(RunError, match="started with nothing but a config, and is resumed with actor player_1=random"):
        train(arena(), small(runs / "other", steps=3, **GAMES), quiet=True, resume=True)
