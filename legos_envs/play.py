"""Drives episodes: `Runner` (hands out decisions and takes answers; no policy, no event loop) and `play` (policies).

An answer is stepped as soon as it arrives, even if others are still thinking. That never changes the episode.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from pettingzoo import AECEnv

from legos_envs.records import Episode, Trajectory, Turn

T = TypeVar("T")

SEAT_FACTS = ("role", "trainable", "entrant")


@dataclass(slots=True)
class Decision:
    """A policy's input: everything an agent knows, and a random seed that depends on nothing else that runs."""

    agent: str
    role: str
    observation: dict[str, Any]
    info: dict[str, Any]
    turn: int
    episode_seed: int
    salt: int = 0

    @property
    def messages(self) -> tuple[dict[str, str], ...]:
        return self.observation["messages"]

    @property
    def legal_actions(self) -> tuple[str, ...] | None:
        return self.info.get("legal_actions")

    @property
    def seed(self) -> int:
        """63 bits, a function of (salt, episode seed, agent, turn) only."""
        key = f"{self.salt}/{self.episode_seed}/{self.agent}/{self.turn}".encode()
        return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") >> 1


Policy = Callable[[Decision], "str | Awaitable[str]"]


class Runner:
    """One episode of one env: hands out decisions, takes answers, keeps the record.

    Rewards are read before an agent's step and at the end, so that rewards from other branches are not lost.
    """

    def __init__(
        self,
        env: AECEnv,
        seed: int,
        options: Mapping[str, Any] | None = None,
        *,
        group: int | str | None = None,
        salt: int = 0,
    ):
        options = dict(options or {})
        env.reset(seed=seed, options=options.copy())
        self.env, self.seed, self.salt = env, seed, salt
        self.done = False
        """Whether the episode is over, and `episode` complete."""
        self.out: set[str] = set()
        self._now = _position(env)
        env_id = env.metadata.get("name", type(env).__name__)
        trajectories = {agent: _begun(agent, info) for agent, info in self._now.infos.items()}
        self.episode = Episode(env_id, seed, options, trajectories, group=group)
        self._finish_if_over()

    def pending(self) -> list[Decision]:
        """Hands out the decisions of all agents that can act, each exactly once."""
        if self.done:
            return []
        env, out, infos = self.env, self.out, self._now.infos
        fresh = []
        for agent in ready_agents(env):
            if agent not in out:
                out.add(agent)
                info = infos[agent].copy()
                trajectory = self._trajectory(agent)
                fresh.append(
                    Decision(
                        agent, trajectory.role, env.observe(agent), info, len(trajectory.turns), self.seed, self.salt
                    )
                )
        return fresh

    def answer(self, decision: Decision, text: str, **tokens: Any) -> Turn:
        """Steps an agent with its action; `tokens` are the token fields of `Turn`. Returns the turn recorded."""
        turn = Turn(decision.messages, text, legal_actions=decision.legal_actions, **tokens)
        self.take(decision, turn)
        return turn

    def take(self, decision: Decision, turn: Turn) -> None:
        """As `answer`, with the turn to record."""
        env, agent = self.env, decision.agent
        if self.done:
            raise RuntimeError(f"the episode is over; the answer of {agent!r} comes too late (see `done`)")
        self.out.discard(agent)
        if env.agent_selection != agent:
            env.select(agent)  # type: ignore[attr-defined]
        trajectory = self.episode.trajectories[agent]
        _credit(trajectory, self._now._cumulative_rewards[agent])
        trajectory.turns.append(turn)
        self.episode.order.append(agent)
        env.step(turn.action)
        self._now = _position(env)
        self._finish_if_over()

    def _trajectory(self, agent: str) -> Trajectory:
        """An agent's trajectory; in a foreign env an agent may join after the reset."""
        trajectories = self.episode.trajectories
        trajectory = trajectories.get(agent)
        if trajectory is None:
            trajectory = trajectories[agent] = _begun(agent, self.env.infos.get(agent, {}))
        return trajectory

    def _finish_if_over(self) -> None:
        env, episode, now = self.env, self.episode, self._now
        while (agent := env.agent_selection) in env.agents:
            if not (now.terminations[agent] or now.truncations[agent]):
                return
            if all([now.terminations[other] or now.truncations[other] for other in env.agents]):
                break
            self._leave(agent)  # in a foreign env an agent may leave before the others
            env.step(None)
        else:
            if env.agents:
                return
        self.done = True
        for agent in env.agents:
            self._leave(agent)
        first, *others = (trajectory.info for trajectory in episode.trajectories.values())
        for key, value in first.items():
            if key not in SEAT_FACTS and all(key in info and info[key] == value for info in others):
                episode.info[key] = value

    def _leave(self, agent: str) -> None:
        now, trajectory = self._now, self._trajectory(agent)
        _credit(trajectory, now._cumulative_rewards[agent])
        what_to_choose = ("legal_actions", "action_mask")  # nothing left to choose; the turns record their own
        info = {key: value for key, value in now.infos[agent].items() if key not in what_to_choose}
        if "offenders" in info:
            info["offenders"] = [*info["offenders"]]
        trajectory.info = info
        # Rules may revoke it at the end: a match voided by its judge must not be learned from.
        trajectory.trainable &= bool(info.get("trainable", True))
        self.episode.truncated |= bool(now.truncations[agent])


def _position(env: AECEnv) -> Any:
    """Where rewards, infos and ends are read: the env, or what it shares with others at the same position."""
    return getattr(env, "_shown", None) or env


def _begun(agent: str, info: Mapping[str, Any]) -> Trajectory:
    return Trajectory(agent, info.get("role", agent), info.get("trainable", True))


def ready_agents(env: AECEnv) -> Sequence[str]:
    """`env.ready_agents`, or the selected agent for an AEC env without that attribute."""
    ready = getattr(env, "ready_agents", None)
    return [env.agent_selection] if ready is None else ready


def _credit(trajectory: Trajectory, reward: float) -> None:
    if trajectory.turns:
        trajectory.turns[-1].reward += float(reward)
    else:
        trajectory.carry += float(reward)


async def play(
    env: AECEnv,
    policies: Policy | Mapping[str, Policy],
    seed: int,
    options: Mapping[str, Any] | None = None,
    *,
    group: int | str | None = None,
    salt: int = 0,
) -> Episode:
    """Plays one episode.

    Args:
        env: any AEC text env; independent agents act concurrently if it has `ready_agents`.
        policies: one policy for all, or policies by agent or by role. A policy maps a `Decision` to text and may be a
            coroutine function.
        seed: the episode's seed.
        options: passed to `reset`.
        group: stored in the record; episodes of the same group are compared with one another.
        salt: changes every `Decision.seed`, to play one seed repeatedly.

    Raises:
        KeyError: an agent has no policy; the message names its role and the given policies.
        TypeError: a policy is given by name; `legos_envs.policies.make_policy` turns names into policies.
    """
    for policy in policies.values() if isinstance(policies, Mapping) else [policies]:
        if not callable(policy):
            raise TypeError(
                f"a policy is a function of a Decision, got {policy!r}; "
                "legos_envs.policies.make_policy('random', env) makes one from a name"
            )
    runner = Runner(env, seed, options, group=group, salt=salt)
    flying: dict[asyncio.Future[str], Decision] = {}
    try:
        while not runner.done:
            stepped = False
            for decision in runner.pending():
                if runner.done:  # the last answer reached the turn limit
                    break
                policy = policies if callable(policies) else policy_for(policies, decision)
                reply = policy(decision)
                if inspect.isawaitable(reply):
                    flying[asyncio.ensure_future(reply)] = decision
                else:
                    runner.answer(decision, reply)
                    stepped = True
            if not stepped:
                done, _ = await asyncio.wait(flying, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in flying if task in done]:
                    if not runner.done:
                        runner.answer(flying.pop(task), task.result())
    finally:
        for task in flying:
            task.cancel()
        await asyncio.gather(*flying, return_exceptions=True)
    return runner.episode


def policy_for(policies: Mapping[str, Policy], decision: Decision) -> Policy:
    """The policy of an agent: by its id, else by its role."""
    policy = policies.get(decision.agent) or policies.get(decision.role)
    if policy is None:
        raise KeyError(
            f"no policy for agent {decision.agent!r} (role {decision.role!r}); policies are given for {list(policies)}"
        )
    return policy


def wait_for(coroutine: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result, also in a notebook, where an event loop is already running."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


async def play_many(
    make_env: Callable[[], AECEnv],
    policies: Policy | Mapping[str, Policy],
    seeds: Iterable[int],
    *,
    concurrency: int = 64,
    salt: int = 0,
) -> list[Episode]:
    """Plays one episode per seed, `concurrency` at a time, and returns them in seed order."""
    gate = asyncio.Semaphore(concurrency)

    async def one(seed: int) -> Episode:
        async with gate:
            return await play(make_env(), policies, seed, salt=salt)

    return list(await asyncio.gather(*(one(seed) for seed in seeds)))
