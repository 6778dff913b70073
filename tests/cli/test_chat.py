"""`legos chat`: what it remembers, what it takes back, and whom it can talk to."""

from __future__ import annotations

import io
from typing import Any

import pytest

from inference import ServerUnavailable
from legos_envs import Decision
from legos_train.cli.chat import ChatSession
from legos_train.cli.main import main
from legos_train.rollout.players import words


class Echo:
    """An endpoint that says how many messages it was sent, and the last."""

    async def __call__(self, decision: Decision) -> str:
        if decision.messages[-1]["content"] == "fail":
            raise ServerUnavailable("gone")
        return f"{len(decision.messages)} {decision.messages[-1]['content']} {decision.seed}"


def chat(player: Any, *lines: str, seed: int = 1) -> list[str]:
    typed = iter(lines)
    said: list[str] = []

    def read(prompt: str) -> str:
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    assert ChatSession(player, None, seed, read, said.append).run("it") in (0, 1)
    return "".join(said).splitlines()


def test_it_remembers_takes_back_and_begins_again() -> None:
    lines = chat(Echo(), "one", "two", "/undo", "three", "/again", "/new", "four", "/what", "/quit", "five")
    assert [line.rpartition(" ")[0] for line in lines[:2]] == ["1 one", "3 two"]
    assert lines[2] == "taken back"
    assert [line.rpartition(" ")[0] for line in lines[3:5]] == ["3 three", "3 three"] and lines[3] != lines[4]
    assert lines[5] == "a new conversation" and lines[6].startswith("1 four") and "unknown command /what" in lines[7]
    assert len(lines) == 8


def test_what_fails_is_told_and_ends_a_pipe() -> None:
    assert chat(Echo(), "/undo", "fail", "never") == ["nothing to take back", "error: gone"]


def test_a_model_answers_with_the_same_words_for_the_same_seed() -> None:
    cast = words.Cast(max_tokens=8)
    try:
        player = cast.player("tiny")
        first = chat(player, "You hold K. bet or check?", "and now?", seed=3)
        assert first == chat(player, "You hold K. bet or check?", "and now?", seed=3) and any(first)
    finally:
        cast.close()


def test_on_the_command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n"))
    assert main(["chat", "-m", "tiny", "--max-tokens", "4"]) == 0
    said = capsys.readouterr()
    assert said.out.strip() and "note: 'tiny' has learned to answer Legos's environments" in said.err
    assert main(["chat", "-m", "random"]) == 1 and "is code and does not chat" in capsys.readouterr().err
