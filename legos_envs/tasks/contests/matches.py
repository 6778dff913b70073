"""Shared by head-to-head, Elo arena and tournament: playing another env with at least two trainable seats as one of
many matches.

A match is a function call in the rules, `yield from env.play(table.sub("match_3", options))`, and its failures stay
contained: a forfeit is settled at its table and counts as a loss, and a match whose judge failed is void.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import combinations
from math import comb
from typing import Any, NamedTuple

from legos_envs import arguments, registry
from legos_envs.game import GameEnv
from legos_envs.play import Decision, Policy
from legos_envs.table import Forfeit, Rules, Seat, Table, Unscored
from legos_envs.tasks.contests.contest import Contest
from legos_envs.text_env import TextEnv

Match = str | TextEnv | Callable[..., Any] | None
"""How a user specifies the env of a match: an id, a class or factory, or an env; None for the built-in contest."""
Seating = Sequence[Sequence[str | None]]
"""The entrant in each trainable seat, match by match."""
SHARED = ("memory", "action_format", "invalid_retries", "invalid_reward", "invalid_opponent_reward")
"""Arguments that a match must share with its enclosing env, since rules read them from the env that owns the table."""


class MatchResult(NamedTuple):
    """The result of a match. `ending` is `"played"`, `"forfeit"` or `"unscored"` (void: nobody scores)."""

    match: str
    entrants: tuple[str, ...]
    """The entrants in the trainable seats, in seat order."""
    returns: tuple[float, ...]
    scores: tuple[float, ...]
    """The share of opponents that each entrant beat, counting a draw as half; all 0 in a void match."""
    ending: str
    forfeited: tuple[str, ...] = ()

    @property
    def void(self) -> bool:
        """Whether the match does not count."""
        return self.ending == "unscored"

    @property
    def rated(self) -> bool:
        """Whether ratings take the match into account: not if it is void or everybody forfeited."""
        return not self.void and sum(self.scores) > 0

    def record(self) -> dict[str, Any]:
        """The result as JSON values, for infos."""
        facts = self._asdict() | {"forfeited": list(self.forfeited)}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in facts.items()}


class MatchEnv(TextEnv):
    """Base class of envs that play matches of another env.

    Seats are those of the match: `match_0/pro_0`, `match_0/con_0`, ... The match also determines `match_options`,
    `hidden_information`, the scripted players and the defaults of `memory`, `action_format` and the handling of invalid
    moves.

    Args:
        match: a registered id, a `TextEnv` class, factory or instance; None for the contest.
        match_kwargs: its constructor arguments.
        entrants: occupants of its trainable seats, match by match; None where the rules decide during play. Or a
            function that returns this for the number of seats.
        own_options: reset options of the env itself.
        source: the match's `source`, for a match that has one.
        split: the match's `split`.
        **kwargs: arguments of `TextEnv`; those in `SHARED` go to the match as well.

    Raises:
        TypeError: the match is not of a kind that can be played here.
        ValueError: the entrants do not fit its trainable seats, or one of its options has a name in `own_options`.
    """

    def __init__(
        self,
        match: Match,
        match_kwargs: Mapping[str, Any] | None,
        entrants: Seating | Callable[[int], Seating],
        own_options: Mapping[str, str] | None = None,
        source: Any = None,
        split: str = "all",
        **kwargs: Any,
    ):
        given = {key: kwargs[key] for key in (*SHARED, "preset") if kwargs.get(key) is not None}
        given |= {key: value for key, value in (("source", source), ("split", split)) if value not in (None, "all")}
        env = make_match(match, {**arguments.mapping("match_kwargs", match_kwargs), **given})
        self.sides = [seat for seat, facts in env.seats.items() if facts.trainable]
        if len(self.sides) < 2:
            raise ValueError(f"a match needs at least two trainable seats; {env.name} has {self.sides}")
        try:
            seated = entrants(len(self.sides)) if callable(entrants) else entrants
            if len(self.sides) != len(seated[0]):
                many = len(seated[0])
                raise ValueError(f"with num_entrants = {many} a match needs exactly {many} trainable seats")
        except ValueError as error:
            raise ValueError(f"{error}; {env.name} has {len(self.sides)}: {self.sides}") from None
        # Each match gets its own env, since rules may keep a seat's secrets on `self`.
        self.matches = {f"match_{k}": env if k == 0 else _again(env) for k in range(len(seated))}
        self.seats = {
            f"{name}/{seat}": Seat(facts.role, facts.trainable, dict(zip(self.sides, who)).get(seat, facts.entrant))
            for name, who in zip(self.matches, seated)
            for seat, facts in env.seats.items()
        }
        own = dict(own_options or {})
        if taken := own.keys() & env.reset_options.keys():
            raise ValueError(f"{env.name} has reset options named {sorted(taken)}, which {self.name} uses itself")
        self.match_options = tuple(env.reset_options)
        self.zero_sum = env.zero_sum  # type: ignore[misc]  # elsewhere class constants
        self.hidden_information = env.hidden_information  # type: ignore[misc]
        self.reset_options = {**env.reset_options, **own}  # type: ignore[misc]
        self.scripted_players = players_of(env)  # type: ignore[misc]
        if hasattr(env, "private_texts"):
            self.private_texts = self._private_texts
        self._begun: set[str] = set()
        self.default_max_turns = len(seated) * env.max_turns  # type: ignore[misc]
        super().__init__(**{**kwargs, **{key: getattr(env, key) for key in SHARED}})

    def _private_texts(self, agent: str) -> list[str]:
        """The private texts in the agent's match; none before that match has begun."""
        name, _, seat = agent.partition("/")
        if name not in self._begun:
            return []
        match, here = self.matches[name], f"{name}/"
        match.log = [(who.removeprefix(here), text) for who, text in self.log if who.startswith(here)]
        return match.private_texts(seat)  # type: ignore[attr-defined]

    @staticmethod
    def strangers(agent: str, other: str) -> bool:
        """Whether two agents play in different matches, where chance or a repeated deal may give them the same private
        texts: `check_env` does not consider that a leak.
        """
        return agent.partition("/")[0] != other.partition("/")[0]

    def _begin(self, seed: int, options: Mapping[str, Any] | None) -> None:
        self._begun.clear()
        super()._begin(seed, options)

    def run(self, table: Table, name: str, entrants: Sequence[str], key: str | None = None) -> Rules[MatchResult]:
        """Plays one match to its end, even if it fails.

        Args:
            table: the table of the whole episode.
            name: name of the match, such as `"match_3"`.
            entrants: occupants of the trainable seats.
            key: matches with the same key get the same deal.
        """
        options = {option: table.options[option] for option in self.match_options if option in table.options}
        here = table.sub(name, options, key=key)
        for seat, entrant in zip(self.sides, entrants, strict=True):
            here.note(seat, entrant=entrant)
        self._begun.add(name)
        ending = "played"
        offenders: tuple[str, ...] = ()
        try:
            settled = yield from self.matches[name].play(here)
            if isinstance(settled, Forfeit):  # the rules continued without the seats that forfeited
                ending, offenders = "forfeit", self._blame(here, settled)
        except Forfeit as forfeit:
            here.settle(forfeit)
            ending, offenders = "forfeit", self._blame(here, forfeit)
        except Unscored as failed:
            ending = "unscored"
            here.note(reason=str(failed), trainable=False)  # its zero is not a draw to learn from
            for seat, paid in here.returns.items():
                if paid:
                    here.reward(seat, -paid)
        returns = tuple(here.returns[seat] for seat in self.sides)
        seats_out = [seat in offenders for seat in self.sides]
        scores = _scores(returns, seats_out) if ending != "unscored" else (0.0,) * len(returns)
        here.note(ending=ending)
        for seat, score in zip(self.sides, scores):
            here.note(seat, score=score)
        forfeited = tuple(entrant for entrant, out in zip(entrants, seats_out) if out)
        return MatchResult(name, tuple(entrants), returns, scores, ending, forfeited)

    def _blame(self, here: Table, forfeit: Forfeit) -> tuple[str, ...]:
        """Notes the reason on the offenders' seats, and returns these seats."""
        for agent, reason in forfeit.reasons.items():
            here.note(agent.removeprefix(here.path), reason=reason)
        return tuple(agent.removeprefix(here.path) for agent in forfeit.agents)

    def scored(self, results: Sequence[MatchResult]) -> list[MatchResult]:
        """The results that are not void.

        Raises:
            Unscored: all are void; then the episode has no score either.
        """
        left = [result for result in results if not result.void]
        if not left:
            raise Unscored(f"no match could be scored: {', '.join(result.match for result in results)}")
        return left


MOST_MATCHES = 128
"""Maximum number of matches in an episode."""


def round_robin(entrants: Sequence[str], seats: int = 2) -> list[tuple[str, ...]]:
    """Every group of entrants that fills a match meets once. Pairs alternate in who sits first: each entrant does in
    half of its matches, give or take half a match; larger groups are rotated so that everybody gets each seat equally
    often.

    Raises:
        ValueError: there are fewer entrants than seats, or more matches than `MOST_MATCHES`.
    """
    if seats > len(entrants):
        raise ValueError(f"num_entrants must be at least the number of seats of a match; got {len(entrants)}")
    if (count := comb(len(entrants), seats)) > MOST_MATCHES:
        raise ValueError(f"a round robin of {len(entrants)} entrants has {count} matches, more than {MOST_MATCHES}")
    if seats == 2:
        return [
            (entrants[j], entrants[i]) if (i + j) % 2 == 0 else (entrants[i], entrants[j])
            for i, j in combinations(range(len(entrants)), 2)
        ]
    sat: Counter[tuple[str, int]] = Counter()
    matches = []
    for group in combinations(entrants, seats):
        turns = [(*group[k:], *group[:k]) for k in range(seats)]
        best = min(turns, key=lambda who: sum(sat[entrant, seat] for seat, entrant in enumerate(who)))
        sat.update((entrant, seat) for seat, entrant in enumerate(best))
        matches.append(best)
    return matches


def entrant_names(num_entrants: int, most: int = 16) -> list[str]:
    """`entrant_0`, `entrant_1`, ..."""
    return [f"entrant_{i}" for i in range(arguments.whole("num_entrants", num_entrants, 2, most))]


def make_match(match: Match, kwargs: Mapping[str, Any]) -> TextEnv:
    """The env of a match, with constructor arguments.

    Raises:
        TypeError: it is not an id, class, factory or env, or creates something other than a `TextEnv`.
        UnknownEnv: nothing is registered under the id.
    """
    if isinstance(match, str):
        env = registry.make(match, **kwargs).unwrapped
    elif isinstance(getattr(match, "unwrapped", None), TextEnv):  # an env, wrapped by `make` or bare
        env = _again(match.unwrapped, **kwargs)  # type: ignore[union-attr]
    elif match is None or callable(match):
        made = (match or Contest)(**kwargs)
        env = getattr(made, "unwrapped", made)
    else:
        env = match
    if not isinstance(env, TextEnv):
        raise TypeError(
            "match must be the id of an environment, a TextEnv class, a function that creates one, a TextEnv or None; "
            f"got {match!r}" + ("" if env is match else f", which creates a {type(env).__name__}")
        )
    return env


def _again(env: TextEnv, **changes: Any) -> TextEnv:
    """A new env with the same arguments, except for the changes."""
    args, kwargs = env._made_with
    names = list(inspect.signature(type(env).__init__).parameters)[1:]
    return type(env)(**{**dict(zip(names, args)), **kwargs, **changes})


def _scores(returns: Sequence[float], out: Sequence[bool]) -> tuple[float, ...]:
    """The share of the others that each seat beat, draws counting half; seats that forfeited beat nobody."""

    def against(i: int, j: int) -> float:
        if out[i] or out[j]:
            return float(not out[i])
        return 0.5 if abs(returns[i] - returns[j]) < 1e-9 else float(returns[i] > returns[j])

    seats = range(len(returns))
    return tuple(sum(against(i, j) for j in seats if j != i) / (len(seats) - 1) for i in seats)


def players_of(env: TextEnv) -> dict[str, Callable[[Decision], str]]:
    """The scripted players of an env, including those that a game defines as tables, which are built on first use."""
    players = dict(env.scripted_players)
    if isinstance(env, GameEnv):
        solved = getattr(env.game, "solvable", True) and getattr(env, "num_rounds", 1) == 1
        for key in (*["optimal"] * solved, *(f"scripted:{name}" for name in getattr(env.game, "scripted", {}))):
            players.setdefault(key.removeprefix("scripted:"), _tabular(env, key))
    return players


def _tabular(env: GameEnv, name: str) -> Callable[[Decision], str]:
    from legos_envs.policies import make_policy

    made = cache(partial(make_policy, name, env))

    def play(decision: Decision) -> str:
        policy: Policy = made()
        return str(policy(decision))

    return play
