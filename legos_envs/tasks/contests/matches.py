"""What head-to-head, Elo arena and tournament share: another env with two trainable seats or more, played as one match
of many.

A match is a function call in the rules, `yield from env.play(table.sub("match_3", options))`, and everything that goes
wrong in it stays in it: a forfeit is settled at its table and counts as a loss, a match whose judge failed is void.
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
"""How a user names the env of a match: an id, a class or factory, or an env; None for the built-in contest."""
Seating = Sequence[Sequence[str | None]]
"""Match by match, who sits on each trainable seat."""
SHARED = ("memory", "action_format", "invalid_retries", "invalid_reward", "invalid_opponent_reward")
"""Arguments in which a match and the env around it must agree: rules read those of the env that their table is in."""


class MatchResult(NamedTuple):
    """What came of a match. `ending` is `"played"`, `"forfeit"` or `"unscored"` (void: nobody scores)."""

    match: str
    entrants: tuple[str, ...]
    """Who sat on each of the trainable seats, in the order of the seats."""
    returns: tuple[float, ...]
    scores: tuple[float, ...]
    """The share of opponents that each has beaten, a draw counting half; all 0 in a void match."""
    ending: str
    forfeited: tuple[str, ...] = ()

    @property
    def void(self) -> bool:
        """Whether there is nothing to count."""
        return self.ending == "unscored"

    @property
    def rated(self) -> bool:
        """Whether ratings take it into account: not when it is void or nobody was there to win it."""
        return not self.void and sum(self.scores) > 0

    def record(self) -> dict[str, Any]:
        """The same as JSON values, for infos."""
        facts = self._asdict() | {"forfeited": list(self.forfeited)}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in facts.items()}


class MatchEnv(TextEnv):
    """Base class of envs whose rules are matches of another env.

    Seats are those of the match, `match_0/pro_0`, `match_0/con_0`, ...; `match_options`, `hidden_information`, scripted
    players and defaults of `memory`, `action_format` and the treatment of invalid moves are those of the match, too.

    Args:
        match: a registered id, a `TextEnv` class, factory or instance; None for the contest.
        match_kwargs: its constructor arguments.
        entrants: who sits on its trainable seats, match by match; None where the rules decide that in play. Or a
            function that gives this for the number of seats.
        own_options: reset options of the env itself.
        source: the match's `source`, for a match that has one.
        split: the match's `split`.
        **kwargs: arguments of `TextEnv`; those in `SHARED` go to the match as well.

    Raises:
        TypeError: the match is nothing that can be played so.
        ValueError: the entrants cannot be seated on its trainable seats, or it has an option with a name of
            `own_options`.
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
        env = make_match(match, {**(match_kwargs or {}), **given})
        self.sides = [seat for seat, facts in env.seats.items() if facts.trainable]
        if len(self.sides) < 2:
            raise ValueError(f"a match needs two trainable seats or more; {env.name} has {self.sides}")
        try:
            seated = entrants(len(self.sides)) if callable(entrants) else entrants
            if len(self.sides) != len(seated[0]):
                raise ValueError(f"a match needs exactly {len(seated[0])} trainable seats")
        except ValueError as error:
            raise ValueError(f"{error}; {env.name} has {len(self.sides)}: {self.sides}") from None
        # Each match has an env of its own: rules may keep on `self` what a seat hides.
        self.matches = {f"match_{k}": env if k == 0 else _again(env) for k in range(len(seated))}
        self.seats = {
            f"{name}/{seat}": Seat(facts.role, facts.trainable, dict(zip(self.sides, who)).get(seat, facts.entrant))
            for name, who in zip(self.matches, seated)
            for seat, facts in env.seats.items()
        }
        own = dict(own_options or {})
        if taken := own.keys() & env.reset_options.keys():
            raise ValueError(
                f"{env.name} has reset options of the names {sorted(taken)}, which {self.name} uses itself"
            )
        self.match_options = tuple(env.reset_options)
        self.zero_sum = env.zero_sum  # type: ignore[misc]  # class constants elsewhere, the match's affair here
        self.hidden_information = env.hidden_information  # type: ignore[misc]
        self.reset_options = {**env.reset_options, **own}  # type: ignore[misc]
        self.scripted_players = players_of(env)  # type: ignore[misc]
        if hasattr(env, "private_texts"):
            self.private_texts = self._private_texts
        self._begun: set[str] = set()
        self.default_max_turns = len(seated) * env.max_turns  # type: ignore[misc]
        super().__init__(**{**kwargs, **{key: getattr(env, key) for key in SHARED}})

    def _private_texts(self, agent: str) -> list[str]:
        """What the env of the agent's match says; nothing while that match has not begun."""
        name, _, seat = agent.partition("/")
        if name not in self._begun:
            return []
        match, here = self.matches[name], f"{name}/"
        match.log = [(who.removeprefix(here), text) for who, text in self.log if who.startswith(here)]
        return match.private_texts(seat)  # type: ignore[attr-defined]

    @staticmethod
    def strangers(agent: str, other: str) -> bool:
        """Whether two agents sit at different matches, where chance, or a deal that is used twice, may give them the
        same: `check_env` does not take that for a leak.
        """
        return agent.partition("/")[0] != other.partition("/")[0]

    def _begin(self, seed: int, options: Mapping[str, Any] | None) -> None:
        self._begun.clear()
        super()._begin(seed, options)

    def run(self, table: Table, name: str, entrants: Sequence[str], key: str | None = None) -> Rules[MatchResult]:
        """Plays one match to its end, whatever happens in it.

        Args:
            table: the table of the whole.
            name: which match, such as `"match_3"`.
            entrants: who sits on each trainable seat.
            key: matches of one key are dealt the same.
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
            if isinstance(settled, Forfeit):  # rules that went on without somebody
                ending, offenders = "forfeit", self._blame(here, settled)
        except Forfeit as forfeit:
            here.settle(forfeit)
            ending, offenders = "forfeit", self._blame(here, forfeit)
        except Unscored as failed:
            ending = "unscored"
            here.note(reason=str(failed), trainable=False)  # a zero that nobody has earned is not a draw to learn from
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
        """Tells offenders why; returns their seats."""
        for agent, reason in forfeit.reasons.items():
            here.note(agent.removeprefix(here.path), reason=reason)
        return tuple(agent.removeprefix(here.path) for agent in forfeit.agents)

    def scored(self, results: Sequence[MatchResult]) -> list[MatchResult]:
        """The results that are not void.

        Raises:
            Unscored: all are; then the episode has no score either.
        """
        left = [result for result in results if not result.void]
        if not left:
            raise Unscored(f"no match could be scored: {', '.join(result.match for result in results)}")
        return left


MOST_MATCHES = 128
"""Most matches of one episode."""


def round_robin(entrants: Sequence[str], seats: int = 2) -> list[tuple[str, ...]]:
    """Every group of as many entrants as a match has seats meets once. Of two, who sits first alternates: each entrant
    does so in half of its matches, or half a match off; larger groups are moved on so that seats come evenly.

    Raises:
        ValueError: there are fewer entrants than seats, or more matches than `MOST_MATCHES`.
    """
    if seats > len(entrants):
        raise ValueError(f"num_entrants must be at least as many as a match has seats; got {len(entrants)}")
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
        TypeError: it is not an id, class, factory or env, or makes something else than a `TextEnv`.
        UnknownEnv: nothing is registered under the id.
    """
    if isinstance(match, str):
        env = registry.make(match, **kwargs).unwrapped
    elif isinstance(getattr(match, "unwrapped", None), TextEnv):  # an env, as `make` gives it or bare
        env = _again(match.unwrapped, **kwargs)  # type: ignore[union-attr]
    elif match is None or callable(match):
        made = (match or Contest)(**kwargs)
        env = getattr(made, "unwrapped", made)
    else:
        env = match
    if not isinstance(env, TextEnv):
        raise TypeError(
            f"match must be the id of an environment, a TextEnv class, a function that makes one, a TextEnv or None; "
            f"got {match!r}" + ("" if env is match else f", which makes a {type(env).__name__}")
        )
    return env


def _again(env: TextEnv, **changes: Any) -> TextEnv:
    """A new env made with the same arguments, but for some."""
    args, kwargs = env._made_with
    names = list(inspect.signature(type(env).__init__).parameters)[1:]
    return type(env)(**{**dict(zip(names, args)), **kwargs, **changes})


def _scores(returns: Sequence[float], out: Sequence[bool]) -> tuple[float, ...]:
    """The share of the others that each has beaten, draws half; who forfeited has beaten nobody."""

    def against(i: int, j: int) -> float:
        if out[i] or out[j]:
            return float(not out[i])
        return 0.5 if abs(returns[i] - returns[j]) < 1e-9 else float(returns[i] > returns[j])

    seats = range(len(returns))
    return tuple(sum(against(i, j) for j in seats if j != i) / (len(seats) - 1) for i in seats)


def players_of(env: TextEnv) -> dict[str, Callable[[Decision], str]]:
    """The scripted players of an env, with those that a game brings as tables, which are made when first asked."""
    players = dict(env.scripted_players)
    if isinstance(env, GameEnv):
        for key in ("optimal", *(f"scripted:{name}" for name in getattr(env.game, "scripted", {}))):
            players.setdefault(key.removeprefix("scripted:"), _tabular(env, key))
    return players


def _tabular(env: GameEnv, name: str) -> Callable[[Decision], str]:
    from legos_envs.policies import make_policy

    made = cache(partial(make_policy, name, env))

    def play(decision: Decision) -> str:
        policy: Policy = made()
        return str(policy(decision))

    return play
