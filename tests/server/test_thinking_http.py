"""Thinking over HTTP: `chat_template_kwargs.enable_thinking` and `thinking_token_budget`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.wire import Live
from inference.server import Settings
from legos_envs.play import Runner
from legos_train.rollout.players.words import Cast

TALK = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def thinker(thinking_model_dir: Path) -> Iterator[Live]:
    server = Live(Settings(model=str(thinking_model_dir)))
    yield server
    server.stop()


def chat(server: Live, **body: object) -> dict:
    options = {"messages": TALK, "max_tokens": 8, "seed": 1, "ignore_eos": True, "return_token_ids": True}
    reply = server.ask("POST", "/v1/chat/completions", {**options, **body})
    assert reply.status == 200, reply
    return reply.json()["choices"][0]


def test_the_switch_and_the_limit(thinker: Live) -> None:
    markers = thinker.core._parts["renderer"].thoughts
    plain, on, off = chat(thinker), *(chat(thinker, chat_template_kwargs={"enable_thinking": b}) for b in (True, False))
    assert on["prompt_token_ids"] == plain["prompt_token_ids"]
    extra = off["prompt_token_ids"][len(plain["prompt_token_ids"]) :]
    assert extra[0] == markers.open and markers.close in extra  # an empty thought
    begun = [*plain["prompt_token_ids"], markers.open]
    options = {"prompt": begun, "max_tokens": 8, "ignore_eos": True, "return_token_ids": True}
    # Greedy: a sampled thought may end by itself before the limit, and then nothing is forced.
    reply = thinker.ask("POST", "/v1/completions", {**options, "thinking_token_budget": 3, "temperature": 0})
    assert reply.json()["choices"][0]["token_ids"].index(markers.close) == 3


def test_what_a_model_cannot_do_is_refused(live: Live) -> None:
    refused = live.ask("POST", "/v1/chat/completions", {"messages": TALK, "chat_template_kwargs": {"think": True}})
    assert refused.status == 400 and "chat_template_kwargs" in refused.json()["error"]["message"]
    body = {"messages": TALK, "chat_template_kwargs": {"enable_thinking": True}}
    refused = live.ask("POST", "/v1/chat/completions", body)
    assert refused.status == 400 and "has no enable_thinking" in refused.json()["error"]["message"]


def test_an_endpoint_is_asked_as_a_model_in_this_process(thinker: Live, thinking_model_dir: Path) -> None:
    """Same prompt, same seed, same tokens: `eval`, `tournament` and `play` seat both by a `Cast`."""
    import legos_envs

    runner = Runner(legos_envs.make("KuhnPoker-v0", action_format="boxed"), 0)
    (decision,) = runner.pending()
    asked = {"thinking": "off", "max_tokens": 6, "ask": "{observation}\nThink well."}
    here = Cast(**asked)
    there = Cast(**asked, body={"return_token_ids": True})
    try:
        model = here.player(str(thinking_model_dir))
        prompt = model.renderer.start(decision.messages)
        assert "Think well." in model.renderer.tokenizer.decode(list(prompt))
        endpoint = there.player(f"{thinker.url}/v1#{thinking_model_dir}")
        before = thinker.core.metrics.prompt_tokens._value.get()
        endpoint._background.call(endpoint._ask(decision))
        assert thinker.core.metrics.prompt_tokens._value.get() - before == len(prompt)
    finally:
        here.close()
        there.close()
