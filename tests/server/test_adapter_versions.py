"""What is served under a name is one publication, whole: not a late one, not half of one, not a mixture of two."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from test_adapters_http import LONG, adapters, during, load, said
from test_running import Hold

from benchmarks.wire import Connection, Live, Reply, head
from inference.engine import exact, prompt_reading
from inference.server import Settings, adapter_store

Put = Callable[..., Reply]
Bytes = Callable[..., bytes]


def refused(reply: Reply, status: int) -> str:
    assert reply.status == status, reply
    return str(reply.json()["error"]["message"])


def test_a_late_or_altered_repeat_of_a_publication_loses(live: Live, put: Put, adapter_bytes: Bytes) -> None:
    one, two = adapter_bytes(1), adapter_bytes(2)
    assert put("a", one, "?version=3").status == 200
    now = put("a", two, "?version=5").json()
    spoken = said(live, "a")
    assert (spoken["policy_version"], spoken["adapter_digest"]) == (5, now["digest"])

    def nothing_has_changed() -> None:
        assert {name: (i["version"], i["digest"]) for name, i in adapters(live).items()} == {"a": (5, now["digest"])}
        again = said(live, "a")
        assert (again["token_ids"], again["adapter_digest"]) == (spoken["token_ids"], now["digest"])

    assert put("a", two, "?version=5").json() == now | {"seconds": pytest.approx(0, abs=9)}
    assert "with other weights" in refused(put("a", one, "?version=5"), 409)
    assert "older than version 5" in refused(put("a", one, "?version=3"), 409)
    assert "older than version 5" in refused(put("a", two, "?version=4"), 409)
    nothing_has_changed()
    assert put("b", one, "?version=1").status == 200, "another name counts for itself"
    assert live.ask("DELETE", "/v1/adapters/b").status == 200
    nothing_has_changed()

    assert live.ask("DELETE", "/v1/adapters/a").status == 200
    for body, query, why in ((two, "?version=5", "was taken away"), (one, "?version=3", "older"), (one, "", "")):
        reply = put("a", body, query)
        if why:
            assert why in refused(reply, 409) and adapters(live) == {}
    assert reply.json()["version"] == 6, "numbers go on where they were"


def test_base_and_stream_say_whose_weights_spoke(live: Live, put: Put, adapter_bytes: Bytes) -> None:
    digest = put("a", adapter_bytes(1)).json()["digest"]
    assert said(live, None)["adapter_digest"] is None
    body = {"model": "a", "prompt": "x", "max_tokens": 3, "stream": True, "ignore_eos": True}
    final = live.ask("POST", "/v1/completions", body).events()[-1]["choices"][0]
    assert (final["adapter"], final["adapter_digest"]) == ("a", digest)


def test_an_echoed_prompt_names_the_version_that_read_it(
    live: Live, put: Put, adapter_bytes: Bytes, make_adapter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next version is published when the prompt has been read, before the answer is written."""
    digest = put("a", adapter_bytes(1)).json()["digest"]
    engine = live.run(live.core.engine.call(lambda engine: engine))
    options: dict[str, Any] = {"echo": True, "logprobs": 0, "max_tokens": 0}
    alone, weights = said(live, "a", **options), make_adapter(2)

    def swapping(*arguments: Any) -> Iterator[Any]:
        yield from prompt_reading.read_prompt(*arguments)
        engine.publish("a", weights, scale=1.0, version=2)

    monkeypatch.setattr(exact, "read_prompt", swapping)
    assert (alone["policy_version"], alone["adapter_digest"]) == (1, digest)
    assert said(live, "a", **options) == alone and adapters(live)["a"]["version"] == 2


def test_metrics_count_prompts_that_were_only_echoed(live: Live) -> None:
    value = live.core.metrics.registry.get_sample_value
    names = ("legos_prompt_tokens_total", "legos_completions_total"), ({}, {"reason": "length"})
    before = [value(name, labels) or 0.0 for name, labels in zip(*names)]
    body = {"prompt": [[5, 6, 7], [5, 6]], "echo": True, "max_tokens": 0}
    assert live.ask("POST", "/v1/completions", body).status == 200
    assert [value(name, labels) - was for name, labels, was in zip(*names, before)] == [5, 2]


def test_an_echoed_prompt_and_its_completion_are_of_one_version(
    live: Live, put: Put, adapter_bytes: Bytes, make_adapter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prompt's numbers were those of the version before, beside tokens and a label of the new one."""
    put("a", adapter_bytes(1))
    engine = live.run(live.core.engine.call(lambda engine: engine))
    options: dict[str, Any] = {"echo": True, "logprobs": 0, "max_tokens": 3}
    weights = make_adapter(2)

    def swapping(*arguments: Any) -> Iterator[Any]:
        yield from prompt_reading.read_prompt(*arguments)
        engine.publish("a", weights, scale=1.0, version=2, monotone=True)

    with monkeypatch.context() as patch:
        patch.setattr(exact, "read_prompt", swapping)
        found = said(live, "a", **options)
    one, other = (choice["logprobs"]["token_logprobs"][1:] for choice in (found, said(live, "a", **options)))
    assert found["policy_version"] == 2 and one == pytest.approx(other, abs=1e-4)


def test_a_repeated_publication_ends_no_request(live: Live, put: Put, adapter_bytes: Bytes) -> None:
    assert put("a", adapter_bytes(1), "?version=1").status == 200
    running, published, _ = during(live, lambda: put("a", adapter_bytes(1), "?version=1&mode=abort"))
    assert published.status == 200 and running["finish_reason"] == "length"
    assert len(running["token_ids"]) == LONG["max_tokens"]


def overflowing(weights: dict[str, Any]) -> dict[str, Any]:
    """Finite, until the scale is on them."""
    import mlx.core as mx

    name = min(name for name in weights if name.endswith("lora_b"))
    return weights | {name: mx.full(weights[name].shape, 3e38)}


def exploding(weights: dict[str, Any]) -> dict[str, Any]:
    """Finite with the scale on them, and their products are not."""
    return {name: w * 1e30 for name, w in weights.items()}


@pytest.mark.parametrize(
    ("change", "scale", "message"),
    [(overflowing, 900000.0, "times the scale 900000"), (exploding, 1.0, "logits are not finite")],
)
def test_adapters_that_are_finite_at_first_sight_never_become_live(
    live: Live,
    put: Put,
    adapter_bytes: Bytes,
    adapter_root: Path,
    change: Callable[[dict[str, Any]], dict[str, Any]],
    scale: float,
    message: str,
) -> None:
    assert put("a", adapter_bytes(1), "?version=1").status == 200
    before = said(live, "a")
    body = adapter_bytes(2, change=change)
    assert message in refused(put("a", body, f"?scale={scale!r}"), 400)
    with folder_of(adapter_root, body, scale):
        assert message in refused(load(live, "written", "a"), 400)
        assert message in refused(load(live, "written", "new"), 400)
    assert (said(live, "a")["token_ids"], adapters(live).keys()) == (before["token_ids"], {"a"})


# --- torn uploads and files ------------------------------------------------------------------------------------------


@contextmanager
def folder_of(root: Path, weights: bytes, scale: float = 1.0) -> Iterator[Path]:
    """An adapter's directory below the root."""
    made = root / "written"
    made.mkdir(parents=True)
    try:
        write(made, weights, scale)
        yield made
    finally:
        shutil.rmtree(made)


def write(folder: Path, weights: bytes, scale: float = 1.0) -> None:
    (folder / "adapters.safetensors").write_bytes(weights)
    config = f'{{"fine_tune_type": "lora", "lora_parameters": {{"rank": 4, "scale": {scale!r}}}}}'
    (folder / "adapter_config.json").write_text(config)


def test_an_upload_that_is_cut_off_changes_nothing(live: Live, put: Put, adapter_bytes: Bytes) -> None:
    """By FIN and by RST, at any byte of head and body; with a Content-Length and in chunks."""
    assert put("a", adapter_bytes(1), "?version=1").status == 200
    before, at_rest, faults = said(live, "a"), live.holds(), live.core.metrics.answers.labels("500")._value.get()
    body = adapter_bytes(2)
    signed = {"X_Content_SHA256": hashlib.sha256(body).hexdigest()}
    sized = head("PUT", "/v1/adapters/a?version=2", Content_Length=len(body), **signed) + body
    chunks = b"".join(
        b"%x\r\n%s\r\n" % (len(body[i : i + 7000]), body[i : i + 7000]) for i in range(0, len(body), 7000)
    )
    chunked = head("PUT", "/v1/adapters/a?version=2", Transfer_Encoding="chunked", **signed) + chunks  # and no end
    draw = random.Random(1)
    for number in range(24):
        data = sized if number % 2 else chunked
        cut = len(data) if data is chunked and number < 4 else draw.randrange(1, len(data))
        connection = Connection(live.port).send(data[:cut])
        connection.reset() if draw.random() < 0.5 else connection.close()
    live.until(lambda: live.holds()["tasks"] <= at_rest["tasks"], 10)
    assert live.core.metrics.answers.labels("500")._value.get() == faults, "a client that leaves is not our fault"
    now = said(live, "a")
    assert (now["token_ids"], now["adapter_digest"]) == (before["token_ids"], before["adapter_digest"])
    assert adapters(live)["a"]["version"] == 1
    assert put("a", body, "?version=2").status == 200, "what was cut off is not counted"


def test_an_upload_needs_no_disk(live: Live, put: Put, adapter_bytes: Bytes) -> None:
    """So a full one cannot tear it."""
    bodies = [adapter_bytes(seed) for seed in (1, 2)]
    written: list[Any] = []
    watching = True

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR):
            written.append(arguments[0])

    sys.addaudithook(hook)
    try:
        assert [put("a", body).status for body in bodies] == [200, 200]
    finally:
        watching = False
    assert written == []


def races(live: Live, adapter_root: Path, bodies: list[bytes], count: int) -> dict[int, int]:
    """Statuses of `count` loads of a directory that somebody writes all the time; what is served is always whole."""
    import mlx.core as mx

    from inference.adapters import adapter_digest
    from inference.files import adapter_files

    scales = [1.0, 2.0]
    mx.eval(whole := [adapter_files.adapter_tensors(body) for body in bodies])
    whole_digests = {adapter_digest(one, scale) for one, scale in zip(whole, scales, strict=True)}
    over = threading.Event()

    def writer(folder: Path) -> None:
        draw, which = random.Random(2), 0
        while not over.wait(draw.choice([0.0, 0.002, 0.05, 0.1])):
            which = 1 - which
            kind = draw.randrange(3)
            if kind == 0:  # in place, one file after the other
                write(folder, bodies[which], scales[which])
            elif kind == 1:  # cut short for a while
                with open(folder / "adapters.safetensors", "r+b") as file:
                    file.truncate(len(bodies[which]) // 2)
                    over.wait(0.01)
                write(folder, bodies[which], scales[which])
            else:  # as the trainer does it: a new directory in one step
                new, old = folder.with_name("new"), folder.with_name("old")
                new.mkdir()
                write(new, bodies[which], scales[which])
                os.rename(folder, old)
                os.rename(new, folder)
                shutil.rmtree(old)

    statuses: dict[int, int] = {}
    with folder_of(adapter_root, bodies[0], scales[0]) as folder:
        thread = threading.Thread(target=writer, args=(folder,))
        thread.start()
        try:
            for _ in range(count):
                reply = load(live, "written", "raced")
                statuses[reply.status] = statuses.get(reply.status, 0) + 1
                if reply.status == 200:
                    assert reply.json()["digest"] in whole_digests
                assert adapters(live).get("raced", {"digest": None})["digest"] in {None, *whole_digests}
        finally:
            over.set()
            thread.join()
    live.ask("DELETE", "/v1/adapters/raced")
    return statuses


def test_files_that_change_while_they_are_read_are_never_served_as_a_mixture(
    live: Live, adapter_root: Path, adapter_bytes: Bytes
) -> None:
    statuses = races(live, adapter_root, [adapter_bytes(1), adapter_bytes(2)], 12)
    assert statuses.keys() <= {200, 400, 404} and statuses[200] >= 3


@pytest.mark.slow
def test_five_hundred_races_with_a_writer(live: Live, adapter_root: Path, adapter_bytes: Bytes) -> None:
    statuses = races(live, adapter_root, [adapter_bytes(1), adapter_bytes(2)], 500)
    assert statuses.keys() <= {200, 400, 404} and statuses[200] >= 50


def test_an_adapter_that_goes_while_a_request_waits_is_not_found(
    live: Live, put: Put, adapter_bytes: Bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names are looked up on the event loop, whoever reads the text."""
    threads: list[str] = []
    resolve = live.core.resolve
    monkeypatch.setattr(
        live.core, "resolve", lambda name: [threads.append(threading.current_thread().name), resolve(name)][1]
    )
    assert put("a", adapter_bytes(1)).status == 200
    live.loop.call_soon_threadsafe(live.core.gate.clear)  # as /pause?mode=wait does
    with ThreadPoolExecutor() as pool:
        bodies = [{"model": "a", "prompt": "bet " * count, "max_tokens": 1} for count in (1, 1500)]
        waiting = [pool.submit(live.ask, "POST", "/v1/completions", body) for body in bodies]
        live.until(lambda: live.core._coming == 2)
        assert live.ask("DELETE", "/v1/adapters/a").status == 200
        live.loop.call_soon_threadsafe(live.core.gate.set)
        for one in waiting:
            assert "'a' is published" in refused(one.result(20), 404)
    assert threads == ["server"] * 2


def test_adapters_are_prepared_in_threads_that_stay(
    live: Live, put: Put, adapter_bytes: Bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLX never gives back what it keeps for a thread; a server that made one for each upload would grow."""
    engine = live.run(live.core.engine.call(lambda engine: engine))
    threads: list[tuple[str, int]] = []
    prepare = engine.prepare

    def seen(*args: Any, **options: Any) -> Any:
        threads.append((threading.current_thread().name, threading.get_ident()))
        return prepare(*args, **options)

    monkeypatch.setattr(engine, "prepare", seen)
    assert [put("a", adapter_bytes(seed)).status for seed in range(1, 9)] == [200] * 8
    assert {name[:-2] for name, _ in threads} == {"adapters"} and len(set(threads)) <= adapter_store.PREPARED_AT_ONCE


# --- room ------------------------------------------------------------------------------------------------------------


def test_what_nobody_asks_for_makes_room_and_may_come_back(
    random_model_dir: Path, adapter_bytes: Bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was killed leaves its adapters behind; those of runs that go on are not touched."""
    write(tmp_path, adapter_bytes(5))
    server = Live(Settings(model=str(random_model_dir), adapters={"start": tmp_path}, max_adapters=3))
    try:

        def send(name: str, seed: int, version: int = 7) -> Reply:
            body = adapter_bytes(seed)
            signed = {"X-Content-SHA256": hashlib.sha256(body).hexdigest()}
            return server.ask("PUT", f"/v1/adapters/{name}?version={version}", body, signed)

        assert [send("left", 1).status, send("used", 2).status] == [200, 200]
        full = refused(send("third", 3), 400)
        assert "--max-adapters" in full and "unload one" in full
        monkeypatch.setattr(adapter_store, "IDLE_SECONDS", 0.2)
        server.until(lambda: bool(said(server, "used")) and send("third", 3).status == 200, 10)
        assert adapters(server).keys() == {"start", "used", "third"}
        time.sleep(0.3)
        assert send("left", 2).status == 409 and "third" in adapters(server), "what is refused takes nobody's place"
        gone = server.ask("POST", "/v1/completions", {"model": "left", "prompt": "x"})
        assert gone.status == 404
        server.until(lambda: bool(said(server, "used")) and send("left", 1).status == 200, 10)
        assert adapters(server).keys() == {"start", "used", "left"} and adapters(server)["left"]["version"] == 7
        assert send("left", 2).status == 409
        time.sleep(0.3)
        assert send("fourth", 4).status == 200
        assert adapters(server).keys() == {"start", "left", "fourth"}, "who was asked for last stays"
        assert server.core.adapters._used.keys() <= server.core.adapters.versions.keys()
    finally:
        server.stop()


def test_what_was_published_over_a_folder_of_its_name_does_not_make_room_for_it(
    serve: Callable[..., Live], adapter_bytes: Bytes, tmp_path: Path
) -> None:
    """It could not be fetched again: the folder's weights came back instead, as a newer version."""
    (tmp_path / "a").mkdir()
    write(tmp_path / "a", adapter_bytes(1))
    server = serve(adapter_root=tmp_path, max_adapters=1)

    def send(name: str, version: int) -> Reply:
        body = adapter_bytes(2)
        signed = {"X-Content-SHA256": hashlib.sha256(body).hexdigest()}
        return server.ask("PUT", f"/v1/adapters/{name}?version={version}", body, signed)

    assert said(server, "a")["policy_version"] == 1
    assert send("b", 1).status == 200, "what was fetched makes room at any time"
    assert server.ask("DELETE", "/v1/adapters/b").status == 200
    assert said(server, "a")["policy_version"] == 2
    digest = send("a", 5).json()["digest"]
    assert "--max-adapters" in refused(send("c", 1), 400)
    assert (said(server, "a")["policy_version"], said(server, "a")["adapter_digest"]) == (5, digest)


def test_an_adapter_that_is_being_evicted_is_fetched_again(
    serve: Callable[..., Live], pool: ThreadPoolExecutor, adapter_bytes: Bytes, tmp_path: Path
) -> None:
    """A request that came in between was answered 404, although the folder was there."""
    (tmp_path / "a").mkdir()
    write(tmp_path / "a", adapter_bytes(0))
    server = serve(adapter_root=tmp_path, max_adapters=1)
    assert said(server, "a")["policy_version"] == 1
    with Hold(server):
        leaving = pool.submit(server.ask, "DELETE", "/v1/adapters/a")
        server.until(lambda: "a" not in server.core.adapters.versions)
        coming = pool.submit(said, server, "a")
        time.sleep(0.1)
    assert leaving.result(10).status == 200 and coming.result(20)["adapter"] == "a"


def test_an_adapter_that_a_request_is_about_to_use_makes_no_room(
    serve: Callable[..., Live], pool: ThreadPoolExecutor, adapter_bytes: Bytes, tmp_path: Path
) -> None:
    """Between its name and its turn a request is tokenised, or waits at the gate; it was answered 404 then."""
    for seed, name in enumerate("ab"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, adapter_bytes(seed))
    server = serve(adapter_root=tmp_path, max_adapters=1)

    async def gate(open_: bool) -> None:
        server.core.gate.set() if open_ else server.core.gate.clear()

    server.run(gate(False))
    waiting = pool.submit(said, server, "a")
    server.until(lambda: server.core._coming == 1)
    other = server.ask("POST", "/tokenize", {"model": "b", "prompt": "x"})
    server.run(gate(True))
    assert waiting.result(20)["adapter"] == "a"
    assert "--max-adapters" in refused(other, 429) and int(other.headers["retry-after"]) > 0, "it is only busy"
    assert server.ask("POST", "/tokenize", {"model": "b", "prompt": "x"}).status == 200, "now it has made room"
