"""`rollouts.jsonl`: a sample of a run's episodes, with training data per seat, for `legos view`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from inference.text import Renderer
from legos_envs import Episode
from legos_train.config import sections
from legos_train.disk import MetricsFile
from legos_train.evaluation import Measurer, outcomes

if TYPE_CHECKING:
    from legos_train.run.parts.replay import ReplayBatch


class RolloutLog:
    """Writes `logs.rollouts` episodes of a batch, evenly spaced, every `logs.rollouts_every` steps and at both ends."""

    def __init__(self, run: Path, resumed_from: int | None, settings: sections.LogSettings, renderer: Renderer):
        self.settings, self.renderer = settings, renderer
        self._truths: dict[str, Any] = {}
        self._file = MetricsFile(run / "rollouts.jsonl", resumed_from, marks=False) if settings.rollouts else None

    def write(self, step: int, batch: ReplayBatch | None, measurer: Measurer, last: bool) -> None:
        """Writes the sample of a step's batch, if that step is logged."""
        wanted = step == 1 or last or step % self.settings.rollouts_every == 0
        if self._file is None or batch is None or not wanted:
            return
        from legos_train.observe.viewer import rollout_line

        kept = {id(episode): a for episode, a in zip(batch.kept, batch.advantages, strict=True)}
        count = min(self.settings.rollouts, len(batch.episodes))
        for index in np.linspace(0, len(batch.episodes) - 1, count).round().astype(int).tolist():
            episode = batch.episodes[index]
            advantages = {a: np.asarray(v).tolist() for a, v in kept.get(id(episode), {}).items()}
            why = {a: t.info["untrained"] for a, t in episode.trajectories.items() if "untrained" in t.info}
            why |= {
                a: f"filtered: {t.info['left_out']}" for a, t in episode.trajectories.items() if "left_out" in t.info
            }
            if id(episode) not in kept:
                why |= {a: "draw filtered" for a, t in episode.trajectories.items() if t.trainable}
            apart = episode.env_id in measurer.own_scales  # a win is then a success
            line = rollout_line(
                episode,
                step=step,
                policy_version=batch.version,
                env=episode.env_id,
                advantages=advantages,
                why_not=why,
                outcome={a: outcomes.outcome_of(episode, a, (a,)) for a in advantages} if apart else None,
                exact=self._exact(measurer, episode),
                order=episode.order,
                players={a: t.info.get("player", "policy") for a, t in episode.trajectories.items()},
                decode=lambda token: self.renderer.tokenizer.decode([token]),
            )
            self._file.write(line)

    def _exact(self, measurer: Measurer, episode: Episode) -> dict[str, Any] | None:
        """The exact value of each move, in games that can be solved quickly."""
        task = measurer.tasks.get(episode.env_id)
        if task is None or task.info_sets is None or episode.options:
            return None
        if episode.env_id not in self._truths:
            from legos_train.observe.viewer import exact_values

            self._truths[episode.env_id] = None
            with suppress(ValueError):  # a game without a known equilibrium, as of three players
                self._truths[episode.env_id] = exact_values(task.env)
        truth = self._truths[episode.env_id]
        return None if truth is None else truth(episode)

    def sync(self) -> None:
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
