"""Two players own five kinds of goods, value them differently and trade by talking; whoever has gained more at the end
wins. The rules are those of SPIRAL's and TextArena's `SimpleNegotiation`, with their mistakes fixed.

| | |
|---|---|
| seats | `player_0`, `player_1` |
| horizon | 10 turns, exactly |
| sum of rewards | 0 |
| sample action | `"I need Ore. [Offer: 1 Wood -> 1 Ore]"` |

Each player gets 5 to 25 units of Wheat, Wood, Sheep, Brick and Ore. A unit is worth 5, 10, 15, 25 or 40 to a player,
each varied at random by up to a fifth but never outside 5 to 40. An offer stands for one answer: if the other player
does not accept it at once, it is gone.

## What each seat is told

The rules. Each turn: its goods, the value of a unit to it, its gain so far, what the opponent said (one line, at most
1000 characters) and the offer it may accept. Never the opponent's goods or values.

## Actions

A message, with at most one action (the last one counts):

- `[Offer: 3 Sheep, 2 Ore -> 5 Brick]`: gives 3 Sheep and 2 Ore for 5 Brick. Any offer within one's means is legal.
- `[Accept]`: takes the opponent's offer; invalid if there is none or the player cannot cover it.
- `[Deny]`: turns it down, as does any other message. A message without an action is talk.

## Rewards

Each player's gain is the change in the value of its goods, at its own values: +1 for the larger gain, -1 for the
smaller, 0 for a tie.

## End

After exactly `turns` turns (infos: `gain` of each seat, `trades`, `winner`, None for a draw). At the turn limit
`max_turns` the game is settled the same way.

## Arguments

`preset="spiral"` handles invalid moves as in the SPIRAL paper.

## Scripted players

`scripted:shrewd` offers one unit of its cheapest goods for one of its dearest, and accepts an offer if it gains more
from it than the other player would at the base values; `scripted:trusting` accepts every offer and makes none; `random`
offers a few units and accepts two fifths of all offers. Against `random`, `shrewd` gets +0.985 (4,000 episodes from
each seat, 95 % interval +-0.003).

| players | expected return | arguments | floor |
|---|---|---|---|
| `player_0=scripted:shrewd player_1=random` | `player_0 +0.985, player_1 -0.985` | |
| `player_0=random player_1=scripted:shrewd` | `player_0 -0.985, player_1 +0.985` | |
| `player_0=scripted:shrewd player_1=scripted:trusting` | `player_0 +1, player_1 -1` | |
| `*=scripted:shrewd` | `player_0 0, player_1 0` | | `0` |

## Source

Liu et al., "SPIRAL", 2025, https://arxiv.org/abs/2506.24119; TextArena, https://github.com/LeonGuertler/TextArena.
Unlike the originals, every offer within one's means is legal, nobody can accept their own offer, `[Deny]` clears the
offer, and the game has the announced number of turns.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from legos_envs import arguments
from legos_envs.games.market import Market, TradingGame
from legos_envs.games.traders import accept_best, gain, random_trader, read_position, swaps
from legos_envs.games.trading import KINDS
from legos_envs.play import Decision
from legos_envs.table import Rules, Seat, Table, Truncated

BASE_VALUES = {"Wheat": 5, "Wood": 10, "Sheep": 15, "Brick": 25, "Ore": 40}
QUANTITIES = (5, 25)


def value_bounds(base: int) -> tuple[int, int]:
    """The bounds of private values: within a fifth of the base value, and never outside 5 to 40."""
    return max(base - base // 5, 5), min(base + base // 5, 40)


def shrewd(decision: Decision) -> str:
    """Accepts an offer if it gains more than the other would at base values; else offers cheap goods for dear ones."""
    position = read_position(decision.messages)
    base = [BASE_VALUES[kind] for kind in position.kinds]
    accepted = accept_best(
        position, lambda offer: min(gain(offer, position.values), gain(offer, position.values) + gain(offer, base))
    )
    pairs = swaps(position)
    if accepted or not pairs:
        return accepted or position.says("Deny", "No.")
    give, get = pairs[0]
    return position.proposes({give: 1}, {get: 1}, f"I really need {position.kinds[get]}.")


def trusting(decision: Decision) -> str:
    """Accepts every offer it can cover and makes none."""
    position = read_position(decision.messages)
    return next((position.accepts(maker, "Sure.") for maker in position.acceptable()), "What do you offer?")


class SimpleNegotiation(TradingGame):
    """Trading with talk for two players; the larger gain wins.

    Args:
        turns: length of the game in turns, counting both players, 2 to 1000.
    """

    name = "SimpleNegotiation-v0"
    zero_sum = True
    seats = {f"player_{i}": Seat(f"player_{i}") for i in range(2)}
    scripted_players = {"random": random_trader, "shrewd": shrewd, "trusting": trusting}
    kinds = KINDS[:5]
    answers_count = True
    can_finish = False

    def __init__(self, turns: int = 10, **kwargs: Any):
        self.turns = arguments.whole("turns", turns, 2, 1000)
        self.max_asks = self.turns
        super().__init__(**kwargs)

    def play(self, table: Table) -> Rules[tuple[float, float]]:
        players = self.possible_agents
        bounds = [value_bounds(BASE_VALUES[kind]) for kind in self.kinds]
        market = self.open_market(table, QUANTITIES, bounds, players)
        for player in players:
            table.tell(player, self._rules[player])
        try:
            for turn in range(self.turns):
                yield from self.speak(table, market, players[turn % 2], f"Turn {turn + 1} of {self.turns}.")
        except Truncated:
            self._settle(table, market)
            raise
        return self._settle(table, market)

    def _settle(self, table: Table, market: Market) -> tuple[float, float]:
        first, second = (market.change(player) for player in market.players)
        sign = float(first > second) - float(first < second)
        winner = None if sign == 0 else market.players[0 if sign > 0 else 1]
        self.settle_by_gain(table, market, dict(zip(market.players, (sign, -sign))), winner=winner)
        return sign, -sign

    @cached_property
    def _rules(self) -> dict[str, str]:
        """The opening message to each player."""
        first, second = self.possible_agents
        how = "\n".join(self.how_to_act(2))
        return {
            player: f"You are {player} and trade with {other}. "
            "Only you know what you own and what a unit is worth to you; the same holds for the other. "
            f"There are {self.turns} turns in all. The player with the larger "
            "(worth at the end - worth at the start) wins; worth counts all of a player's goods, by its own values."
            f"\n{how}"
            for player, other in ((first, second), (second, first))
        }
