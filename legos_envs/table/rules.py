"""The building blocks of rules: a generator that asks seats, and the ways an ask can fail."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.random.bit_generator import ISeedSequence

T = TypeVar("T")


Rules = Generator[Any, Any, T]
"""Rules are a generator that yields asks and forks (through `yield from table...`) and returns a `T`."""


class Seat(NamedTuple):
    """An env's declaration of an agent: its role, whether it learns, and its entrant, if any."""

    role: str
    trainable: bool = True
    entrant: str | None = None


class InvalidMove(ValueError):
    """Raised by a `parse` function of `table.ask`: the text is not a legal action. Only the mover learns why."""


class Forfeit(Exception):
    """Thrown into the rules when an agent has used up its retries. Uncaught, it ends the episode as `"invalid"`."""

    shares: dict[str, float]
    """Rewards for other agents that replace the default share of `Table.settle`, by agent."""

    def __init__(self, reasons: Mapping[str, str], shares: Mapping[str, float] | None = None):
        self.reasons, self.shares = dict(reasons), dict(shares or {})
        super().__init__("; ".join(f"{agent}: {reason}" for agent, reason in self.reasons.items()))

    @property
    def agents(self) -> tuple[str, ...]:
        """The offenders."""
        return tuple(self.reasons)

    @classmethod
    def joint(cls, forfeits: Iterable[Forfeit]) -> Forfeit:
        """The forfeits of several branches as one."""
        every = list(forfeits)
        return cls(
            {agent: reason for forfeit in every for agent, reason in forfeit.reasons.items()},
            {agent: share for forfeit in every for agent, share in forfeit.shares.items()},
        )


class Unscored(Exception):
    """Thrown into the rules when the episode cannot be scored: a judge failed or gave no valid reply.

    A seat that is not trainable raises it where others raise a `Forfeit`. Uncaught, it ends the episode with the
    outcome `"unscored"`: nothing is learned from it, but it is counted. A failed judge never results in a reward.
    """


class Truncated(Exception):
    """Thrown into the rules at the env's turn limit, so that they can settle rewards. They must not ask again."""


class Ask(NamedTuple):
    """A request from the rules to the env: this agent acts next in this branch."""

    agent: str
    text: str
    legal: tuple[str, ...] | None
    fresh: bool
    notice: str | None
    listed: bool = True


class _Digest(ISeedSequence):
    """Seeds PCG64 from a hash: as good as numpy's own mixing and ten times cheaper, which matters at every reset."""

    def __init__(self, key: str):
        self.words = np.frombuffer(hashlib.blake2b(key.encode(), digest_size=32).digest(), np.uint64)

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> np.ndarray:
        return self.words


def keyed_generator(seed: int, path: str) -> np.random.Generator:
    """A random generator that depends only on a seed and a name."""
    return np.random.Generator(np.random.PCG64(_Digest(f"{seed}/{path}")))  # type: ignore[arg-type]


class Host(Protocol):
    """What a table needs from its environment, a `TextEnv`."""

    seed: int | None
    seats: Mapping[str, Seat]
    memory: str
    action_format: str
    invalid_retries: int
    invalid_reward: float
    invalid_opponent_reward: float | None
    zero_sum: bool
    max_action_chars: int
    _returns: Mapping[str, float]
    _unasked: int
    """Asks that rules have created but not started."""

    def _tell(self, agent: str, text: str) -> None: ...

    def _pay(self, agent: str, value: float) -> None: ...

    def _note(self, place: str, of_agent: bool, facts: Mapping[str, Any]) -> None: ...
