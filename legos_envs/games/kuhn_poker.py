"""Kuhn poker: three cards, two players, one bet. It is the smallest game with bluffing, and it is fully solved: at
equilibrium the first player loses 1/18 of a chip per hand. Play one hand, or a match of several hands in which chips
carry over.

| | |
|---|---|
| seats | `player_0`, `player_1` |
| horizon | 2 or 3 turns a hand |
| sum of rewards | 0 |

Both players ante one chip and get one card of J < Q < K. The first player checks or bets one chip. The answer to a
check is a check (showdown) or a bet; the answer to a bet is a call (showdown) or a fold. Bets and calls go into the
pot: a showdown without a bet is worth one chip, as is a fold; a called bet is worth two.

## What each seat is told

The rules, its own card and the moves so far. Never the opponent's card. In a match, both cards are revealed after a
showdown; after a fold, neither is.

## Actions

`[check]` or `[bet]`; after a bet `[call]` or `[fold]`.

## Rewards

One hand: the chips won, -2, -1, +1 or +2. A match: +1 to the player with more chips at the end, -1 to the other, 0 to
both when level. What counts is the total over all hands, which is `chips` in a player's final info.

## End

After the hand, or after `num_rounds` hands. Players take turns moving first.

## Arguments

SPIRAL's setting is `num_rounds=5` with `preset="spiral"`: no retry after an invalid move, -1.5 to the offender, +0.5 to
the opponent. The sum of rewards is then -1 for a match that ends with an invalid move.

## Scripted players

`optimal` plays the equilibrium with alpha = 1/3 (one hand only); `scripted:always_bet` bets and calls; `scripted:first`
checks and calls; `scripted:last` bets and folds. All returns are exact.

| players | expected return | arguments | floor |
|---|---|---|---|
| `*=optimal` | `player_0 -0.0556, player_1 +0.0556` | | `player_0 -0.0556, player_1 +0.0556` |
| `*=random` | `player_0 +0.1250, player_1 -0.1250` | |
| `player_0=random player_1=optimal` | `player_0 -0.1667, player_1 +0.1667` | |
| `player_0=scripted:always_bet player_1=optimal` | `player_0 -0.1111, player_1 +0.1111` | |
| `player_0=scripted:always_bet player_1=random` | `player_0 +0.5000, player_1 -0.5000` | |
| `player_0=scripted:always_bet player_1=random` | `player_0 +0.4268, player_1 -0.4268` | `num_rounds=5` |
| `*=random` | `player_0 +0.0333, player_1 -0.0333` | `num_rounds=5` |

## Source

H. W. Kuhn, "A simplified two-person poker", Contributions to the Theory of Games 1, 1950. Matches and their preset:
B. Liu et al., "SPIRAL: Self-Play on Zero-Sum Games Incentivizes Reasoning via Multi-Agent Multi-Turn Reinforcement
Learning", 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import Any

from legos_envs import arguments
from legos_envs.game import GameEnv, InfoSet, State
from legos_envs.play import Decision
from legos_envs.spaces import Numbers, last, one_hot
from legos_envs.table import Rules, Seat, Table

CARDS = "JQK"
ENDS = {("check", "check"), ("bet", "call"), ("bet", "fold"), ("check", "bet", "call"), ("check", "bet", "fold")}
KuhnState = tuple[tuple[int, int], tuple[str, ...]]
"""The two cards (indices into `CARDS`) and the moves so far."""


@dataclass(frozen=True)
class KuhnPokerGame:
    """One hand of Kuhn poker; returns are chips won."""

    num_players = 2

    def initial(self) -> list[tuple[float, State]]:
        return [(1 / 6, (cards, ())) for cards in permutations(range(3), 2)]

    def player(self, state: KuhnState) -> int | None:
        return None if state[1] in ENDS else len(state[1]) % 2

    def legal(self, state: KuhnState) -> tuple[str, ...]:
        return ("call", "fold") if "bet" in state[1] else ("check", "bet")

    def next(self, state: KuhnState, move: str) -> KuhnState:
        return state[0], (*state[1], move)

    def returns(self, state: KuhnState) -> tuple[float, float]:
        cards, moves = state
        first_wins = len(moves) % 2 == 0 if moves[-1] == "fold" else cards[0] > cards[1]
        chips = 2.0 if moves[-1] == "call" else 1.0
        return (chips, -chips) if first_wins else (-chips, chips)

    def rules(self, player: int) -> str:
        return (
            "Kuhn poker. Each player antes 1 chip and gets one card of J < Q < K. "
            "You may check or bet 1 chip; a bet is answered by call or fold. The higher card wins the pot."
        )

    def view(self, state: KuhnState, player: int) -> str:
        return f"You are player {player}. Moves: {' '.join(state[1]) or 'none'}. Your card: {CARDS[state[0][player]]}."

    def nash(self, infoset: InfoSet) -> dict[str, float]:
        """The equilibrium returned by `legos_envs.exact.nash`."""
        return kuhn_nash(infoset)


def kuhn_nash(infoset: InfoSet, alpha: float = 1 / 3) -> dict[str, float]:
    """Kuhn poker's family of equilibria, one for each `alpha` in [0, 1/3]: probabilities of the legal moves."""
    card, moves = infoset.view[-2], infoset.view.partition("Moves: ")[2].partition(".")[0]
    if moves == "none":
        bet = {"J": alpha, "Q": 0.0, "K": 3 * alpha}[card]
        return {"check": 1 - bet, "bet": bet}
    if moves == "check":
        bet = {"J": 1 / 3, "Q": 0.0, "K": 1.0}[card]
        return {"check": 1 - bet, "bet": bet}
    call = {"J": 0.0, "Q": 1 / 3 if moves == "bet" else alpha + 1 / 3, "K": 1.0}[card]
    return {"call": call, "fold": 1 - call}


def always_bet(decision: Decision) -> str:
    """Bets and calls regardless of its card."""
    return "call" if any("fold" in action for action in decision.legal_actions or ()) else "bet"


class KuhnPoker(GameEnv):
    """Kuhn poker for two players, one hand or a match of several.

    With `num_rounds=1` the reward is the chips won. In a match, chips carry over, the first move alternates, and the
    player with more chips at the end gets 1, the other -1; both get 0 when level.

    Args:
        num_rounds: hands in a match, 1 to 100.

    Raises:
        ValueError: `num_rounds` is out of range; or, at `reset`, the option `cards` is not two different cards.
    """

    name = "KuhnPoker-v0"
    replayable = True
    zero_sum = True
    hidden_information = True
    seats = {f"player_{i}": Seat(f"player_{i}") for i in range(2)}
    game = KuhnPokerGame()
    reset_options = {"cards": "two different cards to deal in the first hand, such as 'KQ' (player_0 has the king)"}
    scripted_players = {"always_bet": always_bet}

    def __init__(self, num_rounds: int = 1, **kwargs: Any):
        self.num_rounds = arguments.whole("num_rounds", num_rounds, 1, 100)
        self.max_asks = 3 * self.num_rounds
        self.replayable = self.num_rounds == 1  # later hands are dealt during play
        super().__init__(**kwargs)

    def numbers(self) -> Numbers:
        """Card, seat and moves of the hand, one-hot; in a match also the share of rounds played and one's own chips."""
        histories, many = ("none", "check", "bet", "check bet"), self.num_rounds > 1

        def read(text: str) -> list[float]:
            hand = one_hot(last("Your card: (.)", text), CARDS) + one_hot(last(r"You are player (\d)", text), "01")
            hand += one_hot(last(r"Moves: ([a-z ]+)\.", text), histories)
            played, chips = last(r"Round (\d+) of", text), last(r"Your chips: ([-+]\d+)", text)
            match = [int(played or 0) / self.num_rounds, int(chips or 0) / (2 * self.num_rounds)]
            return hand + match if many else hand

        names = (*(f"card {card}" for card in CARDS), "first", "second", *(f"moves {moves}" for moves in histories))
        return Numbers(("check", "bet", "call", "fold"), names + ("round", "chips") * many, read)

    def deal(self, table: Table) -> State:
        cards = table.options.get("cards")
        if cards is None:
            return super().deal(table)
        if not (isinstance(cards, str) and len(set(cards)) == len(cards) == 2 and set(cards) <= set(CARDS)):
            raise ValueError(f"option cards must be two different letters of {CARDS!r}, such as 'KQ'; got {cards!r}")
        return ((CARDS.index(cards[0]), CARDS.index(cards[1])), ())

    def play(self, table: Table) -> Rules[tuple[float, ...]]:
        return super().play(table) if self.num_rounds == 1 else self._match(table)

    def _match(self, table: Table) -> Rules[tuple[float, ...]]:
        game, agents = self.game, self.possible_agents
        chips = [0.0, 0.0]
        for agent in agents:
            table.tell(agent, f"{game.rules(0)} You play {self.num_rounds} rounds; who has more chips at the end wins.")
        for number in range(self.num_rounds):
            first = number % 2
            seats = (first, 1 - first)
            state = self.deal(table if number == 0 else table.sub(f"round_{number}"))
            while (player := game.player(state)) is not None:
                seat = seats[player]
                header = f"Round {number + 1} of {self.num_rounds}. Your chips: {chips[seat]:+.0f}."
                move = yield from table.ask(
                    agents[seat], f"{header} {game.view(state, player)}", legal=game.legal(state)
                )
                state = game.next(state, move)
            for player, won in enumerate(game.returns(state)):
                chips[seats[player]] += won
            shown = "folded" if state[1][-1] == "fold" else f"cards {CARDS[state[0][0]]} against {CARDS[state[0][1]]}"
            for seat, agent in enumerate(agents):
                table.tell(agent, f"Round {number + 1}: {' '.join(state[1])}, {shown}. Your chips: {chips[seat]:+.0f}.")
        sign = float(chips[0] > chips[1]) - float(chips[0] < chips[1])
        for seat, agent in enumerate(agents):
            table.reward(agent, sign if seat == 0 else -sign)
            table.note(agent, chips=chips[seat])
        return (sign, -sign)
