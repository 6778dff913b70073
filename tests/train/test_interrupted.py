"""Ctrl-C ends a run wherever it is, with the state of its last whole step and its result so far."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from legos_train import TrainConfig, Trainer, TrainingError, train
from legos_train.disk import MetricsFile, checkpoint
from legos_train.errors import GenerationError, Stopped
from legos_train.model import mlx_backend
from legos_train.rollout import Rollouts
from legos_train.run import steps, stopping
from tests.stopwatch import Stopwatch
from tests.train.helpers import small

PLACES: dict[str, tuple[Any, str]] = {
    "while episodes are played": (Rollouts, "_answer"),
    "in the backward pass": (mlx_backend, "loss_and_grad"),
    "in an evaluation": (steps, "evaluate"),
    "while adapters are written": (mlx_backend.MLXBackend, "write"),
}


def stuck(monkeypatch: pytest.MonkeyPatch, place: tuple[Any, str], step: Callable[[], int]) -> list[Stopwatch]:
    """Makes a function hang for a minute after step 2, and Ctrl-C come half a second later; returns the time since."""
    where, name = place
    real = getattr(where, name)
    sent: list[Stopwatch] = []

    def interrupt() -> None:
        sent.append(Stopwatch())
        os.kill(os.getpid(), signal.SIGINT)

    def hang(*given: Any, **named: Any) -> Any:
        if step() >= 2 and not sent:
            threading.Timer(0.5, interrupt).start()
            end = time.monotonic() + 60
            while time.monotonic() < end:
                time.sleep(0.2)
        return real(*given, **named)

    monkeypatch.setattr(stopping, "GRACE", 0.2 if name != "_answer" else stopping.GRACE)
    monkeypatch.setattr(where, name, hang)
    return sent


@pytest.mark.quick(1)
@pytest.mark.parametrize("place", PLACES)
def test_a_run_ends_within_five_seconds_wherever_it_is(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Evaluations are after steps 2 and 4 here, and the hang is in the next call of the function after step 2."""
    run, done = tmp_path / "run", [0]
    config = small(run, steps=4, batch_size=4, eval={"every": 2}, logs={"progress": "plain"})
    with monkeypatch.context() as patch:
        sent = stuck(patch, PLACES[place], lambda: done[0])
        with pytest.raises(Stopped):
            train(config, on_step=lambda record: done.__setitem__(0, record["step"]))
        assert sent[0].seconds < 5
    kept = {"while adapters are written": 4, "in an evaluation": 3}.get(place, 2)
    found = checkpoint.load_newest(run / "checkpoints")
    assert found is not None and found.state["learner"]["step"] == kept
    said = capsys.readouterr().out
    assert f"continues from the checkpoint of step {kept}" in said or kept == 4
    assert "not finished (interrupted)" in said and "So far: " in said and "NashConv" in said


@pytest.mark.slow
def test_a_run_that_was_interrupted_in_an_update_goes_on_as_if_it_had_not_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RAE's baselines had moved on when the signal came: the checkpoint has those of the step before."""

    def config(name: str) -> TrainConfig:
        return small(tmp_path / name, steps=4, batch_size=8, credit={"name": "rae"})

    done = [0]
    with monkeypatch.context() as patch:
        stuck(patch, PLACES["in the backward pass"], lambda: done[0])
        with pytest.raises(Stopped):
            train(config("a"), quiet=True, on_step=lambda record: done.__setitem__(0, record["step"]))
    resumed, whole = train(config("a"), resume=True, quiet=True), train(config("b"), quiet=True)
    assert resumed.last["nash_conv"] == pytest.approx(whole.last["nash_conv"], abs=1e-6)
    rows = [MetricsFile.read(tmp_path / name / "metrics.jsonl") for name in ("a", "b")]
    for one, other in zip(*rows, strict=True):
        assert one["advantage_abs_mean"] == pytest.approx(other["advantage_abs_mean"], abs=1e-6), one["step"]


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        pytest.param(RuntimeError("an env's own"), 2, marks=pytest.mark.slow),
        pytest.param(GenerationError("the generating process has ended"), 2, marks=pytest.mark.slow),
        (TrainingError("not finite"), None),  # what was learned may be the cause
    ],
)
def test_what_ends_a_run_from_outside_costs_no_step(
    error: Exception, kept: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, play = tmp_path / "run", Trainer.play

    def break_down(self: Trainer, step: int) -> Any:
        if step == 3:
            raise error
        return play(self, step)

    with monkeypatch.context() as broken:
        broken.setattr(Trainer, "play", break_down)
        with pytest.raises(type(error), match=str(error)):
            train(small(run, steps=4), quiet=True)
    there = [folder.name for folder in (run / "checkpoints").glob("*")]
    assert there == ([] if kept is None else [f"step_{kept}"])
    if kept:
        train(small(run, steps=4), quiet=True, resume=True)
        assert [row.get("resumed_from") for row in MetricsFile.read(run / "metrics.jsonl")] == [None, None, 2, None]
