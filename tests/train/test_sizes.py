"""`--size`: every preset has settings for every size; a dry run tells what they need from the shape alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from benchmarks.learner import batch_of, measured
from inference.loading import find_model, is_here, load
from legos_envs.tasks import given_items, raw_rows
from legos_envs.tasks.problems import DataSetUnavailable
from legos_train.cli import train as train_command
from legos_train.cli.main import main
from legos_train.cli.setting_flags import applied, given
from legos_train.config import TrainConfig, from_dict, preset, preset_names, sizes
from legos_train.errors import ConfigError
from legos_train.loss import LossSettings
from legos_train.model.gradients import loss_and_grad
from legos_train.model.mlx_backend import MLXBackend
from legos_train.model.policy import LoRAPolicy
from legos_train.run import dry_run, estimate
from legos_train.run.preflight import memory

WEIGHTS = {  # in billions, without vision; the published numbers
    "0.6b": 0.596, "1.7b": 1.721, "4b": 4.022, "8b": 8.191,
    "qwen3.5-0.8b": 0.752, "qwen3.5-2b": 1.882, "qwen3.5-4b": 4.206, "qwen3.5-9b": 8.954,
}  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_run, "is_here", lambda model: model in ("tiny", "small"))
    monkeypatch.setattr(memory, "on_cpu", lambda: False)
    monkeypatch.setattr(memory, "unpacks_at_load", lambda how, wide: False)

    def offline(name: str, *where: str | None) -> None:
        raise DataSetUnavailable(f"cannot load the data set {name!r}")

    monkeypatch.setattr(raw_rows, "_hub", offline)
    monkeypatch.setattr(given_items, "_opened", {})


@pytest.mark.quick(4)
@pytest.mark.parametrize("size", sizes.SIZES)
def test_a_dry_run_of_every_preset_at_every_size(size: str) -> None:
    for name in preset_names():
        config = from_dict(preset(name, size=size), name)
        said = estimate(config)
        fits = sizes.SIZES[size]
        assert config.model == fits.model and config.optim.lr == fits.lr and config.thinking == "off"
        assert (
            config.action_tokens <= fits.tokens and config.context <= fits.context and config.batch_size <= fits.batch
        )
        together = re.search(r"together +([\d.]+) GiB; at most ([\d.]+) GiB, if rows", said)
        assert (
            "not on this machine" in said and float(together[1]) < float(together[2]) < 64 and float(together[1]) < 48
        )


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
    assert memory._counted("outline-of-tiny", 0, ()).nbytes(2, 16) == 2 * weights


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


@pytest.mark.parametrize("checkpoint_layers", [True, False])
@pytest.mark.parametrize("size", ["0.6b", "qwen3.5-0.8b"])
def test_what_a_backward_pass_keeps_is_measured(
    size: str, checkpoint_layers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four narrower blocks of the size, in float32: the estimate is an upper bound, and not twice too high."""
    narrow = {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4, "vocab_size": 512}
    whole = sizes.SIZES[size].shape
    inner = whole.get("text_config", whole) | narrow
    shape = whole | {"text_config": inner} if "text_config" in whole else inner
    one = sizes.SIZES[size]._replace(model=f"narrow-{size}", shape=shape, bits=16)
    monkeypatch.setitem(sizes.SIZES, "narrow", one)
    model, rows, tokens = memory.outline(one), 2, 256
    model.set_dtype(mx.float32)
    policy, batch = LoRAPolicy(model, seed=0, checkpoint_layers=checkpoint_layers), batch_of(rows, tokens)
    _, found = measured(lambda: loss_and_grad(policy, batch, LossSettings(kl=0.0)))
    numbers = memory.kept_per_token(
        memory._counted(one.model, 0, ()).outputs,
        inner["hidden_size"],
        scores=inner["num_attention_heads"] * tokens // 2,
        with_scores=4 // inner.get("full_attention_interval", 1),
        checkpoint_layers=checkpoint_layers,
    )
    logits = memory.LOGIT_ARRAYS * len(batch.rows) * inner["vocab_size"]
    estimated = (rows * tokens * numbers + logits) * memory.FULL / 2**20
    assert 0.9 < estimated / found < 2


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


def test_what_differs_for_a_bundled_model_holds_for_no_other() -> None:
    assert preset("survivors", size="small")["optim"]["lr"] == 5e-4
    assert (
        preset("survivors", size="1.7b")["optim"]["lr"] == sizes.size("1.7b").lr == preset("survivors")["optim"]["lr"]
    )
    assert all("bundled" not in preset(name, size=size) for name in preset_names() for size in ("small", "4b"))


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


@pytest.mark.parametrize(
    ("words", "noted"),
    [
        ("--preset population --model tiny", True),
        ("--preset population --model tiny --optim.lr 1e-3", False),
        ("--preset population --size small", False),
        ("--preset population", False),
        ("--preset kuhn --model small", False),
        ("--env Nim-v0 --model small", False),
    ],
)
def test_a_learning_rate_for_another_model_is_noted(words: str, noted: bool) -> None:
    """Kuhn poker stood still for 300 steps with the rate of a model of 1.7 billion parameters."""
    options = train_command.full_parser().parse_args(words.split())
    config = applied(given(options), from_dict(train_command.settings(options), "settings"))
    said = train_command.fitted_to_another(options, config)
    assert (said is not None) == noted and (not noted or "4e-05 fits the size 1.7b, and perhaps not tiny" in said)


def test_without_the_hub_a_shape_is_still_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--preset", "gsm8k", "--size", "1.7b", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "checked with the environment's own items instead: cannot load the data set 'openai/gsm8k'" in out
    assert 'source = "hf"' in out and "\ntogether  " in out
    assert main(["train", "--preset", "debate", "--size", "1.7b", "--dry-run"]) == 0
    assert "own items" not in capsys.readouterr().out


def test_without_the_hub_training_ends_in_words(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--preset", "gsm8k", "--model", "tiny"]) == 1
    assert not list(tmp_path.iterdir()), "a start that failed leaves no empty runs/ behind"
    said = capsys.readouterr().err
    assert "cannot load the data set 'openai/gsm8k'" in said and "Traceback" not in said
    assert "source='words', of which level=0 are the easiest" in said


def limits(*more: str) -> tuple[int | None, int | None, str]:
    """Tokens of an action and of a thought, and the switch, of the debate preset with more flags."""
    options = train_command.full_parser().parse_args(["--preset", "debate", "--size", "4b", *more])
    config = applied(given(options), from_dict(train_command.settings(options)))
    return config.sampling.max_tokens, config.sampling.thinking_tokens, config.thinking


def test_thoughts_get_room(tmp_path: Path) -> None:
    file = tmp_path / "more.toml"
    file.write_text('thinking = "on"\n')
    assert limits() == limits("--thinking", "off") == (512, None, "off")
    assert limits("--thinking", "on") == limits("--thinking=on") == limits("--config", str(file)) == (4096, 3584, "on")
    assert limits("--thinking", "on", "--sampling.max-tokens", "900") == (900, None, "on")
    assert limits("--thinking", "on", "--sampling.thinking-tokens", "99") == (4096, 99, "on")
    assert limits("--config", str(file), "--thinking", "off") == (512, None, "off")
    file.write_text('thinking = "on"\n[sampling]\nmax_tokens = 1024\n')
    assert limits("--config", str(file)) == (1024, None, "on")
    file.write_text('thinking = "on"\nsampling = { max_tokens = 1000, thinking_tokens = 700 }\n')
    assert limits("--config", str(file)) == (1000, 700, "on")


@pytest.mark.parametrize("size", sizes.SIZES)
def test_thoughts_fit_every_preset(size: str) -> None:
    for name in preset_names():
        config = from_dict({**sizes.with_thoughts(preset(name, size=size)), "thinking": "on"}, name)
        thought = config.sampling.thinking_tokens
        assert thought is not None and config.action_tokens // 2 <= thought < config.action_tokens
        assert config.action_tokens <= config.context // 2


def test_whether_a_model_is_here(tmp_path: Path) -> None:
    assert is_here("tiny") and is_here(tmp_path) and not is_here("nobody-has-this/no-such-model-4bit")


def test_a_file_may_name_its_preset(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('preset = "nim"\nsteps = 3\n')
    options = train_command.make_parser().parse_args(["--config", str(file)])
    for config in (TrainConfig.load(file), from_dict(train_command.settings(options))):
        assert config.env[0].id == "Nim-v0" and config.steps == 3
    for wrong in ('"nin"', "5"):
        file.write_text(f"preset = {wrong}\n")
        with pytest.raises(ConfigError, match="unknown preset"):
            TrainConfig.load(file)
