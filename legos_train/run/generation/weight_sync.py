"""Publishes new weights to whatever plays: the evaluation engine, and the generator if it is separate."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from inference import Engine
from legos_train.errors import TrainingError
from legos_train.league import League
from legos_train.model import Learner, Learners, Snapshot
from legos_train.rollout import Generator, WeightReceiver
from legos_train.rollout.players import actors


class WeightSync:
    """Keeps the published adapters in sync with the learner's weights and the league's members.

    Attributes:
        local: plays on the evaluation engine.
        generator: where episodes come from; `local` itself, servers, another process or thread.
        retire: removes the adapter of a snapshot that left the pool from the generator; an asynchronous run delays this
            until every batch that may still play against it has arrived.
    """

    def __init__(self, learner: Learner | Learners, engine: Engine, local: Generator):
        self.learner, self.backend, self.engine = learner, learner.backend, engine
        self.local, self.generator = local, local
        self.retire: Callable[[str], None] = self._unpublish

    @property
    def targets(self) -> list[WeightReceiver]:
        """All receivers of weights."""
        return [self.local] if self.generator is self.local else [self.local, self.generator]

    def policy(self) -> None:
        """Publishes the current weights, under the version of the next episodes."""
        for target in self.targets:
            self.backend.publish(target, actors.POLICY, self.backend.snapshot(self.learner.step))

    def new_policy(self, probes: Mapping[str | None, Sequence[int]]) -> None:
        """Publishes new weights and checks on a prompt that they are served.

        Args:
            probes: a prompt for each changed learner; None: the only one.

        Raises:
            TrainingError: the engine's logits did not change.
        """
        before = {learner: self._logits(learner, probe) for learner, probe in probes.items()}
        self.policy()
        for learner, probe in probes.items():
            if np.array_equal(before[learner], self._logits(learner, probe)):
                raise TrainingError(
                    f"step {self.learner.step}: the engine's logits did not change after publishing new weights"
                    f"{f' of learner {learner!r}' if learner else ''}; it still serves the old ones"
                )

    def _logits(self, learner: str | None, probe: Sequence[int]) -> np.ndarray:
        return self.engine.next_logits([probe], actors.adapter_name(actors.POLICY, learner))

    def everything(self, league: League | None) -> None:
        """Publishes the policy and the league's members."""
        self.policy()
        if league is not None:
            for name, weights in league.weights.items():
                self._member(name, weights)
            if not self.learner.step:
                self.snapshot(league)

    def snapshot(self, league: League | None) -> None:
        """Adds the weights to the league's pool when a snapshot is due."""
        step = self.learner.step
        if league is None or not league.snapshot_due(step) or f"step_{step}" in league.weights:
            return
        weights = self.backend.snapshot(step)
        for name in league.add(f"step_{step}", weights):
            self.forget(name)
            if self.generator is not self.local:
                for adapter in self._adapters(name):
                    self.retire(adapter)
        self._member(f"step_{step}", weights)

    def forget(self, name: str) -> None:
        """Removes weights from the evaluation engine."""
        for adapter in self._adapters(name):
            self.local.unpublish(adapter)

    def _unpublish(self, adapter: str) -> None:
        self.generator.unpublish(adapter)

    def _adapters(self, name: str) -> list[str]:
        learners = self.learner.members if isinstance(self.learner, Learners) else [None]
        return [actors.adapter_name(name, learner) for learner in learners]

    def _member(self, name: str, weights: Snapshot) -> None:
        for target in self.targets:
            self.backend.publish(target, name, weights)

    def use(self, generator: WeightReceiver, league: League | None) -> None:
        """Switches to another source of episodes, which gets all weights and is closed at the end."""
        self.generator = generator  # type: ignore[assignment]
        self.everything(league)

    def close(self) -> None:
        """Closes everything that plays."""
        for target in reversed(self.targets):
            target.close()


def member_version(name: str) -> int:
    """The optimiser step at the end of a league member's name; 0 for `RUN.best` and the like."""
    match = re.search(r"step_(\d+)$", name)
    return int(match[1]) if match else 0
