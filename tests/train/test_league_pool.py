"""Snapshots from another run, and the benchmark's claim in small."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import mlx.core as mx
import pytest

import legos_envs
from benchmarks.league import Tabular, train
from inference.client.packing import check_name
from legos_train.disk import checkpoint
from legos_train.league import LeagueSettings
from legos_train.model.other_run import snapshots_for


def weights(value: float, rank: int = 1) -> dict[str, mx.array]:
    return {"q.lora_a": mx.full((3, rank), value), "q.lora_b": mx.full((rank, 2), value)}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 40 steps: checkpoints at 10, 20, 30 (damaged) and 40, whose pool still has step 5; `last` is step 40."""
    root = tmp_path_factory.mktemp("runs") / "kuhn"
    root.mkdir()
    (root / "config.toml").write_text("[lora]\nscale = 4.0\n")
    for step in (10, 20, 30, 40):
        arrays = {"adapter": weights(step), "optimizer": {"v": mx.zeros(2)}, "league_step_5": weights(5)}
        checkpoint.save(root / "checkpoints", step, arrays, {}, keep=9)
    (root / "checkpoints/step_30/adapter.safetensors").write_bytes(b"gone")
    for name, value in (("last", 40), ("best", 33), ("adapter", 34)):
        (root / name).mkdir()
        mx.save_safetensors(str(root / name / "adapters.safetensors"), weights(value))
    return root


def test_a_pool_from_another_run(run: Path) -> None:
    made = snapshots_for(run, 25, weights(0))
    names = list(made)
    assert names == [f"kuhn.{n}" for n in ("step_5", "step_10", "step_20", "step_40", "best", "adapter")]
    assert [float(made[n]["q.lora_a"][0, 0]) for n in names] == [5, 10, 20, 40, 33, 34]
    assert set(made[names[0]]) == {"q.lora_a", "q.lora_b"}  # no optimizer state


def test_a_small_pool_takes_them_evenly_and_another_scale_is_made_up_for(run: Path) -> None:
    made = snapshots_for(run, 3, scale=8.0)
    assert list(made) == ["kuhn.step_5", "kuhn.step_20", "kuhn.adapter"]
    a, b = (made["kuhn.step_20"][f"q.lora_{x}"] for x in "ab")
    assert float(a[0, 0]) == 20 and float(b[0, 0]) == 10  # 4 * 20 * 20 = 8 * 20 * 10


@pytest.mark.parametrize("name", ["kuhn", "my run @home (2)", ".hidden", "\N{GREEK SMALL LETTER PI}", "long" * 50])
def test_members_from_another_run_can_be_kept_and_published(run: Path, tmp_path: Path, name: str) -> None:
    """Their names become files of a checkpoint and adapters of a server; and a third run reads them from there."""
    other = shutil.copytree(run, tmp_path / name)
    made = snapshots_for(other, 25)
    names = list(made)
    assert [n.rpartition(".")[2] for n in names] == ["step_5", "step_10", "step_20", "step_40", "best", "adapter"]
    assert [check_name(n) for n in names] == names
    third = tmp_path / "third"
    arrays = {f"league_{n}": weights for n, weights in made.items()}
    checkpoint.save(third / "checkpoints", 60, {"adapter": weights(60), **arrays}, {}, keep=1)
    everything = snapshots_for(third, 25)
    assert len(everything) == 7 and all(check_name(n) == n and n.startswith("third.") for n in everything)
    assert float(everything["third.step_60"]["q.lora_a"][0, 0]) == 60
    values = [float(made["q.lora_a"][0, 0]) for n, made in everything.items() if n.endswith(("step_5", "best"))]
    assert sorted(values) == [5, 33], "also what was no step of the other run"


@pytest.mark.parametrize("names", ["ab", "zy"])
def test_a_pool_of_a_pool_has_every_member_with_its_own_weights(run: Path, tmp_path: Path, names: str) -> None:
    """A step of another run was taken for the step of that number of this run, by the order in a directory."""
    first, second = (tmp_path / name for name in names)
    shutil.copytree(run, first)
    made = snapshots_for(first, 25)
    arrays = {f"league_{n}": weights for n, weights in made.items()} | {"league_step_10": weights(110)}
    checkpoint.save(second / "checkpoints", 20, {"adapter": weights(120), **arrays}, {}, keep=1)
    found = {name: float(one["q.lora_a"][0, 0]) for name, one in snapshots_for(second, 25).items()}
    own = {f"{second.name}.step_10": 110.0, f"{second.name}.step_20": 120.0}
    others = {f"{second.name}.{name}": float(one["q.lora_a"][0, 0]) for name, one in made.items()}
    assert found == own | others and len(found) == 8


def test_what_cannot_fill_a_pool(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a directory"):
        snapshots_for(tmp_path / "none", 25)
    with pytest.raises(ValueError, match="no snapshots"):
        snapshots_for(tmp_path, 25)
    with pytest.raises(ValueError, match=r"q.lora_a has shape \(3, 1\), this run.s is \(3, 8\).*lora.rank"):
        snapshots_for(run, 25, weights(0, rank=8))
    with pytest.raises(ValueError, match="mirror"):
        LeagueSettings(mode="mirror", pool_from=run)


@pytest.mark.slow
def test_psro_solves_biased_rps_where_mirror_play_cycles() -> None:
    game = Tabular(legos_envs.make("MatrixGame-v0", game="biased_rps").unwrapped.game)
    options = argparse.Namespace(
        steps=160, batch=8, rate=0.5, snapshot_every=10, pool=25, latest=0.2, payoff_games=1000
    )
    mirror, psro = (train(game, mode, 7, options) for mode in ("mirror", "psro"))
    assert mirror["median"] > 0.3 and mirror["worst"] > 0.5
    assert psro["mixture"] <= 0.05
    assert psro["members"] >= 3
