"""A run without a model and without sampling: its steps, its reference, its average, and when there is none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import legos_envs
from legos_envs import exact
from legos_train.config import sections
from legos_train.model.weight_average import WeightAverage
from legos_train.run import Trainer, build
from legos_train.run.all_actions.tabular import LogAverage, expected_run, mirror_step
from legos_train.run.records.report_facts import MOST_WORK, _no_unsampled_run, _strategy
from tests.train.helpers import small

KUHN: Any = legos_envs.make("KuhnPoker-v0").unwrapped


def nash_conv(table: list[Any]) -> float:
    infosets = exact.graph_of(KUHN.game).infosets
    policy = {i: dict(zip(i.legal, (p / p.sum()).tolist())) for i, p in zip(infosets, table)}
    return float(exact.nash_conv(KUHN.game, policy.__getitem__))


def run(**loss: Any) -> list[Any]:
    graph = exact.graph_of(KUHN.game)
    start = [np.full(len(info.legal), 1 / len(info.legal)) for info in graph.infosets]
    return list(expected_run(graph, start, small(steps=300, loss=loss)))


def test_a_step_by_hand() -> None:
    even, values = [np.array([0.5, 0.5])], [np.array([1.0, 0.0])]
    (moved,) = mirror_step(even, values, even, 0.5, 0.25)
    assert np.log(moved[0] / moved[1]) == pytest.approx(0.5 / 1.25)
    (held,) = mirror_step(even, values, [np.array([0.1, 0.9])], 0.5, 0.25)
    assert np.log(held[0] / held[1]) == pytest.approx((0.5 + 0.25 * np.log(1 / 9)) / 1.25)


@pytest.mark.slow
def test_a_fixed_reference_stops_short_of_the_equilibrium_that_a_moving_one_reaches() -> None:
    fixed = nash_conv(run(kl=0.2, kl_end=None)[-1][1])
    moving = nash_conv(run(kl=0.2, kl_end=None, magnet_every=25)[-1][1])
    base = nash_conv(run(kl=0.2, kl_end=None, magnet_every=25, magnet_base=0.95)[-1][1])
    assert moving < fixed / 2 < base < fixed


@pytest.mark.parametrize("kind", ["ema", "uniform", "polynomial", "none"])
def test_the_average_is_that_of_weights(kind: str) -> None:
    settings = sections.AverageSettings.model_validate({"kind": kind, "decay": 0.7, "degree": 3.0})
    ours, theirs = LogAverage(settings, 8), WeightAverage(settings, 8, {"w": mx.zeros((2,))})
    for step in range(1, 9):
        p = np.array([step, 10 - step]) / 10
        ours.fold(step, [p])
        theirs.fold(step, {"w": mx.array(np.log(p))})
    got, wanted = ours.value(), theirs.value()
    if kind == "none":
        assert got is wanted is None
        return
    assert got is not None and wanted is not None
    odds = np.array(wanted["w"])
    assert np.log(got[0][0] / got[0][1]) == pytest.approx(odds[0] - odds[1], abs=1e-5)


OTHER = [{"name": "a", "roles": ["player_0"], "loss": {"kl": 0.1}}, {"name": "b", "roles": ["player_1"]}]


@pytest.mark.parametrize(
    ("changes", "work", "why"),
    [
        ({}, MOST_WORK, None),
        ({}, MOST_WORK + 1, "400,001 nodes"),
        ({"init_adapter": "runs/x"}, 1, "began from an adapter"),
        ({"loss": {"name": "sft"}}, 1, "'sft' imitates"),
        ({"loss": {"kl": 0.0}}, 1, "no length"),
        ({"learner": OTHER}, 1, "losses of their own"),
    ],
)
def test_when_there_is_none(changes: dict[str, Any], work: int, why: str | None) -> None:
    found = _no_unsampled_run(small(**changes), work)
    assert found is None if why is None else why in str(found)


def test_what_began_from_an_adapter_does_not_call_the_base_model_before() -> None:
    parts = build(small())
    for config, name in ((parts.config, "before"), (small(init_adapter="runs/x"), "base model")):
        one: Any = SimpleNamespace(measurer=parts.measurer, engine=parts.engine, config=config)
        assert _strategy(one)["columns"][0] == name
    parts.close()


def test_a_report_shows_the_weights_of_now_and_not_those_that_were_evaluated_before() -> None:
    trainer = Trainer(build(small(optim={"lr": 0.01})))
    measurer, (task,) = trainer.parts.measurer, trainer.parts.measurer.tasks.values()
    measurer.measure("policy")
    before = measurer.table(task, "policy")
    assert measurer.table(task, "policy") is before, "it is not computed again"
    trainer.step()
    after = measurer.table(task, "policy")
    measurer.measure("policy")
    assert after == measurer.table(task, "policy") != before
    trainer.parts.close()
