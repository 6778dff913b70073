"""What the policy is worth, measured in every env of a run: exactly where the game can be solved, else by games."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pettingzoo import AECEnv

from inference import Engine
from inference.render import Renderer
from legos_envs import InfoSet, exact
from legos_envs.policies import RandomPolicy
from legos_train.actors import BASE, POLICY, UNTRAINED, seated
from legos_train.arena import Arena, EnvSlot
from legos_train.evaluate import exact_metrics, head_to_head, solvable
from legos_train.rollout import ModelPlayer, Rollouts
from legos_train.roster import Roster

HIGHER_IS_BETTER = {"nash_conv": False, "no_loss": True, "optimal_move": True, "vs_random": True, "return": True}
MANY_POSITIONS = 500
"""Games with more information sets than this are evaluated before the first step and after the last only."""


@dataclass(slots=True)
class Course:
    """An env as it is measured: one instance of it and, for a game that can be solved, its information sets."""

    slot: EnvSlot
    env: AECEnv
    info_sets: Sequence[InfoSet] | None


class Measurer:
    """Measures adapters of an engine on the envs of an arena."""

    def __init__(self, arena: Arena, engine: Engine, renderer: Renderer, context: int, games: int, seed: int):
        self.arena, self.games, self.seed = arena, games, seed
        self.roster = Roster(engine, renderer, context)
        self.rollouts = Rollouts(lambda label, **args: arena.envs[label].make(**args), concurrency=256)
        self.courses: dict[str, Course] = {}
        for name, slot in arena.envs.items():
            env = slot.make()
            env.reset(seed=0, options=slot.options)
            self.courses[name] = Course(slot, env, exact.info_sets(env.game) if solvable(env) else None)  # type: ignore[attr-defined]

    @property
    def often(self) -> bool:
        """Whether measuring is cheap enough to be done every few steps."""
        return all(c.info_sets is None or len(c.info_sets) <= MANY_POSITIONS for c in self.courses.values())

    def player(self, course: Course, agent: str, adapter: str | None) -> ModelPlayer:
        """The model at a seat as training seats it, with another adapter (None: the base)."""
        role, trainable = course.slot.seats[agent]
        actor = seated(self.arena.players(course.slot), agent, role, trainable)
        found = self.roster.player(replace(actor, model=POLICY, top_p=1.0), course.slot.name, course.slot.make)
        assert isinstance(found, ModelPlayer)
        return replace(found, adapter=adapter)

    def measure(self, adapter: str | None) -> dict[str, float]:
        """The numbers of every env; with several envs as `ENV/NUMBER`."""
        out: dict[str, float] = {}
        for name, course in self.courses.items():
            whole = course.info_sets is not None and self._own(course) == list(course.slot.seats)
            numbers = self._exactly(course, adapter) if whole else self._by_games(course, adapter)
            prefix = f"{name}/" if len(self.courses) > 1 else ""
            out |= {prefix + key: value for key, value in numbers.items()}
        return out

    def _own(self, course: Course) -> list[str]:
        """The agents that the policy plays."""
        players = self.arena.players(course.slot)
        seats = course.slot.seats.items()
        return [a for a, (role, trained) in seats if seated(players, a, role, trained).model == POLICY]

    def _exactly(self, course: Course, adapter: str | None) -> dict[str, float]:
        players = [self.player(course, agent, adapter) for agent in course.slot.seats]
        return exact_metrics(course.env, players, course.info_sets)  # type: ignore[arg-type]

    def _by_games(self, course: Course, adapter: str | None) -> dict[str, float]:
        """Against random play where the env says what may be answered; else the mean return by role in self-play."""
        slot = course.slot
        judges: dict[str, Any] = {
            key: self.roster.player(actor, slot.name, slot.make)
            for key, actor in self.arena.players(slot).items()
            if actor.model != POLICY
        }
        judges.setdefault(UNTRAINED, self.roster.player(replace(self.arena.default, model=BASE), slot.name, slot.make))
        first = course.env.infos[course.env.agent_selection].get("legal_actions")
        live = self._own(course)
        if first and len(live) > 1:
            found = head_to_head(
                self.rollouts,
                slot.name,
                live,
                self.player(course, live[0], adapter),
                RandomPolicy(),
                self.games,
                self.seed,
                others=judges,
                options=slot.options,
            )
            return {"vs_random": found["mean"], "invalid": found["invalid"]}
        return self._by_itself(course, adapter, judges)

    def _by_itself(self, course: Course, adapter: str | None, judges: dict[str, Any]) -> dict[str, float]:
        from legos_train.metrics import episode_metrics
        from legos_train.rollout import Play

        slot = course.slot
        live = self._own(course)  # a seat with an actor of its own keeps it
        own = {agent: self.player(course, agent, adapter) for agent in live}
        anybody = self.player(course, (live or slot.trained)[0], adapter)
        players = {"*": anybody, **judges, **own}
        games = max(1, self.games // max(1, len(live)))
        numbers = episode_metrics(
            self.rollouts.run([Play(slot.name, self.seed + n, players, slot.options, salt=n) for n in range(games)])
        )
        rewards = numbers["reward"]
        roles = {f"return_{role}": float(value) for role, value in rewards.items()}
        mean = sum(rewards.values()) / len(rewards) if rewards else 0.0
        return {"return": mean, **(roles if len(roles) > 1 else {}), "invalid": float(numbers["invalid_rate"])}

    def key(self, numbers: dict[str, float]) -> tuple[str, int]:
        """The number that `best` is chosen by, the first env's, and 1 or -1 for whether more of it is better."""
        for name in numbers:
            kind = name.rpartition("/")[2]
            if kind in HIGHER_IS_BETTER:
                return name, 1 if HIGHER_IS_BETTER[kind] else -1
        raise KeyError(f"no number to choose the best weights by among {sorted(numbers)}")

    def close(self) -> None:
        self.rollouts.close()
        self.roster.close()
