"""`--size`: every preset has settings for every size; a dry run tells what they need from the shape alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from mlx.utils import tree_flatten

from inference.loading import find_model, is_here, load
from legos_train.cli.main import main
from legos_train.config import TrainConfig, from_dict, preset, preset_names, sizes
from legos_train.errors import ConfigError
from legos_train.model import MLXBackend
from legos_train.run import estimate, memory, preflight

WEIGHTS = {  # in billions, without vision; the published numbers
    "0.6b": 0.596, "1.7b": 1.721, "4b": 4.022, "8b": 8.191,
    "qwen3.5-0.8b": 0.752, "qwen3.5-2b": 1.882, "qwen3.5-4b": 4.206, "qwen3.5-9b": 8.954,
}  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "is_here", lambda model: model in ("tiny", "small"))
    monkeypatch.setattr(memory, "on_cpu", lambda: False)
    monkeypatch.setattr(memory, "unpacks_at_load", lambda how, wide: False)


@pytest.mark.quick(4)
@pytest.mark.parametrize("size", sizes.SIZES)
def test_a_dry_run_of_every_preset_at_every_size(size: str) -> None:
    for name in preset_names():
        settings = preset(name, size=size)
        if name == "gsm8k":
            settings["env"][0]["args"] = {"source": "words"}  # the data set is on the hub
        config = from_dict(settings, name)
        said = estimate(config)
        fits = sizes.SIZES[size]
        assert config.model == fits.model and config.optim.lr == fits.lr and config.thinking == "off"
        assert (
            config.action_tokens <= fits.tokens and config.context <= fits.context and config.batch_size <= fits.batch
        )
        assert "not on this machine" in said and float(re.search(r"together +at most ([\d.]+) GiB", said)[1]) < 48


@pytest.mark.parametrize("size", WEIGHTS)
def test_a_shape_is_that_of_the_model(size: str) -> None:
    model = memory.outline(sizes.SIZES[size]._replace(bits=16))
    assert sum(array.size for _, array in tree_flatten(model.parameters())) / 1e9 == pytest.approx(
        WEIGHTS[size], abs=1e-3
    )


def test_the_count_is_that_of_a_model_that_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same arithmetic on the shape of `tiny`, whose weights are here."""
    shape = json.loads((find_model("tiny") / "config.json").read_text())
    size = sizes.SIZES["0.6b"]._replace(model="outline-of-tiny", shape=shape, bits=16)
    monkeypatch.setitem(sizes.SIZES, "tiny", size)
    config = TrainConfig()
    backend = MLXBackend(load("tiny")[0], config)
    trained = sum(array.size for array in backend.policy.trainable().values())
    weights = sum(array.size for _, array in tree_flatten(load("tiny")[0].parameters()))
    assert f"({trained:,} weights trained)" in memory.needs(config, size)
    assert memory._counted("outline-of-tiny").nbytes(2, 16) == 2 * weights


def test_on_a_cpu_four_bits_are_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `inference.unpacking` does at load: all weights in float32 where memory allows, else packed."""
    config, size = TrainConfig(model=sizes.SIZES["0.6b"].model), sizes.SIZES["0.6b"]
    there = memory.needs(config, size)
    monkeypatch.setattr(memory, "on_cpu", lambda: True)
    packed = memory.needs(config, size)
    monkeypatch.setattr(memory, "unpacks_at_load", lambda how, wide: True)
    unpacked = memory.needs(config, size)
    found = [re.search(r"base model +(.*)", said)[1] for said in (there, packed, unpacked)]
    assert found[:2] == ["0.31 GiB", "0.35 GiB"]
    assert found[2] == "2.22 GiB in float32, on this CPU; on Metal or CUDA 0.31 GiB"


def test_a_size_counts_less_than_what_a_preset_for_a_real_model_says() -> None:
    spiral, debate = preset("spiral", size="8b"), preset("debate", size="8b")
    assert spiral["lora"] == {"rank": 64, "scale": 1.0} and debate["lora"] == {"rank": 16, "scale": 2.0}
    assert spiral["optim"]["epochs"] == 2 and spiral["optim"]["lr"] == debate["optim"]["lr"] == 2e-5
    assert spiral["sampling"]["max_tokens"] == 2048 and debate["sampling"]["max_tokens"] == 512
    assert spiral["reply"] == "boxed_reasoning" and preset("spiral", smoke=True)["reply"] == "env"
    assert preset("debate")["model"] == sizes.SIZES[sizes.DEFAULT].model
    kuhn = preset("kuhn", size="0.6b")  # its optimiser was chosen for the bundled model
    assert kuhn["optim"]["lr"] == 1e-4 and kuhn["average"]["kind"] == "none" and kuhn["batch_size"] == 128
    assert "model" not in preset("kuhn")


@pytest.mark.parametrize(("word", "near"), [("4B", "'4b'"), ("qwen3.5-4", "'qwen3.5-4b'"), ("1.7", "'1.7b'")])
def test_an_unknown_size_names_the_nearest(word: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown size '{word}', did you mean {near}"):
        preset("debate", size=word)


def test_the_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--preset", "debate", "--size", "4b-base", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert 'model = "Qwen/Qwen3-4B-Base"' in out and "base model      7.49 GiB" in out
    assert main(["train", "--preset", "debate", "--size", "4b", "--smoke"]) == 1
    assert "leave out --size" in capsys.readouterr().err
    assert main(["train", "--env", "Nim-v0", "--size", "0.6b", "--dry-run"]) == 0
    assert 'env = "Nim-v0"' in (said := capsys.readouterr().out) and "Qwen3-0.6B-4bit" in said


def test_whether_a_model_is_here(tmp_path: Path) -> None:
    assert is_here("tiny") and is_here(tmp_path) and not is_here("nobody-has-this/no-such-model-4bit")
