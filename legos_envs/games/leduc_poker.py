"""Leduc hold'em: poker with six cards, two rounds of betting and one public card. It is small enough to compute the
NashConv of any policy exactly, and rich enough that bluffing, slow play and reading the opponent's bets all pay. At
equilibrium the first player loses 0.0856 chips per hand.

| | |
|---|---|
| seats | `player_0`, `player_1` |
| horizon | 2 to 8 turns |
| sum of rewards | 0 |

The deck has two each of J < Q < K. Both players ante one chip and get one card. In the first round a bet or raise adds
two chips to the opponent's stake, in the second round four; one public card is shown in between. A round has at most
one bet and one raise, and `player_0` begins both. A pair with the public card wins, otherwise the higher card; equal
cards split the pot. Suits never matter, so cards are dealt and shown as ranks: 288 information sets.

## What each seat is told

The rules, the moves so far, the pot, the cost of a call, its own card and, in the second round, the public card. Never
the opponent's card, nor the public card before the first round is over.

## Actions

`[check]` or `[bet]`; after a bet `[fold]`, `[call]` or `[raise]`; after a raise `[fold]` or `[call]`.

## Rewards

The chips won, from -13 to +13; 0 for a split pot. By default an invalid move also costs 13 (`invalid_reward`), so that
it is never cheaper than a fold.

## End

After a fold, or after the second round.

## Scripted players

`optimal` is found by CFR+ to a NashConv of 0.001 chips, in a fraction of a second; `scripted:always_call` checks and
calls; `scripted:always_raise` bets and raises as long as it can; `scripted:honest` bets and raises with a king or a
pair, calls with a queen and folds a jack. All returns are exact.

| players | expected return | arguments | floor |
|---|---|---|---|
| `*=optimal` | `player_0 -0.0856, player_1 +0.0856` | | `player_0 -0.0856, player_1 +0.0856` |
| `*=random` | `player_0 -0.0781, player_1 +0.0781` | |
| `player_0=random player_1=scripted:always_raise` | `player_0 -2.5764, player_1 +2.5764` | |
| `player_0=scripted:honest player_1=random` | `player_0 +1.0167, player_1 -1.0167` | |
| `player_0=scripted:honest player_1=scripted:always_raise` | `player_0 +1.6667, player_1 -1.6667` | |

NashConv, in chips: 4.7472 for uniformly random play, 4.7333 for `always_raise`, 2.9333 for `always_call`, 2.1000 for
`honest`.

## Source

F. Southey et al., "Bayes' Bluff: Opponent Modelling in Poker", UAI 2005. The rules are those of OpenSpiel's
`leduc_poker`; the tests compare payoffs and NashConv with it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from typing import NamedTuple

from legos_envs.game import ExactPolicy, GameEnv, InfoSet, State
from legos_envs.spaces import Numbers, last, one_hot, one_hots
from legos_envs.table import Seat, Table

CARDS = "JQK"
DECK = (0, 0, 1, 1, 2, 2)
ANTE = 1
RAISES = (2, 4)
"""Chips that a bet or raise adds in the first and in the second round."""
MAX_RAISES = 2
"""Bets and raises in a round, by both players together."""
Bets = tuple[str, ...]


class Hand(NamedTuple):
    """The cards of player 0, player 1 and the board (indices into `CARDS`), and the moves of each round so far."""

    cards: tuple[int, int, int]
    first: Bets = ()
    second: Bets = ()


@dataclass(frozen=True)
class LeducPokerGame:
    """One hand of Leduc hold'em; returns are chips won. Suits never matter, so cards are ranks: 24 deals."""

    num_players = 2

    def initial(self) -> list[tuple[float, State]]:
        deals = Counter(permutations(DECK, 3))
        return [(count / 120, Hand(cards)) for cards, count in sorted(deals.items())]

    def player(self, state: Hand) -> int | None:
        if "fold" in (state.first[-1:] + state.second[-1:]) or _closed(state.second):
            return None
        return len(state.second if _closed(state.first) else state.first) % 2

    def legal(self, state: Hand) -> Bets:
        moves = state.second if _closed(state.first) else state.first
        raises = _raises(moves)
        if raises == 0:
            return ("check", "bet")
        return ("fold", "call", "raise") if raises < MAX_RAISES else ("fold", "call")

    def next(self, state: Hand, move: str) -> Hand:
        cards, first, second = state
        return Hand(cards, first, (*second, move)) if _closed(first) else Hand(cards, (*first, move))

    def returns(self, state: Hand) -> tuple[float, float]:
        moves = state.second or state.first
        if moves[-1] == "fold":
            winner = len(moves) % 2  # the next to move: the opponent of the player who folded
        else:
            ranks = [(state.cards[i] == state.cards[2], state.cards[i]) for i in range(2)]
            if ranks[0] == ranks[1]:
                return 0.0, 0.0
            winner = int(ranks[1] > ranks[0])
        won = float(paid(state.first, state.second)[1 - winner])
        return (won, -won) if winner == 0 else (-won, won)

    def rules(self, player: int) -> str:
        return (
            "Leduc poker. Six cards: two each of J < Q < K. Each player antes 1 chip and gets one card. "
            "Two rounds of betting; one public card is shown between them. Bets and raises add 2 chips in round 1 and "
            "4 in round 2; at most one bet and one raise a round. Player 0 begins both rounds. "
            "A pair with the public card wins the pot, else the higher card; equal cards split it."
        )

    def view(self, state: Hand, player: int) -> str:
        cards = f"Your card: {CARDS[state.cards[player]]}."
        rounds = f"Round 1: {' '.join(state.first) or 'none'}."
        if _closed(state.first):
            cards += f" Public card: {CARDS[state.cards[2]]}."
            rounds += f" Round 2: {' '.join(state.second) or 'none'}."
        chips = paid(state.first, state.second)
        pot = f"Pot: {sum(chips)}. To call: {chips[1 - player] - chips[player]}."
        return f"You are player {player}. {rounds} {pot} {cards}"

    @property
    def scripted(self) -> dict[str, ExactPolicy]:
        """Players that follow a rule of thumb."""
        return {"always_call": always_call, "always_raise": always_raise, "honest": honest}


def always_call(infoset: InfoSet) -> dict[str, float]:
    """Checks and calls regardless of its cards."""
    return {"check" if "check" in infoset.legal else "call": 1.0}


def always_raise(infoset: InfoSet) -> dict[str, float]:
    """Bets and raises as long as it can, then calls."""
    return {next(move for move in ("bet", "raise", "call") if move in infoset.legal): 1.0}


def honest(infoset: InfoSet) -> dict[str, float]:
    """Bets and raises with a king or a pair; else checks, and facing a bet calls with a queen and folds a jack."""
    own, _, public = infoset.view.partition("Your card: ")[2].partition(".")
    if own == "K" or own == public.partition("Public card: ")[2][:1]:
        return always_raise(infoset)
    return always_call(infoset) if own == "Q" or "check" in infoset.legal else {"fold": 1.0}


@lru_cache(1024)
def paid(first: Bets, second: Bets) -> tuple[int, int]:
    """Each player's stake in the pot after the moves of both rounds."""
    chips = [ANTE, ANTE]
    for size, moves in zip(RAISES, (first, second)):
        for number, move in enumerate(moves):
            if move in ("bet", "raise"):
                chips[number % 2] = chips[1 - number % 2] + size
            elif move == "call":
                chips[number % 2] = chips[1 - number % 2]
    return chips[0], chips[1]


def _raises(moves: Bets) -> int:
    return moves.count("bet") + moves.count("raise")


def _closed(moves: Bets) -> bool:
    """Whether a round of betting is over without a fold."""
    return moves[-1:] == ("call",) or moves == ("check", "check")


class LeducPoker(GameEnv):
    """Leduc hold'em for two players, one hand; the reward is the chips won.

    Raises:
        ValueError: at `reset`, the option `cards` is not three cards of the deck.
    """

    name = "LeducPoker-v0"
    replayable = True
    zero_sum = True
    hidden_information = True
    default_invalid_reward = -13.0
    seats = {f"player_{i}": Seat(f"player_{i}") for i in range(2)}
    max_asks = 8
    game = LeducPokerGame()
    reset_options = {"cards": "the cards of player 0, player 1 and the board, such as 'KQJ'"}

    def numbers(self) -> Numbers:
        """Own and public card, seat and the moves of both rounds, one-hot; the cost of a call as a share of 8 chips."""
        moves, longest = ("check", "bet", "raise", "call"), 4

        def read(text: str) -> list[float]:
            hot = one_hot(last("Your card: (.)", text), CARDS) + one_hot(last("Public card: (.)", text), CARDS)
            hot += one_hot(last(r"You are player (\d)", text), "01")
            for number in (1, 2):
                hot += one_hots(last(rf"Round {number}: ([a-z ]+)\.", text), longest, moves)
            return [*hot, int(last(r"To call: (\d+)", text) or 0) / 8]

        cards = [f"{whose} {card}" for whose in ("own", "public") for card in CARDS]
        played = [f"round {n} move {i + 1} {move}" for n in (1, 2) for i in range(longest) for move in moves]
        return Numbers((*moves, "fold"), (*cards, "first", "second", *played, "to call"), read)

    def deal(self, table: Table) -> State:
        cards = table.options.get("cards")
        if cards is None:
            return super().deal(table)
        if not (isinstance(cards, str) and len(cards) == 3 and set(cards) <= set(CARDS) and len(set(cards)) > 1):
            raise ValueError(
                f"option cards must be three letters of {CARDS!r}, each at most twice, such as 'KQJ'; got {cards!r}"
            )
        return Hand((CARDS.index(cards[0]), CARDS.index(cards[1]), CARDS.index(cards[2])))
