"""The wheel that users get: three packages and the bundled model, and the base install runs without the model side."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def uv() -> list[str]:
    """How to call uv here: the test command installs it beside Python, or it is on PATH."""
    found = os.environ.get("UV") or shutil.which("uv")
    if found:
        return [found]
    pytest.skip("uv is not on PATH; the README's test command brings it")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([*uv(), "build", "--wheel", "-o", str(out), str(ROOT)], check=True, capture_output=True)
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_has_three_packages_and_the_bundled_model(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"legos_envs", "legos_train", "inference"}
    tiny = {name for name in names if name.startswith("inference/models/tiny/")}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {Path(name).name for name in tiny}
    data = (
        "argument/data/debate.toml",
        "code/data/exercises.toml",
        "code/data/patches.toml",
        "problems/data/corpus.jsonl",
    )
    assert {f"legos_envs/tasks/{file}" for file in data} <= {*names}


@pytest.mark.slow
def test_the_base_install_lists_and_plays_environments(wheel: Path, tmp_path: Path) -> None:
    python = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    subprocess.run([*uv(), "venv", "-q", "--python", sys.executable, str(tmp_path / "venv")], check=True)
    subprocess.run([*uv(), "pip", "install", "-q", "--python", str(python), str(wheel)], check=True)
    legos = python.parent / "legos"

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(legos), *arguments], capture_output=True, text=True, cwd=tmp_path, input="[bet]\n" * 6
        )

    listed = run("envs", "list")
    assert listed.returncode == 0 and "KuhnPoker-v0" in listed.stdout, listed.stderr
    assert subprocess.run([str(python), "-c", "import mlx"], capture_output=True).returncode != 0
    played = run("play", "KuhnPoker-v0", "--seed", "3")
    assert played.returncode == 0 and "player_0 (human)" in played.stdout, played.stderr
    refused = run("train")
    assert refused.returncode == 1 and 'pip install "legos-selfplay[train]"' in refused.stderr, refused.stderr
