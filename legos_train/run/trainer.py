"""One run, step by step: what is played, what is learned, how it is measured and kept."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from inference import Engine, load
from inference.forward import fastblas
from inference.text import Renderer
from legos_envs import Episode
from legos_envs.table import keyed_generator
from legos_train.arena import Arena, EpisodeRequest
from legos_train.batch import Batch, pack
from legos_train.config import TrainConfig
from legos_train.credit import Advantages
from legos_train.disk import crashpoint, tensors
from legos_train.errors import ConfigError, TrainingError
from legos_train.evaluation import Measurer
from legos_train.evaluation.during_training import Course
from legos_train.model import Learner, MLXBackend
from legos_train.players import ModelPlayer, RemoteEngine
from legos_train.rollout import Generator, Job, LocalGenerator, Publisher, filters
from legos_train.rollout.jobs import NOT_FINITE
from legos_train.run import state as whole_state
from legos_train.run.build import arena_of, make_credit, make_league, remote_engine, warm_start
from legos_train.run.episode_metrics import episode_metrics
from legos_train.run.monitor import CollapseMonitor
from legos_train.run.payoff_games import fill_payoffs
from legos_train.run.replay import Record, ReplayBuffer
from legos_train.run.respond import respond
from legos_train.run.state import Best

if TYPE_CHECKING:
    from legos_train.model import World

T = TypeVar("T")
POLICY, AVERAGE = "policy", "average"
MAX_EMPTY = 20
"""Steps in a row without anything to train on that a run goes through before it stops."""


class Trainer:
    """One run. `legos_train.train` is the loop around it; tests and notebooks may call `step` themselves.

    The measuring engine is always in this process. Episodes come from `generator`: that same engine, servers, or (set
    by `overlap.py`) another process or thread. With a `world` this is one of several ranks, see distributed.py.
    """

    def __init__(
        self, config: TrainConfig, arena: Arena | None = None, world: World | None = None, *, fresh: bool = True
    ):
        """`fresh` is off where a checkpoint will be loaded: runs that this one began from are not looked for again."""
        self.config, self.world = config, world
        if world is not None and config.asynchronous.enabled:
            raise ConfigError("asynchronous.enabled must be off with several ranks: each of them plays and trains")
        self.arena = arena_of(config, arena)
        model, tokenizer, _ = load(config.model)
        fastblas.set_threads(config.threads)
        self.base = model
        self.engine = Engine(model, tokenizer, max_rows=config.max_rows)
        self.renderer = Renderer(tokenizer, config.renderer)
        self.backend = MLXBackend(model, config, world)
        self.learner = Learner(self.backend, config, self.backend.policy.vocabulary)
        if fresh and config.init_adapter is not None:
            warm_start(self.backend, config, config.init_adapter)
        self.credit = make_credit(config, self.arena)
        like = self.backend.trainable() if fresh else None
        self.league = self.arena.league = make_league(config, self.arena, like)
        self.monitor = CollapseMonitor(config.monitor)
        self.replay = ReplayBuffer(config.replay)
        self.measurer = Measurer(self.arena, self.engine, self.renderer, config.context, config.eval.games, config.seed)
        self.local = self._generator(self.engine)
        self.generator: Publisher = self.local
        self.arena.generator = self.local
        if config.server.urls:
            servers = remote_engine(config, self.engine.tokenizer, self.backend.policy.vocabulary)
            self.generator = self.arena.generator = self._generator(servers)
        self.check: Callable[[], None] = lambda: None
        self.best: Best | None = None
        self.stop_reason: str | None = None
        self.publish_all()

    def _generator(self, engine: Engine | RemoteEngine) -> Generator:
        own = LocalGenerator(
            engine,
            self.renderer,
            {name: slot.make for name, slot in self.arena.envs.items()},
            scale=self.config.lora.scale,
            context=self.config.context,
            concurrency=self.config.batch_size,
            check=self._check,
        )
        if self.world is None:
            return own
        from legos_train.run.shared import SharedGenerator

        return SharedGenerator(own, self.world, one_target=isinstance(engine, RemoteEngine))

    def _check(self) -> None:
        self.check()

    def use(self, generator: Publisher) -> None:
        """Takes episodes from somewhere else from now on; it is given the current weights and closed at the end."""
        self.generator = generator
        self.publish_all()

    # --- what tests and reports look at, of the first env ------------------------------------------------------------

    @property
    def course(self) -> Course:
        return next(iter(self.measurer.courses.values()))

    @property
    def env(self) -> Any:
        return self.course.env

    @property
    def roles(self) -> dict[str, tuple[str, bool]]:
        """agent -> (role, declared trainable)."""
        return self.course.slot.seats

    def player(self, agent: str, adapter: str | None = POLICY) -> ModelPlayer:
        return self.measurer.player(self.course, agent, adapter)

    # --- playing -----------------------------------------------------------------------------------------------------

    def play(self, step: int) -> list[Episode]:
        """The episodes of a step, all by the current policy, marked for what is trained on."""
        self.arena.step = step
        self.fill_payoffs()
        requests = self.arena.get_batch()
        if not requests:
            raise TrainingError(f"step {step}: get_batch returned no episodes to play")
        return self._played(requests)

    def _played(self, requests: Sequence[EpisodeRequest]) -> list[Episode]:
        retries = self.config.filter.draw_retries
        self.redrawn = 0
        if type(self.arena).generate_rollouts is Arena.generate_rollouts:
            episodes, self.redrawn = filters.retry(self.arena.jobs(requests), self._run, retries)
            return episodes
        if retries:
            raise ConfigError(
                "filter.draw_retries is for Arena's own generate_rollouts; play drawn episodes again there"
            )
        return _wait(self.arena.generate_rollouts(requests))

    def _run(self, jobs: Sequence[Job]) -> list[Episode]:
        assert self.arena.generator is not None
        return self.arena.generator.run(jobs)

    def fill_payoffs(self) -> None:
        """Plays the games between members that `psro` needs for its payoff matrix."""
        if self.league is not None:
            fill_payoffs(self.league, self.arena, self.local, self.config.seed)

    # --- learning ----------------------------------------------------------------------------------------------------

    def step(self) -> dict[str, Any]:
        """One step in synchronous mode: play, learn, publish; returns the metrics record."""
        number = self.learner.step + 1
        crashpoint("loop.step_begun")
        if self.world is not None:
            self.world.agree("the adapter", tensors.to_bytes(self.backend.trainable()))
        began = time.perf_counter()
        if self.replay.due(self.learner.step):
            episodes = self.play(number)
            self.take_in(episodes, self.learner.step)
        crashpoint("loop.step_played")
        return self.learn(time.perf_counter() - began)

    def take_in(self, episodes: Sequence[Episode], version: int) -> None:
        """Filters, stores and credit see fresh episodes once; the replay buffer keeps them with their advantages."""
        config, step = self.config, self.learner.step + 1
        self.arena.step = step
        plans = [_plan(episode) for episode in episodes]
        if self.league is not None:
            self.league.observe(episodes, plans)
        learned = self.arena.learn(episodes)
        kept = list(episodes)
        if config.filter.draws:
            kept = filters.keep_draws(kept, config.filter.draws, keyed_generator(config.seed, f"draws of step {step}"))
        advantages = self.credit.assign(kept)  # before keep_best: baselines must see the losers too
        crashpoint("loop.credited")
        left_out = {
            "filtered": filters.keep_best(kept, config.filter.keep),
            "draws": len(episodes) - len(kept),
            "redrawn": self.redrawn,
            "not_finite": sum(_not_finite(episode) for episode in episodes),
        }
        self.replay.add(Record(list(episodes), kept, advantages, version, {**learned}, left_out))

    redrawn = 0

    def learn(self, seconds_play: float, seconds_generate: float | None = None) -> dict[str, Any]:
        """One optimiser step on what the replay buffer gives; publishes; returns the metrics record.

        Args:
            seconds_play: how long the learner waited for the episodes.
            seconds_generate: how long generating them took, where that is something else.
        """
        number = self.learner.step + 1
        started = time.perf_counter()
        records, dropped = self.replay.take(self.learner.step)
        kept = [episode for record in records for episode in record.kept]
        advantages: list[Advantages] = [a for record in records for a in record.advantages]
        self.batch = batch = self._pack(kept, advantages)
        packed = time.perf_counter()
        numbers = self._update(batch)
        learned = time.perf_counter()
        crashpoint("loop.updated")
        if numbers["updates"] and numbers["adapter_change"]:
            self.publish(batch.context(0))
        else:  # the same weights, under the version that the next episodes are counted from
            self.republish()
        self._snapshot()
        crashpoint("loop.published")
        done = time.perf_counter()
        fresh, spent = records[-1], seconds_generate or seconds_play
        record = {
            "step": number,
            **episode_metrics(fresh.episodes, by_env=len(self.arena.envs) > 1),
            **numbers,
            "distinct_rows": batch.counters.distinct_rows,
            "action_tokens": batch.counters.action_tokens,
            "zero_advantages": batch.counters.zero_advantage_share,
            "dropped": {**batch.counters.dropped, **dropped},
            "left_out": dict(fresh.left_out),
            "tokens_per_second": batch.counters.action_tokens / spent if spent > 1e-6 else 0.0,
            "seconds": seconds_play + done - started,
            "seconds_play": seconds_play,
            "seconds_pack": packed - started,
            "seconds_learn": learned - packed,
            "seconds_publish": done - learned,
        }
        if fresh.numbers:
            record["curriculum"] = fresh.numbers
        if self.league is not None and self.league.members:
            record["league"] = self.league.metrics()
        if not record.get("empty") and (alarms := self.monitor.check(record)):
            record["alarms"] = [respond(self, alarm) for alarm in alarms]
        self.last_record = fresh
        return record

    last_record: Record | None = None
    empty = 0

    def _pack(self, episodes: Sequence[Episode], advantages: Sequence[Advantages]) -> Batch:
        config = self.config
        stale = config.replay.max_staleness if config.replay.reuse > 1 else config.asynchronous.max_off_policy_steps
        options: dict[str, Any] = {}
        if config.loss.skip_forced:
            options["skip_forced"] = config.loss.skip_forced
        if config.loss.mask_truncated:
            options["mask_truncated"] = True
        if config.loss.entropy_over == "legal":
            options["legal"] = self.renderer.encode
        return pack(
            episodes,
            advantages,
            max_tokens=config.context,
            policy_version=self.learner.step,
            max_staleness=max(stale, config.replay.reuse - 1),
            **options,
        )

    def _update(self, batch: Batch) -> dict[str, Any]:
        """Trains, or, when nothing in the batch can be trained on, lets the step pass and says so."""
        if len(batch):
            self.empty = 0
            return self.learner.update(batch)
        self.empty += 1
        if self.empty > MAX_EMPTY:
            raise TrainingError(
                f"step {self.learner.step + 1}: {self.empty} steps in a row had nothing to train on (see `dropped`, "
                "`left_out` and `outcomes` in metrics.jsonl); nothing would be learned"
            )
        self.learner.finish(self.learner.step + 1)
        nothing = {"loss": 0.0, "grad_norm": 0.0, "entropy": 0.0, "kl": 0.0, "updates": 0, "idle": 1, "empty": 1}
        return {**nothing, "lr": self.learner.learning_rate(self.learner.step), "kl_weight": 0.0, "skipped": 0}

    def publish(self, probe: Sequence[int]) -> None:
        """Gives the engines the new weights and proves on one prompt that they are served.

        Raises:
            TrainingError: the engine's logits are what they were before.
        """
        before = self.engine.next_logits([probe], POLICY)
        self.republish()
        after = self.engine.next_logits([probe], POLICY)
        if np.array_equal(before, after):
            raise TrainingError(
                f"step {self.learner.step}: the engine's logits did not change after publishing new weights; "
                "it still serves the old ones"
            )

    def republish(self) -> None:
        """Publishes the current weights, whether they are new or not."""
        for target in self._targets:
            self.backend.publish(target, POLICY, self.learner.step)

    def publish_all(self) -> None:
        """Publishes everything that episodes are played with: the policy, and the league's members."""
        self.republish()
        if self.league is not None:
            for name, weights in self.league.weights.items():
                self._publish_member(name, weights)
            if not self.learner.step and self.league.snapshot_due(0):
                self._snapshot()

    @property
    def _targets(self) -> list[Publisher]:
        """The measuring engine, and wherever episodes come from if that is somewhere else."""
        return [self.local] if self.generator is self.local else [self.local, self.generator]

    def _publish_member(self, name: str, weights: Mapping[str, Any]) -> None:
        for target in self._targets:
            target.publish(name, weights, _snapshot_version(name))

    def retire(self, name: str) -> None:
        """Takes a snapshot that has left the pool from where episodes are generated. `overlap.py` puts this off until
        every batch that may still play against it is in."""
        self.generator.unpublish(name)

    def _snapshot(self) -> None:
        step = self.learner.step
        if self.league is None or not self.league.snapshot_due(step) or f"step_{step}" in self.league.weights:
            return
        weights = dict(self.backend.trainable())
        for name in self.league.add(f"step_{step}", weights):
            self.local.unpublish(name)
            if self.generator is not self.local:
                self.retire(name)
        self._publish_member(f"step_{step}", weights)

    # --- measuring ---------------------------------------------------------------------------------------------------

    def measure(self, adapter: str | None) -> dict[str, float]:
        """Exact numbers where a game can be solved; else by games on fixed seeds. See measuring.py."""
        return self.measurer.measure(adapter)

    def evaluate(self) -> dict[str, float]:
        """Measures the last weights and, as `NAME_average`, the weight average; keeps track of the best."""
        found = {"last": self.measure(POLICY)}
        if self.config.average.kind != "none" and self.learner.step:
            self.local.publish(AVERAGE, self.learner.average(), self.learner.step)
            found["average"] = self.measure(AVERAGE)
        for kind, numbers in found.items():
            if self.learner.step and self._better(numbers):
                weights = self.backend.trainable() if kind == "last" else self.learner.average()
                self.best = Best(self.learner.step, kind, numbers, dict(weights))
        averaged = {f"{name}_average": value for name, value in found.get("average", {}).items()}
        return {**found["last"], **averaged}

    def _better(self, numbers: dict[str, float]) -> bool:
        """Whether these are better than the best so far; never where no game was scored."""
        if (chosen := self.measurer.key(numbers)) is None:
            return False
        key, sign = chosen
        return self.best is None or sign * numbers[key] > sign * self.best.numbers[key]

    @property
    def evaluates_often(self) -> bool:
        return self.measurer.often

    def drop_caches(self) -> None:
        self.engine.drop_caches()
        self.generator.drop_caches()
        self.backend.drop_caches()

    # --- keeping -----------------------------------------------------------------------------------------------------

    def save_checkpoint(self, root: Path) -> None:
        """See `whole_state.save`."""
        whole_state.save(self, root)

    def resume(self, root: Path) -> int:
        """See `whole_state.restore`."""
        return whole_state.restore(self, root)

    def close(self) -> None:
        self.measurer.close()
        if self.generator is not self.local:
            self.generator.close()
        self.local.close()
        self.arena.generator = None
        if self.arena.from_config:
            for store in self.arena.stores.values():
                store.close()


def _wait(coroutine: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result, in a notebook too, where an event loop is running already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


def _not_finite(episode: Episode) -> bool:
    return any(t.info.get("untrained") == NOT_FINITE for t in episode.trajectories.values())


def _snapshot_version(name: str) -> int:
    """The optimiser step of a league member, which its name ends with; 0 for `RUN.best` and the like."""
    found = re.search(r"step_(\d+)$", name)
    return int(found[1]) if found else 0


def _plan(episode: Episode) -> dict[str, str]:
    """Which seats league opponents had: agent -> member."""
    return {a: t.info["member"] for a, t in episode.trajectories.items() if "member" in t.info}


__all__ = ["AVERAGE", "POLICY", "Trainer"]
