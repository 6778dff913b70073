"""Processes that used the engine end cleanly, whichever thread it ran in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

USE = """
import sys, threading
from inference import Engine, Request, SamplingParams

def serve():
    engine = Engine.load(sys.argv[1])
    done = engine.generate([Request([5, 6, 7], SamplingParams(max_tokens=3, seed=i)) for i in range(4)])
    engine.close()
    print(len(done), all(c.tokens for c in done))
"""


def run(code: str, *arguments: object) -> tuple[int, str, str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=90)
    return result.returncode, result.stdout, result.stderr


@pytest.mark.slow
def test_a_worker_thread_leaves_a_process_that_exits_cleanly(random_model_dir: Path) -> None:
    worker = "for _ in range(2):\n    t = threading.Thread(target=serve); t.start(); t.join()"
    assert run(USE + worker, random_model_dir) == (0, "4 True\n4 True\n", "")


@pytest.mark.slow
def test_a_thread_may_use_a_model_again_after_closing_one(random_model_dir: Path) -> None:
    """The first close had taken the thread's streams: a second training in a thread ended the process."""
    twice = "t = threading.Thread(target=lambda: (serve(), serve())); t.start(); t.join()"
    assert run(USE + twice, random_model_dir) == (0, "4 True\n4 True\n", "")


@pytest.mark.slow
def test_a_fork_is_told_to_be_spawned(random_model_dir: Path) -> None:
    """It hung: `fork` was the default of multiprocessing on Linux before Python 3.14."""
    fork = """
import multiprocessing
from inference import InferenceError, load

def child(path):
    try:
        load(path)
    except InferenceError as error:
        return str(error)

load(sys.argv[1])
with multiprocessing.get_context("fork").Pool(1) as pool:
    print("get_context('spawn')" in pool.apply(child, sys.argv[1:]))
"""
    assert run("import sys\n" + fork, random_model_dir)[:2] == (0, "True\n")


@pytest.mark.slow
def test_the_main_thread_can_use_mlx_after_closing_an_engine(random_model_dir: Path) -> None:
    main = "serve(); serve(); import mlx.core as mx; print((mx.ones(3) + 1).sum().item())"
    assert run(USE + main, random_model_dir) == (0, "4 True\n4 True\n6.0\n", "")
