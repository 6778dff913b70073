"""One round of liar's dice as a `Game`, and its bids."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement, product

from legos_envs.game import MAX_STATES, State

CALL = "call"
MOST_LISTED = 60
"""With more bids than this, prompts show only the lowest and the highest: 15 players with 5 dice each have 450."""
Dice = tuple[int, ...]
Round = tuple[tuple[Dice, ...], tuple[str, ...]]
"""The sorted dice of every player, and the moves so far."""


@lru_cache(1024)
def ladder(total: int, faces: int) -> dict[str, int]:
    """Every bid with `total` dice in play, lowest first, and its index: `1x1` is 0."""
    names = [f"{quantity}x{face}" for quantity in range(1, total + 1) for face in range(1, faces + 1)]
    return {name: place for place, name in enumerate(names)}


@lru_cache(16384)
def higher(total: int, faces: int, bid: str | None) -> tuple[str, ...]:
    """The bids above `bid`; all bids for None."""
    return tuple(ladder(total, faces))[0 if bid is None else ladder(total, faces)[bid] + 1 :]


def read_bid(bid: str) -> tuple[int, int]:
    """Quantity and face."""
    quantity, _, face = bid.partition("x")
    return int(quantity), int(face)


@dataclass(frozen=True)
class LiarsDiceGame:
    """One round: the bidder and the caller win or lose 1, all others get 0. Players are numbered in turn order.

    Attributes:
        counts: dice of each player.
        faces: faces of a die.
        wild: whether dice that show the highest face count as any face.
        seats: the numbers by which texts refer to the players; 0, 1, 2 ... if empty.
    """

    counts: tuple[int, ...] = (1, 1)
    faces: int = 6
    wild: bool = False
    seats: tuple[int, ...] = ()

    num_players = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_players", len(self.counts))

    @property
    def size(self) -> int:
        """The number of states of the round."""
        hands = math.prod(math.comb(count + self.faces - 1, count) for count in self.counts)
        return hands * (2 ** (sum(self.counts) * self.faces + 1) - 1)

    @property
    def solvable(self) -> bool:
        """Whether the round has few enough states to visit them all."""
        return self.size <= MAX_STATES

    def initial(self) -> list[tuple[float, State]]:
        if not self.solvable:
            raise ValueError(f"a round of liar's dice with {self.counts} dice is too large for exact evaluation")
        deals = product(*(_rolls(count, self.faces) for count in self.counts))
        return [(math.prod(chance for chance, _ in deal), (tuple([hand for _, hand in deal]), ())) for deal in deals]

    def player(self, state: Round) -> int | None:
        moves = state[1]
        return None if moves and moves[-1] == CALL else len(moves) % len(self.counts)

    def legal(self, state: Round) -> tuple[str, ...]:
        moves = state[1]
        if not moves:
            return higher(sum(self.counts), self.faces, None)
        return (CALL, *higher(sum(self.counts), self.faces, moves[-1]))

    def next(self, state: Round, move: str) -> Round:
        return state[0], (*state[1], move)

    def verdict(self, state: Round) -> tuple[int, int, int]:
        """Who loses, who wins, and how many dice matched the bid that was called."""
        hands, moves = state
        quantity, face = read_bid(moves[-2])
        matching = (face, self.faces) if self.wild else (face,)
        matching_dice = sum([die in matching for hand in hands for die in hand])
        caller = (len(moves) - 1) % len(hands)
        bidder = (len(moves) - 2) % len(hands)
        return (caller, bidder, matching_dice) if matching_dice >= quantity else (bidder, caller, matching_dice)

    def returns(self, state: Round) -> tuple[float, ...]:
        loser, winner, _ = self.verdict(state)
        return tuple([float(i == winner) - float(i == loser) for i in range(len(self.counts))])

    def rules(self, player: int) -> str:
        return (
            f"{self.how_to_bid()} A call ends the game: the bidder loses if the bid was false, else the caller loses."
        )

    def how_to_bid(self) -> str:
        wild = f" Dice that show {self.faces} count as any face." if self.wild else ""
        return (
            f"Liar's dice. Each of {len(self.counts)} players has hidden dice with faces 1 to {self.faces}.{wild} "
            "In turn, bid or call the last bid. The bid 3x4 says: of all dice together, at least 3 show a 4. "
            "A higher bid has a larger quantity, or the same quantity and a higher face."
        )

    def view(self, state: Round, player: int) -> str:
        hands, moves = state
        seats = self.seats or range(len(self.counts))
        bids = higher(sum(self.counts), self.faces, moves[-1] if moves else None)
        many = len(bids) > MOST_LISTED
        legal = f"any bid from {bids[0]} to {bids[-1]}" if many else " ".join(bids)
        made = ", ".join([f"player {seats[i % len(seats)]} {move}" for i, move in enumerate(moves)])
        offered = f"Higher bids: {legal}. Or call." if legal else "No bid is higher; call."
        if not moves:
            offered = f"Make {legal}." if many else f"Bid one of: {legal}."
        return (
            f"You are player {seats[player]}. {dice_of(hands[player])} Dice in play: {sum(self.counts)}.\n"
            f"Bids: {made or 'none'}.\n{offered}"
        )


def dice_of(hand: Dice) -> str:
    return f"Your dice: {' '.join(map(str, hand))}."


def _rolls(count: int, faces: int) -> Iterator[tuple[float, Dice]]:
    """Every sorted hand with its probability."""
    for hand in combinations_with_replacement(range(1, faces + 1), count):
        ways = math.factorial(count) // math.prod(math.factorial(n) for n in Counter(hand).values())
        yield ways / faces**count, hand
