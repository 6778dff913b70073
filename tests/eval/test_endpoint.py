"""Policies behind an OpenAI-compatible API: nothing is lost to a bad server, no key to a wrong one."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

import legos_envs
from inference import RequestRefused, ServerUnavailable
from inference.client import BadAnswer
from inference.client.retry import Retry
from legos_envs import Decision
from legos_train.cli.main import main
from legos_train.rollout.players.chat_api import Reply, key_for, read_reply, split, too_long
from legos_train.rollout.players.endpoint import EndpointPlayer
from tests.eval.stub import Answer, Stub, chat, error, legal, serving

QUICK = Retry(attempts=6, first=0.01, most=0.05, budget=10.0)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("legos_train.rollout.players.endpoint.PATIENT", QUICK)


def decision(seed: int = 1) -> Decision:
    return Decision("a", "a", {"messages": ({"role": "user", "content": "Move?"},)}, {}, 0, seed)


def scripted(*script: Any) -> tuple[httpx2.MockTransport, list[httpx2.Request]]:
    """A transport that answers in turn, the last answer for ever; an exception is raised."""
    asked: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        step = script[min(len(asked), len(script)) - 1]
        if isinstance(step, Exception):
            raise step
        status, headers, body = step
        return httpx2.Response(status, headers={k.replace("_", "-"): v for k, v in headers.items()}, content=body)

    return httpx2.MockTransport(answer), asked


def ask(endpoint: EndpointPlayer, times: int = 1) -> list[Any]:
    async def all_() -> list[Any]:
        return await asyncio.gather(*(endpoint(decision(n)) for n in range(times)), return_exceptions=True)

    return asyncio.run(all_())


def asked_of(url: str, *script: Any, times: int = 1, **options: Any) -> tuple[list[Any], list[httpx2.Request]]:
    transport, asked = scripted(*script)
    endpoint = EndpointPlayer(url, transport=transport, **options)
    try:
        return ask(endpoint, times), asked
    finally:
        endpoint.close()


LOCAL = "http://127.0.0.1:1/v1#m"


@pytest.mark.parametrize(
    "trouble",
    [
        error(429, Retry_After="0.02"),
        error(500),
        error(503),
        (200, {}, b"<html>busy</html>"),
        (200, {}, b'{"choices": []}'),
        (200, {}, b'{"error": {"message": "upstream died"}}'),
        chat("", choices=[{"finish_reason": "error", "error": {"message": "died"}, "message": {"content": "[b"}}]),
        chat("[b", choices=[{"finish_reason": "abort", "message": {"content": "[b"}}]),
        httpx2.ConnectError("refused"),
        httpx2.ReadError("cut"),
    ],
)
def test_what_may_pass_is_tried_again(trouble: Any) -> None:
    (said,), asked = asked_of(LOCAL, trouble, trouble, chat("[bet]"))
    assert said == "[bet]" and len(asked) == 3
    assert isinstance(said, Reply) and said.usage is not None and said.finish_reason == "stop"
    assert (said.usage.prompt_tokens, said.usage.completion_tokens, said.usage.cost) == (10, 2, 0.001)


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_what_will_not_pass_is_told_at_once(status: int) -> None:
    (said,), asked = asked_of(LOCAL, error(status, "no such model"))
    assert isinstance(said, RequestRefused) and said.status == status and len(asked) == 1
    assert "no such model" in str(said) and ("LEGOS_API_KEY" in str(said)) == (status == 401)


LONG = "This model's maximum context length is 100 tokens. However, your messages resulted in 120 tokens."
ROOM = "This model's maximum context length is 100 tokens and your request has 60 input tokens (max_tokens=1024)."


def test_a_prompt_without_room_is_answered_by_nothing_and_no_reason_to_give_up() -> None:
    said, asked = asked_of(LOCAL, error(400, LONG), times=5)
    assert said == [""] * 5 and len(asked) == 5 and {one.finish_reason for one in said} == {"overflow"}
    (said,), asked = asked_of(LOCAL, error(400, ROOM), chat("[bet]"))
    assert said == "[bet]" and json.loads(asked[-1].content)["max_tokens"] == 40
    (said,), asked = asked_of(LOCAL, error(400, ROOM))
    assert said == "" and len(asked) == 2, "what is asked for again is not asked for ever"


@pytest.mark.parametrize(
    ("said", "room"),
    [
        (LONG, 0),
        (ROOM, 40),
        ("maximum context length is 100 tokens. However, you requested 110 tokens (90 of text input, 20 in the o", 10),
        ("the prompt has 300 tokens; the context holds 256", 0),
        ("unsupported parameter: max_tokens", None),
        ("no such model", None),
    ],
)
def test_what_servers_say_of_long_prompts(said: str, room: int | None) -> None:
    assert too_long(said) == room


def test_what_is_no_api_is_told_apart() -> None:
    (said,), asked = asked_of(LOCAL, (301, {"Location": "https://h/v1/chat/completions"}, b""))
    assert "redirects to https://h/v1, which Legos does not follow" in str(said) and len(asked) == 1
    (said,), _ = asked_of(LOCAL, (200, {}, b"<html>Just a moment"), connections=1)
    assert "begins '<html>Just a moment'" in str(said)
    (said,), _ = asked_of(LOCAL, httpx2.ConnectError("refused"))
    assert "is a server running there?" in str(said)


def test_a_key_is_not_cut_in_two_by_shortening_what_a_server_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEGOS_API_KEY", "sk-0123456789")
    for body in (error(401, "x" * 495 + "sk-0123456789"), (401, {}, b"y" * 495 + b"sk-0123456789")):
        (said,), _ = asked_of(LOCAL, body)
        assert "sk-" not in str(said) and ("x" * 400 in str(said) or "y" * 400 in str(said))


def test_it_ends() -> None:
    (said,), asked = asked_of(LOCAL, error(500, "broken"))
    assert isinstance(said, ServerUnavailable) and "broken" in str(said) and len(asked) == QUICK.attempts
    (said,), asked = asked_of(LOCAL, httpx2.ConnectError("refused"))
    assert isinstance(said, ServerUnavailable) and len(asked) == 4, "nobody has ever answered there"
    (said,), asked = asked_of(LOCAL, error(503), httpx2.ConnectError("refused"))
    assert isinstance(said, ServerUnavailable) and len(asked) == QUICK.attempts, "it was there a moment ago"
    (said,), asked = asked_of(LOCAL, error(429, Retry_After="3600"))
    assert isinstance(said, ServerUnavailable) and len(asked) == 1, "an hour is not waited for"


def test_a_dead_endpoint_is_not_asked_for_every_action_until_it_is_revived() -> None:
    transport, asked = scripted(error(500))
    endpoint = EndpointPlayer(LOCAL, transport=transport, connections=1)
    said = ask(endpoint, 20)
    assert all(isinstance(one, ServerUnavailable) for one in said)
    assert len(asked) == 3 * QUICK.attempts and "given up" in str(said[-1])
    endpoint.revive()
    ask(endpoint)
    assert len(asked) == 4 * QUICK.attempts
    endpoint.close()


def test_requests_carry_model_sampling_seed_and_system_prompt() -> None:
    more = {"top_p": 0.9, "chat_template_kwargs": {"enable_thinking": False}}
    given: dict[str, Any] = {"temperature": 0.5, "max_tokens": 7, "system": "Be brief.", "body": more}
    _, (request,) = asked_of("http://h/api#org/name", chat("x"), **given)
    body = json.loads(request.content)
    assert body["top_p"] == 0.9 and body["chat_template_kwargs"] == {"enable_thinking": False}
    assert str(request.url) == "http://h/api/chat/completions" and body["model"] == "org/name"
    assert body["temperature"] == 0.5 and body["max_tokens"] == 7 and 0 <= body["seed"] < 2**31
    assert [m["role"] for m in body["messages"]] == ["system", "user"] and "usage" not in body


def test_names_that_an_api_does_not_take_are_changed_once() -> None:
    script = (
        error(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."),
        error(400, "Unsupported value: 'temperature' does not support 0.5 with this model."),
        chat("x"),
    )
    said, asked = asked_of(LOCAL, *script, times=2, temperature=0.5, connections=1)
    assert said == ["x", "x"] and len(asked) == 4
    last = json.loads(asked[-1].content)
    assert last["max_completion_tokens"] == 1024 and not {"max_tokens", "temperature"} & set(last)


@pytest.mark.parametrize(
    "refusal",
    [
        error(400, 'Invalid JSON payload received. Unknown name "seed": Cannot find field.'),
        (422, {}, b'{"detail": [{"loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}]}'),
        error(400, "Unrecognized request argument supplied: seed"),
    ],
)
def test_a_field_that_an_api_does_not_know_is_left_out(refusal: Answer) -> None:
    (said,), asked = asked_of(LOCAL, refusal, chat("x"))
    sent = [json.loads(one.content) for one in asked]
    assert said == "x" and "seed" in sent[0] and "seed" not in sent[1] and sent[1]["temperature"] == 1.0


def test_keys_go_to_their_own_host_only_and_into_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LEGOS_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY"):
        monkeypatch.setenv(name, f"secret-of-{name}")
    for url, name in [
        ("https://api.openai.com/v1", "OPENAI_API_KEY"),
        ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
        ("https://api.openai.com.evil.example/v1", "LEGOS_API_KEY"),
        ("http://127.0.0.1:8000/v1", "LEGOS_API_KEY"),
    ]:
        (said,), (request,) = asked_of(f"{url}#m", error(401, f"secret-of-{name} is wrong"))
        assert request.headers["authorization"] == f"Bearer secret-of-{name}"
        assert "secret" not in str(said) and "*** is wrong" in str(said)
        assert f"the key in {name} was sent and is not accepted there" in str(said)
        assert (json.loads(request.content).get("usage") == {"include": True}) == ("openrouter" in url)
    with pytest.raises(ValueError, match="https"):
        key_for("http://api.openai.com/v1")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("http://h:8000/v1", "names no model"),
        ("http://user:pw@h/v1#m", "must not contain a user name"),
        ("ftp://h#m", "cannot be read"),
        ("http://h:99999/v1#m", "cannot be read"),
        ("http://h/v1?key=1#m", "password or key"),
        ("http://h/v1?q=1#m", "cannot be read"),
    ],
)
def test_wrong_specs_are_explained(spec: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        split(spec)
    assert "pw" not in str(caught.value)


def test_an_url_without_a_path_means_v1() -> None:
    assert split("http://127.0.0.1:8000#tiny") == ("http://127.0.0.1:8000/v1", "tiny")
    assert split("https://openrouter.ai/api/v1/#a/b") == ("https://openrouter.ai/api/v1", "a/b")


def test_what_counts_as_an_answer() -> None:
    assert read_reply({"choices": [{"message": {"content": None, "refusal": "no"}}]}) == ""
    assert read_reply({"choices": [{"message": {"content": [{"type": "text", "text": "a"}, {"text": "b"}]}}]}) == "ab"
    odd = read_reply({"choices": [{"message": {"content": "a"}}], "usage": {"prompt_tokens": -1, "cost": "free"}})
    assert odd.usage is not None and (odd.usage.prompt_tokens, odd.usage.cost) == (0, None)
    lone = read_reply({"choices": [{"message": {"content": "a\ud800b\U0001f600\udc00"}}]})
    assert lone == "a\ufffdb\U0001f600\ufffd" and lone.encode()  # which can be tokenised and written
    no_answers: list[Any] = [None, [], {}, {"choices": [3]}, {"choices": [{"message": {"content": 3}}]}]
    for garbage in no_answers:
        with pytest.raises(BadAnswer):
            read_reply(garbage)


def evaluate(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main(["eval", "KuhnPoker-v0", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def storm(number: int, body: dict[str, Any]) -> Answer | str:
    """Errors, stalls, garbage, cut connections and 429s, more often than not."""
    troubles: dict[int, Answer | str] = {
        0: error(500),
        2: (200, {}, b"garbage"),
        3: error(429, Retry_After="0.01"),
        5: "drop",
        6: "stall" if number < 40 else error(502),
    }
    return troubles.get(number % 8, chat(legal(body)))


def test_a_storm_of_failures_loses_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    with serving(storm) as stub:
        code, results = evaluate(capsys, "-m", stub.spec, "-n", "60", "--timeout", "0.4", "--retries", "3")
    (row,) = results["results"]
    assert code == 0 and row["games"] == 60 and row["failed"] == 0 and row["seeds"] == 30
    assert row["invalid"] == row["unscored"] == 0, "a server's failure is nobody's invalid move"
    used = row["usage"][stub.spec]
    assert used["completion_tokens"] == 2 * used["actions"] and used["cost"] == pytest.approx(used["actions"] / 1000)
    assert len(stub.asked) > 1.5 * used["actions"]
    assert time.monotonic() - began < 100, "nobody waits for a server that has stalled"


def test_a_failing_endpoint_costs_its_games_only(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with serving(lambda number, body: error(500, "out of order")) as bad, serving(lambda n, b: chat(legal(b))) as good:
        arguments = ["-m", bad.spec, "-m", good.spec, "-m", "random", "-n", "20", "--out", str(tmp_path / "e")]
        code, results = evaluate(capsys, *arguments)
        lost, fine, code_policy = results["results"]
        assert code == 1 and lost["games"] < 20 and lost["failed"] == 20 - lost["games"] > 0
        assert "out of order" in " ".join(lost["errors"]) and "the same command plays them later" in " ".join(
            lost["advice"]
        )
        assert fine["games"] == code_policy["games"] == 20 and fine["failed"] == code_policy["failed"] == 0
        asked = len(good.asked)
        bad.script = lambda number, body: chat(legal(body))
        code, results = evaluate(capsys, *arguments)
        assert code == 0 and [row["games"] for row in results["results"]] == [20, 20, 20]
        assert len(good.asked) == asked, "what was finished is not asked again"


@pytest.mark.slow
def test_a_game_lost_once_is_played_again_in_the_same_command(capsys: pytest.CaptureFixture[str]) -> None:
    attempts = QUICK.attempts

    def script(number: int, body: dict[str, Any]) -> Answer:
        return error(500) if number < 3 * attempts else chat(legal(body))

    with serving(script) as stub:
        code, results = evaluate(capsys, "-m", stub.spec, "-n", "10", "--connections", "1")
    assert code == 0 and results["results"][0]["games"] == 10


def test_an_empty_answer_is_an_invalid_move_of_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(lambda number, body: chat(None)) as stub:
        code, results = evaluate(capsys, "-m", stub.spec, "-n", "8")
    (row,) = results["results"]
    assert code == 0 and row["invalid"] > 0.5 and row["loss"] == 0


def test_answers_that_were_cut_off_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    thought = {"finish_reason": "length", "message": {"content": None, "reasoning_content": "hm " * 40}}
    with serving(lambda number, body: chat("", choices=[thought])) as stub:
        code, results = evaluate(capsys, "-m", stub.spec, "-n", "4", "--body", "reasoning_effort=low")
    (row,) = results["results"]
    used = row["usage"][stub.spec]
    assert code == 0 and used["cut_off"] == used["actions"] and "raise --max-tokens" in " ".join(row["advice"])
    assert all(body["reasoning_effort"] == "low" for body in stub.asked)


@pytest.mark.slow
def test_requests_are_under_way_side_by_side_but_not_more_than_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    busy, most = 0, 0

    class Counting(Stub):
        async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal busy, most
            busy += 1
            most = max(most, busy)
            await super().answer(reader, writer)
            busy -= 1

    stub_class: Callable[..., Stub] = Counting
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.eval.stub.Stub", stub_class)
        with serving(lambda number, body: chat(legal(body))) as stub:
            code, results = evaluate(capsys, "-m", stub.spec, "-n", "200", "--connections", "16")
    assert code == 0 and results["results"][0]["games"] == 200
    assert 4 <= most <= 17


def test_a_policy_may_be_used_with_plain_play() -> None:
    transport, _ = scripted(chat("[check]"))
    endpoint = EndpointPlayer(LOCAL, transport=transport)
    episode = asyncio.run(legos_envs.play(legos_envs.make("KuhnPoker-v0"), endpoint, 0))
    assert episode.outcome is not None or episode.turns
    endpoint.close()
