"""No field of a request, a model or an adapter makes the server or the client open a connection of their own."""

from __future__ import annotations

import functools
import json
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.wire import Live
from inference import ModelNotFound, loading
from inference.server import Settings
from inference.text import Renderer

_ARMED: list[list[str]] = []


@functools.cache
def _watched() -> None:
    """For the rest of the process: there is no way to take it away. So not before it is needed, for it slows all."""
    sys.addaudithook(_watch)


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _ARMED and event in ("socket.connect", "socket.getaddrinfo", "urllib.Request", "subprocess.Popen"):
        _ARMED[-1].append(f"{event} {arguments!r:.300}")


@pytest.fixture
def canary() -> Iterator[Callable[[str], str]]:
    """canary(SPELLING) -> a URL of a server on this machine, spelled so, where nobody may knock."""
    asked: list[str] = []
    _watched()
    _ARMED.append(asked)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        yield lambda spelling: spelling.format(port=port)
        _ARMED.remove(asked)
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
        reached = [what for what in asked if str(port) in what or "canary" in what]
        assert reached == []


SPELLINGS = (
    "http://127.0.0.1:{port}/a", "https://127.0.0.1:{port}/a", "http://localhost:{port}", "//127.0.0.1:{port}/a",
    "http://2130706433:{port}/", "http://0x7f.1:{port}/", "http://[::ffff:127.0.0.1]:{port}/", "http://0:{port}",
    "http://canary.invalid:{port}/", "http://user:pw@127.0.0.1:{port}/", "http:\\\\127.0.0.1:{port}\\a",
    "ftp://127.0.0.1:{port}/a", "file://127.0.0.1:{port}/etc/passwd", "hf://127.0.0.1:{port}/a",
    "data:text/html,<img src=http://127.0.0.1:{port}/>", "canary.invalid/model", "127.0.0.1:{port}/model",
)  # fmt: skip


def test_no_field_of_a_request_is_fetched(live: Live, canary: Callable[[str], str]) -> None:
    for spelling in SPELLINGS:
        url = canary(spelling)
        image = {"type": "image_url", "image_url": {"url": url}}
        bodies: list[tuple[str, str, Any]] = [
            ("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": url}], "max_tokens": 1}),
            ("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": [image]}]}),
            ("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "a", "name": url}]}),
            ("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "tools": [{"url": url}]}),
            *(
                ("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1, name: url})
                for name in ("model", "user", "stop", "suffix", "adapters", "callback", "guided_json", "lora_path")
            ),
            ("POST", "/tokenize", {"prompt": url, "model": url}),
            ("POST", "/v1/load_lora_adapter", {"lora_name": "a", "lora_path": url}),
            ("POST", "/v1/load_lora_adapter", {"lora_name": url, "lora_path": "a"}),
            ("PUT", f"/v1/adapters/a?scale=1&url={url.replace(' ', '')}", b"x"),
        ]
        for method, path, body in bodies:
            assert live.ask(method, path, body, {"Referer": url, "X-Forwarded-Host": url}).status < 500


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_name_of_a_model_is_an_address(canary: Callable[[str], str], spelling: str) -> None:
    name = canary(spelling)
    if loading._HUB_NAME.fullmatch(name):
        return  # `owner/model`: the hub is asked for it, as the person who starts the server has asked
    with pytest.raises(ModelNotFound):
        loading.find_model(name)


def test_no_file_of_a_model_or_an_adapter_is_a_link_elsewhere(
    random_model_dir: Path, tmp_path: Path, canary: Callable[[str], str], make_adapter: Callable[..., Any]
) -> None:
    import mlx.core as mx

    url = canary("http://127.0.0.1:{port}/a")
    folder = tmp_path / "model"
    shutil.copytree(random_model_dir, folder)
    for name, added in {
        "config.json": {"_name_or_path": url, "base_model": url, "vision_tower": url, "tokenizer_class_url": url},
        "tokenizer_config.json": {"name_or_path": url, "vocab_file": url, "tokenizer_file": url, "image_url": url},
        "generation_config.json": {"_from_model_config": True, "url": url},
    }.items():
        file = folder / name
        known = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps(known | added))
    (folder / "chat_template.jinja").write_text(
        "{{ '" + url + "' }}{% for message in messages %}{{ message.content }}{% endfor %}"
    )
    adapter = tmp_path / "adapters" / "a"
    adapter.mkdir(parents=True)
    mx.save_safetensors(str(adapter / "adapters.safetensors"), make_adapter(1), {"url": url})
    config = {"fine_tune_type": "lora", "lora_parameters": {"rank": 4, "scale": 1.0}, "base_model_name_or_path": url}
    (adapter / "adapter_config.json").write_text(json.dumps(config | {"model": url, "auto_mapping": {"url": url}}))
    live = Live(Settings(model=str(folder), adapters={"a": adapter}))
    try:
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, "model": "a"}
        assert live.ask("POST", "/v1/chat/completions", body).status == 200
    finally:
        live.stop()
    _, tokenizer, _ = loading.load(folder)
    Renderer(tokenizer)
