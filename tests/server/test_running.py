"""Starting, health, overload, pausing, draining, stopping; and what a server writes to its log."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from benchmarks.storm_processes import Served
from benchmarks.wire import Connection, Live, Reply, head, post
from inference import ModelNotFound, loading
from inference.server import Settings
from inference.server import running as running_module
from legos_train.cli.main import main
from tests.inference.live import braked

BODY = {"prompt": "the player says", "temperature": 0, "ignore_eos": True, "return_token_ids": True}
CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}


class Hold:
    """While it is entered the engine's thread stands still."""

    def __init__(self, live: Live) -> None:
        self._live, self._go = live, threading.Event()

    def __enter__(self) -> None:
        inside = threading.Event()
        self._live.core.engine.worker.call(lambda engine: (inside.set(), self._go.wait(20)))
        assert inside.wait(10)

    def __exit__(self, *exc: object) -> None:
        self._go.set()


def ask(live: Live, tokens: int = 150, **options: Any) -> Reply:
    return live.ask("POST", "/v1/completions", BODY | {"max_tokens": tokens} | options)


def ids(reply: Reply) -> list[int]:
    assert reply.status == 200, reply
    return list(reply.json()["choices"][0]["token_ids"])


# --- loading, health, overload ---------------------------------------------------------------------------------------


def test_while_the_model_loads_requests_are_asked_to_come_again(
    serve: Callable[..., Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    go, load = threading.Event(), loading.load
    monkeypatch.setattr(loading, "load", lambda *args, **given: (go.wait(20), load(*args, **given))[1])
    live = serve(wait=False)
    try:
        assert live.ask("GET", "/health").status == 200  # it is not stuck
        assert live.ask("GET", "/ready").status == 503
        asked = [("POST", "/v1/chat/completions", CHAT), ("GET", "/v1/models", None), ("POST", "/pause", None)]
        for method, path, body in asked:
            reply = live.ask(method, path, body)
            assert reply.status == 503 and int(reply.headers["retry-after"]) > 0, (path, reply)
            assert "loading" in reply.json()["error"]["message"]
    finally:
        go.set()
    live.until(lambda: live.ask("GET", "/ready").status == 200)
    assert ask(live, 2).status == 200


def test_a_model_that_cannot_be_loaded_ends_the_server(tmp_path: Path) -> None:
    from inference.server import create_app, serve

    assert serve(create_app(Settings(model=str(tmp_path / "nothing"))), "127.0.0.1", 0) == 1
    with pytest.raises(ModelNotFound, match="no such model"):
        Live(Settings(model=str(tmp_path / "nothing")))


def test_health_tells_a_stuck_engine(serve: Callable[..., Live], pool: ThreadPoolExecutor) -> None:
    live = serve(stuck_after=0.3)
    path = live.run(live.core.engine.call(lambda engine: engine.path))
    assert path in ("numpy", "mlx")
    facts = {"path": path, "lookahead": False, "threads": 1}
    assert live.ask("GET", "/health").json() == {"status": "ok", **facts}
    with Hold(live):
        waiting = pool.submit(ask, live, 3)
        live.until(lambda: live.ask("GET", "/health").status == 503, 5.0)
        assert live.ask("GET", "/ready").status == 503
    assert len(ids(waiting.result(10))) == 3
    assert live.ask("GET", "/health").status == live.ask("GET", "/ready").status == 200


def test_a_full_queue_says_when_to_come_again(serve: Callable[..., Live], pool: ThreadPoolExecutor) -> None:
    live = serve(max_queue=4)
    with Hold(live):
        waiting = [pool.submit(ask, live, 3, n=2) for _ in range(2)]
        live.until(lambda: live.core.engine.running == 4)
        for options in ({}, {"stream": True}, {"n": 4}):
            reply = ask(live, 3, **options)
            assert reply.status == 429 and int(reply.headers["retry-after"]) > 0
            assert reply.json()["error"]["type"] == "rate_limit_error"
        assert live.ask("GET", "/health").status == 200
    assert {len(ids(one.result(10))) for one in waiting} == {3}
    assert ask(live, 3, n=4).status == 200
    never = ask(live, 3, n=5)  # no waiting would help
    assert never.status == 400 and "retry-after" not in never.headers


@pytest.mark.slow
def test_connections_too_many_take_the_place_of_silent_ones(
    serve: Callable[..., Live], pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_module._Protocol, "most", 20)
    live = serve()
    first = Connection(live.port)
    running = started(live, pool, tokens=300)
    half = Connection(live.port).send(b"GET /health HT")
    idle = []
    for _ in range(60):
        idle.append(Connection(live.port))
        if len(idle) % 10 == 0:
            assert live.ask("GET", "/health").status == 200
    assert live.holds()["tasks"] < 60 and len(live.uvicorn.server_state.connections) <= 21
    assert first.status() == half.status() == 503
    assert len(ids(running.result(20))) == 300  # it was older than all of them, but not silent
    with Hold(live):
        busy = [Connection(live.port, 20.0).send(post("/v1/completions", BODY | {"max_tokens": 2})) for _ in range(20)]
        live.until(lambda: live.core.engine.running == 20)
        assert live.ask("GET", "/health").status == 503  # all have something to do: the new one is sent away
    assert {one.status() for one in busy} == {200}
    assert live.ask("GET", "/health").status == 200
    for one in idle:
        one.close()


def test_the_one_that_makes_way_has_been_silent_for_longest(
    serve: Callable[..., Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    live = serve()
    state = live.uvicorn.server_state
    monkeypatch.setattr(running_module._Protocol, "most", 4)
    asked, first, second, spoke = connections = [Connection(live.port) for _ in range(4)]
    ports = {one: one.socket.getsockname()[1] for one in connections}
    live.until(lambda: len(state.silent) == 4)
    asked.send(head("GET", "/health", Connection="keep-alive"))
    assert asked.socket.recv(4096).startswith(b"HTTP/1.1 200")
    spoke.send(b"GET /health HT")
    order = [ports[one] for one in (first, second, asked, spoke)]
    live.until(lambda: [one.client[1] for one in state.silent] == order, 5)
    for victim in (first, second):
        connections.append(Connection(live.port))
        assert victim.status() == 503
    live.until(lambda: len(state.connections) == 4 and set(state.silent) == state.connections, 5)
    spoke.send(b"TP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert spoke.socket.recv(4096).startswith(b"HTTP/1.1 200")
    for one in connections:
        one.close()
    live.until(lambda: not state.silent, 5)


# --- pausing ---------------------------------------------------------------------------------------------------------


def started(live: Live, pool: ThreadPoolExecutor, **options: Any) -> Future[Reply]:
    """A long request that has begun to generate, and goes on with the engine's next command."""
    return all_started(live, pool, options)[0]


def all_started(live: Live, pool: ThreadPoolExecutor, *options: dict[str, Any]) -> list[Future[Reply]]:
    """Several of them, side by side."""
    reached, before = braked(live.core.engine), live.core.engine.running
    with Hold(live):
        running = [pool.submit(ask, live, **one) for one in options]
        live.until(lambda: live.core.engine.running == before + len(options))
    assert reached.wait(20)
    return running


# --- draining and stopping -------------------------------------------------------------------------------------------


def test_draining_finishes_what_runs_and_refuses_the_rest(serve: Callable[..., Live], pool: ThreadPoolExecutor) -> None:
    live = serve()
    alone = ids(ask(live, 200))
    running = all_started(live, pool, {"tokens": 200}, {"tokens": 200, "stream": True})
    with Hold(live):
        live.uvicorn.should_exit = True
        live.until(lambda: live.core.draining)
        refused = ask(live, 2)
        assert refused.status == 503 and int(refused.headers["retry-after"]) > 0
        assert live.ask("GET", "/ready").status == 503 and live.ask("GET", "/health").status == 200
    assert ids(running[0].result(20)) == alone
    streamed = [choice for event in running[1].result(20).events() for choice in event["choices"]]
    assert [token for choice in streamed for token in choice.get("token_ids", ())] == alone
    assert streamed[-1]["finish_reason"] == "length"


def test_what_takes_longer_than_the_drain_is_ended_with_what_it_has(
    random_model_dir: Path, pool: ThreadPoolExecutor
) -> None:
    live = Live(Settings(model=str(random_model_dir)), drain_seconds=0)
    live.ask("POST", "/pause?mode=keep")
    running = pool.submit(ask, live, 490)
    live.until(lambda: live.core.engine.running == 1)
    live.stop()
    ended = running.result(5)
    assert ended.status == 200 and ended.json()["choices"][0]["finish_reason"] == "abort"


KEY = "canary-0123456789-key"


def test_a_process_keeps_its_key_to_itself_idles_and_drains(random_model_dir: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"{KEY}\n")
    served = Served("--api-key-file", keys, model=str(random_model_dir))
    port = served.ready()
    assert served.status("/v1/models") == 401
    wrong = KEY[:-1] + "x"
    for request in (
        post("/v1/completions", b"{" + KEY.encode(), Authorization=f"Bearer {KEY}"),
        post(f"/v1/{KEY}?key={KEY}", {}, Authorization=f"Bearer {KEY}"),
        post("/v1/completions", BODY, Authorization=f"Bearer {wrong}"),
        f"GET /{KEY} HTTP/1.1\r\nAuthorization {KEY}\r\n\r\n".encode(),
    ):
        assert KEY.encode() not in Connection(port).send(request).rest()

    body = BODY | {"max_tokens": 450, "stream": True}
    gone = [Connection(port).send(post("/v1/completions", body, Authorization=f"Bearer {KEY}")) for _ in range(4)]
    for connection in gone:
        assert b"200 OK" in connection.socket.recv(1000)
        connection.reset()
    time.sleep(0.5)
    start = _cpu_seconds(served.process.pid)
    time.sleep(1.5)
    assert _cpu_seconds(served.process.pid) - start < 0.15  # a busy loop would take all of it

    running = Connection(port, 30.0).send(post("/v1/completions", body, Authorization=f"Bearer {KEY}"))
    running.socket.recv(64)
    served.process.send_signal(signal.SIGTERM)
    assert b"data: [DONE]" in running.rest()
    assert served.wait() == 0
    assert KEY not in served.log and wrong not in served.log and "Shutting down" in served.log


@pytest.mark.parametrize(
    ("mode", "warned"), [(0o644, True), (0o640, True), (0o602, True), (0o600, False), (0o400, False)]
)
def test_a_key_file_that_others_may_read_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: int, warned: bool
) -> None:
    """A warning, no refusal: secrets that a container mounts have the mode that the container gives them."""
    from legos_train.cli.serve import _keys

    keys = tmp_path / "keys"
    keys.write_text(f"{KEY}\n")
    keys.chmod(mode)
    assert _keys(keys) == (KEY,)
    err = capsys.readouterr().err
    assert (f"mode {mode:04o}" in err and "chmod 600" in err) == warned and KEY not in err


def _cpu_seconds(pid: int) -> float:
    import os

    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
def test_a_process_ends_cleanly_while_its_model_loads(random_model_dir: Path) -> None:
    served = Served(model=str(random_model_dir))
    served.listening()
    assert served.end(signal.SIGINT) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host", "0.0.0.0"], "--api-key-file"),
        (["--host", "::"], "--api-key-file"),
        (["--host", "127.0.0.2"], "--api-key-file"),
        (["--api-key-file", "SHORT"], "16 or more characters"),
        (["--api-key-file", "EMPTY"], "16 or more characters"),
        (["--api-key-file", "MISSING"], "MISSING"),
        (["--adapter", "nameless"], "NAME=PATH"),
        (["--adapter", "a=tiny+LORA", "--adapter", "a=tiny+LORA"], "two --adapter are named 'a'"),
    ],
)
def test_servers_that_should_not_run_do_not_start(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    message: str,
) -> None:
    (tmp_path / "SHORT").write_text("secret\n")
    (tmp_path / "EMPTY").write_text("\n")
    (tmp_path / "LORA").mkdir()
    (tmp_path / "LORA/adapter_config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    try:
        code: object = main(["serve", "--port", "0", *options])
    except SystemExit as error:
        code = error.code
    err = capsys.readouterr().err
    assert code not in (0, None) and message in err and "Traceback" not in err
    assert "secret" not in err and "Uvicorn running" not in err
