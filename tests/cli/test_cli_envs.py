"""`legos envs`: the list, a page, the checks, a new environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import legos_envs
from legos_envs.testing import page
from legos_train.cli.main import main


def test_the_list_has_every_environment_and_is_quick() -> None:
    start = os.times()
    command = [sys.executable, "-m", "legos_train.cli.main", "envs", "list", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["id"] for row in rows] == [id for ids in legos_envs._BUILT_IN.values() for id in ids]
    for row in rows:
        assert row["seats"] and row["about"] and "cannot be created" not in row["about"], row
    end = os.times()
    spent = end.children_user + end.children_system - start.children_user - start.children_system
    assert spent < 2, "importing and making every environment takes too long"


def test_an_empty_namespace(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs", "list", "--namespace", "nobody"]) == 0
    assert "nothing is registered under the namespace 'nobody'" in capsys.readouterr().out


def test_another_namespace_is_listed_without_making_anything(capsys: pytest.CaptureFixture[str]) -> None:
    legos_envs.register("club/Slow-v0", "no_such_module:Slow")
    assert main(["envs", "list", "--namespace", "club"]) == 0
    assert capsys.readouterr().out == "club/Slow-v0\n"


def test_show_has_the_page_and_what_the_environment_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs", "show", "KuhnPoker-v0"]) == 0
    shown = capsys.readouterr().out
    assert page("KuhnPoker-v0").text in shown and "\x1b[" not in shown
    assert "  num_rounds = 1\n" in shown and "  max_turns = None\n" in shown
    assert "player_1: role player_1" in shown and "first observation of player_0, seed 0:" in shown


def test_show_renders_the_page_in_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["envs", "show", "KuhnPoker-v0"]) == 0
    shown = capsys.readouterr().out
    assert "KuhnPoker-v0" in shown and "```" not in shown and "| --- |" not in shown


@pytest.mark.parametrize("env_id", ["Dataset-v0", "GSM8K-v0", "EnsembleVote-v0", "SelfDistillation-v0"])
def test_problems_of_ones_own_are_checked_before_anything_is_played(
    env_id: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"q": "What is 1 + 1?", "a": "#### 2"}\n{"q": "What is 2 + 2?", "a": null}\n')
    fields = ["--arg", 'fields={"question": "q", "answer": "a"}', "--arg", f"source={file}"]
    for command in (["envs", "show", env_id], ["train", "--dry-run", "--env", env_id]):
        assert main([*command, *fields]) == 1
        said = capsys.readouterr().err
        assert f"1 of 2 rows do not fit: {file}, line 2: field 'a' must be text" in said and "Traceback" not in said
    with pytest.warns(UserWarning, match="skipped: 1 of 2 rows"):
        assert main(["envs", "show", env_id, *fields, "--arg", "bad_rows=skip"]) == 0
    assert "What is 1 + 1?" in capsys.readouterr().out


@pytest.mark.slow
def test_check_with_hostile_actions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs", "check", "Nim-v0", "--episodes", "5", "--fuzz", "100", "--arg", "memory=chat"]) == 0
    out = capsys.readouterr().out
    assert "Nim-v0: 0 failed" in out and "Nim-v0: 0 failures in" in out
    assert "Nim-v0: degenerate players, 20 episodes each: warning: no floor is stated" in out  # not with chat memory


BROKEN = '''"""An environment that breaks at a word."""
from legos_envs import Seat, TextEnv, register


class Broken(TextEnv):
    """Breaks."""

    name = "Broken-v0"
    seats = {"player_0": Seat("player")}

    def play(self, table):
        said = yield from table.ask("player_0", "Speak.")
        table.reward("player_0", 1.0 / (0 if "you won" in said else len(said)))


register("Broken-v0", Broken)
'''


@pytest.mark.slow
def test_check_fails_where_hostile_actions_break_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "broken.py"
    file.write_text(BROKEN)
    assert main(["envs", "check", f"{file}:Broken-v0", "--episodes", "20", "--fuzz", "300"]) == 1
    out = capsys.readouterr().out
    assert "Broken-v0: 0 failed" in out and "raised ZeroDivisionError" in out.partition("failures in")[2]
    assert main(["envs", "check", f"{file}:Broken-v0", "--episodes", "20", "--degenerate", "0"]) == 0


@pytest.mark.slow
def test_check_fails_where_a_degenerate_player_exceeds_the_floor(tmp_path: Path, capsys) -> None:
    table = "\n## Scripted players\n\n| players | return | arguments | floor |\n|---|---|---|---|\n"
    row = "| `*=random` | `player 0` | | `0` |\n"
    for name, paid, code in (("Sound", "the first", 0), ("Gamed", "agree", 1)):
        file = tmp_path / f"{name.casefold()}.py"
        text = BROKEN.replace("at a word.", f"at a word.\n{table}{row}").replace("Broken", name)
        file.write_text(text.replace('1.0 / (0 if "you won" in said else len(said))', f"float({paid!r} in said)"))
        assert main(["envs", "check", f"{file}:{name}-v0", "--episodes", "20"]) == code
        out = capsys.readouterr().out
        assert f"{name}-v0: 0 failed" in out and "the players of the row" in out
        assert ("FAIL  first as player earns +1.000, above the floor +0" in out) == bool(code)


def test_check_all_ends_with_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    ids = ["Nim-v0", "Missing-v0", "MatrixGame-v0"]
    legos_envs.register("Missing-v0", "legos_envs.no_such_module:Missing")
    monkeypatch.setattr(legos_envs, "registered", lambda: ids)
    assert main(["envs", "check", "--all", "--episodes", "5", "--fuzz", "20"]) == 1
    told = capsys.readouterr()
    assert "2/3 Missing-v0: FAIL" in told.err and "3/3 MatrixGame-v0: ok" in told.err
    lines = told.out.splitlines()
    assert lines[0].split()[-4:] == ["above", "floor", "hostile", "failed"] and lines[1].split()[-4:-2] == ["0", "0"]
    assert [line.split()[:2] for line in lines[1:4]] == [[ids[0], "ok"], [ids[1], "FAIL"], [ids[2], "ok"]]
    assert lines[-1] == "3 environments, 1 with failures" and "Missing-v0: make: FailedToImport" in told.out
    ids[:] = ["Nim-v0"]
    assert main(["envs", "check", "--all", "--episodes", "5"]) == 0


def test_new_writes_an_environment_that_passes_everything(tmp_path: Path, capsys) -> None:
    assert main(["envs", "new", "RedHTTPGame2", "--dir", str(tmp_path / "sub")]) == 0
    file, test = tmp_path / "sub/red_http_game2.py", tmp_path / "sub/test_red_http_game2.py"
    assert f"legos envs check {file}:RedHTTPGame2-v0" in capsys.readouterr().out
    assert len(file.read_text().splitlines()) <= 35
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout
    before = file.read_text()
    with pytest.raises(SystemExit) as left:
        main(["envs", "new", "RedHTTPGame2", "--dir", str(tmp_path / "sub")])
    assert left.value.code == 2 and file.read_text() == before
    assert "already exists; nothing was written" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["myGame", "My-Game", "../Evil", "None", "Nim", "Class", "Random", "A" * 41, "Spiel\n", "Ä"]
)
def test_new_checks_the_name(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["envs", "new", name, "--dir", str(tmp_path)])
    assert left.value.code == 2 and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["check"],
        ["check", "Nim-v0", "--all"],
        ["check", "Nim-v0", "--fuzz", "-1"],
        ["check", "--all", "--episodes", "0"],
    ],
)
def test_wrong_usage_of_check(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["envs", *arguments])
    assert left.value.code == 2
