"""Liar's dice for 2 to 15 players: everybody sees only their own dice and bids on all dice together. A bid may be a
lie; whoever calls a true one pays for it. Played until only one player has dice left, or for a single round, which is
small enough to be solved.

| | |
|---|---|
| seats | `player_0`, `player_1`, ... |
| horizon | about 14 turns of random play and at most 333 for two players with 5 dice |
| sum of rewards | 0 |

In each round players bid in turn. The bid `3x4` claims that at least three of all dice in play show a four. The next
player bids higher (a larger quantity of any face, or the same quantity of a higher face) or calls. After a call the
dice are counted: the bidder loses a die if the bid was false, otherwise the caller does. All dice are rolled again, and
the loser begins the next round; a player without dice is out and has no more turns, and the next player begins instead.
Quantities go up to the number of dice in play. Exactly one die is lost per round.

## What each seat is told

The rules, its own dice, everybody's number of dice, the bids of this round, the bids it may make (only the lowest and
the highest if there are more than 60), and for every earlier round who called which bid, how many dice matched and who
lost. Never the others' dice.

## Actions

`[3x4]`, a bid of three fours, or `[call]`. `legal_actions` lists them all; the prompt shows bids without brackets.

## Rewards

Rewards follow the order of elimination, evenly spaced from -1 for the first player out to +1 for the winner; with two
players, -1 and +1. With `one_round=True`, +1 and -1 to the winner and the loser of the call, 0 to the others.

A player who runs out of retries gets `invalid_reward`, and the match ends. Players already out keep the reward of their
rank; the others still in get `invalid_opponent_reward` or, if none is set, equal shares that make the sum zero (so they
may get more than 1).

## End

When only one player has dice left (infos: `winner`, `rounds`); with `one_round=True`, at the first call.

## Arguments

`legos_envs.exact` evaluates policies for one round with two players, one die and up to 5 faces (6 works, but slowly).
With `wild=True` that game is OpenSpiel's `liars_dice`.

## Scripted players

`scripted:careful` makes the bid that is most likely true given its own dice (the highest one on a tie), and calls when
the last bid is more likely to be false. `scripted:raiser` always bids one step higher; `scripted:caller` always calls.
In 3,000 matches `careful` never lost to `random`; in a single round with one die each, it wins 94.1 % (95 % interval
93.4 to 94.9). Returns of `random` and those of `raiser` against `caller` (11/36 of the calls are wrong) are exact.

| players | expected return | arguments | floor |
|---|---|---|---|
| `*=scripted:careful` | `player_0 0, player_1 0` | | `-0.9` |
| `player_0=scripted:careful player_1=random` | `player_0 +1.0, player_1 -1.0` | |
| `player_0=scripted:careful player_1=scripted:raiser` | `player_0 +0.981, player_1 -0.981` | |
| `player_0=scripted:careful player_1=random` | `player_0 +0.883, player_1 -0.883` | `one_round=True, dice=1` |
| `player_0=scripted:raiser *=scripted:caller` | `player_0 -0.3889, player_1 +0.3889` | `one_round=True, dice=1` |
| `*=random` | `player_0 -0.0625, player_1 +0.0625` | `one_round=True, dice=1, faces=4` |

NashConv of uniformly random play in one round with one die each: 1.1042, 1.4364 and 1.6089 with 2, 3 and 4 faces;
1.1250, 1.1111 and 1.3101 with `wild=True`.

## Source

The match follows TextArena's and SPIRAL's `LiarsDice`, except that a larger quantity may come with a lower face, as
usual. The single round follows Lanctot et al., "OpenSpiel", 2019, https://arxiv.org/abs/1908.09453.
"""

from __future__ import annotations

import math
from typing import Any

from legos_envs import arguments, parsing
from legos_envs.game import MAX_STATES, GameEnv, State
from legos_envs.games.liars_dice_round import CALL, Dice, LiarsDiceGame, Round, dice_of, ladder, read_bid
from legos_envs.play import Decision
from legos_envs.spaces import Numbers, last
from legos_envs.table import Forfeit, Rules, Seat, Table


def likelihood(bid: str, own: Dice, total: int, faces: int, wild: bool) -> float:
    """The probability that a bid is true, given only one's own dice."""
    quantity, face = read_bid(bid)
    matching = {face, faces} if wild else {face}
    missing, hidden = quantity - sum(die in matching for die in own), total - len(own)
    p = len(matching) / faces
    return sum([math.comb(hidden, k) * p**k * (1 - p) ** (hidden - k) for k in range(max(missing, 0), hidden + 1)])


def careful(decision: Decision) -> str:
    """Makes the bid that is most likely true, the highest one on a tie; calls when that is more likely to be right."""
    lines = decision.messages[-1]["content"].split("\n")
    own = tuple([int(n) for n in lines[-3].partition("Your dice: ")[2].partition(".")[0].split()])
    total = int(lines[-3].rpartition("Dice in play: ")[2].rstrip("."))
    bids = [parsing.bracketed(text) or parsing.boxed(text) or "" for text in decision.legal_actions or ()]
    may_call = bids[0] == CALL
    if bids == [CALL]:
        return CALL
    faces = read_bid(bids[-1])[1]  # the highest bid of all names the highest face
    wild = "count as any face" in decision.messages[0]["content"]
    chances = {bid: likelihood(bid, own, total, faces, wild) for bid in bids[may_call:]}
    best = max(reversed(chances), key=chances.__getitem__)
    if may_call:
        last = lines[-2].rstrip(".").rpartition(" ")[2]
        if 1 - likelihood(last, own, total, faces, wild) > chances[best]:
            return CALL
    return best


def caller(decision: Decision) -> str:
    """Calls any bid; begins with the lowest bid."""
    return (decision.legal_actions or (CALL,))[0]


def raiser(decision: Decision) -> str:
    """Always makes the lowest bid it can; calls only when no bid is left."""
    legal = decision.legal_actions or (CALL,)
    return legal[1] if len(legal) > 1 and CALL in legal[0] else legal[0]


# --- the environment -------------------------------------------------------------------------------------------------


class LiarsDice(GameEnv):
    """Liar's dice for 2 to 15 players, until only one has dice left, or for one round.

    Args:
        num_players: 2 to 15.
        dice: initial dice of each player, 1 to 10.
        faces: faces of a die, 2 to 10.
        wild: whether dice that show the highest face count as any face.
        one_round: whether to play a single round, whose winner and loser get +1 and -1.
    """

    name = "LiarsDice-v0"
    replayable = True
    zero_sum = True
    hidden_information = True
    view_shows_moves = True
    reset_options = {"dice": "the dice of the first round, one list per player, such as [[1, 2], [6, 6]]"}
    _hands: dict[str, Dice] = {}
    scripted_players = {"careful": careful, "caller": caller, "raiser": raiser}

    def __init__(
        self,
        num_players: int = 2,
        dice: int = 5,
        faces: int = 6,
        wild: bool = False,
        one_round: bool = False,
        **kwargs: Any,
    ):
        count = arguments.whole("num_players", num_players, 2, 15)
        self.dice = arguments.whole("dice", dice, 1, 10)
        self.faces = arguments.whole("faces", faces, 2, 10)
        self.wild = arguments.one_of("wild", wild, (False, True))
        self.one_round = arguments.one_of("one_round", one_round, (False, True))
        self.replayable = bool(self.one_round)  # later rounds are rolled during play
        self.game: LiarsDiceGame = LiarsDiceGame((self.dice,) * count, self.faces, self.wild)
        # Exact evaluation checks `num_rounds`: only a single, small round can be solved.
        self.num_rounds = 1 if one_round and self.game.size <= MAX_STATES else None
        self.seats = {f"player_{i}": Seat(f"player_{i}") for i in range(count)}
        totals = [count * self.dice] if one_round else range(2, count * self.dice + 1)
        self.max_asks = sum(total * self.faces + 1 for total in totals)
        super().__init__(**kwargs)

    def numbers(self) -> Numbers:
        """Own dice by face and dice in play, as shares of the initial numbers; with more than two players also the dice
        left to each of the others, in seat order after one's own; and a 1 for every bid made so far in the round.
        """
        players = len(self.game.counts)
        total, others = players * self.dice, range(1, players) if players > 2 else ()
        bids, faces = tuple(ladder(total, self.faces)), [str(face + 1) for face in range(self.faces)]

        def read(text: str) -> list[float]:
            own = last(r"Your dice: ([\d ]+)\.", text).split()
            in_play = int(last(r"Dice in play: (\d+)", text) or 0)
            made = {words.split()[-1] for words in last(r"Bids: (.*)\.", text).split(",") if words}
            shares = [own.count(face) / self.dice for face in faces]
            me = int(last(r"You are player (\d+)", text) or 0)
            newest = last(r"Dice left: (.*)", text)  # lists only players who are still in
            left = [last(rf"\bplayer {(me + step) % players}: (\d+)", newest) for step in others]
            apart = [int(count or 0) / self.dice for count in left]
            return [*shares, in_play / total, *apart, *(float(bid in made) for bid in bids)]

        names: tuple[str, ...] = (*(f"own {face}s" for face in faces), "dice in play")
        names += (*(f"dice of player +{step}" for step in others), *(f"bid {bid}" for bid in bids))
        return Numbers((CALL, *bids), names, read)

    def deal(self, table: Table) -> State:
        given = table.options.get("dice")
        hands = self._roll(table, self.game.counts) if given is None else self._given(given)
        self._hands = dict(zip(self.possible_agents, hands))
        return hands, ()

    def private_texts(self, agent: str) -> list[str]:
        """The dice of an agent, as its prompts state them."""
        hand = self._hands.get(agent, ())
        return [f"You are player {self._order[agent]}. {dice_of(hand)}"] if hand else []

    def play(self, table: Table) -> Rules[tuple[float, ...]]:
        if self.one_round:
            return (yield from super().play(table))
        return (yield from self._match(table))

    def _match(self, table: Table) -> Rules[tuple[float, ...]]:
        agents = self.possible_agents
        table.tell(
            agents,
            f"{self.game.how_to_bid()} After a call, the bidder loses a die if the bid was false, else the caller "
            "does. All dice are rolled anew, and who lost one bids first. Without dice you are out; the last player "
            f"wins. Reply with your move as {parsing.write_action('move', self.action_format)}.",
        )
        out: list[int] = []
        try:
            rounds = yield from self._rounds(table, out)
        except Forfeit as forfeit:
            forfeit.shares |= self._shares(table, forfeit, out)
            raise
        table.note(rounds=rounds, winner=agents[out[-1]])
        returns = [self._rank_reward(out.index(seat)) for seat in range(len(agents))]
        for agent, value in zip(agents, returns):
            table.reward(agent, value)
        return tuple(returns)

    def _rank_reward(self, rank: int) -> float:
        """The reward of the player eliminated at position `rank`, counted from 0."""
        steps = len(self.possible_agents) - 1
        return (2 * rank - steps) / steps

    def _shares(self, table: Table, forfeit: Forfeit, out: list[int]) -> dict[str, float]:
        """Players who are out keep the reward of their rank; the others still in share the rest, so that the sum is
        zero.
        """
        places = [table.path + agent for agent in self.possible_agents]
        paid = {places[seat]: self._rank_reward(rank) for rank, seat in enumerate(out)}
        still_in = [place for place in places if place not in paid and place not in forfeit.agents]
        share = table.env.invalid_opponent_reward
        if share is None:
            share = -(table.env.invalid_reward + sum(paid.values())) / len(still_in)
        return paid | dict.fromkeys(still_in, share)

    def _rounds(self, table: Table, out: list[int]) -> Rules[int]:
        """Plays to the end and returns the number of rounds; appends seats to `out` in order of elimination."""
        agents = self.possible_agents
        left = [self.dice] * len(agents)
        starter, number, (hands, _) = 0, 1, self.deal(table)
        while True:
            order = tuple([s for s in (*range(starter, len(left)), *range(starter)) if left[s]])
            game = LiarsDiceGame(tuple([left[seat] for seat in order]), self.faces, self.wild, order)
            if number > 1:
                hands = self._roll(table, game.counts)
                self._hands = {agents[seat]: hand for seat, hand in zip(order, hands)}
            state: Round = (hands, ())
            header = f"Round {number}. Dice left: {', '.join([f'player {s}: {left[s]}' for s in sorted(order)])}."
            while (player := game.player(state)) is not None:
                text = f"{header}\n{game.view(state, player)}"
                move = yield from table.ask(agents[order[player]], text, legal=game.legal(state), listed=False)
                state = game.next(state, move)
            lost, won, count = game.verdict(state)
            loser = order[lost]
            left[loser] -= 1
            bidder, asker = (order[(len(state[1]) - back) % len(order)] for back in (2, 1))
            table.tell(
                agents,
                f"Round {number}: player {asker} called {state[1][-2]} of player {bidder}; {count} matched. "
                f"Player {loser} loses a die and has {left[loser]}.",
            )
            number += 1
            starter = loser
            if not left[loser]:
                out.append(loser)
                if len(out) == len(agents) - 1:
                    out.append(order[won])
                    return number - 1

    def _roll(self, table: Table, counts: tuple[int, ...]) -> tuple[Dice, ...]:
        rolled = table.rng.integers(1, self.faces + 1, sum(counts)).tolist()
        return tuple([tuple(sorted(rolled[sum(counts[:i]) : sum(counts[: i + 1])])) for i in range(len(counts))])

    def _given(self, given: Any) -> tuple[Dice, ...]:
        ok = isinstance(given, list | tuple) and len(given) == len(self.game.counts)
        if not ok or not all(isinstance(hand, list | tuple) and len(hand) == self.dice for hand in given):
            raise ValueError(
                f"option dice must be {len(self.game.counts)} lists, one per player, of {self.dice} whole numbers "
                f"from 1 to {self.faces}; got {given!r}"
            )
        return tuple([tuple(sorted(arguments.whole("option dice", n, 1, self.faces) for n in hand)) for hand in given])
