"""Fills seats with policies, leaving fewer agents to play."""

from __future__ import annotations

import inspect
import operator
from collections import Counter
from collections.abc import Mapping
from typing import Any

from pettingzoo import AECEnv
from pettingzoo.utils.wrappers import BaseWrapper

from legos_envs.play import Decision, Policy, ready_agents
from legos_envs.policies import make_policy

PER_AGENT = ("terminations", "truncations", "infos", "_cumulative_rewards")


class FillSeats(BaseWrapper):
    """Fills seats with policies; the result is an AEC env of the remaining seats.

    Args:
        env: any AEC text env.
        policies: synchronous policies by agent or by role; a policy for an agent takes precedence over one for its
            role. Names, such as `"random"` or `"scripted:NAME"`, are resolved by `legos_envs.policies.make_policy`.
        salt: changes the `Decision.seed` that the policies see, so that one seed can be played repeatedly with
            different choices.

    Raises:
        ValueError: a name is not an agent or role of the env, a policy's name is unknown, or no seat is left.
        TypeError: a policy is asynchronous.
    """

    zero_sum = False  # the sum is over all seats, of which only some are left

    def __init__(self, env: AECEnv, policies: Mapping[str, Policy | str], *, salt: int = 0):
        super().__init__(env)
        self.salt = salt
        seats = getattr(env, "seats", {})
        role_of = {agent: seats[agent].role if agent in seats else agent for agent in env.possible_agents}
        known = {*role_of, *role_of.values()}
        for name in policies:
            if name not in known:
                raise ValueError(f"{name!r} is not an agent or role of {env}; these are {sorted(known)}")
        self.policies = {
            name: make_policy(policy, env) if isinstance(policy, str) else policy for name, policy in policies.items()
        }
        self._filled = {
            agent: self.policies.get(agent) or self.policies[role]
            for agent, role in role_of.items()
            if agent in self.policies or role in self.policies
        }
        self.possible_agents = [agent for agent in env.possible_agents if agent not in self._filled]
        if not self.possible_agents:
            raise ValueError(f"every seat of {env} is filled; to play without outside agents use legos_envs.play")
        self._turns: Counter[str] = Counter()
        self._episode_seed = 0
        self.rewards: dict[str, float] = {}

    @property
    def hidden_information(self) -> bool:
        """As in the env, provided at least two seats are left to hide it from each other."""
        return len(self.possible_agents) > 1 and getattr(self.env, "hidden_information", False)

    @property
    def agents(self) -> list[str]:  # type: ignore[override]
        return [agent for agent in self.env.agents if agent not in self._filled]

    @property
    def ready_agents(self) -> list[str]:
        """Every remaining agent that can act now."""
        return [agent for agent in ready_agents(self.env) if agent not in self._filled]

    def __getattr__(self, name: str) -> Any:
        if name in PER_AGENT:
            values = getattr(self.env, name)
            return {agent: values[agent] for agent in self.agents}
        return super().__getattr__(name)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.env.reset(seed=seed, options=options)
        given = seed if seed is not None else getattr(self.env, "seed", 0)
        self._episode_seed = operator.index(given) if hasattr(given, "__index__") else 0  # including numpy integers
        self._turns.clear()
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._advance()

    def step(self, action: Any) -> None:
        live = not self._dead(self.env.agent_selection)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self.env.step(action)
        if live:
            self._collect()
        self._advance()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Returns to a `state()`."""
        self.env.restore(state)  # type: ignore[attr-defined]
        self._episode_seed = state["seed"]
        self._turns = Counter(agent for agent, _ in state["log"])
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._advance()

    def _advance(self) -> None:
        """Plays the filled seats until only others can act."""
        env = self.env
        while env.agents:
            if self._dead(env.agent_selection):
                if env.agent_selection not in self._filled:
                    break
                env.step(None)
            else:
                agent = next((agent for agent in ready_agents(env) if agent in self._filled), None)
                if agent is None:
                    break
                if agent != env.agent_selection:
                    env.select(agent)  # type: ignore[attr-defined]
                env.step(self._ask(agent))
                self._collect()
        self.rewards = {agent: self.rewards[agent] for agent in self.agents}

    def _ask(self, agent: str) -> str:
        info = self.env.infos[agent]
        decision = Decision(
            agent,
            info.get("role", agent),
            self.env.observe(agent),  # type: ignore[arg-type]
            info,
            self._turns[agent],
            self._episode_seed,
            self.salt,
        )
        self._turns[agent] += 1
        reply = self._filled[agent](decision)
        if inspect.isawaitable(reply):
            if inspect.iscoroutine(reply):
                reply.close()
            raise TypeError(f"the policy that fills {agent!r} is asynchronous; use legos_envs.play for those")
        return reply  # type: ignore[return-value]

    def _collect(self) -> None:
        for agent in self.rewards:
            self.rewards[agent] += float(self.env.rewards[agent])

    def _dead(self, agent: str) -> bool:
        return bool(self.env.terminations[agent] or self.env.truncations[agent])
