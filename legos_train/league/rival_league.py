"""A league of several learners that share seats: they meet as rivals, and so do the snapshots of each."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from legos_envs.records import Episode
from legos_envs.scoring import openskill_ratings
from legos_envs.table import keyed_generator
from legos_train.league.league import League
from legos_train.league.league_settings import LeagueSettings
from legos_train.league.modes import Mixture
from legos_train.league.seating import Assignment, check_seats, draw, sides_of
from legos_train.rollout import filters
from legos_train.rollout.players import actors


class Rival(NamedTuple):
    """A learner that shares seats with others.

    Attributes:
        opponents: the learners it plays against, by their current weights and their snapshots; itself too if named.
        latest: the share of its games against current weights; the others are against members of the pool. None:
            `league.latest`.
    """

    opponents: tuple[str, ...]
    latest: float | None = None


class RivalLeague(League):
    """A league in which learners meet as rivals.

    A snapshot of the pool is one of all learners. As a member it is several: `step_40.main` is the part of the learner
    `main`. `policy.main` in a plan are its current weights where it does not learn from the game.

    Args:
        settings: the section `[league]`; with `mirror` there are no members, and only current weights meet.
        seed: the run's seed.
        symmetric: see `League`.
        rivals: the learners, by name.
        sides: by env, the learners that may take each side; by default all may take both.
    """

    def __init__(
        self,
        settings: LeagueSettings,
        seed: int,
        symmetric: Mapping[str, bool],
        rivals: Mapping[str, Rival],
        sides: Mapping[str, Sequence[tuple[str, ...]]] | None = None,
    ):
        super().__init__(settings, seed, symmetric, tuple(rivals))
        self.rivals = dict(rivals)
        self.sides = {env: [tuple(rivals)] * 2 for env in symmetric} | dict(sides or {})

    def _within(self, snapshot: str) -> list[str]:
        return [actors.adapter_name(snapshot, learner) for learner in self.rivals]

    def _parts(self, member: str) -> tuple[str, str | None]:
        return (member, None) if member in self.settings.opponents else actors.parts_of(member, self.rivals)

    def members_in(self, env: str | None) -> list[str]:
        """See `League.members_in`: no snapshots of learners that do not play there."""
        there = {learner for side in self._sides(env) for learner in side}
        return [member for member in self.members if self._parts(member)[1] in (None, *there)]

    def _sides(self, env: str | None) -> Sequence[tuple[str, ...]]:
        return self.sides[env] if env in self.sides else next(iter(self.sides.values()))

    def has_weights(self, member: str) -> bool:
        weights, learner = self._parts(member)
        return learner is not None and (weights == actors.POLICY or weights in self.weights)

    # --- who plays whom ----------------------------------------------------------------------------------------------

    def lineup(
        self,
        step: int,
        number: int,
        seats: Sequence[str],
        roles: Mapping[str, str],
        env: str,
        claims: Mapping[str, Sequence[str]],
    ) -> Assignment:
        """Who plays the seats of a game, and who learns from it.

        Each game has a *focus*: one learner, which takes one side, learns from the game and chooses its opponents: the
        current weights of learners or members of the pool, of those in `Rival.opponents`. Games come in rounds, in
        which every learner takes every side it may play once, against opponents chosen alike. A learner met with its
        current weights also learns if all it meets in shared sides are among its own opponents.

        Args:
            step: number of the step that is played, from 1.
            number: which group of this env in this step, from 0; all its episodes share the lineup.
            seats: the agents that are trained, in the env's order.
            roles: the role of each.
            env: the env.
            claims: agent -> the learners that may play it; equal for all seats of a side.
        """
        sides = sides_of(seats, roles)
        own = [tuple(claims[side[0]]) for side in sides]
        takes = [(learner, at) for at, learners in enumerate(own) for learner in learners]
        turn, place = divmod(number, len(takes))
        focus, taken = takes[(place + step) % len(takes)]
        opposed = {at: self._met(focus, learners) for at, learners in enumerate(own) if at != taken}
        learners, members = dict.fromkeys(sides[taken], focus), dict[str, str]()
        pool = bool(opposed and self.members) and self._plays_in(env) and not 0 < step <= self.settings.start_from
        latest, count = self._latest(step, turn, focus) if pool else (True, turn)
        if not latest:
            points = keyed_generator(self.seed, f"league/{step}/{count}").random(len(opposed)).tolist()
            for (at, among), point in zip(opposed.items(), points):
                mixture = self.mixture(at if len(sides) == 2 else None, env, learner=focus, among=among)
                members |= dict.fromkeys(sides[at], draw(mixture, point))
            return Assignment(learners, members)
        met, count = {}, count + step // len(takes)  # after `step` has brought every focus
        for at, among in opposed.items():  # every combination in turn
            count, which = divmod(count, len(among))
            met[at] = among[which]
        chosen = {taken: focus, **met}  # only in sides that several share
        chosen = {at: learner for at, learner in chosen.items() if len(own[at]) > 1}
        for at, learner in met.items():
            others = {name for side, name in chosen.items() if side != at}
            learns = len(own[at]) == 1 or others <= {*self.rivals[learner].opponents}
            seated = learners if learns else members
            seated |= dict.fromkeys(sides[at], learner if learns else actors.adapter_name(actors.POLICY, learner))
        return Assignment(learners, members)

    def _met(self, focus: str, learners: tuple[str, ...]) -> tuple[str, ...]:
        """Which learners of a side a focus plays against: a side with one learner has no other."""
        return tuple(name for name in learners if len(learners) == 1 or name in self.rivals[focus].opponents)

    def _latest(self, step: int, turn: int, focus: str) -> tuple[bool, int]:
        """Whether a turn of the focus is against current weights, and how many of its turns before were alike."""
        own = self.rivals[focus].latest
        share = own if own is not None else 0.0 if self.settings.rule.needs_opponents else self.settings.latest
        phase = float(keyed_generator(self.seed, f"league/{step}").random())
        before = math.floor(turn * share + phase)
        latest = math.floor((turn + 1) * share + phase) > before
        return latest, before if latest else turn - before

    def mixture(
        self,
        side: int | None = None,
        env: str | None = None,
        learner: str | None = None,
        among: Collection[str] | None = None,
    ) -> Mixture:
        """How likely each member is to be the opponent, see `League.mixture`.

        Args:
            side: as there.
            env: as there.
            learner: whose opponent; None: the mean over all learners.
            among: only members of these learners, besides `league.opponents`; if none of them has a weight, all of
                them have the same. None: the learners of the side, or of both.
        """
        sides = self._sides(env)
        if among is None:
            among = {name for own in (sides if side is None else sides[side : side + 1]) for name in own}
        names = tuple(self.rivals) if learner is None else (learner,)
        members = self.members_in(env)
        each = [self.standing(env).mixture(self.settings, members, side, name) for name in names]
        shares = {member: fmean(own[member] for own in each) for member in each[0]}
        kept = {m: share for m, share in shares.items() if (of := self._parts(m)[1]) is None or of in among}
        total = sum(kept.values())
        return {member: share / total if total else 1 / len(kept) for member, share in kept.items()}

    # --- results -----------------------------------------------------------------------------------------------------

    def observe(self, episodes: Sequence[Episode], plans: Sequence[Mapping[str, str]]) -> None:
        """Records the results of a batch, see `League.observe`: those of each learner against members and against the
        current weights of others, which are listed under the learner's name.
        """
        if len(episodes) != len(plans):
            raise ValueError(f"observe takes one plan per episode; got {len(episodes)} episodes, {len(plans)} plans")
        played = [(e, p) for e, p in zip(episodes, plans) if e.outcome != "unscored" and self._plays_in(e.env_id)]
        self._fade(played)
        games, members = [], {*self.members}
        for episode, plan in played:
            check_seats(episode, plan)
            returns: dict[str, list[float]] = {}
            learning: dict[str, str] = {}  # by learner, its role
            for seat in filters.competing(episode):
                name = seat.info.get("learner")
                if seat.agent in plan:
                    member = plan[seat.agent]
                    weights, of = self._parts(member)
                    name = of if weights == actors.POLICY else member if member in members else None
                elif not filters.is_learners(seat) or name not in self.rivals:
                    continue
                else:
                    learning.setdefault(name, seat.role)
                if name is not None:  # else a member that has left the pool since it was planned
                    returns.setdefault(name, []).append(seat.total)
            if len(returns) < 2:
                continue
            got = {name: fmean(own) for name, own in returns.items()}
            for learner, role in learning.items():
                against = self.standing(episode.env_id).results[learner]
                for other, theirs in got.items():  # in the order of seats, which is the order in checkpoints
                    if other != learner:
                        against.add(other, role, got[learner], theirs, episode.outcome == "invalid")
            games.append(got)
        if games and self._rated:
            self.ratings |= openskill_ratings(games, self.ratings)
        if self.settings.rule.follows_results:
            self._changed()

    def win_rate(self, member: str, learner: str | None = None) -> float:
        """A learner's recent share of points against a member, or another learner; the mean over the envs in which they
        have met, or 0.5.

        `learner`: None: the mean over all learners.
        """
        names = tuple(self.rivals) if learner is None else (learner,)
        met = [s.results[name] for s in self.standings.values() for name in names if member in s.results[name].scores]
        return fmean(against.win_rate(member) for against in met) if met else 0.5

    def _opposing(self, name: str, env: str) -> list[str]:
        """The members that a learner may meet in an env."""
        sides = self._sides(env)
        others = [other for at, own in enumerate(sides) if name in own for n, other in enumerate(sides) if n != at]
        met = {learner for other in others for learner in self._met(name, other)}
        return [m for m in self.members if others and self._parts(m)[1] in (None, *met)]

    def metrics(self) -> dict[str, Any]:
        """For the log: members, and for each learner its recent win rates against the others (`against`) and against
        the members it meets (mean and least), and its rating.
        """
        out: dict[str, Any] = {"members": float(len(self.members)), "learners": {}}
        for name in self.rivals:
            known = {other for s in self.standings.values() for other in s.results[name].scores}
            own: dict[str, Any] = {
                "against": {other: self.win_rate(other, name) for other in self.rivals if other in known}
            }
            rates = [
                standing.results[name].win_rate(member)
                for env, standing in self.standings.items()
                for member in self._opposing(name, env)
            ]
            if rates:
                own |= {"win_rate": fmean(rates), "least_win_rate": min(rates)}
            if name in self.ratings:
                own["rating"], own["rating_sigma"] = self.ratings[name]
            out["learners"][name] = own
        return out
