"""A game replayed in the terminal."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest

from legos_train.cli.main import main
from legos_train.observe.viewer import LogLine, read_log, replay
from tests.view.made import line_of, played, write_log
from tests.view.payloads import poisoned


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def lines() -> list[LogLine]:
    return [LogLine(n + 1, line_of(e, 10)) for n, e in enumerate(played("TicTacToe-v0", [0, 1]))]


def titles(text: str) -> list[str]:
    return re.findall(r"(\d+)/\d+ · (player_\d)", text)


def test_it_plays_every_turn_in_order_as_plain_text(
    tmp_path: Path, lines: list[LogLine], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_log(tmp_path, [line.data for line in lines])
    assert main(["view", str(folder), "--terminal", "--episode", "1"]) == 0
    told = capsys.readouterr().out
    turns = sum(len(t["turns"]) for t in lines[0].data["episode"]["trajectories"])
    assert [int(n) for n, _ in titles(told)] == list(range(1, turns + 1))
    assert [agent for _, agent in titles(told)][:4] == ["player_0", "player_1", "player_0", "player_1"]
    assert "\x1b" not in told and "episode 1 · TicTacToe-v0 · step 10" in told
    assert "player_1: league:step_10, not trained: opponent: step_10" in told
    assert "You are X. Board:\n  1 2 3\n  4 5 6\n  7 8 9\n" in told and told.count("Tic-tac-toe. Players") == 2
    assert told.count("(1 line as before)") == turns - 2 and "exact value" in told and "advantage" in told
    assert re.search(r"player_0: [+-]1 \((win|loss)\)", told)
    assert main(["view", str(folder), "--terminal"]) == 0
    assert "episode 2 · " in capsys.readouterr().out


def test_it_waits_between_turns_and_goes_back_and_to_the_worst(lines: list[LogLine]) -> None:
    def shown(*said: str) -> list[int]:
        answers = iter(said)
        out = Terminal()
        replay(lines, 1, out=out, ask=lambda: next(answers))
        return [int(n) for n, _ in titles(re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()))]

    assert shown("", "", "q") == [1, 2, 3]
    assert shown("", "b", "", "q") == [1, 2, 1, 2]
    assert shown("b", "q") == [1, 1]
    assert shown("what?", "", "q") == [1, 2], "what is not a key does nothing"
    assert shown("", "a") == list(range(1, len(shown("a")) + 1))
    from legos_train.observe.viewer.compact import compact

    row, body = compact(lines[0])
    (loser,) = [n for n, seat in enumerate(row["seats"]) if seat["outcome"] == "loss"]
    worst = body["order"].index([loser, row["seats"][loser]["worst"]["turn"]]) + 1
    assert shown("w", "q") == [1, worst]

    def ended() -> str:
        raise EOFError

    out = Terminal()
    replay(lines, 1, out=out, ask=ended)
    assert len(titles(re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()))) == 1


def test_tokens_are_coloured_by_probability_in_a_terminal(
    lines: list[LogLine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    turn = lines[0].data["episode"]["trajectories"][0]["turns"][0]
    turn |= {"action_tokens": [1, 2], "action_texts": ["rare", "sure"], "logprobs": [-4.0, -0.01]}
    out = Terminal()
    replay(lines, 1, out=out, ask=lambda: "q")
    assert re.search(r"\x1b\[[0-9;]*41mrare\x1b\[0m", out.getvalue()) and "sure\x1b[" not in out.getvalue()


def test_nothing_a_model_writes_reaches_the_terminal_as_control(tmp_path: Path) -> None:
    evil = "\x1b]0;title\x07\x1b[2J\x9b31m\r[bold red]markup[/]\u202e\x00"
    lines: list[dict[str, Any]] = [poisoned(evil)]
    out = io.StringIO()
    replay(read_log(write_log(tmp_path, lines))[0], out=out)
    told = out.getvalue()
    assert not set(told) & set("\x1b\x07\x9b\r\x00\u202e")
    assert "[bold red]markup[/]" in told and "\\u001b]0;title" in told
