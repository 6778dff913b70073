"""The training data of a loss over all actions: decision points, with every legal action and its value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from legos_envs import Episode
from legos_envs.records import Trajectory, Turn
from legos_train.credit import Advantages
from legos_train.evaluation.exact_values import ScoredAction
from legos_train.rollout.players import actors

AdapterSeats = tuple[str | None, ...]
"""By player number, the league member in the seat; None: the learning policy, `policy.NAME` if there are several."""
PlayedSeats = tuple[str, AdapterSeats]
"""The env of an episode, and who sat where."""
Floats = NDArray[np.float64]
TINY = 1e-300
LEAST = 1e-30
"""The smallest probability whose quotients fit single precision."""


class MirrorStep(NamedTuple):
    """A step of mirror descent.

    Attributes:
        length: the factor of the advantages, above 0.
        floor: lower bound on the probability of every legal action.
    """

    length: float
    floor: float = 0.0


class Decisions(NamedTuple):
    """Decision points as episodes: the legal actions of each, as turns with the same prompt.

    Attributes:
        episodes: one for each decision point and seating.
        advantages: of the actions.
        weights: how often play reaches the decision point, times the action's probability.
        values: by env and seating, the advantage of an action by its tokens (read, written), and by the tokens read
            alone (written: `()`) that of an answer that is not a legal action.
        branches: for branches played to value actions, the numbers of `points`, `episodes` and sampled `tokens`, and of
            `unvalued` points: there an action got no value, since none of its episodes was scored.
    """

    episodes: list[Episode]
    advantages: list[Advantages]
    weights: list[Advantages]
    values: dict[PlayedSeats, dict[tuple[tuple[int, ...], tuple[int, ...]], float]]
    branches: Counter[str]

    def advantages_of(self, episode: Episode) -> Advantages:
        """The advantages of a played episode's turns against the opponents met in it; 0 if unknown."""
        values = self.values.get(played_by(episode), {})
        return {
            agent: np.array([_value(values, turn) for turn in trajectory.turns], dtype=np.float64)
            for agent, trajectory in episode.trajectories.items()
            if trajectory.trainable
        }

    def add(
        self,
        played: PlayedSeats,
        seat: Trajectory,
        masses: Floats,
        gains: Floats,
        illegal: float | None,
        weight: float,
        mirror: MirrorStep | None,
    ) -> None:
        """Adds a decision point.

        Args:
            played: env and seating.
            seat: the seat whose turns are the A legal actions.
            masses: the policy's probabilities of these, (A,).
            gains: their values, (A,).
            illegal: value of any other answer; None: the mean of the policy's legal ones.
            weight: how often play reaches this point.
            mirror: see `DecisionTable`.
        """
        total = float(masses.sum())
        if illegal is None:
            illegal = float(masses @ gains) / total if total else float(gains.mean())
        mean = float(masses @ gains) + max(0.0, 1.0 - total) * illegal
        better = gains - mean
        self.episodes.append(Episode(played[0], 0, {}, {seat.agent: seat}))
        target = better if mirror is None else mirrored(masses, better, mirror)
        self.advantages.append({seat.agent: target})
        self.weights.append({seat.agent: masses * weight})
        prompt, own = tuple(seat.turns[0].prompt_tokens or ()), self.values.setdefault(played, {})
        own[prompt, ()] = illegal - mean
        for turn, gain in zip(seat.turns, better):
            own[prompt, tuple(turn.action_tokens or ())] = float(gain)


def nothing_decided() -> Decisions:
    """An empty set of decision points."""
    return Decisions([], [], [], {}, Counter())


def played_by(episode: Episode) -> PlayedSeats:
    """The env of an episode, and who sat where."""
    return episode.env_id, tuple(_player_of(seat) for seat in episode.trajectories.values())


def learner_in(player: str | None) -> str | None:
    """The learner that an entry of `AdapterSeats` names."""
    weights, _, learner = (player or "").partition(".")
    return learner if weights == actors.POLICY and learner else None


def _player_of(seat: Trajectory) -> str | None:
    learner = seat.info.get("learner")
    return seat.info.get("member") or (learner and actors.adapter_name(actors.POLICY, learner))


def mirrored(masses: Floats, advantages: Floats, step: MirrorStep) -> Floats:
    """log(q / p) / length, (A,), of q, which is p exp(length * advantage) over the legal actions and sums to 1.

    Below the floor p is replaced by the floor. An action of 1e-6 would be about as rare in the target, whatever its
    value, and fitting that target would never bring it back.

    Args:
        masses: p of each legal action, (A,), together at most 1.
        advantages: the gain of each over the policy's mean, (A,).
        step: its length and floor.
    """
    logs = np.log(np.maximum(masses, LEAST))
    target = np.log(np.maximum(masses, max(step.floor, LEAST))) + step.length * advantages
    peak = target.max()
    return (target - peak - np.log(np.exp(target - peak).sum()) - logs) / step.length


def turns_of(
    actions: Sequence[str], legal: tuple[str, ...], answers: Sequence[ScoredAction], version: int
) -> list[Turn]:
    """Legal actions as turns with one prompt."""
    return [
        Turn(
            (),
            action,
            legal_actions=legal,
            prompt_tokens=answer.prompt,
            action_tokens=answer.tokens,
            logprobs=answer.logprobs.tolist(),
            policy_version=version,
        )
        for action, answer in zip(actions, answers)
    ]


def _value(values: dict[tuple[tuple[int, ...], tuple[int, ...]], float], turn: Turn) -> float:
    prompt = tuple(turn.prompt_tokens or ())
    return values.get((prompt, tuple(turn.action_tokens or ())), values.get((prompt, ()), 0.0))
