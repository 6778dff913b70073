"""`legos play`: people and policies at named seats."""

from __future__ import annotations

import io
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from inference import InferenceError
from legos_envs import Decision
from legos_train.cli.main import main

PLAY = [sys.executable, "-m", "legos_train.cli.main", "play"]


def spawned(*arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PLAY, *arguments], input=said, capture_output=True, text=True, timeout=60)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


Play = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Play:
    """`spawned` in this process, which is faster."""

    def run(*arguments: str, said: str = "", terminal: bool = False) -> subprocess.CompletedProcess[str]:
        typed = io.StringIO(said) if not terminal else Terminal(said)
        monkeypatch.setattr("sys.stdin", typed)
        try:
            code = main(["play", *arguments])
        except SystemExit as error:
            code = int(str(error.code))
        return subprocess.CompletedProcess(arguments, code, *capsys.readouterr())

    return run


def test_seats_by_agent_and_by_role(play: Play) -> None:
    done = play("KuhnPoker-v0", "--seat", "player_1=human", "--seat", "player_0=scripted:first", said="check\n")
    assert done.returncode == 0, done.stderr
    assert "You are player 1" in done.stdout and "player_0 (scripted:first): " in done.stdout
    assert "player_1> " in done.stdout and "player_0> " not in done.stdout


def test_who_has_won_is_said_to_one_person(play: Play) -> None:
    for seed in range(4):
        done = play("KuhnPoker-v0", "--opponent", "scripted:first", "--seed", str(seed), said="bet\n")
        won = "player_0 (human): +" in done.stdout
        assert f"outcome: ended, you {'won' if won else 'lost'} (seed {seed})" in done.stdout
    alone = play("KuhnPoker-v0", "--seat", "player_0=human", "--seat", "player_1=human", said="bet\nfold\n")
    assert "outcome: ended (seed" in alone.stdout


def test_a_debate_with_a_judge_that_is_not_you(play: Play) -> None:
    done = play("Debate-v0", "--seat", "con=human", "--seed", "1", said="A word.\n" * 9)
    assert done.returncode == 0, done.stderr
    assert "con_0> " in done.stdout and "judge_0 (random): +0" in done.stdout and "pro_0 (random):" in done.stdout


def test_a_debate_that_you_judge(play: Play) -> None:
    done = play("Debate-v0", "--seat", "judge=human", "--seed", "1", said="[A]\n" * 9)
    assert done.returncode == 0, done.stderr
    assert "judge_0> " in done.stdout and "pro_0> " not in done.stdout and "judge_0 (human): +0" in done.stdout


def test_two_people_and_what_they_are_told_at_the_end(play: Play) -> None:
    done = play("MatrixGame-v0", "--seat", "player_0=human", "--seat", "player_1=human", said="rock\npaper\n")
    assert done.returncode == 0, done.stderr
    assert "player_1 is told: Round 1: you paper, other rock, you get 1." in done.stdout
    assert "player_0 (human): -1\nplayer_1 (human): +1" in done.stdout


def test_a_text_of_several_lines(play: Play) -> None:
    said = "I think.\\\nQuestion: What killed the bacteria?\\\nAnswer: mold\n"
    done = play("SPICE-v0", "--seed", "1", said=said)
    assert done.returncode == 0 and "... " in done.stdout and "Invalid move" not in done.stdout, done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["KuhnPoker-v0", "--seat", "dealer=human"], "no agent or role dealer; KuhnPoker-v0 has player_0, player_1"),
        (["KuhnPoker-v0", "--seat", "player_0=random", "--seat", "player_1=random"], "none is left for you"),
        (["KuhnPoker-v0", "--seat", "player_0"], "--seat takes NAME=VALUE"),
        (["KuhnPoker-v0", "--seed", "-1"], "--seed must be at least 0"),
    ],
)
def test_wrong_usage(play: Play, arguments: list[str], said: str) -> None:
    done = play(*arguments)
    assert done.returncode in (1, 2) and said in done.stderr and "Traceback" not in done.stderr


def test_no_model_library_is_loaded_when_no_model_plays() -> None:
    code = (
        "import sys; from legos_train.cli.main import main; "
        "main(['play', 'TicTacToe-v0', '--opponent', 'optimal', '--seed', '1']); "
        "print(sorted({'mlx', 'transformers', 'torch'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input="\n".join("123456789" * 5), capture_output=True, text=True, timeout=60
    )
    assert done.stderr.strip() == "[]" and "player_1 (optimal)" in done.stdout


def test_an_endpoint_that_does_not_answer_is_asked_again_if_you_like(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All answers are kept; nobody at a terminal means nobody to ask, and is an error without a traceback."""
    answers: list[int] = []

    def silent(decision: Decision) -> str:
        answers.append(decision.turn)
        if len(answers) < 3:
            raise InferenceError("nobody there")
        return "[check]"

    monkeypatch.setattr("legos_train.rollout.players.words.Cast.player", lambda *_: silent)
    done = play("KuhnPoker-v0", "--seed", "1", said="check\n")
    assert (done.returncode, done.stderr) == (1, "error: nobody there\n") and "outcome" not in done.stdout
    done = play("KuhnPoker-v0", "--seed", "1", said="check\n\n\n", terminal=True)
    assert done.returncode == 0 and done.stderr == "error: nobody there\n" and len(answers) == 3
    assert done.stdout.count("player_0> ") == 1, "who has answered is not asked again"
    assert "player_1: [check]" in done.stdout


def test_what_others_write_cannot_control_the_terminal(tmp_path: Path) -> None:
    evil = "\x1b[2Jpwned\x07"
    (tmp_path / "evil.py").write_text(
        "from legos_envs import Seat, TextEnv, register\n"
        "class Evil(TextEnv):\n"
        "    name = 'Evil-v0'\n"
        "    seats = {'a_0': Seat('a'), 'b_0': Seat('b')}\n"
        "    def play(self, table):\n"
        f"        yield from table.ask('a_0', {evil!r}, legal=['x'])\n"
        f"        yield from table.ask('b_0', 'Now?', legal=[{evil!r}])\n"
        "register('Evil-v0', Evil)\n"
    )
    done = spawned(f"{tmp_path / 'evil.py'}:Evil-v0", said="x\n")
    assert done.returncode == 0 and not set(done.stdout) & set("\x1b\x07"), done.stderr
    assert done.stdout.count("\\u001b[2Jpwned\\u0007") >= 2, "what it was told, and how it was answered"


def test_at_a_terminal_the_last_move_can_be_taken_back_after_the_end() -> None:
    ours, theirs = pty.openpty()
    command = [*PLAY, "MatrixGame-v0", "--seat", "player_0=human", "--seat", "player_1=human", "--seed", "1"]
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        os.write(ours, b"rock\nrock\nundo\npaper\n\n")
        out, err = process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 0, err
    before, _, after = out.partition("taken back: [rock]")
    assert "player_1 (human): +0" in before and "player_1 (human): +1" in after and "undo takes back" in before


def test_one_control_c_leaves_while_a_move_is_asked_for() -> None:
    """`asyncio` would take the first one for itself, and the question would stay."""
    ours, theirs = pty.openpty()
    command = [*PLAY, "KuhnPoker-v0", "--seed", "1"]
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        shown = ""
        try:
            while not shown.endswith("player_0> "):
                shown += process.stdout.read(1)
                assert process.poll() is None, shown
            time.sleep(0.3)  # what comes between the prompt and the read is seen only when the read returns
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 130 and "game left" in process.stdout.read() and process.stderr.read() == ""
        finally:
            process.kill()
    os.close(ours)
    os.close(theirs)
