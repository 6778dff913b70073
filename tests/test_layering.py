"""Packages do not know each other upwards, rooms import downwards only, and importing stays cheap.

The order of the rooms is the list in docs/architecture.md. Lazy imports and those for type checkers count like others;
so do modules loaded by a literal name, and attributes of imported modules. `tests/test_source_tree.py` breaks each law.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.source_tree import Code

ROOT = Path(__file__).parents[1]
KNOWN = {
    "legos_envs": {"numpy", "gymnasium", "pettingzoo"}
    | {"scipy", "math_verify", "openskill", "pydantic_monty", "pyarrow", "datasets", "huggingface_hub", "textarena"},
    "inference": {"lazy_loader", "numpy", "mlx", "mlx_lm", "tokenizers", "threadpoolctl", "huggingface_hub"}
    | {"httpx2", "h11", "pydantic", "fastapi", "starlette", "uvicorn", "prometheus_client", "llguidance"},
}
"""The packages that these two may import, besides the standard library: what they need, then their optional extras."""
PACKAGES = ("legos_envs", "inference", "legos_train")
"""From below to above: `inference` and `legos_envs` do not know each other, `legos_train` knows both."""
MOST_NAMES, MOST_MODULES, MOST_ENTRIES = 10, 5, 20
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
    "rich",
)


@cache
def code() -> Code:
    return Code(ROOT, PACKAGES)


def none(wrong: Sequence[str]) -> None:
    assert not wrong, "\n".join(wrong)


def order(package: str) -> list[str]:
    """The rooms of a package from above to below, as docs/architecture.md lists them."""
    text = (ROOT / "docs/architecture.md").read_text()
    block = re.search(rf"^### `{package}`\n.*?```text\n(.*?)```", text, re.DOTALL | re.MULTILINE)
    assert block, f"docs/architecture.md has no list of the rooms of {package}"
    return [line.split()[0].rstrip("/").removesuffix(".py") for line in block[1].splitlines() if line.strip()]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_list_of_rooms_is_the_folder(package: str) -> None:
    marks = ("__pycache__", ".", "py.typed")  # py.typed only tells type checkers that the package has types
    there = {path.stem for path in (ROOT / package).iterdir() if not path.name.startswith(marks)}
    listed = order(package)
    assert len(listed) == len(set(listed)) and set(listed) == there - {"__init__", "__main__"} - {"models"}
    assert len(there) <= MOST_ENTRIES


@pytest.mark.parametrize("package", PACKAGES)
def test_rooms_import_downwards_only(package: str) -> None:
    none(code().upwards(package, order(package)))


@pytest.mark.parametrize("package", KNOWN)
def test_packages_import_only_what_they_know(package: str) -> None:
    none(code().strangers(package, {*KNOWN[package], *sys.stdlib_module_names}))


def test_other_rooms_are_entered_by_their_face() -> None:
    none(code().past_faces())


def test_a_face_has_few_names() -> None:
    none(code().crowded(MOST_NAMES, MOST_MODULES))


def test_the_folders_of_a_room_import_one_way() -> None:
    none(code().both_ways())


def test_no_import_circles() -> None:
    none(code().circles())


IMPORT = re.compile(r"\b(?:from|import) ((?:legos_envs|inference|legos_train)(?:\.\w+)+)(?: import ([\w, ]+))?")


def test_docs_and_examples_enter_by_faces() -> None:
    files = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.py")]
    files += (ROOT / "examples").rglob("*.ipynb")
    found = [(path.name, *match.groups()) for path in files for match in IMPORT.finditer(path.read_text())]
    assert len(found) > 20
    wrong = [
        f"{file}: {module}.{name}"
        for file, module, names in found
        for name in (names or "").replace(" ", "").split(",")
        if not code().is_open(module) or (name and name not in code().faces.get(module, [name]))
    ]
    none(wrong)


WITHOUT_ARRAYS = (
    "run", "disk", "arena", "league", "rollout", "credit", "evaluation", "loss.batch", "observe", "config", "settings"
)  # fmt: skip
MEASURE_MLX = {
    "legos_train.run.preflight.memory",
    "legos_train.run.batch_generators",
    "legos_train.run.dry_run",
}
"""They ask how much memory MLX takes, and end the streams of MLX's threads; none of them holds weights."""


def test_weights_are_arrays_only_behind_the_backend() -> None:
    """So the next backend is a new folder in legos_train/model, and a row in config/backend_rows.py."""
    found = {
        module
        for module, uses in code().imports.items()
        if module.startswith(tuple(f"legos_train.{name}." for name in WITHOUT_ARRAYS))
        and any(use.target.partition(".")[0] in ("mlx", "mlx_lm") for use in uses)
    }
    assert found == MEASURE_MLX


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_means_one_thing(package: str) -> None:
    """No file, class or alias of a type twice within a package, and nothing on a face that another module defines."""
    none(code().twice(package))


VOCABULARY = ("Policy", "Seat", "Agent", "Table", "Turn", "Trajectory", "Episode", "Batch", "Actor", "Arena", "Rubric")
"""Words that mean one thing everywhere, see docs/concepts.md."""


def test_a_word_of_the_vocabulary_names_one_thing() -> None:
    where = {word: [name for name, one in code().sources.items() if word in one.defined] for word in VOCABULARY}
    assert not {word: names for word, names in where.items() if len(names) > 1}


def loaded(statement: str) -> set[str]:
    """Top-level modules in a fresh process after a statement."""
    program = f"{statement}\nimport sys; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_envs_import_neither_models_nor_the_command_line() -> None:
    everything = "import legos_envs; [legos_envs.make(i).reset(seed=0) for i in legos_envs.registered()]"
    assert not loaded(everything) & {*HEAVY, "inference", "legos_train"}


def test_inference_knows_no_environments() -> None:
    rooms = ", ".join(name for name in order("inference") if name != "server")
    modules = loaded(f"import inference; from inference import {rooms}; inference.Engine, inference.Fleet")
    assert not modules & {"legos_envs", "legos_train", "pettingzoo", "gymnasium"}


def test_light_modules_looking_at_runs_and_playing_load_no_model_library() -> None:
    """One after the other in one process: a library that any of them loads stays."""
    code = """
import inference, inference.types, legos_train, legos_train.cli.main, legos_train.cli.envs, legos_train.config
from legos_train.observe import Progress, report, viewer; report.report_again, viewer.write_page, viewer.serve
import legos_train.cli.play
from legos_train.model import Capabilities, Snapshot, TrainerBackend, WeightStore, backends; backends.Place
"""
    assert not loaded(code) & {"mlx", "mlx_lm", "transformers", "tokenizers"}


@pytest.mark.slow
def test_training_and_serving_load_no_tracker() -> None:
    """mlx-lm's own trainer imports wandb where it is installed; nothing here needs either."""
    code = "from legos_train import Trainer, train; from inference import Engine"
    assert not loaded(code) & {"wandb", "tensorboard"}
