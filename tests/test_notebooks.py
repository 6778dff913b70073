"""The notebooks in examples/notebooks run, and show what is stored in them.

To store their outputs anew: python docs/run_notebooks.py
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples/notebooks").glob("*.ipynb"))
LIMIT = 100_000
"""Most bytes of one notebook."""
SAMPLED = {"read_rollouts"}
"""Notebooks in which a model plays. Its games are the same on every CPU tried; on Apple's GPUs nobody has looked."""


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    """docs/run_notebooks.py, imported."""
    found = importlib.util.spec_from_file_location("run_notebooks", ROOT / "docs/run_notebooks.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run_and_show_what_is_stored(path: Path, tool: ModuleType) -> None:
    before = path.read_bytes()
    fresh = tool.execute(path)
    values = path.stem not in SAMPLED or sys.platform == "linux"
    found = list(tool.differences(nbformat.read(path, as_version=4), fresh, values=values))
    assert not found, "\n".join(found)
    assert path.read_bytes() == before


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_hold_nothing_of_the_machine(path: Path) -> None:
    text = path.read_text()
    notebook = json.loads(text)
    nbformat.validate(notebook)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"] == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    assert path.stat().st_size < LIMIT
    assert not re.search(r"(?:/(?:home|root|tmp|Users|var)/|site-packages|0x[0-9a-f]{6})", text)
    for cell in notebook["cells"]:
        assert cell["metadata"] == {}
        assert re.fullmatch(r"[a-z][a-z-]+", cell["id"]), "ids are words, so that they stay when cells are moved"
        for output in cell.get("outputs", ()):
            assert output["output_type"] != "error" and output.get("name") != "stderr"


def test_both_are_there() -> None:
    assert {path.stem for path in NOTEBOOKS} >= {"env_loop", "read_rollouts"}


def notebook(*texts: str) -> Any:
    """A stored notebook whose cells have printed these texts."""
    cells = []
    for number, text in enumerate(texts, start=1):
        output = nbformat.v4.new_output("stream", name="stdout", text=text)
        cells.append(nbformat.v4.new_code_cell("...", execution_count=number, outputs=[output], id=f"cell-{number}"))
    return nbformat.v4.new_notebook(cells=cells)


@pytest.mark.parametrize(
    ("now", "equal"),
    [
        ("won 12 of 30: 0.400", True),
        ("won 12 of 30: 0.401", True),  # rounded otherwise
        ("won 12 of  30: 0.400\n", True),
        ("won 12 of 30: 0.402", False),
        ("won 13 of 30: 0.400", False),
        ("lost 12 of 30: 0.400", False),
        ("won 12 of 30: -0.400", False),
        ("won 12 of 30: 0.400 0.1", False),
        ("won 12 of 30", False),
    ],
)
def test_what_counts_as_the_same_output(tool: ModuleType, now: str, equal: bool) -> None:
    stored, fresh = notebook("first", "won 12 of 30: 0.400"), notebook("first", now)
    found = [item.partition(":")[0] for item in tool.differences(stored, fresh)]
    assert found == ([] if equal else ["cell-2"])
    assert list(tool.differences(stored, fresh, values=False)) == []


def _without_outputs(stored: Any) -> None:
    stored.cells[1].outputs = []


def _in_another_order(stored: Any) -> None:
    stored.cells[1].execution_count = 7


def _never_run(stored: Any) -> None:
    stored.cells[1].execution_count = None


@pytest.mark.parametrize("change", [_without_outputs, _in_another_order, _never_run])
def test_stored_outputs_must_be_of_one_execution(tool: ModuleType, change: Callable[[Any], None]) -> None:
    stored = notebook("first", "second")
    change(stored)
    (found,) = tool.differences(stored, notebook("first", "second"), values=False)
    assert found.startswith("cell-2: stored")
