"""Training on the real vLLM, beside `legos serve` in one conformance suite: `python -m tests.interop.vllm`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from inference import Completion, Engine, Fleet, Incompatible, InferenceError, SamplingParams
from inference import Request as Ask
from inference.adapters import linear_shapes
from inference.loading import find_model, load
from legos_train import Trainer
from legos_train.run import build
from tests.inference.live import LiveServer, wait_until
from tests.interop.vllm import COMMAND, VLLM
from tests.train.helpers import small

REAL = [
    pytest.mark.slow,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(not COMMAND.exists(), reason="vLLM is not installed: python -m tests.interop.vllm"),
]
KINDS = [
    "legos-upload",
    "legos-pull",
    pytest.param("vllm-pull", marks=REAL),
    pytest.param("vllm-push", marks=REAL),
]
MODEL = "small"
GAP = 2e-5  # nats: float32 on both sides, and adapters that change a lot
Weights = dict[str, mx.array]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Servers by kind, started when they are first asked for."""
    servers: dict[str, Any] = {"folder": tmp_path_factory.mktemp("servers")}
    yield servers
    for kind, server in servers.items():
        if kind.startswith("vllm"):
            server.kill()
        elif kind.startswith("legos"):
            server.stop()


def shelf_of(kind: str, started: dict[str, Any]) -> Path | None:
    return None if kind == "legos-upload" else Path(started["folder"] / kind)


@pytest.fixture
def server(request: pytest.FixtureRequest, started: dict[str, Any]) -> Any:
    kind = request.param
    if kind not in started:
        shelf = shelf_of(kind, started)
        if shelf is not None:
            shelf.mkdir()
        if kind.startswith("vllm"):
            assert shelf is not None
            log = started["folder"] / f"{kind}.log"
            started[kind] = VLLM(find_model(MODEL), shelf, log, pull=kind == "vllm-pull")
            started[kind].wait()
        else:
            started[kind] = LiveServer(MODEL, adapter_root=shelf)
    return kind, started[kind], shelf_of(kind, started)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    model, tokenizer, _ = load(MODEL)
    with Engine(model, tokenizer) as one:
        yield one


def weights(seed: int) -> Weights:
    keys = iter(mx.random.split(mx.random.key(seed), 1000))
    out: Weights = {}
    for path, (width, rows) in linear_shapes(load(MODEL)[0]).items():
        if ".layers." in path:
            out[f"{path}.lora_a"] = mx.random.normal((width, 8), key=next(keys)) * 0.1
            out[f"{path}.lora_b"] = mx.random.normal((8, rows), key=next(keys)) * 0.05
    mx.eval(out)
    return out


class Asked:
    """A fleet of one server, asked in turn."""

    def __init__(self, url: str, shelf: Path | None) -> None:
        self.got: dict[int, Completion | InferenceError] = {}
        self.fleet = Fleet([url], self.got.__setitem__, shelf=shelf, patience=60.0)

    async def say(self, prompts: list[list[int]], adapter: str | None) -> list[Any]:
        self.got.clear()
        sampling = SamplingParams(max_tokens=8, seed=3, stop_ids=frozenset())
        self.fleet.submit((number, Ask(prompt, sampling), adapter) for number, prompt in enumerate(prompts))
        while len(self.got) < len(prompts):
            await asyncio.sleep(0.01)
        return [self.got[number] for number in range(len(prompts))]

    async def check(self, engine: Engine, names: dict[str | None, int]) -> None:
        """Prompts of all models at once, so that they share batches there."""
        self.got.clear()
        sampling = SamplingParams(max_tokens=8, seed=3, stop_ids=frozenset())
        asked = [(name, prompt) for _ in range(2) for name in names for prompt in PROMPTS]
        self.fleet.submit((n, Ask(prompt, sampling), name) for n, (name, prompt) in enumerate(asked))
        while len(self.got) < len(asked):
            await asyncio.sleep(0.01)
        for number, (name, prompt) in enumerate(asked):
            one: Any = self.got[number]
            if isinstance(one, InferenceError):
                raise one
            [ours] = engine.score([prompt], [one.tokens], name)
            assert len(one.tokens) == 8 and float(abs(ours - one.logprobs).max()) < GAP
            assert (one.policy_version, one.finish_reason) == (names[name], "length")
            [base] = engine.score([prompt], [one.tokens], None)
            assert name is None or float(abs(ours - base).max()) > 0.01, "the adapter changes what is said"


PROMPTS = [[5, 6, 7], [9, 8, 7, 6, 5, 4, 30], [40, 41], list(range(20, 90))]


@pytest.mark.quick(1)
@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_one_protocol_at_every_server(server: Any, engine: Engine) -> None:
    """Ids in and out with the log-probabilities of exactly the weights that a name stands for, never of older ones."""
    kind, there, shelf = server

    async def work() -> None:
        asked = Asked(there.url, shelf)
        fleet = asked.fleet
        try:
            await fleet.start()
            await fleet.adapters.clear("conformance.")
            assert fleet.endpoints[0].kind == kind.partition("-")[0]
            names: dict[str | None, int] = {None: 0}
            for seed in (1, 2):
                publication = fleet.adapters.prepare("conformance.policy", weights(seed), 2.0, seed)
                if seed == 1 and kind.startswith("vllm"):  # as `RemoteEngine` does
                    nothing = {key: w * 0 if key.endswith("lora_b") else w for key, w in weights(seed).items()}
                    fleet.adapters.use_base(fleet.adapters.prepare("conformance.base", nothing, 2.0, 0))
                fleet.adapters.publish(publication)
                names[publication.name] = seed
                engine.publish(publication.name, weights(seed), scale=2.0, version=seed)
            await asked.check(engine, names)
            await asked.check(engine, names)  # again: caches may not mix them up
            way = {"legos-upload": "upload", "vllm-push": "push"}.get(kind, "pull")
            assert fleet.endpoints[0].way == way
            many = await asked.say([[5, 6, 7]] * 30, None)
            assert len({tuple(one.tokens) for one in many}) > (1 if kind.startswith("vllm") else 0)
            await fleet.adapters.clear("conformance.")
        finally:
            await fleet.close()

    asyncio.run(work())


def run(urls: list[str], shelf: Path, **settings: Any) -> Trainer:
    server = {"urls": tuple(urls), "adapters": shelf, "timeout": 300.0}
    return Trainer(build(small(steps=3, batch_size=16, model=MODEL, context=512, server=server, **settings)))


def three_steps(trainer: Trainer) -> None:
    try:
        for step in (1, 2, 3):
            record = trainer.step()
            assert record["step"] == step and record["mismatch_max"] < GAP and record["staleness_max"] == 0
    finally:
        trainer.parts.close()


@pytest.mark.parametrize("server", KINDS[2:], indirect=True)
def test_three_steps_of_kuhn_poker(server: Any) -> None:
    _, there, shelf = server
    three_steps(run([there.url], shelf))
    assert not list(shelf.iterdir())


@pytest.mark.parametrize("server", KINDS[2:3], indirect=True)
def test_two_runs_on_one_server_do_not_meet(server: Any) -> None:
    _, there, shelf = server
    trainers = [run([there.url], shelf, seed=seed) for seed in (0, 1)]
    try:
        for _ in range(2):
            assert [trainer.step()["mismatch_max"] < GAP for trainer in trainers] == [True, True]
    finally:
        for trainer in trainers:
            trainer.parts.close()


@pytest.mark.parametrize("server", KINDS[2:3], indirect=True)
def test_another_base_is_refused_with_the_gap(server: Any) -> None:
    _, there, shelf = server
    settings = {"urls": (there.url,), "adapters": shelf}
    with pytest.raises(Incompatible, match=r"another tokenizer or template|differ .* at most 0\.1 are"):
        build(small(model="tiny", context=512, server=settings))


@pytest.mark.parametrize("server", KINDS[3:], indirect=True)
def test_one_of_two_servers_is_killed_in_the_middle_of_a_step_and_restarted(server: Any, started: Any) -> None:
    _, there, shelf = server
    other = LiveServer(MODEL, adapter_root=shelf)
    trainer = run([there.url, other.url], shelf)
    fleet = trainer.parts.sync.generator.engine.fleet  # type: ignore[attr-defined]
    try:
        trainer.step()

        def harm() -> None:
            wait_until(lambda: fleet.endpoints[0].outstanding > 0, 600)
            there.kill()

        thread = threading.Thread(target=harm)
        thread.start()
        record = trainer.step()
        thread.join()
        assert record["mismatch_max"] < GAP
        there.start()
        there.wait()
        wait_until(lambda: fleet.endpoints[0].usable, 120)
        served = fleet.endpoints[0].served
        assert trainer.step()["mismatch_max"] < GAP and fleet.endpoints[0].served > served
    finally:
        trainer.parts.close()
        other.stop()
