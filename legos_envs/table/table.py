"""The rules' view of an environment: a `Table`, where agents sit and are asked to act."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from legos_envs import parsing
from legos_envs.table.rules import (
    Ask,
    Forfeit,
    Host,
    InvalidMove,
    Rules,
    T,
    Unscored,
    keyed_generator,
)


class Table:
    """A node of the episode tree. Agents at `table.sub("match_3")` are called `match_3/NAME`.

    Every table has its own random generator, keyed by the episode's seed and the path, so that the draws of one branch
    never depend on the progress of another. An agent belongs to one branch at a time.
    """

    def __init__(self, env: Host, path: str = "", options: Mapping[str, Any] | None = None, key: str | None = None):
        self.env, self.path = env, path
        self._key = path if key is None else key  # keys its randomness
        self.options: Mapping[str, Any] = options or {}
        self._rng: np.random.Generator | None = None
        self._draws = 0

    @property
    def rng(self) -> np.random.Generator:
        """This table's random generator; created on first use."""
        if self._rng is None:
            self._rng = keyed_generator(self.env.seed or 0, self._key)
        return self._rng

    def random(self) -> float:
        """A uniform number in [0, 1), keyed like `rng` but independent of it: ten times cheaper for a single draw."""
        self._draws += 1
        key = f"{self.env.seed}/{self._key}/{self._draws}".encode()
        return (int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") >> 11) / 2**53

    def sub(self, name: str, options: Mapping[str, Any] | None = None, *, key: str | None = None) -> Table:
        """The table called `name` below this one; an env played there finds `options` in `table.options`.

        `key` replaces `name` as the key of its randomness: tables with the same key get the same deal, no matter who
        sits at them.
        """
        return Table(self.env, f"{self.path}{name}/", options, f"{self._key}{key or name}/")

    def branch(self, key: str) -> Table:
        """This table with separate randomness, for a branch of `gather` that draws concurrently with others."""
        return Table(self.env, self.path, self.options, f"{self._key}{key}/")

    @property
    def returns(self) -> dict[str, float]:
        """The rewards so far of every agent at this table and below, by its name relative to this table."""
        given, skip = self.env._returns, len(self.path)
        return {seat[skip:]: given.get(seat, 0.0) for seat in self.env.seats if seat.startswith(self.path)}

    def tell(self, agents: str | Iterable[str], text: str) -> None:
        """Gives text to one agent or several; they read it when they are next asked.

        With `memory="state"` every prompt contains everything told since the conversation began; with `"chat"` each
        piece is told once, in the user message before the agent's next action.
        """
        if not isinstance(text, str):
            raise TypeError(f"tell() takes a str; got {text!r} for {agents!r}")
        for agent in (agents,) if isinstance(agents, str) else agents:
            self.env._tell(self._seat(agent, "told"), text)

    def ask(
        self,
        agent: str,
        text: str = "",
        *,
        legal: Sequence[str] | None = None,
        parse: Callable[[str], Any] | None = None,
        fresh: bool = False,
        listed: bool = True,
    ) -> Rules[Any]:
        """Asks an agent to act and returns what it decided.

        With `legal`, the last action stated in the env's `action_format` must be one of them (ignoring case) and is
        returned as listed. `parse` is called with the public text; it returns any value or raises `InvalidMove`. With
        neither, the public text itself is returned; an empty one is invalid. `fresh` begins a new conversation: the
        agent sees only `text`. `listed=False` omits the legal actions from the prompt, for a text that shows them
        anyway, such as a board with the numbers of its free cells. An invalid move is answered with the reason,
        `invalid_retries` times; then the rules get a `Forfeit`, or `Unscored` if the seat is not trainable. If the
        rules omit `yield from`, nobody is asked, and an error is raised when the rules end.
        """
        place, env = self.path + agent, self.env
        if not isinstance(text, str):
            raise TypeError(f"ask() takes a str; got {text!r} for {place!r}")
        moves = None if legal is None else tuple(legal)
        if moves is not None and not moves:
            raise ValueError(f"{place!r} is asked with an empty list of legal actions")
        if moves is not None and {*map(type, moves)} != {str}:
            for move in moves:
                if not isinstance(move, str):
                    raise TypeError(f"{place!r} is asked with legal actions that are not strings, such as {move!r}")
        env._unasked += 1
        return self._ask(Ask(place, text, moves, fresh, None, listed), parse)

    def _ask(self, ask: Ask, parse: Callable[[str], Any] | None) -> Rules[Any]:
        env, moves = self.env, ask.legal
        env._unasked -= 1
        raw = yield ask
        for _ in range(env.invalid_retries):
            try:
                return self._read(raw, moves, parse)
            except InvalidMove as error:
                again = ask.fresh and env.memory == "state"
                raw = yield ask._replace(fresh=again, notice=f"Invalid move: {error}")
        try:
            return self._read(raw, moves, parse)
        except InvalidMove as error:
            if not env.seats[ask.agent].trainable:
                raise Unscored(f"{ask.agent} was not understood: {error}") from None
            raise Forfeit({ask.agent: str(error)}) from None

    def _read(self, raw: str, legal: tuple[str, ...] | None, parse: Callable[[str], Any] | None) -> Any:
        if len(raw) > self.env.max_action_chars:
            raise InvalidMove(f"the reply has {len(raw)} characters; at most {self.env.max_action_chars} are read.")
        reply = parsing.public(raw)
        if not reply:
            raise InvalidMove("the reply is empty or contains only a private thought.")
        if legal is None:
            return reply if parse is None else parse(reply)
        name = parsing.action(reply, self.env.action_format)
        if name is None:
            wanted = parsing.write_action("...", self.env.action_format)
            raise InvalidMove(f"the reply states no action; write it as {wanted}.")
        if name in legal:
            return name
        for move in legal:
            if move.casefold() == name.casefold():
                return move
        raise InvalidMove(f"{parsing.write_action(name[:40], self.env.action_format)} is not legal now.")

    def gather(self, rules: Iterable[Rules[T]]) -> Rules[list[T]]:
        """Runs branches concurrently and returns their results in order.

        All branches are played to their end; then any forfeits among them are raised as one (`Unscored`, if there is
        one, takes precedence). So the result does not depend on which agent answered first.
        """
        branches = []
        for branch in rules:
            if not hasattr(branch, "send"):
                raise TypeError(
                    "gather() takes several branches, such as [table.ask(...), table.ask(...)]; for one alone write "
                    f"`yield from` before it. Got {type(branch).__name__!r}"
                )
            branches.append(branch)
        return (yield branches)

    def reward(self, agent: str, value: float) -> None:
        """Adds to an agent's reward for this step.

        Raises:
            KeyError: there is no such agent.
            ValueError: the value is not a finite number.
        """
        place = self._seat(agent, "rewarded")
        try:
            finite = -math.inf < value < math.inf
        except TypeError:
            finite = False
        if not finite:
            raise ValueError(f"the reward of {place!r} must be a finite number; got {value!r}")
        self.env._pay(place, float(value))

    def note(self, agent: str | None = None, **facts: Any) -> None:
        """Adds plain facts (JSON values) to the info of one agent, or of all agents at or below this table."""
        place = self.path if agent is None else self._seat(agent, "noted something of")
        self.env._note(place, agent is not None, facts)

    def _seat(self, agent: str, done: str) -> str:
        """The agent's full name, if it has a seat; `done` describes what the rules tried to do, for the error."""
        place = self.path + agent
        if place not in self.env.seats:
            raise KeyError(f"the rules {done} {place!r}, which has no seat; seats are {list(self.env.seats)}")
        return place

    def settle(self, forfeit: Forfeit) -> None:
        """Pays the rewards of a forfeit: `invalid_reward` to the offenders, the opponents' share to the others.

        Opponents are the trainable agents of the same table that do not offend; if all offend at once, the other
        offenders. The default share makes the sum zero in either case. In an env that is not zero-sum it is nothing,
        because there nobody gains from another's mistake. Agents named in `forfeit.shares` get the amount given there
        instead.
        """
        env = self.env
        homes: dict[str, list[str]] = {}
        for offender in forfeit.agents:
            homes.setdefault(offender.rpartition("/")[0], []).append(offender)
        for home, offenders in homes.items():
            seats = [a for a, seat in env.seats.items() if seat.trainable and a.rpartition("/")[0] == home]
            others = [agent for agent in seats if agent not in offenders]
            # The number of offences that each opponent is compensated for, and the number of agents that share each.
            offences, among = (len(offenders), len(others)) if others else (len(offenders) - 1,) * 2
            gained = 0.0
            if env.invalid_opponent_reward is not None:
                gained = offences * env.invalid_opponent_reward
            elif env.zero_sum and among:
                gained = -env.invalid_reward * (offences / among)  # so that a joint forfeit of all pays exactly 0
            gains = {agent: forfeit.shares.get(agent, gained) for agent in others or offenders}
            for agent in dict.fromkeys([*offenders, *others]):
                env._pay(agent, (env.invalid_reward if agent in offenders else 0.0) + gains.get(agent, 0.0))

    def attempt(self, rules: Rules[T]) -> Rules[T | None]:
        """Runs rules; if they forfeit, the offenders are penalized and the result is None."""
        try:
            return (yield from rules)
        except Forfeit as forfeit:
            self.penalize(forfeit)
            return None

    def penalize(self, forfeit: Forfeit) -> None:
        """Pays `invalid_reward` to the offenders of a forfeit and nothing to anybody else; their info gives the reason.

        For rules that continue without them, such as one of eight solvers that gave no answer.
        """
        for offender, reason in forfeit.reasons.items():
            self.env._pay(offender, self.env.invalid_reward)
            self.env._note(offender, True, {"invalid": reason})
