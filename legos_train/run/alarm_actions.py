"""Responses to alarms of the collapse monitor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from legos_train.league import League, LeagueSettings
from legos_train.observe import eval_numbers
from legos_train.run.parts.monitor import Alarm
from legos_train.run.parts.parts import Parts


def respond(parts: Parts, alarm: Alarm) -> dict[str, Any]:
    """Acts on an alarm as configured; returns what to log: the alarm and the action taken.

    `warn`: nothing. `raise_kl`: the KL weight is multiplied by `kl_factor`. `inject_opponents`: `random` joins the
    league (or a league of fixed opponents starts). `rollback`: the best weights so far are restored. `stop`: the run
    ends after this step, with its checkpoint.
    """
    done = "none"
    if alarm.action == "raise_kl":
        parts.learner.kl_factor *= parts.config.monitor.kl_factor
        done = f"KL weight now {parts.learner.kl_weight(parts.learner.step + 1):.3g}"
    elif alarm.action == "inject_opponents":
        done = _inject(parts)
    elif alarm.action == "rollback":
        if parts.best is None:
            parts.monitor.forget(alarm.name)  # it is raised again, in case there are weights by then
            done = "no weights to go back to yet"
        else:
            parts.backend.load(parts.best.weights)
            parts.learner.replaced = parts.learner.step
            parts.drop_caches()
            parts.sync.policy()
            parts.monitor.reset()
            done = f"restored the weights of step {parts.best.step}"
    elif alarm.action == "stop":
        parts.stop_reason = alarm.text
        done = "stopping"
    return {"name": alarm.name, "value": alarm.value, "limit": alarm.limit, "text": alarm.text, "done": done}


def alarms_of(parts: Parts, record: Mapping[str, Any], start: Mapping[str, float]) -> dict[str, Any]:
    """The `alarms` of a row after its evaluation: those it already had, and those that the evaluation triggers."""
    last, average = eval_numbers.by_weights(record["eval"])
    found = parts.monitor.check_measured(record["step"], start, last, average)
    told = [*record.get("alarms", ()), *(respond(parts, alarm) for alarm in found)]
    return {"alarms": told} if told else {}


def _inject(parts: Parts) -> str:
    envs = parts.arena.league_envs()
    if not envs:
        return f"{parts.config.title} has fewer than two trained seats: there is no seat for an opponent"
    if parts.league is None or not parts.league.settings.rule.draws:
        never = 10**9  # no snapshots: only random play
        start = parts.learner.step
        settings = LeagueSettings(
            mode="fsp", opponents=("random",), latest=0.5, snapshot_every=never, start_from=start, pool=1
        )
        if parts.league is None:
            parts.use_league(League(settings, parts.config.seed, envs))
        else:  # of learners that share seats
            parts.league.change(settings)
        return "half of the episodes are now against random play"
    if "random" not in parts.league.members:
        parts.league.join("random")
        return "random play has joined the league"
    return "random play is already in the league"
