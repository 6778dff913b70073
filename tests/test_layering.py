"""Packages do not know each other upwards, and importing stays cheap."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "mlx",
    "mlx_lm",
    "transformers",
    "tokenizers",
    "torch",
    "textarena",
    "wandb",
    "scipy",
    "pydantic",
    "tyro",
    "rich",
)


def loaded(statement: str) -> set[str]:
    """Top-level modules in a fresh process after a statement."""
    code = f"{statement}\nimport sys; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_envs_import_neither_models_nor_the_command_line() -> None:
    everything = "import legos_envs; [legos_envs.make(i).reset(seed=0) for i in legos_envs.registered()]"
    assert not loaded(everything) & {*HEAVY, "inference", "legos_train"}


def test_inference_knows_no_environments() -> None:
    names = "engine, render, adapters, loading, sampling, scheduler"
    modules = loaded(f"import inference; from inference import {names}")
    assert not modules & {"legos_envs", "legos_train", "pettingzoo", "gymnasium"}


@pytest.mark.parametrize("module", ["inference", "legos_train", "legos_train.cli.main", "legos_train.cli.envs"])
def test_light_modules_load_no_model_library(module: str) -> None:
    assert not loaded(f"import {module}") & {"mlx", "mlx_lm", "transformers", "tokenizers"}


def test_playing_and_the_policies_of_code_need_no_model_library() -> None:
    assert not loaded("import legos_train.cli.play") & {"mlx", "mlx_lm", "transformers"}


def test_training_and_serving_load_no_tracker() -> None:
    """mlx-lm's own trainer imports wandb where it is installed; nothing here needs either."""
    assert not loaded("from legos_train import train; import legos_train.run.trainer, inference") & {
        "wandb",
        "tensorboard",
    }
