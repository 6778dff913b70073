"""A server that speaks vLLM's completions without a model, and misbehaves as it is told to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Answer = tuple[int, Any]
Fault = Callable[["Stub", dict[str, Any]], Answer | None]
"""What becomes of a completion request; None: the ordinary answer."""


def tokens_for(prompt: list[int], model: str) -> list[int]:
    """What the model says: it depends on prompt and adapter, as with a real one."""
    return [(sum(prompt) + len(model)) % 97 + 3, len(prompt), 2]


class Stub:
    """One server on a loopback port.

    Attributes:
        faults: used up one by one by the next completion requests; `always` by all of them.
        asked: the bodies of completion requests, with the session id under "session".
        loaded: the adapters that it was told of, or has taken from `root`.
        root: where it resolves adapters from, as `lora_filesystem_resolver` does; None: it does not.
        updating: whether it can be told of adapters.
        weights: the path of the model that it says it serves.
    """

    def __init__(self, root: Path | None = None, *, updating: bool = True) -> None:
        self.root, self.updating, self.weights = root, updating, "/models/base"
        self.faults: list[Fault] = []
        self.always: Fault | None = None
        self.asked: list[dict[str, Any]] = []
        self.loaded: set[str] = set()
        self.unloaded: list[str] = []
        self.answered = 0
        self.lock = threading.Lock()
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Serves from now on, on the port it had; adapters are forgotten."""
        self.loaded.clear()
        self.down = False
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # a body after its head would wait 40 ms for the head's acknowledgement

            def do_GET(self) -> None:
                if self.path == "/v1/models":
                    adapters = [{"id": name, "parent": "base"} for name in sorted(stub.loaded)]
                    base = {"id": "base", "root": stub.weights, "parent": None, "max_model_len": 4096}
                    self.answer(200, {"data": [base, *adapters]})
                elif self.path == "/version":
                    self.answer(200, {"version": "0.0.stub"})
                else:
                    self.answer(404, {"detail": "Not Found"})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path == "/v1/completions":
                    body["session"] = self.headers["X-Session-ID"]
                    self.answer(*stub.complete(body))
                elif self.path == "/v1/load_lora_adapter" and stub.updating:
                    there = (Path(body["lora_path"]) / "adapter_model.safetensors").is_file()
                    if there:
                        stub.loaded.add(body["lora_name"])
                    self.answer(*((200, b"Success: loaded") if there else (400, {"error": {"message": "no folder"}})))
                elif self.path == "/v1/unload_lora_adapter" and stub.updating:
                    stub.loaded.discard(body["lora_name"])
                    stub.unloaded.append(body["lora_name"])
                    self.answer(200, b"Success: removed")
                else:
                    self.answer(404, {"detail": "Not Found"})

            def answer(self, status: int, value: Any) -> None:
                if status == 0 or stub.down:  # the connection breaks off
                    self.close_connection = True
                    return
                content = value if isinstance(value, bytes) else json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                if status == 429:
                    self.send_header("Retry-After", "0.05")
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *arguments: Any) -> None: ...

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True
            request_queue_size = 128  # with 5, connections that are opened together are reset now and then

            def handle_error(self, *arguments: Any) -> None: ...  # a client that left

        self.server = Server(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self.down = True  # connections that are kept alive break off too
        self.server.shutdown()
        self.server.server_close()

    def complete(self, body: dict[str, Any]) -> Answer:
        with self.lock:
            self.asked.append(body)
            fault = self.faults.pop(0) if self.faults else self.always
        answer = None if fault is None else fault(self, body)
        return self.ordinary(body) if answer is None else answer

    def ordinary(self, body: dict[str, Any], **changed: Any) -> Answer:
        model = body["model"]
        if model != "base" and model not in self.loaded:
            if self.root is None or not (self.root / model).is_dir():
                return 404, {"error": {"message": f"The model `{model}` does not exist."}}
            self.loaded.add(model)
        choices = []
        for index, prompt in enumerate(body["prompt"]):
            tokens = tokens_for(prompt, model)[: body["max_tokens"]]
            reason = "stop" if tokens[-1] in body.get("stop_token_ids", ()) else "length"
            found = {"token_logprobs": [-0.5] * len(tokens)}
            choices.append(
                {"index": index, "token_ids": tokens, "logprobs": found, "finish_reason": reason, "text": ""}
                | {"prompt_token_ids": prompt, **changed}
            )
        with self.lock:
            self.answered += len(choices)
        return 200, {"model": model, "choices": choices, "usage": {"prompt_tokens": 1, "prompt_tokens_details": None}}


@contextmanager
def stubs(count: int, root: Path | None = None, **options: Any) -> Iterator[list[Stub]]:
    servers = [Stub(root, **options) for _ in range(count)]
    try:
        yield servers
    finally:
        for server in servers:
            server.stop()


# --- faults ----------------------------------------------------------------------------------------------------------


def status(number: int, text: str = "no") -> Fault:
    return lambda stub, body: (number, {"error": {"message": text}})


def hang_up(stub: Stub, body: dict[str, Any]) -> Answer:
    return 0, b""


def stall(stub: Stub, body: dict[str, Any]) -> Answer | None:
    time.sleep(2.0)
    return None


def changed(**fields: Any) -> Fault:
    """An answer whose choices say something else."""
    return lambda stub, body: stub.ordinary(body, **fields)


def other_model(stub: Stub, body: dict[str, Any]) -> Answer:
    """Answers with the tokens of other weights, and says so."""
    code, answer = stub.ordinary(body | {"model": "base"})
    return code, answer | {"model": "another"}


def missing_choice(stub: Stub, body: dict[str, Any]) -> Answer:
    code, answer = stub.ordinary(body)
    return code, answer | {"choices": answer["choices"][1:]}


def forgets(stub: Stub, body: dict[str, Any]) -> Answer | None:
    """It was started again: adapters that it was told of are gone."""
    stub.loaded.clear()
    return None
