"""One env for the tests of what runs claim: registered by its path, `tests/train/honest_env.py:Honest-v0`."""

from __future__ import annotations

from legos_envs import Seat, TextEnv, register
from legos_envs.table import InvalidMove

LETTERS = "aeiou"


class Honest(TextEnv):
    """Two writers say something.

    Args:
        kind: `level` pays everybody 0; `deaf` understands nothing; `apart` pays the coder 0 and the tester -1; `race`
            pays who says more vowels 1 and the other one -1.
    """

    name = "Honest-v0"
    default_memory = "state"
    seats = {"coder_0": Seat("coder"), "tester_0": Seat("tester")}

    def __init__(self, kind: str = "level", **options):
        super().__init__(**options)
        self.kind = kind
        self.zero_sum = kind == "race"  # type: ignore[misc]  # a class constant elsewhere

    def play(self, table):
        said = []
        for agent in self.seats:
            said.append((yield from table.ask(agent, "Say something.", parse=self.read)))
        counts = [sum(letter in LETTERS for letter in text) for text in said]
        if self.kind == "apart":
            table.reward("tester_0", -1.0)
        elif self.kind == "race" and counts[0] != counts[1]:
            sign = 1.0 if counts[0] > counts[1] else -1.0
            table.reward("coder_0", sign)
            table.reward("tester_0", -sign)

    def read(self, text: str) -> str:
        if self.kind == "deaf":
            raise InvalidMove("that is not understood")
        return text


register("Honest-v0", Honest)
