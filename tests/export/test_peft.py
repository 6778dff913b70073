"""LoRA adapters to PEFT's layout and back: bit for bit, and refused where there is no counterpart."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from inference import AdapterError, load, read_adapter
from legos_train.cli.main import main
from legos_train.disk import save_adapter
from legos_train.errors import ExportError
from legos_train.export.peft import original_model, to_mlx, to_peft

SHAPES = {"self_attn.q_proj": (128, 128), "self_attn.k_proj": (128, 32), "mlp.down_proj": (512, 128)}
RANK, SCALE = 3, 1.7
Change = Callable[[dict[str, mx.array], dict[str, Any]], None]


def tensors(layers: tuple[int, ...] = (0, 1), dtype: mx.Dtype = mx.float32) -> dict[str, mx.array]:
    """Random LoRA matrices for the bundled model."""
    number = np.random.default_rng(5)
    found = {}
    for layer in layers:
        for name, (width, out) in SHAPES.items():
            path = f"model.layers.{layer}.{name}"
            found[f"{path}.lora_a"] = mx.array(number.normal(size=(width, RANK)).astype(np.float32) / 4).astype(dtype)
            found[f"{path}.lora_b"] = mx.array(number.normal(size=(RANK, out)).astype(np.float32) / 4).astype(dtype)
    return found


def config(num_layers: int = 2) -> dict[str, Any]:
    parameters = {"rank": RANK, "scale": SCALE, "dropout": 0.0, "keys": list(SHAPES)}
    return {
        "fine_tune_type": "lora",
        "num_layers": num_layers,
        "lora_parameters": parameters,
        "legos": {"base_model": "tiny"},
    }


def by_trainer(folder: Path, weights: dict[str, mx.array], settings: dict[str, Any]) -> Path:
    save_adapter(folder, weights, settings)
    return folder


def by_mlx_lm(folder: Path, weights: dict[str, mx.array], settings: dict[str, Any]) -> Path:
    """As mlx-lm's own trainer writes them: another order of tensors, other spacing."""
    folder.mkdir()
    mx.save_safetensors(str(folder / "adapters.safetensors"), weights)
    (folder / "adapter_config.json").write_text(json.dumps(settings, indent=4))
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("write", [by_trainer, by_mlx_lm])
@pytest.mark.parametrize(("layers", "dtype"), [((0, 1), mx.float32), ((1,), mx.float32), ((0, 1), mx.bfloat16)])
def test_the_way_back_gives_the_same_bytes(
    write: Callable[..., Path], layers: tuple[int, ...], dtype: mx.Dtype, tmp_path: Path
) -> None:
    adapter = write(tmp_path / "adapter", tensors(layers, dtype), config(len(layers)))
    assert len(to_peft(adapter, tmp_path / "peft", "org/name")) == len(layers) * len(SHAPES)
    to_mlx(tmp_path / "peft", tmp_path / "back")
    assert contents(tmp_path / "back") == contents(adapter)


def test_the_change_of_every_weight_is_the_same(tmp_path: Path) -> None:
    """PEFT: W + lora_alpha / r * B A. Read by another reader than the one that wrote it."""
    weights = tensors()
    to_peft(by_trainer(tmp_path / "adapter", weights, config()), tmp_path / "peft", "org/name")
    said = json.loads((tmp_path / "peft/adapter_config.json").read_text())
    found = load_file(tmp_path / "peft/adapter_model.safetensors")
    assert len(found) == len(weights)
    for layer in (0, 1):
        for name, (width, out) in SHAPES.items():
            path = f"model.layers.{layer}.{name}"
            a = found[f"base_model.model.{path}.lora_A.weight"]
            b = found[f"base_model.model.{path}.lora_B.weight"]
            assert a.shape == (RANK, width) and b.shape == (out, RANK)
            ours = SCALE * (np.array(weights[f"{path}.lora_a"]) @ np.array(weights[f"{path}.lora_b"])).T
            assert np.abs(said["lora_alpha"] / said["r"] * (b @ a) - ours).max() <= 1e-6
            assert np.abs(ours).max() > 0.1


@pytest.mark.parametrize(("layers", "listed"), [((0, 1), None), ((1,), [1])])
def test_peft_is_told_which_layers_and_modules(
    layers: tuple[int, ...], listed: list[int] | None, tmp_path: Path
) -> None:
    adapter = by_trainer(tmp_path / "adapter", tensors(layers), config(len(layers)))
    to_peft(adapter, tmp_path / "peft", "org/name")
    said = json.loads((tmp_path / "peft/adapter_config.json").read_text())
    assert said["peft_type"] == "LORA" and said["base_model_name_or_path"] == "org/name"
    assert said["r"] == RANK and said["lora_alpha"] == pytest.approx(SCALE * RANK)
    assert said["target_modules"] == ["down_proj", "k_proj", "q_proj"] and said["layers_to_transform"] == listed


def rename(old: str, new: str) -> Change:
    def change(weights: dict[str, mx.array], _: dict[str, Any]) -> None:
        weights[new] = weights.pop(old)

    return change


def put(name: str, value: mx.array) -> Change:
    return lambda weights, _: weights.update({name: value})


def setting(**values: Any) -> Change:
    return lambda _, settings: settings.update(values)


Q = "model.layers.0.self_attn.q_proj"
REFUSED: list[tuple[Change, str]] = [
    (setting(fine_tune_type="dora"), "only LoRA .* got fine_tune_type 'dora'"),
    (setting(lora_parameters={"rank": 4, "scale": 1.0}), r"ranks \(3, 3\) .* says 4"),
    (setting(lora_parameters={"rank": RANK, "alpha": 1.0}), "needs rank >= 1 and a finite scale"),
    (put(f"{Q}.m", mx.ones((128, 1))), "DoRA"),
    (put(f"{Q}.bias", mx.ones((128, 1))), "is not a LoRA matrix"),
    (put(f"{Q}.lora_a", mx.full((128, RANK), float("nan"))), f"{Q}.lora_a holds NaN or infinity"),
    (put(f"{Q}.lora_b", mx.full((RANK, 128), float("inf")).astype(mx.bfloat16)), f"{Q}.lora_b holds NaN or infinity"),
    (put("model.embed_tokens.lora_a", mx.ones((2048, RANK))), "adapters on embeddings"),
    (put("lm_head.lora_a", mx.ones((128, RANK))), "adapters on embeddings, on the output head"),
    (put("model.layers.0.mlp.switch.lora_a", mx.ones((2, 128, RANK))), "experts have no mapping"),
    (put("model.layers.0.mlp.up_proj.lora_a", mx.ones((128, RANK))), "has no partner .*up_proj.lora_b"),
    (rename(f"{Q}.lora_a", "model.layers.0.x.lora_a"), "no partner"),
    (put(f"{Q}.lora_a", mx.ones((128, RANK), dtype=mx.int32)), "is I32; accepted are F32, F16, BF16"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_what_has_no_counterpart_is_refused_and_nothing_is_written(
    change: Change, message: str, tmp_path: Path
) -> None:
    weights, settings = tensors(), config()
    change(weights, settings)
    adapter = by_mlx_lm(tmp_path / "adapter", weights, settings)
    with pytest.raises(ExportError, match=message):
        to_peft(adapter, tmp_path / "peft", "org/name")
    assert not (tmp_path / "peft").exists()


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
def test_the_largest_numbers_are_finite(dtype: mx.Dtype, tmp_path: Path) -> None:
    weights = tensors(dtype=dtype)
    weights[f"{Q}.lora_a"] = mx.full((128, RANK), mx.finfo(dtype).max).astype(dtype)
    to_peft(by_trainer(tmp_path / "adapter", weights, config()), tmp_path / "peft", "org/name")
    to_mlx(tmp_path / "peft", tmp_path / "back")
    assert contents(tmp_path / "back") == contents(tmp_path / "adapter")


def foreign(folder: Path, **changes: Any) -> Path:
    """An adapter as PEFT writes it, without our metadata, on the last layer alone."""
    folder.mkdir()
    number = np.random.default_rng(1)
    save_file(
        {
            f"base_model.model.model.layers.1.self_attn.q_proj.lora_{kind}.weight": number.normal(size=shape).astype(
                "f4"
            )
            for kind, shape in (("A", (4, 128)), ("B", (128, 4)))
        },
        folder / "adapter_model.safetensors",
    )
    said = {
        "peft_type": "LORA",
        "r": 4,
        "lora_alpha": 10,
        "target_modules": ["q_proj"],
        "bias": "none",
        "use_dora": False,
    }
    (folder / "adapter_config.json").write_text(json.dumps({**said, "base_model_name_or_path": "org/name", **changes}))
    return folder


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"r": 8}, r"has rank 4, but adapter_config\.json says 8"),
        ({"r": True}, "r of at least 1"),
        ({"lora_alpha": True}, "finite lora_alpha"),
        ({"alora_invocation_tokens": [1, 2]}, r"got alora_invocation_tokens = \[1, 2\]"),
        ({"use_dora": True}, "got use_dora = True"),
        ({"peft_type": None}, "got peft_type = None"),
    ],
)
def test_peft_folders_that_mean_something_else_are_not_served_as_lora(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(AdapterError, match=message):
        read_adapter(foreign(tmp_path / "peft", **changes))


@pytest.mark.parametrize(("changes", "scale"), [({}, 2.5), ({"use_rslora": True}, 5.0)])
def test_an_adapter_of_peft_loads_here_and_in_mlx_lm(changes: dict[str, Any], scale: float, tmp_path: Path) -> None:
    peft = foreign(tmp_path / "peft", **changes)
    assert to_mlx(peft, tmp_path / "mlx") == ["model.layers.1.self_attn.q_proj"]
    found = read_adapter(tmp_path / "mlx")
    assert found.scale == scale and found.rank == 4 and found.config["model"] == "org/name"
    theirs = load_file(peft / "adapter_model.safetensors")[
        "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight"
    ]
    assert np.array_equal(np.array(found.weights["model.layers.1.self_attn.q_proj.lora_a"]), theirs.T)
    model, _, _ = load("tiny", adapter_path=tmp_path / "mlx")
    changed = {name for name, module in model.named_modules() if float(np.abs(np.array(module.get("lora_b", 0))).max())}
    assert changed == {"model.layers.1.self_attn.q_proj"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"peft_type": "IA3"}, "got peft_type = 'IA3'"),
        ({"use_dora": True}, "use_dora = True has no counterpart"),
        ({"rank_pattern": {"q_proj": 8}}, "rank_pattern"),
        ({"trainable_token_indices": [1]}, "trainable_token_indices"),
        ({"something_new": "on"}, "something_new"),
        ({"bias": "all"}, "bias = 'all'"),
        ({"r": 8}, r"ranks \(4, 4\) .* says 8"),
        ({"lora_alpha": None}, "finite lora_alpha"),
    ],
)
def test_peft_adapters_that_are_more_than_lora_are_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=message):
        to_mlx(foreign(tmp_path / "peft", **changes), tmp_path / "mlx")
    assert not (tmp_path / "mlx").exists()


def test_an_adapter_that_was_changed_in_peft_keeps_its_changes(tmp_path: Path) -> None:
    to_peft(by_trainer(tmp_path / "adapter", tensors(), config()), tmp_path / "peft", "org/name")
    said = json.loads((tmp_path / "peft/adapter_config.json").read_text())
    (tmp_path / "peft/adapter_config.json").write_text(json.dumps({**said, "lora_alpha": 6}))
    file = tmp_path / "peft/adapter_model.safetensors"
    data = bytearray(file.read_bytes())
    data[-4:] = np.float32(7.5).tobytes()  # the last number of the last matrix
    file.write_bytes(bytes(data))
    to_mlx(tmp_path / "peft", tmp_path / "mlx")
    found = read_adapter(tmp_path / "mlx")
    assert found.scale == 2.0, "the scale of the old config was taken"
    assert sum(float((w == 7.5).sum()) for w in found.weights.values()) == 1


@pytest.mark.parametrize("cut", [4, 200, -10])
def test_a_damaged_file_is_named(cut: int, tmp_path: Path) -> None:
    adapter = by_trainer(tmp_path / "adapter", tensors(), config())
    file = adapter / "adapters.safetensors"
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(ExportError, match="damaged"):
        to_peft(adapter, tmp_path / "peft", "org/name")


def test_the_base_model_must_be_one_that_peft_can_load(tmp_path: Path) -> None:
    assert original_model("Qwen/Qwen3-0.6B", None) == "Qwen/Qwen3-0.6B"
    assert original_model("tiny", "org/name") == "org/name"
    quantized = ("mlx-community/Qwen3-0.6B-4bit", "org/Llama-3-8bit", "org/model-AWQ", "org/x-q4")
    for named in ("tiny", None, str(tmp_path), *quantized):
        with pytest.raises(ExportError, match="--base-model ORGANISATION/NAME"):
            original_model(named, None)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    adapter, peft = by_trainer(tmp_path / "adapter", tensors(), config()), tmp_path / "peft"
    assert main(["export", "peft", str(adapter), str(peft)]) == 1
    assert "`tiny` comes with Legos" in capsys.readouterr().err and not peft.exists()
    assert main(["export", "peft", str(adapter), str(peft), "--base-model", "org/name"]) == 0
    assert "6 layers of org/name" in capsys.readouterr().out
    assert main(["export", "peft", str(adapter), str(peft), "--base-model", "org/name"]) == 1
    assert "is not empty" in capsys.readouterr().err
    assert main(["export", "mlx", str(peft), str(tmp_path / "back")]) == 0
    assert contents(tmp_path / "back") == contents(adapter)
    assert main(["export", "mlx", str(tmp_path / "nothing"), str(tmp_path / "x")]) == 1
    assert "adapter_config.json is missing" in capsys.readouterr().err
    with pytest.raises(SystemExit) as usage:
        main(["export", "mlx", str(peft), str(tmp_path / "x"), "--push", "org/name"])
    assert usage.value.code == 2


@pytest.mark.filterwarnings("ignore")
def test_real_peft_computes_the_same_logits(tmp_path: Path) -> None:
    """Needs peft and torch, which no extra brings."""
    torch, peft = pytest.importorskip("torch"), pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM

    from inference import Engine

    weights, tokens = tensors((1,)), [[1, 941, 262, 201, 520], [61, 542, 63, 2, 201]]
    to_peft(by_trainer(tmp_path / "adapter", weights, config(1)), tmp_path / "peft", "org/name")
    with Engine.load("tiny") as engine:
        engine.publish("a", weights, scale=SCALE, version=1)
        ours, base = engine.next_logits(tokens, "a"), engine.next_logits(tokens, None)
    import inference

    folder = Path(inference.__file__).parent / "models/tiny"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        theirs = peft.PeftModel.from_pretrained(model, tmp_path / "peft")(torch.tensor(tokens)).logits[:, -1].numpy()
    assert np.abs(np.array(ours) - theirs).max() <= 1e-4
    assert np.abs(np.array(ours) - np.array(base)).max() > 0.1
