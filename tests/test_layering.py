"""Packages do not know each other upwards, rooms import downwards only, and importing stays cheap.

The order of the rooms is the list in docs/architecture.md. Lazy imports and those for type checkers count like others.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("legos_envs", "inference", "legos_train")
"""From below to above: `inference` and `legos_envs` do not know each other, `legos_train` knows both."""
MOST_NAMES = 10
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


def order(package: str) -> list[str]:
    """The rooms of a package from above to below, as docs/architecture.md lists them."""
    text = (ROOT / "docs/architecture.md").read_text()
    block = re.search(rf"^### `{package}`\n.*?```text\n(.*?)```", text, re.DOTALL | re.MULTILINE)
    assert block, f"docs/architecture.md has no list of the rooms of {package}"
    return [line.split()[0].rstrip("/").removesuffix(".py") for line in block[1].splitlines() if line.strip()]


@cache
def modules() -> dict[str, Path]:
    """All modules by dotted name; a package is its `__init__.pyi` where there is one, else its `__init__.py`."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            stub = path.with_suffix(".pyi")
            found[name.removesuffix(".__init__")] = stub if stub.exists() else path
    return found


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements within a node, and none of their expressions, which are most of a tree."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield child
            yield from statements(child)


@cache
def imports(module: str, path: Path) -> list[tuple[str, str, int]]:
    """(imported module, name taken from it or "", line), wherever in the file the import stands."""
    return list(_imports(module, path))


def _imports(module: str, path: Path) -> Iterator[tuple[str, str, int]]:
    inside = module if path.stem == "__init__" else module.rpartition(".")[0]
    for node in statements(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "", node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(filter(None, (inside, node.module))) if node.level else node.module or ""
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                yield (whole, "", node.lineno) if whole in modules() else (base, alias.name, node.lineno)


def room(module: str) -> str:
    return ".".join(module.split(".")[:2])


def is_face(module: str) -> bool:
    """Whether a module may be imported from other rooms: a package's `__init__`, or a file that is a room itself."""
    return modules()[module].stem == "__init__" or module.count(".") == 1


@pytest.mark.parametrize("package", PACKAGES)
def test_the_list_of_rooms_is_the_folder(package: str) -> None:
    marks = ("__pycache__", ".", "py.typed")  # py.typed only tells type checkers that the package has types
    there = {path.stem for path in (ROOT / package).iterdir() if not path.name.startswith(marks)}
    listed = order(package)
    assert len(listed) == len(set(listed)) and set(listed) == there - {"__init__", "__main__"} - {"models"}
    assert len(there) <= 20


@pytest.mark.parametrize("package", PACKAGES)
def test_rooms_import_downwards_only(package: str) -> None:
    place = {f"{package}.{name}": number for number, name in enumerate(order(package))}
    wrong = [
        f"{module}:{line} imports {target}"
        for module, path in modules().items()
        if room(module) in place
        for target, _, line in imports(module, path)
        if room(target) != room(module)
        and (room(target) == package or place.get(room(target), 99) < place[room(module)])
    ]
    assert not wrong, "\n".join(wrong)


def test_other_rooms_are_entered_by_their_face() -> None:
    wrong = [
        f"{module}:{line} imports {target}.{name}".rstrip(".")
        for module, path in modules().items()
        for target, name, line in imports(module, path)
        if target in modules() and room(target) != room(module) and not (is_face(target) or _shown(target))
    ]
    assert not wrong, "\n".join(wrong)


def _shown(module: str) -> bool:
    """Whether a face offers this module whole, as `from legos_train.disk import fsops`."""
    face, _, name = module.rpartition(".")
    return name in faces().get(face, ())


@cache
def faces() -> dict[str, list[str]]:
    """The names that each package within a package offers."""
    out = {}
    for module, path in modules().items():
        if path.stem == "__init__" and "." in module:
            out[module] = [
                alias.asname or alias.name
                for node in tree(path).body
                if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith(module))
                for alias in node.names
            ]
    return out


def test_a_face_has_few_names() -> None:
    assert not {face: len(names) for face, names in faces().items() if len(names) > MOST_NAMES}


WITHOUT_ARRAYS = ("run", "disk", "arena", "league", "rollout", "credit", "players", "evaluation", "batch")
MEASURE_MLX = {
    "legos_train.run.preflight.memory",
    "legos_train.run.generation.overlap",
    "legos_train.run.preflight.dry_run",
}
"""They ask how much memory MLX takes, and end the streams of MLX's threads; none of them holds weights."""


def test_weights_are_arrays_only_behind_the_backend() -> None:
    """So the next backend is a new folder in legos_train/model, and a row in config/backend_rows.py."""
    found = {
        module
        for module, path in modules().items()
        if module.startswith(tuple(f"legos_train.{name}." for name in WITHOUT_ARRAYS))
        and any(target.partition(".")[0] in ("mlx", "mlx_lm") for target, _, _ in imports(module, path))
    }
    assert found == MEASURE_MLX


def test_no_import_circles() -> None:
    edges = {
        module: {target for target, _, _ in imports(module, path) if target in modules() and target != module}
        for module, path in modules().items()
    }
    state: dict[str, int] = {}

    def visit(module: str, trail: list[str]) -> None:
        assert state.get(module) != 1, " -> ".join([*trail[trail.index(module) :], module])
        if module not in state:
            state[module] = 1
            for target in sorted(edges[module]):
                visit(target, [*trail, module])
            state[module] = 2

    for module in modules():
        visit(module, [])


@pytest.mark.parametrize("package", PACKAGES)
def test_names_are_used_once(package: str) -> None:
    """No class name and no module name twice within a package, except faces."""
    classes: dict[str, list[str]] = {}
    files: dict[str, list[str]] = {}
    for module, path in modules().items():
        if not module.startswith(package):
            continue
        if path.stem != "__init__":
            files.setdefault(path.stem, []).append(module)
        for node in statements(tree(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes.setdefault(node.name, []).append(module)
    assert not {name: where for name, where in (files | classes).items() if len(where) > 1}


VOCABULARY = ("Policy", "Seat", "Agent", "Table", "Turn", "Trajectory", "Episode", "Batch", "Actor", "Arena", "Rubric")
"""Words that mean one thing everywhere, see docs/concepts.md."""


def test_a_word_of_the_vocabulary_names_one_thing() -> None:
    named: dict[str, list[str]] = {}
    for module, path in modules().items():
        for node in tree(path).body:
            names = [node.name] if isinstance(node, ast.ClassDef) else []
            if isinstance(node, ast.Assign):
                names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            for name in set(names) & set(VOCABULARY):
                named.setdefault(name, []).append(module)
    assert not {name: where for name, where in named.items() if len(where) > 1}


def loaded(statement: str) -> set[str]:
    """Top-level modules in a fresh process after a statement."""
    code = f"{statement}\nimport sys; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
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
