"""One run, step by step: what is played, what is learned, how it is measured and kept."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from inference import Engine, fastblas, load
from inference.render import Renderer
from legos_envs import Episode
from legos_envs.table import keyed_generator
from legos_train import checkpoint, filters, settings, tensors
from legos_train.actors import NOT_FINITE, Job
from legos_train.arena import Arena, EpisodeRequest
from legos_train.batch import Batch, pack
from legos_train.building import arena_of, identity_of, make_credit, make_league
from legos_train.config import ConfigError, TrainConfig
from legos_train.crash import crashpoint
from legos_train.credit import Advantages
from legos_train.generation import Generator, LocalGenerator, Publisher
from legos_train.league import League
from legos_train.learner import Learner, TrainingError
from legos_train.measuring import Course, Measurer
from legos_train.metrics import episode_metrics
from legos_train.monitor import CollapseMonitor
from legos_train.remote import RemoteEngine
from legos_train.replay import Record, ReplayBuffer
from legos_train.response import respond
from legos_train.rollout import ModelPlayer

if TYPE_CHECKING:
    from legos_train.distributed import World

T = TypeVar("T")
POLICY, AVERAGE = "policy", "average"
MAX_EMPTY = 20
"""Steps in a row without anything to train on that a run goes through before it stops."""


@dataclass(slots=True)
class Best:
    """The best weights measured so far: after which step, the last ones or the average, and their numbers."""

    step: int
    kind: str
    numbers: dict[str, float]
    weights: dict[str, Any]


class Trainer:
    """One run. `legos_train.train` is the loop around it; tests and notebooks may call `step` themselves.

    The measuring engine is always in this process. Episodes come from `generator`: that same engine, servers, or (set
    by `overlap.py`) another process or thread. With a `world` this is one of several ranks, see distributed.py.
    """

    def __init__(self, config: TrainConfig, arena: Arena | None = None, world: World | None = None):
        self.config, self.world = config, world
        if world is not None and config.asynchronous.enabled:
            raise ConfigError("asynchronous.enabled must be off with several ranks: each of them plays and trains")
        self.arena = arena_of(config, arena)
        model, tokenizer, _ = load(config.model)
        fastblas.set_threads(config.threads)
        self.base = model
        self.engine = Engine(model, tokenizer, max_rows=config.max_rows)
        self.renderer = Renderer(tokenizer, config.renderer)
        self.learner = Learner(model, config)
        self.learner.backend.world = world
        if config.init_adapter is not None:
            self._warm_start(config.init_adapter)
        self.credit = make_credit(config, self.arena)
        self.league = self.arena.league = make_league(config, self.arena, self.learner.policy.trainable())
        self.monitor = CollapseMonitor(config.monitor)
        self.replay = ReplayBuffer(config.replay)
        self.measurer = Measurer(self.arena, self.engine, self.renderer, config.context, config.eval.games, config.seed)
        self.local = self._generator(self.engine)
        self.generator: Publisher = self.local
        self.arena.generator = self.local
        if config.server.urls:
            self.generator = self.arena.generator = self._generator(self._servers())
        self.check: Callable[[], None] = lambda: None
        self.best: Best | None = None
        self.stop_reason: str | None = None
        self._publish_all()

    def _servers(self) -> RemoteEngine:
        engine = RemoteEngine(self.config.server.urls, self.config.server.api_key_env)
        try:
            engine.check(identity_of(self.config.model, self.engine.tokenizer, self.learner.policy.vocabulary))
        except BaseException:
            engine.close()
            raise
        return engine

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
        from legos_train.distributed import SharedGenerator

        return SharedGenerator(own, self.world, one_target=isinstance(engine, RemoteEngine))

    def _check(self) -> None:
        self.check()

    def use(self, generator: Publisher) -> None:
        """Takes episodes from somewhere else from now on; it is given the current weights and closed at the end."""
        self.generator = generator
        self._publish_all()

    def _warm_start(self, path: Path) -> None:
        from legos_train.policies import locate, read_weights

        folder = path if (path / "adapter_config.json").exists() else locate(str(path))[1]
        found, scale, _ = read_weights(folder or path)
        factor = scale / self.config.lora.scale  # the product B A is scaled; B alone takes the difference
        weights = {n: w * factor if n.endswith("lora_b") and factor != 1 else w for n, w in found.items()}
        try:
            self.learner.policy.load(weights)
        except ValueError as error:
            raise ConfigError(
                f"init_adapter {str(path)!r} does not fit this run's adapter: {error}; set lora.rank as it was there"
            ) from error

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
        """Plays the games between members that `psro` needs for its payoff matrix, in the first env."""
        if self.league is None:
            return
        slot = next(iter(self.arena.envs.values()))
        for pair in self.league.missing_pairs():
            number = keyed_generator(self.config.seed, f"payoffs of {pair[0]} and {pair[1]}")
            seats = slot.trained[:2]
            players = self.arena.players(slot)
            for agent, member in zip(seats, pair, strict=True):
                players[agent] = self.arena.opponent(slot, agent, member)
            seeds = number.integers(2**31, size=self.league.pair_games).tolist()
            jobs = [Job(slot.name, s, players, {}, slot.options, None, k, ()) for k, s in enumerate(seeds)]
            episodes = [e for e in self.local.run(jobs) if e.outcome != "unscored"]
            self.league.record_pair(*pair, [[e.trajectories[a].total for a in seats] for e in episodes])

    # --- learning ----------------------------------------------------------------------------------------------------

    def step(self) -> dict[str, Any]:
        """One step in synchronous mode: play, learn, publish; returns the metrics record."""
        number = self.learner.step + 1
        crashpoint("loop.step_begun")
        if self.world is not None:
            self.world.agree("the adapter", tensors.to_bytes(self.learner.policy.trainable()))
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
        self._publish(POLICY, self.learner.policy.trainable())
        after = self.engine.next_logits([probe], POLICY)
        if np.array_equal(before, after):
            raise TrainingError(
                f"step {self.learner.step}: the engine's logits did not change after publishing new weights; "
                "it still serves the old ones"
            )

    def republish(self) -> None:
        """Publishes the current weights again, after they were put back to earlier ones."""
        self._publish(POLICY, self.learner.policy.trainable())

    def _publish(self, name: str, weights: Mapping[str, Any]) -> None:
        """To the measuring engine, and to wherever episodes come from if that is somewhere else."""
        version = self.learner.step if name in (POLICY, AVERAGE) else _snapshot_version(name)
        self.engine.publish(name, weights, scale=self.config.lora.scale, version=version)
        if name != AVERAGE and self.generator is not self.local:
            self.generator.publish(name, weights, version)

    def _publish_all(self) -> None:
        self._publish(POLICY, self.learner.policy.trainable())
        if self.league is not None:
            for name, weights in self.league.weights.items():
                self._publish(name, weights)
            if not self.learner.step and self.league.snapshot_due(0):
                self._snapshot()

    def retire(self, name: str) -> None:
        """Takes a snapshot that has left the pool from where episodes are generated. `overlap.py` puts this off until
        every batch that may still play against it is in."""
        self.generator.unpublish(name)

    def _snapshot(self) -> None:
        step = self.learner.step
        if self.league is None or not self.league.snapshot_due(step) or f"step_{step}" in self.league.weights:
            return
        weights = dict(self.learner.policy.trainable())
        for name in self.league.add(f"step_{step}", weights):
            self.engine.unpublish(name)
            if self.generator is not self.local:
                self.retire(name)
        self._publish(f"step_{step}", weights)

    # --- measuring ---------------------------------------------------------------------------------------------------

    def measure(self, adapter: str | None) -> dict[str, float]:
        """Exact numbers where a game can be solved; else by games on fixed seeds. See measuring.py."""
        return self.measurer.measure(adapter)

    def evaluate(self) -> dict[str, float]:
        """Measures the last weights and, as `NAME_average`, the weight average; keeps track of the best."""
        found = {"last": self.measure(POLICY)}
        if self.config.average.kind != "none" and self.learner.step:
            self._publish(AVERAGE, self.learner.average())
            found["average"] = self.measure(AVERAGE)
        key, sign = self.measurer.key(found["last"])
        for kind, numbers in found.items():
            if self.learner.step and (self.best is None or sign * numbers[key] > sign * self.best.numbers[key]):
                weights = self.learner.policy.trainable() if kind == "last" else self.learner.average()
                self.best = Best(self.learner.step, kind, numbers, dict(weights))
        averaged = {f"{name}_average": value for name, value in found.get("average", {}).items()}
        return {**found["last"], **averaged}

    @property
    def evaluates_often(self) -> bool:
        return self.measurer.often

    def drop_caches(self) -> None:
        self.engine.drop_caches()
        self.generator.drop_caches()
        self.learner.policy.clear()

    # --- keeping -----------------------------------------------------------------------------------------------------

    def save_checkpoint(self, root: Path) -> None:
        """The full state. Caches are dropped, here as after a resume. Of several ranks only the first writes."""
        if self.world is not None and self.world.rank:
            self.drop_caches()
            return
        arrays = self.learner.arrays()
        best = None
        if self.best is not None:
            arrays["best"] = self.best.weights
            best = {"step": self.best.step, "kind": self.best.kind, "numbers": self.best.numbers}
        if self.league is not None:
            arrays |= {f"league_{name}": weights for name, weights in self.league.weights.items()}
        state = {
            "learner": self.learner.state(),
            "credit": self.credit.state_dict(),
            "best": best,
            "arena": self.arena.state_dict(),
            "monitor": self.monitor.state_dict(),
            "stop_reason": self.stop_reason,
            "league": self.league.state_dict() if self.league is not None else None,
            "league_settings": self.league.settings.plain() if self.league is not None else None,
        }
        files = {"replay.jsonl": self.replay.dump()}
        checkpoint.save(root, self.learner.step, arrays, state, self.config.checkpoint.keep, files=files)
        self.drop_caches()

    def resume(self, root: Path) -> int:
        """Comes back to the newest whole checkpoint; returns its step, 0 when there is none."""
        found = None if self.world is not None and self.world.rank else checkpoint.load_newest(root)
        if self.world is not None:
            from legos_train.distributed import shared_checkpoint

            found = shared_checkpoint(self.world, found)
        if found is None:
            return 0
        arrays, state, files = found.arrays, found.state, found.files
        self.learner.restore(arrays, state["learner"])
        self.credit.load_state_dict(state["credit"])
        self.arena.load_state_dict(state["arena"])
        self.monitor.load_state_dict(state["monitor"])
        self.stop_reason = state["stop_reason"]
        self.replay.load(files["replay.jsonl"])
        if state["league"] is not None:
            if self.league is None:  # the monitor had put it in
                self.league = self.arena.league = League(self.config.league, self.config.seed)
            self.league.settings = settings.League(**state["league_settings"])
            kept = {name.removeprefix("league_"): w for name, w in arrays.items() if name.startswith("league_")}
            self.league.load_state_dict(state["league"], kept)
        if state["best"] is not None:
            self.best = Best(**state["best"], weights=arrays["best"])
        self._publish_all()
        return self.learner.step

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
    """The optimiser step of a league member, which its name ends with; 0 for `RUN@best` and the like."""
    found = re.search(r"step_(\d+)$", name)
    return int(found[1]) if found else 0


def _plan(episode: Episode) -> dict[str, str]:
    """Which seats league opponents had: agent -> member."""
    return {a: t.info["member"] for a, t in episode.trajectories.items() if "member" in t.info}


__all__ = ["AVERAGE", "POLICY", "Best", "Trainer"]
