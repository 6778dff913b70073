"""An env for speed measurements: one long prompt of random words, one continuation, a reward that is noise.

With a random model whose end token is unlikely (`benchmarks.models`), prompts and continuations have the lengths that
are asked for, so that two trainers can be given the same work. `benchmarks.continuation:Continuation-v0` is its id.
"""

from __future__ import annotations

from typing import Any

from legos_envs import Seat, TextEnv, register

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def noise(said: str) -> float:
    """A reward in [0, 1) that differs from text to text."""
    return (sum(map(ord, said)) % 97) / 97


class Continuation(TextEnv):
    """The seed is the prompt, `words` words of about four tokens each."""

    name = "Continuation-v0"
    seats = {"writer": Seat("writer")}

    def __init__(self, words: int = 16, **options: Any):
        super().__init__(**options)
        self.words = words

    def play(self, table: Any) -> Any:
        drawn = table.rng.integers(len(LETTERS), size=(self.words, 6))
        said = yield from table.ask("writer", " ".join("".join(LETTERS[i] for i in word) for word in drawn))
        table.reward("writer", noise(said))


register("Continuation-v0", Continuation)
