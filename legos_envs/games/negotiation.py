"""Players trade goods that each of them values differently, and talk while they do. One player's cheapest goods may be
another's dearest, so good talk makes everybody richer, and greed leaves value on the table. The environment computes
how much is left.

| | |
|---|---|
| seats | `player_0`, `player_1`, ... |
| horizon | `rounds` turns per player: 10 turns by default |
| sum of rewards | general; 0 with `outcome="win_lose"` |
| sample action | `"I need Sheep. [Offer: 1 Wheat -> 1 Sheep]"` |

Every player gets some units of each resource and a private value per unit, a whole number drawn separately for each
player. Every player speaks once per round. A player has at most one standing offer; a new one replaces it. An offer
stands until it is accepted, until everyone who may accept it has denied it, or until its maker no longer owns the
goods. Goods only change hands.

## What each seat is told

The rules. Each turn: its goods, the value of a unit to it, its gain so far, what the others said (one line each, at
most 1000 characters), the trades, the offers it may accept and its own standing offer. Never the goods or values of
others.

## Actions

A message, with at most one action (the last one counts):

- `[Offer: 3 Sheep, 2 Ore -> 5 Brick]`: gives 3 Sheep and 2 Ore for 5 Brick, to whoever accepts first.
- `[Offer player_1: 3 Sheep -> 5 Brick]`: only `player_1` may accept it, but all others see it.
- `[Accept]`, or `[Accept player_1]` if several offers are open: invalid if there is no offer, or the player lacks the
  goods.
- `[Deny]` turns down all open offers, `[Deny player_1]` only that player's.
- `[Done]`: no more trades. The game ends when all players say so in turn.

A message without an action is talk.

## Rewards

The gain: the value to the player of its goods at the end, minus that of its goods at the start, divided by the latter.
It is at least -1, 0 without a trade, and unbounded above. With `outcome="win_lose"`, rewards go by rank in gain, evenly
spaced from +1 to -1; ties share.

With `weights`, the reward is a weighted sum of these parts, the last two of which are common to all players; by default
it is the gain alone:

| part | meaning |
|---|---|
| `gain` | the player's own gain, as above |
| `efficiency` | `welfare` as a share of `welfare` + `pareto_gap`: 1 at a Pareto optimum, 0 while nobody has gained |
| `fairness` | the smallest gain of all players |

An invalid move costs 1, or the weights of `gain` and `fairness` together if that is more: no trade can cost more than
that.

## End

After exactly `rounds` rounds, or once all players have said `[Done]` in turn. At the turn limit `max_turns` the game is
settled the same way. Infos: `gain` of each seat (not divided), `trades`, and

- `welfare`: the sum of the gains as the rewards count them;
- `pareto_gap`: how much `welfare` could still rise without making anyone worse off;
- `pareto_optimal`: whether that is 0;
- `pareto_method`: `"enumeration"` of all allocations of whole units if there are at most 20,000 (two players, three
  kinds and 12 units of each have 2,197), so that both numbers are exact; otherwise `"linear_program"`, which may divide
  units: the gap is then an upper bound, 0 only at an optimum, and `pareto_optimal` refers to divisible goods. If scipy
  (`pip install "legos-selfplay[tasks]"`) is missing in that case, these three and `efficiency` are None;
- `efficiency` and `fairness`, as above, regardless of the weights.

## Scripted players

`scripted:trader` accepts any offer with a gain and offers one for one, cycling through all profitable swaps: it never
loses, and a pair of them reaches a welfare of 0.28 and leaves a gap of 0.22. `scripted:greedy` asks for three for one:
it gets more from `random` (+0.37), but a pair reaches only 0.08 and leaves 0.46. `random` offers a few units and
accepts two fifths of all offers. Over 6,000 episodes the 95 % intervals are +-0.006 or less (`win_lose`: +-0.023 over
4,000).

| players | expected return | arguments | floor |
|---|---|---|---|
| `*=scripted:trader` | `player_0 +0.145, player_1 +0.134` | | `0` |
| `*=scripted:greedy` | `player_0 +0.044, player_1 +0.040` | |
| `player_0=scripted:trader player_1=random` | `player_0 +0.231, player_1 -0.030` | |
| `player_0=scripted:trader player_1=random` | `player_0 +0.66, player_1 -0.66` | `outcome="win_lose"` |

With efficiency alone, `weights={"gain": 0, "efficiency": 1}`, two `trader` players get 0.49 each and two `random` ones
0.23; with fairness alone, 0.09 and -0.15 (3,000 and 1,000 episodes, +-0.02 or less).

## Source

Trading with private values after SPIRAL's and TextArena's negotiation games, https://arxiv.org/abs/2506.24119, extended
to general sums and several players. TextArena's own `Negotiation` is not registered and cannot be created.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from legos_envs import arguments
from legos_envs.games import allocation, trading
from legos_envs.games.market import Market, TradingGame
from legos_envs.games.traders import fair_trader, greedy_trader, random_trader
from legos_envs.table import Rules, Seat, Table, Truncated

OUTCOMES = ("gain", "win_lose")
WEIGHTS = {"gain": 1.0, "efficiency": 0.0, "fairness": 0.0}
PARTS = {
    "gain": "your own gain",
    "efficiency": "the share of what all together could gain that was gained, 0 to 1",
    "fairness": "the smallest gain of all players",
}
"""The parts of the reward, as described to players."""
MOST_PLAYERS = 8


def rank_rewards(scores: Sequence[float]) -> list[float]:
    """From +1 for the highest score to -1 for the lowest, evenly spaced; ties share. The sum is zero."""
    steps = len(scores) - 1
    beaten = [sum(other < score for other in scores) - sum(other > score for other in scores) for score in scores]
    return [number / steps for number in beaten]


class Negotiation(TradingGame):
    """Trading with talk for 2 to 8 players with private values.

    Args:
        num_players: 2 to 8.
        resources: number of kinds of goods, 2 to 8, or a list of their names.
        rounds: number of rounds, in each of which every player has one turn.
        quantities: minimum and maximum units of a resource that a player gets, drawn uniformly.
        values: minimum and maximum value of a unit to a player, drawn uniformly.
        outcome: `"gain"` rewards the gain as a share of the initial value of the goods; `"win_lose"` ranks players by
            that share, from +1 to -1.
        weights: weights of the reward's parts, `{"gain": 1, "efficiency": 0, "fairness": 0}` by default; any of them
            may be left out. Only for outcome `"gain"`.

    Raises:
        ValueError: an argument is out of range, or an option leaves a player with nothing of value.
        ImportError: the reward includes efficiency, and computing it in a market this large takes scipy, which is
            missing.
    """

    name = "Negotiation-v0"
    scripted_players = {"random": random_trader, "trader": fair_trader, "greedy": greedy_trader}

    def __init__(
        self,
        num_players: int = 2,
        resources: int | Sequence[str] = 3,
        rounds: int = 5,
        quantities: tuple[int, int] = (1, 6),
        values: tuple[int, int] = (1, 10),
        outcome: str = "gain",
        weights: Mapping[str, float] | None = None,
        **kwargs: Any,
    ):
        count = arguments.whole("num_players", num_players, 2, MOST_PLAYERS)
        self.kinds = trading.kind_names(resources)
        self.rounds = arguments.whole("rounds", rounds, 1, 100)
        self.quantities = _bounds("quantities", quantities)
        self.worth = _bounds("values", values)
        self.outcome = arguments.one_of("outcome", outcome, OUTCOMES)
        self.zero_sum = outcome == "win_lose"  # type: ignore[misc]  # a class constant elsewhere
        self.weights = _weights(weights, outcome)
        # Gain and fairness go down to -1 each: an invalid move must not be the cheap way out of a bad trade.
        self.default_invalid_reward = -max(1.0, self.weights["gain"] + self.weights["fairness"])  # type: ignore[misc]
        self.seats = {f"player_{i}": Seat(f"player_{i}") for i in range(count)}
        self.max_asks = count * self.rounds
        super().__init__(**kwargs)

    def play(self, table: Table) -> Rules[dict[str, float]]:
        players = self.possible_agents
        market = self.open_market(table, self.quantities, [self.worth] * len(self.kinds), players)
        worthless = [player for player in players if not market.start[player]]
        if worthless:
            raise ValueError(f"options stock and values leave {worthless[0]} with nothing of value")
        for player in players:
            table.tell(player, self._rules[player])
        try:
            yield from self._trade(table, market)
        except Truncated:
            self._settle(table, market)
            raise
        return self._settle(table, market)

    def _trade(self, table: Table, market: Market) -> Rules[None]:
        done = 0  # how many in a row
        for number in range(1, self.rounds + 1):
            for player in market.players:
                action = yield from self.speak(table, market, player, f"Round {number} of {self.rounds}.")
                done = done + 1 if action is not None and action.kind == "done" else 0
                if done == len(market.players):
                    return

    def _settle(self, table: Table, market: Market) -> dict[str, float]:
        shares = [market.change(player) / market.start[player] for player in market.players]
        welfare, fairness = sum(shares), min(shares)
        verdict = allocation.pareto(
            [market.values[player] for player in market.players],
            [market.stock[player] for player in market.players],
            [1 / market.start[player] for player in market.players],
        )
        efficiency = None if verdict is None else _efficiency(welfare, verdict.gap)
        if efficiency is None and self.weights["efficiency"]:
            raise ImportError(f"rewarding efficiency in a market this large needs scipy: {arguments.install('tasks')}")
        common = self.weights["efficiency"] * (efficiency or 0.0) + self.weights["fairness"] * fairness
        own = shares if self.outcome == "gain" else rank_rewards(shares)
        returns = {player: self.weights["gain"] * value + common for player, value in zip(market.players, own)}
        self.settle_by_gain(
            table,
            market,
            returns,
            welfare=welfare,
            efficiency=efficiency,
            fairness=fairness,
            pareto_optimal=None if verdict is None else verdict.optimal,
            pareto_gap=None if verdict is None else verdict.gap,
            pareto_method=None if verdict is None else verdict.method,
        )
        return returns

    @cached_property
    def _rules(self) -> dict[str, str]:
        """The opening message to each player."""
        share = "(worth at the end - worth at the start) / worth at the start"
        if self.outcome == "win_lose":
            aim = f"Players are ranked by {share}; worth counts all of a player's goods, by its own values."
        elif self.weights == WEIGHTS:
            aim = f"Your reward is {share}; worth counts all your goods, by your values."
        else:
            parts = [f"{weight:g} times {PARTS[part]}" for part, weight in self.weights.items() if weight]
            aim = f"A player's gain is {share}, by its own values. Your reward is {' plus '.join(parts)}."
        aim = f"There are {self.rounds} rounds. {aim}"
        texts = {}
        for player in self.possible_agents:
            others = ", ".join(other for other in self.possible_agents if other != player)
            lines = [
                f"You are {player} and trade with {others}. "
                f"Only you know what you own and what a unit is worth to you; the same holds for the others. {aim}",
                *self.how_to_act(len(self.possible_agents)),
            ]
            texts[player] = "\n".join(lines)
        return texts


def _weights(given: Mapping[str, float] | None, outcome: str) -> dict[str, float]:
    own = arguments.mapping("weights", given)
    for part in own:
        if part not in WEIGHTS:
            raise ValueError(arguments.unknown("weight", part, list(WEIGHTS)))
    chosen = {part: arguments.real(f"weight {part}", value, 0) for part, value in {**WEIGHTS, **own}.items()}
    if outcome != "gain" and chosen != WEIGHTS:
        raise ValueError(f"weights are for outcome 'gain'; got {given!r} with outcome {outcome!r}")
    if not any(chosen.values()):
        raise ValueError(f"one of the weights must be above 0; got {given!r}")
    return chosen


def _efficiency(welfare: float, gap: float) -> float:
    """The share of the possible gain that was realised, 0 to 1."""
    gained = max(0.0, welfare)
    return gained / (gained + gap) if gained + gap else float(welfare >= 0)


def _bounds(name: str, given: Any) -> tuple[int, int]:
    if not isinstance(given, list | tuple) or len(given) != 2:
        raise ValueError(f"{name} must be two whole numbers, minimum and maximum; got {given!r}")
    least = arguments.whole(name, given[0], 1, 1000)
    return least, arguments.whole(name, given[1], least, 1000)
