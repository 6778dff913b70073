"""New weights reach whatever plays: the measuring engine, and the generator where that is something else."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from inference import Engine
from legos_train.errors import TrainingError
from legos_train.league import League
from legos_train.model import Learner, Learners, Snapshot
from legos_train.players import actors
from legos_train.rollout import Generator, WeightReceiver


class WeightSync:
    """Keeps the adapters that are played with at the learner's weights and the league's members.

    Attributes:
        local: plays on the measuring engine.
        generator: where episodes come from; `local` itself, servers, another process or thread.
        retire: takes an adapter of a snapshot that has left the pool from the generator; an asynchronous run puts it
            off until every batch that may still play against it has come in.
    """

    def __init__(self, learner: Learner | Learners, engine: Engine, local: Generator):
        self.learner, self.backend, self.engine = learner, learner.backend, engine
        self.local, self.generator = local, local
        self.retire: Callable[[str], None] = self._unpublish

    @property
    def targets(self) -> list[WeightReceiver]:
        """Everything that plays."""
        return [self.local] if self.generator is self.local else [self.local, self.generator]

    def policy(self) -> None:
        """Publishes the weights as they are, under the version that the next episodes are counted from."""
        for target in self.targets:
            self.backend.publish(target, actors.POLICY, self.backend.snapshot(self.learner.step))

    def new_policy(self, probes: Mapping[str | None, Sequence[int]]) -> None:
        """Publishes new weights and proves on a prompt that they are served.

        Args:
            probes: by learner that has changed, a prompt; None: the only one.

        Raises:
            TrainingError: the engine's logits are what they were before.
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
        """Puts the weights into the league's pool when that is due."""
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
        """Takes weights from the measuring engine."""
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
        """Takes episodes from somewhere else from now on; it is given all weights, and closed at the end."""
        self.generator = generator  # type: ignore[assignment]
        self.everything(league)

    def close(self) -> None:
        """Ends whatever plays."""
        for target in reversed(self.targets):
            target.close()


def member_version(name: str) -> int:
    """The optimiser step of a league member, which its name ends with; 0 for `RUN.best` and the like."""
    match = re.search(r"step_(\d+)$", name)
    return int(match[1]) if match else 0
