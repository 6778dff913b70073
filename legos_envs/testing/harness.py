"""Shared by all checks: the subject under test, players, records of episodes, and the registry of checks."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Any

from pettingzoo import AECEnv

from legos_envs import registry
from legos_envs.play import Decision, ready_agents
from legos_envs.policies import ScriptedPolicy
from legos_envs.text_env import TextEnv

SCRIPT = (
    "I agree with the first point.",
    "No. The second one is better, because it is shorter.",
    "The answer is 7. [7] \\boxed{7} Answer: 7",
    "Yes, the first. [yes]",
    "Let me propose something else: 1, 2, 3.",
)
"""Texts of a seat without legal actions if the caller gives no policy."""
LIMIT = 2_000
"""Actions after which an episode counts as endless."""


class Skipped(Exception):
    """Raised by a check that does not apply; the message says why."""


@dataclass(frozen=True)
class Check:
    """One named check. `run` takes a `Subject` and raises on failure."""

    name: str
    description: str
    run: Callable[[Subject], None]


CHECKS: dict[str, Check] = {}
"""Every check by name, in the order they run."""


def check(name: str) -> Callable[[Callable[[Subject], None]], Callable[[Subject], None]]:
    """Registers a check; the first line of its docstring is the description."""

    def add(run: Callable[[Subject], None]) -> Callable[[Subject], None]:
        described = (run.__doc__ or name).strip()  # `python -OO` drops docstrings
        CHECKS[name] = Check(name, described.splitlines()[0], run)
        return run

    return add


def require(condition: Any, message: str) -> None:
    """Fails the check with a message unless the condition holds."""
    if not condition:
        raise AssertionError(message)


# --- players ---------------------------------------------------------------------------------------------------------


def scripted(decision: Decision) -> str:
    """A legal action chosen by the decision's seed; a line of `SCRIPT` if none is listed."""
    legal = decision.legal_actions
    return (legal or SCRIPT)[decision.seed % len(legal or SCRIPT)]


class Player:
    """Answers for all seats. Its texts are a function of seed, agent, turn and observation, so copies agree."""

    def __init__(self, policy: Callable[[Decision], Any] | None, seed: int):
        self.policy, self.seed = policy or scripted, seed
        self.turns: dict[str, int] = {}

    def copy(self) -> Player:
        twin = copy.copy(self)
        twin.turns = dict(self.turns)
        return twin

    def __call__(self, env: AECEnv, agent: str, observation: Any, info: dict[str, Any]) -> Any:
        turn = self.turns[agent] = self.turns.get(agent, -1) + 1
        decision = Decision(agent, info.get("role", agent), observation, info, turn, self.seed)
        if self.policy is scripted and not info.get("legal_actions"):
            mask = info.get("action_mask", observation.get("action_mask") if isinstance(observation, dict) else None)
            space = env.action_space(agent)
            if mask is not None or not space.contains("text"):
                space.seed(decision.seed % 2**31)
                return space.sample(mask)
        return self.policy(decision)


# --- episodes --------------------------------------------------------------------------------------------------------


@dataclass
class Step:
    """One action, with the agent's view before it."""

    agent: str
    observation: Any
    info: dict[str, Any]
    action: Any


@dataclass
class Record:
    """An episode from some point on, as seen by a plain AEC loop."""

    steps: list[Step] = field(default_factory=list)
    returns: dict[str, float] = field(default_factory=dict)
    rewards: list[tuple[str, Any]] = field(default_factory=list)
    endings: dict[str, tuple[bool, bool]] = field(default_factory=dict)
    last: dict[str, tuple[Any, dict[str, Any]]] = field(default_factory=dict)
    """The final observation and info of each agent."""
    choices: int = 0
    """Number of steps at which more than one agent was ready."""

    @property
    def truncated(self) -> bool:
        return any(truncated for _, truncated in self.endings.values())

    @property
    def outcome(self) -> Any:
        return next((info["outcome"] for _, info in self.last.values() if "outcome" in info), None)

    @cached_property
    def _values(self) -> list[Any]:
        steps = [[s.agent, s.observation, s.info, s.action] for s in self.steps]
        return json.loads(json.dumps([*steps, ["end", self.returns, self.endings, self.last]], default=repr))

    def plain(self) -> list[Any]:
        """The whole record as JSON values, for comparison; only for complete records."""
        return self._values

    def by_agent(self) -> dict[str, Any]:
        """What each agent saw, wrote and got, regardless of the other seats in between."""
        seen: dict[str, Any] = {a: [self.last[a][0]] for a in self.last}
        for step in self.steps:
            seen.setdefault(step.agent, []).append([step.observation, step.info.get("legal_actions"), step.action])
        return json.loads(json.dumps(seen, default=repr))


def stepping(
    env: AECEnv, player: Player, *, order: Random | None = None, limit: int = LIMIT
) -> Generator[Step, None, Record]:
    """Plays from the current state to the end as an AEC loop, yielding before every live action.

    With `order`, the next agent is drawn from `ready_agents`; else it is `agent_selection`.
    """
    record = Record(returns=dict.fromkeys(env.agents, 0.0))
    while env.agents:
        if len(ready := ready_agents(env)) > 1:
            record.choices += 1
            if order is not None:
                env.select(order.choice(list(ready)))  # type: ignore[attr-defined]
        agent = env.agent_selection
        observation, reward, terminated, truncated, info = env.last()
        record.returns[agent] += float(reward)
        record.rewards.append((agent, reward))
        if terminated or truncated:
            record.endings[agent] = (bool(terminated), bool(truncated))
            record.last[agent] = (observation, copy.deepcopy(info))
            env.step(None)
            continue
        if len(record.steps) >= limit:
            raise AssertionError(f"the episode did not end within {limit} actions")
        step = Step(agent, observation, copy.deepcopy(info), player(env, agent, observation, info))
        record.steps.append(step)
        yield step
        env.step(step.action)
    return record


def drive(
    env: AECEnv, player: Player, *, order: Random | None = None, each: Callable[[Step], None] | None = None
) -> Record:
    """Plays from the current state to the end. `each` is called before every live action and may change it."""
    play = stepping(env, player, order=order)
    while True:
        try:
            step = next(play)
        except StopIteration as stop:
            return stop.value
        if each is not None:
            each(step)


def advance(env: AECEnv, player: Player, count: int) -> None:
    """Takes `count` steps, including those of dead agents, or fewer if the episode ends before."""
    for _ in range(count):
        if not env.agents:
            return
        observation, _, terminated, truncated, info = env.last()
        env.step(None if terminated or truncated else player(env, env.agent_selection, observation, info))


def same(got: Record, expected: Record, how: str) -> None:
    """Fails unless two records are equal; the message shows the first difference."""
    for number, (a, b) in enumerate(zip(got.plain(), expected.plain())):
        if a != b:
            parts = zip(("agent", "observation", "info", "action") if a[0] != "end" else ("", "returns", "", ""), a, b)
            what, x, y = next(part for part in parts if part[1] != part[2])
            raise AssertionError(f"{how}: at action {number} the {what or 'end'} is {short(x)}, expected {short(y)}")
    require(len(got.steps) == len(expected.steps), f"{how}: {len(got.steps)} actions, expected {len(expected.steps)}")


def short(value: Any, width: int = 160) -> str:
    """The repr of a value, shortened in the middle."""
    return cut(repr(value), width)


def cut(text: str, width: int) -> str:
    """A text, shortened in the middle if it is longer than about `width` characters."""
    return text if len(text) <= width else f"{text[: width // 2]} ... {text[-width // 2 :]}"


# --- the subject -----------------------------------------------------------------------------------------------------


class Subject:
    """The subject under test: a way to create a new env, and the episodes that several checks examine."""

    def __init__(
        self,
        target: str | Callable[..., AECEnv],
        kwargs: dict[str, Any],
        episodes: int,
        policy: Callable[[Decision], Any] | None,
    ):
        self.target, self.kwargs, self.episodes = target, kwargs, episodes
        self._plain: dict[int, Record] = {}
        self.foreign = policy is not None
        """Whether the caller supplied the player, which another process does not have."""
        self.policy = policy or self._own_player()

    def _own_player(self) -> Callable[[Decision], Any] | None:
        """The env's scripted player `random`, if it has one."""
        try:
            script = getattr(self.make().unwrapped, "scripted_players", {}).get("random")
        except Exception:
            return None  # the checks will report why it cannot be created
        return None if script is None else ScriptedPolicy(script)

    def make(self, **changes: Any) -> AECEnv:
        """A new env; `changes` override the given constructor arguments."""
        kwargs = {**self.kwargs, **changes}
        return registry.make(self.target, **kwargs) if isinstance(self.target, str) else self.target(**kwargs)

    def variant(self, **changes: Any) -> AECEnv | None:
        """A new env with other constructor arguments, or None if the constructor does not know them."""
        try:
            return self.make(**changes)
        except TypeError:
            return None

    def patient(self) -> AECEnv:
        """A new env that grants one retry after an invalid move, if that is an option."""
        return self.make(invalid_retries=1) if self.native else self.make()

    def player(self, seed: int) -> Player:
        return Player(self.policy, seed)

    def begin(self, seed: int, env: AECEnv | None = None) -> AECEnv:
        """An env at the start of an episode."""
        env = env if env is not None else self.make()
        env.reset(seed=seed)
        return env

    def play(self, seed: int, env: AECEnv | None = None, **options: Any) -> Record:
        """A whole episode, on a new env unless one is given."""
        return drive(self.begin(seed, env), self.player(seed), **options)

    def plain(self, seed: int) -> Record:
        """The episode of a seed on a new env, as first played: the reference for comparisons."""
        if seed not in self._plain:
            self._plain[seed] = self.play(seed)
        return self._plain[seed]

    @cached_property
    def records(self) -> list[Record]:
        """Self-play with one env, seeds 0 to `episodes` - 1."""
        env = self.make()
        return [self.play(seed, env) for seed in range(self.episodes)]

    @cached_property
    def native(self) -> bool:
        """Whether the env is a `TextEnv` (whose rejection of a move can be detected)."""
        return isinstance(self.make().unwrapped, TextEnv)

    @cached_property
    def one_seat_a_role(self) -> list[str]:
        """The first seat of every role."""
        env = self.begin(0)
        roles = {env.infos[agent].get("role", agent): agent for agent in reversed(env.agents)}
        return [agent for agent in env.agents if agent in roles.values()]

    def until(self, agent: str, env: AECEnv, player: Player, limit: int = LIMIT) -> bool:
        """Plays until it is the agent's turn; False if the episode ends before."""
        for _ in range(limit):
            if not env.agents or all(env.terminations[a] or env.truncations[a] for a in env.agents):
                return False
            if env.agent_selection == agent:
                return True
            if agent in ready_agents(env):
                env.select(agent)  # type: ignore[attr-defined]
                return True
            advance(env, player, 1)
        return False


def rejected(env: AECEnv, agent: str) -> bool:
    """Whether a `TextEnv` has just told the agent that its move was invalid and that it may retry."""
    messages = env.observe(agent)["messages"]
    return agent in ready_agents(env) and "Invalid move: " in messages[-1]["content"]


def texts(observations: Iterable[Any]) -> str:
    """Everything that observations (or infos) show, as one string."""
    return "\n".join(json.dumps(o, default=repr, ensure_ascii=False) for o in observations)
