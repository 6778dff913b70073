"""Adapters over HTTP: bytes and paths, good and bad; a failed publication leaves the version before serving."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_openai_client import IDS, log_softmax

from benchmarks.wire import Live, Reply
from inference.server import Settings
from inference.server.settings import Limits

Put = Callable[..., Any]
Bytes = Callable[..., bytes]


def said(live: Live, model: str | None, **options: Any) -> Any:
    """The choice of a greedy completion."""
    body = {"model": model, "prompt": IDS, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    reply = live.ask("POST", "/v1/completions", body | {"return_token_ids": True} | options)
    assert reply.status == 200, reply
    return reply.json()["choices"][0]


def adapters(live: Live) -> Any:
    return live.ask("GET", "/v1/legos/info").json()["adapters"]


def test_bytes_are_published_counted_listed_and_unloaded(live: Live, put: Put, adapter_bytes: Bytes) -> None:
    base = said(live, None)
    first = put("a", adapter_bytes(1)).json()
    assert (first["adapter"], first["version"], first["mode"]) == ("a", 1, "pin")
    one = said(live, "a")
    assert (one["adapter"], one["policy_version"]) == ("a", 1) and one["token_ids"] != base["token_ids"]
    second = put("a", adapter_bytes(2)).json()
    two = said(live, "a")
    assert (second["version"], two["policy_version"]) == (2, 2) and two["token_ids"] != one["token_ids"]
    assert put("a", adapter_bytes(1), "?version=17").json() == first | {
        "version": 17,
        "seconds": pytest.approx(0, abs=9),
    }
    assert said(live, "a")["token_ids"] == one["token_ids"]
    assert put("a", adapter_bytes(2)).json()["version"] == 18
    assert put("b", adapter_bytes(1, scale=None), "?scale=0.5").status == 200
    assert adapters(live) == {
        "a": {"version": 18, "digest": second["digest"], "rank": 4, "running": 0},
        "b": {"version": 1, "digest": adapters(live)["b"]["digest"], "rank": 4, "running": 0},
    }
    assert adapters(live)["b"]["digest"] != first["digest"]  # the scale is part of what an adapter is
    listed = live.ask("GET", "/v1/models").json()["data"]
    assert [(m["id"], m.get("parent"), m.get("policy_version")) for m in listed[1:]] == [
        ("a", listed[0]["id"], 18),
        ("b", listed[0]["id"], 1),
    ]
    assert live.ask("POST", "/v1/unload_lora_adapter", {"lora_name": "a"}).status == 200
    assert live.ask("DELETE", "/v1/adapters/b").status == 200
    assert adapters(live) == {} and said(live, None)["token_ids"] == base["token_ids"]
    gone = live.ask("POST", "/v1/completions", {"model": "a", "prompt": "x"})
    assert gone.status == 404 and live.ask("DELETE", "/v1/adapters/b").status == 404


def test_info_names_what_is_served(live: Live, model: str, random_model_dir: Path) -> None:
    from inference import base_digest

    info = live.ask("GET", "/v1/legos/info").json()
    assert (info["protocol"], info["model"], info["context"], info["max_lora_rank"]) == (3, model, 512, 64)
    assert info["max_adapters"] == live.core.settings.max_adapters
    assert info["base_digest"] == base_digest(random_model_dir)
    assert len({info["base_digest"], info["tokenizer_digest"], info["template_digest"]}) == 3
    assert all(len(info[f"{what}_digest"]) == 64 for what in ("base", "tokenizer", "template"))


def test_digest_and_scale_must_be_there_and_right(live: Live, put: Put, adapter_bytes: Bytes) -> None:
    body = adapter_bytes(1)
    for digest in (None, "0" * 64, "", "é" * 32):
        reply = put("a", body, digest=digest) if digest != "" else live.ask("PUT", "/v1/adapters/a", body)
        assert reply.status == 400 and "X-Content-SHA256" in reply.json()["error"]["message"]
    bare = put("a", adapter_bytes(1, scale=None))
    assert bare.status == 400 and "scale" in bare.json()["error"]["message"]
    for scale in ("nan", "inf", "1e99", "x"):
        assert put("a", body, f"?scale={scale}").status == 400
    assert put("a", adapter_bytes(1, scale=float("nan"))).status == 400
    for query in ("?version=-1", "?version=x", "?mode=now", f"?version={1 << 70}"):
        assert put("a", body, query).status == 400
    assert adapters(live) == {}


def test_a_rank_above_the_limit_is_refused(put: Put, adapter_bytes: Bytes) -> None:
    assert put("a", adapter_bytes(1, rank=64)).status == 200
    reply = put("a", adapter_bytes(1, rank=65))
    assert reply.status == 400 and "rank 65" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", ".hidden", "-x", "a/b", "a%2Fb", "%2e%2e", "a b", "a%00b", "x" * 65, "é", "a\\b", "a%0a", "${x}"],
)
def test_odd_names_are_refused(live: Live, put: Put, adapter_bytes: Bytes, name: str) -> None:
    from urllib.parse import quote

    path = name if "%" in name else quote(name)
    assert put(path, adapter_bytes(1)).status in (400, 404, 405)
    assert live.ask("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": "x"}).status == 400
    assert adapters(live) == {}


# --- by path ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(adapter_root: Path, make_mlx_lm_adapter: Any) -> Path:
    """An adapter in mlx-lm's layout below the root."""
    made: Path = adapter_root / "runs" / "step_10"
    if not made.exists():
        shutil.copytree(make_mlx_lm_adapter[0], made)
    return made


@pytest.fixture(scope="session")
def make_mlx_lm_adapter(random_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A directory written by mlx-lm's own means, and the model with its LoRA layers."""
    import mlx.core as mx
    from mlx.utils import tree_flatten, tree_map_with_path
    from mlx_lm.tuner.utils import linear_to_lora_layers
    from mlx_lm.utils import save_config

    from inference import loading

    network, _, _ = loading.load(random_model_dir)
    network.freeze()
    parameters = {"rank": 4, "scale": 3.0, "dropout": 0.0, "keys": ["self_attn.q_proj", "mlp.down_proj"]}
    linear_to_lora_layers(network, 2, parameters)
    keys = iter(mx.random.split(mx.random.key(3), 20))
    drawn = tree_map_with_path(
        lambda _, weight: mx.random.normal(weight.shape, key=next(keys)) * 0.4, network.trainable_parameters()
    )
    network.update(drawn)
    made = tmp_path_factory.mktemp("mlx_lm_adapter")
    weights = dict(tree_flatten(network.trainable_parameters()))
    assert len(weights) == 8
    mx.save_safetensors(str(made / "adapters.safetensors"), weights)
    save_config(
        {"fine_tune_type": "lora", "num_layers": 2, "lora_parameters": parameters}, made / "adapter_config.json"
    )
    return made, network


def load(live: Live, path: object, name: str = "p", **options: Any) -> Reply:
    return live.ask("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(path), **options})


def test_an_adapter_of_mlx_lm_loads_unchanged(live: Live, folder: Path, make_mlx_lm_adapter: Any) -> None:
    assert load(live, "runs/step_10").json()["version"] == 1
    choice = said(live, "p")
    ids = choice["token_ids"]
    expected = log_softmax(make_mlx_lm_adapter[1], IDS + ids)[len(IDS) - 1 : -1]
    assert ids == expected.argmax(-1).tolist() != said(live, None)["token_ids"]
    assert np.abs(np.array(choice["token_logprobs"]) - expected[range(8), ids]).max() < 1e-4
    assert load(live, "runs/step_10").json()["version"] == 2
    assert load(live, "runs/step_10", load_inplace=False).status == 400
    assert load(live, "runs/step_10", version=9, mode="wait").json()["version"] == 9
    assert live.ask("POST", "/v1/unload_lora_adapter", {"lora_name": "p", "lora_int_id": 1}).status == 200


def test_paths_stay_below_the_root(live: Live, folder: Path, adapter_root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    shutil.copytree(folder, outside)
    links = adapter_root / "links"
    links.mkdir()
    (links / "folder").symlink_to(outside)
    (links / "files").mkdir()
    for file in outside.iterdir():
        (links / "files" / file.name).symlink_to(file)
    (links / "loop").symlink_to(links / "loop")
    (links / "inside").symlink_to(folder)
    (adapter_root / "empty").mkdir()
    try:
        up = "../" * len(adapter_root.parts)
        for path in (
            outside, f"{up}{outside}", f"runs/../{up}{outside}", "links/folder", "links/files", "links/loop", "missing",
            "", ".", "..", "empty", "runs/step_10/adapters.safetensors", "x\x00y", "~", "\udcff", "y" * 4000,
        ):  # fmt: skip
            reply = load(live, path)
            assert reply.status in (400, 404), (path, reply)
            assert str(tmp_path) not in reply.body.decode() and str(adapter_root) not in reply.body.decode(), reply
        assert load(live, folder).status == 200  # absolute, and below the root
        assert load(live, "links/inside").status == 200
    finally:
        shutil.rmtree(links)
        (adapter_root / "empty").rmdir()
        live.ask("DELETE", "/v1/adapters/p")
    assert adapters(live) == {}


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("adapter_config.json", b"{"),
        ("adapter_config.json", b"[]"),
        ("adapter_config.json", b'{"fine_tune_type": "full", "lora_parameters": {}}'),
        ("adapter_config.json", b'{"fine_tune_type": "lora", "lora_parameters": {"rank": 8, "scale": 1.0}}'),
        ("adapter_config.json", b'{"lora_parameters": {"rank": 4, "scale": NaN}}'),
        ("adapter_config.json", b"\xff\xfe"),
        ("adapters.safetensors", b""),
        ("adapters.safetensors", b"\x10\x00\x00\x00\x00\x00\x00\x00{}"),
    ],
)
def test_damaged_directories_are_refused(
    live: Live, folder: Path, adapter_root: Path, good: Callable[[], str], file: str, content: bytes
) -> None:
    damaged = adapter_root / "damaged"
    shutil.copytree(folder, damaged)
    try:
        (damaged / file).write_bytes(content)
        reply = load(live, "damaged")
        assert reply.status == 400 and "adapter is refused" in reply.json()["error"]["message"], reply
        assert str(adapter_root) not in reply.body.decode()  # clients need not know where things are
        good()
    finally:
        shutil.rmtree(damaged)


# --- modes, limits ---------------------------------------------------------------------------------------------------

LONG: dict[str, Any] = {"max_tokens": 300, "seed": 1, "temperature": 1.0}


def during(live: Live, publish: Callable[[], Any]) -> tuple[Any, Any, Any]:
    """Publish while a long completion runs: (its choice, what publishing gave, a short one asked for at once)."""
    with ThreadPoolExecutor(2) as pool:
        held = threading.Event()
        stopped = live.core.engine.worker.call(lambda engine: held.wait(20))
        running = pool.submit(said, live, "a", **LONG)
        live.until(lambda: live.core.engine.running == 1)
        publishing = pool.submit(publish)
        # Both commands wait for the engine, in this order.
        live.until(lambda: live.core.engine.worker._commands.qsize() >= 2)
        held.set()
        stopped.result(5)
        published = publishing.result(30)
        return running.result(30), published, said(live, "a")


@pytest.mark.quick("wait")
@pytest.mark.parametrize("mode", ["pin", "keep", "wait", "abort"])
def test_modes(live: Live, put: Put, adapter_bytes: Bytes, mode: str) -> None:
    assert put("a", adapter_bytes(1)).status == 200
    alone = said(live, "a", **LONG)
    assert put("b", adapter_bytes(2)).status == 200
    new = said(live, "b")
    running, published, short = during(live, lambda: put("a", adapter_bytes(2), f"?mode={mode}"))
    assert published.status == 200 and published.json()["mode"] == mode
    assert (short["policy_version"], short["token_ids"]) == (2, new["token_ids"])
    if mode in ("pin", "wait"):
        assert (running["policy_version"], running["token_ids"]) == (1, alone["token_ids"])
        assert running["finish_reason"] == "length" and "token_versions" not in running
    elif mode == "keep":
        versions = running.get("token_versions") or [2] * 300
        assert running["policy_version"] == 2 and versions == sorted(versions) and set(versions) <= {1, 2}
        assert len(versions) == len(running["token_ids"]) == 300 and running["token_ids"] != alone["token_ids"]
    else:
        assert running["finish_reason"] == "abort" and len(running["token_ids"]) < 300
        assert running["token_ids"] == alone["token_ids"][: len(running["token_ids"])]
    assert all(one["running"] == 0 for one in adapters(live).values())


def test_limits_of_the_server(random_model_dir: Path, adapter_bytes: Bytes, make_mlx_lm_adapter: Any) -> None:
    from hashlib import sha256

    settings = Settings(
        model=str(random_model_dir),
        adapters={"start": make_mlx_lm_adapter[0]},
        max_adapters=2,
        max_lora_rank=4,
        limits=Limits(adapter_body=200_000),
    )
    server = Live(settings)
    try:

        def send(name: str, body: bytes) -> Reply:
            return server.ask("PUT", f"/v1/adapters/{name}", body, {"X-Content-SHA256": sha256(body).hexdigest()})

        body = adapter_bytes(1)
        assert adapters(server)["start"]["version"] == 1 and send("start", body).json()["version"] == 2
        assert send("two", body).status == 200
        third = send("three", body)
        assert third.status == 400 and "--max-adapters" in third.json()["error"]["message"]
        assert send("two", body).json()["version"] == 2
        assert send("two", adapter_bytes(1, rank=5)).status == 400
        assert send("two", bytes(200_001)).status == 413
        assert load(server, "x").status == 400  # no --adapter-root
        assert server.ask("DELETE", "/v1/adapters/two").status == 200 and send("three", body).status == 200
    finally:
        server.stop()
