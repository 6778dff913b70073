"""The kinds of bugs that policy-gradient code has had, planted one at a time under the microscope.

A clean estimator (RAE, importance sampling, fresh games) is unbiased: along each direction in which the exact gradient
or the noise is largest, the mean of its gradients equals the exact one up to chance. A run is flagged when one of these
differences exceeds a Student t quantile of 1e-4 for all directions together. Bugs downstream of the coefficients (a
frozen layer, a wrong scale) are found by comparing the trainer's own gradient of one batch with the coefficients times
the Jacobian.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from benchmarks.microscope import PPO, Floats, Microscope
from legos_envs import Episode
from legos_train.credit import Advantages, make_credit
from legos_train.loss import LossSettings
from legos_train.loss.batch import Batch, pack

BATCHES, GAMES, DIRECTIONS = 40, 256, 12
LIMIT = 6.6
"""Student's t with 39 degrees of freedom at 1e-4 over 26 tails is 5.6; means of skewed numbers have fatter tails."""
SAME = 1e-3
"""Relative distance between the trainer's gradient and coefficients times Jacobian; rounding leaves about 1e-5."""
CLEAN = PPO.model_copy(update={"name": "importance_sampling"})


class Fault(NamedTuple):
    """A bug: what it changes on the way from games to a gradient; None: nothing there."""

    episodes: Callable[[list[Episode]], list[Episode]] | None = None
    advantages: Callable[[list[Episode], list[Advantages]], list[Advantages]] | None = None
    batch: Callable[[Batch, Microscope], Batch] | None = None
    loss: LossSettings = CLEAN
    age: int = 0
    heat: float = 1.0
    gradient: Callable[[str, Any], Any] | None = None


def _each(change: Callable[[Floats, float], Floats]) -> Callable[[list[Episode], list[Advantages]], list[Advantages]]:
    """Changes every trajectory's advantages, knowing its return."""

    def changed(episodes: list[Episode], given: list[Advantages]) -> list[Advantages]:
        return [
            {agent: change(values, episode.trajectories[agent].total) for agent, values in one.items()}
            for episode, one in zip(episodes, given)
        ]

    return changed


def _swapped(episodes: list[Episode], given: list[Advantages]) -> list[Advantages]:
    out = []
    for one in given:
        first, second = (values[0] for values in one.values())
        out.append({a: np.full(len(v), other) for (a, v), other in zip(one.items(), (second, first))})
    return out


def _shifted(episodes: list[Episode], given: list[Advantages]) -> list[Advantages]:
    return [
        {agent: np.full(len(values), other[agent][0]) for agent, values in one.items()}
        for one, other in zip(given, [*given[1:], given[0]])
    ]


def _seat_left_out(episodes: list[Episode]) -> list[Episode]:
    return [
        replace(e, trajectories={a: replace(t, trainable=a.endswith("0")) for a, t in e.trajectories.items()})
        for e in episodes
    ]


def _won_only(episodes: list[Episode]) -> list[Episode]:
    return [
        replace(e, trajectories={a: replace(t, trainable=t.total > 0) for a, t in e.trajectories.items()})
        for e in episodes
    ]


def _one_deal(episodes: list[Episode]) -> list[Episode]:
    return [e for e in episodes if e.seed == 0] or [replace(episodes[0], trajectories={})]


def _short_only(episodes: list[Episode]) -> list[Episode]:
    return [e for e in episodes if sum(len(t.turns) for t in e.trajectories.values()) <= 2]


def _old(change: Callable[[Batch, Microscope], Any]) -> Callable[[Batch, Microscope], Batch]:
    return lambda batch, scope: replace(batch, old_logprobs=change(batch, scope).astype(np.float32))


def _without(keep: Callable[[Batch], Any]) -> Callable[[Batch, Microscope], Batch]:
    def changed(batch: Batch, scope: Microscope) -> Batch:
        return replace(batch, advantages=np.where(keep(batch), batch.advantages, 0).astype(np.float32))

    return changed


def _place(batch: Batch) -> Any:
    """The place of each token within its turn."""
    starts = np.unique(batch.sequence, return_index=True)[1]
    return np.arange(len(batch)) - starts[batch.sequence]


FAULTS: dict[str, Fault] = {
    "the baseline is added twice (2R - b)": Fault(advantages=_each(lambda a, r: a + r)),
    "the sign is lost": Fault(advantages=_each(lambda a, r: -a)),
    "losses count as nothing": Fault(advantages=_each(lambda a, r: a if r > 0 else 0 * a)),
    "the seats' advantages are swapped": Fault(advantages=_swapped),
    "advantages are those of the next game": Fault(advantages=_shifted),
    "advantages are clipped at 1": Fault(advantages=_each(lambda a, r: np.clip(a, -1, 1))),
    "only the sign of the advantage counts": Fault(advantages=_each(lambda a, r: np.sign(a))),
    "only the last turn is paid": Fault(advantages=_each(lambda a, r: a * (np.arange(len(a)) == len(a) - 1))),
    "only the first turn is paid": Fault(advantages=_each(lambda a, r: a * (np.arange(len(a)) == 0))),
    "discounted by 0.5 a turn": Fault(advantages=_each(lambda a, r: a * 0.5 ** np.arange(len(a))[::-1])),
    "advantages are squared": Fault(advantages=_each(lambda a, r: a * np.abs(a))),
    "one seat is not trained": Fault(episodes=_seat_left_out),
    "only winners are trained": Fault(episodes=_won_only),
    "long games are dropped": Fault(episodes=_short_only),
    "one deal is played for ever": Fault(episodes=_one_deal),
    "sampled at temperature 1.5, recorded at 1": Fault(heat=1.5),
    "sampled at temperature 0.7, recorded at 1": Fault(heat=0.7),
    "old log-probabilities are dropped": Fault(batch=_old(lambda b, s: np.zeros(len(b)))),
    "old log-probabilities are one token late": Fault(batch=_old(lambda b, s: np.roll(b.old_logprobs, 1))),
    "the ratio is upside down": Fault(age=4, batch=_old(lambda b, s: 2 * s.logprobs(b) - b.old_logprobs)),
    "stale games pass for fresh ones": Fault(age=4, batch=_old(lambda b, s: s.logprobs(b))),
    "the token that decides is masked": Fault(batch=_without(lambda b: _place(b) != 1)),
    "advantages are some tokens late": Fault(batch=lambda b, s: replace(b, advantages=np.roll(b.advantages, 5))),
    "a layer is frozen": Fault(gradient=lambda name, g: 0 * g if "layers.0" in name else g),
    "a layer learns at half the scale": Fault(gradient=lambda name, g: 0.5 * g if "layers.1" in name else g),
    "LoRA's second matrix has no gradient": Fault(gradient=lambda name, g: 0 * g if name.endswith("lora_b") else g),
}


def gradients(scope: Microscope, fault: Fault, seed: int) -> Floats:
    """Coefficients (BATCHES, T) under a fault."""
    rng, credit, rows = np.random.default_rng(seed), make_credit("rae"), []
    for number in range(BATCHES + 5):
        episodes = scope.play(GAMES, rng, age=fault.age, heat=fault.heat)
        if fault.episodes:
            episodes = fault.episodes(episodes)
        given = credit.assign(episodes)
        if number < 5:  # the baseline settles
            continue
        batch = pack(episodes, given if fault.advantages is None else fault.advantages(episodes, given))
        rows.append(scope.coefficients(fault.batch(batch, scope) if fault.batch else batch, fault.loss))
    return np.stack(rows)


def largest_t(scope: Microscope, rows: Floats) -> float:
    """The largest t of mean minus exact along the directions of most variance, and of the exact gradient itself."""
    values, vectors = np.linalg.eigh(scope.gram)
    main = vectors[:, -DIRECTIONS:] * np.sqrt(values[-DIRECTIONS:])
    along = np.column_stack([main, scope.gram @ scope.exact / np.sqrt(scope.exact @ scope.gram @ scope.exact)])
    apart = (rows - scope.exact) @ along
    return float(np.max(np.abs(apart.mean(axis=0)) / (apart.std(axis=0, ddof=1) / np.sqrt(len(rows)) + 1e-12)))


def distance(scope: Microscope, fault: Fault, seed: int) -> float:
    """How far the trainer's own gradient of a batch is from coefficients times Jacobian, relatively."""
    backend: Any = scope.trainer.parts.backend
    episodes = scope.play(64, np.random.default_rng(seed))
    batch = pack(episodes, make_credit("rae").assign(episodes))
    backend.forward_backward(batch, CLEAN, scope.trainer.learner.step)
    grads: Mapping[str, Any] = backend._grads
    change = fault.gradient or (lambda name, gradient: gradient)
    own = np.concatenate([change(n, np.array(grads[n], dtype=np.float64)).ravel() for n in sorted(grads)])
    wanted = -(scope.coefficients(batch, CLEAN) @ scope.jacobian)
    return float(np.linalg.norm(own - wanted) / np.linalg.norm(wanted))


def report(seed: int, clean: int = 100) -> dict[str, Any]:
    """Plants every bug once, and runs clean ones; prints what was flagged."""
    scope = Microscope(seed=seed)
    found: dict[str, Any] = {}
    for number, (name, fault) in enumerate(FAULTS.items()):
        if fault.gradient:
            value, limit = distance(scope, fault, seed), SAME
        else:
            value, limit = largest_t(scope, gradients(scope, fault, seed + number)), LIMIT
        found[name] = {"value": value, "flagged": value > limit}
        print(f"{'flagged' if value > limit else 'MISSED '}  {value:9.3g}  {name}", flush=True)
    rows = [largest_t(scope, gradients(scope, Fault(), 1000 + seed + number)) for number in range(clean)]
    apart = distance(scope, Fault(), seed)
    raised = sum(value > LIMIT for value in rows) + (apart > SAME)
    print(f"{sum(f['flagged'] for f in found.values())} of {len(found)} bugs flagged; {raised} of {clean} clean runs")
    print(f"largest t of a clean run {max(rows):.2f}; the trainer's gradient is {apart:.1e} from the Jacobian's")
    scope.trainer.parts.close()
    return {"faults": found, "clean": clean, "raised": raised, "largest": max(rows), "distance": apart}
