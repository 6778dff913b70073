"""Finding models and adapters: clear refusals, no code from model directories, shared arrays."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from transformers import AutoTokenizer

import inference
from inference import AdapterError, InferenceError, ModelNotFound, UnsafeModel, base_digest, load, loading, read_adapter


@pytest.fixture
def adapter_dir(tmp_path: Path, make_adapter: Callable[..., dict[str, mx.array]]) -> Path:
    parameters = {"rank": 4, "scale": 2.0, "dropout": 0.0, "keys": ["self_attn.q_proj"]}
    config = {"fine_tune_type": "lora", "num_layers": 2, "lora_parameters": parameters}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    weights = {name: w for name, w in make_adapter(1).items() if "q_proj" in name}
    mx.save_safetensors(str(tmp_path / "adapters.safetensors"), weights)
    return tmp_path


@pytest.mark.parametrize("name", ["/no/such/place", "./nowhere", "nothing", "~/nothing-here", "a/b/c"])
def test_a_missing_model_is_named_with_what_is_accepted(name: str) -> None:
    with pytest.raises(
        ModelNotFound, match=r"no such model .*'tiny', 'small', a directory with config.json, or a hub name"
    ):
        load(name)


def test_a_directory_without_config_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"that directory has no config\.json"):
        load(tmp_path)


@pytest.mark.parametrize(("file", "key"), [("config.json", "auto_map"), ("config.json", "model_file")])
def test_models_that_bring_code_are_refused(file: str, key: str, random_model_dir: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(random_model_dir, tmp_path / "model")
    config = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps({**config, key: "evil.py"}))
    (folder / "evil.py").write_text("raise SystemExit('code from the model ran')")
    with pytest.raises(UnsafeModel, match=key):
        load(folder)


def test_a_damaged_config_is_reported(random_model_dir: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(random_model_dir, tmp_path / "model")
    (folder / "config.json").write_text("{")
    with pytest.raises(ModelNotFound, match=r"config\.json cannot be read as JSON"):
        load(folder)


def test_the_digest_is_of_config_and_weights(random_model_dir: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(random_model_dir, tmp_path / "model")
    assert base_digest(folder) == base_digest(random_model_dir) == load(folder)[2].digest
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x7f")
    assert base_digest(folder) != base_digest(random_model_dir)


def test_the_fixture_loads_in_transformers_too(random_model_dir: Path, random_model: tuple[Any, Any]) -> None:
    theirs = AutoTokenizer.from_pretrained(str(random_model_dir))
    text = "the player <|im_end|> says [bet]"
    assert theirs.encode(text) == random_model[1].encode(text)
    assert theirs.decode(theirs.encode("[pass]")) == "[pass]"


def test_an_adapter_is_read_and_can_be_put_on_the_model(adapter_dir: Path, random_model_dir: Path) -> None:
    model, _, _ = load(random_model_dir, adapter_path=adapter_dir)
    adapter = read_adapter(adapter_dir, model)
    assert (adapter.rank, adapter.scale, len(adapter.weights)) == (4, 2.0, 4)
    prompt = [5, 6, 7]
    with inference.Engine.load(random_model_dir, adapter_dir) as engine:
        assert mx.allclose(
            mx.array(engine.next_logits([prompt], "default")[0]), model(mx.array([prompt]))[0, -1], atol=1e-4
        ).item()


def test_damaged_and_misfitting_adapters_are_refused(adapter_dir: Path, random_model: tuple[Any, Any]) -> None:
    config_file, weight_file = adapter_dir / "adapter_config.json", adapter_dir / "adapters.safetensors"
    config, weights = json.loads(config_file.read_text()), dict(mx.load(str(weight_file)))
    mx.eval(weights)
    name = "model.layers.1.self_attn.q_proj.lora_b"

    def refused(message: str) -> None:
        with pytest.raises(AdapterError, match=message):
            read_adapter(adapter_dir, random_model[0])

    mx.save_safetensors(str(weight_file), {**weights, name: mx.zeros((4, 99))})
    refused(r"model\.layers\.1\.self_attn\.q_proj\.lora_b has shape \(4, 99\), expected \(rank, 64\)")
    weight_file.write_bytes(weight_file.read_bytes()[:100])
    refused("damaged")
    weight_file.unlink()
    refused(r"adapters\.safetensors is missing")
    mx.save_safetensors(str(weight_file), weights)
    for change, message in [
        ({"fine_tune_type": "dora"}, "got 'dora'"),
        ({"lora_parameters": {"rank": 4}}, "finite scale"),
        ({"lora_parameters": {"rank": 8, "scale": 1.0}}, "has rank 4, but adapter_config.json says 8"),
    ]:
        config_file.write_text(json.dumps({**config, **change}))
        refused(message)
    config_file.write_text("[]")
    refused("fine_tune_type")


def test_errors_have_one_base() -> None:
    for error in (ModelNotFound, UnsafeModel, AdapterError):
        assert issubclass(error, InferenceError)


def test_layers_of_mlx_lms_adapters_are_seen_through() -> None:
    from mlx import nn
    from mlx_lm.models.switch_layers import SwitchLinear
    from mlx_lm.tuner.dora import DoRAEmbedding, DoRALinear
    from mlx_lm.tuner.lora import LoRAEmbedding, LoRALinear, LoRASwitchLinear

    from inference.adapters import base_layer
    from inference.adapters.layers import LORA

    linear, embedding, expert = nn.Linear(4, 4), nn.Embedding(4, 4), SwitchLinear(4, 4, 2)
    for layer, inner in [
        (LoRALinear.from_base(linear), linear),
        (LoRASwitchLinear.from_base(expert), expert),
        (LoRAEmbedding.from_base(embedding), embedding),
        (DoRALinear.from_base(linear), linear),
        (DoRAEmbedding.from_base(embedding), embedding),
    ]:
        assert base_layer(layer) is inner
    assert base_layer(linear) is None and base_layer("linear") is None
    assert base_layer(DoRALinear.from_base(linear), by=(LORA,)) is None


def test_a_hub_model_is_pinned_by_its_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    from legos_train.config.sizes import SIZES, shape_of
    from legos_train.rollout.players.words import locate

    commit = "0123456789abcdef0123456789abcdef01234567"
    snapshot = tmp_path / "hub/models--org--name/snapshots" / commit
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    refs = tmp_path / "hub/models--org--name/refs"
    refs.mkdir()
    (refs / "main").write_text(commit)
    monkeypatch.setattr(loading, "_hub_is_unknown", lambda: True)
    download = functools.partial(huggingface_hub.snapshot_download, cache_dir=tmp_path / "hub")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    cached = functools.partial(huggingface_hub.try_to_load_from_cache, cache_dir=tmp_path / "hub")
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", cached)
    for name in ("org/name", f"org/name@{commit}"):
        assert loading.find_model(name) == snapshot and loading.is_here(name)
        assert locate(name) == (name, None)
    other = f"org/name@{'f' * 40}"
    assert not loading.is_here(other)
    with pytest.raises(ModelNotFound, match="owner/name@revision"):
        loading.find_model(other)
    size = SIZES["0.6b"]
    assert shape_of(f"{size.model}@{commit}") is size


def test_a_user_without_a_home_gets_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose user has no entry in passwd; `Path.expanduser` raises there."""
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    with pytest.raises(ModelNotFound, match="no such model"):
        load("~/nothing-here")
    assert loading.is_here("~/nothing-here")
