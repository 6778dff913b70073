"""Bundled models change with Legos: weights trained on another one are refused wherever they would be used."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from inference.loading import bundled_digest
from legos_train import TrainConfig, train
from legos_train.cli.main import main
from legos_train.disk import bases
from legos_train.errors import PolicyError
from legos_train.model.other_run import read_snapshots
from legos_train.rollout.players import words
from tests.train.helpers import small

ANOTHER = "0" * 12


@pytest.fixture(scope="module")
def of_another_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of `tiny` whose records name another base, as after an upgrade of Legos."""
    run = tmp_path_factory.mktemp("runs") / "old"
    settings: dict[str, Any] = {"env": "Nim-v0", "steps": 1, "batch_size": 4, "run_dir": run}
    train(TrainConfig(**settings, checkpoint={"every": 1}, eval={"games": 4}), quiet=True)
    files = [run / "run.json", *run.glob("*/adapter_config.json")]
    assert len(files) >= 3
    for file in files:
        text = file.read_text()
        assert f'"base_weights": "{bundled_digest("tiny")}"' in text, file
        file.write_text(re.sub(r'"base_weights": "\w+"', f'"base_weights": "{ANOTHER}"', text))
    return run


@pytest.mark.parametrize("word", ["{}", "{}@last", "{}@step_1", "{}/adapter", "tiny+{}/adapter"])
def test_no_word_for_them_is_a_player(of_another_base: Path, word: str) -> None:
    with pytest.raises(PolicyError, match=rf"another 'tiny' .*weights {ANOTHER}, here {bundled_digest('tiny')}"):
        words.Cast().player(word.format(of_another_base))


def test_a_base_of_ones_own_is_taken_at_its_word(of_another_base: Path, random_model_dir: Path) -> None:
    base, adapter = words.locate(f"{random_model_dir}+{of_another_base}/adapter")
    assert (base, adapter) == (str(random_model_dir), of_another_base / "adapter")


@pytest.mark.parametrize(
    "command",
    [
        "train --resume --run-dir {} --steps 2",
        "train --env Nim-v0 --steps 1 --run-dir {}-new --init-adapter {}/adapter",
        "train --env Nim-v0 --steps 1 --run-dir {}-new --init-adapter {}",
        "serve --model tiny --adapter a={}",
    ],
)
def test_no_command_uses_them(of_another_base: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command.replace("{}", str(of_another_base)).split()) != 0
    assert ANOTHER in capsys.readouterr().err
    assert not Path(f"{of_another_base}-new").exists()


def test_no_league_takes_them(of_another_base: Path) -> None:
    with pytest.raises(PolicyError, match=ANOTHER):
        read_snapshots(of_another_base)


def test_what_was_made_before_bases_were_recorded_is_judged_by_whether_they_changed() -> None:
    bases.check_weights("tiny", None, "it")
    bases.check_weights("Qwen/Qwen3-0.6B", None, "it")
    with pytest.raises(PolicyError, match="not recorded"):
        bases.check_weights("small", None, "it")


def test_evaluations_of_two_bases_are_not_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of a game has the weights, also those of a bundled model, whose name stays when it is remade."""
    before = words.Cast().identity("tiny")
    monkeypatch.setattr("inference.loading.bundled_digest", lambda name: ANOTHER)
    assert json.dumps(before) != json.dumps(words.Cast().identity("tiny"))


@pytest.mark.slow
def test_a_run_may_have_a_plus_or_an_at_in_its_name(tmp_path: Path) -> None:
    """`runs/a@last` was the last weights of `runs/a`, although a run had that name."""
    for name in ("a", "a@last", "b+c", "me@here"):
        train(small(tmp_path / name, steps=1, batch_size=2), quiet=True)
    found = {
        word: words.locate(str(tmp_path / word)) for word in ("a", "a@last", "a@last@last", "b+c", "me@here@step_1")
    }
    assert {word: path and path.relative_to(tmp_path) for word, (_, path) in found.items()} == {
        "a": Path("a/adapter"),
        "a@last": Path("a@last/adapter"),
        "a@last@last": Path("a@last/last"),
        "b+c": Path("b+c/adapter"),
        "me@here@step_1": Path("me@here/checkpoints/step_1"),
    }
    assert words.locate(f"tiny+{tmp_path}/b+c/adapter") == ("tiny", tmp_path / "b+c/adapter")
    assert words.locate("owner/name@main") == ("owner/name@main", None)


def test_a_local_model_is_found_from_another_folder(
    tmp_path: Path, random_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was looked for on the hub, by its relative path."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own/model").symlink_to(random_model_dir)
    monkeypatch.chdir(tmp_path)
    train(small(Path("runs/x"), model="own/model", steps=1, batch_size=2), quiet=True)
    assert words.locate("runs/x") == ("own/model", Path("runs/x/adapter"))
    monkeypatch.chdir(tmp_path / "own")
    for word in ("../runs/x", "../runs/x/adapter"):
        base, adapter = words.locate(word)
        assert Path(base).resolve() == random_model_dir.resolve() and adapter == Path("../runs/x/adapter")
