"""What a checkpoint holds comes back bit for bit; damage is found; what others put there stays."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from inference.files import tensors
from legos_train.disk import checkpoint
from legos_train.errors import RunError

ARRAYS = {
    "adapter": {"a": mx.arange(6).astype(mx.float32).reshape(2, 3), "b": mx.array([1.5, -0.0, 3e38, 1e-45])},
    "optimizer": {"step": mx.array(7, dtype=mx.uint64), "m": mx.array([0.1, 0.2]).astype(mx.bfloat16)},
    "league_step_40": {},
}
FILES = {"store.sqlite": bytes(range(256)) * 4, "replay.jsonl": b""}


def keep(root: Path, step: int, keep: int = 2) -> Path:
    state = {"step": step, "rng": [2**63, 0.1], "none": None}
    return checkpoint.save(root, step, ARRAYS, state, keep, files=FILES)


def bits(array: mx.array) -> tuple[object, ...]:
    plain = np.array(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array)
    return array.dtype, array.shape, plain.tobytes()


def test_everything_comes_back(tmp_path: Path) -> None:
    keep(tmp_path, 3)
    found = checkpoint.load_newest(tmp_path)
    assert found is not None
    assert found.state == {"step": 3, "rng": [2**63, 0.1], "none": None}
    assert found.files == FILES
    assert set(found.groups) == set(ARRAYS)
    for group, named in ARRAYS.items():
        read = tensors.from_bytes(found.groups[group])
        assert {n: bits(a) for n, a in read.items()} == {n: bits(a) for n, a in named.items()}
    again = tmp_path / "again"
    keep(again, 3)
    for file in (tmp_path / "step_3").iterdir():
        assert file.read_bytes() == (again / "step_3" / file.name).read_bytes(), "the same state gives the same bytes"
    assert checkpoint.load_newest(tmp_path / "nothing") is None


TYPES = [mx.bool_, mx.uint8, mx.uint16, mx.uint32, mx.uint64, mx.int8, mx.int16, mx.int32, mx.int64]


@pytest.mark.parametrize("dtype", [*TYPES, mx.float16, mx.bfloat16, mx.float32])
def test_every_type_of_array_by_mlx_and_by_us(tmp_path: Path, dtype: mx.Dtype) -> None:
    arrays = {"x": mx.arange(6).astype(dtype).reshape(2, 3), "turned": mx.arange(6).astype(dtype).reshape(2, 3).T}
    arrays |= {"scalar": mx.array(1).astype(dtype), "empty": mx.zeros((0, 4), dtype), "odd": mx.ones((3,), mx.uint8)}
    data = tensors.to_bytes(arrays, {"format": "mlx"})
    (tmp_path / "x.safetensors").write_bytes(data)
    theirs = mx.load(str(tmp_path / "x.safetensors"))
    ours = tensors.from_bytes(data)
    for name, array in arrays.items():
        assert bits(theirs[name]) == bits(ours[name]) == bits(array), name
    mx.save_safetensors(str(tmp_path / "y.safetensors"), arrays)
    read = tensors.from_bytes((tmp_path / "y.safetensors").read_bytes())
    assert {n: bits(a) for n, a in read.items()} == {n: bits(a) for n, a in arrays.items()}


def test_the_safetensors_package_reads_what_we_write(tmp_path: Path) -> None:
    from safetensors.numpy import load

    data = tensors.to_bytes({"nan": mx.array([float("nan"), float("inf")]), "i": mx.arange(3)}, {"format": "mlx"})
    found = load(data)
    assert np.isnan(found["nan"][0]) and found["i"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("data", [b"", b"\x00" * 8, b"\xff" * 40, tensors.to_bytes({"a": mx.ones(4)})[:-1]])
def test_bytes_that_are_no_safetensors(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a safetensors file"):
        tensors.from_bytes(data)


def test_what_cannot_be_kept_changes_nothing(tmp_path: Path) -> None:
    keep(tmp_path, 1)
    with pytest.raises(TypeError, match=r"state\.pool\[\] has the key 7"):
        checkpoint.save(tmp_path, 2, ARRAYS, {"pool": [{7: 1}]}, 2)
    with pytest.raises(TypeError, match="not JSON serializable"):
        checkpoint.save(tmp_path, 2, ARRAYS, {"x": np.float32(1)}, 2)
    with pytest.raises(ValueError, match="complex64"):
        checkpoint.save(tmp_path, 2, {"a": {"x": mx.array([1j])}}, {}, 2)
    for name in ("../x", ".hidden", "state.json", "manifest.json", "a.safetensors", ""):
        with pytest.raises(ValueError, match="cannot be kept in a checkpoint"):
            checkpoint.save(tmp_path, 2, ARRAYS, {}, 2, files={name: b""})
    assert [path.name for path in tmp_path.iterdir()] == ["step_1"]


def test_pruning_keeps_the_newest_and_all_that_is_not_its_own(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        keep(tmp_path, step, keep=3)
    (tmp_path / "step_1" / "notes.txt").write_text("mine")
    for name in ("step_0x", "best", "step_02"):
        (tmp_path / name).mkdir()
    (tmp_path / "step_2" / "adapter.safetensors").unlink()  # broken: does not count and is not removed
    keep(tmp_path, 4, keep=2)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["best", "step_02", "step_0x", "step_1.kept", "step_2", "step_3", "step_4"]
    assert [path.name for path in (tmp_path / "step_1.kept").iterdir()] == ["notes.txt"]
    keep(tmp_path, 5, keep=0)
    assert {"step_5", "step_2"} <= {path.name for path in tmp_path.iterdir()}
    assert not (tmp_path / "step_4").exists()


def test_old_formats_are_refused_and_stay(tmp_path: Path) -> None:
    directory = keep(tmp_path, 5)
    manifest = json.loads((directory / "manifest.json").read_text())
    old = {key: value for key, value in manifest.items() if key != "sha256"} | {"schema": 2}
    (directory / "manifest.json").write_bytes(checkpoint._render({**old, "sha256": checkpoint._seal(old)}))
    with pytest.raises(RunError, match=r"has format 2, this version of legos reads 3; use the version"):
        checkpoint.load_newest(tmp_path)
    first = {key: value for key, value in manifest.items() if key not in ("sha256", "run")} | {"schema": 1}
    (directory / "manifest.json").write_text(json.dumps(first))
    with pytest.raises(RunError, match=r"has format 1, this version of legos reads 3; use the version"):
        checkpoint.load_newest(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step_5"], "an old checkpoint is not a broken one"


def test_a_copy_under_another_number_is_no_checkpoint_of_it(tmp_path: Path) -> None:
    keep(tmp_path, 5)
    shutil.copytree(tmp_path / "step_5", tmp_path / "step_50")
    assert checkpoint.damage(tmp_path / "step_50") == "manifest.json says step 5"


def mutant(data: bytes, rng: random.Random) -> bytes:
    """One random harm: a bit, a byte, a cut, a run of zeros, extra bytes, nothing left."""
    kind = rng.randrange(6 if data else 1)
    at = rng.randrange(len(data)) if data else 0
    if kind == 0:
        return data + bytes([rng.randrange(256)])
    if kind == 1:
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    if kind == 2:
        return data[:at] + bytes([(data[at] + rng.randrange(1, 256)) % 256]) + data[at + 1 :]
    if kind == 3:
        return data[:at]
    if kind == 4:
        zeros = bytes(rng.randrange(1, 64))
        return (data[:at] + zeros + data[at + len(zeros) :])[: len(data)]
    return b""


def rot(tmp_path: Path, mutants: int) -> None:
    root = tmp_path / "checkpoints"
    keep(root, 1)
    newest = keep(root, 2)
    clean = {file.name: file.read_bytes() for file in newest.iterdir()}
    names = sorted(clean)
    assert len(names) == 7
    rng = random.Random(5)
    done = 0
    while done < mutants:
        name = names[done % len(names)]
        harmed = mutant(clean[name], rng)
        if harmed == clean[name]:
            continue
        done += 1
        (newest / name).write_bytes(harmed)
        found = checkpoint.load_newest(root)
        assert found is not None and found.state["step"] == 1, f"mutant {done} of {name} was not noticed"
        aside = root / "step_2.corrupt"
        assert (aside / name).read_bytes() == harmed, "the broken checkpoint is kept as it was"
        aside.rename(newest)
        (newest / name).write_bytes(clean[name])
    found = checkpoint.load_newest(root)
    assert found is not None and found.state["step"] == 2


def test_bit_rot_is_found_and_the_one_before_is_taken(tmp_path: Path) -> None:
    rot(tmp_path, 70)


@pytest.mark.slow
def test_bit_rot_with_many_mutants(tmp_path: Path) -> None:
    rot(tmp_path, 3000)


def test_even_a_space_in_the_manifest_is_noticed(tmp_path: Path) -> None:
    manifest = keep(tmp_path, 2) / "manifest.json"
    clean = manifest.read_bytes()
    for harmed in (clean + b" ", clean.replace(b'"step": 2', b'"step":\t2'), clean.rstrip(), clean.replace(b" ", b"")):
        manifest.write_bytes(harmed)
        assert checkpoint.damage(tmp_path / "step_2") == "manifest.json is changed"
    manifest.write_bytes(clean)
    assert checkpoint.damage(tmp_path / "step_2") is None


def test_lost_files_and_several_broken_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for step in (1, 2, 3):
        keep(tmp_path, step, keep=3)
    (tmp_path / "step_3" / "manifest.json").unlink()
    (tmp_path / "step_2" / "store.sqlite").unlink()
    (tmp_path / "step_3.corrupt").mkdir()
    found = checkpoint.load_newest(tmp_path)
    assert found is not None and found.state["step"] == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "step_1",
        "step_2.corrupt",
        "step_3.corrupt",
        "step_3.corrupt-2",
    ]
    said = capsys.readouterr().err
    assert "step_3 is damaged (manifest.json: No such file or directory); set aside as step_3.corrupt-2" in said
    assert "step_2 is damaged (store.sqlite: No such file or directory)" in said
