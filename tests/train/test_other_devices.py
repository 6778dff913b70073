"""The branches that Metal and CUDA take, with a device that only claims to be a GPU: its arrays are on the CPU.

Kernels without a gradient have a test of their own (tests/train/test_training_mode.py).
"""

from __future__ import annotations

import importlib.resources
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest

PRETENDED = """
import runpy, sys
import mlx.core as mx

class Pretended:
    type = mx.DeviceType.gpu

mx.default_device = Pretended
for name in ("new_stream", "new_thread_local_stream"):
    make = getattr(mx, name)
    setattr(mx, name, lambda device, make=make: make(mx.cpu))
sys.argv = ["legos", *sys.argv[1:]]
runpy.run_module("legos_train", run_name="__main__")
"""


def test_a_run_on_another_device(tmp_path: Path) -> None:
    """With lookahead, MLX's kernels and products, no numpy where a CPU has it, and weights in half precision."""
    tiny = Path(str(importlib.resources.files("inference") / "models" / "tiny"))
    model = shutil.copytree(tiny, tmp_path / "half")
    halves = {name: array.astype(mx.bfloat16) for name, array in mx.load(str(tiny / "model.safetensors")).items()}
    mx.save_safetensors(str(model / "model.safetensors"), halves, {"format": "mlx"})
    flags = ["--steps", "3", "--batch-size", "256", "--optim.checkpoint-layers", "--run-dir", str(tmp_path / "run")]
    command = [sys.executable, "-c", PRETENDED, "train", "--model", str(model), *flags]
    environment = {**os.environ, "MLX_DISABLE_COMPILE": "1"}  # which takes a second of g++ a kernel
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["start"]["nash_conv"] == pytest.approx(0.923, abs=0.01) and result["updates"] == 3
    assert result["last"]["nash_conv"] < 0.8 and result["verdict"].startswith("Learned: NashConv")
