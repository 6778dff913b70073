"""Mirror descent on one number per action, with exact values: a run without a model and without sampled games.

The step is that of magnetic mirror descent (arXiv 2206.05825, equation 3), in closed form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legos_train.config import TrainConfig, sections
from legos_train.loss import LossSettings
from legos_train.run.all_actions.decisions import action_values, spreads

Floats = NDArray[np.float64]
Probabilities = list[Floats]
"""By information set the probabilities of its actions, (A,)."""
LEAST = 1e-12
"""No action becomes less likely than this."""


def mirror_step(
    policy: Probabilities, values: Probabilities, reference: Probabilities, length: float, weight: float
) -> Probabilities:
    """One step; `weight` is its length times the KL weight. Values are in spreads of the returns."""
    return [
        softmax((np.log(p) + length * value + weight * np.log(r)) / (1 + weight))
        for p, r, value in zip(policy, reference, values, strict=True)
    ]


def softmax(logits: Floats) -> Floats:
    """Probabilities (A,), none of them below `LEAST`."""
    p = np.exp(logits - logits.max())
    return np.maximum(p / p.sum(), LEAST)


def values_of(graph: Any, policy: Probabilities, scales: Sequence[float]) -> Probabilities:
    """What each action of each information set is worth to its player, (A,), in spreads of the returns."""
    table = [p.tolist() for p in policy]
    values = graph.values(table)
    chances = [graph.reach_without(player, table) for player in range(graph.num_players)]
    out = []
    for at, info in enumerate(graph.infosets):
        found = action_values(graph, at, values, chances[info.player], scales[info.player])
        out.append(np.zeros(len(info.legal)) if found is None else found)
    return out


def expected_run(
    graph: Any, start: Probabilities, config: TrainConfig
) -> Iterator[tuple[int, Probabilities, Probabilities | None]]:
    """The steps of a run with its KL, reference and average, each from exact values.

    A step of gradient descent on a model has no length in this space. It is `loss.mirror_step` if the loss uses that,
    otherwise the KL weight, the longest for which the method is proved to converge (with returns divided by their
    spread; theorem 3.4 of the same paper).

    Args:
        graph: of the game, see `legos_envs.exact`.
        start: the policy to begin with, which is the first reference too.
        config: of the run. Entropy bonus, exploration and league are left out.

    Yields:
        Step, policy and its average, None without one.
    """
    loss, scales = config.loss, spreads(graph)
    policy = reference = [np.maximum(p, LEAST) for p in start]
    average = LogAverage(config.average, config.steps)
    for step in range(1, config.steps + 1):
        kl = loss.kl_weight(step, config.steps)
        length = loss.mirror_step if loss.token_loss.mirror else kl
        policy = mirror_step(policy, values_of(graph, policy, scales), reference, length, length * kl)
        average.fold(step, policy)
        if loss.magnet_every and step % loss.magnet_every == 0:
            reference = _moved(loss, policy, average.value(), start)
        yield step, policy, average.value()


def _moved(
    loss: LossSettings, policy: Probabilities, average: Probabilities | None, base: Probabilities
) -> Probabilities:
    moved = average if loss.magnet == "average" and average is not None else policy
    share = loss.magnet_base
    return [np.maximum((1 - share) * p + share * b, LEAST) for p, b in zip(moved, base, strict=True)]


class LogAverage:
    """The average of log-probabilities over a run, with the weights of `WeightAverage`."""

    def __init__(self, settings: sections.AverageSettings, steps: int):
        self.settings, self.steps = settings, steps
        self._sums: Probabilities | None = None
        self._total = 0.0

    def fold(self, step: int, policy: Probabilities) -> None:
        """Takes in the policy after a step."""
        if (told := self.settings.kept(step, self.steps, self._total)) is None:
            return
        keep, self._total = told
        sums = self._sums or [np.zeros_like(p) for p in policy]
        self._sums = [keep * a + (1 - keep) * np.log(p) for a, p in zip(sums, policy, strict=True)]

    def value(self) -> Probabilities | None:
        """The average, as a policy; None where there is none yet."""
        if self._sums is None:
            return None
        total = 1.0 if self.settings.kind == "uniform" else self._total
        return [softmax(a / total) for a in self._sums]
