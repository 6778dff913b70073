"""The distribution is `legos-selfplay`: `legos` on the package index is somebody else's, and installing it succeeds."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import tomllib
from pathlib import Path

import legos_envs.arguments

ROOT = Path(__file__).parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
OLD = [
    rf"(?<![\w-])legos\[(?:{'|'.join(EXTRAS)})\b",
    r"(?:pip|uv) (?:add|install|download) (?:-\S+ )*['\"]?legos(?![\w-])",
    r"--with ['\"]?legos(?![\w-])",
    r"dependencies = \[\"legos\"",
]


def wrong_names(text: str) -> list[str]:
    return [match[0] for pattern in OLD for match in re.finditer(pattern, text)]


def test_no_hint_installs_the_strangers_package() -> None:
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = {}
    for name in filter(None, files.split("\0")):
        path = ROOT / name
        if path.suffix in (".py", ".pyi", ".md", ".toml", ".ipynb", ".yml", ".cff", ".html", ".js") and path.is_file():
            found[name] = wrong_names(path.read_text(encoding="utf-8")) if path != Path(__file__) else []
    assert len(found) > 300 and not {name: hits for name, hits in found.items() if hits}


def test_the_old_forms_are_seen() -> None:
    for bad in (
        "pip install 'legos[train]'",
        'pip install "legos"',
        "uv add legos",
        "legos[train,serve]",
        "`legos[png]`",
    ):
        assert wrong_names(bad), bad
    for good in ('pip install "legos-selfplay[train]"', "legos train", "pip install legos-selfplay", "config['legos']"):
        assert not wrong_names(good), good


def test_one_name_everywhere() -> None:
    name = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"]
    assert name == legos_envs.arguments.DISTRIBUTION == "legos-selfplay"
    assert importlib.metadata.version(name) == legos_envs.__version__


def test_the_hint_is_that_of_the_installation(tmp_path: Path, monkeypatch) -> None:
    assert legos_envs.arguments.install("train") == "uv sync --extra train"
    monkeypatch.setattr(legos_envs.arguments, "__file__", str(tmp_path / "legos_envs/arguments.py"))
    assert legos_envs.arguments.install("train") == 'pip install "legos-selfplay[train]"'
