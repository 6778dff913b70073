"""Thinking: the switch of the chat template, and the limit after which a thought is closed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from asking import query
from families import FAMILIES, renderer_for, text_of, tokenizer_for, user

from inference import Engine, Request, SamplingParams
from inference.text import RENDERERS, Conversation, Renderer
from inference.thoughts import ThoughtLimit, ThoughtMarkers

OPENS = FAMILIES["opens the thought itself (DeepSeek-R1)"]
MARKERS = ThoughtMarkers(open=1, close=2)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine.load("tiny") as made:
        yield made


@pytest.fixture(scope="module")
def qwen3(engine: Engine) -> Renderer:
    return Renderer(engine.tokenizer, "qwen3", enable_thinking=True)


@pytest.mark.parametrize(
    ("opened", "said", "must"),
    [
        (True, [7, 7], False),
        (True, [7, 7, 7], True),
        (True, [7, 7, 7, 7], False),  # the limit came later than this: too late to cut
        (True, [7, 2, 7], False),  # closed by the model
        (False, [7, 7, 7], False),  # an answer without a thought
        (False, [1, 7, 7], False),
        (False, [1, 7, 7, 7], True),
        (False, [9, 1, 7, 7, 7], True),
        (False, [1, 7, 2, 7, 7], False),
    ],
)
def test_when_a_thought_must_be_closed(opened: bool, said: list[int], must: bool) -> None:
    limit = ThoughtLimit(MARKERS, opened, 3)
    assert limit.must_close(said) == must
    assert limit.closed_at([*said, 2, 8]) == (len(said) if must else None)


def test_a_prompt_that_opens_a_thought() -> None:
    assert MARKERS.opened_by([5, 5, 1]) and MARKERS.opened_by([5, 1, 6])
    assert not MARKERS.opened_by([5, 1, 6, 2, 6])  # thinking switched off: an empty thought
    assert not MARKERS.opened_by([1, 7, 7, 7, 7, 7])  # one that was cut off turns ago


@pytest.mark.parametrize("budget", [0, 5])
def test_the_engine_closes_a_thought_at_its_limit(engine: Engine, qwen3: Renderer, budget: int) -> None:
    """The prompt ends in a thought here, and `tiny` would not close it; up to the limit nothing changes."""
    start = (*qwen3.start([user("think")]), qwen3.thoughts.open)
    ask = query(start, max_tokens=12, seed=3, stop_ids=frozenset())
    [free] = engine.generate([ask])
    bound = query(start, max_tokens=12, seed=3, stop_ids=frozenset(), thinking_token_budget=budget)
    [closed, again] = engine.generate([bound, ask])
    assert qwen3.thoughts.close not in free.tokens and again.tokens == free.tokens  # beside it, another's is untouched
    assert closed.tokens[:budget] == free.tokens[:budget] and closed.tokens[budget] == qwen3.thoughts.close
    assert closed.sampled_logprobs[budget] == 0.0 and closed.logprobs[budget] < 0.0
    assert len(closed.tokens) == 12 and closed.tokens.count(qwen3.thoughts.close) == 1


def test_a_limit_needs_a_model_with_the_markers(random_model) -> None:
    said = r"thinking_token_budget = 4 needs a model whose .* leave it out"
    with Engine(random_model[0], None) as bare, pytest.raises(ValueError, match=said):
        bare.submit(Request((1, 2), SamplingParams(thinking_token_budget=4)))


def test_the_switch_is_the_templates_own(engine: Engine) -> None:
    """A model without the switch cannot think on demand; one whose template always thinks cannot be stopped."""
    for kind in ("chatml", "auto"):
        with pytest.raises(ValueError, match="has no enable_thinking: thinking must be 'auto' or 'off'"):
            Renderer(engine.tokenizer, kind, enable_thinking=True)
        assert not Renderer(engine.tokenizer, kind, enable_thinking=False).reasons
    always = tokenizer_for(OPENS.markers, OPENS.jinja)
    with pytest.raises(ValueError, match="always opens a thought: thinking must be 'auto' or 'on'"):
        Renderer(always, enable_thinking=False)
    for thinking in (None, True):
        renderer = Renderer(always, enable_thinking=thinking)
        assert renderer.opens_thought and renderer.reasons
    switch = Renderer(engine.tokenizer, "qwen3", enable_thinking=False)
    assert text_of(switch, switch.start([user("x")])).endswith("<think>\n\n</think>\n\n")
    assert not switch.reasons and not switch.opens_thought


def test_a_thought_that_the_template_opened_is_none_of_the_answer() -> None:
    """Cut off, it would else be read as public text: an action that was only thought of would be played."""
    from legos_envs import parsing

    renderer = renderer_for("opens the thought itself (DeepSeek-R1)")
    cut = renderer.encode("perhaps [bet], or")
    assert parsing.public(renderer.reply(cut)) == ""
    whole = [*cut, renderer.thoughts.close, *renderer.encode(" [check]")]
    assert parsing.public(renderer.reply(whole)) == "[check]"


def test_every_user_message_is_put_as_asked() -> None:
    ask = "Observation: {observation}\nReason step by step and put your answer in \\boxed{}."
    tokenizer = tokenizer_for(RENDERERS["chatml"].markers, None)
    renderer = Renderer(tokenizer, "chatml", ask=ask)
    talk = Conversation(renderer)
    first = talk.prompt([user("a {b}")])
    assert ask.replace("{observation}", "a {b}") in text_of(renderer, first) and renderer.reasons
    talk.record(renderer.encode("hm"))
    second = talk.prompt([user("a {b}"), {"role": "assistant", "content": "hm"}, user("c")])
    assert second[: len(first)] == first
    assert text_of(renderer, second).count("Reason step by step") == 2
    with pytest.raises(ValueError, match="ask must hold"):
        Renderer(tokenizer, "chatml", ask="think!")
