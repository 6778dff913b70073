"""Scales large payoffs down to about 1, so that one KL weight and one learning rate fit all games."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from legos_envs.records import Episode
from legos_train.credit.assigner import Advantages, CreditAssigner, mean

DECAY = 0.99


class ReturnScale:
    r"""Advantages divided by the spread of their role's returns, where that is above 1.

    The KL penalty and the entropy bonus are in nats and are traded off against payoffs: a weight that suits a game
    played for 1 chip has almost no effect in one played for 13.

    $$A \leftarrow A\,/\,\max(1, \sigma) \qquad \sigma^2 = \mathrm{E}[R^2] - \mathrm{E}[R]^2$$

    Both means are moving averages over all batches (decay 0.99, bias-corrected), by environment and role. Multiplying a
    player's payoffs by a positive number does not change equilibria. Payoffs within 1 stay as they are, so that rare
    successes are not inflated.

    Source: the normalisation of returns in DreamerV3, arXiv 2301.04104, section "Actor learning", which also divides by
    the scale only where it is above 1; there a range of percentiles, here the standard deviation.

    Args:
        inner: the credit method whose advantages are scaled.
    """

    name = "return_scale"

    def __init__(self, inner: CreditAssigner) -> None:
        self.inner = inner
        self.groups = getattr(inner, "groups", False)
        self._moments: dict[tuple[str, str], list[float]] = {}
        """By env and role: weight so far, moving sum of returns, and of their squares."""

    def assign(self, episodes: Sequence[Episode]) -> list[Advantages]:
        advantages = self.inner.assign(episodes)
        returns: dict[tuple[str, str], list[float]] = defaultdict(list)
        for episode, given in zip(episodes, advantages, strict=True):
            for agent in given:
                trajectory = episode.trajectories[agent]
                returns[episode.env_id, trajectory.role].append(trajectory.total)
        for key, totals in returns.items():
            old = self._moments.get(key, [0.0, 0.0, 0.0])
            new = [1.0, mean(totals), mean([total * total for total in totals])]
            self._moments[key] = [DECAY * a + (1 - DECAY) * b for a, b in zip(old, new)]
        large = {key: scale for key in self._moments if (scale := self.scale(*key)) > 1.0}
        for episode, given in zip(episodes, advantages, strict=True) if large else ():
            for agent, values in given.items():
                key = episode.env_id, episode.trajectories[agent].role
                if key in large:
                    given[agent] = values / large[key]
        return advantages

    def scale(self, env_id: str, role: str) -> float:
        """The divisor of a role's advantages, at least 1."""
        weight, first, second = self._moments.get((env_id, role), (1.0, 0.0, 0.0))
        return math.sqrt(max(1.0, second / weight - (first / weight) ** 2))

    def state_dict(self) -> dict[str, Any]:
        moments = [[*key, *values] for key, values in sorted(self._moments.items())]
        return {"method": self.name, "inner": self.inner.state_dict(), "moments": moments}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state.get("method") != self.name:  # of a checkpoint from before returns were scaled
            self.inner.load_state_dict(state)
            return
        self.inner.load_state_dict(state["inner"])
        self._moments = {(env, role): list(values) for env, role, *values in state["moments"]}
