"""An engine in its own thread: requests from coroutines, faults, health, and a clean end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asking import change, query
from test_engine import PROMPTS

from inference import AsyncEngine, Completion, Engine, InferenceError
from inference.engine.worker import Worker
from inference.types import Delta

LONG = query(PROMPTS[0], max_tokens=400, temperature=1.0, seed=1, stop_ids=frozenset())


@pytest.fixture
def make(random_model_dir: Path) -> Callable[[], Engine]:
    return lambda: Engine.load(random_model_dir)


def run(coroutine: Any) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, 60))


def test_coroutines_get_what_the_engine_gives(make: Callable[[], Engine]) -> None:
    requests = [change(LONG, max_tokens=6, seed=i, prompt=PROMPTS[i % 4]) for i in range(20)]

    async def all_of_them() -> list[Completion]:
        async with AsyncEngine(make) as engine:
            return list(await asyncio.gather(*(engine.complete(request) for request in requests)))

    threads = threading.active_count()
    found = run(all_of_them())
    with make() as engine:
        expected = engine.generate(requests)
    assert [c.tokens for c in found] == [c.tokens for c in expected]
    assert threading.active_count() <= threads + 1  # asyncio keeps a helper thread of its own


def test_tokens_arrive_before_the_completion_and_leaving_aborts(make: Callable[[], Engine]) -> None:
    async def leave_early() -> tuple[list[Any], int]:
        async with AsyncEngine(make) as engine:
            [number] = await engine.submit([change(LONG, stream=True)])
            seen = []
            stream = engine.events(number)
            async for event in stream:
                seen.append(event)
                if len(seen) == 3:
                    break
            await stream.aclose()
            steps = engine.worker.steps
            while await engine.call(lambda e: e.busy):
                assert engine.worker.steps < steps + 100, "it goes on for 400 tokens"
            return seen, engine.running

    seen, running = run(leave_early())
    assert all(isinstance(event, Delta) for event in seen) and running == 0


def test_a_caller_that_is_gone_before_its_ids_are_there_leaves_nothing_behind(make: Callable[[], Engine]) -> None:
    async def vanish() -> None:
        async with AsyncEngine(make) as engine:
            hold = threading.Event()
            blocked = asyncio.ensure_future(engine.call(lambda e: hold.wait(10)))
            await asyncio.sleep(0.05)
            submission = asyncio.ensure_future(engine.submit([LONG, LONG]))
            await asyncio.sleep(0.05)
            submission.cancel()
            hold.set()
            await blocked
            with pytest.raises(asyncio.CancelledError):
                await submission
            start = time.monotonic()
            while await engine.call(lambda e: e.busy):
                assert time.monotonic() - start < 20
                await asyncio.sleep(0.01)
            assert engine.running == 0

    run(vanish())


def test_a_bad_request_refuses_the_whole_submission(make: Callable[[], Engine]) -> None:
    async def refused() -> None:
        async with AsyncEngine(make) as engine:
            with pytest.raises(ValueError, match="temperature"):
                await engine.submit([LONG, change(LONG, temperature=-1.0)])
            good = await engine.complete(change(LONG, max_tokens=2))
            assert good.finish_reason == "length" and engine.running == 0

    run(refused())


def test_a_fault_nobody_foresaw_ends_its_requests_and_not_the_engine(make: Callable[[], Engine]) -> None:
    async def fault() -> None:
        async with AsyncEngine(make) as engine:
            step = engine.worker

            def break_once(e: Engine) -> None:
                real = e._scheduler.plan

                def plan() -> Any:
                    e._scheduler.plan = real
                    raise RuntimeError("out of the blue")

                e._scheduler.plan = plan

            await engine.call(break_once)
            bad = await engine.complete(change(LONG, max_tokens=5))
            assert (bad.finish_reason, bad.error) == ("error", "RuntimeError: out of the blue")
            good = await engine.complete(change(LONG, max_tokens=5))
            assert good.finish_reason == "length" and step.healthy()

    run(fault())


def test_health_tells_a_stuck_engine_from_an_idle_and_a_paused_one(make: Callable[[], Engine]) -> None:
    async def watch() -> None:
        async with AsyncEngine(make) as engine:
            worker = engine.worker
            await asyncio.sleep(0.3)
            assert worker.healthy(stuck_after=0.2)  # idle
            brief = asyncio.ensure_future(engine.call(lambda e: time.sleep(0.1)))
            await asyncio.sleep(0.05)
            assert worker.healthy(stuck_after=0.2)  # its last step was long ago, but this one only began
            await brief
            hold = threading.Event()
            stuck = asyncio.ensure_future(engine.call(lambda e: hold.wait(10)))
            waiting = asyncio.ensure_future(engine.complete(change(LONG, max_tokens=2)))
            await asyncio.sleep(0.4)
            assert not worker.healthy(stuck_after=0.2)
            hold.set()
            await stuck
            await waiting
            assert worker.healthy(stuck_after=0.2)
            worker.paused = True
            held = asyncio.ensure_future(engine.complete(change(LONG, max_tokens=2)))
            await asyncio.sleep(0.3)
            assert not held.done() and worker.healthy(stuck_after=0.2)
            worker.paused = False
            await engine.call(lambda e: None)
            assert (await held).finish_reason == "length"

    run(watch())


@pytest.mark.slow
def test_an_idle_worker_uses_no_processor_time(make: Callable[[], Engine]) -> None:
    async def idle() -> float:
        async with AsyncEngine(make) as engine:
            await engine.complete(change(LONG, max_tokens=3))
            start = time.process_time()
            await asyncio.sleep(1.0)
            return time.process_time() - start

    assert run(idle()) < 0.1


def test_closing_ends_what_runs_with_an_error(make: Callable[[], Engine]) -> None:
    async def close() -> Completion:
        engine = AsyncEngine(make)
        await engine.start()
        running = asyncio.ensure_future(engine.complete(LONG))
        await asyncio.sleep(0.05)
        await engine.close()
        with pytest.raises(InferenceError, match="shutting down"):
            await engine.complete(LONG)
        return await running

    completion = run(close())
    assert (completion.finish_reason, completion.error) == ("error", "the engine was shut down")


def test_what_making_the_engine_raises_is_told() -> None:
    def fail() -> Engine:
        raise FileNotFoundError("no such model")

    worker = Worker(fail, lambda events: None)
    worker.start()
    with pytest.raises(FileNotFoundError, match="no such model"):
        worker.ready.result(5)
    assert not worker.healthy()
    worker.close()


def test_completions_may_be_read_late_and_in_any_order(make: Callable[[], Engine]) -> None:
    async def late() -> None:
        async with AsyncEngine(make) as engine:
            ids = await engine.submit([change(LONG, max_tokens=2, seed=i) for i in range(3)])
            while engine.running:
                await asyncio.sleep(0.01)
            for number in reversed(ids):
                assert [event.request_id async for event in engine.events(number)] == [number]
            [unread] = await engine.submit([change(LONG, max_tokens=2)])
            while engine.running:
                await asyncio.sleep(0.01)
            engine.abort(unread)
            assert not engine._listeners and not engine._ended

    run(late())


def test_events_that_come_while_the_loop_is_busy_are_neither_lost_nor_kept_for_nobody(
    make: Callable[[], Engine],
) -> None:
    async def busy() -> None:
        async with AsyncEngine(make) as engine:
            [left] = await engine.submit([LONG])
            engine.abort(left)
            submission = asyncio.ensure_future(engine.submit([change(LONG, max_tokens=2)]))
            await asyncio.sleep(0)
            while engine.worker.call(lambda e: e.busy).result(20):
                pass  # both requests end before the loop hears of anything
            [number] = await submission
            assert engine.running == 0  # it has ended, unread
            assert [event.request_id async for event in engine.events(number)] == [number]
            kept = {name for name, value in vars(engine).items() if isinstance(value, dict | set) and value}
            assert engine.running == 0 and not kept

    run(busy())


def test_what_asks_an_engine_that_could_not_be_made_or_has_ended_is_told(make: Callable[[], Engine]) -> None:
    hold = threading.Event()

    def fail() -> Engine:
        hold.wait(10)
        raise FileNotFoundError("no such model")

    worker = Worker(fail, lambda events: None)
    worker.start()
    early = worker.call(lambda engine: engine.busy)
    hold.set()
    with pytest.raises(InferenceError, match="could not be made: no such model"):
        early.result(5)
    with pytest.raises(InferenceError, match="could not be made: no such model"):
        worker.call(lambda engine: engine.busy)

    worker = Worker(make, lambda events: None)
    worker.start()
    worker.close()
    worker._closing = False  # as for a call that looked just before
    with pytest.raises(InferenceError, match="shutting down"):
        worker.call(lambda engine: engine.busy)


def test_what_is_refused_does_not_count_as_running(make: Callable[[], Engine]) -> None:
    async def refused() -> None:
        async with AsyncEngine(make) as engine:
            with pytest.raises(ValueError, match="prompt"):
                await engine.submit([LONG, change(LONG, prompt=())])
            await asyncio.sleep(0)
            assert engine.running == 0 and not engine._listeners

    run(refused())
