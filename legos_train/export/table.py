"""Plays an episode in which every seat is an externally held conversation.

`legos export verifiers` copies this file into the packages that it writes, so it only needs `legos_envs`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import legos_envs
from legos_envs import Decision, Episode

Message = dict[str, str]


class ModelSide(Protocol):
    """A model's side of a dialogue. `turn(None)` answers the opening messages."""

    async def turn(self, text: str | None) -> str | None:
        """The reply; None if the conversation is over (a limit was reached)."""


Open = Callable[[str, str, Sequence[Message]], AbstractAsyncContextManager[ModelSide]]
"""(agent, role, first messages) -> a conversation, closed when its context is left."""


class _Held:
    """One open conversation in its own task: a context must be left in the task that entered it."""

    def __init__(self, open_: Open, decision: Decision):
        self.known: list[Message] = []
        self._over = False
        self._inbox: asyncio.Queue[tuple[str | None, asyncio.Future[str | None]] | None] = asyncio.Queue()
        self._first = list(decision.messages)
        self._task = asyncio.create_task(self._hold(open_(decision.agent, decision.role, self._first)))

    async def _hold(self, context: AbstractAsyncContextManager[ModelSide]) -> None:
        async with context as conversation:
            while (item := await self._inbox.get()) is not None:
                text, reply = item
                answer = await conversation.turn(text)
                if not reply.done():
                    reply.set_result(answer)

    async def answer(self, messages: Sequence[Message]) -> str:
        if self._over:  # an empty reply is not a move: the environment's rules determine its cost
            return self._record(messages, "")
        text = None
        if self.known:
            text = "\n".join(m["content"] for m in messages[len(self.known) :])
        reply: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._inbox.put_nowait((text, reply))
        both: list[asyncio.Future[Any]] = [self._task, reply]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not reply.done():
            await self._task  # raises what went wrong
            raise RuntimeError("the conversation was closed before it answered")
        answer = reply.result()
        self._over = answer is None
        return self._record(messages, answer or "")

    def _record(self, messages: Sequence[Message], answer: str) -> str:
        self.known = [*messages, {"role": "assistant", "content": answer}]
        return answer

    async def close(self) -> None:
        self._inbox.put_nowait(None)
        await self._task

    async def abort(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class Seats:
    """Answers for all agents, each in its own conversation.

    A conversation continues as long as the agent's messages extend it. Otherwise, as with `memory="state"`, a new one
    starts.
    """

    def __init__(self, open_: Open):
        self._open = open_
        self._current: dict[str, _Held] = {}
        self._all: list[_Held] = []

    async def __call__(self, decision: Decision) -> str:
        messages = list(decision.messages)
        held = self._current.get(decision.agent)
        if held is None or not held.known or messages[: len(held.known)] != held.known:
            held = self._current[decision.agent] = _Held(self._open, decision)
            self._all.append(held)
        return await held.answer(messages)

    async def close(self) -> None:
        """Ends all conversations, in the order they started; raises the errors of ending them."""
        for held in self._all:
            await held.close()

    async def abort(self) -> None:
        for held in self._all:
            await held.abort()


async def play(
    env_id: str,
    arguments: Mapping[str, Any],
    seed: int,
    open_: Open,
    scripted: Mapping[str, str] | None = None,
) -> Episode:
    """Plays one episode to its end and closes all conversations.

    Args:
        env_id: the environment.
        arguments: arguments of the environment's constructor.
        seed: seed of the episode.
        open_: opens the conversation of a seat.
        scripted: by role, a policy without a model (`random`, `optimal`, `scripted:NAME`) that plays it instead.

    Raises:
        Exception: whatever a conversation or the environment raised; all conversations are closed.
    """
    env: Any = legos_envs.make(env_id, **arguments)
    seats = Seats(open_)
    others = {}
    for role, name in (scripted or {}).items():
        from legos_envs.policies import make_policy

        others[role] = make_policy(name, env)

    def policy(decision: Decision) -> Any:
        return others.get(decision.role, seats)(decision)

    try:
        episode = await legos_envs.play(env, policy, seed)
        await seats.close()
    except BaseException:
        await seats.abort()
        raise
    return episode
