"""An environment in twenty lines: a seller asks a price, a buyer takes it or leaves it.

legos play examples/haggle.py:Haggle-v0
legos train --env examples/haggle.py:Haggle-v0 --steps 20
"""

from legos_envs import Seat, TextEnv, register


class Haggle(TextEnv):
    """One offer. The seller knows the cost, the buyer the value; a sale pays the difference to either side."""

    name = "Haggle-v0"
    default_memory = "state"
    seats = {"seller_0": Seat("seller"), "buyer_0": Seat("buyer")}

    def play(self, table):
        cost, value = (int(table.rng.integers(1, 6)) for _ in range(2))
        price = yield from table.ask("seller_0", f"It cost you {cost}. What do you ask?", legal=list("123456789"))
        answer = yield from table.ask(
            "buyer_0", f"It is worth {value} to you. The price is {price}.", legal=("take", "leave")
        )
        if answer == "take":
            table.reward("seller_0", int(price) - cost)
            table.reward("buyer_0", value - int(price))
        table.note(outcome=answer)


register("Haggle-v0", Haggle)
