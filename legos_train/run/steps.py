"""The steps of a run, each with its row in metrics.jsonl; every few steps an evaluation and a checkpoint."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from legos_train.disk import MetricsFile, RunDirectory, crashpoint
from legos_train.errors import GenerationError, RankLost, TrainingError
from legos_train.observe import Progress, viewer
from legos_train.run import state
from legos_train.run.alarm_actions import alarms_of
from legos_train.run.finish import past_steps
from legos_train.run.periodic_eval import evaluate
from legos_train.run.records.rollout_log import RolloutLog
from legos_train.run.stopping import Stopping
from legos_train.run.trainer import Trainer

OnStep = Callable[[dict[str, Any]], None]


class LiveViewer:
    """Serves a run's episodes on a thread, once its log has the first ones."""

    def __init__(self, path: Path, port: int | None):
        self.path, self.port = path, port
        self._server: ThreadingHTTPServer | None = None

    def begin(self, say: Callable[[str], None]) -> None:
        """Starts serving if requested and not yet started; `say` is called with the address."""
        if self.port is None or self._server is not None or not (self.path / "rollouts.jsonl").exists():
            return
        try:
            self._server = viewer.serve([self.path], self.port)
        except OSError as error:  # a run does not end because it cannot be watched
            say(f"cannot be watched on port {self.port}: {error.strerror}; `legos view {self.path} --watch` can")
            self.port = None
            return
        threading.Thread(target=self._server.serve_forever, name="legos-watch", daemon=True).start()
        say(f"watch it at http://127.0.0.1:{self._server.server_port}/")

    def __enter__(self) -> LiveViewer:
        return self

    def __exit__(self, *error: object) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


class Steps:
    """Takes the steps of a run, with the work after each.

    Args:
        trainer: takes the steps.
        run: the run's directory.
        start: number of steps already done.
        first: the evaluation before the first step.
        stopping: checked between steps.
        progress: shows the rows.
        on_step: called with every row.
        watch: a port where a browser can view the episodes.
    """

    def __init__(
        self,
        trainer: Trainer,
        run: RunDirectory,
        start: int,
        first: Mapping[str, float],
        stopping: Stopping,
        progress: Progress,
        on_step: OnStep | None,
        watch: int | None,
    ):
        self.trainer, self.run, self.start, self.first = trainer, run, start, first
        self.stopping, self.progress, self.on_step = stopping, progress, on_step
        at, parts = start or None, trainer.parts
        self._rows, self._log = (
            MetricsFile(run.path / "metrics.jsonl", at, run=run.id),
            RolloutLog(run.path, at, trainer.config.logs, parts.renderer),
        )
        self._past = past_steps(trainer.config.steps) if parts.measurer.contests else []
        parts.past = {step: weights for step, weights in parts.past.items() if step in self._past}
        if start in self._past and start not in parts.past:  # a run that ended here and goes on
            parts.past[start] = parts.backend.snapshot(start)
        self._held: state.RunState | None = None
        self._kept = start
        self._port = watch

    def take(self, note: Mapping[str, Any], track: Callable[[dict[str, Any]], None]) -> None:
        """Takes all remaining steps and passes their rows to `track`; the first row also has `note`, on the resume.

        Raises:
            Stopped: the checkpoint of the last step with a row is written, as after any error that does not come from
                learning, such as that of an env or of a lost server. After an error of `on_step` itself it is that of
                the step before, which is repeated on the resume.
        """
        with LiveViewer(self.run.path, self._port) as watch:
            try:
                with self.stopping.cleared():
                    for record in _records(self.trainer, self.start, self.stopping):
                        if self._write({**record, **(note if record["step"] == self.start + 1 else {})}, track, watch):
                            break
                        self._held = state.hold(self.trainer.parts)
                        self.stopping.check()
            except BaseException as error:
                if not isinstance(error, TrainingError) or isinstance(error, GenerationError | RankLost):
                    with suppress(OSError):  # a full disk, say; the first error is more informative
                        self._keep_held()
                raise
        self._rows.close()
        self._log.close()

    def _write(self, record: dict[str, Any], track: Callable[[dict[str, Any]], None], watch: LiveViewer) -> bool:
        """Evaluates and records a step; returns whether it was the last."""
        parts, config, number = self.trainer.parts, self.trainer.config, record["step"]
        if number in self._past:
            parts.past[number] = parts.backend.snapshot(number)
        last: bool = number == config.steps or parts.stop_reason is not None
        if due := parts.measurer.due(number, last=last):
            record["eval"] = evaluate(parts, due)
            record.update(alarms_of(parts, record, self.first))
            if parts.stop_reason is not None and not last:  # the evaluation ends the run here
                last = True
                if rest := [name for name in parts.measurer.due(number, last=True) if name not in due]:
                    record["eval"] |= evaluate(parts, rest)
        crashpoint("loop.evaluated")
        self._log.write(number, self.trainer.last, parts.measurer, last)
        self._rows.write(record)
        crashpoint("loop.metrics_written")
        self.progress.update(record)
        track(record)
        watch.begin(self.progress.note)
        if self.on_step:
            self.on_step(record)
        every = config.checkpoint.every
        if last or (every and number % every == 0):
            self._sync()
            state.save(parts, self.run.path / "checkpoints")
            crashpoint("loop.checkpointed")
            self._kept = number
        return last

    def _keep_held(self) -> None:
        """Writes the checkpoint of the last whole step after an interruption in the next."""
        if self._held is not None and self._held.step > self._kept:
            self._sync()
            self._held.write(self.run.path / "checkpoints", self.trainer.config.checkpoint.keep)
            self._kept = self._held.step
        there = f"the checkpoint of step {self._kept}" if self._kept else "the beginning"
        with suppress(BrokenPipeError):
            self.progress.note(f"stopped; --resume --run-dir {shlex.quote(str(self.run.path))} continues from {there}")

    def _sync(self) -> None:
        self._rows.sync()
        self._log.sync()


def _records(trainer: Trainer, start: int, stopping: Stopping) -> Iterator[dict[str, Any]]:
    """Yields the metrics records of the steps from start + 1 on, as they finish."""
    if trainer.parts.stop_reason is not None:  # the monitor had ended the run before the process was killed
        return
    if trainer.config.asynchronous.enabled:
        from legos_train.run.overlap import overlapped

        yield from overlapped(trainer, start, stopping)
        return
    for _ in range(start, trainer.config.steps):
        stopping.check()
        yield trainer.step()
