"""`legos play`: people and policies at named seats."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

PLAY = [sys.executable, "-m", "legos_train.cli", "play"]


def play(*arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PLAY, *arguments], input=said, capture_output=True, text=True, timeout=60)


def test_seats_by_agent_and_by_role() -> None:
    done = play("KuhnPoker-v0", "--seat", "player_1=human", "--seat", "player_0=scripted:first", said="check\n")
    assert done.returncode == 0, done.stderr
    assert "You are player 1" in done.stdout and "player_0 (scripted:first): " in done.stdout
    assert "player_1> " in done.stdout and "player_0> " not in done.stdout


def test_a_debate_with_a_judge_that_is_not_you() -> None:
    done = play("Debate-v0", "--seat", "con=human", "--seed", "1", said="A word.\n" * 9)
    assert done.returncode == 0, done.stderr
    assert "con_0> " in done.stdout and "judge_0 (random): +0" in done.stdout and "pro_0 (random):" in done.stdout


def test_a_debate_that_you_judge() -> None:
    done = play("Debate-v0", "--seat", "judge=human", "--seed", "1", said="[A]\n" * 9)
    assert done.returncode == 0, done.stderr
    assert "judge_0> " in done.stdout and "pro_0> " not in done.stdout and "judge_0 (human): +0" in done.stdout


def test_two_people_and_what_they_are_told_at_the_end() -> None:
    done = play("MatrixGame-v0", "--seat", "player_0=human", "--seat", "player_1=human", said="rock\npaper\n")
    assert done.returncode == 0, done.stderr
    assert "player_1 is told: Round 1: you paper, other rock, you get 1." in done.stdout
    assert "player_0 (human): -1\nplayer_1 (human): +1" in done.stdout


def test_a_text_of_several_lines() -> None:
    said = "I think.\\\nQuestion: What killed the bacteria?\\\nAnswer: mold\n"
    done = play("SPICE-v0", "--seed", "1", said=said)
    assert done.returncode == 0 and "... " in done.stdout and "Invalid move" not in done.stdout, done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["KuhnPoker-v0", "--seat", "dealer=human"], "no agent or role dealer; KuhnPoker-v0 has player_0, player_1"),
        (["KuhnPoker-v0", "--seat", "player_0=random", "--seat", "player_1=random"], "none to you"),
        (["KuhnPoker-v0", "--seat", "player_0"], "--seat takes NAME=VALUE"),
        (["KuhnPoker-v0", "--seed", "-1"], "--seed must be at least 0"),
    ],
)
def test_wrong_usage(arguments: list[str], said: str) -> None:
    done = play(*arguments)
    assert done.returncode in (1, 2) and said in done.stderr and "Traceback" not in done.stderr


def test_no_model_library_is_loaded_when_no_model_plays() -> None:
    code = (
        "import sys; from legos_train.cli import main; "
        "main(['play', 'TicTacToe-v0', '--opponent', 'optimal', '--seed', '1']); "
        "print(sorted({'mlx', 'transformers', 'torch'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input="\n".join("123456789" * 5), capture_output=True, text=True, timeout=60
    )
    assert done.stderr.strip() == "[]" and "player_1 (optimal)" in done.stdout


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
