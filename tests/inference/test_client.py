"""One interface in this process and over HTTP: the same tokens, texts, versions, digests and refusals."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import change, query
from live import LiveServer, braked, serving, wait_until
from test_engine import PROMPTS

from inference import (
    AsyncEngine,
    Client,
    Completion,
    Engine,
    HttpClient,
    Incompatible,
    LocalClient,
    RequestRefused,
    ServerUnavailable,
    base_digest,
    check_compatible,
)
from inference.client.packing import pack
from inference.client.retry import Retry

HELLO = [{"role": "user", "content": "the player says [bet]"}]
LONG = query(PROMPTS[0], max_tokens=400, seed=1, stop_ids=frozenset())


@pytest.fixture(scope="module")
def server(random_model_dir: Path) -> Iterator[LiveServer]:
    with serving(random_model_dir, max_adapters=4) as one:
        yield one


@pytest.fixture
def both(server: LiveServer, random_model_dir: Path) -> Callable[[Callable[[Client], Awaitable[Any]]], list[Any]]:
    """both(ask) -> what a local and an HTTP client of the same model give."""

    def run(ask: Callable[[Client], Awaitable[Any]]) -> list[Any]:
        async def each() -> list[Any]:
            found = []
            for client in (LocalClient.load(random_model_dir), HttpClient(server.url)):
                async with client:
                    found.append(await ask(client))
            return found

        return asyncio.run(asyncio.wait_for(each(), 60))

    return run


def over_http(server: LiveServer, ask: Callable[[HttpClient], Awaitable[Any]]) -> Any:
    async def one() -> Any:
        async with HttpClient(server.url) as client:
            return await ask(client)

    return asyncio.run(asyncio.wait_for(one(), 60))


def same(one: Completion, other: Completion) -> None:
    alike = (
        "tokens",
        "finish_reason",
        "adapter",
        "policy_version",
        "adapter_digest",
        "prompt_tokens",
        "token_versions",
    )
    for name in alike:
        assert getattr(one, name) == getattr(other, name), name
    for name in ("logprobs", "sampled_logprobs"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=1e-4)
    assert (one.top_logprobs is None) == (other.top_logprobs is None)
    for mine, theirs in zip(one.top_logprobs or [], other.top_logprobs or []):
        assert [i for i, _ in mine] == [i for i, _ in theirs]
        np.testing.assert_allclose([p for _, p in mine], [p for _, p in theirs], atol=1e-4)


def test_the_same_completions_in_process_and_over_http(
    both: Any, random_model_dir: Path, make_adapter: Callable[..., Any]
) -> None:
    plain = query(PROMPTS[0], max_tokens=12)
    requests = [
        change(plain, temperature=0.0),
        *(change(plain, seed=seed, prompt=PROMPTS[seed % 4]) for seed in (0, 1, -5, 2**63)),
        change(plain, temperature=0.7, top_p=0.8, top_k=20, min_p=0.01, seed=3),
        change(plain, seed=4, top_logprobs=5),
        change(plain, seed=5, logit_bias={7: 50.0, 9: -100.0}),
        change(plain, seed=6, stop_ids=frozenset(range(200)), max_tokens=40),
        change(plain, seed=7, stop=("a", "e"), max_tokens=60),
        change(plain, seed=8, allowed=((5, 6, 2), (5, 9, 2), (8, 2))),
        change(plain, seed=9, adapter="pro", park=True),
        change(plain, seed=10, adapter="con", temperature=0.5),
        change(plain, prompt=np.array(PROMPTS[1]), seed=np.int64(11), temperature=np.float32(0.5)),
    ]

    async def ask(client: Client) -> list[Any]:
        digests = [await client.publish(name, make_adapter(i), 2.0, 40 + i) for i, name in enumerate(("pro", "con"))]
        found = await asyncio.gather(*(client.complete(request) for request in requests))
        for name in ("pro", "con"):
            await client.unpublish(name)
        return [*digests, *found]

    local, http = both(ask)
    assert local[:2] == http[:2]
    with Engine.load(random_model_dir) as engine:
        for i, name in enumerate(("pro", "con")):
            assert engine.publish(name, make_adapter(i), scale=2.0, version=40 + i) == local[i]
        direct = engine.generate(requests)
    for mine, theirs, own in zip(local[2:], http[2:], direct, strict=True):
        same(mine, theirs)
        same(mine, own)
    found = dict(zip((int(request.sampling.seed or 0) for request in requests), http[2:]))
    assert found[9].policy_version == 40 and found[10].policy_version == 41
    assert len(found[4].top_logprobs[0]) == 5 and tuple(found[8].tokens) in requests[10].sampling.allowed
    assert {completion.finish_reason for completion in local[2:]} == {"stop", "length"}


def test_the_same_chats(both: Any) -> None:
    async def talk(client: Client) -> list[Any]:
        first = await client.chat(HELLO, max_tokens=10, seed=3, top_logprobs=2)
        longer = [*HELLO, {"role": "assistant", "content": first.text}, {"role": "user", "content": "and now?"}]
        second = await client.chat(longer, max_tokens=10, temperature=0.0)
        chosen = await client.chat(HELLO, seed=5, choices=["[bet]", "[pass]"])
        stopped = await client.chat(HELLO, seed=4, max_tokens=80, stop=("e",), session="one")
        return [first, second, chosen, stopped]

    local, http = both(talk)
    for mine, theirs in zip(local, http):
        assert mine.text == theirs.text and mine.prompt_ids == theirs.prompt_ids and mine.token_ids == theirs.token_ids
        assert mine.finish_reason == theirs.finish_reason and mine.policy_version == theirs.policy_version == 0
        np.testing.assert_allclose(mine.logprobs, theirs.logprobs, atol=1e-4)
        assert mine.usage.prompt_tokens == theirs.usage.prompt_tokens == len(mine.prompt_ids)
        assert mine.usage.completion_tokens == theirs.usage.completion_tokens == len(mine.token_ids)
    for first, second, chosen, stopped in (local, http):
        asked = len(first.prompt_ids)
        assert second.prompt_ids[: asked + len(first.token_ids)] == first.prompt_ids + first.token_ids
        assert second.usage.cached_tokens >= asked
        assert chosen.text in ("[bet]", "[pass]") and "e" not in stopped.text
        assert len(first.top_logprobs) == len(first.token_ids)


def test_a_completion_ends_where_the_template_ends_a_turn(random_model_dir: Path, tmp_path: Path) -> None:
    """Also where the model's own end token is another one, as in base models that came with a chat template."""
    folder = Path(shutil.copytree(random_model_dir, tmp_path / "model"))
    for name, end in (("config.json", {"eos_token_id": 0}), ("tokenizer_config.json", {"eos_token": "<|endoftext|>"})):
        (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | end))
    request = query(PROMPTS[0], max_tokens=5, logit_bias={2: 100.0})
    with Engine.load(folder) as engine:
        assert engine.eos_ids == {0} and len(engine.generate([request])[0].tokens) == 5

    async def ask(url: str) -> list[Completion]:
        async with LocalClient.load(folder) as local, HttpClient(url) as http:
            return [await client.complete(request) for client in (local, http)]

    with serving(folder) as server:
        for done in asyncio.run(asyncio.wait_for(ask(server.url), 60)):
            assert (done.tokens, done.finish_reason) == ([2], "stop")


def test_a_chat_without_a_seed_differs_each_time(both: Any) -> None:
    async def talk(client: Client) -> set[tuple[int, ...]]:
        return {tuple((await client.chat(HELLO, max_tokens=12)).token_ids) for _ in range(3)}

    assert all(len(found) == 3 for found in both(talk))


def test_info_is_the_same_and_a_model_that_differs_is_refused(both: Any, random_model_dir: Path) -> None:
    local, http = both(lambda client: client.info())
    assert replace(local, adapters={}, max_adapters=4, max_queue=512) == replace(http, adapters={})
    assert local.base_digest == base_digest(random_model_dir) and local.context == 512
    right = (local.base_digest, local.tokenizer_digest, local.template_digest, local.vocab_size)
    check_compatible(http, *right)
    for at, (what, wrong) in enumerate(
        {"base model": "0" * 64, "tokenizer": "0" * 64, "chat template": "0" * 64, "vocabulary": 299}.items()
    ):
        changed: Any = [*right[:at], wrong, *right[at + 1 :]]
        with pytest.raises(Incompatible, match=what) as caught:
            check_compatible(http, *changed)
        others = {"base model", "tokenizer", "chat template", "vocabulary", "protocol"} - {what}
        assert not any(f"{other} (" in str(caught.value) for other in others)
    with pytest.raises(Incompatible, match=r"protocol \(9 there, 3 here\)"):
        check_compatible(replace(http, protocol=9), *right)


REFUSED = {
    "an empty prompt": change(LONG, prompt=()),
    "a token that is none": change(LONG, prompt=(5, 100_000)),
    "a fraction for a token": change(LONG, prompt=(5, 1.5)),  # type: ignore[arg-type]
    "no sequence": change(LONG, prompt=7),  # type: ignore[arg-type]
    "a prompt without room": change(LONG, prompt=(5,) * 512),
    "a temperature that is not a number": change(LONG, temperature=math.nan),
    "a text for a temperature": change(LONG, temperature="1"),  # type: ignore[arg-type]
    "a top_p of zero": change(LONG, top_p=0.0),
    "a true max_tokens": change(LONG, max_tokens=True),
    "an empty stop": change(LONG, stop=("",)),
    "a seed that is none": change(LONG, seed=0.5),  # type: ignore[arg-type]
    "a bias of a token that is none": change(LONG, logit_bias={100_000: 1.0}),
    "nothing allowed": change(LONG, allowed=()),
    "an allowed beginning of another": change(LONG, allowed=((5,), (5, 6))),
    "a stream": change(LONG, stream=True),
    "an adapter that is not there": change(LONG, adapter="ghost"),
}


def test_the_same_requests_are_refused(both: Any) -> None:
    async def ask(client: Client) -> dict[str, int]:
        found = {}
        for name, request in REFUSED.items():
            with pytest.raises(RequestRefused) as caught:
                await client.complete(request)
            found[name] = caught.value.status
        for message in ({"role": "tool", "content": "x"}, {"role": "user"}, {"role": "user", "content": 5}):
            with pytest.raises(RequestRefused) as caught:
                await client.chat([message])
            assert caught.value.status == 400
        with pytest.raises(TypeError, match="temprature"):
            await client.chat(HELLO, temprature=1.0)
        return found

    local, http = both(ask)
    assert local == http == {name: 404 if "adapter" in name else 400 for name in REFUSED}


def test_a_publication_that_is_refused_leaves_the_old_version(both: Any, make_adapter: Callable[..., Any]) -> None:
    good = make_adapter(1)
    key = sorted(good)[0]
    bad = {
        "not finite": good | {key: good[key] * math.nan},
        "another shape": good | {key: good[key][:3]},
        "integers": good | {key: np.zeros((3, 3), np.int32)},
        "a number": good | {key: np.float32(1.0)},
        "no partner": {key: good[key]},
        "nothing": {},
    }

    async def ask(client: Client) -> list[Any]:
        await client.publish("a", good, 1.0, 1)
        for name, weights in bad.items():
            with pytest.raises(RequestRefused) as caught:
                await client.publish("a", weights, 1.0, 2)
            assert caught.value.status == 400, name
        for name in ("", "..", "a/b", "x" * 65, "a b"):
            with pytest.raises(RequestRefused, match="name"):
                await client.publish(name, good, 1.0, 2)
        with pytest.raises(RequestRefused, match="packed with the scale"):
            await client.publish("a", pack(good, 1.0), 2.0, 2)
        with pytest.raises(RequestRefused):
            await client.publish("a", good, math.inf, 2)
        with pytest.raises(RequestRefused):
            await client.publish("a", good, 1.0, 2, mode="soon")  # type: ignore[arg-type]
        done = await client.complete(change(LONG, max_tokens=5, adapter="a"))
        await client.unpublish("a")
        with pytest.raises(RequestRefused) as caught:
            await client.unpublish("a")
        assert caught.value.status == 404
        return [done.policy_version, done.tokens]

    local, http = both(ask)
    assert local == http and local[0] == 1


def test_weights_of_every_kind_arrive_as_they_are(both: Any, make_adapter: Callable[..., Any]) -> None:
    import mlx.core as mx

    from inference.adapters import adapter_digest

    base = make_adapter(2)
    kinds = {
        "float16": {k: w.astype(mx.float16) for k, w in base.items()},  # not evaluated yet
        "bfloat16": {k: w.astype(mx.bfloat16) for k, w in base.items()},
        "numpy": {k: np.asarray(w) for k, w in base.items()},
        "transposed": {k: mx.array(np.asarray(w).T).T for k, w in base.items()},
    }

    async def ask(client: Client) -> list[str]:
        found = []
        for version, (name, weights) in enumerate(kinds.items()):
            lazy = {key: w + 0 for key, w in weights.items()} if name == "bfloat16" else weights
            found.append(await client.publish("kind", lazy, 0.5, version))
        found.append(await client.publish("kind", pack(base, 0.5), 0.5, 9))
        await client.complete(change(LONG, max_tokens=2, adapter="kind"))
        await client.unpublish("kind")
        return found

    local, http = both(ask)
    assert local == http
    assert local[:2] == [adapter_digest(kinds[name], 0.5) for name in ("float16", "bfloat16")]
    assert local[2] == local[3] == local[4] == adapter_digest(base, 0.5)


def test_cancelling_ends_the_request_on_the_server(server: LiveServer) -> None:
    engine = server.engine

    async def leave(client: HttpClient) -> None:
        engine.worker.paused = True  # so that nothing can end by itself
        try:
            asked = [asyncio.ensure_future(client.complete(change(LONG, seed=seed))) for seed in range(3)]
            await asyncio.to_thread(wait_until, lambda: engine.running == 3)
            for one in asked[:2]:
                one.cancel()
            await asyncio.to_thread(wait_until, lambda: engine.running == 1)
        finally:
            engine.worker.paused = False
            await client.health()
            engine.worker.call(lambda e: None)
        assert (await asked[2]).finish_reason == "length"
        assert all(one.cancelled() for one in asked[:2])

    over_http(server, leave)
    wait_until(lambda: engine.running == 0)


def test_cancelling_ends_the_request_in_process(random_model_dir: Path) -> None:
    async def leave() -> None:
        async with LocalClient.load(random_model_dir) as client:
            await client.complete(change(LONG, max_tokens=1))
            asked = asyncio.ensure_future(client.complete(LONG))
            while not client.engine.running:
                await asyncio.sleep(0)
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            await asyncio.to_thread(wait_until, lambda: client.engine.running == 0)
            while await client.engine.call(lambda e: e.busy):
                await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(leave(), 30))


@pytest.mark.quick(1)
@pytest.mark.parametrize("mode", ["abort", "keep", "pin"])
def test_what_a_publication_does_to_running_requests_is_told(
    server: LiveServer, make_adapter: Callable[..., Any], mode: Any
) -> None:
    async def publish(client: HttpClient) -> Completion:
        name = f"live-{mode}"
        await client.publish(name, make_adapter(3), 1.0, 1)
        reached = await asyncio.to_thread(braked, server.engine)
        running = asyncio.ensure_future(client.complete(change(LONG, adapter=name)))
        assert await asyncio.to_thread(reached.wait, 20)
        await client.publish(name, make_adapter(4), 1.0, 2, mode)
        done = await running
        await client.unpublish(name)
        return done

    done = over_http(server, publish)
    assert done.finish_reason == ("aborted" if mode == "abort" else "length")
    assert done.policy_version == (2 if mode == "keep" else 1)
    assert done.adapter_digest == pack(make_adapter(4 if mode == "keep" else 3), 1.0).digest
    assert (done.token_versions is not None) == (mode == "keep")
    if mode == "keep":
        assert set(done.token_versions) == {1, 2} and sorted(done.token_versions) == done.token_versions


def test_health_and_who_closes_the_engine(random_model_dir: Path, server: LiveServer) -> None:
    async def health() -> None:
        async with AsyncEngine(lambda: Engine.load(random_model_dir)) as engine:
            async with LocalClient(engine, random_model_dir) as client:
                assert await client.health()
            assert not engine.closing and await client.health()
            with pytest.raises(RequestRefused):
                await client.complete(change(LONG, adapter="ghost"))
        assert not await client.health()
        with pytest.raises(ServerUnavailable):
            await client.complete(LONG)
        own = LocalClient.load(random_model_dir)
        async with own:
            assert await own.health()
        assert own.engine.closing and not await own.health()
        async with HttpClient(server.url) as there, HttpClient("http://127.0.0.1:9", retry=Retry(1)) as nobody:
            assert await there.health() and not await nobody.health()

    asyncio.run(asyncio.wait_for(health(), 60))


@pytest.mark.slow
def test_importing_the_client_loads_neither_mlx_nor_an_http_library() -> None:
    code = "import sys, inference.client; print('mlx' in sys.modules, 'httpx2' in sys.modules)"
    more = "; from inference.client import Fleet, HttpClient; print('mlx' in sys.modules, 'httpx2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code + more], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["False False", "False True"]
