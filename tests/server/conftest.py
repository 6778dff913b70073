"""A real server on loopback for the tests, and OpenAI's client for it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

from benchmarks.wire import Live
from inference.engine.version_ledger import VersionLedger
from inference.server import Settings
from inference.server.settings import Limits

GOOD = {"prompt": "the player says", "max_tokens": 12, "temperature": 0, "ignore_eos": True}
"""A request whose greedy text is the same whatever happened before."""


@pytest.fixture(scope="session")
def adapter_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("adapters") / "root"


@pytest.fixture(scope="session")
def live(random_model_dir: Path, adapter_root: Path) -> Iterator[Live]:
    """A server with an empty adapter root and a body limit of one second. Leave no adapter behind."""
    adapter_root.mkdir()
    server = Live(Settings(model=str(random_model_dir), adapter_root=adapter_root, limits=Limits(body_seconds=1.0)))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def client(live: Live) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0, timeout=30) as made:
        yield made


@pytest.fixture(scope="session")
def model(live: Live) -> str:
    """The id of the served model."""
    return str(live.core.settings.model)


@pytest.fixture
def good(live: Live) -> Iterator[Callable[[], str]]:
    """good() asks the same greedy request and returns its text, which must be the same as before the test."""
    texts: list[str] = []

    def ask() -> str:
        reply = live.ask("POST", "/v1/completions", GOOD)
        assert reply.status == 200, reply
        texts.append(reply.json()["choices"][0]["text"])
        assert texts[-1] == texts[0]
        return texts[0]

    ask()
    yield ask
    ask()


@pytest.fixture(scope="session")
def adapter_bytes(
    make_adapter: Callable[..., dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., bytes]:
    """adapter_bytes(seed, scale=1.0 or None, change=None, rank=4): a safetensors file; `change` alters the weights."""
    folder = tmp_path_factory.mktemp("bytes")

    def make(seed: int, scale: float | None = 1.0, change: Callable[[Any], Any] | None = None, **options: Any) -> bytes:
        import mlx.core as mx

        weights = make_adapter(seed, **options)
        file = folder / "one.safetensors"
        metadata = {} if scale is None else {"scale": str(scale)}
        mx.save_safetensors(str(file), weights if change is None else change(weights), metadata)
        return file.read_bytes()

    return make


@pytest.fixture
def put(live: Live) -> Iterator[Callable[..., Any]]:
    """put(name, body, query="", digest=the right one) publishes; after the test the server knows of none of it."""
    names: set[str] = set()

    def publish(name: str, body: bytes, query: str = "", digest: str | None = "") -> Any:
        right = hashlib.sha256(body).hexdigest() if digest == "" else digest
        headers = {} if right is None else {"X-Content-SHA256": right}
        reply = live.ask("PUT", f"/v1/adapters/{name}{query}", body, headers)
        if reply.status == 200:
            names.add(name)
        return reply

    yield publish
    for name in names:
        live.ask("DELETE", f"/v1/adapters/{name}")
    live.run(live.core.engine.call(lambda engine: setattr(engine._publisher, "ledger", VersionLedger())))


@pytest.fixture
def serve(random_model_dir: Path) -> Iterator[Callable[..., Live]]:
    """serve(**settings) -> a server of its own, stopped after the test."""
    made: list[Live] = []

    def start(wait: bool = True, **settings: Any) -> Live:
        made.append(Live(Settings(model=str(random_model_dir), **settings), wait=wait))
        return made[-1]

    yield start
    for live in made:
        live.stop()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as made:
        yield made
