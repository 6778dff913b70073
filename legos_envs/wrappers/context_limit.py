"""Conversations cut to a size: the first message and the newest ones stay, the middle goes, and a line says so."""

from __future__ import annotations

from collections.abc import Sequence

from pettingzoo import AECEnv

from legos_envs import arguments
from legos_envs.wrappers.observations import Messages, ShownMessages

LEAST_CHARACTERS = 200
LINE = 60
"""Characters set aside for a line that says what is missing."""


class ContextLimit(ShownMessages):
    """Shows at most so many messages, or characters, of a conversation.

    The first message stays (with a system message before it), because the rules stand in it; so do the newest ones, as
    many as fit. Where others are missing, a line says how many. Roles alternate as before: when the newest messages
    begin with a user's, it becomes one with the first. Only if the first and the newest message alone are longer than
    `characters`, they are cut too, in their middle.

    Args:
        env: any AEC text env.
        messages: the most messages to show, at least 1 (the first and the last in one).
        characters: the most characters to show, over all messages, at least 200.

    Raises:
        ValueError: neither limit is given, or one is out of its range.
    """

    def __init__(self, env: AECEnv, *, messages: int | None = None, characters: int | None = None):
        super().__init__(env)
        if messages is None and characters is None:
            raise ValueError("ContextLimit needs messages=..., characters=..., or both")
        self.messages = None if messages is None else arguments.whole("messages", messages, 1)
        self.characters = None if characters is None else arguments.whole("characters", characters, LEAST_CHARACTERS)

    def shown(self, messages: Messages) -> Messages:
        if not messages:
            return messages
        head = min(1 + (messages[0]["role"] == "system"), len(messages))
        return self._squeezed(_joined(messages, head, self._start(messages, head)))

    def _start(self, messages: Messages, head: int) -> int:
        """Where the newest messages that fit begin; counted from the end, so that long conversations cost no more."""
        best = len(messages) - 1
        size = sum(len(message["content"]) for message in (*messages[:head], *messages[max(best, head) :]))
        for start in range(best - 1, head - 1, -1):
            size += len(messages[start]["content"])
            shown = head + len(messages) - start - (messages[start]["role"] == "user")
            if (self.messages is not None and shown > self.messages) or size > (self.characters or size):
                break
            if self.characters is None or size + LINE * (start > head) <= self.characters:
                best = start
        return max(best, head)

    def _squeezed(self, messages: Messages) -> Messages:
        if self.characters is None:
            return messages
        lengths = [len(message["content"]) for message in messages]
        if sum(lengths) <= self.characters:
            return messages
        rooms = _shares(lengths, self.characters)
        return tuple({**message, "content": _cut(message["content"], room)} for message, room in zip(messages, rooms))


class FirstAndLast(ContextLimit):
    """Shows the first and the last message, as one: the rules, and what is to be decided now."""

    def __init__(self, env: AECEnv):
        super().__init__(env, messages=1)


def _joined(messages: Messages, head: int, start: int) -> Messages:
    """The first messages and those from `start` on; the last of the first says what is missing between them."""
    if start <= head:
        return messages
    missing = start - head
    text = f"{messages[head - 1]['content']}\n[{missing} message{'s' * (missing > 1)} left out]"
    if messages[start]["role"] == "user":
        text, start = f"{text}\n{messages[start]['content']}", start + 1
    return (*messages[: head - 1], {**messages[head - 1], "content": text}, *messages[start:])


def _shares(lengths: Sequence[int], total: int) -> list[int]:
    """Room for each text: short ones get what they need, the others the same each."""
    shares, left = [0] * len(lengths), total
    for count, i in enumerate(sorted(range(len(lengths)), key=lengths.__getitem__)):
        shares[i] = min(lengths[i], left // (len(lengths) - count))
        left -= shares[i]
    return shares


def _cut(text: str, room: int) -> str:
    """A text with its middle left out, where it is longer than `room` characters."""
    if len(text) <= room:
        return text
    keep = max(room - LINE, 0)
    tail = text[len(text) - (keep - keep // 2) :] if keep else ""
    return f"{text[: keep // 2]}\n[{len(text) - keep} characters left out]\n{tail}"
