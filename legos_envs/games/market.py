"""A market for several players (goods and standing offers), and the base class of the trading games played on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from legos_envs import arguments, parsing
from legos_envs.games import trading
from legos_envs.games.trading import Action, Counts, Offer, write_goods
from legos_envs.table import InvalidMove, Rules, Table
from legos_envs.text_env import TextEnv


class Market:
    """Goods and standing offers of several players. Goods only change hands; no quantity is ever negative.

    A player has at most one standing offer; a new one replaces it. It stands until it is accepted, until everyone who
    may accept it has denied it, or until its maker can no longer cover it.

    Args:
        kinds: names of the goods.
        stock: by player, units of each kind that it owns, (players, kinds).
        values: by player, value of one unit of each kind to that player, (players, kinds).
    """

    def __init__(self, kinds: Sequence[str], stock: Mapping[str, Counts], values: Mapping[str, Counts]):
        self.kinds = tuple(kinds)
        self.stock = dict(stock)
        self.values = dict(values)
        self.players = tuple(stock)
        self.start = {player: self.worth(player) for player in self.players}
        self.offers: dict[str, tuple[Offer, set[str]]] = {}
        """By maker: the standing offer, and who may still accept it."""
        self.trades = 0

    def worth(self, player: str) -> int:
        """The current value of a player's goods to that player."""
        return sum([count * value for count, value in zip(self.stock[player], self.values[player])])

    def change(self, player: str) -> int:
        """How much a player's worth has changed since the start."""
        return self.worth(player) - self.start[player]

    def covers(self, player: str, goods: Counts) -> bool:
        """Whether a player owns at least these goods."""
        return all([have >= need for have, need in zip(self.stock[player], goods)])

    def open_to(self, player: str) -> list[str]:
        """The makers of the offers that a player may accept, in the order they were made."""
        return [maker for maker, (_, takers) in self.offers.items() if player in takers]

    def offer(self, maker: str, offer: Offer) -> None:
        """Makes an offer.

        Raises:
            InvalidMove: the offer is addressed to its maker, or the maker does not own what it gives.
        """
        self.check(maker, offer)
        self.offers.pop(maker, None)
        takers = {other for other in self.players if other != maker} if offer.to is None else {offer.to}
        self.offers[maker] = offer, takers

    def check(self, maker: str, offer: Offer) -> None:
        """Raises `InvalidMove` whenever `offer` would, but changes nothing."""
        if offer.to == maker:
            raise InvalidMove("you cannot make an offer to yourself.")
        if not self.covers(maker, offer.give):
            raise InvalidMove(f"you offer {write_goods(offer.give, self.kinds)} but do not own that much.")

    def accept(self, taker: str, maker: str | None = None) -> tuple[str, Offer, list[str]]:
        """Accepts an offer; `maker` may be omitted if only one is open to the taker.

        Returns:
            The maker, the offer, and the makers whose offers lapsed because they can no longer cover them.

        Raises:
            InvalidMove: no offer or several are open to the taker, or one of the two players cannot cover it.
        """
        makers = self.open_to(taker)
        if maker is None and len(makers) > 1:
            raise InvalidMove(f"several offers are open to you; name one of {', '.join(makers)}.")
        if not makers or (maker is not None and maker not in makers):
            raise InvalidMove("no offer is open to you." if maker is None else f"{maker} has made you no open offer.")
        maker = maker or makers[0]
        offer = self.offers[maker][0]
        if not self.covers(taker, offer.get):
            raise InvalidMove(f"the offer wants {write_goods(offer.get, self.kinds)}; you do not own that much.")
        if not self.covers(maker, offer.give):
            raise InvalidMove(f"{maker} no longer owns {write_goods(offer.give, self.kinds)}.")
        del self.offers[maker]
        self._move(maker, taker, offer.give)
        self._move(taker, maker, offer.get)
        self.trades += 1
        lapsed = [other for other, (standing, _) in self.offers.items() if not self.covers(other, standing.give)]
        for other in lapsed:
            del self.offers[other]
        return maker, offer, lapsed

    def deny(self, taker: str, maker: str | None = None) -> list[str]:
        """Turns down one offer, or all open to a player; returns their makers. An offer that nobody may accept any more
        is removed.

        Raises:
            InvalidMove: the named maker has no offer open to the player.
        """
        makers = self.open_to(taker)
        if maker is not None and maker not in makers:
            raise InvalidMove(f"{maker} has made you no open offer.")
        denied = makers if maker is None else [maker]
        for name in denied:
            takers = self.offers[name][1]
            takers.discard(taker)
            if not takers:
                del self.offers[name]
        return denied

    def _move(self, source: str, target: str, goods: Counts) -> None:
        self.stock[source] = tuple([have - moved for have, moved in zip(self.stock[source], goods)])
        self.stock[target] = tuple([have + moved for have, moved in zip(self.stock[target], goods)])


class TradingGame(TextEnv):
    """Base of the trading games: deals goods, shows a player its position, and lets it talk and act."""

    hidden_information = True
    kinds: tuple[str, ...]
    answers_count = False
    """Whether an offer stands for one answer only: any answer but acceptance turns it down."""
    can_finish = True
    reset_options = {
        "stock": "by player, units of each resource that it owns, such as [[3, 0], [1, 4]]",
        "values": "by player, value of a unit of each resource to it, in the same form",
    }

    def open_market(
        self, table: Table, quantities: tuple[int, int], values: Sequence[tuple[int, int]], players: Sequence[str]
    ) -> Market:
        """A market with the goods and values of the reset options, or else drawn uniformly between inclusive bounds.

        Args:
            table: provides the random generator and the options.
            quantities: minimum and maximum units of a resource that a player gets.
            values: by resource, minimum and maximum value of a unit.
            players: the agents who trade.
        """
        stock = self._given(table, "stock", len(players))
        worth = self._given(table, "values", len(players))
        least, most = zip(*values)
        drawn = table.rng.integers(quantities[0], quantities[1] + 1, (len(players), len(self.kinds))).tolist()
        priced = table.rng.integers(least, [n + 1 for n in most], (len(players), len(self.kinds))).tolist()
        owned, valued = (dict(zip(players, map(tuple, rows))) for rows in (stock or drawn, worth or priced))
        self._market = Market(self.kinds, owned, valued)
        return self._market

    def _given(self, table: Table, name: str, rows: int) -> list[Counts] | None:
        """The reset option `name`, one whole number per resource for each player; None if it is not given."""
        given = table.options.get(name)
        if given is None:
            return None
        kinds = len(self.kinds)
        rectangular = isinstance(given, list | tuple) and len(given) == rows
        if not rectangular or not all(isinstance(row, list | tuple) and len(row) == kinds for row in given):
            raise ValueError(
                f"option {name} must be {rows} lists, one per player, of {kinds} whole numbers "
                f"({', '.join(self.kinds)}); got {given!r}"
            )
        return [tuple([arguments.whole(f"option {name}", number, 0, 1000) for number in row]) for row in given]

    def private_texts(self, agent: str) -> list[str]:
        """What only this agent may know in the running episode: its goods and their values to it."""
        market = self._market
        return [trading.write_stock(agent, market.stock[agent], market.values[agent], market.kinds)]

    def how_to_act(self, players: int) -> list[str]:
        """Lines that explain how to write actions."""
        kinds, last = self.kinds, self.kinds[-1]
        more = f", 2 {kinds[1]}" if len(kinds) > 2 else ""
        gives = more.replace(",", " and")
        lines = [
            "On your turn write a message that everyone can read. It may end with one action:",
            f"{self._action(f'Offer: 1 {kinds[0]}{more} -> 1 {last}')} gives 1 {kinds[0]}{gives} for 1 {last}."
            + (f" {self._action('Offer player_1: ...')} is an offer to player_1 only." if players > 2 else ""),
        ]
        which = f" ({self._action('Accept player_1')} where several are open)" if players > 2 else ""
        down = ", or anything else, turns" if self.answers_count else " turns"
        lines.append(
            f"{self._action('Accept')} takes an offer made to you{which} if you own what it asks for; "
            f"{self._action('Deny')}{down} it down."
        )
        if self.can_finish:
            lines.append(f"{self._action('Done')} when you want no more; when all say so in turn, the game ends.")
        return lines

    def speak(self, table: Table, market: Market, agent: str, header: str) -> Rules[Action | None]:
        """Plays one turn: asks the agent, updates the market and tells the others. Returns the action; None for talk
        alone.
        """
        talk, action, shared = yield from table.ask(
            agent, self._position(market, agent, header), parse=lambda reply: self._act(market, agent, reply)
        )
        others = [player for player in market.players if player != agent]
        if talk:  # with memory="state" players see their own words only if they are repeated to them
            table.tell(market.players if table.env.memory == "state" else others, f"{agent}: {talk}")
        for line in shared:
            table.tell(market.players, line)
        if action is not None and action.offer is not None and action.offer.to is not None and len(others) > 1:
            offer = f"{write_goods(action.offer.give, self.kinds)} for {write_goods(action.offer.get, self.kinds)}"
            others.remove(action.offer.to)
            table.tell(others, f"{agent} offers {action.offer.to} {offer}.")
        return action

    def _position(self, market: Market, agent: str, header: str) -> str:
        stock = trading.write_stock(agent, market.stock[agent], market.values[agent], market.kinds)
        lines = [f"{header} Gain so far: {market.change(agent):+d}.", stock]
        makers = market.open_to(agent)
        lines += [trading.write_open(maker, market.offers[maker][0], market.kinds) for maker in makers]
        if agent in market.offers:
            own = market.offers[agent][0]
            lines.append(
                f"Your open offer: {write_goods(own.give, self.kinds)} for {write_goods(own.get, self.kinds)}."
            )
        takeable = [maker for maker in makers if market.covers(agent, market.offers[maker][0].get)]
        accepts = ["Accept"] * len(takeable) if len(makers) == 1 else [f"Accept {maker}" for maker in takeable]
        names = ["Offer: ... -> ...", *accepts, *["Deny"] * bool(makers), *["Done"] * self.can_finish]
        lines.append(f"Write a message; it may end with {' or '.join(map(self._action, names))}")
        return "\n".join(lines)

    def _act(self, market: Market, agent: str, reply: str) -> tuple[str, Action | None, list[str]]:
        """The talk of a message, its action, and lines about the action's effects."""
        talk, text = trading.split_message(reply, self.action_format)
        action = None if text is None else trading.read_action(text, self.kinds, market.players)
        kind = None if action is None else action.kind
        if kind == "done" and not self.can_finish:
            raise InvalidMove("you cannot finish early in this game.")
        if action is not None and kind == "accept":
            maker, offer, lapsed = market.accept(agent, action.player)
            goods = f"{write_goods(offer.give, self.kinds)} for {write_goods(offer.get, self.kinds)}"
            lines = [f"Trade: {maker} gives {agent} {goods}."]
            return talk, action, lines + [f"The offer of {other} lapses." for other in lapsed]
        made = action.offer if action is not None else None
        if made is not None:
            market.check(agent, made)  # before anything changes, since an invalid move may be retried
        denied = []
        if kind == "deny" or self.answers_count:
            denied = market.deny(agent, action.player if action is not None and kind == "deny" else None)
        if made is not None:
            market.offer(agent, made)
        return talk, action, [f"{agent} turns down the offer of {maker}." for maker in denied]

    def _action(self, name: str) -> str:
        return parsing.write_action(name, self.action_format)

    def settle_by_gain(self, table: Table, market: Market, returns: Mapping[str, float], **facts: Any) -> None:
        """Pays the players and notes what each gained."""
        for player, value in returns.items():
            table.reward(player, value)
            table.note(player, gain=market.change(player))
        table.note(trades=market.trades, **facts)
