"""How likely each member is to be drawn, for each mode."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from legos_train.league.nash import meta_nash, role_nash
from legos_train.league.payoffs import Against, Pairs

Mixture = dict[str, float]
"""Shares by member, in the members' order; they sum to 1."""
Sides = tuple[Mixture, Mixture]
"""The mixtures for the first and the second side."""


class Population(NamedTuple):
    """The members that a mode draws from, and their results."""

    power: float
    """`league.pfsp_power`."""
    members: Sequence[str]
    against: Against
    pairs: Pairs
    symmetric: bool


@dataclass(frozen=True, slots=True)
class Mode:
    """A row of `MODES`: how likely each member is to be drawn, and properties that other code needs.

    Attributes:
        function: gives the mixtures of a population that has members; its docstring is the page in the docs.
        opponents: who plays the other seats, in the words of the help and of model cards.
        keeps_snapshots: whether the learner's earlier weights become members.
        needs_opponents: whether only `league.opponents` are members, so that it needs some.
        needs_payoffs: whether it reads payoffs between members, for which games are then played.
        needs_scipy: whether it solves linear programs.
        follows_results: whether the learner's own results change the mixtures.
        options: the settings of `[league]` that no other mode reads.
    """

    function: Callable[[Population], Sides]
    opponents: str
    keeps_snapshots: bool = True
    needs_opponents: bool = False
    needs_payoffs: bool = False
    needs_scipy: bool = False
    follows_results: bool = False
    options: tuple[str, ...] = ()

    @property
    def draws(self) -> bool:
        """Whether anyone but the learner may be drawn."""
        return self.keeps_snapshots or self.needs_opponents


MODES: dict[str, Mode] = {}
"""The modes by name; see `mode`."""
LeagueRule = Callable[[Population], Sides]


def mode(
    opponents: str,
    *,
    keeps_snapshots: bool = True,
    needs_opponents: bool = False,
    needs_payoffs: bool = False,
    needs_scipy: bool = False,
    follows_results: bool = False,
    options: tuple[str, ...] = (),
) -> Callable[[LeagueRule], LeagueRule]:
    """Registers a function as the mode of its name, under which settings, help and docs find it. See `Mode`."""

    def declare(function: LeagueRule) -> LeagueRule:
        flags = (keeps_snapshots, needs_opponents, needs_payoffs, needs_scipy, follows_results)
        MODES[function.__name__] = Mode(function, opponents, *flags, options)
        return function

    return declare


def uniform(population: Population) -> Sides:
    """Every member equally often."""
    return _both(population.members, [1.0] * len(population.members))


@mode("itself in every seat", keeps_snapshots=False)
def mirror(population: Population) -> Sides:
    r"""The learner plays all seats; no opponent is drawn.

    When: the default, and the cheapest, since every seat of every game is trained on. Its weight average can settle
    even if its last policy cycles (docs/league.md).

    When not: you want to use the last policy itself in a game with a mixed equilibrium, or the learner forgets how to
    beat its past selves.

    Source: self-play against the current policy, as in SPIRAL, arXiv 2506.24119.
    """
    return {}, {}


@mode("earlier versions of itself, all equally often")
def fsp(population: Population) -> Sides:
    r"""Fictitious self-play: opponents are drawn uniformly from the learner's past snapshots.

    $$P(m) = \frac{1}{|M|}$$

    M are all members: the snapshots of the pool, and `league.opponents`. Fictitious play asks for the best response to
    the average of one's past.

    When: the learner should keep beating its past selves, and payoffs between snapshots are too expensive.

    When not: the pool is small compared with the run. Snapshots that have left it are forgotten, and the mixture
    follows the learner around: with a pool of 25 of 61 snapshots its exploitability was two to seven times that with
    all of them (docs/league.md).

    Source: Heinrich et al. 2015, "Fictitious self-play in extensive-form games", ICML.
    """
    return uniform(population)


@mode(
    "earlier versions of itself, harder ones more often",
    follows_results=True,
    options=("pfsp_power",),
)
def pfsp(population: Population) -> Sides:
    r"""Prioritised fictitious self-play: the members hardest to beat are drawn most.

    $$P(m) \propto \left(1 - w(m)\right)^{k}$$

    w is the learner's recent share of points against the member, from all seats; it starts at a draw, and results fade
    by a factor of 0.9 per step. k is `pfsp_power`. The share never reaches 1, so no beaten member is dropped for good.

    When: many snapshots are too weak to teach anything, and games can be won or lost.

    When not: payoffs of roles are on different scales. The higher return wins, so the share says little there.

    Source: Vinyals et al. 2019, "Grandmaster level in StarCraft II using multi-agent reinforcement learning", Nature
    575.
    """
    logs = [population.power * math.log(1 - population.against.win_rate(name)) for name in population.members]
    return _both(population.members, [math.exp(log - max(logs)) for log in logs])  # with a large power none underflows


@mode(
    "earlier versions of itself, by the meta-Nash of their payoffs",
    needs_payoffs=True,
    needs_scipy=True,
    options=("payoff_games",),
)
def psro(population: Population) -> Sides:
    r"""Policy-space response oracles: opponents are drawn from the equilibrium of the pool's payoff matrix.

    $$x = \arg\max_{x}\ \min_{y}\ x^{\top} U y$$

    U holds the payoff of every member against every other, from `payoff_games` games per pair; x and y are mixtures
    over members, one for each side, found by linear programming. A payoff is half the difference of the two returns,
    which is the return itself in a zero-sum game. A new snapshot has weight 0 until its games are played.

    When: you want a mixture that cannot be exploited. Of all modes only this one stayed below 0.05 on both games of the
    benchmark (docs/league.md).

    When not: games between members are expensive. With few of them the payoffs are noise, and so is the mixture. A game
    that is not zero-sum is treated as if it were.

    Source: Lanctot et al. 2017, "A unified game-theoretic approach to multiagent reinforcement learning",
    arXiv 1711.00832.
    """
    names = population.pairs.known(population.members)
    table = population.pairs.matrix(names)
    first, second = (meta_nash(table),) * 2 if population.symmetric else role_nash(table)
    empty = dict.fromkeys(population.members, 0.0)
    return empty | dict(zip(names, first.tolist())), empty | dict(zip(names, second.tolist()))


@mode("fixed opponents only", keeps_snapshots=False, needs_opponents=True)
def fixed(population: Population) -> Sides:
    r"""Opponents are drawn uniformly from those named in the settings. There are no snapshots and no mirror play.

    $$P(m) = \frac{1}{|O|}$$

    O are `league.opponents`: `base`, or any policy of `legos eval`.

    When: you have specific opponents to beat, and the learner should train only against them.

    When not: the opponents are exploitable. What beats them need not be good play against anyone else.

    Source: none; this is training against given players.
    """
    return uniform(population)


def mixtures(name: str, power: float, members: Sequence[str], against: Against, pairs: Pairs, symmetric: bool) -> Sides:
    """The mixtures for the first and the second side; both empty without members.

    Args:
        name: a key of `MODES`.
        power: `league.pfsp_power`.
        members: who may be drawn.
        against: how the learner did against each.
        pairs: payoffs between members.
        symmetric: `psro` solves one game of members against members for both sides, rather than a game with two
            different sides.
    """
    if not members:
        return {}, {}
    return MODES[name].function(Population(power, members, against, pairs, symmetric))


def _both(members: Sequence[str], raw: Sequence[float]) -> Sides:
    """The same shares for both sides, from weights."""
    shares = {name: weight / sum(raw) for name, weight in zip(members, raw)}
    return shares, shares
