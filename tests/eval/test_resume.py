"""An evaluation goes on where it stopped, whatever stopped it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from legos_train.cli.main import main
from legos_train.evaluation.games import checksums
from legos_train.evaluation.journal import LOG, Journal, JournalError
from legos_train.observe.viewer import read_log

GAME = ["eval", "KuhnPoker-v0", "-m", "random", "--opponent", "scripted:last", "--json"]


def evaluate(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main([*GAME, *arguments]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_what_is_there_is_not_played_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = evaluate(capsys, "-n", "40")
    out = tmp_path / "e"
    evaluate(capsys, "-n", "10", "--out", str(out))
    size = (out / LOG).stat().st_size
    assert evaluate(capsys, "-n", "40", "--out", str(out)) == whole, "30 more games"
    assert len((out / LOG).read_bytes().splitlines()) == 40 and (out / LOG).stat().st_size > size
    assert json.loads((out / "results.json").read_text()) == whole
    before = (out / LOG).read_bytes()
    monkeypatch.setattr("legos_envs.policies.RandomPolicy.__call__", lambda *_: pytest.fail("played again"))
    assert evaluate(capsys, "-n", "40", "--out", str(out)) == whole
    assert evaluate(capsys, "-n", "20", "--out", str(out))["results"][0]["games"] == 20
    assert (out / LOG).read_bytes() == before


def test_games_about_a_file_count_only_while_it_is_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "sums.jsonl", tmp_path / "e"
    command = ["eval", "Dataset-v0", "--arg", f"source={file}", "-m", "random", "-n", "3", "--out", str(out), "--json"]

    def questions(write: str, command: list[str] = command) -> list[str]:
        file.write_text("".join(json.dumps({"question": f"{write} {n}?", "answer": str(n)}) + "\n" for n in range(3)))
        assert main(command) == 0
        found = json.loads(capsys.readouterr().out)["results"][0]
        assert (found["games"], found["seeds"]) == (3, 3)
        return (out / LOG).read_text().splitlines()

    assert [sum(word in text for text in questions("Old")) for word in ("Old", "New")] == [3, 0]
    assert len(questions("Old")) == 3, "the same content, written again"
    assert [sum(word in text for text in questions("New")) for word in ("Old", "New")] == [3, 3], "kept, not counted"


def test_games_by_rules_in_a_file_or_about_a_nested_source_count_only_while_these_are_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def played(*command: str) -> int:
        out = tmp_path / f"games of {Path(command[0]).stem}"
        assert main(["eval", *command, "-m", "random", "-n", "4", "--out", str(out), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["results"][0]["games"] == 4
        return len((out / LOG).read_text().splitlines())

    file, prompts = tmp_path / "flip.py", tmp_path / "prompts.jsonl"
    rules = (Path(__file__).parents[1] / "train" / "honest_env.py").read_text()
    env = (f"{file}:Honest-v0", "--opponent", "random")
    match = ["HeadToHead-v0", "--seat", "judge=scripted:longer", "--arg", f'match_kwargs={{"source": "{prompts}"}}']
    file.write_text(rules)
    prompts.write_text("".join(f'{{"prompt": "Old {n}"}}\n' for n in range(2)))
    assert [played(*env), played(*env), played(*match), played(*match)] == [4] * 4
    file.write_text(rules + "\n")
    prompts.write_text("".join(f'{{"prompt": "New {n}"}}\n' for n in range(2)))
    assert [played(*env), played(*match)] == [8] * 2, "kept, not counted"


def test_only_files_have_a_checksum(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    assert list(checksums(str(tmp_path))) == list(checksums([tmp_path / "a.txt"])) == [str(tmp_path / "a.txt")]
    assert not checksums(["A question as long as no name of a file. " * 100, "What?\0", {"question": "1+1?"}])
    assert not checksums("words") and not checksums(None)


@pytest.mark.parametrize("cut", [1, 25, 400])
def test_a_torn_last_line_is_played_again(tmp_path: Path, cut: int, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "e"
    whole = evaluate(capsys, "-n", "12", "--out", str(out))
    log = out / LOG
    log.write_bytes(log.read_bytes()[:-cut])
    with Journal(out) as journal:
        assert len(journal.records) == 11 and journal.unreadable == 1
    assert evaluate(capsys, "-n", "12", "--out", str(out)) == whole
    with Journal(out) as journal:
        assert len(journal.records) == 12


@pytest.mark.slow
def test_a_killed_evaluation_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "e"
    command = [sys.executable, "-m", "legos_train.cli.main", *GAME, "-n", "100000", "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        end = time.monotonic() + 60
        while not (out / LOG).exists() or (out / LOG).stat().st_size < 50_000:
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    with Journal(out) as journal:
        kept = len(journal.records)
    assert 5 < kept < 100_000
    assert evaluate(capsys, "-n", "20", "--out", str(out)) == evaluate(capsys, "-n", "20")


def test_other_games_are_not_taken_for_these(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "e")
    spiral = ["--arg", "preset=spiral"]
    evaluate(capsys, "-n", "8", "--out", out)
    assert evaluate(capsys, "-n", "8", "--out", out, *spiral) == evaluate(capsys, "-n", "8", *spiral)
    assert evaluate(capsys, "-n", "8", "--out", out, "--seed", "7") == evaluate(capsys, "-n", "8", "--seed", "7")
    with Journal(Path(out)) as journal:
        assert len(journal.records) == 24


def test_games_of_other_commands_in_the_folder_are_mentioned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for temperature in ("1", "1", "0.5"):
        assert main(["eval", "KuhnPoker-v0", "-m", "tiny", "-n", "2", "--no-exact", "--temperature", temperature,
                     "--out", str(tmp_path), "--json"]) == 0  # fmt: skip
        said.append("also holds 2 games of other commands" in capsys.readouterr().err)
    assert said == [False, False, True]


def test_two_processes_do_not_write_one_folder(tmp_path: Path) -> None:
    with Journal(tmp_path), pytest.raises(JournalError, match="another process"):
        Journal(tmp_path)
    Journal(tmp_path).close()
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="cannot keep games"):
        Journal(tmp_path / "file" / "e")


def test_the_viewer_opens_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(capsys, "-n", "6", "--out", str(tmp_path / "e"))
    lines, reader = read_log(tmp_path / "e")
    assert len(lines) == 6 and not reader.bad
    assert {p for line in lines for p in line.data["players"].values()} == {"random", "scripted:last"}
    assert all(set(line.data["outcome"].values()) == {"win", "loss"} for line in lines)
    drops = [after - before for line in lines for pairs in line.data["exact"].values() for before, after in pairs]
    assert max(drops) <= 1e-6 and min(drops) < -0.1, "random play loses something that an equilibrium does not"
    assert main(["view", str(tmp_path / "e"), "--no-open"]) == 0 and (tmp_path / "e/view.html").stat().st_size > 1000


def test_the_folder_of_a_run_keeps_its_own_episodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.toml").write_text("")
    for verb in ("eval", "exploit"):
        assert main([verb, "KuhnPoker-v0", "-m", "random", "-n", "2", "--out", str(tmp_path)]) == 1
        assert "is a training run with its own episodes; give another --out" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["config.toml"]
