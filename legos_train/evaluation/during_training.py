"""What the policy is worth, measured in every env of a run: exactly where the game can be solved, else by games."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pettingzoo import AECEnv

from inference import Engine
from inference.text import Renderer
from legos_envs import InfoSet, exact
from legos_envs.policies import RandomPolicy
from legos_train.arena import Arena, EnvSlot
from legos_train.evaluation.duel import NothingScored, head_to_head
from legos_train.evaluation.exactly import MANY_POSITIONS, exact_metrics, solvable
from legos_train.evaluation.outcomes import OUTCOMES, competitive, sides_of
from legos_train.observe import eval_numbers
from legos_train.players import ModelPlayer, Roster, actors
from legos_train.rollout import Rollouts

ENDS = {"mean": "ci95", "score": "score_ci95"}
"""Where a row has the interval of a number."""


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

    @property
    def own_scales(self) -> set[str]:
        """The envs whose seats are paid on scales of their own, see `outcomes.competitive`."""
        return {name for name, course in self.courses.items() if not competitive(course.env)}

    def player(self, course: Course, agent: str, adapter: str | None) -> ModelPlayer:
        """The model at a seat as training seats it, with another adapter (None: the base)."""
        role, trainable = course.slot.seats[agent]
        actor = actors.lookup(self.arena.players(course.slot), agent, role, trainable)
        player = self.roster.player(replace(actor, model=actors.POLICY, top_p=1.0), course.slot.name, course.slot.make)
        assert isinstance(player, ModelPlayer)
        return replace(player, adapter=adapter)

    def measure(self, adapter: str | None) -> dict[str, float]:
        """The numbers of every env; with several envs as `ENV/NUMBER`."""
        out: dict[str, float] = {}
        for name, course in self.courses.items():
            numbers = self._exactly(course, adapter) if self._solved(course) else self._by_games(course, adapter)
            prefix = f"{name}/" if len(self.courses) > 1 else ""
            out |= {prefix + key: value for key, value in numbers.items()}
        return out

    def _solved(self, course: Course) -> bool:
        """Whether exact numbers say what the policy is worth: it plays every seat of a game that can be solved."""
        return course.info_sets is not None and self._own(course) == list(course.slot.seats)

    def _own(self, course: Course) -> list[str]:
        """The agents that the policy plays."""
        players = self.arena.players(course.slot)
        seats = course.slot.seats.items()
        return [a for a, (role, trained) in seats if actors.lookup(players, a, role, trained).model == actors.POLICY]

    def _exactly(self, course: Course, adapter: str | None) -> dict[str, float]:
        players = [self.player(course, agent, adapter) for agent in course.slot.seats]
        return exact_metrics(course.env, players, course.info_sets)  # type: ignore[arg-type]

    @property
    def contests(self) -> list[Course]:
        """Envs in which sides that the policy takes compete, and no exact number says what it is worth."""
        found = [course for course in self.courses.values() if competitive(course.env) and not self._solved(course)]
        return [course for course in found if len(self._sides(course)) > 1]

    def against(self, adapter: str | None, opponents: Mapping[str, str | None], share: float = 1.0) -> dict[str, float]:
        """Win rates in all `contests`, draws half, as `wins_vs_OPPONENT`; with several envs as `ENV/NUMBER`.

        Args:
            adapter: who is measured (None: the base).
            opponents: name -> adapter.
            share: of the games of an evaluation, how many are played against each.
        """
        out: dict[str, float] = {}
        games = max(2, round(self.games * share))
        for course in self.contests:
            prefix = f"{course.slot.name}/" if len(self.courses) > 1 else ""
            for name, other in opponents.items():
                row = self._played(course, adapter, self._sides(course), self._seated(course, other), games)
                if row.get("score") is not None:
                    out |= _with_interval(f"{prefix}wins_vs_{name}", row["score"], row["score_ci95"])
        return out

    def _sides(self, course: Course) -> list[tuple[str, ...]]:
        own = set(self._own(course))
        return [side for side in sides_of(course.env.infos) if set(side) <= own]

    def _seated(self, course: Course, adapter: str | None) -> dict[str, Any]:
        return {agent: self.player(course, agent, adapter) for agent in self._own(course) or course.slot.trained}

    def _by_games(self, course: Course, adapter: str | None) -> dict[str, float]:
        """Against random play where the env says what may be answered; else, where sides compete, against the base,
        since a policy against itself breaks even; else in self-play.

        The games and the numbers are those of `legos eval` with the same seed, sampling and number of games: against
        `random`; in self-play with all seats of the policy counted in each game, which is the same where it has one.
        """
        sides = self._sides(course)
        legal = course.env.infos[course.env.agent_selection].get("legal_actions")
        if legal and len(sides) > 1:
            return numbers_of(self._played(course, adapter, sides, RandomPolicy(), self.games), "vs_random")
        if course in self.contests:
            row = self._played(course, adapter, sides, self._seated(course, None), self.games)
            return numbers_of(row, eval_numbers.BASE_WINS, value="score")
        own = self._seated(course, adapter)
        mine = [agent for agent in own if course.slot.seats[agent][1]] or list(own)  # judges of the policy get nothing
        games = max(1, self.games // len(mine))
        return numbers_of(self._played(course, adapter, [mine], own[mine[0]], games), "return", by_role=True)

    def _played(
        self, course: Course, adapter: str | None, sides: Sequence[Sequence[str]], opponent: Any, games: int
    ) -> dict[str, Any]:
        """The row of some games of an adapter."""
        slot = course.slot
        judges: dict[str, Any] = {
            key: self.roster.player(actor, slot.name, slot.make)
            for key, actor in self.arena.players(slot).items()
            if actor.model != actors.POLICY
        }
        judges.setdefault(
            actors.UNTRAINED, self.roster.player(replace(self.arena.default, model=actors.BASE), slot.name, slot.make)
        )
        own = self._seated(course, adapter)
        try:
            return head_to_head(
                self.rollouts,
                slot.name,
                sides,
                own,
                opponent,
                games,
                self.seed,
                others={**judges, **own},
                options=slot.options,
                competitive=competitive(course.env),
            )
        except NothingScored as none:  # no reason to end a run: its judge may be understood in other games
            return none.row

    def key(self, numbers: dict[str, float]) -> tuple[str, int] | None:
        """The number that `best` is chosen by, the first env's, and 1 or -1 for whether more of it is better; None
        where no game of it could be scored.
        """
        first = f"{next(iter(self.courses))}/" if len(self.courses) > 1 else ""
        for name in numbers:
            kind = name.removeprefix(first)
            if name == first + kind and kind in eval_numbers.HIGHER_IS_BETTER:
                return name, 1 if eval_numbers.HIGHER_IS_BETTER[kind] else -1
        return None

    def close(self) -> None:
        self.rollouts.close()
        self.roster.close()


def numbers_of(
    row: Mapping[str, Any], name: str, *, by_role: bool = False, value: Literal["mean", "score"] = "mean"
) -> dict[str, float]:
    """The numbers of a row of an evaluation by which training is followed.

    The mean return (or the score, see `value`) as `name` with the ends of its 95 % interval, `name_low` and
    `name_high`, unless no game could be scored; where problems have right answers `accuracy` with its interval; with
    `by_role` also `name_ROLE`; and the share of each of `OUTCOMES`, with its interval where it came about. Where seats
    do not compete, a win is a `success`, and there are no draws and losses.
    """
    out = {} if row.get(value) is None else _with_interval(name, row[value], row[ENDS[value]])
    if "accuracy" in row:
        out |= _with_interval("accuracy", row["accuracy"]["mean@1"], row["accuracy"]["mean@1_ci95"])
    if by_role and len(row["roles"]) > 1:
        for role, found in row["roles"].items():
            out |= _with_interval(f"{name}_{role}", found["mean"], found["ci95"])
    names = dict.fromkeys(OUTCOMES) if row["competitive"] else {"win": "success", **dict.fromkeys(OUTCOMES[3:])}
    for kind, other in names.items():
        ends = row["outcomes_ci95"].get(kind)  # none where it never came about
        called = other or kind
        out |= {called: float(row[kind])} if ends is None else _with_interval(called, row[kind], ends)
    return out


def _with_interval(name: str, mean: float, ends: Sequence[float]) -> dict[str, float]:
    return {name: float(mean), f"{name}_low": float(ends[0]), f"{name}_high": float(ends[1])}
