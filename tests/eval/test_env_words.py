"""What an env is called on the command line, and whose its arguments are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from legos_train.cli.main import main
from legos_train.evaluation.env_words import SettingError, env_words
from legos_train.evaluation.games import Pairing


def test_arguments_of_all_envs_and_of_one() -> None:
    found = env_words(["A-v0", "m=B-v0", "B-v0", "A-v0"], ["x=1", "m:x=2", "m:y=k=v", "A-v0:z=[1]"])
    assert {title: (one.id, one.args) for title, one in found.items()} == {
        "A-v0": ("A-v0", {"x": 1, "z": [1]}),
        "m": ("B-v0", {"x": 2, "y": "k=v"}),
        "B-v0": ("B-v0", {"x": 1}),
    }
    file = "./own.py:Mine-v0"
    with pytest.warns(UserWarning, match="names no version"):
        short = env_words(["KuhnPoker", "k=legos/KuhnPoker-v0"], ["k:num_rounds=3"])
    assert {title: one.id for title, one in short.items()} == {"KuhnPoker-v0": "KuhnPoker-v0", "k": "KuhnPoker-v0"}
    assert env_words([file], [f"{file}:level=3"])[file].args == {"level": 3}


def test_a_name_makes_no_other_games() -> None:
    one, named = (Pairing("A-v0", "p", "o", (("a",), ("b",)), title=title) for title in ("", "m"))
    assert (one.title, named.title) == ("A-v0", "m") and one.key == named.key


@pytest.mark.parametrize(
    ("words", "given", "said"),
    [
        (["a=A-v0", "a=B-v0"], [], "two envs are named 'a': A-v0 and B-v0"),
        (["A-v0", "b=A-v0"], ["x=1"], "the same env with the same arguments"),
        (["A-v0", "B-v0"], ["C-v0:x=1"], "an env named 'C-v0'; there are A-v0, B-v0"),
    ],
)
def test_mistakes_are_explained(words: list[str], given: list[str], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        env_words(words, given)


EASY_AND_HARD = ["easy=Dataset-v0", "hard=Dataset-v0", "--arg", "size=6", "--arg", "hard:size=9"]
SOLVERS = ["-m", "scripted:oracle", "-m", "scripted:wrong"]


def test_one_env_twice_in_an_evaluation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", *EASY_AND_HARD, *SOLVERS, "-n", "9", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [(row["env"], row["args"], row["accuracy"]["problems"]) for row in found["results"][::2]] == [
        ("easy", {"size": 6}, 6),
        ("hard", {"size": 9}, 9),
    ]
    assert [one["env"] for one in found["comparisons"]] == ["easy", "hard"]
    assert found["setting"]["games"] == 9 and found["setting"]["seed"] == 0


def test_one_env_twice_in_a_tournament(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tournament", *EASY_AND_HARD, *SOLVERS, "-n", "9", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["envs"] == ["Dataset-v0 (size=6)", "Dataset-v0 (size=9)"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["KuhnPoker-v0", "--arg", "foo=3"], "KuhnPoker-v0: argument 'foo' is unknown"),
        (["KuhnPoker-v0", "--arg", "num_rounds=0"], "num_rounds must be a whole number"),
        (["KuhnPoker-v0", "Dataset-v0", "--arg", "size=3"], "--arg ENV:NAME=VALUE is for one of them"),
    ],
)
def test_arguments_that_an_env_does_not_take(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", *arguments, "-m", "random"]) == 1
    assert said in capsys.readouterr().err


def test_who_plays_alone_has_no_opponent_and_few_problems_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "Dataset-v0", "-m", "scripted:oracle", "-n", "8", "--arg", "size=20"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Dataset-v0: scripted:oracle, 8 games\n") and "8 of 20 problems." in said
    assert "success 100.0% (63.1 .. 100.0)\n" in said and "was +1.1 on all 8 seeds" in said and "31.2%" in said
    assert main(["eval", "Dataset-v0", "-m", "random", "-n", "20", "--arg", "size=5"]) == 0
    assert "success 0.0%\n" in (said := capsys.readouterr().out) and "mean@4      0.0%" in said
