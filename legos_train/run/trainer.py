"""One training step: play, assign credit, pack, learn, publish. `loop.py` runs the steps."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from legos_envs import Episode
from legos_envs.play import wait_for
from legos_envs.table import keyed_generator
from legos_train.arena import Arena, EpisodeRequest
from legos_train.config import TrainConfig
from legos_train.disk import crashpoint
from legos_train.errors import ConfigError, NothingToLearn, TrainingError
from legos_train.loss import LossSettings
from legos_train.loss.batch import Batch, BatchByLearner, Encode, pack, seats_of
from legos_train.model import Learners
from legos_train.rollout import Job, filters
from legos_train.run.alarm_actions import respond
from legos_train.run.parts.parts import Parts
from legos_train.run.parts.replay import ReplayBatch
from legos_train.run.payoff_games import fill_payoffs
from legos_train.run.records.step_record import Clock, step_record

MAX_EMPTY = 20
"""Number of steps in a row without training data after which a run stops."""
VISIBLE = 1e-9
"""Weight changes above this must change some logit. Without a training signal, updates are rounding: 1e-11."""


class Trainer:
    """A run, step by step. `legos_train.train` is the loop around it; tests and notebooks may call `step` themselves.

    Attributes:
        batch: the training batch of the last step.
        last: the episodes that the last step trained on, with their advantages.
        jobs: jobs of the last episodes played; empty if the arena plays them itself.
    """

    def __init__(self, parts: Parts):
        self.parts, self.config, self.learner = parts, parts.config, parts.learner
        self.batch: Batch | BatchByLearner | None = None
        self.last: ReplayBatch | None = None
        self.redrawn = self.empty = 0
        self.jobs: list[Job] = []
        try:
            parts.sync.everything(parts.league)
        except BaseException:  # a server may have refused, say, the second of three
            parts.close()
            raise

    def step(self) -> dict[str, Any]:
        """One step in synchronous mode; returns the metrics record."""
        crashpoint("loop.step_begun")
        if self.parts.world is not None:
            self.parts.world.agree("the adapter", self.parts.backend.fingerprint())
        seconds = 0.0
        if self.parts.replay.due(self.learner.step):
            began = time.perf_counter()
            episodes = self.play(self.learner.step + 1)
            self.assign_credit(episodes, self.learner.step)
            seconds = time.perf_counter() - began
        crashpoint("loop.step_played")
        return self.learn(seconds)

    def learn(self, seconds_play: float, seconds_generate: float | None = None) -> dict[str, Any]:
        """The second half of a step: one optimiser step on a batch from the replay buffer; returns the metrics record.

        Args:
            seconds_play: how long the learner waited for the episodes.
            seconds_generate: how long generating them took, if that differs.
        """
        clock = Clock(seconds_play, seconds_generate)
        self.last, dropped = self.parts.replay.take(self.learner.step)
        self.batch = self.pack(self.last)
        clock.packed()
        numbers = self.update(self.batch)
        clock.learned()
        crashpoint("loop.updated")
        self.publish(probes(self.batch, numbers))
        crashpoint("loop.published")
        record = step_record(self.parts, self.last, self.batch, numbers, dropped, clock)
        if alarms := self.parts.monitor.check(record):
            record["alarms"] = [respond(self.parts, alarm) for alarm in alarms]
        return record

    # --- play --------------------------------------------------------------------------------------------------------

    def play(self, step: int) -> list[Episode]:
        """Plays the episodes of a step, all by the current policy, and marks what is trained on."""
        requests = self.next_requests(step)
        arena, retries = self.parts.arena, self.config.filter.draw_retries
        self.redrawn, self.jobs = 0, []
        if type(arena).generate_rollouts is Arena.generate_rollouts:
            self.jobs = arena.jobs(requests)
            episodes, self.redrawn = filters.retry(self.jobs, self._run, retries)
            return episodes
        if retries:
            raise ConfigError(
                "filter.draw_retries is for Arena's own generate_rollouts; play drawn episodes again there"
            )
        return wait_for(arena.generate_rollouts(requests))

    def next_requests(self, step: int) -> list[EpisodeRequest]:
        """The arena's requests; before that, the games that `psro` needs for its payoff matrix."""
        arena, league = self.parts.arena, self.parts.league
        arena.step = step
        if league is not None:
            fill_payoffs(self.parts, league)
        requests = arena.get_batch()
        if not requests:
            raise TrainingError(f"step {step}: get_batch returned no episodes to play")
        return requests

    def _run(self, jobs: Sequence[Job]) -> list[Episode]:
        assert self.parts.arena.generator is not None
        return self.parts.arena.generator.run(jobs)

    # --- credit ------------------------------------------------------------------------------------------------------

    def assign_credit(self, episodes: Sequence[Episode], version: int) -> None:
        """Passes fresh episodes once through filters, stores and credit, and puts them into the replay buffer."""
        config, parts, step = self.config, self.parts, self.learner.step + 1
        parts.arena.step = step
        if parts.league is not None:
            parts.league.observe(episodes, [_opponents(parts.arena, episode) for episode in episodes])
        numbers = parts.arena.learn(episodes)
        kept = list(episodes)
        if config.filter.draws:
            kept = filters.keep_draws(kept, config.filter.draws, keyed_generator(config.seed, f"draws of step {step}"))
        decisions = None
        if parts.decisions is None:
            advantages = parts.credit.assign(kept)  # before keep_best: baselines must see the losers too
        else:
            decisions = parts.decisions.of(kept, version, self.jobs)
            advantages = [decisions.advantages_of(episode) for episode in kept]
        crashpoint("loop.credited")
        left_out = {
            "filtered": filters.keep_best(kept, config.filter.keep),
            "draws": len(episodes) - len(kept),
            "redrawn": self.redrawn,
            "not_finite": sum(filters.is_not_finite(episode) for episode in episodes),
        }
        fresh = ReplayBatch(list(episodes), kept, advantages, version, {**numbers}, left_out, decisions=decisions)
        parts.replay.add(fresh)

    # --- pack, learn, publish ----------------------------------------------------------------------------------------

    def pack(self, fresh: ReplayBatch) -> Batch | BatchByLearner:
        """Packs episodes and advantages into arrays; for several learners, those of each."""
        if not isinstance(self.learner, Learners):
            return self._pack(fresh, self.config, lambda episode: episode)
        learners = self.learner.members.items()
        return BatchByLearner({n: self._pack(fresh, one.config, partial(seats_of, learner=n)) for n, one in learners})

    def _pack(self, fresh: ReplayBatch, config: TrainConfig, seats: Callable[[Episode], Episode]) -> Batch:
        loss = config.loss
        stale = config.replay.max_staleness if config.replay.reuse > 1 else config.asynchronous.max_off_policy_steps
        decisions = fresh.decisions
        batch = pack(
            [seats(episode) for episode in (fresh.kept if decisions is None else decisions.episodes)],
            fresh.advantages if decisions is None else decisions.advantages,
            weights=None if decisions is None else decisions.weights,
            max_tokens=config.context,
            policy_version=self.learner.step,
            max_staleness=max(stale, config.replay.reuse - 1),
            skip_zero=config.filter.zero_advantages,
            skip_forced=loss.skip_forced,
            keep_forks=loss.token_loss.mirror,
            mask_truncated=loss.mask_truncated,
            legal=self._spelling(loss),
        )
        if loss.legality and (batch.legal < 0).all() and len(batch):
            said = "loss.legality has no effect: answers here are free text, or contain more than the action"
            warnings.warn(said, stacklevel=2)
        return batch

    def _spelling(self, loss: LossSettings) -> Encode | None:
        """Encodes legal actions if the loss needs it: with the end of the turn if that counts too."""
        renderer = self.parts.renderer
        if loss.legality and not renderer.reasons:  # a thought is not a legal prefix, and must not be penalised
            return lambda action: [*renderer.encode(action), renderer.end_id]
        return renderer.encode if loss.entropy_over == "legal" else None

    def update(self, batch: Batch | BatchByLearner) -> dict[str, Any]:
        """Trains, or skips the step and reports it if nothing in the batch can be trained on."""
        if len(batch):
            self.empty = 0
            return self.learner.update(batch)  # type: ignore[arg-type]
        self.empty += 1
        if self.empty > MAX_EMPTY:
            kind = NothingToLearn if self.empty > self.learner.step else TrainingError
            raise kind(
                f"step {self.learner.step + 1}: {self.empty} steps in a row had nothing to train on (see `dropped`, "
                "`left_out` and `outcomes` in metrics.jsonl); nothing would be learned"
            )
        self.learner.finish(self.learner.step + 1)
        nothing = {"updates": 0, "idle": 1, "empty": 1, "skipped": 0}  # no loss, entropy or KL: there was no data
        return {**nothing, "lr": self.learner.learning_rate(self.learner.step)}

    def publish(self, changed: Mapping[str | None, Sequence[int]]) -> None:
        """Publishes the new weights to whatever plays, and a snapshot to the league when one is due.

        Args:
            changed: learners with new weights, each with a prompt that shows it; see `probes`.
        """
        if changed:
            self.parts.sync.new_policy(changed)
        else:  # the same weights, under the version of the next episodes
            self.parts.sync.policy()
        self.parts.sync.snapshot(self.parts.league)


def probes(batch: Batch | BatchByLearner, numbers: Mapping[str, Any]) -> dict[str | None, Sequence[int]]:
    """For each learner with visibly new weights (None: the only one), a prompt whose logits must change."""
    parts = {None: (batch, numbers)} if isinstance(batch, Batch) else _by_learner(batch, numbers)
    return {
        name: part.context(0)
        for name, (part, own) in parts.items()
        if own["updates"] and own["adapter_change"] > VISIBLE
    }


def _by_learner(batch: BatchByLearner, numbers: Mapping[str, Any]) -> dict[str | None, tuple[Batch, Any]]:
    each = numbers.get("learners", {})  # empty if no learner had anything to train on
    return {name: (part, each.get(name, {"updates": 0})) for name, part in batch.parts.items()}


def _opponents(arena: Arena, episode: Episode) -> dict[str, str]:
    """The seats that league members played: agent -> member. Seats that are assigned to actors do not count."""
    found = {a: t.info["member"] for a, t in episode.trajectories.items() if "member" in t.info}
    if not found or (slot := arena.envs.get(episode.env_id)) is None:
        return found
    seats = arena.live(slot, arena.trained_roles(slot))
    return {agent: member for agent, member in found.items() if agent in seats}
