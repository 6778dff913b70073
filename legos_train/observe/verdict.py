"""Whether a run learned, in one sentence, with the measure and its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from legos_train.observe.eval_numbers import (
    BASE_WINS,
    EXACT,
    MIXTURE,
    ROLE_RETURN,
    direction,
    ends_of,
    is_point,
    is_worth,
    metric_name,
)

EVEN = 0.5
MOVED = 0.01
"""An exact number has moved if it changed by more than this share of the larger one."""

STILL, FAR, LONG, LASTING, STEPS = 0.02, 0.1, 4, 0.2, 30
"""An exact number stands still if it moved by at most the first share of the way from its start to its optimum over
this many evaluations, and over this share of all steps but at least this many. A verdict reports it if more than the
second share of that way is left; `monitor.standstill` has its own limit."""

LEARNED, WORSE = "Learned", "Worse than at the start"
SPOILED = 0.05
"""Exact numbers count legal answers only: they show nothing if the probability of an illegal one rose by more."""

STUCK = (
    "an action may have become too rare to be tried again, or the KL holds the policy where it is; lower the learning "
    "rate, raise or end the KL (`loss.kl`, `loss.kl_end`), or take another seed"
)

Numbers = Mapping[str, float]


def measures(*tables: Numbers) -> list[str]:
    """The measure of each env: the first of its numbers that measures the quality of weights."""
    found: dict[str, str] = {}
    for name in dict.fromkeys(name for table in tables for name in table):
        env, _, kind = name.rpartition("/")
        if is_worth(kind):
            found.setdefault(env, name)
    return list(found.values())


def gain(before: Numbers, after: Numbers, name: str) -> tuple[float, float, float]:
    """How much better `name` became, with the ends of its 95 % interval; both equal the gain if it is exact.

    The interval of a difference from the intervals of both numbers (Zou and Donner 2008, doi:10.1002/sim.3095), treated
    as independent, which on equal seeds is wider than necessary.
    """
    sign = direction(name.rpartition("/")[2])
    change = after[name] - before[name]
    (low0, high0), (low1, high1) = (ends_of(t, name) or (t[name], t[name]) for t in (before, after))
    low = change - math.hypot(after[name] - low1, high0 - before[name])
    high = change + math.hypot(high1 - after[name], before[name] - low0)
    return (change, low, high) if sign > 0 else (-change, -high, -low)


def to_go(before: Numbers, after: Numbers, name: str) -> float | None:
    """The share of the distance from `before` to the optimum that is left; None if the optimum is unknown."""
    kind = name.rpartition("/")[2]
    if kind not in EXACT or name not in before or name not in after:
        return None
    optimum = 0.0 if direction(kind) < 0 else 1.0
    whole = abs(optimum - before[name])
    return abs(optimum - after[name]) / whole if whole else None


@dataclass(slots=True)
class Stretch:
    """The evaluations up to now, `count` of them since step `since`, over which the share `to_go` hardly moved."""

    since: int = 0
    count: int = 0
    low: float = 0.0
    high: float = 0.0

    def stands_still(self, step: int, share: float) -> bool:
        """Adds an evaluation and returns whether the share has stopped moving."""
        low, high = (min(self.low, share), max(self.high, share)) if self.count else (share, share)
        if high - low > STILL:
            self.since, self.count, low, high = step, 0, share, share
        elif not self.count:
            self.since = step
        self.count, self.low, self.high = self.count + 1, low, high
        return self.count >= LONG and step - self.since >= max(LASTING * step, STEPS)


def verdict(
    before: Numbers,
    after: Numbers,
    *,
    updates: int | None,
    advice: str = "",
    weights: str = "last",
    history: Sequence[tuple[int, Numbers]] = (),
) -> str:
    """One sentence for each env.

    Args:
        before: the evaluation before the first step.
        after: that of the weights in question, including win rates.
        updates: number of updates in the run that used an advantage or an example; None if unknown.
        advice: what to change, for a run without updates.
        weights: the name of these weights.
        history: earlier evaluations of such weights, with the steps.
    """
    told = [_told(before, after, name, weights, history) for name in measures(after)]
    if updates == 0:
        nothing = f"Learned nothing: no step made an update from rewards. {advice[:1].upper()}{advice[1:]}."
        return " ".join([nothing, *(one for one in told if one.startswith(WORSE))])  # by a penalty or a bonus alone
    if not told:
        return "It is not known whether it learned: no game of the evaluation could be scored."
    return " ".join(told)


def _told(before: Numbers, after: Numbers, name: str, weights: str, history: Sequence[tuple[int, Numbers]]) -> str:
    env, slash, kind = name.rpartition("/")
    wins = f"{env}{slash}{BASE_WINS}"
    if kind not in EXACT and wins in after and (ends := ends_of(after, wins)):
        won = f"{_of(env)}the {weights} weights win {after[wins]:.0%} of their games against the base"
        if is_point(ends):
            return f"Not shown to have learned: {won}, which are too few or too alike for an interval."
        how = _how(ends[0] - EVEN, ends[1] - EVEN)
        return f"{how}: {won} (95 % interval {ends[0]:.0%} to {ends[1]:.0%}; equals win 50 %)."
    title = metric_name(name)
    if name not in before:
        return f"Not known whether it learned: {title} is {after[name]:.3f}; it was not measured before the first step."
    better, low, high = gain(before, after, name)
    moved = f"{title} went from {before[name]:.3f} to {after[name]:.3f}"
    moved += "" if kind == MIXTURE else f" ({weights} weights)"
    if kind in EXACT:
        if kind != MIXTURE and better > 0 and (rise := _spoiled(before, after, env)):
            return (
                f"Not shown to have learned: {moved}, computed exactly among legal answers, but the probability of an "
                f"illegal one rose from {rise[0]:.3f} to {rise[1]:.3f}. Lower the learning rate, or make illegal "
                "answers cost more (`loss.legality`)."
            )
        least = MOVED * max(abs(before[name]), abs(after[name]))
        how = _how(better - least, better + least)
        stretch, still = Stretch(), False
        for step, table in history:
            if (share := to_go(before, table, name)) is not None:
                still = stretch.stands_still(step, share) and share > FAR
        if not still:
            return f"{how}: {moved}, computed exactly."
        return (
            f"{how}, then stood still: {moved}, computed exactly, and has hardly moved since step {stretch.since}. "
            f"{STUCK[:1].upper()}{STUCK[1:]}."
        )
    if is_point((low, high)):
        return f"Not shown to have learned: {moved}, on games that are too few or too alike for an interval."
    roles = [] if kind != "return" else _worse_roles(before, after, env)
    how = _how(low, high)
    how += " in part" if roles and how == LEARNED else ""
    return f"{how}: {moved}; 95 % interval of the gain {low:+.3f} to {high:+.3f}.{''.join(roles)}"


def _worse_roles(before: Numbers, after: Numbers, env: str) -> list[str]:
    """A sentence for each role that earns less than before, or by now the same in every game and no more.

    The mean over roles hides a role that has given up: one that always fails pays those who only have to notice it.
    """
    told = []
    for name in after:
        if (
            name.startswith(f"{env}/{ROLE_RETURN}" if env else ROLE_RETURN)
            and name in before
            and (ends := ends_of(after, name))
        ):
            better, _, high = gain(before, after, name)
            ended = is_point(ends) and not is_point(ends_of(before, name) or (0.0, 0.0))
            if high < 0 or (ended and better <= 0):
                of = (
                    f"But the {metric_name(name).rpartition(': ')[2]} went from {before[name]:.3f} to {after[name]:.3f}"
                )
                told.append(f" {of}{', the same in every game' * ended}.")
    return told


def _how(low: float, high: float) -> str:
    """The conclusion drawn from the interval of a gain."""
    if low > 0:
        return LEARNED
    return WORSE if high < 0 else "Not shown to have learned"


def _spoiled(before: Numbers, after: Numbers, env: str) -> tuple[float, float] | None:
    """The probability of an illegal answer before and after, if it rose by more than `SPOILED`."""
    name = f"{env}/illegal" if env else "illegal"
    rise = before.get(name, 0.0), after.get(name, 0.0)
    return rise if rise[1] - rise[0] > SPOILED else None


def _of(env: str) -> str:
    return f"{env}: " if env else ""


def better_weights(tables: Mapping[str, Numbers], key: tuple[str, int] | None) -> tuple[str, str]:
    """Which of several weights to publish, and why; the first if nothing decides.

    Args:
        tables: evaluations by weights.
        key: the deciding number, and 1 or -1 for whether higher or lower is better; None: no game was scored.
    """
    names = list(tables)
    if len(names) == 1:
        return names[0], "there are no others"
    if key is None or any(key[0] not in table for table in tables.values()):
        return names[0], "no game was scored that could decide"
    name, sign = key
    env = name.rpartition("/")[0]
    sound = [one for one in names if not any(_spoiled(tables[other], tables[one], env) for other in names)]
    chosen = max(sound, key=lambda one: sign * tables[one][name])  # the first in a tie
    spoiled = "".join(f"; more illegal answers: {one}" for one in names if one not in sound)
    return chosen, f"{metric_name(name)}: " + ", ".join(f"{one} {tables[one][name]:.3f}" for one in names) + spoiled
