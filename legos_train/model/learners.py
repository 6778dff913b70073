"""Several learners, each with its own loss, optimiser and schedule, that take their steps together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from legos_train.errors import TrainingError
from legos_train.loss.batch import BatchByLearner
from legos_train.model.backend import GroupBytes
from legos_train.model.learner import Learner
from legos_train.model.population_backend import PopulationBackend
from legos_train.model.step_numbers import combined


def _shared(name: str) -> property:
    """An attribute of `Learner` that is the same for all."""

    def change(self: Learners, value: Any) -> None:
        for one in self.members.values():
            setattr(one, name, value)

    return property(lambda self: getattr(self.first, name), change)


class Learners:
    """Several learners that take their steps together, with the interface of one `Learner`."""

    def __init__(self, members: Mapping[str, Learner]):
        self.members = dict(members)
        self.backend = PopulationBackend({name: one.backend for name, one in self.members.items()})

    @property
    def first(self) -> Learner:
        return next(iter(self.members.values()))

    step: Any = _shared("step")
    kl_factor: Any = _shared("kl_factor")
    replaced: Any = _shared("replaced")

    def learning_rate(self, step: int) -> float:
        """The learning rate of the first learner."""
        return self.first.learning_rate(step)

    def kl_weight(self, step: int) -> float:
        """The KL weight of the first learner."""
        return self.first.kl_weight(step)

    def update(self, batch: BatchByLearner) -> dict[str, Any]:
        """One step of every learner on its own batch; one with nothing to train on skips the step.

        Returns:
            The combined numbers, with those of each learner under `learners`.

        Raises:
            TrainingError: see `Learner.update`; the message names the learner.
        """
        numbers = {}
        for name, learner in self.members.items():
            part = batch.parts[name]
            try:
                numbers[name] = learner.update(part) if len(part) else _passed(learner)
            except TrainingError as error:
                raise type(error)(f"learner {name!r}, {error}") from error
        tokens = [len(batch.parts[name]) for name in numbers]
        return {**combined(list(numbers.values()), tokens), "learners": numbers}

    def finish(self, step: int) -> None:
        for one in self.members.values():
            one.finish(step)

    def state(self) -> tuple[dict[str, GroupBytes], dict[str, Any]]:
        groups: dict[str, GroupBytes] = {}
        numbers: dict[str, Any] = {}
        for name, one in self.members.items():
            own, numbers[name] = one.state()
            groups |= {f"{group}.{name}": make for group, make in own.items()}
        return groups, {"step": self.step, "learners": numbers}

    def restore(self, groups: Mapping[str, bytes], numbers: dict[str, Any]) -> None:
        for name, one in self.members.items():
            own = {key.removesuffix(f".{name}"): data for key, data in groups.items() if key.endswith(f".{name}")}
            one.restore(own, numbers["learners"][name])


def _passed(learner: Learner) -> dict[str, Any]:
    learner.finish(learner.step + 1)
    return {"updates": 0, "idle": 1, "skipped": 0, "adapter_change": 0.0, "lr": learner.learning_rate(learner.step)}
