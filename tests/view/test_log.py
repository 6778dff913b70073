"""Reading the log: torn ends, bad lines, replaced files, and errors that say what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from legos_train.cli.main import main
from legos_train.observe.browser.entries import evaluation_lines
from legos_train.observe.viewer import LOG, LogReader
from legos_train.observe.viewer.log import read_extras
from legos_train.observe.viewer.results import read_results
from tests.view.made import line_of, played, write_log


@pytest.fixture(scope="module")
def line() -> dict[str, Any]:
    return line_of(played("KuhnPoker-v0", [0])[0], 4)


def test_a_torn_last_line_waits_for_its_end(tmp_path: Path, line: dict[str, Any]) -> None:
    write_log(tmp_path, [line])
    reader = LogReader(tmp_path / LOG)
    with (tmp_path / LOG).open("a") as log:
        text = json.dumps(line | {"step": 9})
        log.write(text[:50])
        log.flush()
        assert [one.number for one in reader.read()] == [1]
        assert reader.read() == []
        log.write(text[50:] + "\n")
    (added,) = reader.read()
    assert (added.number, added.data["step"]) == (2, 9)
    assert reader.read() == [] and reader.bad == [] and reader.generation == 0


def test_a_replaced_or_shortened_log_is_read_from_its_start(tmp_path: Path, line: dict[str, Any]) -> None:
    write_log(tmp_path, [line, line | {"step": 5}, line | {"step": 6}])
    reader = LogReader(tmp_path / LOG)
    assert len(reader.read()) == 3
    write_log(tmp_path, [line, line | {"step": 5}])  # a resumed run dropped the last
    assert [one.number for one in reader.read()] == [1, 2] and reader.generation == 1
    write_log(tmp_path, [line | {"step": 70}, line | {"step": 5000}, line])  # another run, and a longer file
    assert [one.data["step"] for one in reader.read()] == [70, 5000, 4] and reader.generation == 2


def test_lines_that_cannot_be_used_are_counted_with_their_reason(tmp_path: Path, line: dict[str, Any]) -> None:
    broken = [
        "{",
        "[]",
        '{"episode": {"trajectories": []}}',
        '{"episode": {"trajectories": [{"agent": 3}]}}',
        '{"episode": {"trajectories": [{"agent": "a", "turns": [{"action": 1}]}]}}',
        '{"episode": {"trajectories": [{"agent": "a", "turns": [{"action": "", "observation": ["x"]}]}]}}',
        json.dumps(line | {"players": ["policy"]}),
    ]
    (tmp_path / LOG).write_text("\n".join([json.dumps(line), *broken, "", json.dumps(line)]) + "\n")
    reader = LogReader(tmp_path / LOG)
    assert [one.number for one in reader.read()] == [1, 10]
    assert [number for number, _ in reader.bad] == [2, 3, 4, 5, 6, 7, 8]
    assert reader.bad[-1][1] == "players is not a table by agent"


def test_only_the_newest_are_parsed(tmp_path: Path, line: dict[str, Any]) -> None:
    write_log(tmp_path, [line | {"step": n} for n in range(10)])
    reader = LogReader(tmp_path / LOG)
    assert [one.data["step"] for one in reader.read(3)] == [7, 8, 9] and reader.count == 10


def test_metrics_and_settings_beside_the_log(tmp_path: Path) -> None:
    assert read_extras(tmp_path, {1}) == ("", {}, 0)
    (tmp_path / "config.toml").write_text("steps = 3\n")
    (tmp_path / "metrics.jsonl").write_text(
        '{"step": 1, "a": 1}\n{"step": 1, "b": 2}\n{"step": 2, "episodes": 8}\n{"step": 1, "a"'
    )
    assert read_extras(tmp_path, {1}) == ("steps = 3\n", {"1": {"step": 1, "a": 1, "b": 2}}, 8)


def test_errors_say_what_to_do(tmp_path: Path, line: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    def told(*arguments: str) -> str:
        assert main(["view", *arguments, "--no-open"]) == 1
        return capsys.readouterr().err

    assert "does not exist. Runs are kept below runs/" in told(str(tmp_path / "nowhere"))
    write_log(tmp_path / "runs/one", [line])
    assert "is a file; give its folder" in told(str(tmp_path / "runs/one" / LOG))
    assert f"There is one in {tmp_path / 'runs/one'}." in told(str(tmp_path / "runs"), "--terminal")
    assert "`legos train` writes it" in told(str(tmp_path), "--terminal")
    write_log(tmp_path / "empty", [])
    assert "has no finished episode yet" in told(str(tmp_path / "empty"))
    (tmp_path / "empty" / LOG).write_text("nonsense\n")
    assert "no readable episode; line 1: not JSON" in told(str(tmp_path / "empty"))
    assert "no episode 7; this log has 1 to 1" in told(str(tmp_path / "runs/one"), "--terminal", "--episode=7")
    for wrong in (["--last=-1"], ["--terminal", "--watch"], ["--episode=3"], ["--port=70000"]):
        with pytest.raises(SystemExit) as raised:
            main(["view", str(tmp_path), *wrong])
        assert raised.value.code == 2


def test_who_plays_alone_wins_and_loses_against_nobody(tmp_path: Path) -> None:
    assert main(["eval", "Dataset-v0", "-m", "random", "-n", "4", "--out", str(tmp_path)]) == 0
    found = read_results(tmp_path)
    assert found is not None
    (row,) = found["rows"]
    assert (row["opponent"], row["win"], row["draw"], row["loss"]) == (None, None, None, None)
    assert row["success"] == json.loads((tmp_path / "results.json").read_text())["results"][0]["win"]
    (line,) = evaluation_lines(tmp_path)
    assert line["numbers"]["success"] == row["success"] and not {"win", "draw", "loss"} & set(line["numbers"])


def test_results_beside_the_log_are_read_whatever_they_are(tmp_path: Path) -> None:
    assert read_results(tmp_path) is None
    for text in ('{"results": [', "[]", "7"):
        (tmp_path / "results.json").write_text(text)
        assert read_results(tmp_path) is None
    (tmp_path / "results.json").write_text(
        '{"rows": [{"env": "E", "extra": 1}, 3], "ratings": {"a": {"elo": 5}, "b": 1}}'
    )
    found = read_results(tmp_path)
    assert found is not None and [row["env"] for row in found["rows"]] == ["E"] and "extra" not in found["rows"][0]
    assert [(one["name"], one["elo"], one["games"]) for one in found["ratings"]] == [("a", 5, None)]
