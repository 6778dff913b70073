"""Results in one env: the learner against each member, and the members against each other."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from legos_train.league.league_settings import LeagueSettings
from legos_train.league.modes import Mixture, mixtures
from legos_train.league.payoffs import Against, Pairs

LEARNER = "learner"
"""The name of the only learner in results and ratings."""


class Standing:
    """The payoffs of a league in one env, and who is drawn there.

    Args:
        symmetric: all seats play the same game, so that `psro` needs one mixture for both.
        learners: whose results are kept, each apart.

    Attributes:
        results: by learner, its results against members (and other learners).
    """

    def __init__(self, symmetric: bool, learners: Collection[str] = (LEARNER,)):
        self.symmetric = symmetric
        self.results, self.pairs = {name: Against() for name in learners}, Pairs()
        self._mixtures: dict[str, tuple[Mixture, Mixture]] = {}

    @property
    def against(self) -> Against:
        """The results of the first learner."""
        return next(iter(self.results.values()))

    def changed(self) -> None:
        """Call this when members, settings or payoffs have changed, so that the mixtures are computed again."""
        self._mixtures.clear()

    def forget(self) -> None:
        """Lets all results fade, see `payoffs.FORGET`."""
        for against in self.results.values():
            against.forget()

    def drop(self, name: str) -> None:
        """Forgets a member that has left."""
        for against in self.results.values():
            against.scores.pop(name, None)
        self.pairs.drop(name)
        self.changed()

    def mixture(
        self, settings: LeagueSettings, members: Sequence[str], side: int | None, learner: str | None = None
    ) -> Mixture:
        """How likely each member is to be the opponent of a learner (None: the first), see `League.mixture`."""
        learner = next(iter(self.results)) if learner is None else learner
        if learner not in self._mixtures:
            self._mixtures[learner] = mixtures(
                settings.mode, settings.pfsp_power, members, self.results[learner], self.pairs, self.symmetric
            )
        sides = self._mixtures[learner]
        if side is not None:
            return dict(sides[side])
        return {name: (share + sides[1][name]) / 2 for name, share in sides[0].items()}

    def missing_pairs(self, members: Sequence[str], wanted: int) -> list[tuple[str, str]]:
        """The pairs of members with fewer games than are wanted."""
        every = [(a, b) for a in members for b in members if a != b or not self.symmetric]
        return [pair for pair in every if self.pairs.games.get(pair, 0) < wanted]

    def state_dict(self) -> dict[str, Any]:
        results = {name: against.to_json() for name, against in self.results.items()}
        own = {"against": results[LEARNER]} if list(results) == [LEARNER] else {"results": results}
        return {**own, "pairs": self.pairs.to_json()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        results = state["results"] if "results" in state else {LEARNER: state["against"]}
        for name, against in self.results.items():
            against.load(results[name])
        self.pairs.load(state["pairs"])
        self.changed()
