"""Results in one env: the learner against each member, and the members against each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from legos_train.league.league_settings import LeagueSettings
from legos_train.league.modes import Mixture, mixtures
from legos_train.league.payoffs import Against, Pairs


class Standing:
    """The payoffs of a league in one env, and who is drawn there.

    Args:
        symmetric: all seats play the same game, so that `psro` needs one mixture for both.
    """

    def __init__(self, symmetric: bool):
        self.symmetric = symmetric
        self.against, self.pairs = Against(), Pairs()
        self._mixtures: tuple[Mixture, Mixture] | None = None

    def changed(self) -> None:
        """Call this when members, settings or payoffs have changed, so that the mixture is computed again."""
        self._mixtures = None

    def drop(self, name: str) -> None:
        """Forgets a member that has left."""
        self.against.scores.pop(name, None)
        self.pairs.drop(name)
        self.changed()

    def mixture(self, settings: LeagueSettings, members: Sequence[str], side: int | None) -> Mixture:
        """How likely each member is to be the opponent, see `League.mixture`."""
        if self._mixtures is None:
            self._mixtures = mixtures(
                settings.mode, settings.pfsp_power, members, self.against, self.pairs, self.symmetric
            )
        first, second = self._mixtures
        if side is not None:
            return dict(self._mixtures[side])
        return {name: (first[name] + second[name]) / 2 for name in first}

    def missing_pairs(self, members: Sequence[str], wanted: int) -> list[tuple[str, str]]:
        """The pairs of members with fewer games than are wanted."""
        every = [(a, b) for a in members for b in members if a != b or not self.symmetric]
        return [pair for pair in every if self.pairs.games.get(pair, 0) < wanted]

    def state_dict(self) -> dict[str, Any]:
        return {"against": self.against.to_json(), "pairs": self.pairs.to_json()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.against.load(state["against"])
        self.pairs.load(state["pairs"])
        self.changed()
