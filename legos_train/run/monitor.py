"""Watches a run's metrics for the ways in which self-play collapses. It only decides; the trainer acts.

Each number is a running mean over `window` steps. When it is beyond its limit `patience` steps in a row there is one
alarm; the next one of that name comes only after the number was within its limit again for as long. `Monitor` in
`legos_train.config.sections` has the limits:

| name | what is compared | beyond |
|---|---|---|
| `role_gap` | largest less smallest mean return of the roles of one environment | above |
| `invalid` | share of illegal actions | above |
| `entropy` | entropy of the next token, in nats | below |
| `length` | tokens per action, as a multiple of the mean of the first `window` steps | outside of the pair |
| `zero_advantages` | share of advantages that are exactly 0 | above |
| `kl` | KL to the reference, in nats | above |
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from legos_train.config import sections

NO_BOUND = math.inf
RECORD_KEYS = {
    "invalid": "invalid_rate",
    "entropy": "entropy",
    "length": "tokens_per_turn",
    "zero_advantages": "zero_advantages",
    "kl": "kl",
}
"""Where the metrics record has what a limit is about; `role_gap` is made from `reward`."""
ADVICE = {
    "role_gap": 'one role wins whatever the other does; try `credit.name = "rae"`, a league, or a fairer environment',
    "invalid": "the policy loses the format; raise the KL weight or lower the learning rate",
    "entropy": "the policy has become almost deterministic; raise the KL weight or the entropy bonus",
    "length": "answers grow or shrink without bound; look at rollouts.jsonl, then at `loss.aggregation`",
    "zero_advantages": "almost nothing is left to learn from; use larger groups, or a curriculum",
    "kl": "the policy is far from its reference; raise the KL weight or lower the learning rate",
}


@dataclass(frozen=True, slots=True)
class Alarm:
    """A limit that was crossed. `limit` is the bound that `value`, a running mean, is beyond."""

    name: str
    value: float
    limit: float
    action: str
    text: str


@dataclass(slots=True)
class _Watch:
    """One number: its last values, how many steps in a row it was beyond or within, and whether an alarm is on."""

    recent: deque[float]
    beyond: int = 0
    within: int = 0
    on: bool = False
    first_sum: float = 0.0
    first_count: int = 0


class CollapseMonitor:
    """Decides from the metrics records of a run's steps when a limit is crossed."""

    def __init__(self, settings: sections.MonitorSettings):
        self.settings = settings
        self._watches = {name: _Watch(deque(maxlen=settings.window)) for name in ("role_gap", *RECORD_KEYS)}

    def check(self, record: Mapping[str, Any]) -> list[Alarm]:
        """The alarms that a step sets off, usually none. Numbers that are missing or not finite are left out.

        Args:
            record: a step's metrics: `step`, `reward` by role, `invalid_rate`, `entropy`, `tokens_per_turn`,
                `zero_advantages`, `kl`.
        """
        alarms = []
        for name, watch in self._watches.items():
            bounds = self._bounds(name)
            value = _value(name, record)
            if bounds is None or value is None:
                continue
            if name == "length":
                value = self._against_first(watch, value)
                if value is None:
                    continue
            watch.recent.append(value)
            mean = math.fsum(watch.recent) / len(watch.recent)
            low, high = bounds
            crossed = mean < low or mean > high
            watch.beyond, watch.within = (watch.beyond + 1, 0) if crossed else (0, watch.within + 1)
            if watch.on and watch.within >= self.settings.patience:
                watch.on = False
            if not watch.on and watch.beyond >= self.settings.patience:
                watch.on = True
                alarms.append(self._alarm(name, mean, low if mean < low else high, record))
        return alarms

    def _bounds(self, name: str) -> tuple[float, float] | None:
        limit = getattr(self.settings, name)
        if limit is None:
            return None
        if name == "length":
            return float(limit[0]), float(limit[1])
        return (float(limit), NO_BOUND) if name == "entropy" else (-NO_BOUND, float(limit))

    def _against_first(self, watch: _Watch, tokens: float) -> float | None:
        """The length as a multiple of the first steps' mean; None while those are being gathered."""
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
            f"(mean of {s.window}): {ADVICE[name]}. [monitor.action: {s.action}]"
        )
        return Alarm(name, value, limit, s.action, text)

    @property
    def active(self) -> tuple[str, ...]:
        """The names of the limits that are crossed now."""
        return tuple(name for name, watch in self._watches.items() if watch.on)

    def reset(self) -> None:
        """Forgets the last values, for after a rollback; the first steps' length is kept."""
        for watch in self._watches.values():
            watch.recent.clear()
            watch.beyond, watch.within, watch.on = 0, 0, False

    def state_dict(self) -> dict[str, Any]:
        """All that was seen, as JSON values."""
        return {
            name: {
                "recent": list(watch.recent),
                "beyond": watch.beyond,
                "within": watch.within,
                "on": watch.on,
                "first_sum": watch.first_sum,
                "first_count": watch.first_count,
            }
            for name, watch in self._watches.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The opposite of `state_dict`. Raises ValueError when the numbers watched are others."""
        if set(state) != set(self._watches):
            raise ValueError(f"the monitor's state is of {sorted(state)}; this version watches {sorted(self._watches)}")
        for name, kept in state.items():
            fields = {**kept, "recent": deque(kept["recent"], maxlen=self.settings.window)}
            self._watches[name] = _Watch(**fields)


def _value(name: str, record: Mapping[str, Any]) -> float | None:
    if name != "role_gap":
        return _finite(record.get(RECORD_KEYS[name]))
    by_env: dict[str, list[float]] = {}  # with several envs, roles are called ENV/ROLE
    for role, mean in (record.get("reward") or {}).items():
        value = _finite(mean)
        if value is not None:
            by_env.setdefault(role.rpartition("/")[0], []).append(value)
    gaps = [max(means) - min(means) for means in by_env.values() if len(means) > 1]
    return max(gaps, default=None)


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
