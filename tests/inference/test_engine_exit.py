"""Processes that used the engine end cleanly, whichever thread it ran in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

USE = """
import sys, threading
from inference import Engine, Request

def serve():
    engine = Engine.load(sys.argv[1])
    done = engine.generate([Request([5, 6, 7], max_tokens=3, seed=i) for i in range(4)])
    engine.close()
    print(len(done), all(c.tokens for c in done))
"""


@pytest.mark.parametrize(
    "how", ["serve()", "t = threading.Thread(target=serve); t.start(); t.join()"], ids=["main", "worker"]
)
def test_exit_code_is_zero(how: str, random_model_dir: Path) -> None:
    for _ in range(2):
        result = subprocess.run(
            [sys.executable, "-c", USE + how, str(random_model_dir)], capture_output=True, text=True, timeout=60
        )
        assert (result.returncode, result.stdout, result.stderr) == (0, "4 True\n", "")


def test_mlx_still_works_after_an_engine_is_closed_in_the_main_thread(random_model_dir: Path) -> None:
    code = USE + "serve(); serve(); import mlx.core as mx; print((mx.ones(3) + 1).sum().item())"
    result = subprocess.run(
        [sys.executable, "-c", code, str(random_model_dir)], capture_output=True, text=True, timeout=60
    )
    assert (result.returncode, result.stdout) == (0, "4 True\n4 True\n6.0\n"), result.stderr


def test_importing_the_package_loads_no_mlx() -> None:
    code = "import sys, inference, inference.types; print(sorted(m for m in sys.modules if m.startswith('mlx')))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout == "[]\n"
