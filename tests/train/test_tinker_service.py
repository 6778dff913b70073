"""What a Tinker API is asked before the first step, over HTTP: each mistake is one message. And a batch as its data."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import numpy as np
import pytest

from legos_envs.records import Episode, Trajectory, Turn
from legos_train import ConfigError
from legos_train.config.sections import TinkerSettings
from legos_train.loss.batch import Batch, pack
from legos_train.model.tinker.data import items, spread
from legos_train.model.tinker.reference import Reference
from legos_train.model.tinker.service import HOSTED, Service


class Api(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        key = self.headers.get("X-API-Key")
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{self.server.server_address[1]}/told")
            self.end_headers()
            return
        status = {"/told": 200}.get(self.path, 401 if key == "tml-wrong" else 200)
        if "get_server" not in self.path and self.path != "/told":
            status = 404
        self.send_response(status)
        self.end_headers()
        body = {"supported_models": [{"model_name": "org/base"}], "key": key}
        self.wfile.write(json.dumps(body).encode() if status == 200 else b'{"detail":"no"}')

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def sdk(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    made = SimpleNamespace(__version__="0.25.0", ServiceClient=lambda **given: SimpleNamespace(**given))
    monkeypatch.setitem(sys.modules, "tinker", made)
    for name in ("TINKER_API_KEY", "TINKER_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return made


def test_a_service_that_answers(url: str) -> None:
    service = Service(TinkerSettings(url=url), "org/base")
    assert service.client.base_url == url and service.models() == ["org/base"]


def test_the_wrong_base(url: str) -> None:
    with pytest.raises(ConfigError, match="does not serve 'org/other'; it serves org/base"):
        Service(TinkerSettings(url=url), "org/other")


def test_the_wrong_key(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-wrong")
    with pytest.raises(ConfigError, match=r"refuses the key \(401\)") as caught:
        Service(TinkerSettings(url=url), "org/base")
    assert "tml-wrong" not in str(caught.value)


def test_no_key_for_the_hosted_service() -> None:
    with pytest.raises(ConfigError, match="set TINKER_API_KEY"):
        Service(TinkerSettings(), "org/base")
    assert HOSTED.startswith("https://")


def test_nobody_there() -> None:
    with pytest.raises(ConfigError, match=r"cannot reach a Tinker API at http://127\.0\.0\.1:9"):
        Service(TinkerSettings(url="http://127.0.0.1:9"), "org/base")


def test_another_kind_of_server(url: str) -> None:
    with pytest.raises(ConfigError, match=r"HTTP 404.*Is it a Tinker API\?"):
        Service(TinkerSettings(url=url), "org/base")._get("/v1/models", 5)


@pytest.mark.parametrize("page", [b"<html>hello</html>", b"[]", b"{}", b'{"supported_models": [1]}'])
def test_a_page_of_something_else(url: str, monkeypatch: pytest.MonkeyPatch, page: bytes) -> None:
    """Many a web server answers every path with 200."""
    monkeypatch.setattr("legos_train.model.tinker.service._fetch", lambda *_: page)
    with pytest.raises(ConfigError, match=r"does not report which models it serves.*Is it a Tinker API\?"):
        Service(TinkerSettings(url=url), "org/base")


@pytest.mark.parametrize("version", ["0.24.9", "0.26.0", "0.38.0", "unknown"])
def test_another_version_of_the_sdk(sdk: SimpleNamespace, url: str, version: str) -> None:
    sdk.__version__ = version
    with pytest.raises(ConfigError, match=rf"is version {version}; Legos works with 0.25.0 up to below 0.26"):
        Service(TinkerSettings(url=url), "org/base")


def test_no_sdk(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setitem(sys.modules, "tinker", None)
    with pytest.raises(ConfigError, match=r"uv sync --extra tinker"):
        Service(TinkerSettings(url=url), "org/base")


def test_the_key_stays_with_the_host_it_is_for(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-right")
    service = Service(TinkerSettings(url=url), "org/base")
    assert json.loads(service._get("/moved", 5))["key"] is None
    assert json.loads(service._get("/api/v1/get_server_capabilities", 5))["key"] == "tml-right"


# --- a batch as data -------------------------------------------------------------------------------------------------


def turn(prompt: tuple[int, ...], tokens: tuple[int, ...], logprob: float = -0.5) -> Turn:
    n = len(tokens)
    return Turn((), "x", 0.0, prompt_tokens=prompt, action_tokens=tokens, logprobs=(logprob,) * n, policy_version=3)


def batch_of(*trajectories: tuple[float, list[Turn]]) -> Batch:
    made = [Episode("G", i, {}, {"a": Trajectory("a", "a", True, turns)}) for i, (_, turns) in enumerate(trajectories)]
    return pack(made, [{"a": np.full(len(turns), value)} for value, turns in trajectories], policy_version=3)


def test_equal_turns_are_sent_once_with_the_sum_of_their_advantages() -> None:
    """As long as these have one sign: PPO's minimum is linear in the advantage on each side of zero, not over both."""
    one = turn((5, 6, 7), (8, 9))
    batch = batch_of((1.0, [one]), (2.0, [one]), (-4.0, [one]), (1.0, [turn((5, 6, 7), (8, 4))]))
    parts = items(batch, batch.old_logprobs, batch.advantages)
    assert sorted((part.targets[part.cols].tolist(), part.advantages.tolist()) for part in parts) == [
        ([8, 4], [1.0, 1.0]),
        ([8, 9], [-4.0, -4.0]),
        ([8, 9], [3.0, 3.0]),
    ]
    assert all(part.tokens.tolist() == [5, 6, 7, 8] and part.cols.tolist() == [2, 3] for part in parts)
    back = spread([part.advantages for part in parts], parts, len(batch))
    assert sorted(back.tolist()) == [-4, -4, 1, 1, 3, 3, 3, 3]


def test_turns_that_go_on_are_one_sequence() -> None:
    first, second = turn((5, 6), (7,)), turn((5, 6, 7, 8), (9, 1))
    (part,) = items(batch := batch_of((1.0, [first, second])), batch.old_logprobs, batch.advantages)
    assert part.tokens.tolist() == [5, 6, 7, 8, 9] and part.cols.tolist() == [1, 3, 4]
    assert part.targets[part.cols].tolist() == [7, 9, 1] and part.whole == [5, 6, 7, 8, 9, 1]


def test_one_prompt_twice_in_a_trajectory_is_two_sequences() -> None:
    batch = batch_of((1.0, [turn((5, 6), (7, 1)), turn((5, 6), (8, 1))]))
    parts = items(batch, batch.old_logprobs, batch.advantages)
    assert sorted(part.targets[part.cols].tolist() for part in parts) == [[7, 1], [8, 1]]


def test_what_the_context_does_not_go_on_with_is_scored_apart() -> None:
    """A turn whose last token is not what the next prompt repeats, such as one cut by the token limit."""
    batch = batch_of((1.0, [turn((5, 6), (7, 3)), turn((5, 6, 7, 8), (9,))]))
    parts = items(batch, batch.old_logprobs, batch.advantages)

    class Engine:
        def sequence_logprobs(self, sequences: list[list[int]]) -> list[np.ndarray]:
            return [np.array(sequence[1:], dtype=np.float32) for sequence in sequences]

    found = Reference(Engine()).logprobs(parts)  # type: ignore[arg-type]
    assert sorted(np.concatenate(found).tolist()) == [3, 7, 9]
