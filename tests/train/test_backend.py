"""The trainer works on any `TrainerBackend`: weights are references outside of it, and what it cannot do is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inference import load
from legos_train import ConfigError, Trainer, train
from legos_train.model import Capabilities, Snapshot
from legos_train.model.mlx_backend import MLXBackend
from legos_train.run import build, estimate, state
from legos_train.run.periodic_eval import evaluate
from tests.train.helpers import digest, identify, small
from tests.train.table_backend import table_place


class RefBackend(MLXBackend):
    """Hands out names instead of arrays, as a backend on another machine would. Who looks inside one fails."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.kept: dict[str, Any] = {}

    def _named(self, snapshot: Snapshot) -> Snapshot:
        name = f"ref-{len(self.kept)}"
        self.kept[name] = snapshot.content
        return replace(snapshot, content=name)

    def _real(self, snapshot: Snapshot) -> Snapshot:
        return replace(snapshot, content=self.kept[snapshot.content])

    def snapshot(self, version: int) -> Snapshot:
        return self._named(super().snapshot(version))

    def average(self, version: int) -> Snapshot:
        content = self._average.value()
        return self.snapshot(version) if content is None else self._named(Snapshot(version, content))

    def distance(self, before: Snapshot) -> float:
        return super().distance(self._real(before))

    def load(self, snapshot: Snapshot) -> None:
        super().load(self._real(snapshot))

    def anchor(self, reference: Snapshot | None) -> None:
        super().anchor(None if reference is None else self._real(reference))

    def publish(self, target: Any, name: str, snapshot: Snapshot) -> None:
        super().publish(target, name, self._real(snapshot))

    def write(self, snapshot: Snapshot, folder: Path, facts: Any) -> None:
        super().write(self._real(snapshot), folder, facts)

    def pack(self, snapshot: Snapshot) -> Any:
        return super().pack(self._real(snapshot))

    def unpack(self, data: bytes, version: int) -> Snapshot:
        return self._named(super().unpack(data, version))


class PlainBackend(MLXBackend):
    """Policy gradients and nothing else."""

    capabilities = Capabilities(exact_kl=False, entropy=False, weight_average=False, own_weights=False)


def config(**changes: Any) -> Any:
    league = {"mode": "fsp", "snapshot_every": 1}
    return small(**{"batch_size": 8, "steps": 4, "league": league, "loss": {"magnet_every": 2}, **changes})


def trainer_on(kind: type[MLXBackend], settings: Any) -> Trainer:
    return Trainer(build(settings, backend=kind(load(settings.model)[0], settings), run_id="0123456789ab"))


def test_references_are_all_that_leaves_a_backend(tmp_path: Path) -> None:
    """League, magnet, average, best and checkpoints give on references what they give on arrays, bit for bit."""
    runs = []
    for kind in (MLXBackend, RefBackend):
        trainer = trainer_on(kind, config())
        records = [trainer.step()["loss"], trainer.step()["loss"], evaluate(trainer.parts)]
        state.save(trainer.parts, tmp_path / kind.__name__)
        resumed = trainer_on(kind, config())
        assert state.restore(resumed.parts, tmp_path / kind.__name__) == 2
        records += [one.step()["loss"] for one in (trainer, resumed)]
        assert resumed.parts.best is not None and resumed.parts.best.step == 2
        assert resumed.parts.league is not None and "step_2" in resumed.parts.league.pool
        runs.append(records)
        for one in (trainer, resumed):
            one.parts.close()
    assert runs[0] == runs[1] and runs[0][3] == runs[0][4]


@pytest.mark.quick(1)
@pytest.mark.parametrize("magnet", ["policy", "average"])
def test_a_magnet_becomes_the_policy_or_its_average(magnet: str) -> None:
    settings = config(league={}, loss={"magnet_every": 2, "magnet": magnet}, average={"decay": 0.5})
    trainer = trainer_on(MLXBackend, settings)
    try:
        backend: Any = trainer.parts.backend
        weights = []
        for _ in range(3):
            trainer.step()
            weights.append({name: np.array(value) for name, value in backend.policy.trainable().items()})
        found = backend.policy.anchor_weights()
        for name, value in found.items():
            first, second, _ = (one[name] for one in weights)
            wanted = second if magnet == "policy" else (first + 2 * second) / 3
            np.testing.assert_allclose(np.array(value), wanted, atol=1e-6)
    finally:
        trainer.parts.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": {"kl_estimator": "exact"}}, "use 'k3'"),
        ({"loss": {"entropy": 0.1}}, "loss.entropy"),
        ({"loss": {"legality": 0.5}}, "loss.legality"),
        ({"average": {"kind": "ema"}}, "average.kind"),
        ({"loss": {"magnet_every": 3}}, "magnet_every"),
    ],
)
def test_what_a_backend_cannot_do_is_refused_before_the_first_step(changes: dict[str, Any], message: str) -> None:
    plain = {"average": {"kind": "none"}, "league": {}, "loss": {}}
    with pytest.raises(ConfigError, match=message):
        trainer_on(PlainBackend, config(**{**plain, **changes}))


def test_a_backend_that_can_do_little_trains() -> None:
    trainer = trainer_on(PlainBackend, config(average={"kind": "none"}, league={}, loss={}))
    assert trainer.step()["updates"] == 1
    trainer.parts.close()


TABLE: dict[str, Any] = {
    "batch_size": 32,
    "steps": 4,
    "average": {"kind": "none"},
    "optim": {"lr": 90.0},
    "loss": {"name": "importance_sampling", "kl": 0.05, "kl_end": None},
    "checkpoint": {"every": 2},
}


def test_a_backend_without_mlx_learns_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    """Play, credit, checkpoints, evaluation and report work on a table in numpy, through `train`."""

    def fails(record: dict[str, Any]) -> None:
        if record["step"] == 3:
            raise RuntimeError("in the middle")

    whole, cut = (small(tmp_path / name, **TABLE) for name in ("whole", "cut"))
    for one in (whole, cut):
        assert one.run_dir is not None
        identify(one.run_dir)
    result = train(whole, quiet=True, backend=table_place())
    assert result.last["nash_conv"] < 0.8 < result.start["nash_conv"] and result.last["illegal"] < 0.5
    with pytest.raises(RuntimeError, match="in the middle"):
        train(cut, quiet=True, on_step=fails, backend=table_place())
    again = train(cut, quiet=True, resume=True, backend=table_place())
    assert again.last == result.last
    files = [sorted((tmp_path / name / "checkpoints/step_4").iterdir()) for name in ("whole", "cut")]
    assert [(f.name, digest(f)) for f in files[0]] == [(f.name, digest(f)) for f in files[1]]


def test_a_backend_with_engines_of_its_own_is_measured_and_generates_ahead(tmp_path: Path) -> None:
    settings = {**TABLE, "batch_size": 4, "steps": 2}
    assert "(4,096 weights trained)" in estimate(small(**settings), table_place())
    ahead = small(tmp_path / "run", **settings, asynchronous={"enabled": True})
    assert train(ahead, quiet=True, backend=table_place()).steps == 2
    with pytest.raises(ConfigError, match=r"needs a second engine.*Place\.second"):
        build(ahead, backend=replace(table_place(), second=None))
    with pytest.raises(ConfigError, match=r"server\.urls needs adapters"):
        build(small(server={"urls": ("http://localhost:1",)}, average={"kind": "none"}), backend=table_place())
    with pytest.raises(ConfigError, match=r"average\.kind"):
        build(small(), backend=table_place())
    with pytest.raises(ConfigError, match="plays only weights at the service"):
        build(small(backend="tinker", average={"kind": "none"}), backend=table_place().backend)
