"""The end of a run: final evaluation, choice of the weights to publish, and output files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from legos_train.disk import MetricsFile, RunDirectory, bases
from legos_train.observe import Result, eval_numbers, verdict
from legos_train.rollout.players import actors
from legos_train.run.parts.parts import Parts
from legos_train.run.periodic_eval import AVERAGE, evaluate, publish_average
from legos_train.run.records.report_facts import facts_of
from legos_train.run.trainer import Trainer

PAST = "past"
"""The adapter name for earlier weights of the run."""


def finish(
    trainer: Trainer, run: RunDirectory, start: int, first: Mapping[str, float], seconds: float, quiet: bool
) -> Result:
    """Evaluates the run, publishes the better weights, and writes adapters, report and result.

    Args:
        trainer: took the steps.
        run: the run's directory.
        start: the step that this process continued from.
        first: the evaluation before the first step.
        seconds: wall-clock time of this process; the steps of those before it are added.
        quiet: prints nothing.
    """
    from legos_train.observe.report import print_table, write_report

    config, parts, backend, step = trainer.config, trainer.parts, trainer.parts.backend, trainer.learner.step
    records = MetricsFile.read(run.path / "metrics.jsonl")
    last, average = eval_numbers.by_weights(_measured(parts, records))
    tables = {**({"average": average} if average else {}), "last": last}
    published, why = verdict.better_weights(tables, parts.measurer.key(last))
    against = _against_past(parts, published, tables[published])
    weights = {"last": backend.snapshot(step), **({"average": backend.average(step)} if average else {})}
    facts = {
        "env": config.title,
        "base_model": config.model,
        "step": step,
        "run": run.id,
        **bases.identity(config.model),
    }
    for name, snapshot in weights.items():
        backend.write(snapshot, run.path / name, {**facts, "weights": name})
    best: dict[str, float] = {}
    if (top := parts.best) is not None:
        best = {**top.numbers, "step": top.step}
        backend.write(top.weights, run.path / "best", {**facts, "step": top.step, "weights": f"best ({top.kind})"})
    backend.write(weights[published], run.path / "adapter", {**facts, "weights": published, "why": why})
    result = Result.from_rows(run.path, records, first, {**tables[published], **against}, published)
    result.seconds = seconds + math.fsum(row["seconds"] for row in records if row["step"] <= start)
    result.last, result.average, result.best, result.against = last, average, best, against
    result.published, result.published_why, result.stopped = published, why, parts.stop_reason
    write_report(run.path, config, result, records, facts_of(parts))
    run.write_json("result.json", result.kept())
    if not quiet:
        print_table(result, config.logs.progress)
    return result


def _measured(parts: Parts, records: Sequence[Mapping[str, Any]]) -> Mapping[str, float]:
    """The evaluation of the current weights: that of the last row if it still applies."""
    row = records[-1] if records else {}
    replaced = parts.config.monitor.action == "rollback" and row.get("alarms")
    if row.get("step") != parts.learner.step or not row.get("eval") or replaced:
        return evaluate(parts, together=False)
    if parts.config.average.kind != "none":
        publish_average(parts)
    return {name: value for name, value in row["eval"].items() if value is not None}


def past_steps(steps: int) -> list[int]:
    """Steps whose weights are kept as opponents for the final evaluation: at a quarter, half and three quarters."""
    return sorted({steps * k // 4 for k in (1, 2, 3)} - {0, steps})


def _against_past(parts: Parts, published: str, known: Mapping[str, float]) -> dict[str, float]:
    """Win rates of the published weights if two sides compete and no exact number tells their value: against the base,
    unless their evaluation already has that, and against earlier weights of the run.
    """
    own = actors.POLICY if published == "last" else AVERAGE
    wins = [task.prefix + eval_numbers.BASE_WINS for task in parts.measurer.contests]
    numbers = {} if all(name in known for name in wins) else parts.measurer.against(own, {"base": None})
    for step, snapshot in parts.past.items():
        if step < parts.learner.step and parts.measurer.contests:
            parts.backend.publish(parts.sync.local, PAST, snapshot)
            numbers |= parts.measurer.against(own, {f"step_{step}": PAST}, share=1 / len(parts.past))
            parts.sync.forget(PAST)
    return numbers
