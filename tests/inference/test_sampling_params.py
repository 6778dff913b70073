"""A sampling option is one line of `SamplingParams`: its checks, its way over HTTP and its default come from there."""

from __future__ import annotations

import inspect
import math
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import inference.types
from inference import Request, RequestRefused, SamplingParams
from inference.client import completions, wire
from inference.engine.checks import Checks
from inference.server.protocol import ChatRequest, CompletionRequest
from inference.types import NUMBERS

ROOT = Path(__file__).parents[2]
NEW = 'top_a: float = field(default=0.0, metadata={"ge": 0.0, "le": 1.0})'
USES = """
from inference.client import completions, wire
from inference.engine.checks import Checks
from inference.server.protocol import ChatRequest, CompletionRequest
from inference.types import InferenceError, Request, SamplingParams

params = SamplingParams(top_a=0.25, seed=1)
body = wire.completion_body(Request((1,), params))
assert body["top_a"] == 0.25 and wire.chat_body([], params, None, None)["top_a"] == 0.25
for read in (CompletionRequest(**body), ChatRequest(messages=[{"role": "user", "content": ""}], top_a=0.25)):
    assert read.params().top_a == 0.25
assert completions.body("m", [Request((1,), params)], vllm=False)["top_a"] == 0.25
assert completions.group_key(params) != completions.group_key(SamplingParams(seed=1))
try:
    completions.body("m", [Request((1,), params)], vllm=True)
except InferenceError as error:
    assert "vLLM has no top_a" in str(error), error
else:
    raise AssertionError("vLLM would ignore it")
checks = Checks(10, 100, frozenset(), False)
assert checks.sampling(params, 1).top_a == 0.25
wrong = {"top_a": 1.5}
for refuse in (lambda: CompletionRequest(prompt="a", **wrong), lambda: checks.sampling(SamplingParams(**wrong), 1)):
    try:
        refuse()
    except ValueError as error:
        assert "top_a" in str(error), error
    else:
        raise AssertionError("1.5 was accepted")

from legos_train import Actor, ConfigError, TrainConfig
from legos_train.cli.chat import make_parser
from legos_train.rollout.players.words import Cast

assert Actor("a", top_a=0.25).unusual == Cast(draw=SamplingParams(top_a=0.25)).body == {"top_a": 0.25}
assert TrainConfig(sampling={"top_a": 0.25}).plain()["sampling"]["top_a"] == 0.25
assert make_parser().parse_args(["--top-a", "0.25"]).top_a == 0.25
try:
    TrainConfig(sampling=wrong)
except ConfigError as error:
    assert "sampling.top_a" in str(error), error
else:
    raise AssertionError("1.5 was accepted")
"""


def test_a_new_option_is_one_line(tmp_path: Path) -> None:
    """With that line the clients send it, the server reads it, training and evaluation have a setting and a flag, and
    all of them check its range.
    """
    source = inspect.getsource(inference.types)
    line = next(line for line in source.splitlines() if line.strip().startswith("min_p: float"))
    code = f"""
import importlib.util, sys
spec = importlib.util.spec_from_loader("inference.types", None)
module = importlib.util.module_from_spec(spec)
sys.modules["inference.types"] = module
exec(compile({source.replace(line, f"{line}{chr(10)}    {NEW}")!r}, "types.py", "exec"), module.__dict__)
{USES}"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr


def test_an_option_has_one_default() -> None:
    """Over HTTP too, but for the two that OpenAI documents: max_tokens of either kind of request."""
    assert Request((1,)).sampling == SamplingParams()
    chat = ChatRequest.model_validate({"messages": [{"role": "user", "content": "hi"}]})
    for body, limit in ((chat, None), (CompletionRequest.model_validate({"prompt": "hi"}), 16)):
        read = body.params()
        names = [one.name for one in fields(read) if one.name != "max_tokens"]
        assert all(getattr(read, name) == getattr(SamplingParams(), name) for name in names)
        assert (body.limit if isinstance(body, ChatRequest) else read.max_tokens) == limit


@pytest.mark.parametrize("option", NUMBERS, ids=lambda option: option.name)
def test_a_number_out_of_range_is_refused_over_http(option: inference.types.NumberOption) -> None:
    low = option.bounds.get("ge", option.bounds.get("gt", 0))
    with pytest.raises(ValidationError, match=option.name):
        CompletionRequest.model_validate({"prompt": "hi", option.name: option.kind(low - 2)})


def test_a_completion_is_sent_with_every_option() -> None:
    body = wire.completion_body(Request((1,)))
    assert {option.name for option in NUMBERS} <= body.keys() and isinstance(body["seed"], int)


OTHERS: dict[str, Any] = {
    "max_tokens": 7, "temperature": 0.5, "top_p": 0.9, "top_k": 3, "min_p": 0.1, "thinking_token_budget": 4,
    "speculate": 2, "seed": 9, "stop_ids": frozenset({2}), "stop": ("end",), "logit_bias": {5: 1.0},
    "allowed": ((5, 2),), "guide": object(), "top_logprobs": 1,
}  # fmt: skip
"""An unusual value of every sampling option."""
SENT_AS = {"seed": "seeds", "stop_ids": "stop_token_ids"}


@pytest.mark.parametrize("name", [option.name for option in fields(SamplingParams)])
def test_a_call_of_several_prompts_sends_an_option_or_refuses_it(name: str) -> None:
    """To `legos serve`; and only requests whose options agree share a call, whatever their seeds."""
    plain, unusual = SamplingParams(seed=1), SamplingParams(**{"seed": 1, name: OTHERS[name]})
    if name in ("logit_bias", "allowed", "guide", "top_logprobs"):
        with pytest.raises(RequestRefused, match=f"cannot be asked for {name}; they accept only temperature, top_p"):
            completions.group_key(unusual)
        return
    assert (completions.group_key(plain) == completions.group_key(unusual)) == (name == "seed")
    usual, sent = (completions.body("m", [Request((1,), p)], vllm=False) for p in (plain, unusual))
    field = SENT_AS.get(name, name)
    assert usual.get(field) != sent[field] and CompletionRequest.model_validate(sent)


def test_vllm_is_told_what_the_models_own_defaults_would_decide() -> None:
    """`generation_config.json` of Qwen2.5 has a top_k of 20 and a repetition penalty; vLLM applies what it holds."""
    body = completions.body("m", [Request((1,))], vllm=True)
    told = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "thinking_token_budget": -1}
    told |= {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
    assert told.items() <= body.items() and not {"speculate", "seeds", "seed"} & body.keys()
    assert CompletionRequest.model_validate(body), "a router in front of `legos serve` may look like vLLM"
    with pytest.raises(ValidationError, match="repetition_penalty"):
        CompletionRequest.model_validate({**body, "repetition_penalty": 1.1})


@pytest.mark.parametrize("name", [option.name for option in NUMBERS])
def test_log_probabilities_of_another_distribution_are_not_taken_for_those_of_the_draw(name: str) -> None:
    """Servers report those of the raw distribution; forced ends of thoughts, too, were drawn with other ones."""
    request = Request((1,), SamplingParams(**{name: OTHERS[name]}))
    choice = {"index": 0, "token_ids": [5], "logprobs": {"token_logprobs": [-0.5]}, "finish_reason": "length"}
    [done] = completions.read({"model": "m", "choices": [choice]}, "m", [request], 0, None)
    assert done.logprobs == [-0.5]
    assert math.isnan(done.sampled_logprobs[0]) == (name not in ("max_tokens", "speculate"))


def test_checked_parameters_are_kept_within_their_bytes() -> None:
    checks = Checks(100_000, 1000, frozenset(), False)
    for i in range(20):
        params = SamplingParams(stop_ids=frozenset(range(i, i + 20_000)))
        assert checks.sampling(params, 5) is checks.sampling(params, 5)
        assert checks._checked.nbytes <= checks._checked.most_bytes == 8 << 20
    assert 0 < len(checks._checked) < 5


def test_prompts_that_leave_room_share_the_checked_parameters() -> None:
    checks = Checks(100, 1000, frozenset(), False)
    few, all_there_is = SamplingParams(max_tokens=20), SamplingParams(max_tokens=None)
    assert len({id(checks.sampling(few, length)) for length in range(1, 981)}) == 1
    assert [checks.sampling(few, length).max_tokens for length in (980, 981, 999)] == [20, 19, 1]
    assert [checks.sampling(all_there_is, length).max_tokens for length in (1, 980)] == [999, 20]
