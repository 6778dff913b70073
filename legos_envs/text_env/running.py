"""Runs the rules of an episode from ask to ask, and keeps what follows from them: prompts, rewards, infos, the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from legos_envs import parsing
from legos_envs.table import Ask, Forfeit, Table, Unscored, strands
from legos_envs.text_env.conversations import SeatConversations


class RulesRunner:
    """The part of a `TextEnv` that its rules act on; `_tell`, `_pay` and `_note` are what a `Table` needs of it."""

    name: ClassVar[str] = "TextEnv-v0"
    seed: int | None
    action_format: str
    max_turns: int
    possible_agents: list[str]
    agent_selection: str
    rewards: dict[str, float]
    terminations: dict[str, bool]
    truncations: dict[str, bool]
    infos: dict[str, dict[str, Any]]
    log: list[tuple[str, str]]
    ended: bool
    _order: dict[str, int]
    """The agents' places in `possible_agents`."""
    _waiting: dict[str, strands.Strand]
    """The strand that awaits each asked agent's answer."""
    _facts: dict[str, dict[str, Any]]
    """What every info of an agent contains from now on."""
    _conversations: SeatConversations
    _returns: dict[str, float]
    _unasked: int

    def _run(self, strand: strands.Strand, value: Any = None) -> None:
        """Runs a strand until every branch it opens waits for an agent, or the rules end."""
        try:
            strands.run(strand, value, self._pose, self._end)
        except Exception as error:
            error.add_note(f"raised by the rules of {self.name}, seed {self.seed}, after {len(self.log)} actions")
            raise

    def _pose(self, ask: Ask, strand: strands.Strand) -> None:
        """Poses an ask to its agent."""
        agent = ask.agent
        if agent not in self._order:
            raise KeyError(f"{self.name}: the rules asked {agent!r}; seats are {self.possible_agents}")
        if agent in self._waiting:
            raise RuntimeError(
                f"{self.name}: {strand.path} asks {agent!r} while {self._waiting[agent].path} awaits its answer"
            )
        facts = self._facts[agent].copy()
        listed = None
        if ask.legal is not None:
            written = facts["legal_actions"] = facts["action_mask"] = self._written(ask.legal)
            listed = written if ask.listed else None
        self._conversations.ask(agent, ask.text, ask.notice, listed, ask.fresh)
        self.infos[agent] = facts
        self._waiting[agent] = strand

    def _written(self, legal: tuple[str, ...]) -> tuple[str, ...]:
        return parsing.write_actions(legal, self.action_format)

    @property
    def ready_agents(self) -> list[str]:
        """Every agent that can act now, in the order of `possible_agents`. Their observations are final."""
        if len(self._waiting) < 2:
            return list(self._waiting)
        return sorted(self._waiting, key=self._order.__getitem__)

    def _choose(self) -> None:
        waiting = self._waiting
        if len(waiting) == 1:
            (self.agent_selection,) = waiting
        else:
            self.agent_selection = min(waiting, key=self._order.__getitem__) if waiting else self.possible_agents[0]

    def _tell(self, agent: str, text: str) -> None:
        self._conversations.tell(agent, text)

    def _pay(self, agent: str, value: float) -> None:
        self.rewards[agent] += value
        self._returns[agent] = self._returns.get(agent, 0.0) + value

    def _note(self, place: str, exact: bool, facts: Mapping[str, Any]) -> None:
        for agent, known in self._facts.items():
            if agent == place if exact else agent.startswith(place):
                known.update(facts)
                self.infos[agent] = {**self.infos[agent], **facts}

    def _end(self, failure: Forfeit | Unscored | None) -> None:
        if isinstance(failure, Forfeit):
            Table(self).settle(failure)  # type: ignore[arg-type]  # a TextEnv
            self._note("", False, {"outcome": "invalid", "offenders": list(failure.agents)})
            for agent, reason in failure.reasons.items():
                self._note(agent, True, {"reason": reason})
        elif failure is not None:
            self._note("", False, {"outcome": "unscored", "reason": str(failure)})
        elif self._unasked:
            raise TypeError(f"{self.name}: asks without effect: {self._unasked}; write `yield from table.ask(...)`")
        self.terminations = dict.fromkeys(self.terminations, True)
        self._close()

    def _truncate(self) -> None:
        """Ends all strands and lets the rules settle rewards on the way out."""
        self._note("", False, {"outcome": "truncated"})
        leaves = [self._waiting[agent] for agent in self.ready_agents]
        self._waiting = {}
        try:
            strands.truncate(leaves, self.max_turns)
        except Exception as error:
            error.add_note(f"raised by the rules of {self.name}, seed {self.seed}, at the turn limit")
            raise
        self.truncations = dict.fromkeys(self.truncations, True)
        self._close()

    def _close(self) -> None:
        """Shows every agent what it was told since its last action, and the final infos."""
        self.ended = True
        self._conversations.close()
        self.infos = {agent: facts.copy() for agent, facts in self._facts.items()}
