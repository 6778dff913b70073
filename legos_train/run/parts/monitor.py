"""Watches a run's metrics for signs that self-play collapses or learns nothing. It raises alarms; the trainer acts.

Each number is a running mean over `window` steps. If it exceeds its limit for `patience` steps in a row there is one
alarm; the next alarm of that name needs the number to have been within its limit for as long. Values that are measured
every few steps are checked once per measurement. `MonitorSettings` in `legos_train.config.sections` has the limits,
`WATCHED` the values that are compared with them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from legos_train.config import sections
from legos_train.observe import eval_numbers, verdict

NO_BOUND = math.inf


class Monitored(NamedTuple):
    """What a limit applies to: a key of the metrics record or a value derived from it, and advice if exceeded."""

    key: str
    advice: str
    least: bool = False
    """Whether the limit is a minimum rather than a maximum."""


WATCHED = {
    "role_gap": Monitored(
        "reward", 'one role wins whatever the other does; try `credit.name = "rae"`, a league, or a fairer environment'
    ),
    "unscored": Monitored("unscored_rate", "the judge's verdicts cannot be parsed; give it another model (`actors`)"),
    "invalid": Monitored(
        "invalid_rate",
        "the policy is drifting away from the answer format; raise the KL weight or lower the learning rate",
    ),
    "illegal": Monitored("illegal_rate", "the policy's answers are not legal actions; raise the KL weight"),
    "idle": Monitored(
        "learning_updates", "steps pass without an update; see their `dropped`, `left_out` and `outcomes`"
    ),
    "live": Monitored("live_share", "almost no token has a gradient; use larger groups, or a curriculum", least=True),
    "entropy": Monitored(
        "entropy", "the policy has become almost deterministic; raise the KL weight or the entropy bonus", least=True
    ),
    "length": Monitored(
        "tokens_per_turn", "answers grow or shrink without bound; look at rollouts.jsonl, then at `loss.aggregation`"
    ),
    "zero_advantages": Monitored(
        "zero_advantages", "almost nothing is left to learn from; use larger groups, or a curriculum"
    ),
    "kl": Monitored("kl", "the policy is far from its reference; raise the KL weight or lower the learning rate"),
}
MEASURED = {
    "worse": "the result is worse than before the first step, with the last weights and with their average; lower the "
    "learning rate, raise the KL weight, or continue from `best`",
    "average_lag": "the weight average lags behind the last weights; lower `average.decay`, or train longer",
    "standstill": verdict.STUCK,
}


@dataclass(frozen=True, slots=True)
class Alarm:
    """A limit that was crossed: `value`, a running mean, is beyond `limit`."""

    name: str
    value: float
    limit: float
    action: str
    text: str


@dataclass(slots=True)
class _Watch:
    """State of one number: its last values, how many steps in a row it was beyond or within, and any alarm."""

    recent: deque[float]
    beyond: int = 0
    within: int = 0
    on: bool = False
    first_sum: float = 0.0
    first_count: int = 0


class CollapseMonitor:
    """Raises alarms when the metrics records of a run's steps cross a limit."""

    def __init__(self, settings: sections.MonitorSettings):
        self.settings = settings
        self._watches = {name: _Watch(deque(maxlen=settings.window)) for name in (*WATCHED, *MEASURED)}
        self._stretch = verdict.Stretch()

    def check(self, record: Mapping[str, Any]) -> list[Alarm]:
        """The alarms that a step triggers, usually none. Missing or non-finite numbers are skipped.

        Args:
            record: a step's metrics: `step` and the keys of `WATCHED`.
        """
        alarms = []
        for name in WATCHED:
            watch, bounds, value = self._watches[name], self._bounds(name), _value(name, record)
            if bounds is None or value is None:
                continue
            if name == "length":
                value = self._against_first(watch, value)
                if value is None:
                    continue
            watch.recent.append(value)
            mean = math.fsum(watch.recent) / len(watch.recent)
            low, high = bounds
            if self._crossed(watch, mean < low or mean > high, self.settings.patience):
                alarms.append(self._alarm(name, mean, low if mean < low else high, record))
        return alarms

    def check_measured(
        self, step: int, start: Mapping[str, float], last: Mapping[str, float], average: Mapping[str, float]
    ) -> list[Alarm]:
        """The alarms that an evaluation triggers: worse than at the start, an average that lags behind, a standstill.

        `worse`: by how much even the better of both weights falls below the start, beyond what chance explains.
        `average_lag`: the share of the last weights' gain since the start that the average lacks.
        `standstill`: the share of the distance to the optimum that is left when exact numbers have stopped changing.
        """
        alarms = []
        for name, value in {**_measured(start, last, average), **self._standstill(step, start, last)}.items():
            limit = getattr(self.settings, name)
            if limit is not None and self._crossed(self._watches[name], value > limit, 1):
                text = f"step {step}: {name} is {value:.4g}, above {limit:g}: {MEASURED[name]}."
                alarms.append(Alarm(name, value, limit, self.settings.action, text + self._action()))
        return alarms

    def _standstill(self, step: int, start: Mapping[str, float], last: Mapping[str, float]) -> dict[str, float]:
        """The remaining share, averaged over the envs with an exact number, once that stops moving; else 0."""
        shares = [share for name in verdict.measures(last) if (share := verdict.to_go(start, last, name)) is not None]
        if not shares:
            return {}
        mean = math.fsum(shares) / len(shares)
        return {"standstill": mean if self._stretch.stands_still(step, mean) else 0.0}

    @staticmethod
    def _crossed(watch: _Watch, crossed: bool, patience: int) -> bool:
        """Whether to raise an alarm now: beyond the limit for long enough, and not yet raised."""
        watch.beyond, watch.within = (watch.beyond + 1, 0) if crossed else (0, watch.within + 1)
        if watch.on and watch.within >= patience:
            watch.on = False
        new = not watch.on and watch.beyond >= patience
        watch.on |= new
        return new

    def _action(self) -> str:
        return f" [monitor.action: {self.settings.action}]"

    def _bounds(self, name: str) -> tuple[float, float] | None:
        limit = getattr(self.settings, name)
        if limit is None:
            return None
        if name == "length":
            return float(limit[0]), float(limit[1])
        return (float(limit), NO_BOUND) if WATCHED[name].least else (-NO_BOUND, float(limit))

    def _against_first(self, watch: _Watch, tokens: float) -> float | None:
        """The length as a multiple of the first steps' mean; None while those are being collected."""
        if watch.first_count < self.settings.window:
            watch.first_sum += tokens
            watch.first_count += 1
            return None
        first = watch.first_sum / watch.first_count
        return tokens / first if first > 0 else None

    def _alarm(self, name: str, value: float, limit: float, record: Mapping[str, Any]) -> Alarm:
        s = self.settings
        side = "below" if value < limit else "above"
        text = (
            f"step {record.get('step', '?')}: {name} is {value:.4g}, {side} {limit:g}, for {s.patience} steps in a row "
            f"(mean of {s.window}): {WATCHED[name].advice}."
        )
        return Alarm(name, value, limit, s.action, text + self._action())

    def forget(self, name: str) -> None:
        """Lets an alarm be raised again at the next step, if its number is still beyond the limit."""
        self._watches[name].on = False

    def reset(self) -> None:
        """Drops the last values, for use after a rollback; the first steps' length is kept."""
        for watch in self._watches.values():
            watch.recent.clear()
            watch.beyond, watch.within, watch.on = 0, 0, False
        self._stretch = verdict.Stretch()

    def state_dict(self) -> dict[str, Any]:
        """The whole state, as JSON values."""
        return {
            name: {
                "recent": list(watch.recent),
                "beyond": watch.beyond,
                "within": watch.within,
                "on": watch.on,
                "first_sum": watch.first_sum,
                "first_count": watch.first_count,
                **({"stretch": asdict(self._stretch)} if name == "standstill" else {}),
            }
            for name, watch in self._watches.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`. Raises ValueError if other numbers were watched."""
        if set(state) != set(self._watches):
            raise ValueError(f"the monitor's state is of {sorted(state)}; this version watches {sorted(self._watches)}")
        self._stretch = verdict.Stretch(**state["standstill"]["stretch"])
        for name, kept in state.items():
            fields = {key: value for key, value in kept.items() if key != "stretch"}
            fields["recent"] = deque(kept["recent"], maxlen=self.settings.window)
            self._watches[name] = _Watch(**fields)


def _value(name: str, record: Mapping[str, Any]) -> float | None:
    value = record.get(WATCHED[name].key)
    if name == "idle":
        return None if value is None else float(not value)
    if name == "illegal":  # without sampling, a step has few answers but knows the probabilities of all
        value = max(filter(eval_numbers.is_number, (value, record.get("illegal_mass"))), default=None)
    return _gap(value or {}) if name == "role_gap" else float(value) if eval_numbers.is_number(value) else None


def _gap(rewards: Mapping[str, Any]) -> float | None:
    """The largest difference between the mean returns of two roles of one env."""
    by_env: dict[str, list[float]] = {}  # with several envs, roles are named ENV/ROLE
    for role, mean in rewards.items():
        if eval_numbers.is_number(mean):
            by_env.setdefault(role.rpartition("/")[0], []).append(float(mean))
    gaps = [max(means) - min(means) for means in by_env.values() if len(means) > 1]
    return max(gaps, default=None)


def _measured(start: Mapping[str, float], last: Mapping[str, float], average: Mapping[str, float]) -> dict[str, float]:
    """The values of `MEASURED` if both numbers are known; the largest of all envs."""
    worse: list[float] = []
    lag: list[float] = []
    for name in verdict.measures(last):
        exact = name.rpartition("/")[2] in eval_numbers.EXACT
        least = verdict.MOVED * abs(start[name]) if exact and name in start else 0.0
        if name in start:
            gains = [verdict.gain(start, table, name) for table in (last, average) if name in table]
            known = exact or not any(eval_numbers.is_point((low, high)) for _, low, high in gains)
            worse.append(max(0.0, -least - max(high for *_, high in gains)) if known else 0.0)
        if name in start and name in average:
            gained = verdict.gain(start, last, name)[0]
            lead, low, _ = verdict.gain(average, last, name)
            lag.append(lead / gained if gained > least and low > 0 else 0.0)
    return {name: max(values) for name, values in (("worse", worse), ("average_lag", lag)) if values}
