"""Settings that do nothing beside the others are named when a run starts."""

from __future__ import annotations

from typing import Any

import pytest

from legos_train.config import TrainConfig, preset, preset_names
from legos_train.config import from_dict as config_of
from legos_train.run import estimate
from legos_train.run.preflight.without_effect import without_effect

IDLE: dict[str, tuple[dict[str, Any], list[str]]] = {
    "an asynchronous queue": (
        {"asynchronous": {"queue": 4}},
        ["asynchronous.queue = 4 has no effect: asynchronous.enabled is off"],
    ),
    "replay": ({"replay": {"max_staleness": 3}}, ["replay.max_staleness = 3 has no effect: replay.reuse is 1"]),
    "servers": ({"server": {"timeout": 5}}, ["server.timeout = 5.0 has no effect: server.urls is empty"]),
    "a league": ({"league": {"latest": 0.5}}, ["league.latest = 0.5 has no effect: league.mode is 'mirror'"]),
    "another mode": (
        {"league": {"mode": "fsp", "pfsp_power": 1}},
        ["league.pfsp_power = 1.0 has no effect: league.mode is 'fsp'"],
    ),
    "fixed opponents": (
        {"league": {"mode": "fixed", "opponents": ["random"], "pool": 3}},
        ["league.pool = 3 has no effect: league.mode is 'fixed'"],
    ),
    "entropy": (
        {"loss": {"entropy_over": "legal"}},
        ["loss.entropy_over = 'legal' has no effect: loss.entropy is 0"],
    ),
    "a magnet": (
        {"loss": {"kl": 0, "kl_end": None, "magnet_every": 5}},
        ["loss.magnet_every = 5 has no effect: the KL weight is 0"],
    ),
    "a clip": (
        {"loss": {"name": "sft", "clip_low": 0.1}},
        ["loss.clip_low = 0.1 has no effect: loss.name is 'sft', which takes no such option"],
    ),
    "credit where every action is valued": (
        {"env": "KuhnPoker-v0", "loss": {"name": "expected"}, "credit": {"name": "turn_level", "return_scale": "none"}},
        [
            "credit.name = 'turn_level' has no effect: "
            "loss.name is 'expected', which values every action by the game itself"
        ],
    ),
    "sampling of code": (
        {"actors": {"player_0": {"model": "random", "top_k": 3}, "player_1": {"model": "base", "top_k": 3}}},
        ["actors.player_0.top_k = 3 has no effect: 'random' is no language model"],
    ),
    "an average": ({"average": {"degree": 3}}, ["average.degree = 3.0 has no effect: average.kind is 'ema'"]),
    "one learner's": (
        {"learner": [{"name": "a", "roles": ["player_0"], "loss": {"entropy_top": 4}}, {"name": "b", "roles": ["x"]}]},
        ["learner a: loss.entropy_top = 4 has no effect: loss.entropy is 0"],
    ),
    "all in use": (
        {
            "asynchronous": {"enabled": True, "queue": 4},
            "league": {"mode": "psro", "payoff_games": 8, "pool": 3},
            "loss": {"entropy": 0.1, "entropy_over": "top", "entropy_top": 4, "magnet_every": 5, "clip_low": 0.1},
            "average": {"kind": "polynomial", "degree": 3},
        },
        [],
    ),
}


@pytest.mark.parametrize("case", IDLE)
def test_a_changed_setting_without_effect_is_named(case: str) -> None:
    settings, said = IDLE[case]
    assert without_effect(config_of(settings)) == said


def test_no_preset_brings_one() -> None:
    assert without_effect(TrainConfig()) == []
    for name in preset_names():
        assert without_effect(config_of(preset(name))) == [], name


def test_a_dry_run_names_them_too() -> None:
    text = estimate(config_of({"env": "KuhnPoker-v0", "steps": 2, "batch_size": 4, "replay": {"max_staleness": 3}}))
    assert text.endswith("note            replay.max_staleness = 3 has no effect: replay.reuse is 1")
