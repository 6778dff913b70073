"""An env for speed measurements: one long prompt of random words, one continuation, a random reward.

`save_noisy_model` makes a model whose output varies every time and hardly ever ends before its limit, so that two
trainers get the same amount of work. `benchmarks.continuation:Continuation-v0` is its id.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from legos_envs import Seat, TextEnv, register

LETTERS = "abcdefghijklmnopqrstuvwxyz"


FLATTER = 0.05
"""What the final norm is multiplied with: as they are made, random models say one token for ever."""


def save_noisy_model(folder: Path, size: str) -> None:
    """As `benchmarks.models.save_model`, with next tokens that are close to uniform over the vocabulary."""
    import mlx.core as mx

    from benchmarks.models import save_model
    from inference.files import tensors

    save_model(folder, size)
    file = folder / "model.safetensors"
    weights = tensors.from_bytes(file.read_bytes())
    weights["model.norm.weight"] = weights["model.norm.weight"] * FLATTER
    mx.save_safetensors(str(file), weights)


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
