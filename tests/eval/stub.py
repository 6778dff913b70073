"""A server with OpenAI's API on loopback that misbehaves as told, and a transport that does without a network."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Answer = tuple[int, dict[str, str], bytes]
Script = Callable[[int, dict[str, Any]], "Answer | str"]
"""From the number of the request and its body to an answer, or `"stall"`, or `"drop"`."""


def chat(text: str | None, **more: Any) -> Answer:
    """A good answer."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "cost": 0.001}
    return 200, {}, json.dumps({"choices": [choice], "usage": usage, **more}).encode()


def error(status: int, text: str = "not now", **headers: str) -> Answer:
    return status, headers, json.dumps({"error": {"message": text}}).encode()


def legal(body: dict[str, Any]) -> str:
    """The first action that the prompt offers."""
    last = body["messages"][-1]["content"].rpartition("legal action: ")[2]
    return str(last.split()[0])


class Stub:
    """Counts and keeps what it was asked."""

    def __init__(self, script: Script):
        self.script, self.asked = script, list[dict[str, Any]]()
        self.headers: list[dict[str, str]] = []
        self.port = 0
        self.server: asyncio.Server

    @property
    def spec(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1#m"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode("latin-1").split("\r\n")[1:-2]
                fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                body = json.loads(await reader.readexactly(int(fields["content-length"])))
                number = len(self.asked)
                self.asked.append(body)
                self.headers.append(fields)
                said = self.script(number, body)
                if said == "drop":
                    break
                if isinstance(said, str):
                    await asyncio.sleep(3600)
                    break
                status, extra, content = said
                more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in extra.items())
                writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(content)}\r\n{more}\r\n".encode() + content)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return
        finally:
            writer.close()


@contextmanager
def serving(script: Script) -> Iterator[Stub]:
    stub = Stub(script)
    loop = asyncio.new_event_loop()

    async def start() -> None:
        stub.server = await asyncio.start_server(stub.answer, "127.0.0.1", 0)
        stub.port = stub.server.sockets[0].getsockname()[1]

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(start())
        ready.set()
        loop.run_forever()

    ready = threading.Event()
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield stub
    finally:

        async def end() -> None:
            stub.server.close()
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
