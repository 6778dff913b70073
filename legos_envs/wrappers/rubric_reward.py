"""Your own reward on any env: a rubric over a seat's texts and the end of its episode."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from pettingzoo import AECEnv
from pettingzoo.utils.wrappers import BaseWrapper

from legos_envs import arguments
from legos_envs.scoring import Rubric
from legos_envs.table import Unscored

MODES = ("add", "replace")
KEPT = ("invalid", "unscored")
"""Outcomes that the rubric does not score, since the env has settled them."""


class RubricReward(BaseWrapper):
    """Scores every trained seat by a rubric at the end of the episode, in addition to the env's rewards or instead.

    The functions of the rubric take any of these by name: `agent`; `role`; `text`, the seat's last action; `texts`, all
    of them; `messages`, its conversation; `reward`, its reward from the env; `info`, its final info; and the entries of
    that info, such as `answer` and `truth`. The final info has the result of each function as `rubric`. An episode
    ended by an invalid move or a failed judge is not scored: it keeps the env's rewards.

    Args:
        env: any AEC text env whose agents all end together.
        rubric: the reward functions with their weights. One that raises `Unscored` leaves the episode without a score.
        mode: `"add"`: on top of the env's rewards; `"replace"`: instead of them.
        roles: the roles or agents to score; None for all trainable seats.

    Raises:
        ValueError: the mode is unknown, or the rubric is not a `Rubric`.
    """

    zero_sum = False

    def __init__(self, env: AECEnv, rubric: Rubric, *, mode: str = "add", roles: Sequence[str] | None = None):
        super().__init__(env)
        if not isinstance(rubric, Rubric):
            raise ValueError(f"rubric must be a legos_envs.Rubric, such as Rubric([function]); got {rubric!r}")
        self.rubric, self.mode = rubric, arguments.one_of("mode", mode, MODES)
        self.roles = None if roles is None else tuple(roles)
        self.infos: dict[str, Any]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.env.reset(seed=seed, options=options)
        if self.roles is not None:
            known = {name for agent, info in self.env.infos.items() for name in (agent, info.get("role", agent))}
            for role in self.roles:
                if role not in known:
                    raise ValueError(arguments.unknown("role", role, sorted(known)))
        self._start({}, self.env._cumulative_rewards)  # filled seats may already have played and been paid

    def restore(self, state: Mapping[str, Any]) -> None:
        """Returns to a `state()`."""
        self.env.restore(state)  # type: ignore[attr-defined]
        texts: dict[str, list[str]] = {}
        for agent, action in state["log"]:
            texts.setdefault(agent, []).append(action)
        # What the rules pay before the first action is reported as a reward of that action.
        self._start(texts, _returns_of(self.env) if texts else self.env._cumulative_rewards)

    def _start(self, texts: dict[str, list[str]], paid: Mapping[str, float]) -> None:
        env = self.env
        self._texts, self._paid = texts, dict(paid)
        facts = {agent: (info.get("role", agent), info.get("trainable", True)) for agent, info in env.infos.items()}
        self._scored = {a for a, (role, t) in facts.items() if (t if self.roles is None else {a, role} & {*self.roles})}
        self._cumulative_rewards = {agent: self._share(agent) * env._cumulative_rewards[agent] for agent in env.agents}
        self._show()

    def step(self, action: Any) -> None:
        env = self.env
        agent = env.agent_selection
        dead = bool(env.terminations[agent] or env.truncations[agent])
        env.step(action)
        if dead:
            self.rewards = dict.fromkeys(env.agents, 0.0)
            self.infos = {agent: self.infos[agent] for agent in env.agents}
            self._cumulative_rewards = {agent: self._cumulative_rewards[agent] for agent in env.agents}
            return
        self._texts.setdefault(agent, []).append(action)
        self._cumulative_rewards[agent] = 0.0
        for other in env.agents:
            self._paid[other] = self._paid.get(other, 0.0) + float(env.rewards[other])
            self._cumulative_rewards[other] += self._share(other) * float(env.rewards[other])
        self._show()

    def _share(self, agent: str) -> float:
        """The share of the env's rewards that the agent is paid immediately."""
        return float(self.mode == "add" or agent not in self._scored)

    def _show(self) -> None:
        """Updates the AEC attributes after a step; at the end with the rubric's rewards."""
        env = self.env
        self._owed: dict[str, float] = {}
        self.rewards = {agent: self._share(agent) * float(env.rewards[agent]) for agent in env.agents}
        self.infos = env.infos
        if not env.agents or not all(env.terminations[agent] or env.truncations[agent] for agent in env.agents):
            return
        self.infos = {agent: dict(env.infos[agent]) for agent in env.agents}
        try:
            owed = {agent: self._score(agent) for agent in env.agents if agent in self._scored}
        except Unscored as failed:
            owed = {}
            for info in self.infos.values():
                info |= {"outcome": "unscored", "reason": str(failed)}
        self._owed = owed
        for agent, value in owed.items():
            self.rewards[agent] += value
            self._cumulative_rewards[agent] += value

    @property
    def _returns(self) -> dict[str, float]:
        """What each agent has been paid so far."""
        both = {**self._owed, **self._paid}
        return {a: self._share(a) * self._paid.get(a, 0.0) + self._owed.get(a, 0.0) for a in both}

    def _score(self, agent: str) -> float:
        """The reward still due to a seat at the end."""
        info, paid = self.infos[agent], self._paid.get(agent, 0.0)
        if info.get("outcome") in KEPT or "invalid" in info:
            return (1.0 - self._share(agent)) * paid
        texts = self._texts.get(agent, [])
        facts = {
            **info,
            "agent": agent,
            "role": info.get("role", agent),
            "text": texts[-1] if texts else "",
            "texts": tuple(texts),
            "messages": self.env.observe(agent)["messages"],  # type: ignore[index]
            "reward": paid,
            "info": dict(info),
        }
        for called, function in self.rubric.functions.items():
            for name, wanted in inspect.signature(function).parameters.items():
                if wanted.default is wanted.empty and wanted.kind is not wanted.VAR_KEYWORD and name not in facts:
                    raise ValueError(arguments.unknown(f"fact of {called}()", name, sorted(facts)))
        scores = self.rubric(**facts)
        info["rubric"] = dict(scores.parts)
        return scores.total


def _returns_of(env: AECEnv) -> Mapping[str, float]:
    """What an env has paid so far in its episode, including rubrics inside it."""
    while isinstance(env, BaseWrapper):
        if isinstance(env, RubricReward):
            return env._returns
        env = env.env
    return getattr(env, "_returns", {})
