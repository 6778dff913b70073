"""The collapse monitor: each limit, patience and running mean, one alarm per crossing, resume in the middle."""

from __future__ import annotations

import json

import pytest

from legos_train.config.sections import MonitorSettings
from legos_train.run.parts.monitor import Alarm, CollapseMonitor

GOOD = {
    "reward": {"attacker": 0.1, "defender": -0.1},
    "invalid_rate": 0.01,
    "entropy": 0.5,
    "tokens_per_turn": 10.0,
    "zero_advantages": 0.2,
    "kl": 0.01,
    "unscored_rate": 0.0,
    "illegal_rate": 0.02,
    "live_share": 0.7,
    "learning_updates": 2,
}
ALL = {"role_gap": 0.8, "invalid": 0.3, "entropy": 0.1, "length": (0.5, 2.0), "zero_advantages": 0.9, "kl": 1.0}
ALL |= {"unscored": 0.4, "illegal": 0.3, "live": 0.1, "idle": 0.5}
BAD = {
    "role_gap": {"reward": {"attacker": 0.9, "defender": -0.9}},
    "invalid": {"invalid_rate": 0.6},
    "entropy": {"entropy": 0.001},
    "length": {"tokens_per_turn": 50.0},
    "zero_advantages": {"zero_advantages": 1.0},
    "kl": {"kl": 3.0},
    "unscored": {"unscored_rate": 1.0},
    "illegal": {"illegal_rate": 0.9},
    "live": {"live_share": 0.0},
    "idle": {"learning_updates": 0},
}


def monitor(**changes) -> CollapseMonitor:
    return CollapseMonitor(MonitorSettings(**{"patience": 3, "window": 2, **ALL, **changes}))


def feed(watch: CollapseMonitor, records: list[dict]) -> list[tuple[int, Alarm]]:
    return [(i, alarm) for i, record in enumerate(records) for alarm in watch.check({"step": i, **GOOD, **record})]


def test_probabilities_of_illegal_answers_count_where_few_are_sampled():
    found = feed(monitor(), [{"illegal_mass": 0.01}] * 4 + [{"illegal_mass": 0.5}] * 8)
    assert [(alarm.name, alarm.value) for _, alarm in found] == [("illegal", 0.5)]


@pytest.mark.parametrize("name", list(ALL))
def test_each_limit_alone(name):
    """Good steps are silent; the mean of 2 passes the limit at step 4 (5 when half of the jump is within)."""
    found = feed(monitor(action="raise_kl"), [{}] * 4 + [BAD[name]] * 12)
    assert [alarm.name for _, alarm in found] == [name]
    step, alarm = found[0]
    assert step in (6, 7) and alarm.action == "raise_kl"
    value = {"role_gap": 1.8, "length": 5.0, "idle": 1.0}.get(name, next(iter(BAD[name].values())))
    assert alarm.value == pytest.approx(value)
    assert alarm.limit == (2.0 if name == "length" else ALL[name])
    assert f"step {step}" in alarm.text and name in alarm.text and "3 steps in a row" in alarm.text
    assert feed(monitor(**{name: None}), [{}] * 4 + [BAD[name]] * 12) == []


def test_short_answers_cross_the_other_bound():
    ((_, alarm),) = feed(monitor(), [{}] * 4 + [{"tokens_per_turn": 1.0}] * 6)
    assert (alarm.name, alarm.limit) == ("length", 0.5) and "below 0.5" in alarm.text


def test_lengths_are_compared_with_the_first_steps_mean():
    """Window 2: the mean of 10 and 30 is 20, so that 38 is within twice of it and 42 is not."""
    first = [{"tokens_per_turn": 10.0}, {"tokens_per_turn": 30.0}]
    assert feed(monitor(), first + [{"tokens_per_turn": 38.0}] * 9) == []
    ((_, alarm),) = feed(monitor(), first + [{"tokens_per_turn": 42.0}] * 9)
    assert alarm.value == pytest.approx(2.1)


def test_patience_counts_steps_in_a_row():
    """Two beyond, one within, over and over: never three in a row (window 1)."""
    assert feed(monitor(window=1), [BAD["kl"], BAD["kl"], {}] * 10) == []


def test_a_running_mean_forgives_single_steps():
    """Every fourth step at 3 nats, mean of 4 below the limit of 1."""
    spikes = [{"kl": 3.0}, {}, {}, {}] * 8
    assert feed(monitor(window=4, patience=1), spikes[1:]) == []
    assert feed(monitor(window=1, patience=1), spikes[1:]) != []


def crossed(watch: CollapseMonitor) -> list[str]:
    return [name for name, state in watch.state_dict().items() if state["on"]]


def test_one_alarm_per_crossing():
    """No storm while it lasts; a new alarm only after `patience` steps within the limit."""
    watch = monitor(window=1)
    found = feed(watch, [{}] * 2 + [BAD["kl"]] * 40)
    assert [step for step, _ in found] == [4] and crossed(watch) == ["kl"]
    assert feed(watch, [{}, {}] + [BAD["kl"]] * 9) == []  # too short a recovery
    assert feed(watch, [{}] * 3) == [] and crossed(watch) == []
    assert [step for step, _ in feed(watch, [BAD["kl"]] * 9)] == [2]


def test_reset_starts_over():
    watch = monitor(window=1)
    feed(watch, [{}] * 2 + [BAD["kl"]] * 2)
    watch.reset()
    assert [step for step, _ in feed(watch, [BAD["kl"]] * 4)] == [2]


def test_gaps_are_within_an_environment():
    """Roles of different environments are not compared; one role has no gap."""
    assert feed(monitor(), [{"reward": {"a/x": 5.0, "a/y": 5.1, "b/x": -5.0, "b/y": -5.0}}] * 6) == []
    assert feed(monitor(), [{"reward": {"solver": 5.0}}] * 6) == []
    assert len(feed(monitor(), [{"reward": {"a/x": 5.0, "a/y": -5.0, "b/x": 0.0, "b/y": 0.0}}] * 6)) == 1


@pytest.mark.parametrize("kl", [None, float("nan"), float("inf"), "lots"])
def test_numbers_that_are_missing_or_not_finite_are_left_out(kl):
    watch = monitor(window=1, patience=2)
    assert [step for step, _ in feed(watch, [BAD["kl"], {"kl": kl}, BAD["kl"]])] == [2]
    assert watch.check({}) == []


def test_defaults_are_silent_on_a_healthy_run():
    assert feed(CollapseMonitor(MonitorSettings()), [{}] * 50) == []


@pytest.mark.parametrize("cut", [1, 5, 9, 12])
def test_resume_in_the_middle(cut):
    """Through JSON, at any step: the same alarms as without a break."""
    records = [{}] * 4 + [{**BAD["kl"], **BAD["length"]}] * 6 + [{}] * 6 + [BAD["kl"]] * 6
    whole = feed(monitor(), records)
    assert len(whole) == 3
    first, second = monitor(), monitor()
    before = [(i, a) for i, a in feed(first, records[:cut])]
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    after = [(i + cut, a.name) for i, a in feed(second, records[cut:])]
    assert [(i, a.name) for i, a in before] + after == [(i, a.name) for i, a in whole]
    assert second.state_dict() == _through(records).state_dict()


def _through(records: list[dict]) -> CollapseMonitor:
    watch = monitor()
    feed(watch, records)
    return watch


def test_a_state_of_other_numbers_is_refused():
    with pytest.raises(ValueError, match=r"state is of \['kl', 'luck'\]; this version watches"):
        monitor().load_state_dict({"kl": {}, "luck": {}})


START = {"vs_random": 0.0, "vs_random_low": -0.1, "vs_random_high": 0.1}


def measured(mean: float, width: float = 0.1) -> dict[str, float]:
    return {"vs_random": mean, "vs_random_low": mean - width, "vs_random_high": mean + width}


@pytest.mark.parametrize(
    ("last", "average", "expected"),
    [
        (measured(-0.5), {}, "worse"),
        (measured(-0.5), measured(0.2), "none"),  # one of both is worth something
        (measured(-0.1), {}, "none"),  # chance: the interval of the difference is +-0.14
        (measured(0.5), measured(0.1), "average_lag"),
        (measured(0.5), measured(0.3), "none"),  # it lacks 0.4 of the gain
        (measured(0.1), measured(0.0), "none"),  # chance again
    ],
)
def test_what_is_measured_is_compared_with_the_start(last: dict, average: dict, expected: str) -> None:
    watch = monitor()
    found = watch.check_measured(10, START, last, average)
    assert [alarm.name for alarm in found] == ([] if expected == "none" else [expected])
    assert not watch.check_measured(20, START, last, average), "it is said once"
    off = monitor(worse=None, average_lag=None)
    assert off.check_measured(10, START, last, average) == []


def test_exact_numbers_may_move_by_a_hundredth() -> None:
    start = {"nash_conv": 0.9}
    assert not monitor().check_measured(10, start, {"nash_conv": 0.905}, {})
    (alarm,) = monitor().check_measured(10, start, {"nash_conv": 1.0}, {"nash_conv": 0.95})
    assert alarm.name == "worse" and alarm.value == pytest.approx(0.05 - 0.009)


def test_an_average_does_not_lag_behind_a_gain_of_rounding() -> None:
    start = {"nash_conv": 0.9}
    assert not monitor().check_measured(10, start, {"nash_conv": 0.9 - 1e-7}, {"nash_conv": 0.9})
    (alarm,) = monitor().check_measured(10, start, {"nash_conv": 0.5}, {"nash_conv": 0.9})
    assert alarm.name == "average_lag" and alarm.value == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.6, 0.35, 0.334, 0.333, 0.333, 0.333], 5),  # said with the fourth of those within 0.018
        ([0.6, 0.35, 0.30, 0.25, 0.20, 0.15], None),  # moves
        ([0.05, 0.05, 0.05, 0.05, 0.05], None),  # is there
        ([0.35, 0.333, 0.333], None),  # too few to tell
    ],
)
def test_an_exact_number_that_stands_still_far_from_its_optimum(values: list[float], expected: int | None) -> None:
    watch, start = monitor(), {"nash_conv": 0.9}
    found = [
        (count, alarm)
        for count, value in enumerate(values, start=1)
        for alarm in watch.check_measured(20 * count, start, {"nash_conv": value}, {})
    ]
    assert [count for count, _ in found] == ([] if expected is None else [expected])
    for _, alarm in found:
        assert alarm.name == "standstill" and alarm.value == pytest.approx(0.333 / 0.9) and "too rare" in alarm.text
    assert not monitor(standstill=None).check_measured(9, start, {"nash_conv": 0.333}, {})


@pytest.mark.parametrize(("limit", "said"), [(0.04, True), (0.06, False)])
def test_how_far_from_its_optimum_a_number_may_stand_still_is_a_setting(limit: float, said: bool) -> None:
    watch, start = monitor(standstill=limit), {"nash_conv": 1.0}
    found = [watch.check_measured(20 * n, start, {"nash_conv": 0.05}, {}) for n in range(1, 6)]
    assert any(found) == said


def test_a_standstill_lasts_and_survives_a_restart() -> None:
    """Measured at every step, a number that hardly moves over four of a hundred steps does not stand still."""
    watch, start = monitor(), {"nash_conv": 0.9}
    for step in range(1, 101):
        assert not watch.check_measured(step, start, {"nash_conv": 0.9 - 0.005 * step}, {}), step
    found = {}
    for step in range(101, 150):
        state = json.loads(json.dumps(watch.state_dict()))
        watch = monitor()
        watch.load_state_dict(state)
        found[step] = [alarm.name for alarm in watch.check_measured(step, start, {"nash_conv": 0.4}, {})]
    assert [step for step, names in found.items() if names] == [127]  # within a fiftieth since step 97


def test_a_standstill_is_of_a_share_of_the_way_to_the_optimum() -> None:
    watch, start = monitor(), {"no_loss": 0.5}
    alarms = [watch.check_measured(20 * n, start, {"no_loss": v}, {}) for n, v in enumerate([0.75, 0.755, 0.751, 0.75])]
    assert [[a.name for a in found] for found in alarms] == [[], [], [], ["standstill"]]
    assert alarms[-1][0].value == pytest.approx(0.5)
