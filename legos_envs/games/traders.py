"""Scripted players for the trading games. They read their position from the prompt, just as a model does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from legos_envs import parsing
from legos_envs.games.trading import Counts, Offer, read_goods, write_offer
from legos_envs.play import Decision


class Position(NamedTuple):
    """A player's position, as stated in its prompt."""

    kinds: tuple[str, ...]
    stock: Counts
    values: Counts
    offers: dict[str, Offer]
    """Offers open to the player, by maker."""
    action_format: str

    def acceptable(self) -> dict[str, Offer]:
        """The open offers that the player can cover."""
        return {maker: offer for maker, offer in self.offers.items() if covers(self.stock, offer.get)}

    def says(self, action: str, talk: str) -> str:
        return f"{talk} {parsing.write_action(action, self.action_format)}"

    def accepts(self, maker: str, talk: str) -> str:
        """Accepts the offer of `maker`, naming it only if several offers are open."""
        return self.says(f"Accept {maker}" if len(self.offers) > 1 else "Accept", talk)

    def proposes(self, give: Mapping[int, int], get: Mapping[int, int], talk: str) -> str:
        """Offers goods for goods; both map the index of a kind to a number of units."""
        given, wanted = (tuple([side.get(i, 0) for i in range(len(self.kinds))]) for side in (give, get))
        return self.says(write_offer(Offer(given, wanted), self.kinds), talk)


def covers(stock: Counts, goods: Counts) -> bool:
    """Whether the stock holds at least these goods."""
    return all([have >= need for have, need in zip(stock, goods)])


def gain(offer: Offer, values: Sequence[float]) -> float:
    """The gain of the player who accepts an offer."""
    return sum([(give - get) * value for give, get, value in zip(offer.give, offer.get, values)])


def read_position(messages: Sequence[Mapping[str, Any]]) -> Position:
    """The position in the last prompt that states one. Chat lines begin with a name and a colon, so none can be
    mistaken for it.

    Raises:
        LookupError: no message states a position.
    """
    for message in reversed(messages):
        lines = message["content"].split("\n") if message["role"] == "user" else []
        starts = [i for i, line in enumerate(lines) if line.startswith("You, ")]
        if starts:
            return _position(lines[starts[-1] :])
    raise LookupError("no message states what the player owns: is this a prompt of a trading game?")


def _position(lines: list[str]) -> Position:
    items = [item.split(" ") for item in lines[0].partition(" have ")[2].rstrip(".").split(", ")]
    kinds = tuple([item[1] for item in items])
    offers = {}
    for line in lines[1:]:
        maker, separator, goods = line.partition(" offers you ")
        if separator:
            sides = [side.casefold().replace(",", " ").split() for side in goods.rstrip(".").split(" for ")]
            offers[maker] = Offer(read_goods(sides[0], kinds), read_goods(sides[1], kinds))
    form = "boxed" if "\\boxed{Offer" in lines[-1] else "bracket"
    return Position(kinds, tuple([int(i[0]) for i in items]), tuple([int(i[3]) for i in items]), offers, form)


def random_trader(decision: Decision) -> str:
    """Accepts, denies, talks, or offers up to 3 units it owns for 1 to 3 of another kind; never invalid."""
    position, rng = read_position(decision.messages), Random(decision.seed)
    takeable, draw = list(position.acceptable()), rng.random()
    if takeable and draw < 0.4:
        return position.accepts(rng.choice(takeable), "Fine.")
    if position.offers and draw < 0.5:
        return position.says("Deny", "No, thanks.")
    if draw > 0.95:
        return "Let me think about it."
    owned = [i for i, count in enumerate(position.stock) if count]
    if not owned:
        return "I have nothing left."
    given = rng.choice(owned)
    wanted = rng.choice([i for i in range(len(position.kinds)) if i != given] or [given])
    give, get = rng.randint(1, min(3, position.stock[given])), rng.randint(1, 3)
    return position.proposes({given: give}, {wanted: get}, "How about this?")


def accept_best(position: Position, score: Callable[[Offer], float]) -> str | None:
    """Accepts the offer with the highest score above zero; None if there is none."""
    offers = {maker: score(offer) for maker, offer in position.acceptable().items()}
    best = max(offers, key=offers.__getitem__, default=None)
    return None if best is None or offers[best] <= 0 else position.accepts(best, "Agreed.")


def swaps(position: Position) -> list[tuple[int, int]]:
    """Pairs of kinds, the first owned by the player and the second worth more to it, most profitable first."""
    values, kinds = position.values, range(len(position.kinds))
    pairs = [(i, j) for i in kinds for j in kinds if position.stock[i] and values[j] > values[i]]
    return sorted(pairs, key=lambda pair: values[pair[0]] - values[pair[1]])


def fair_trader(decision: Decision) -> str:
    """Accepts any gain; else offers one for one, cycling through all profitable swaps. No trade ever loses it value."""
    position = read_position(decision.messages)
    accepted = accept_best(position, lambda offer: gain(offer, position.values))
    pairs = swaps(position)
    if accepted or not pairs:
        return accepted or position.says("Deny", "I keep what I have.")
    give, get = pairs[decision.turn % len(pairs)]
    return position.proposes({give: 1}, {get: 1}, f"I need {position.kinds[get]}.")


def greedy_trader(decision: Decision) -> str:
    """Accepts any offer with a gain; else asks for three units of its dearest goods for one of its cheapest."""
    position = read_position(decision.messages)
    accepted = accept_best(position, lambda offer: gain(offer, position.values))
    pairs = swaps(position)
    if accepted or not pairs:
        return accepted or position.says("Deny", "I keep what I have.")
    return position.proposes({pairs[0][0]: 1}, {pairs[0][1]: 3}, "Take it or leave it.")
