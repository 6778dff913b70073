"""The pool, the matchmaking, and the results."""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from legos_envs import arguments
from legos_envs.records import Episode
from legos_envs.scoring import Skill, openskill_ratings
from legos_train.errors import ConfigError
from legos_train.league.league_settings import LeagueSettings
from legos_train.league.modes import Mixture
from legos_train.league.nash import require_scipy
from legos_train.league.seating import Assignment, check_seats, draw, seat, sides_of
from legos_train.league.standing import LEARNER, Standing
from legos_train.rollout import filters

ANY = ""
"""The env name in a league that does not distinguish envs."""


class League:
    """Members, their payoffs and ratings, and the matchmaking over them.

    Args:
        settings: the section `[league]`.
        seed: the run's seed; all draws are keyed by it, the step and the episode number.
        symmetric: all seats play the same game (one role), so that `psro` needs one mixture for both seats. False: a
            mixture for each of two sides, from the payoffs by seat. With several envs, by env name: they share pool and
            ratings, results are tracked for each, and members play in no other env.

    Attributes:
        standings: the members' results, by env.
        learners: the names of those that have results and ratings.
        pool: names of the snapshots, oldest first.
        weights: references to their weights by name. Not part of `state_dict`; the run saves and restores them.
        ratings: OpenSkill (mu, sigma) by name, the learner's under `LEARNER`. Empty when openskill is not installed.

    Raises:
        ConfigError: `fixed` without opponents, or an opponent given twice.
        ImportError: `psro` without scipy.
    """

    def __init__(
        self,
        settings: LeagueSettings,
        seed: int,
        symmetric: bool | Mapping[str, bool] = False,
        learners: Sequence[str] = (LEARNER,),
    ):
        self.settings, self.seed, self.learners = settings, seed, tuple(learners)
        by_env = symmetric if isinstance(symmetric, Mapping) else {ANY: symmetric}
        self.standings = {env: Standing(same, learners) for env, same in by_env.items()}
        opponents = settings.opponents
        if settings.rule.needs_opponents and not opponents:
            raise ConfigError(
                f'league.mode = "{settings.mode}" plays against league.opponents only; name one, such as "random"'
            )
        if len(set(opponents)) < len(opponents) or LEARNER in opponents:
            raise ConfigError(f"league.opponents must be different words, none of them {LEARNER!r}; got {opponents}")
        if settings.rule.needs_scipy:
            require_scipy()
        self.pool: list[str] = []
        self.weights: dict[str, Any] = {}
        self.ratings: dict[str, Skill] = {}
        self._rated = importlib.util.find_spec("openskill") is not None
        if settings.rule.draws and not self._rated:
            warnings.warn(f"the league runs without ratings: {arguments.install('tasks')} for openskill", stacklevel=2)

    def standing(self, env: str | None = None) -> Standing:
        """The results in an env; None: in the first one."""
        return self.standings[env] if env in self.standings else next(iter(self.standings.values()))

    def _plays_in(self, env: str | None) -> bool:
        return env is None or env in self.standings or ANY in self.standings

    @property
    def members(self) -> list[str]:
        """All who may be drawn: snapshots from old to new, then the configured opponents."""
        snapshots = [member for name in self.pool for member in self._within(name)]
        return [*snapshots, *self.settings.opponents] if self.settings.rule.draws else []

    def members_in(self, env: str | None) -> list[str]:
        """The members that may be drawn in an env."""
        return self.members

    def _within(self, snapshot: str) -> list[str]:
        """The members that a snapshot consists of."""
        return [snapshot]

    def has_weights(self, member: str) -> bool:
        """Whether a member is played with weights of the league, rather than by the player that its name refers to."""
        return member in self.weights

    def snapshot_due(self, step: int) -> bool:
        """Whether the weights after `step` optimiser steps (0: before the first) belong in the pool."""
        if not self.settings.rule.keeps_snapshots or step < self.settings.start_from:
            return False
        return (step - self.settings.start_from) % self.settings.snapshot_every == 0

    def most(self, steps: int) -> int:
        """The largest size that the pool reaches in a run of this many steps."""
        return min(self.settings.pool, len(self.pool) + sum(self.snapshot_due(step) for step in range(steps)))

    def add(self, name: str, weights: Any) -> list[str]:
        """Adds a snapshot to the pool and returns the names of those that had to leave.

        The snapshot starts with the learner's rating. With `psro` the member with the least meta-weight leaves;
        otherwise, and in a tie, the oldest.

        Args:
            name: of the member.
            weights: a reference to weights that do not change; the league only stores it.

        Raises:
            ValueError: the name is taken.
        """
        if name in self.members or name == LEARNER:
            raise ValueError(f"the league already has a member called {name!r}; members are {self.members}")
        evicted = []
        while len(self.pool) >= self.settings.pool:
            shares = [self.mixture(env=env) for env in self.standings] if self.settings.rule.needs_payoffs else []
            weight = {
                own: sum(share.get(member, 0.0) for share in shares for member in self._within(own))
                for own in self.pool
            }
            evicted.append(min(self.pool, key=weight.__getitem__))  # the first of equals
            self._remove(evicted[-1])
        self.pool.append(name)
        self.weights[name] = weights
        for learner, member in zip(self.learners, self._within(name), strict=True):
            if learner in self.ratings:
                self.ratings[member] = self.ratings[learner]
        self._changed()
        return evicted

    def join(self, opponent: str) -> None:
        """Adds a fixed opponent during the run."""
        self.change(self.settings.model_copy(update={"opponents": (*self.settings.opponents, opponent)}))

    def change(self, settings: LeagueSettings) -> None:
        """Continues with other settings."""
        self.settings = settings
        self._changed()

    def _changed(self) -> None:
        for standing in self.standings.values():
            standing.changed()

    def _remove(self, name: str) -> None:
        self.pool.remove(name)
        self.weights.pop(name, None)
        for standing in self.standings.values():
            for member in self._within(name):
                standing.drop(member)

    def lineup(
        self,
        step: int,
        number: int,
        seats: Sequence[str],
        roles: Mapping[str, str],
        env: str,
        claims: Mapping[str, Sequence[str]],
    ) -> Assignment:
        """Who plays the seats, see `plan`; `claims` are the learners of each seat."""
        return Assignment({}, self.plan(step, number, seats, roles, env))

    def plan(
        self,
        step: int,
        number: int,
        seats: Sequence[str],
        roles: Mapping[str, str] | None = None,
        env: str | None = None,
    ) -> dict[str, str]:
        """Who plays the seats that the learner does not: agent -> member. Empty: mirror play, the learner plays all.

        The learner takes one side: all seats of one role, or a single seat if all seats have the same role. Episodes of
        a step come in rounds, with one episode per side: the learner takes every side once, against the same members.
        So a batch plays every side, and every member from every side, equally often.

        Args:
            step: number of the step that is played, from 1.
            number: which group of this env in this step, from 0; all its episodes share the plan.
            seats: the agents that are trained, in the env's order.
            roles: the role of each; by default every agent has its own.
            env: the env; one unknown to the league gets mirror play.
        """
        sides = sides_of(seats, roles)
        early = 0 < step <= self.settings.start_from
        if not self._plays_in(env) or len(sides) < 2 or not self.members or early:
            return {}
        latest = 0.0 if self.settings.rule.needs_opponents else self.settings.latest
        seating = seat(self.seed, step, number, len(sides), latest)
        if seating is None:
            return {}
        plan: dict[str, str] = {}
        for side, at in seating.opponents.items():
            plan |= dict.fromkeys(sides[side], draw(self.mixture(side if len(sides) == 2 else None, env), at))
        return plan

    def observe(self, episodes: Sequence[Episode], plans: Sequence[Mapping[str, str]]) -> None:
        """Records the results of a batch. Call it once per step, with the plan of every episode, in a repeatable order.

        It ignores mirror play, unscored episodes and those in which the learner's seats were taken back. It compares
        the returns of sides; a side of several seats counts by its mean.

        Raises:
            ValueError: lengths differ, a plan names a seat that does not exist, or the learner has none.
        """
        if len(episodes) != len(plans):
            raise ValueError(f"observe takes one plan per episode; got {len(episodes)} episodes, {len(plans)} plans")
        games = []
        played = [(e, plan) for e, plan in zip(episodes, plans) if plan and e.outcome != "unscored"]
        played = [(episode, plan) for episode, plan in played if self._plays_in(episode.env_id)]
        self._fade(played)
        for episode, plan in played:
            check_seats(episode, plan)
            mine = [t for t in filters.competing(episode) if t.agent not in plan and filters.is_learners(t)]
            if not mine:
                if any(filters.is_learners(t) for t in episode.trajectories.values() if t.agent not in plan):
                    continue  # the environment has taken back what the learner was paid
                raise ValueError(f"no seat is left for the learner: the plan {dict(plan)} takes all trainable seats")
            by_member: dict[str, list[float]] = {}
            for agent, member in plan.items():
                if member in self.members:  # may have left the pool since it was planned
                    by_member.setdefault(member, []).append(episode.trajectories[agent].total)
            got = {LEARNER: fmean([t.total for t in mine])} | {m: fmean(r) for m, r in by_member.items()}
            against = self.standing(episode.env_id).against
            for member in by_member:
                against.add(member, mine[0].role, got[LEARNER], got[member], episode.outcome == "invalid")
            if by_member:
                games.append(got)
        if games and self._rated:
            self.ratings |= openskill_ratings(games, self.ratings)
        if self.settings.rule.follows_results:
            self._changed()

    def _fade(self, played: Sequence[tuple[Episode, Mapping[str, str]]]) -> None:
        """Lets the results in the envs of these episodes fade."""
        for standing in {id(s): s for s in (self.standing(e.env_id) for e, _ in played)}.values():
            standing.forget()

    @property
    def pair_games(self) -> int:
        """How many games to play for each pair of `missing_pairs`."""
        return max(1, math.ceil(self.settings.payoff_games / 2))

    def missing_pairs(self, env: str | None = None) -> list[tuple[str, str]]:
        """Pairs whose payoff the mode still needs: `(first side, second side)`, both orders; a member against itself
        too, unless the game is symmetric.
        """
        if not self.settings.rule.needs_payoffs:
            return []
        return self.standing(env).missing_pairs(self.members_in(env), self.pair_games)

    def record_pair(self, first: str, second: str, returns: Iterable[Sequence[float]], env: str | None = None) -> None:
        """Records games between members: `(return of the first side, return of the second side)` of each.

        Raises:
            ValueError: one of them is not a member.
        """
        for name in (first, second):
            if name not in self.members:
                raise ValueError(f"{name!r} is not a member of the league; members are {self.members}")
        self.standing(env).pairs.add(first, second, returns)
        self.standing(env).changed()

    def mixture(self, side: int | None = None, env: str | None = None) -> Mixture:
        """How likely each member is to be the opponent. Empty without members.

        With `psro`, the equilibrium over members with known mutual payoffs (a new one has weight 0 until its games are
        recorded), for side 0 or 1, or by default the mean of both.
        """
        return self.standing(env).mixture(self.settings, self.members, side)

    def win_rate(self, member: str) -> float:
        """The learner's recent share of points against a member, the mean over the envs."""
        return fmean(standing.against.win_rate(member) for standing in self.standings.values())

    def metrics(self) -> dict[str, float]:
        """For the log: members, recent win rates (mean and least), the learner's rating (mu, sigma) if it has one."""
        if not self.members:
            return {}
        rates = [self.win_rate(name) for name in self.members]
        out = {"members": float(len(rates)), "win_rate": fmean(rates), "least_win_rate": min(rates)}
        if LEARNER in self.ratings:
            out["rating"], out["rating_sigma"] = self.ratings[LEARNER]
        return out

    def state_dict(self) -> dict[str, Any]:
        """Everything but the weights, as JSON values."""
        return {
            "pool": list(self.pool),
            "standings": {env: standing.state_dict() for env, standing in self.standings.items()},
            "ratings": {name: list(skill) for name, skill in self.ratings.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any], weights: Mapping[str, Any] | None = None) -> None:
        """The inverse of `state_dict`; `weights` by name become those of the pool.

        Raises:
            ValueError: weights are given, but not those of every snapshot.
        """
        pool = list(state["pool"])
        if weights is not None:
            if missing := [name for name in pool if name not in weights]:
                raise ValueError(f"the checkpoint has no weights of the snapshots {missing}; it has {sorted(weights)}")
            self.weights = {name: weights[name] for name in pool}
        self.pool = pool
        for env, standing in self.standings.items():
            standing.load_state_dict(state["standings"][env])
        self.ratings = {name: Skill(*skill) for name, skill in state["ratings"].items()}
