"""Who plays which seat of an environment: actors, one or several learners, and the members of a league."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from inference import BUNDLED
from legos_train.arena.request import JUDGE, EnvSlot
from legos_train.league import sides_of
from legos_train.rollout.players import Actor, actors

if TYPE_CHECKING:
    from legos_train.league import League


class SeatPlan:
    """Who plays in the envs of an arena.

    Args:
        model: the base model; a bundled one cannot judge.

    Attributes:
        actors: by role.
        envs: by name.
        train_roles: the roles to train on; empty: all.
        learners: several policies instead of one: by name, the roles or agents each plays; `ENV/ROLE` is for one env.
        default: the settings of a seat without an actor.
        league: whom the learners meet, besides themselves.
    """

    def __init__(self, model: str) -> None:
        self.model = model
        self.actors: dict[str, Actor] = {}
        self.envs: dict[str, EnvSlot] = {}
        self.train_roles: tuple[str, ...] = ()
        self.learners: dict[str, tuple[str, ...]] = {}
        self.default = Actor(actors.ANYBODY, max_tokens=actors.default_tokens(model))
        self.league: League | None = None

    def players(self, slot: EnvSlot, place: int = 0) -> dict[str, Actor]:
        """Who plays in an env, by role: its actors; otherwise the policy, or the base at temperature 0 for judges.

        A bundled model cannot judge, so code does if the env has `JUDGE`. A seat that several learners share is played
        by the one at `place` among them, counted around.
        """
        actor = self.default
        judge = JUDGE if slot.can_judge and self.model in BUNDLED else actors.BASE
        out = {
            actors.ANYBODY: actor,
            actors.UNTRAINED: replace(actor, model=judge, temperature=0.0, trainable=False),
        }
        prefix = f"{slot.name}/"
        out |= {role: given for role, given in self.actors.items() if role in slot.seats or "/" not in role}
        for role, given in self.actors.items():  # what is said for this env alone comes last
            if role.startswith(prefix):
                out[role.removeprefix(prefix)] = given
        out = {k: a if a.max_tokens else replace(a, max_tokens=self.default.max_tokens) for k, a in out.items()}
        if self.learners:
            for agent, (role, trained) in slot.seats.items():
                actor = actors.lookup(out, agent, role, trained)
                if actor.model == actors.POLICY:
                    own = self.claimants(slot, agent) or tuple(self.learners)[:1]
                    out[agent] = replace(actor, learner=own[place % len(own)])
        return out

    def claimants(self, slot: EnvSlot, agent: str) -> tuple[str, ...]:
        """Which of several learners play a seat of the policy; a setting for its env alone takes precedence."""
        role = slot.seats[agent][0]
        for name in (f"{slot.name}/{agent}", f"{slot.name}/{role}", agent, role):
            if found := tuple(learner for learner, roles in self.learners.items() if name in roles):
                return found
        return ()

    def sides(self, slot: EnvSlot) -> list[list[str]]:
        """The seats of an env that the run trains, by side."""
        live = self.live(slot, self.trained_roles(slot))
        return sides_of(live, {agent: slot.seats[agent][0] for agent in live})

    def claims(self, slot: EnvSlot) -> list[tuple[str, ...]]:
        """The learners that play each side of an env."""
        return [self.claimants(slot, side[0]) for side in self.sides(slot)]

    @property
    def rivals(self) -> bool:
        """Whether learners share a seat of an env."""
        return any(
            len(self.claimants(slot, agent)) > 1
            for slot in self.envs.values()
            for agent in self.live(slot, self.trained_roles(slot))
        )

    @property
    def judged_by_code(self) -> list[str]:
        """The names of the envs that are judged by `JUDGE`, since no other judge was configured."""
        out = []
        for slot in self.envs.values():
            players = self.players(slot)
            seats = [(a, role) for a, (role, trained) in slot.seats.items() if not trained]
            if any(actors.lookup(players, a, role, False) == players[actors.UNTRAINED] for a, role in seats):
                out += [slot.name] if players[actors.UNTRAINED].model == JUDGE else []
        return out

    def opponent(self, slot: EnvSlot, agent: str, member: str) -> Actor:
        """The actor for a league member in a seat: a snapshot's adapter, or the player that its name refers to."""
        given = self.players(slot)
        actor = given.get(agent) or given.get(slot.seats[agent][0], given[actors.ANYBODY])
        if self.league is None or not self.league.has_weights(member):
            return replace(actor.with_model(member), trainable=False)
        learner = actor.learner if len(self.league.learners) == 1 else None  # else the member's name says whose part
        return replace(actor, model=f"{actors.LEAGUE}{member}", learner=learner, trainable=False)

    def met(self, slot: EnvSlot, roles: tuple[str, ...] | None, step: int, number: int) -> dict[str, Actor]:
        """The seats that the league fills in a game: agent -> actor.

        Args:
            slot: the env.
            roles: the trained roles; None: all.
            step: number of the step, from 1.
            number: which group of this env in this step, from 0.
        """
        assert self.league is not None
        agents = self.live(slot, roles)
        names = {agent: slot.seats[agent][0] for agent in agents}
        claims = {agent: self.claimants(slot, agent) for agent in agents} if self.learners else {}
        lineup = self.league.lineup(step, number, agents, names, slot.name, claims)
        players = self.players(slot)
        out = {agent: replace(players[agent], learner=learner) for agent, learner in lineup.learners.items()}
        return out | {agent: self.opponent(slot, agent, member) for agent, member in lineup.members.items()}

    def live(self, slot: EnvSlot, roles: tuple[str, ...] | None = None) -> list[str]:
        """The agents that the live policy plays and learns from, limited to `roles` if given."""
        players = self.players(slot)
        out = []
        for agent in slot.trained:
            role = slot.seats[agent][0]
            actor = actors.lookup(players, agent, role, True)
            if actor.model == actors.POLICY and actor.trainable and (roles is None or role in roles):
                out.append(agent)
        return out

    def league_envs(self) -> dict[str, bool]:
        """The envs in which members of a league play, and whether all seats that are trained there have one role."""
        found = {}
        for slot in self.envs.values():
            if slot.league is not False and len(live := self.live(slot, self.trained_roles(slot))) > 1:
                found[slot.name] = len({slot.seats[agent][0] for agent in live}) == 1
        return found

    def trained_roles(self, slot: EnvSlot) -> tuple[str, ...] | None:
        """The roles that are trained in an env: its own setting, else the arena's; None: all."""
        return slot.train_roles if slot.train_roles is not None else (self.train_roles or None)
