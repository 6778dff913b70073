"""One run, step by step: who plays, what is learned, how it is measured and kept."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import legos_envs
from inference import Engine, fastblas, load
from inference.render import Renderer
from legos_envs import Episode, exact
from legos_envs.table import keyed_generator
from legos_train import checkpoint
from legos_train.batch import pack
from legos_train.config import ConfigError, TrainConfig
from legos_train.credit import make_credit
from legos_train.evaluate import exact_metrics, head_to_head, solvable
from legos_train.learner import Learner, TrainingError
from legos_train.metrics import episode_metrics
from legos_train.rollout import EpisodeRequest, ModelPlayer, Rollouts

POLICY, AVERAGE = "policy", "average"
HIGHER_IS_BETTER = {"nash_conv": False, "no_loss": True, "optimal_move": True, "vs_random": True}
MANY_POSITIONS = 500
"""Games with more information sets than this are evaluated before the first step and after the last only."""


@dataclass(slots=True)
class Best:
    """The best weights measured so far: after which step, the last ones or the average, and their numbers."""

    step: int
    kind: str
    numbers: dict[str, float]
    weights: dict[str, Any]


class Trainer:
    """One run. `legos_train.train.train` is the loop around it; tests and notebooks may call `step` themselves."""

    def __init__(self, config: TrainConfig):
        self.config = config
        self.env = legos_envs.make(config.env, **config.env_args)
        self.env.reset(seed=0)
        self.roles = {agent: (info["role"], info.get("trainable", True)) for agent, info in self.env.infos.items()}
        known = {role for role, _ in self.roles.values()}
        if unknown := set(config.train_roles) - known:
            raise ConfigError(f"train_roles names {sorted(unknown)}; {config.env} has the roles {sorted(known)}")
        if unknown := set(config.system) - known:
            raise ConfigError(f"system names the roles {sorted(unknown)}; {config.env} has {sorted(known)}")
        model, tokenizer, _ = load(config.model)
        fastblas.set_threads(config.threads)
        self.engine = Engine(model, tokenizer, max_rows=config.max_rows)
        self.renderer = Renderer(tokenizer, config.renderer)
        self.learner = Learner(model, config)
        self.credit = make_credit(config.credit.name, **credit_options(config))
        self.rollouts = Rollouts(lambda name: legos_envs.make(name, **config.env_args), config.batch_size)
        self.info_sets = exact.info_sets(self.env.game) if solvable(self.env) else None  # type: ignore[attr-defined]
        self._publish(POLICY, self.learner.policy.trainable())
        self.best: Best | None = None

    # --- playing -----------------------------------------------------------------------------------------------------

    def player(self, role: str, adapter: str | None = POLICY, temperature: float | None = None) -> ModelPlayer:
        s = self.config.sampling
        return ModelPlayer(
            self.engine,
            self.renderer,
            adapter,
            s.temperature if temperature is None else temperature,
            s.top_p,
            self.config.action_tokens,
            self.config.system.get(role),
            self.config.context,
        )

    def players(self, adapter: str | None = POLICY) -> dict[str, Any]:
        """Seats the env declares trainable are played by the adapter; the others by the base model, greedily."""
        return {
            agent: self.player(role, adapter) if trainable else self.player(role, None, 0.0)
            for agent, (role, trainable) in self.roles.items()
        }

    def play(self, step: int) -> list[Episode]:
        """The episodes of a step, all by the current policy."""
        config = self.config
        rng = keyed_generator(config.seed, f"episodes of step {step}")
        seeds = rng.integers(2**31, size=config.batch_size // config.group_size).tolist()
        players = self.players()
        requests = [
            EpisodeRequest(config.env, seed, players, group=f"{step}/{g}", salt=g * config.group_size + k)
            for g, seed in enumerate(seeds)
            for k in range(config.group_size)
        ]
        episodes = self.rollouts.run(requests)
        for episode in episodes:
            scored = episode.outcome != "unscored"  # a judge that failed is no reward; metrics count these episodes
            for trajectory in episode.trajectories.values():
                if not scored or (config.train_roles and trajectory.role not in config.train_roles):
                    trajectory.trainable = False
        return episodes

    # --- learning ----------------------------------------------------------------------------------------------------

    def step(self) -> dict[str, Any]:
        """One optimiser step; returns the metrics record."""
        began = time.perf_counter()
        number = self.learner.step + 1
        episodes = self.play(number)
        played = time.perf_counter()
        advantages = self.credit.assign(episodes)
        batch = pack(episodes, advantages, max_tokens=self.config.context, policy_version=self.learner.step)
        packed = time.perf_counter()
        numbers = self.learner.update(batch)
        learned = time.perf_counter()
        if numbers["updates"]:
            self.publish(batch.context(0))
        done = time.perf_counter()
        return {
            "step": number,
            **episode_metrics(episodes),
            **numbers,
            "distinct_rows": batch.counters.distinct_rows,
            "action_tokens": batch.counters.action_tokens,
            "zero_advantages": batch.counters.zero_advantage_share,
            "dropped": dict(batch.counters.dropped),
            "tokens_per_second": batch.counters.action_tokens / (played - began),
            "seconds": done - began,
            "seconds_play": played - began,
            "seconds_pack": packed - played,
            "seconds_learn": learned - packed,
            "seconds_publish": done - learned,
        }

    def publish(self, probe: Sequence[int]) -> None:
        """Gives the engine the new weights and proves on one prompt that it serves them.

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

    def _publish(self, name: str, weights: Mapping[str, Any]) -> None:
        self.engine.publish(name, weights, scale=self.config.lora.scale, version=self.learner.step)

    # --- measuring ---------------------------------------------------------------------------------------------------

    def measure(self, adapter: str | None) -> dict[str, float]:
        """Exact numbers where the game can be solved; else the mean return against random play on fixed seeds."""
        if self.info_sets is not None:
            players = [self.player(role, adapter) for role, _ in self.roles.values()]
            return exact_metrics(self.env, players, self.info_sets)  # type: ignore[arg-type]
        from legos_envs.policies import RandomPolicy

        seats = [agent for agent, (_, trainable) in self.roles.items() if trainable]
        found = head_to_head(
            self.rollouts,
            self.config.env,
            seats,
            self.player(self.roles[seats[0]][0], adapter),
            RandomPolicy(),
            self.config.eval.games,
            self.config.seed,
        )
        return {"vs_random": found["mean"], "invalid": found["invalid"]}

    def evaluate(self) -> dict[str, float]:
        """Measures the last weights and, as `NAME_average`, the weight average; keeps track of the best."""
        found = {"last": self.measure(POLICY)}
        if self.config.average.kind != "none" and self.learner.step:
            self._publish(AVERAGE, self.learner.average())
            found["average"] = self.measure(AVERAGE)
        key = next(k for k in HIGHER_IS_BETTER if k in found["last"])
        sign = 1 if HIGHER_IS_BETTER[key] else -1
        for kind, numbers in found.items():
            if self.learner.step and (self.best is None or sign * numbers[key] > sign * self.best.numbers[key]):
                weights = self.learner.policy.trainable() if kind == "last" else self.learner.average()
                self.best = Best(self.learner.step, kind, numbers, weights)
        averaged = {f"{name}_average": value for name, value in found.get("average", {}).items()}
        return {**found["last"], **averaged}

    @property
    def evaluates_often(self) -> bool:
        return self.info_sets is None or len(self.info_sets) <= MANY_POSITIONS

    def drop_caches(self) -> None:
        self.engine.drop_caches()
        self.learner.policy.clear()

    # --- keeping -----------------------------------------------------------------------------------------------------

    def save_checkpoint(self, root: Path) -> None:
        """The full state. Caches are dropped, here as after a resume."""
        arrays = self.learner.arrays()
        best = None
        if self.best is not None:
            arrays["best"] = self.best.weights
            best = {"step": self.best.step, "kind": self.best.kind, "numbers": self.best.numbers}
        state = {"learner": self.learner.state(), "credit": self.credit.state_dict(), "best": best}
        checkpoint.save(root, self.learner.step, arrays, state, self.config.checkpoint.keep)
        self.drop_caches()

    def resume(self, root: Path) -> int:
        """Comes back to the newest whole checkpoint; returns its step, 0 when there is none."""
        found = checkpoint.load_newest(root)
        if found is None:
            return 0
        arrays, state = found
        self.learner.restore(arrays, state["learner"])
        self.credit.load_state_dict(state["credit"])
        if state["best"] is not None:
            self.best = Best(**state["best"], weights=arrays["best"])
        self._publish(POLICY, self.learner.policy.trainable())
        return self.learner.step

    def close(self) -> None:
        self.engine.close()


def credit_options(config: TrainConfig) -> dict[str, Any]:
    """The options that the chosen credit method takes."""
    c = config.credit
    options: dict[str, dict[str, Any]] = {
        "rae": {"decay": c.decay, "gamma": c.gamma},
        "same_prompt": {"decay": c.decay, "gamma": c.gamma, "k": c.pseudo_count},
        "grpo": {"std": c.std, "singleton": c.singleton, "decay": c.decay},
        "hierarchical_grpo": {
            "std": c.std,
            "singleton": c.singleton,
            "decay": c.decay,
            "root_peers": c.root_peers,
        },
        "constant": {},
    }
    return options[c.name]
