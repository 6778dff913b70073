"""One seat of an AEC text env as a Gymnasium env, directly or through an id in Gymnasium's registry."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import gymnasium
from pettingzoo import AECEnv

from legos_envs import registry
from legos_envs.play import Policy
from legos_envs.wrappers.fill_seats import FillSeats

EVERYBODY = "*"
"""In `opponents`, the policy of all seats not named."""
Opponents = Policy | str | Mapping[str, Policy | str]


class SingleAgent(gymnasium.Env):
    """One seat of an AEC text env as a Gymnasium env; policies play the others.

    `reset` returns `(observation, info)`, `step` the usual five values. The observation is `{"messages": (...)}`. If
    the others end the episode before the seat's first turn, the first `step` ignores its action and reports the end.
    Rewards before the seat's first turn, such as an ante, come with its first `step`.

    Args:
        env: any AEC text env.
        agent: the seat to play; None for the first trainable seat.
        opponents: one synchronous policy for all other seats, or policies by agent or role, with `"*"` for the rest.
            A policy is a function of a `Decision`, or a name that `legos_envs.policies.make_policy` takes.

    Raises:
        ValueError: there is no such agent, another seat has no policy, or a policy's name is unknown.
    """

    def __init__(self, env: AECEnv, agent: str | None = None, opponents: Opponents = "random"):
        seats = getattr(env, "seats", {})
        if agent is None:
            agent = next((a for a in env.possible_agents if a not in seats or seats[a].trainable), "")
        if agent not in env.possible_agents:
            raise ValueError(f"{agent!r} is not an agent of {env}; these are {env.possible_agents}")
        given = opponents if isinstance(opponents, Mapping) else {EVERYBODY: opponents}
        role_of = {a: seats[a].role if a in seats else a for a in env.possible_agents}
        known = {EVERYBODY, *role_of, *role_of.values()}
        if unknown := [name for name in given if name not in known]:
            raise ValueError(f"opponents: {unknown} are not agents or roles of {env}; these are {sorted(known)}")
        del role_of[agent]
        players = {a: given.get(a) or given.get(role) or given.get(EVERYBODY) for a, role in role_of.items()}
        policies = {a: player for a, player in players.items() if player is not None}
        if missing := [a for a in players if a not in policies]:
            raise ValueError(f"nobody plays {missing}; opponents are given for {list(given)}")
        self.agent = agent
        self.env = FillSeats(env, policies) if policies else env
        self.metadata = {**env.metadata, "render_fps": 1}
        self.render_mode = getattr(env, "render_mode", None)
        self.observation_space = env.observation_space(agent)
        self.action_space = env.action_space(agent)
        self._reported = False
        self._early = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.env.reset(seed=seed, options=options)
        self._reported = False
        self._early = 0.0 if self._over() else float(self.env._cumulative_rewards[self.agent])
        return self._observation(), dict(self.env.infos[self.agent])

    def step(self, action: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Plays an action; see `gymnasium.Env.step`.

        Raises:
            RuntimeError: the end of the episode has already been reported.
        """
        if self._reported:
            raise RuntimeError(f"{self.env}: step() after the end of the episode; call reset() for the next one")
        if not self._over():
            self.env.step(action)
        self._reported = self._over()
        me, early, self._early = self.agent, self._early, 0.0
        return (
            self._observation(),
            early + float(self.env._cumulative_rewards[me]),
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


def make_seat(env_id: str, agent: str | None = None, opponents: Opponents = "random", **kwargs: Any) -> SingleAgent:
    """Creates the env of Gymnasium's id `legos/NAME`: one seat of `legos_envs.make(NAME, **kwargs)`."""
    return SingleAgent(registry.make(env_id, **kwargs), agent, opponents)
