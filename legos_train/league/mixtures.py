"""How likely each member is to be drawn, for each mode."""

from __future__ import annotations

from collections.abc import Sequence

from legos_train import settings
from legos_train.league.nash import meta_nash, role_nash
from legos_train.league.payoffs import Against, Pairs

Mixture = dict[str, float]
"""Shares by member, in the members' order; they sum to 1."""


def mixtures(
    options: settings.League, members: Sequence[str], against: Against, pairs: Pairs, symmetric: bool
) -> tuple[Mixture, Mixture]:
    """Who is drawn for the first and for the second side. Both empty without members.

    Args:
        symmetric: `psro` solves one game of members against members for both sides, instead of one with a side each.
    """
    if not members:
        return {}, {}
    if options.mode == "psro":
        known = pairs.known(members)
        table = pairs.matrix(known)
        first, second = (meta_nash(table),) * 2 if symmetric else role_nash(table)
        empty = dict.fromkeys(members, 0.0)
        return empty | dict(zip(known, first.tolist())), empty | dict(zip(known, second.tolist()))
    raw = [1.0] * len(members)
    if options.mode == "pfsp":
        # The rate never reaches 1, so that no weight is 0 and nobody beaten is forgotten for good.
        raw = [(1 - against.win_rate(name)) ** options.pfsp_power for name in members]
    shares = {name: weight / sum(raw) for name, weight in zip(members, raw)}
    return shares, shares
