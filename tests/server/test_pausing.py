"""Pausing a server, and clients that leave one that is paused."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from test_running import BODY, Hold, ask, ids, started

from benchmarks.wire import Connection, Live, post
from tests.inference.live import braked


def test_pausing_keeps_ends_or_awaits_what_runs(serve: Callable[..., Live], pool: ThreadPoolExecutor) -> None:
    live = serve()
    alone = ids(ask(live, 150))

    running = started(live, pool, tokens=150)
    assert live.ask("POST", "/pause?mode=keep").json() == {"paused": True, "mode": "keep"}
    steps = live.core.engine.worker.steps
    time.sleep(0.1)
    assert live.core.engine.worker.steps == steps and not running.done()
    assert live.ask("GET", "/is_paused").json() == {"is_paused": True} and live.ask("GET", "/health").status == 200
    assert live.ask("POST", "/resume").json() == {"paused": False}
    assert ids(running.result(20)) == alone

    for _ in range(2):  # it used to depend on who came first
        running = started(live, pool, tokens=150)
        assert live.ask("POST", "/pause").json() == {"paused": True, "mode": "abort"}
        ended = running.result(20)
        assert ended.json()["choices"][0]["finish_reason"] == "abort" and ids(ended) == alone[: len(ids(ended))]
        later = pool.submit(ask, live, 150)
        live.until(lambda: live.core.engine.running == 1)
        time.sleep(0.05)
        assert not later.done()
        live.ask("POST", "/resume")
        assert ids(later.result(20)) == alone

    running = started(live, pool, tokens=150)
    assert live.ask("POST", "/pause?mode=wait").status == 200
    assert ids(running.result(20)) == alone
    assert live.ask("POST", "/pause?mode=wait").status == 200  # twice is once
    live.ask("POST", "/resume")


def test_requests_that_keep_coming_do_not_put_off_a_pause(serve: Callable[..., Live], pool: ThreadPoolExecutor) -> None:
    live = serve()
    running = started(live, pool)
    with Hold(live):
        pausing = pool.submit(live.ask, "POST", "/pause?mode=wait")
        live.until(lambda: not live.core.gate.is_set())
        later = [pool.submit(ask, live, 30, seed=seed) for seed in range(3)]
        time.sleep(0.2)
        assert live.core.engine.running == 1  # they wait at the gate
    assert pausing.result(10).status == 200 and len(ids(running.result(20))) == 150
    live.until(lambda: live.core.engine.running == 3)
    assert live.holds()["rows"] == 0 and not any(one.done() for one in later)
    live.ask("POST", "/resume")
    assert [len(ids(one.result(20))) for one in later] == [30] * 3


def test_resume_ends_a_pause_that_still_waits(serve: Callable[..., Live], pool: ThreadPoolExecutor) -> None:
    """It answered "not paused", and the server froze when the running requests were done."""
    live = serve()
    running = started(live, pool)
    with Hold(live):
        pausing = pool.submit(live.ask, "POST", "/pause?mode=wait")
        live.until(lambda: not live.core.gate.is_set())
        resuming = pool.submit(live.ask, "POST", "/resume")
        time.sleep(0.2)
    assert resuming.result(10).json() == {"paused": False}
    assert pausing.result(10).json() == {"paused": False, "mode": "wait"}
    assert len(ids(running.result(10))) == 150 and live.core.gate.is_set()
    assert live.ask("GET", "/is_paused").json() == {"is_paused": False} and ask(live, 3).status == 200


def test_a_client_that_leaves_takes_its_waiting_pause_back(
    serve: Callable[..., Live], pool: ThreadPoolExecutor
) -> None:
    """Nobody had an answer that told to resume, and the server froze later."""
    live = serve()
    running = started(live, pool)
    with Hold(live):
        gone = Connection(live.port).send(post("/pause?mode=wait", {}))
        live.until(lambda: not live.core.gate.is_set())
        gone.close()
        live.until(live.core.gate.is_set)
    assert len(ids(running.result(10))) == 150
    assert live.ask("GET", "/is_paused").json() == {"is_paused": False} and ask(live, 3).status == 200


def test_streams_that_are_not_read_take_room_in_the_queue(serve: Callable[..., Live]) -> None:
    """Their events were kept without a limit, and counted as nothing."""
    live = serve(max_queue=16)
    body = BODY | {"max_tokens": 480, "n": 16, "stream": True, "logprobs": 20}
    deaf = Connection(live.port)
    deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.send(post("/v1/completions", body))
    live.until(lambda: live.core.engine.held == 16)
    live.until(lambda: live.core.engine.running == 0)
    assert live.core.engine.held > 0 and "not yet read" in ask(live, 3, n=16).json()["error"]["message"]
    deaf.reset()
    live.until(lambda: live.core.engine.held == 0)
    assert ask(live, 3, n=16).status == 200


def test_completions_of_clients_that_left_are_counted(serve: Callable[..., Live]) -> None:
    live = serve()
    gone = Connection(live.port).send(post("/v1/completions", BODY | {"max_tokens": 480, "stream": True}))
    gone.socket.recv(1)
    gone.reset()
    live.until(lambda: 'legos_completions_total{reason="aborted"} 1.0' in live.ask("GET", "/metrics").body.decode())


def test_a_pause_admits_no_more_than_the_queue_holds(serve: Callable[..., Live], pool: ThreadPoolExecutor) -> None:
    live = serve(max_queue=4)
    running = started(live, pool)
    with Hold(live):
        pausing = pool.submit(live.ask, "POST", "/pause?mode=wait")
        live.until(lambda: not live.core.gate.is_set())
        waiting = [pool.submit(ask, live, 3, prompt=text) for text in ("a", "b", "bet " * 1100)]
        live.until(lambda: live.core._coming == 3)
        refused = ask(live, 3)
        assert refused.status == 429 and int(refused.headers["retry-after"]) > 0
        gone = Connection(live.port).send(post("/v1/completions", BODY | {"max_tokens": 3}))
        assert gone.status() == 429
    assert pausing.result(10).status == 200 and len(ids(running.result(20))) == 150
    live.ask("POST", "/resume")
    assert sorted(one.result(20).status for one in waiting) == [200, 200, 400]  # the last is longer than the context
    assert live.core._coming == 0 and ask(live, 3, n=4).status == 200


def test_clients_that_leave_at_the_gate_make_room(serve: Callable[..., Live], pool: ThreadPoolExecutor) -> None:
    live = serve(max_queue=3)
    running = started(live, pool)
    with Hold(live):
        pausing = pool.submit(live.ask, "POST", "/pause?mode=wait")
        live.until(lambda: not live.core.gate.is_set())
        gone = [Connection(live.port).send(post("/v1/completions", BODY | {"max_tokens": 3})) for _ in range(2)]
        live.until(lambda: live.core._coming == 2)
        for connection in gone:
            connection.reset()
        live.until(lambda: live.core._coming == 0)
    assert pausing.result(10).status == 200 and len(ids(running.result(20))) == 150


def test_a_server_that_shuts_down_while_a_pause_waits_answers_what_it_took(
    serve: Callable[..., Live], pool: ThreadPoolExecutor
) -> None:
    live = serve()
    running = started(live, pool)
    with Hold(live):
        pausing = pool.submit(live.ask, "POST", "/pause?mode=wait")
        live.until(lambda: not live.core.gate.is_set())
        waiting = pool.submit(ask, live, 30)
        live.until(lambda: live.core._coming == 1)
        live.uvicorn.should_exit = True
        live.until(lambda: live.core.draining)
    assert len(ids(running.result(10))) == 150 and len(ids(waiting.result(10))) == 30
    assert pausing.result(10).status == 503


def test_a_server_that_shuts_down_waits_for_who_is_at_the_gate(
    serve: Callable[..., Live], pool: ThreadPoolExecutor
) -> None:
    live = serve()
    live.loop.call_soon_threadsafe(live.core.gate.clear)
    live.until(lambda: not live.core.gate.is_set())
    waiting = pool.submit(ask, live, 30)
    live.until(lambda: live.core._coming == 1)
    live.uvicorn.should_exit = True
    live.until(lambda: live.core.draining)
    time.sleep(0.2)  # nothing runs meanwhile
    live.loop.call_soon_threadsafe(live.core.gate.set)
    assert len(ids(waiting.result(10))) == 30


def test_clients_that_leave_a_paused_server_free_what_they_held(serve: Callable[..., Live]) -> None:
    live = serve()
    reached = braked(live.core.engine)
    gone = [
        Connection(live.port).send(post("/v1/completions", BODY | {"max_tokens": 300, "stream": stream}))
        for stream in (True, False)
    ]
    assert reached.wait(20)
    live.ask("POST", "/pause?mode=keep")
    assert live.holds()["rows"] >= 1
    for connection in gone:
        connection.reset()
    live.until(lambda: not any(live.holds()[name] for name in ("rows", "requests", "listeners")), 5.0)
