"""Matrix games: both players choose simultaneously, and a table gives the payoffs. Rock-paper-scissors, matching
pennies, the prisoner's dilemma, the stag hunt, or your own table; once, or over several rounds with the history shown.
Equilibria are computed.

| | |
|---|---|
| seats | `player_0` (rows), `player_1` (columns) |
| horizon | 1 turn per player and round |
| sum of rewards | 0 for zero-sum tables, such as the default |

## What each seat is told

The payoff of each of its moves against each move of the opponent. With several rounds, both choices and its own payoff
in each earlier round. Never the opponent's choice in the current round: both can act at the same time (`ready_agents`).

## Actions

The names of the moves, such as `[rock]`.

## Rewards

The payoffs in the table, after each round. Rock-paper-scissors: -1, 0 or +1. The prisoner's dilemma: 3 for both to
cooperate, 1 for both to defect, 5 and 0 when one defects.

An invalid move costs 1 or, with your own `payoffs`, the most that the safest move can lose over all rounds, if that is
more.

## End

After `rounds` rounds.

## Scripted players

`optimal` plays the equilibrium with the largest sum of payoffs, the same in every round; `scripted:tit_for_tat` repeats
the opponent's last move and begins with the first move of the table; `scripted:first` and `scripted:last` always make
the same move. All returns are exact.

| players | expected return | arguments | floor |
|---|---|---|---|
| `*=random` | `player_0 +0.0, player_1 +0.0` | |
| `player_0=optimal player_1=scripted:first` | `player_0 +0.0, player_1 +0.0` | | `player_1 0` |
| `player_0=random player_1=scripted:first` | `player_0 -0.3333, player_1 +0.3333` | `game="biased_rps"` |
| `*=optimal` | `player_0 +3.0, player_1 +3.0` | `game="prisoners_dilemma", rounds=3` |
| `*=scripted:tit_for_tat` | `player_0 +9.0, player_1 +9.0` | `game="prisoners_dilemma", rounds=3` |
| `player_0=scripted:tit_for_tat *=optimal` | `player_0 +2.0, player_1 +7.0` | `game="prisoners_dilemma", rounds=3` |
| `player_0=scripted:tit_for_tat *=random` | `player_0 +6.0, player_1 +8.5` | `game="prisoners_dilemma", rounds=3` |

## Source

J. von Neumann and O. Morgenstern, "Theory of Games and Economic Behavior", 1944. Equilibria by support enumeration:
N. Nisan et al., "Algorithmic Game Theory", 2007, algorithm 3.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from string import ascii_lowercase
from typing import Any, NamedTuple

import numpy as np

from legos_envs import arguments, parsing
from legos_envs.game import GameEnv, InfoSet, State
from legos_envs.games.bimatrix import best_equilibrium
from legos_envs.play import Decision
from legos_envs.spaces import Numbers, last, one_hot
from legos_envs.table import Rules, Seat, Table

Payoffs = Sequence[Sequence[float]]


class NamedGame(NamedTuple):
    """A matrix game from the literature. `column` None means zero-sum."""

    actions: tuple[str, ...]
    row: Payoffs
    column: Payoffs | None = None


RPS = ("rock", "paper", "scissors")
MATRIX_GAMES = {
    "rps": NamedGame(RPS, [[0, -1, 1], [1, 0, -1], [-1, 1, 0]]),
    # Rock against scissors counts double: Nash plays 1/4, 1/2, 1/4; uniform play has NashConv 2/3.
    "biased_rps": NamedGame(RPS, [[0, -1, 2], [1, 0, -1], [-2, 1, 0]]),
    "matching_pennies": NamedGame(("heads", "tails"), [[1, -1], [-1, 1]]),
    "prisoners_dilemma": NamedGame(("cooperate", "defect"), [[3, 0], [5, 1]], [[3, 5], [0, 1]]),
    "stag_hunt": NamedGame(("stag", "hare"), [[4, 0], [3, 2]], [[4, 3], [0, 2]]),
}


@dataclass(frozen=True)
class MatrixGameRules:
    """A bimatrix game as a `Game`: player 0 moves first, player 1 moves without seeing it; returns add over the rounds.

    Attributes:
        payoffs: payoffs of players 0 and 1, each (rows, columns) indexed by the moves of player 0 and of player 1.
        actions: the names of the moves of player 0 (rows) and of player 1 (columns).
        rounds: number of rounds; after each, both players are told both moves.
    """

    payoffs: tuple[tuple[tuple[float, ...], ...], tuple[tuple[float, ...], ...]]
    actions: tuple[tuple[str, ...], tuple[str, ...]]
    rounds: int = 1
    num_players = 2

    @property
    def zero_sum(self) -> bool:
        return not np.add(*self.payoffs).any()

    def initial(self) -> list[tuple[float, State]]:
        return [(1.0, ())]

    def player(self, state: tuple[str, ...]) -> int | None:
        return None if len(state) == 2 * self.rounds else len(state) % 2

    def legal(self, state: tuple[str, ...]) -> tuple[str, ...]:
        return self.actions[len(state) % 2]

    def next(self, state: tuple[str, ...], move: str) -> tuple[str, ...]:
        return (*state, move)

    def pays(self, first: str, second: str) -> tuple[float, float]:
        """The payoffs of one round to players 0 and 1."""
        i, j = self.actions[0].index(first), self.actions[1].index(second)
        return self.payoffs[0][i][j], self.payoffs[1][i][j]

    def returns(self, state: tuple[str, ...]) -> tuple[float, float]:
        paid = [self.pays(*pair) for pair in zip(state[::2], state[1::2])]
        return sum(p[0] for p in paid), sum(p[1] for p in paid)

    def rules(self, player: int) -> str:
        return self._rules[player]

    @cached_property
    def _rules(self) -> tuple[str, str]:
        return self._rules_for(0), self._rules_for(1)

    def _rules_for(self, player: int) -> str:
        own, other = self.actions[player], self.actions[1 - player]
        table = self.payoffs[0] if player == 0 else zip(*self.payoffs[1])
        lines = [
            f"{name}: " + ", ".join(f"{value:g} against {against}" for against, value in zip(other, row)) + "."
            for name, row in zip(own, table)
        ]
        often = "" if self.rounds == 1 else f" You play {self.rounds} rounds."
        return "\n".join([f"You and another player choose at the same time.{often} Your move pays you:", *lines])

    def question(self, number: int) -> str:
        """The question in round `number`, counted from 0."""
        return "Choose." if self.rounds == 1 else f"Round {number + 1} of {self.rounds}. Choose."

    def history(self, number: int, first: str, second: str, player: int) -> str:
        """A finished round, as described to a player."""
        own, other = (first, second) if player == 0 else (second, first)
        return f"Round {number + 1}: you {own}, other {other}, you get {self.pays(first, second)[player]:g}."

    def view(self, state: tuple[str, ...], player: int) -> str:
        number = min(len(state) // 2, self.rounds - 1)
        pairs = list(zip(state[::2], state[1::2]))[:number]
        lines = [self.history(i, first, second, player) for i, (first, second) in enumerate(pairs)]
        return "\n".join([*lines, self.question(number)])

    @cached_property
    def equilibrium(self) -> tuple[dict[str, float], dict[str, float]]:
        """The one-round Nash equilibrium with the largest sum of payoffs, among those found by support enumeration."""
        mixed = best_equilibrium(*map(np.array, self.payoffs))
        row, column = (dict(zip(names, map(float, p))) for names, p in zip(self.actions, mixed))
        return row, column

    def nash(self, infoset: InfoSet) -> dict[str, float]:
        """An equilibrium of the whole game: the one-round equilibrium in every round."""
        return self.equilibrium[infoset.player]


def tit_for_tat(decision: Decision) -> str:
    """Repeats the opponent's last move; makes its own first move at the start, and if it has no move of that name."""
    names = [parsing.bracketed(action) or parsing.boxed(action) or action for action in decision.legal_actions or ()]
    last = decision.messages[-1]["content"].rpartition(", other ")[2].partition(",")[0]
    return last if last in names else names[0]


class MatrixGame(GameEnv):
    """A matrix game for two players who choose simultaneously.

    Args:
        game: `"rps"` (the default), `"biased_rps"`, `"matching_pennies"`, `"prisoners_dilemma"` or `"stag_hunt"`.
        payoffs: instead of a name: one matrix (zero-sum, payoffs of `player_0`) or two (payoffs of each player), with
            rows for the moves of `player_0`, up to 26 by 26.
        actions: names of the moves: one list for both players, or one for each; `a, b, c ...` by default.
        rounds: number of rounds, 1 to 100; the return is the sum, and players are told what was played.

    Raises:
        ValueError: the name of the game is unknown, the matrices are ragged or differ in shape, or the names of the
            moves do not fit them.
    """

    name = "MatrixGame-v0"
    seats = {f"player_{i}": Seat(f"player_{i}") for i in range(2)}
    scripted_players = {"tit_for_tat": tit_for_tat}

    def __init__(
        self,
        game: str | None = None,
        payoffs: Any = None,
        actions: Sequence[Any] | None = None,
        rounds: int = 1,
        **kwargs: Any,
    ):
        rounds = arguments.whole("rounds", rounds, 1, 100)
        payoffs_given = payoffs is not None
        if payoffs is None:
            named = MATRIX_GAMES[arguments.one_of("game", "rps" if game is None else game, list(MATRIX_GAMES))]
            payoffs = named.row if named.column is None else (named.row, named.column)
            actions = named.actions if actions is None else actions
        elif game is not None:
            raise ValueError(f"give either game or payoffs, not both; got game {game!r}")
        tables = _payoffs(payoffs)
        self.game: MatrixGameRules = MatrixGameRules(
            tables, _actions(actions, len(tables[0]), len(tables[0][0])), rounds
        )
        self.zero_sum = self.game.zero_sum  # type: ignore[misc]  # elsewhere a class constant
        # If even the safest move can lose more than 1 over all rounds, an invalid move must not be cheaper.
        worst = min(float(np.array(tables[0]).min(axis=1).max()), float(np.array(tables[1]).min(axis=0).max()))
        if payoffs_given and worst * rounds < -1:
            self.default_invalid_reward = worst * rounds  # type: ignore[misc]
        self.max_asks = 2 * rounds
        super().__init__(**kwargs)

    def numbers(self) -> Numbers:
        """The share of rounds played, and both players' moves in each round, one-hot, own first."""
        moves = tuple(dict.fromkeys(move for names in self.game.actions for move in names))
        rounds = range(1, self.game.rounds + 1)

        def read(text: str) -> list[float]:
            number = int(last(r"Round (\d+) of", text) or 1)
            found = [(number - 1) / self.game.rounds]
            for at in rounds:
                for who in ("you (.*), other .*", "you .*, other (.*)"):
                    found += one_hot(last(rf"Round {at}: {who}, you get", text), moves)
            return found

        names = [f"round {at}, {who} {move}" for at in rounds for who in ("own", "other") for move in moves]
        return Numbers(moves, ("rounds over", *names), read)

    def play(self, table: Table) -> Rules[tuple[float, ...]]:
        game, agents = self.game, self.possible_agents
        totals = [0.0, 0.0]
        for i, agent in enumerate(agents):
            table.tell(agent, game.rules(i))
        for number in range(game.rounds):
            first, second = yield from table.gather(
                [table.ask(agent, game.question(number), legal=game.actions[i]) for i, agent in enumerate(agents)]
            )
            for i, (agent, paid) in enumerate(zip(agents, game.pays(first, second))):
                totals[i] += paid
                table.reward(agent, paid)
                table.tell(agent, game.history(number, first, second, i))
        return tuple(totals)


def _payoffs(given: Any) -> tuple[tuple[tuple[float, ...], ...], tuple[tuple[float, ...], ...]]:
    """Both players' payoffs, each (rows, columns), as plain floats."""
    wanted = "payoffs must be one matrix (zero-sum) or two of the same shape, with 1 to 26 rows and columns of numbers"
    try:
        array = np.array(given, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"{wanted}; got {given!r}") from None
    if array.ndim == 2:
        array = np.stack([array, -array]) + 0.0  # no negative zeros
    if array.ndim != 3 or len(array) != 2 or not all(1 <= n <= 26 for n in array.shape) or not np.isfinite(array).all():
        raise ValueError(f"{wanted}; got {given!r}")
    row, column = (tuple([tuple(values) for values in table]) for table in array.tolist())
    return row, column


def _actions(given: Sequence[Any] | None, rows: int, columns: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if given is None:
        return tuple(ascii_lowercase[:rows]), tuple(ascii_lowercase[:columns])
    given = arguments.listed("actions", given)
    alike = all(isinstance(name, str) for name in given)
    both = [given] * 2 if alike else [arguments.listed("actions of a player", names) for names in given]
    ok = len(both) == 2 and all(
        len(names) == count
        and all(isinstance(name, str) and name.isalnum() for name in names)
        and len({name.casefold() for name in names}) == count
        for names, count in zip(both, (rows, columns))
    )
    if not ok:
        raise ValueError(
            f"actions must be {rows} distinct words for player_0 and {columns} for player_1 "
            f"(one list if they are the same); got {given!r}"
        )
    return both[0], both[1]
