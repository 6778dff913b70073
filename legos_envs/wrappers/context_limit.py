"""Limits the size of conversations: the first and the newest messages stay, and a line replaces the middle."""

from __future__ import annotations

from collections.abc import Sequence

from pettingzoo import AECEnv

from legos_envs import arguments
from legos_envs.wrappers.observations import Messages, ShownMessages

LEAST_CHARACTERS = 200
LINE = 60
"""Characters reserved for the line about what is missing."""


class ContextLimit(ShownMessages):
    """Limits the number of messages, or characters, of a conversation that are shown.

    The first message stays (with a preceding system message), because it contains the rules; so do as many of the
    newest ones as fit. A line says how many are missing. Roles still alternate: if the newest messages begin with a
    user message, it is merged into the first. Only if the first and the newest message alone exceed `characters` are
    they shortened too, in the middle.

    Args:
        env: any AEC text env.
        messages: maximum number of messages to show, at least 1 (then the first and the last are merged).
        characters: maximum number of characters to show, over all messages, at least 200.

    Raises:
        ValueError: neither limit is given, or one is out of range.
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
        """Where the newest messages that fit begin; searched from the end, so long conversations take no longer."""
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
    """Shows the first and the last message, merged: the rules, and the current decision."""

    def __init__(self, env: AECEnv):
        super().__init__(env, messages=1)


def _joined(messages: Messages, head: int, start: int) -> Messages:
    """The first messages and those from `start` on; the last of the first ones says how many are missing in between."""
    if start <= head:
        return messages
    missing = start - head
    text = f"{messages[head - 1]['content']}\n[{missing} message{'s' * (missing > 1)} left out]"
    if messages[start]["role"] == "user":
        text, start = f"{text}\n{messages[start]['content']}", start + 1
    return (*messages[: head - 1], {**messages[head - 1], "content": text}, *messages[start:])


def _shares(lengths: Sequence[int], total: int) -> list[int]:
    """Room for each text: short ones get what they need, the others equal shares."""
    shares, left = [0] * len(lengths), total
    for count, i in enumerate(sorted(range(len(lengths)), key=lengths.__getitem__)):
        shares[i] = min(lengths[i], left // (len(lengths) - count))
        left -= shares[i]
    return shares


def _cut(text: str, room: int) -> str:
    """A text, without its middle if it is longer than `room` characters."""
    if len(text) <= room:
        return text
    keep = max(room - LINE, 0)
    tail = text[len(text) - (keep - keep // 2) :] if keep else ""
    return f"{text[: keep // 2]}\n[{len(text) - keep} characters left out]\n{tail}"
