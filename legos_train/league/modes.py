"""How likely each member is to be drawn, for each mode."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from legos_train.league.nash import meta_nash, role_nash
from legos_train.league.payoffs import Against, Pairs

Mixture = dict[str, float]
"""Shares by member, in the members' order; they sum to 1."""


class Population(NamedTuple):
    """The members that a mode draws from, and their results."""

    power: float
    """`league.pfsp_power`."""
    members: Sequence[str]
    against: Against
    pairs: Pairs
    symmetric: bool


def mirror(population: Population) -> tuple[Mixture, Mixture]:
    r"""The learner plays all seats; no opponent is drawn.

    When: the default, and the cheapest, since every seat of every game is trained on. Its weight average can settle
    even if its last policy cycles (docs/league.md).

    When not: you want to use the last policy itself in a game with a mixed equilibrium, or the learner forgets how to
    beat its past selves.

    Source: self-play against the current policy, as in SPIRAL, arXiv 2506.24119.
    """
    return {}, {}


def fsp(population: Population) -> tuple[Mixture, Mixture]:
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
    return _both(population.members, [1.0] * len(population.members))


def pfsp(population: Population) -> tuple[Mixture, Mixture]:
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


def psro(population: Population) -> tuple[Mixture, Mixture]:
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


def fixed(population: Population) -> tuple[Mixture, Mixture]:
    r"""Opponents are drawn uniformly from those named in the settings. There are no snapshots and no mirror play.

    $$P(m) = \frac{1}{|O|}$$

    O are `league.opponents`: `random`, `optimal`, `scripted:NAME`, `base`, a run, an endpoint.

    When: you have specific opponents to beat, and the learner should train only against them.

    When not: the opponents are exploitable. What beats them need not be good play against anyone else.

    Source: none; this is training against given players.
    """
    return _both(population.members, [1.0] * len(population.members))


MODES: dict[str, Callable[[Population], tuple[Mixture, Mixture]]] = {
    mode.__name__: mode for mode in (mirror, fsp, pfsp, psro, fixed)
}


def mixtures(
    mode: str, power: float, members: Sequence[str], against: Against, pairs: Pairs, symmetric: bool
) -> tuple[Mixture, Mixture]:
    """The mixtures for the first and the second side; both empty without members.

    Args:
        mode: a key of `MODES`.
        power: `league.pfsp_power`.
        members: who may be drawn.
        against: how the learner did against each.
        pairs: payoffs between members.
        symmetric: `psro` solves one game of members against members for both sides, rather than a game with two
            different sides.
    """
    if not members:
        return {}, {}
    return MODES[mode](Population(power, members, against, pairs, symmetric))


def _both(members: Sequence[str], raw: Sequence[float]) -> tuple[Mixture, Mixture]:
    """The same shares for both sides, from weights."""
    shares = {name: weight / sum(raw) for name, weight in zip(members, raw)}
    return shares, shares
