"""The sampler `proposed_problems`: problems written by proposers, with the solvers' pass rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from legos_envs import Episode
from legos_envs.records import Trajectory
from legos_envs.tasks.problems import ProposerSolver, problem_key
from legos_train.arena.artifact_store import ArtifactStore
from legos_train.arena.curriculum.shares import is_settled, means, suitable, with_options
from legos_train.config import sections

if TYPE_CHECKING:
    from legos_train.arena.arena import Arena
    from legos_train.arena.request import EpisodeRequest

ENOUGH = 32
"""Number of stored problems from which stored ones are reused."""
SEEN = 256
"""How many of the latest problems a new one must differ from."""


class ProposedProblems:
    r"""Problems that proposers wrote, given to solvers again: `ProposerSolver-v0` with a memory.

    $$P(i) \propto p_i\,(1 - p_i) \qquad p_i = \frac{s_i + 1}{n_i + 2}$$

    Every problem played is kept; s of n solvers' answers to it were right. Once 32 are kept, a `share` of the episodes
    gives solvers a kept problem: one whose pass rate lies in `low` ... `high` and that is at most `max_age` steps old.
    In the other episodes a proposer writes a new one. The last 256 problems are passed as `seen`: they count as
    duplicates, so it must keep finding new ones.

    When: `ProposerSolver-v0`, where a good problem is worth more than one episode.

    When not: other environments. A run without ProposerSolver is rejected.

    Source: the buffers of Absolute Zero, Zhao et al. 2025, arXiv 2505.03335, with a gate on what can be learned.

    Args:
        settings: `share`, `low`, `high` and `max_age` of `[curriculum]`.
        store: keeps the problems, one pool per environment.
        domains: the environments it is for, by name, with their `domain`.
    """

    def __init__(self, settings: sections.CurriculumSettings, store: ArtifactStore, domains: Mapping[str, str]):
        self.settings, self.store, self.domains = settings, store, dict(domains)
        self._recent: dict[str, tuple[Any, list[str]]] = {}

    @classmethod
    def of(cls, settings: sections.CurriculumSettings, store: ArtifactStore, arena: Arena) -> ProposedProblems:
        """The sampler for the ProposerSolver environments of an arena. Raises ValueError when it has none."""
        return cls(settings, store, {name: env.domain for name, env in suitable(arena, ProposerSolver).items()})

    def prepare(self, request: EpisodeRequest, rng: np.random.Generator, step: int) -> EpisodeRequest:
        """Sets options `problem` and `answer` to a stored problem, or `seen` to those that do not count as new."""
        if request.env not in self.domains or is_settled(request, "problem"):
            return request
        s, pool = self.settings, request.env
        if rng.random() < s.share and self.store.count(pool) >= ENOUGH:
            gate = (s.low, s.high)
            drawn = self.store.sample(1, rng, pool=pool, gate=gate, max_age=s.max_age, step=step, learnable=True)
            if drawn:
                return with_options(request, drawn[0].content)
        seen = [*(request.options or {}).get("seen", ()), *self._seen(pool)]
        return with_options(request, {"seen": seen}) if seen else request

    def _seen(self, pool: str) -> list[str]:
        """The latest problems; looked up again if the store has changed."""
        version = self.store.version
        if pool not in self._recent or self._recent[pool][0] != version:
            problems = [artifact.content["problem"] for artifact in self.store.recent(SEEN, pool)]
            self._recent[pool] = version, problems
        return self._recent[pool][1]

    def learn(self, episodes: Sequence[Episode], step: int) -> dict[str, float]:
        """Keeps new problems and records how many solvers were right.

        Returns:
            `kept`: problems in the store; `new`: kept in this step; `again`: share of episodes on a kept problem;
            `pass_rate_new`, `pass_rate_again`: mean pass rates of the problems just written, and of those given again.
        """
        fresh: list[float] = []
        again: list[float] = []
        new = total = repeats = 0
        with self.store.transaction():
            for episode in episodes:
                if episode.env_id not in self.domains:
                    continue
                total += 1
                stored = "problem" in episode.options
                repeats += stored
                for tried in _played(episode).values():
                    rights = [bool(t.info["correct"]) for t in tried if "correct" in t.info]
                    new += self._keep(episode.env_id, tried[0].info, sum(rights), len(tried), step)
                    (again if stored else fresh).append(sum(rights) / len(tried))
        return {
            "kept": float(len(self.store)),
            "new": float(new),
            "again": repeats / total if total else 0.0,
            **means(pass_rate_new=fresh, pass_rate_again=again),
        }

    def _keep(self, pool: str, info: Mapping[str, Any], right: int, tried: int, step: int) -> bool:
        """Adds a problem if it is new, and its result; returns whether it was new."""
        problem, answer = str(info["problem"]), str(info["truth"])
        name = problem_key(problem, self.domains[pool])
        number = self.store.add({"problem": problem, "answer": answer}, pool=pool, key=name, step=step)
        known = self.store.find(name, pool) if number is None else None
        at = number if known is None else known.id
        if at is not None:
            self.store.record(at, right, tried, step)
        return number is not None

    def state_dict(self) -> dict[str, Any]:
        """Empty: everything is in the store."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores `state_dict()`."""


def _played(episode: Episode) -> dict[str, list[Trajectory]]:
    """The solvers of every problem that was played, by their table. A forfeit counts as a wrong answer."""
    found: dict[str, list[Trajectory]] = {}
    for trajectory in episode.trajectories.values():
        if trajectory.role == "solver" and trajectory.info.get("solve_rate") is not None:
            found.setdefault(trajectory.parent, []).append(trajectory)
    return found
