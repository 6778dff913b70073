"""Values of actions in games that cannot be solved: each action at sampled decision points is played to the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from inference.text import Renderer
from legos_envs import Episode
from legos_envs.records import Trajectory, Turn
from legos_envs.table import keyed_generator
from legos_train.config.sections import BranchSettings
from legos_train.credit import Advantages, ReturnScale
from legos_train.errors import ConfigError
from legos_train.evaluation import Measurer
from legos_train.evaluation.exact_values import ScoredAction
from legos_train.rollout import Job, filters
from legos_train.rollout.players import actors
from legos_train.run.all_actions.decision_points import Decisions, MirrorStep, played_by, turns_of

FIRST_SALT = 1 << 32
"""Branches are numbered from here on; the episodes of a step start at 0."""


class BranchPoint(NamedTuple):
    """A decision in a played episode: the agent, which of its turns, and how many such decisions it represents."""

    job: Job
    episode: Episode
    agent: str
    turn: int
    weight: float

    @property
    def taken(self) -> Turn:
        return self.episode.trajectories[self.agent].turns[self.turn]

    @property
    def before(self) -> tuple[tuple[str, Turn], ...]:
        """The answers that led to this point: agents and their turns."""
        out: list[tuple[str, Turn]] = []
        given = dict.fromkeys(self.episode.trajectories, 0)
        for agent in self.episode.order:
            if (agent, given[agent]) == (self.agent, self.turn):
                break
            out.append((agent, self.episode.trajectories[agent].turns[given[agent]]))
            given[agent] += 1
        return tuple(out)


class Branches:
    r"""Values every legal action at some decision points of each episode by playing on from there.

    An env is brought back to the decision with its seed and the answers up to then. Then the action is played, and
    all seats continue as before, the policy by sampling:

    $$Q(I, a) \approx \frac{1}{K} \sum_{k=1}^{K} R_k(I, a)$$

    with the returns R from there on. Chance that the env's seed determines is the same in all branches of an episode,
    so actions are compared under equal luck; this is unbiased, since no player knew that luck when choosing.

    Source: the rollouts of Tesauro and Galperin 1996, "On-line Policy Improvement using Monte-Carlo Search", NIPS 9,
    used here to train the policy that plays them.

    Args:
        measurer: knows the envs and assigns policies to seats.
        renderer: how conversations become tokens.
        play: plays jobs, with seats as in training.
        settings: how many points and episodes.
        seed: seed of the run; together with the policy's version it determines which points are taken.
        scaled: divide by the spread of a role's returns if that is above 1.
        mirror: see `DecisionTable`.
    """

    def __init__(
        self,
        measurer: Measurer,
        renderer: Renderer,
        play: Callable[[Sequence[Job]], list[Episode]],
        settings: BranchSettings,
        seed: int,
        *,
        scaled: bool,
        mirror: MirrorStep | None,
    ):
        self.measurer, self.renderer, self.play, self.settings, self.seed = measurer, renderer, play, settings, seed
        self.scaled, self.mirror = scaled, mirror
        self._spread = ReturnScale(_NoCredit())

    def check(self, task: Any, loss: str) -> None:
        """Checks that the actions of an env can be listed and scored.

        Raises:
            ConfigError: they cannot be.
        """
        listed = any(info.get("legal_actions") for info in task.env.infos.values())
        wrong = "its first decisions list no legal actions" * (not listed)
        if self.renderer.reasons:
            wrong = "answers that begin with a thought give no probability to an action"
        if self.settings.when == "never":
            wrong = 'it has no exact truth, and branch.when = "never"'
        if wrong:
            raise ConfigError(
                f"loss.name = {loss!r} values every action, by the tree of a game with exact truth (one that can be "
                "solved, memory='state', one round, no reasoning, all seats the policy's), else by branches of what "
                f"was played; for {task.slot.name} {wrong}. Use 'ppo'"
            )

    def add(self, out: Decisions, played: Sequence[tuple[Job, Episode]], share: float, version: int) -> None:
        """Adds decision points of episodes, with a total weight of `share`.

        Args:
            out: receives the decision points.
            played: episodes and their jobs.
            share: of the step's weights.
            version: version of the published policy.
        """
        self._spread.assign([episode for _, episode in played])
        points = self._points(played, version)
        choices = self._choices(points)
        returns = self._returns(points, choices, out, version)
        total = sum(point.weight for point in points)
        for point, answers, gains in zip(points, choices, returns):
            if gains is None:
                out.branches["unvalued"] += 1
                continue
            task: Any = self.measurer.tasks[point.episode.env_id]
            played_seat, legal = point.episode.trajectories[point.agent], point.taken.legal_actions or ()
            turns = turns_of(legal, legal, answers, version)
            info = {key: value for key, value in played_seat.info.items() if key == "learner"}
            seat = Trajectory(point.agent, played_seat.role, turns=turns, info=info)
            scale = self._spread.scale(point.episode.env_id, played_seat.role) if self.scaled else 1.0
            price = getattr(task.env.unwrapped, "invalid_reward", None)
            illegal = None if price is None else min(float(price), float(gains.min())) / scale
            masses = np.array([answer.probability for answer in answers])
            weight = share * point.weight / total
            out.add(played_by(point.episode), seat, masses, gains / scale, illegal, weight, self.mirror)

    def _points(self, played: Sequence[tuple[Job, Episode]], version: int) -> list[BranchPoint]:
        rng = keyed_generator(self.seed, f"branches of version {version}")
        out = []
        for job, episode in played:
            open_ = [
                (agent, number)
                for agent, seat in episode.trajectories.items()
                if seat.trainable
                for number, turn in enumerate(seat.turns)
                if len(turn.legal_actions or ()) > 1 and turn.prompt_tokens and turn.finish_reason != "overflow"
            ]
            count = min(self.settings.points, len(open_))
            for at in sorted(rng.permutation(len(open_))[:count].tolist()):
                agent, number = open_[at]
                out.append(BranchPoint(job, episode, agent, number, len(open_) / count))
        return out

    def _choices(self, points: Sequence[BranchPoint]) -> list[list[ScoredAction]]:
        """For each point, the legal actions as the policy would write them, with probabilities."""
        out: list[list[ScoredAction]] = [[] for _ in points]
        by_seat: dict[tuple[str, str, str | None], list[int]] = {}
        for number, point in enumerate(points):
            learner = point.episode.trajectories[point.agent].info.get("learner")
            by_seat.setdefault((point.episode.env_id, point.agent, learner), []).append(number)
        for (name, agent, learner), numbers in by_seat.items():
            player = self.measurer.player(self.measurer.tasks[name], agent, actors.POLICY, learner)
            engine: Any = player.engine
            prompts: list[Sequence[int]] = []
            replies: list[Sequence[int]] = []
            for number in numbers:
                turn = points[number].taken
                for action in turn.legal_actions or ():
                    prompts.append(turn.prompt_tokens or ())
                    replies.append([*player.renderer.encode(action), player.renderer.end_id])
            scored = map(ScoredAction, prompts, replies, engine.score(prompts, replies, adapter=player.adapter))
            for number in numbers:
                out[number] = [next(scored) for _ in points[number].taken.legal_actions or ()]
        return out

    def _returns(
        self, points: Sequence[BranchPoint], choices: Sequence[list[ScoredAction]], out: Decisions, version: int
    ) -> list[np.ndarray | None]:
        """For each point, the mean return of each action, (A,); None if an action has no valid episode."""
        branches: list[Job] = []
        owners: list[tuple[int, int]] = []
        for number, (point, answers) in enumerate(zip(points, choices)):
            taken, before = point.taken, point.before
            legal = taken.legal_actions or ()
            for action, turn in enumerate(turns_of(legal, legal, answers, version)):
                turn.observation = taken.observation
                for _ in range(self.settings.rollouts):
                    begin, salt = (*before, (point.agent, turn)), FIRST_SALT + len(branches)
                    branches.append(replace(point.job, begin=begin, salt=salt, group=None))
                    owners.append((number, action))
        found: list[list[list[float]]] = [[[] for _ in answers] for answers in choices]
        for (number, action), episode in zip(owners, self.play(branches) if branches else ()):
            seat = episode.trajectories[points[number].agent]
            out.branches["episodes"] += 1
            new = [turn for t in episode.trajectories.values() for turn in t.turns]
            out.branches["tokens"] += sum(len(turn.action_tokens or ()) for turn in new)
            out.branches["tokens"] -= sum(len(t.action_tokens or ()) for _, t in points[number].before)
            if seat.info.get("untrained") not in filters.VOID:
                found[number][action].append(sum(turn.reward for turn in seat.turns[points[number].turn :]))
        out.branches["points"] += len(points)
        return [np.array([np.mean(r) for r in every]) if all(every) else None for every in found]

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint, as JSON values."""
        return self._spread.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._spread.load_state_dict(state)


class _NoCredit:
    """Assigns no credit: only the returns of episodes are needed."""

    name = "none"

    def assign(self, episodes: Sequence[Episode]) -> list[Advantages]:
        return [{} for _ in episodes]

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass
