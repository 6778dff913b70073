"""The list of mutants fits the code, and the command that tries them tells the living from the dead."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import ROOT, Mutant, mutants
from tests.mutants.trees import Trees

FILE = "legos_train/credit/constant.py"
TEST = "tests/train/test_credit.py::test_constant"


def test_there_are_many_in_every_part_and_no_name_twice() -> None:
    assert len(MUTANTS) >= 100
    assert not [name for name, count in Counter(mutant.name for mutant in MUTANTS).items() if count > 1]
    rooms = Counter(mutant.file.rpartition("/")[0] for mutant in MUTANTS)
    train = ("credit", "loss", "loss/batch", "model", "run", "league", "rollout", "evaluation", "disk", "arena")
    for room in (
        *(f"legos_train/{name}" for name in train),
        "inference/engine",
        "legos_envs/games",
        "legos_envs/tasks",
    ):
        assert sum(count for folder, count in rooms.items() if f"{folder}/".startswith(f"{room}/")) >= 2, room


def test_every_mutant_fits_the_code_as_it_is() -> None:
    """Change the mutant together with the line; `old` occurs once, `new` compiles, and the tests are there."""
    sources = {file: (ROOT / file).read_text() for file in {mutant.file for mutant in MUTANTS}}
    wrong = []
    for mutant in MUTANTS:
        changed = mutant.applied(sources[mutant.file])
        if changed is None:
            wrong.append(
                f"{mutant.name}: in {mutant.file} {sources[mutant.file].count(mutant.old)} times: {mutant.old}"
            )
            continue
        assert changed != sources[mutant.file] and mutant.why
        ast.parse(changed)
        for test in mutant.tests.split():
            file, _, name = test.partition("::")
            function = name.partition("[")[0]
            if not (ROOT / file).is_file() or (function and f"def {function}(" not in (ROOT / file).read_text()):
                wrong.append(f"{mutant.name}: there is no test {test}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_the_command_tells_the_living_from_the_dead(tmp_path: Path) -> None:
    made = mutants(
        FILE,
        TEST,
        ("dead", "float(self.value)", "0.0", "it is always 0"),
        ("alive", "value must be finite", "value has to be finite", "nothing that this test sees"),
        ("gone", "a text that is not there", "", "nothing"),
        ("no-python", "float(self.value)", "float(self.value", "it cannot be imported"),
        ("again", "float(self.value)", "1.0", "each starts from the file as it is, not from the one before"),
    )
    made.append(Mutant("same", FILE, "float(self.value)", "+float(self.value)", "nothing", TEST, "x and +x are equal"))
    trees = Trees(tmp_path, 1, 100.0)
    assert trees.baseline([TEST]) is None
    assert "test_that_is_not_there" in str(trees.baseline([f"{FILE}::test_that_is_not_there"]))
    found = {mutant.name: fate for mutant, fate, _ in trees.tried(made)}
    assert found == {
        "dead": "killed",
        "alive": "survived",
        "gone": "stale",
        "no-python": "broken",
        "again": "killed",
        "same": "equivalent",
    }
