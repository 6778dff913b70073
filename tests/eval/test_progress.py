"""How far an evaluation is: a line that changes on a terminal, elsewhere plain lines; nothing on standard output."""

from __future__ import annotations

import io
import json
import re

import pytest

from legos_train.cli.eval_text import in_short, interval_text
from legos_train.cli.main import main
from legos_train.observe import progress_line
from legos_train.observe.progress_line import ProgressLine, duration
from legos_train.observe.verdict import verdict


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(file: io.StringIO, *, step: float) -> None:
    """100 games, 40 of which were kept; one more every `step` seconds; three are lost meanwhile."""
    now = 0.0
    report = ProgressLine("games", file, lambda: now)
    for done in range(40, 101):
        report(done, 100, "; 3 lost to failing endpoints" if done > 70 else "")
        now += step
    report.close()


def test_plain_lines_now_and_then() -> None:
    file = io.StringIO()
    run(file, step=1.0)
    assert file.getvalue().splitlines() == [
        "50/100 games, about 50 s left (after 10 s)",
        "80/100 games, about 20 s left; 3 lost to failing endpoints (after 40 s)",
    ]
    file = io.StringIO()
    run(file, step=0.1)
    assert file.getvalue() == "", "who is done in seconds needs no progress"


def test_one_line_on_a_terminal() -> None:
    file = Terminal()
    run(file, step=1.0)
    said = file.getvalue()
    assert said.count("\n") == 1 and said.endswith("100/100 games; 3 lost to failing endpoints\x1b[K\n")
    assert said.count("\r") == 60 and f"\r{'━' * 14}{'╌' * 6} 70/100 games, about 30 s left\x1b[K" in said


def test_durations() -> None:
    assert [duration(s) for s in (3.2, 99, 720, 12_600)] == ["3 s", "99 s", "12 min", "3.5 h"]


ROW = {"alone": False, "competitive": True, "policy": "a", "opponent": "b", "env": "E", "games": 4}


def test_it_ends_with_two_games_and_what_they_say_in_short(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "KuhnPoker-v0", "-m", "optimal", "-n", "200", "--no-exact"]) == 0
    said = capsys.readouterr().out
    games, _, short = said.rpartition("\n\n")
    assert short.startswith("In short: optimal ") and "mean return" in short and len(short.splitlines()) == 1
    assert games.count(", seed ") == 2 and "(optimal) +" in games and "(optimal) -" in games and "  player_0: " in games
    short_of = {**ROW, "seeds": 4, "mean": 0.1}
    for ends, how in (((0.6, 0.7), "beats"), ((0.2, 0.4), "loses to"), ((0.4, 0.6), "is not shown to differ from")):
        # the share of games won, unless one side's gain is the other's loss: then the return, however many were won
        assert f"a {how} b" in in_short({**short_of, "ci95": (0.0, 0.2), "score_ci95": ends, "zero_sum": False})
        returns = tuple(end - 0.5 for end in ends)
        assert f"a {how} b" in in_short({**short_of, "ci95": returns, "score_ci95": (0.2, 0.4), "zero_sum": True})


def test_json_on_standard_output_stays_pure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress_line, "FIRST_SECONDS", 0.0)
    assert main(["eval", "KuhnPoker-v0", "-m", "random", "-n", "8", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["results"][0]["games"] == 8 and "/8 games" in said.err


@pytest.mark.parametrize(("ends", "text"), [([0.0, 0.0], "(no interval)"), ([-0.5, 1.0], "(95 % interval -0.5000 ..")])
def test_an_interval_without_width_is_not_shown(ends: list[float], text: str) -> None:
    """One seed, said the note, gives no interval; the last line gave +0.0000 .. +0.0000."""
    assert text in interval_text(ends)


def test_equal_results_are_given_no_interval_and_few_of_them_no_winner(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["eval", "easy=Dataset-v0", "--arg", "size=20", "--arg", "level=1", "-m", "scripted:oracle", "-n", "8"]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert re.search(r"mean@1 +100.0%  \(95 % interval 63.1 .. 100.0\)", said)
    assert "mean return +1.1000  (no interval)" in said and "on all 8 seeds, so there is no interval" in said
    row = {**ROW, "mean": 1.0, "zero_sum": True}
    won = {"ci95": (1.0, 1.0), "score_ci95": (1.0, 1.0)}
    assert "a is not shown to differ from b" in in_short({**row, **won, "seeds": 1})
    assert "a beats b" in in_short({**row, **won, "seeds": 6})


def test_who_wins_every_game_has_learned(capsys: pytest.CaptureFixture[str]) -> None:
    """The games of a whole evaluation, as a run words them; "too few or too alike" was the verdict on 100 % of 256."""
    for games, begins in (("16", "Learned: the last weights win 100% of their games"), ("2", "Not shown to have")):
        command = ["eval", "ConnectFour-v0", "-m", "scripted:depth_2", "--opponent", "scripted:first", "-n", games]
        assert main([*command, "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)["results"]
        low, high = row["score_ci95"]
        after = {"wins_vs_base": row["score"], "wins_vs_base_low": low, "wins_vs_base_high": high}
        assert row["score"] == 1 and verdict({}, after, updates=5).startswith(begins)


@pytest.mark.parametrize("env", ["GSM8K-v0", "CodeGen-v0"])
def test_without_rivals_seats_succeed_and_nothing_is_drawn_or_lost(
    env: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong answer was "loss 100.0%" alone, and "draw" in a team."""
    assert main(["eval", env, "-m", "random", "-n", "16", "--seed", "3"]) == 0
    said = capsys.readouterr().out
    assert "  outcomes    success" in said and not re.search(r"\b(win|loss|draw|failure)\b", said)
