"""README, docs and examples run as they stand."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[tuple[str, str]]:
    return [(page.name, text) for page in PAGES for kind, text in BLOCK.findall(page.read_text()) if kind == language]


@pytest.mark.parametrize(("page", "code"), blocks("python"))
def test_python_blocks_run(page: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, page, "exec"), {"__name__": "__main__"})


def commands() -> list[str]:
    """Every `legos ...` line of the shell blocks, without what starts it."""
    lines = [line.split("#")[0].strip() for _, text in blocks("bash") for line in text.splitlines()]
    found = [line.rpartition("uv run ")[2] for line in lines]
    return sorted({line for line in found if line.startswith("legos ")})


SHORT = ["--steps", "2", "--batch-size", "16", "--eval.every", "0", "--eval.games", "4", "--run-dir", "short"]


def legos(arguments: list[str], folder: Path) -> None:
    """Runs a command in a folder; it must end well."""
    done = subprocess.run(
        [sys.executable, "-m", "legos_train.cli", *arguments],
        cwd=folder,
        input="[bet]\n[take]\n" * 5,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)


@pytest.fixture(scope="module")
def short_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two steps: what the plain first command leaves, but short."""
    folder = tmp_path_factory.mktemp("docs")
    legos(["train", *SHORT], folder)
    return folder / "short"


@pytest.mark.parametrize("command", commands())
def test_commands_run(command: str, short_run: Path, tmp_path: Path) -> None:
    """As written, but trainings with two steps, evaluations with four games, and the short run for `runs/...`."""
    verb, *arguments = shlex.split(command)[1:]
    if verb == "bootstrap":
        pytest.skip("the whole recipe: tests/train/test_bootstrap.py runs it with few steps")
    if verb == "train" and not arguments:
        return  # `short_run` has run it
    arguments = [str(ROOT / a) if a.startswith("examples/") else a for a in arguments]
    arguments = [str(short_run) if a.startswith("runs/") else a for a in arguments]
    legos([verb, *arguments, *{"train": SHORT, "eval": ["-n", "4"]}.get(verb, [])], tmp_path)


def test_examples_run(tmp_path: Path) -> None:
    kuhn = runpy.run_path(str(ROOT / "examples/train_kuhn.py"))
    kuhn["main"](steps=2, run_dir=tmp_path / "run")
    assert (tmp_path / "run/adapter/adapters.safetensors").exists()
    runpy.run_path(str(ROOT / "examples/evaluate_async.py"))["main"](games=20)


def test_the_example_environment_passes_every_check() -> None:
    from legos_envs.testing import check_env

    check_env(f"{ROOT / 'examples/haggle.py'}:Haggle-v0", episodes=50, raise_on_failure=True)


@pytest.mark.slow
def test_the_first_command_in_full(tmp_path: Path) -> None:
    """Plain `legos train`: ends well, and the published adapter is close to an equilibrium."""
    import json

    done = subprocess.run(
        [sys.executable, "-m", "legos_train.cli", "train"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (result,) = tmp_path.glob("runs/*/result.json")
    numbers = json.loads(result.read_text())
    assert numbers["start"]["nash_conv"] >= 0.85 and numbers["average"]["nash_conv"] <= 0.20


@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*.toml")), ids=lambda file: file.name)
def test_example_settings_are_valid(file: Path) -> None:
    from legos_train.config import load_toml

    load_toml(file)
