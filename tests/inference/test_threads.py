"""Threads of the matrix library: as asked for, or as are idle."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx import nn

from inference import Engine
from inference.forward import threads
from inference.forward.threads import idle_cpus, use_threads


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Eight CPUs; the number of threads that was set last is in `set`."""
    found: dict[str, Any] = {"load": 0.0, "quota": tmp_path / "cpu.max"}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(os, "getloadavg", lambda: (found["load"], 9.0, 9.0))
    monkeypatch.setattr(threads, "_QUOTA", found["quota"])
    monkeypatch.setattr(threads, "on_cpu", lambda: found.get("cpu", True))
    monkeypatch.setattr(threads.fastblas, "set_threads", lambda count: found.update(set=count))
    return found


@pytest.mark.parametrize(
    ("load", "quota", "idle"),
    [(0.0, None, 8), (2.6, None, 5), (11.0, None, 1), (0.0, "max 100000", 8), (0.3, "250000 100000", 2)],
)
def test_what_is_idle(machine: Any, load: float, quota: str | None, idle: int) -> None:
    machine["load"] = load
    if quota is not None:
        machine["quota"].write_text(quota + "\n")
    assert idle_cpus() == idle


def test_a_large_model_takes_what_is_idle(
    machine: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    model = nn.Sequential(nn.Linear(10, 10, bias=False))
    assert use_threads("auto", model) == machine["set"] == 1 and "small" in caplog.text
    monkeypatch.setattr(threads, "LARGE", 100)
    assert use_threads("auto", model) == machine["set"] == 8 and "threads=auto: 8" in caplog.text
    machine["cpu"] = False
    assert use_threads("auto", model) == machine["set"] == 1
    assert use_threads(3, model) == machine["set"] == 3


def test_a_loaded_engine_takes_the_threads_that_suit_its_model(machine: Any) -> None:
    for asked, then in (({"threads": None}, None), ({"threads": 3}, 3), ({"threads": "auto"}, 1), ({}, 1)):
        machine["set"] = None
        Engine.load("tiny", **asked).close()
        assert machine["set"] == then, asked


def test_packed_weights_count_as_the_numbers_they_hold(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = nn.Sequential(nn.Linear(64, 64, bias=False))
    nn.quantize(model, 64, 4)
    assert model.layers[0].weight.dtype == mx.uint32
    monkeypatch.setattr(threads, "LARGE", 64 * 64)
    assert use_threads("auto", model) == 8
