"""What every agent of an episode has read and said."""

from __future__ import annotations

from collections.abc import Callable, Iterable

Message = dict[str, str]


class SeatConversations:
    """The conversation of every agent, user and assistant alternating.

    Args:
        agents: all agents of the episode.
        self_contained: True (`memory="state"`): a prompt contains everything told since the conversation began, and
            replaces what was shown before; False (`"chat"`): it contains what is new since the agent's last action.
    """

    __slots__ = ("_messages", "_new", "_observed", "_self_contained", "_since_start")

    def __init__(self, agents: Iterable[str], self_contained: bool):
        self._self_contained = self_contained
        self._messages: dict[str, list[Message]] = {agent: [] for agent in agents}
        self._new = dict.fromkeys(self._messages, "")
        self._since_start = self._new.copy()
        self._observed: dict[str, tuple[Message, ...]] = {}

    def read(self, agent: str) -> tuple[Message, ...]:
        """An agent's messages so far: the same object until one is added."""
        messages = self._observed.get(agent)
        if messages is None:
            messages = self._observed[agent] = tuple(self._messages[agent])
        return messages

    def tell(self, agent: str, text: str) -> None:
        """Keeps a text for the agent's next prompt."""
        new = self._new[agent]
        self._new[agent] = f"{new}\n{text}" if new else text
        if self._self_contained:
            told = self._since_start[agent]
            self._since_start[agent] = f"{told}\n{text}" if told else text

    def ask(self, agent: str, text: str, notice: str | None, legal: tuple[str, ...] | None, fresh: bool) -> None:
        """Adds a prompt: what the agent was told, the text of the ask, and what was wrong with its last answer.

        With a notice, a chat does not repeat the text of the ask, which its previous message has.
        """
        messages = self._messages[agent]
        if fresh:
            self._since_start[agent] = self._new[agent] = ""
            messages.clear()
        if self._self_contained:
            messages.clear()
            shown = write_prompt(self._since_start[agent], text, notice, legal)
        else:
            shown = write_prompt(self._new[agent], "" if notice else text, notice, legal)
        self._say(agent, "user", shown)
        self._new[agent] = ""

    def answer(self, agent: str, text: str) -> None:
        """Adds an agent's own words."""
        self._say(agent, "assistant", text)

    def close(self) -> None:
        """Shows every agent what it was told since its last prompt."""
        for agent, text in self._new.items():
            if not text:
                continue
            messages, shown = self._messages[agent], text
            if messages and messages[-1]["role"] == "user":  # an ask left unanswered at the turn limit
                shown = f"{messages.pop()['content']}\n{text}"
            self._say(agent, "user", shown)

    def copy(self) -> SeatConversations:
        """A copy that goes on separately."""
        other = SeatConversations((), self._self_contained)
        other._messages = {agent: messages.copy() for agent, messages in self._messages.items()}
        other._new, other._since_start = self._new.copy(), self._since_start.copy()
        other._observed = self._observed.copy()
        return other

    def convert(self, to: Callable[[Message], Message]) -> None:
        """Replaces all messages by what a function makes of them."""
        for messages in self._messages.values():
            messages[:] = map(to, messages)
        self._observed.clear()

    def _say(self, agent: str, role: str, text: str) -> None:
        self._messages[agent].append({"role": role, "content": text})
        self._observed.pop(agent, None)


def write_prompt(told: str, text: str, notice: str | None, legal: tuple[str, ...] | None) -> str:
    """The text of a prompt; legal actions, if any are to be listed, come last, as they are to be written."""
    parts = [part for part in (told, text, notice) if part]
    if legal:
        parts.append(f"Reply with one legal action: {' '.join(legal)}")
    return "\n".join(parts)
