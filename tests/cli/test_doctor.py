"""`legos doctor`: complete, never fails, tells no secrets."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from legos_train.cli import doctor_environment
from legos_train.cli import doctor_report as doctor
from legos_train.cli.doctor import lines
from legos_train.cli.main import main

SECTIONS = {
    "system", "versions", "packages", "device", "blas", "memory", "disk", "ports", "caches", "extras", "sandbox",
    "environment", "advice",
}  # fmt: skip


def test_the_report_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    import mlx.core as mx
    import numpy

    from inference.forward import fastblas

    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (
        set(report) == SECTIONS
        and not [name for name, facts in report.items() if "error" in facts]
        and isinstance(report["advice"], list)
    )
    assert report["versions"]["numpy"] == numpy.__version__ and report["versions"]["mlx"] == importlib.metadata.version(
        "mlx"
    )
    assert report["device"]["default"] == str(mx.default_device().type).rpartition(".")[2]
    assert report["blas"]["mlx"]["state"] == fastblas.enable().state
    assert all(pool["num_threads"] >= 1 for pool in report["blas"]["pools"]) and report["blas"]["pools"]
    assert 0 < report["memory"].get("available", 1) <= report["memory"]["total"]
    assert report["disk"]["here"]["free"] > 0 and report["caches"]["models"]["count"] >= 0
    assert report["extras"]


SECRETS = {
    "HF_TOKEN": "hf_verysecret",
    "OPENAI_API_KEY": "sk-verysecret",
    "LEGOS_API_KEY": "verysecret",
    "WANDB_API_KEY": "verysecret",
    "LEGOS_DB_PASSWORD": "verysecret",
    "HF_SESSION": "verysecret",
    "HTTPS_PROXY": "http://user:verysecret@proxy.example:8080",
    "HF_ENDPOINT": "https://hub.example/?access_token=verysecret&x=1",
    "UV_INDEX_URL": "https://__token__:verysecret@index.example/simple",
    "LEGOS_SERVER": "user:verysecret@host.example:80",
    "LEGOS_HEADERS": "Authorization: Bearer verysecret",
    "LEGOS_NOTE": "password = 'verysecret'; api_key: verysecret",
    "MLX_NOTE": "sk-proj-verysecret0 hf_verysecret0",
    "SOMETHING_ELSE": "verysecret",
}


@pytest.mark.parametrize("options", [["--json"], []])
def test_secrets_are_not_shown(
    options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    monkeypatch.setenv("LEGOS_BLAS", "off")
    assert main(["doctor", *options]) == 0
    printed = capsys.readouterr().out
    assert "verysecret" not in printed and "SOMETHING_ELSE" not in printed
    shown = doctor.tidy(doctor.environment(SECRETS))
    assert shown["HF_TOKEN"] == shown["LEGOS_DB_PASSWORD"] == "set (hidden)"
    assert shown["OPENROUTER_API_KEY"] == "not set"
    assert shown["HTTPS_PROXY"] == "http://***@proxy.example:8080"
    assert shown["HF_ENDPOINT"] == "https://hub.example/?access_token=***&x=1"
    assert shown["LEGOS_SERVER"] == "***@host.example:80" and shown["LEGOS_HEADERS"] == "Authorization: Bearer ***"
    assert shown["LEGOS_NOTE"] == "password = '***'; api_key: ***" and shown["MLX_NOTE"] == "*** ***"
    for harmless in ("runs/x@best", "http://127.0.0.1:8000/v1#tiny", "/opt/lib:/usr/lib", "0:1", "org/name@main"):
        assert doctor.tidy(harmless) == harmless


def test_advice_names_what_to_do() -> None:
    report = {
        "device": {"mlx": "not installed", "install": "uv sync --extra train"},
        "memory": {"total": 8.0, "available": 6.0, "container_limit": 0.5},
        "disk": {"here": {"path": "~/x", "free": 0.1, "writable": True}, "models": {"path": "/m", "free": 9.0,
                 "writable": False}},
        "caches": {"error": "OSError: gone"},
    }  # fmt: skip
    said = doctor.advice(report)
    assert [text.split(":")[0].split(";")[0] for text in said] == [
        "Models cannot run here yet", "Only 0.5 GiB of memory is free", "Only 0.1 GiB is free in ~/x (here).",
        "/m (models) is not writable.", "The section caches failed",
    ]  # fmt: skip
    slow = {"device": {"default": "cpu"}, "blas": {"mlx": {"fast": False, "advice": "pip install scipy-openblas32"}}}
    assert doctor.advice(slow) == ["Matrix products are slow: pip install scipy-openblas32."]
    assert "nothing is missing" in lines({"advice": []})[-1] and "  do it" in lines({"advice": ["do it"]})


def test_the_home_directory_is_not_spelled_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert doctor.tidy({"a": ["/home/somebody/x:/home/somebody", "/home/somebody_else/y"]}) == {
        "a": ["~/x:~", "/home/somebody_else/y"]
    }


def test_a_part_that_fails_is_reported_and_the_rest_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("the driver is gone")

    monkeypatch.setattr(doctor, "device", broken)
    report = doctor.examine()
    assert report["device"] == {"error": "RuntimeError: the driver is gone"} and "python" in report["system"]
    assert any("the driver is gone" in line for line in lines(report))


def test_it_needs_none_of_the_extras() -> None:
    """In a Python that finds only what the base install brings."""
    blocked = ("mlx", "mlx_lm", "transformers", "threadpoolctl", "httpx2", "textarena", "datasets", "packaging")
    code = f"""
import importlib.abc, sys
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in {blocked!r} else found(name, package)
sys.meta_path.insert(0, Absent())
from legos_train.cli.main import main
code = main(["doctor", "--json"])
assert not set(sys.modules) & set({blocked!r}), sorted(set(sys.modules) & set({blocked!r}))
sys.exit(code)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["device"] == {"mlx": "not installed", "install": "uv sync --extra train"}
    assert not [name for name, facts in report.items() if "error" in facts]


@pytest.fixture
def listening() -> Iterator[tuple[ThreadingHTTPServer, dict[str, str]]]:
    """A server that answers every path with `said["body"]`."""
    said = {"body": ""}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = said.get(self.path, said["body"]).encode()
            self.send_response(503 if "false" in said["body"] else 200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server, said
        server.shutdown()
        thread.join()


def test_ports_say_who_listens(
    listening: tuple[ThreadingHTTPServer, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, said = listening
    monkeypatch.setattr(doctor, "PORTS", [server.server_port])
    answers = {
        '{"ready": true}': "legos serve, ready",
        '{"ready": false}': "legos serve, not ready",
        "<html>": "another program",
        '{"ready": true, "x": 1}': "another program",
    }
    for body, shown in answers.items():
        said["body"] = body
        assert doctor.ports() == {str(server.server_port): shown}


def test_a_server_says_how_it_runs_its_model(
    listening: tuple[ThreadingHTTPServer, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, said = listening
    monkeypatch.setattr(doctor, "PORTS", [server.server_port])
    said["body"] = '{"ready": true}'
    said["/health"] = '{"status": "ok", "path": "row by row"}'
    assert doctor.ports() == {str(server.server_port): "legos serve, ready, row by row"}
    [advice] = doctor.advice({"ports": doctor.ports()})
    assert f"port {server.server_port} runs row by row" in advice
    said["/health"] = '{"status": "ok", "path": "mlx"}'
    assert doctor.advice({"ports": doctor.ports()}) == []


def test_extras_come_with_the_command_that_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    other = "win32"
    required = {
        "legos-selfplay": [
            "numpy>=1",
            "numpy>=1; extra == 'good'",
            "not-there-1>=2; extra == 'bad'",
            f"not-there-2; (sys_platform == '{other}') and extra == 'good'",
            "numpy[fast]>=1; extra == 'nested'",
        ],
        "numpy": ["not-there-3==1; extra == 'fast'", "not-there-4; extra == 'other'"],
    }
    monkeypatch.setattr(importlib.metadata, "requires", required.__getitem__)
    assert doctor.extras() == {
        "bad": {"installed": False, "missing": ["not-there-1"], "install": "uv sync --extra bad"},
        "good": {"installed": True},
        "nested": {"installed": False, "missing": ["not-there-3"], "install": "uv sync --extra nested"},
    }


def test_versions_outside_of_the_required_ranges_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.untested() == {}, "the environment of the tests"
    required = [
        "lazy-loader>=0.6",
        "numpy>=1.26",
        "rich>=13.10",
        "tinker<0.26,>=0.25; extra == 'tinker'",
        "httpx2<3,>=2.12; extra == 'client'",
        "openskill>=6.2; extra == 'tasks'",
        "mlx[cpu]>=1; (sys_platform == 'win32') and extra == 'train'",
        "not-there>=2",
    ]
    there = {"lazy-loader": "0.5", "numpy": "1.26.0", "rich": "13.9.4", "tinker": "0.26", "httpx2": "2.12",
             "openskill": "6.2.0rc1", "mlx": "0.3"}  # fmt: skip
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: required)
    monkeypatch.setattr(doctor_environment, "version", there.get)
    found = doctor.untested()
    assert found == {
        "lazy-loader": {"version": "0.5", "needed": ">=0.6"},
        "rich": {"version": "13.9.4", "needed": ">=13.10"},
        "tinker": {"version": "0.26", "needed": "<0.26,>=0.25"},
    }
    required[:] = ["mlx[cpu]>=0.4; (sys_platform == 'linux') and extra == 'train'",
                   "mlx[cuda13]>=0.4; (sys_platform == 'linux') and extra == 'cuda'"]  # fmt: skip
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(
        importlib.metadata,
        "requires",
        lambda name: ["mlx-cpu; extra == 'cpu'", "mlx-cuda-13; extra == 'cuda13'"] if name == "mlx" else required,
    )
    there["mlx-cpu"] = "0.3"
    assert doctor.untested() == {"mlx[cpu]": {"version": "0.3", "needed": ">=0.4"}}, "mlx alone would leave mlx-cpu old"
    (said,) = doctor.advice({"packages": {"untested": {"lazy-loader": found["lazy-loader"]}}})
    assert said.startswith("Legos is not tested with lazy-loader 0.5") and said.endswith(
        "pip install 'lazy-loader>=0.6'"
    )


def test_caches_are_where_the_libraries_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hub/models--org--name/blobs").mkdir(parents=True)
    (tmp_path / "hub/models--org--name/blobs/x").write_bytes(b"0" * 2**25)
    (tmp_path / "runs/a").mkdir(parents=True)
    (tmp_path / "runs/a/config.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    found = doctor.caches()
    assert found["models"] == {"path": str(tmp_path / "hub"), "count": 1, "gib": 0.03}
    assert found["runs"]["count"] == 1
