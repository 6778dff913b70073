"""The spaces of every environment: observations (a chat), actions (text), and the state (a replay)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gymnasium.spaces import Dict, Space

ROLES = ("system", "user", "assistant")


class FreeText(Space[str]):
    """Any string of at most `max_length` characters, in any alphabet.

    Gymnasium's `Text` fixes a character set and checks it in linear time; a language model writes any Unicode.
    `sample(mask)` takes a sequence of legal strings (an env's `info["legal_actions"]`) and picks one of them; with None
    it invents a line of text.
    """

    def __init__(self, max_length: int = 65536, seed: int | None = None):
        self.max_length = max_length
        super().__init__(shape=None, dtype=None, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and len(x) <= self.max_length

    def sample(self, mask: Sequence[str] | None = None, probability: Any = None) -> str:
        if mask:
            return str(mask[int(self.np_random.integers(len(mask)))])
        return " ".join(f"word{i}" for i in self.np_random.integers(0, 100, size=5))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FreeText) and self.max_length == other.max_length

    def __hash__(self) -> int:
        return hash((FreeText, self.max_length))

    def __repr__(self) -> str:
        return f"FreeText({self.max_length})"


class _Record(Space[Any]):
    """A space of plain values without parameters: not an array, and equal to every other one of its class."""

    def __init__(self, seed: int | None = None):
        super().__init__(shape=None, dtype=None, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Chat(_Record):
    """A tuple of `{"role": ..., "content": ...}` messages, as OpenAI-compatible chat APIs take them."""

    def contains(self, x: Any) -> bool:
        return isinstance(x, tuple) and all(
            isinstance(m, dict)
            and m.keys() == {"role", "content"}
            and m["role"] in ROLES
            and isinstance(m["content"], str)
            for m in x
        )

    def sample(self, mask: Any = None, probability: Any = None) -> tuple[dict[str, str], ...]:
        return ({"role": "user", "content": f"message {int(self.np_random.integers(100))}"},)


class Replay(_Record):
    """The result of `TextEnv.state()`: `{"seed": int, "options": {...}, "log": [[agent, action], ...]}`."""

    def contains(self, x: Any) -> bool:
        if not isinstance(x, dict) or x.keys() != {"seed", "options", "log"}:
            return False
        return (
            isinstance(x["seed"], int)
            and isinstance(x["options"], dict)
            and all(len(entry) == 2 and all(isinstance(part, str) for part in entry) for entry in x["log"])
        )

    def sample(self, mask: Any = None, probability: Any = None) -> dict[str, Any]:
        """The state at the beginning of a random episode."""
        return {"seed": int(self.np_random.integers(2**31)), "options": {}, "log": []}


class Numbers(NamedTuple):
    """A numeric encoding of a game with finitely many moves, for learners that read no text.

    An env with a method `numbers()` that returns one can be wrapped in `legos_envs.wrappers.numeric.Numeric`.

    Attributes:
        moves: every move of the game; action `i` is `moves[i]`.
        names: meaning of each number of an observation.
        read: maps the text shown to an agent to this many numbers, each from -1 to 1.
    """

    moves: tuple[str, ...]
    names: tuple[str, ...]
    read: Callable[[str], Sequence[float]]


def last(pattern: str, text: str) -> str:
    """The last match of a regular expression's group in a text; empty if there is none."""
    found = ""
    for match in re.finditer(pattern, text):
        found = match[1]
    return found


def one_hot(value: str, options: Sequence[str]) -> list[float]:
    """1 at the position of the value among the options, 0 elsewhere."""
    return [float(value == option) for option in options]


def one_hots(text: str, places: int, options: Sequence[str]) -> list[float]:
    """`one_hot` of each of the first `places` words of a text."""
    words = text.split()[:places]
    return [hot for word in words + [""] * (places - len(words)) for hot in one_hot(word, options)]


def chat_observation() -> Dict:
    """`{"messages": Chat()}`: a key other than "observation", which PettingZoo's tests treat specially."""
    return Dict({"messages": Chat()})
