"""The metrics record of a step."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from legos_envs import Episode
from legos_train.loss.batch import Batch, BatchByLearner
from legos_train.run.parts.parts import Parts
from legos_train.run.parts.replay import ReplayBatch
from legos_train.run.records.episode_metrics import episode_metrics, learner_metrics


class Clock:
    """Measures the parts of a step, in seconds."""

    def __init__(self, play: float, generate: float | None):
        self.play, self.generate = play, generate or play
        self._began = self._packed = self._learned = time.perf_counter()

    def packed(self) -> None:
        self._packed = time.perf_counter()

    def learned(self) -> None:
        self._learned = time.perf_counter()

    def seconds(self) -> dict[str, float]:
        done = time.perf_counter()
        return {
            "seconds": self.play + done - self._began,
            "seconds_play": self.play,
            "seconds_pack": self._packed - self._began,
            "seconds_learn": self._learned - self._packed,
            "seconds_publish": done - self._learned,
        }


def step_record(
    parts: Parts,
    fresh: ReplayBatch,
    batch: Batch | BatchByLearner,
    numbers: Mapping[str, Any],
    dropped: Mapping[str, int],
    clock: Clock,
) -> dict[str, Any]:
    """The row of a step in metrics.jsonl: its episodes, what was learned, what was left out, and timings."""
    counters = batch.counters
    decided = fresh.decisions
    sampled = counters.action_tokens
    if decided is not None:  # the played ones, not those learned from
        sampled = _tokens(fresh.episodes) + decided.branches["tokens"]
    by_env = len(parts.arena.envs) > 1 or len({episode.env_id for episode in fresh.episodes}) > 1
    record = {
        "step": parts.learner.step,
        **episode_metrics(fresh.episodes, by_env=by_env, success=parts.measurer.own_scales),
        **numbers,
        "distinct_rows": counters.distinct_rows,
        "action_tokens": counters.action_tokens,
        "zero_advantages": counters.zero_advantage_share,
        "learning_updates": _learning_updates(numbers, batch),
        "dropped": {**counters.dropped, **dropped},
        "left_out": dict(fresh.left_out),
        "tokens_per_second": sampled / clock.generate if clock.generate > 1e-6 else None,
        **clock.seconds(),
    }
    if fresh.uses > 1:  # nothing was played: totals of episodes must not count these again
        record |= {"episodes": 0, "replayed": len(fresh.episodes)}
    if own := numbers.get("learners"):
        got = learner_metrics(fresh.episodes, own, parts.measurer.own_scales)
        record["learners"] = {name: {**got[name], **values} for name, values in own.items()}
    if decided is not None and decided.branches:
        record["branches"] = dict(decided.branches)
    if fresh.numbers:
        record["curriculum"] = fresh.numbers
    if parts.league is not None and (league := parts.league.metrics()):
        record["league"] = league
    return record


def _tokens(episodes: Sequence[Episode]) -> int:
    return sum(len(u.action_tokens or ()) for e in episodes for t in e.trajectories.values() for u in t.turns)


def _learning_updates(numbers: Mapping[str, Any], batch: Batch | BatchByLearner) -> int:
    """The updates of a step that learned something: from an advantage that is not 0, or with `sft` an answer
    to imitate. An update by the KL penalty alone, whose gradient at the reference is rounding, does not count. With
    several learners each has its own.
    """
    if isinstance(batch, BatchByLearner):
        each = numbers.get("learners", {})  # empty if no learner had anything to train on
        return sum(_learning_updates(own, batch.parts[name]) for name, own in each.items())
    zero = batch.counters.zero_advantage_share
    taught = (zero is not None and zero < 1) or numbers.get("live_share", 0) > 0
    return int(numbers["updates"]) if taught else 0
