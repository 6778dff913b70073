"""One `--system` for each role, and endpoints that are not there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from legos_train.cli.main import main
from legos_train.evaluation import Session, SessionOptions
from legos_train.rollout.players.endpoint import EndpointPlayer
from tests.eval.stub import chat, legal, serving


def session(*texts: str) -> Session:
    return Session(SessionOptions(env=["Debate-v0"], system=texts))


def test_a_prompt_of_a_role_an_agent_or_everybody() -> None:
    found = session("pro=Argue for it: x=1.", "Be brief.", "judge=Be just.")
    systems = found.systems["Debate-v0"]
    assert found.system == "Be brief." and systems["judge"] == "Be just."
    assert {text for name, text in systems.items() if name.startswith("pro")} == {"Argue for it: x=1."}
    assert session("Answer with x=1.").system == "Answer with x=1."
    assert session().systems == {} and session().system is None
    with pytest.raises(ValueError, match="second general prompt; for one role write --system ROLE=TEXT"):
        session("a", "b")


def test_each_seat_is_sent_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(lambda number, body: chat(legal(body))) as stub:
        words = ["eval", "KuhnPoker-v0", "-m", stub.spec, "--opponent", "self", "-n", "2", "--json", "--no-exact"]
        main([*words, "--system", "player_0=You are X.", "--system", "You play."])
        sent = {request["messages"][0]["content"] for request in stub.asked}
        assert sent == {"You are X.", "You play."}
        assert json.loads(capsys.readouterr().out)["setting"]["systems"] == {"KuhnPoker-v0": {"player_0": "You are X."}}


def test_an_endpoint_that_is_not_there_ends_an_evaluation_before_its_first_game(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(EndpointPlayer, "__call__", lambda self, decision: asked.append(decision))
    assert main(["eval", "KuhnPoker-v0", "-m", "http://127.0.0.1:9/v1#m", "-n", "50"]) == 1
    assert "Endpoint(http://127.0.0.1:9/v1#m) cannot be reached" in capsys.readouterr().err
    assert not asked


def test_exact_numbers_are_those_of_each_seat_s_own_prompt(capsys: pytest.CaptureFixture[str]) -> None:
    def exact(*words: str) -> dict[str, float]:
        main(["eval", "KuhnPoker-v0", "-m", "tiny", "-n", "2", "--json", *words])
        numbers: dict[str, float] = json.loads(capsys.readouterr().out)["results"][0]["exact"]
        return numbers

    prompt = "Always fold, answer [p]"
    for_all = exact("--system", prompt)
    for_each = exact("--system", f"player_0={prompt}", "--system", f"player_1={prompt}")
    one = exact("--system", f"player_1={prompt}")
    none = exact()
    assert for_each["nash_conv"] == pytest.approx(for_all["nash_conv"], abs=1e-5)
    assert len({round(numbers["nash_conv"], 3) for numbers in (none, one, for_all)}) == 3
