"""The part of its conversation that a seat sees: all of it (no wrapper), some of it, or one string."""

from __future__ import annotations

from typing import Any

import numpy as np
from pettingzoo import AECEnv
from pettingzoo.utils.wrappers import BaseWrapper

from legos_envs.spaces import FreeText

Messages = tuple[dict[str, str], ...]


class ShownMessages(BaseWrapper):
    """Base of wrappers that change the shown messages: a subclass defines `shown(messages) -> messages`.

    The result must alternate user and assistant, as chat templates require.
    """

    def shown(self, messages: Messages) -> Messages:
        raise NotImplementedError(f"{type(self).__name__} must define shown(self, messages)")

    def observe(self, agent: str) -> dict[str, Messages]:  # type: ignore[override]
        return {"messages": self.shown(self.env.observe(agent)["messages"])}  # type: ignore[index]


class BoardOnly(ShownMessages):
    """Shows the last user message and nothing before it.

    For envs whose messages are self-contained, such as a board with the question. With `memory="chat"` the seat loses
    the rules from the start: `FirstAndLast` keeps them.
    """

    def shown(self, messages: Messages) -> Messages:
        return next(((message,) for message in reversed(messages) if message["role"] == "user"), messages)


class ShownText(str):
    """A `str` with the `dtype` that PettingZoo's api_test requires of every observation."""

    __slots__ = ()
    dtype = np.dtype(str)


class TextSpace(FreeText):
    """The space of `ShownText`: any string."""

    def __init__(self) -> None:
        super().__init__(max_length=2**31)
        self.dtype = ShownText.dtype


class TextObservation(BaseWrapper):
    """Observations as one string: a single message as is, else the dialogue with a role line before each."""

    def __init__(self, env: AECEnv):
        super().__init__(env)
        self._space = TextSpace()

    def observation_space(self, agent: str) -> Any:
        return self._space

    def observe(self, agent: str) -> ShownText:  # type: ignore[override]
        messages = self.env.observe(agent)["messages"]  # type: ignore[index]
        if len(messages) == 1:
            return ShownText(messages[0]["content"])
        return ShownText("\n\n".join(f"{message['role']}:\n{message['content']}" for message in messages))
