"""The BLAS that MLX runs on, seen from fresh processes (the state is per process)."""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"), reason="only MLX on Linux CPUs"
)
CHECK = """
import numpy as np
{before}
from inference.forward import fastblas
status = fastblas.enable()
import mlx.core as mx
a = np.random.default_rng(0).standard_normal((65, 33)).astype(np.float32)
right = np.allclose(np.array(mx.array(a) @ mx.array(a).T), a @ a.T, atol=1e-4)
print(status.state, right, fastblas.enable() is status, fastblas.set_threads(1))
"""


def run(code: str, blas: str | None = None) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k != "LEGOS_BLAS"} | ({"LEGOS_BLAS": blas} if blas else {})
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)


@pytest.mark.skipif(importlib.util.find_spec("scipy_openblas32") is None, reason="no scipy-openblas32 here")
@pytest.mark.parametrize("before", ["", "import mlx.core as mx; mx.eval(mx.ones((9, 9)) @ mx.ones((9, 9)))"])
def test_the_pip_library_is_used_before_or_after_mlx(before: str) -> None:
    result = run(CHECK.format(before=before))
    assert result.stdout.split() == ["patched", "True", "True", "True"], result.stderr
    assert result.stderr == ""


def test_it_can_be_switched_off() -> None:
    result = run(CHECK.format(before=""), "off")
    assert result.stdout.split() == ["off", "True", "True", "True"], result.stderr
    assert result.stderr == ""


@pytest.mark.parametrize("library", ["libm.so.6", "/no/such/library.so"])
def test_a_useless_library_is_refused_with_a_warning(library: str) -> None:
    result = run(CHECK.format(before=""), library)
    assert result.stdout.split() == ["reference", "True", "True", "True"], result.stderr
    assert "RuntimeWarning" in result.stderr
    assert library in result.stderr


def test_wrong_numbers_are_rolled_back() -> None:
    code = CHECK.format(before="").replace(
        "status = fastblas.enable()",
        "fastblas._numbers_are_right = lambda: False\n"
        "import warnings; warnings.simplefilter('ignore')\n"
        "status = fastblas.enable()",
    )
    assert run(code).stdout.split() == ["reference", "True", "True", "True"]


def test_the_module_prints_its_state() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "inference.forward.fastblas"], capture_output=True, text=True, timeout=60, check=True
    )
    assert "GFLOP/s" in result.stdout
