"""Wrappers: seats filled with policies, a single seat as a Gymnasium env, text observations, recorded transcripts.

A turn limit needs no wrapper: every `TextEnv` takes `max_turns`.
"""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from pettingzoo import AECEnv
from pettingzoo.utils.wrappers import BaseWrapper

from legos_envs.play import Decision, Policy, ready_agents
from legos_envs.spaces import FreeText

PER_AGENT = ("terminations", "truncations", "infos", "_cumulative_rewards")


class FillSeats(BaseWrapper):
    """Fills seats with policies. What is left is an AEC env of the other seats.

    Args:
        env: any AEC text env.
        policies: synchronous policies by agent or by role; the agent's own goes first.
        salt: changes the `Decision.seed` that the policies see, for repeated play of one seed.

    Raises:
        ValueError: a name is no agent or role of the env, or no seat is left.
        TypeError: a policy is asynchronous.
    """

    zero_sum = False  # the sum is over all seats, and only some are left

    def __init__(self, env: AECEnv, policies: Mapping[str, Policy], *, salt: int = 0):
        super().__init__(env)
        self.policies, self.salt = dict(policies), salt
        seats = getattr(env, "seats", {})
        role_of = {agent: seats[agent].role if agent in seats else agent for agent in env.possible_agents}
        known = {*role_of, *role_of.values()}
        for name in self.policies:
            if name not in known:
                raise ValueError(f"{name!r} is no agent or role of {env}; these are {sorted(known)}")
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
        """As in the env, while two seats are left to hide it from each other."""
        return len(self.possible_agents) > 1 and getattr(self.env, "hidden_information", False)

    @property
    def agents(self) -> list[str]:  # type: ignore[override]
        return [agent for agent in self.env.agents if agent not in self._filled]

    @property
    def ready_agents(self) -> list[str]:
        """Every agent left that can act now."""
        return [agent for agent in ready_agents(self.env) if agent not in self._filled]

    def __getattr__(self, name: str) -> Any:
        if name in PER_AGENT:
            values = getattr(self.env, name)
            return {agent: values[agent] for agent in self.agents}
        return super().__getattr__(name)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.env.reset(seed=seed, options=options)
        given = seed if seed is not None else getattr(self.env, "seed", 0)
        self._episode_seed = given if isinstance(given, int) else 0
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
        """Comes back to a `state()`."""
        self.env.restore(state)  # type: ignore[attr-defined]
        self._episode_seed = state["seed"]
        self._turns = Counter(agent for agent, _ in state["log"])
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._advance()

    def _advance(self) -> None:
        """Lets the filled seats act until only others can."""
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
        said = self._filled[agent](decision)
        if inspect.isawaitable(said):
            if inspect.iscoroutine(said):
                said.close()
            raise TypeError(f"the policy that fills {agent!r} is asynchronous; use legos_envs.play for those")
        return said  # type: ignore[return-value]

    def _collect(self) -> None:
        for agent in self.rewards:
            self.rewards[agent] += float(self.env.rewards[agent])

    def _dead(self, agent: str) -> bool:
        return bool(self.env.terminations[agent] or self.env.truncations[agent])


class SingleAgent(gymnasium.Env):
    """One seat of an AEC text env as a Gymnasium env; policies play the others.

    `reset` returns `(observation, info)`, `step` the usual five. The observation is `{"messages": (...)}`. When the
    others end the episode before the seat's first turn, the first `step` ignores its action and reports the end.

    Args:
        env: any AEC text env.
        agent: the seat to play.
        opponents: synchronous policies by agent or role, or one policy for all other seats.

    Raises:
        ValueError: there is no such agent, or nobody plays another seat; the message names it.
    """

    def __init__(self, env: AECEnv, agent: str, opponents: Policy | Mapping[str, Policy]):
        if agent not in env.possible_agents:
            raise ValueError(f"{agent!r} is no agent of {env}; these are {env.possible_agents}")
        others = [other for other in env.possible_agents if other != agent]
        if callable(opponents):
            opponents = dict.fromkeys(others, opponents)
        seats = getattr(env, "seats", {})
        role_of = {other: seats[other].role if other in seats else other for other in others}
        missing = [other for other in others if other not in opponents and role_of[other] not in opponents]
        if missing:
            raise ValueError(f"nobody plays {missing}; opponents are given for {list(opponents)}")
        policies = {other: opponents.get(other) or opponents[role_of[other]] for other in others}
        self.agent = agent
        self.env = FillSeats(env, policies) if others else env
        self.metadata = {**env.metadata}
        self.render_mode = getattr(env, "render_mode", None)
        self.observation_space = env.observation_space(agent)
        self.action_space = env.action_space(agent)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.env.reset(seed=seed, options=options)
        return self._observation(), dict(self.env.infos[self.agent])

    def step(self, action: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self._over():
            self.env.step(action)
        me = self.agent
        return (
            self._observation(),
            float(self.env._cumulative_rewards[me]),
            self.env.terminations[me],
            self.env.truncations[me],
            dict(self.env.infos[me]),
        )

    def _observation(self) -> Any:
        """The observation as new objects: Gymnasium lets callers keep and change them."""
        return deepcopy(self.env.observe(self.agent))

    def _over(self) -> bool:
        return self.env.terminations[self.agent] or self.env.truncations[self.agent]

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()


class Text(str):
    """A `str` with the `dtype` that PettingZoo's api_test asks of every observation."""

    __slots__ = ()
    dtype = np.dtype(str)


class TextSpace(FreeText):
    """The space of `Text`: any string."""

    def __init__(self) -> None:
        super().__init__(max_length=2**31)
        self.dtype = Text.dtype


class TextObservation(BaseWrapper):
    """Observations as one string: the message where there is one, else the dialogue with a line of role before each."""

    def __init__(self, env: AECEnv):
        super().__init__(env)
        self._space = TextSpace()

    def observation_space(self, agent: str) -> Any:
        return self._space

    def observe(self, agent: str) -> Text:  # type: ignore[override]
        messages = self.env.observe(agent)["messages"]  # type: ignore[index]
        if len(messages) == 1:
            return Text(messages[0]["content"])
        return Text("\n\n".join(f"{message['role']}:\n{message['content']}" for message in messages))


class RecordTranscript(BaseWrapper):
    """Keeps a transcript of the episode: `transcript()` is a JSON value, fit to be compared with a stored one."""

    def __init__(self, env: AECEnv):
        super().__init__(env)
        self._log: list[dict[str, str]] = []
        self._returns: dict[str, float] = {}
        self._start: dict[str, Any] = {}
        self._outcome: Any = None

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.env.reset(seed=seed, options=options)
        self._start = {"seed": getattr(self.env, "seed", seed), "options": dict(options or {})}
        self._log = []
        self._returns = {agent: float(reward) for agent, reward in self.env._cumulative_rewards.items()}
        self._note_end()

    def step(self, action: Any) -> None:
        agent = self.env.agent_selection
        if self.env.terminations[agent] or self.env.truncations[agent]:
            self.env.step(action)
            return
        prompt = self.env.observe(agent)["messages"][-1]["content"]  # type: ignore[index]
        self.env.step(action)
        self._log.append({"agent": agent, "prompt": prompt, "action": action})
        for receiver, reward in self.env.rewards.items():
            self._returns[receiver] += float(reward)
        self._note_end()

    def _note_end(self) -> None:
        if all(self.env.terminations.values()):
            self._outcome = next((i["outcome"] for i in self.env.infos.values() if "outcome" in i), "terminated")
        elif all(self.env.truncations.values()):
            self._outcome = "truncated"
        else:
            self._outcome = None

    def transcript(self) -> dict[str, Any]:
        """`{"env", "seed", "options", "log": [{"agent", "prompt", "action"}], "returns", "outcome"}`.

        The prompt is the last message that the agent saw; the outcome is None while the episode goes on.
        """
        record = {
            "env": str(self.env),
            **self._start,
            "log": self._log,
            "returns": self._returns,
            "outcome": self._outcome,
        }
        return json.loads(json.dumps(record))
