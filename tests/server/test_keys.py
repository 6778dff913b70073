"""A server with keys: every route but two needs one, however its path is spelt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.wire import Connection, Live, head
from inference.server import Settings

KEY = "canary-key-0123456789abcdef"


@pytest.fixture(scope="module")
def guarded(random_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    server = Live(Settings(model=str(random_model_dir), keys=("another-key-of-16+", KEY), adapter_root=Path("/")))
    yield server
    server.stop()


def routes(live: Live) -> list[tuple[str, str]]:
    """(method, path) of every route, with all methods that it might be asked by."""
    inner = live.app.app.app
    paths = [(route.path, set(route.methods or ())) for route in inner.routes]
    assert len(paths) > 14
    return [(method, path.replace("{name}", "x")) for path, methods in paths for method in methods | {"GET", "POST"}]


def state(live: Live) -> Any:
    worker = live.core.engine.worker
    return live.holds() | {"paused": worker.paused, "adapters": dict(live.core.adapters.versions)}


TRICKS = [
    "/health/../v1/models", "/health%2f..%2fv1/models", "//v1/models", "/v1/models?/health", "/health;/v1/models",
    "/v1/models#/health", "/%68ealth/x", "/HEALTH/", "/v1/models/", "/./v1/models", "http://127.0.0.1/health",
    "/health\\..\\v1\\models", "/ready%00", "/openapi.json", "/docs", "/metrics", "*",
]  # fmt: skip


def test_every_route_but_two_needs_a_key(guarded: Live) -> None:
    before = state(guarded)
    public = {("GET", "/health"), ("GET", "/ready"), ("POST", "/health"), ("POST", "/ready")}
    wrong = [
        {}, {"Authorization": "Bearer wrong"}, {"Authorization": KEY}, {"Authorization": f"Basic {KEY}"},
        {"Authorization": f"Bearer {KEY}x"}, {"Authorization": "Bearer "}, {"Authorization": f"Bearer {KEY[:-1]}"},
        {"X_Api_Key": KEY}, {"Authorization": "Bearer \xe9"}, {"Authorization": f"Bearer {KEY}, Bearer {KEY}"},
    ]  # fmt: skip
    for method, path in sorted(set(routes(guarded))):
        for headers in wrong:
            request = head(method, path, Content_Type="application/json", Content_Length=2, **headers) + b"{}"
            status = Connection(guarded.port).send(request).status()
            assert status in {200, 405} if (method, path) in public else status == 401, (method, path, headers, status)
    for path in TRICKS:
        for method in ("GET", "POST", "HEAD", "PUT", "DELETE", "BREW"):
            status = Connection(guarded.port).send(head(method, path)).status()
            assert status in {400, 401}, (method, path, status)
    after = state(guarded)
    assert all(after[name] <= before[name] for name in ("requests", "tasks")) and after["paused"] is False
    assert after["adapters"] == {}


def test_any_of_the_keys_opens(guarded: Live) -> None:
    for key in (KEY, "another-key-of-16+"):
        for scheme in ("Bearer", "bearer"):
            reply = guarded.ask("GET", "/v1/models", headers={"Authorization": f"{scheme} {key}"})
            assert reply.status == 200
    assert guarded.ask("GET", "/ready").json() == {"ready": True}
