"""A user's program is `mypy --strict` clean against the installed wheel, and runs; the wheel says that it is typed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_wheel import ROOT, uv

PROGRAM = ROOT / "tests/data/typed_user.py"


@pytest.mark.parametrize("package", ["legos_envs", "inference", "legos_train"])
def test_packages_are_marked_as_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_users_program_is_strictly_typed(tmp_path: Path) -> None:
    subprocess.run([*uv(), "build", "--wheel", "-q", "-o", str(tmp_path), str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith("legos_selfplay-")
    python = tmp_path / "venv/bin/python"
    subprocess.run([*uv(), "venv", "-q", "--python", sys.executable, str(tmp_path / "venv")], check=True)
    subprocess.run([*uv(), "pip", "install", "-q", "--python", str(python), f"{wheel}", "mypy"], check=True)
    shutil.copy(PROGRAM, tmp_path / "user.py")

    def run(*arguments: str) -> str:
        done = subprocess.run([str(python), *arguments], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "Success" in run("-m", "mypy", "--strict", "user.py")
    assert "True" in run("user.py")
    with (tmp_path / "user.py").open("a") as program:
        program.write("\nwrong: int = make('Nim-v0').metadata['name'].nothing + step().nothing\n")
    with pytest.raises(AssertionError, match='"float" has no attribute "nothing"'):
        run("-m", "mypy", "--strict", "user.py")
