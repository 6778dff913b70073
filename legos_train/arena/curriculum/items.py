"""Items of a data set, or passages of a corpus, drawn by how much can be learned from them.

An item is drawn in proportion to its `learnability`, p(1 - p) with its recorded pass rate p; an item that was never
tried counts as most learnable. Items outside the gate are left out, and records older than `max_age` steps no longer
count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from legos_envs import Episode
from legos_envs.tasks.problems import SPICE, Dataset
from legos_train.arena.artifact import Artifact, learnability
from legos_train.arena.artifact_store import ArtifactStore
from legos_train.arena.curriculum.shares import is_settled, means, suitable, with_options
from legos_train.config import sections

if TYPE_CHECKING:
    from legos_train.arena.arena import Arena
    from legos_train.arena.request import EpisodeRequest


class ItemSampler:
    """Draws option `index` of environments whose episodes are about one of N items.

    Args:
        settings: `share`, `low`, `high` and `max_age` of `[curriculum]`.
        store: keeps the items that were tried, one pool per environment.
        items: for each environment, by name, the keys of its items, in order. An item keeps its key when others are
            added before it.
    """

    taken: tuple[str, ...] = ("index",)
    """Options that already determine what an episode is about."""

    def __init__(self, settings: sections.CurriculumSettings, store: ArtifactStore, items: Mapping[str, Sequence[str]]):
        self.settings, self.store = settings, store
        self.items = {name: list(keys) for name, keys in items.items()}
        # A record that had to go would make an item that the gate leaves out look like one that was never tried.
        store.capacity = max(store.capacity, sum(map(len, self.items.values())))
        self._index = {name: {key: i for i, key in enumerate(keys)} for name, keys in self.items.items()}
        self._odds: dict[str, tuple[Any, np.ndarray]] = {}

    def prepare(self, request: EpisodeRequest, rng: np.random.Generator, step: int) -> EpisodeRequest:
        """Sets option `index` to a drawn item in a share of the requests; the others are unchanged."""
        if request.env not in self.items or is_settled(request, *self.taken) or rng.random() >= self.settings.share:
            return request
        odds = self._sums(request.env, step)
        if odds[-1] <= 0.0:  # the gate lets nothing through
            return request
        index = int(np.searchsorted(odds, rng.random() * odds[-1], side="right"))
        return with_options(request, {"index": index})

    def _sums(self, name: str, step: int) -> np.ndarray:
        """Running sums (N,) of the items' odds; kept until the store or the step changes."""
        asked = (self.store.version, step)
        if name not in self._odds or self._odds[name][0] != asked:
            self._odds[name] = asked, np.cumsum(self.odds(name, step))
        return self._odds[name][1]

    def odds(self, name: str, step: int) -> np.ndarray:
        """How likely each of an environment's N items is to be drawn, (N,), up to a factor."""
        s = self.settings
        odds = np.full(len(self.items[name]), learnability(0, 0))
        for item in self.store.entries(name):
            at = self._index[name].get(item.key)
            old = s.max_age is not None and step - (item.last or 0) > s.max_age
            if at is not None and not old:
                odds[at] = item.learnability if self._passes(item) else 0.0
        return odds

    def _passes(self, item: Artifact) -> bool:
        """The gate. It uses estimated rates: after a single answer, the raw rate of 0 or 1 would exclude every item."""
        return self.settings.low <= item.expected_rate <= self.settings.high

    def learn(self, episodes: Sequence[Episode], step: int) -> dict[str, float]:
        """Records who was right.

        Returns:
            `tried`: items with a record; `pass_rate`: of this step; `gated`: share of the items with a record that the
            gate leaves out.
        """
        rates: list[float] = []
        with self.store.transaction():
            for episode in episodes:
                found = self.result(episode) if episode.env_id in self.items else None
                if found is None:
                    continue
                key, content, right, tried = found
                rates.append(right / tried)
                number = self.store.add(content, pool=episode.env_id, key=key, step=step)
                known = self.store.find(key, episode.env_id) if number is None else None
                at = number if known is None else known.id
                if at is not None:
                    self.store.record(at, right, tried, step)
        recorded = [item for name in self.items for item in self.store.entries(name) if item.attempts]
        outside = [float(not self._passes(item)) for item in recorded]
        return {"tried": float(len(outside)), **means(pass_rate=rates, gated=outside)}

    def result(self, episode: Episode) -> tuple[str, dict[str, Any], int, int] | None:
        """What an episode reveals about its item: key, content, right answers, all answers; None if nothing."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Empty: everything is in the store."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores `state_dict()`."""


class LearnabilitySampler(ItemSampler):
    r"""Items of a data set, drawn by how much can be learned: neither those always right nor those always wrong.

    $$P(i) \propto p_i\,(1 - p_i) \qquad p_i = \frac{s_i + 1}{n_i + 2}$$

    s of n attempts at item i were right; p (1 - p) is the variance of a success, and largest for an item that was never
    tried. Items with p outside of `low` ... `high` are left out: at 0.1, those never right in nine attempts. Records
    older than `max_age` steps no longer count, so an item that was once too hard is tried again.

    When: `Dataset-v0`, `GSM8K-v0` and environments built on them, with many items that are too easy or too hard.

    When not: items are seldom drawn twice. Then nothing is known about them, and the draw is uniform.

    Source: Foster and Foerster 2025, "Learning to reason at the frontier of learnability", arXiv 2502.12272.
    """

    @classmethod
    def of(cls, settings: sections.CurriculumSettings, store: ArtifactStore, arena: Arena) -> LearnabilitySampler:
        """The sampler for the data sets of an arena. Raises ValueError when it has none."""
        sizes = {name: len(env.problems) for name, env in suitable(arena, Dataset).items()}
        return cls(settings, store, {name: [str(i) for i in range(size)] for name, size in sizes.items()})

    def result(self, episode: Episode) -> tuple[str, dict[str, Any], int, int] | None:
        index = episode.info.get("index")
        if index is None or episode.outcome not in ("correct", "wrong", "invalid"):
            return None  # truncated or unscored
        return str(index), {"index": index}, int(episode.info.get("correct", False)), 1


class CorpusSampler(ItemSampler):
    r"""Passages of a corpus, drawn by how often questions about them are answered correctly: neither always nor never.

    $$P(i) \propto p_i\,(1 - p_i) \qquad p_i = \frac{s_i + 1}{n_i + 2}$$

    s of the reasoners' n answers to questions about passage i were right. A passage that yielded no question counts as
    one that nobody could answer. Gate and age are those of `learnability`. A passage is identified by its text, so it
    keeps its record when the corpus around it changes.

    When: `SPICE-v0`, whose challenger asks about passages that the reasoner does not see.

    When not: other environments. A run without SPICE is rejected.

    Source: SPICE, Liu et al. 2025, arXiv 2510.24684, for the environment; the draw is that of `learnability`, arXiv
    2502.12272.
    """

    taken = ("index", "document")

    @classmethod
    def of(cls, settings: sections.CurriculumSettings, store: ArtifactStore, arena: Arena) -> CorpusSampler:
        """The sampler for the corpora of an arena's SPICE environments. Raises ValueError when it has none."""
        envs = suitable(arena, SPICE)
        return cls(settings, store, {name: [passage_key(d.text) for d in env.documents] for name, env in envs.items()})

    def result(self, episode: Episode) -> tuple[str, dict[str, Any], int, int] | None:
        text = episode.info.get("document")
        reasoners = [t for t in episode.trajectories.values() if t.role == "reasoner"]
        if text is None or not reasoners:
            return None
        key, right = passage_key(text), sum(bool(t.info.get("correct")) for t in reasoners)
        return key, {"title": episode.info["title"], "begins": text[:80]}, right, len(reasoners)


def passage_key(text: str) -> str:
    """The key of a passage, made from its text: it keeps its record when the corpus around it changes."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
