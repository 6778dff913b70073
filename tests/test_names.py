"""The distribution is `legos-selfplay`: `legos` on the package index is somebody else's, and installing it succeeds."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

import legos_envs.arguments
from legos_train import errors
from legos_train.cli import doctor_report

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
    assert name == legos_envs.arguments.DISTRIBUTION == errors.DISTRIBUTION == "legos-selfplay"
    assert importlib.metadata.version(name) == legos_envs.__version__


def test_the_hint_is_that_of_the_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert legos_envs.arguments.install("train") == "uv sync --extra train"
    monkeypatch.setattr(legos_envs.arguments, "__file__", str(tmp_path / "legos_envs/arguments.py"))
    assert legos_envs.arguments.install("train") == 'pip install "legos-selfplay[train]"'


def test_another_inference_is_noticed_at_the_first_import(tmp_path: Path) -> None:
    (tmp_path / "inference.py").write_text("x = 1\n")
    for program in ("import legos_train", "from legos_train.cli.main import main"):
        done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
        said = done.stderr.splitlines()[-1]
        assert (
            said.startswith("ImportError: `import inference` finds another project's package") and "rename it" in said
        )
        assert str(tmp_path / "inference.py") in said and "docs/installing.md" in said
    assert subprocess.run([sys.executable, "-c", "import legos_envs"], cwd=tmp_path).returncode == 0


def test_a_package_installed_over_ours_or_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert errors.foreign_inference() is None
    home = tmp_path / "site"
    (home / "inference").mkdir(parents=True)
    first = home / "inference/__init__.py"
    first.write_text('__version__ = "0.9"\n')
    monkeypatch.setattr(errors, "__file__", str(home / "legos_train/errors.py"))
    monkeypatch.setattr(errors.importlib.util, "find_spec", lambda name: SimpleNamespace(origin=str(first)))
    said = errors.foreign_inference() or ""
    assert "installed over this project's" in said and "--force-reinstall --no-deps legos-selfplay" in said
    monkeypatch.setattr(errors.importlib.util, "find_spec", lambda name: None)
    assert "is missing next to" in (errors.foreign_inference() or "")


def test_the_doctor_names_the_other_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    holders = {"inference": ["legos-selfplay", "inference"]}
    monkeypatch.setattr(importlib.metadata, "packages_distributions", lambda: holders)
    found = doctor_report.packages()
    assert found["other_inference"] == ["inference"] and found["inference"].endswith("inference/__init__.py")
    (advice,) = doctor_report.advice({"packages": found})
    assert advice.startswith("inference also installs a package named `inference`") and "docs/installing.md" in advice
    holders["inference"] = ["legos-selfplay"]
    assert "other_inference" not in doctor_report.packages() and doctor_report.advice({"packages": {}}) == []


def test_the_citation_has_the_version() -> None:
    assert f"version: {legos_envs.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_pre_commit_runs_what_ci_runs_before_the_tests() -> None:
    commands = re.findall(r"^ +entry: (.*)$", (ROOT / ".pre-commit-config.yaml").read_text(), re.MULTILINE)
    lines = (ROOT / ".ci/run").read_text().splitlines()
    assert commands == [line for line in lines if line.startswith("python3 -m uv run")]
