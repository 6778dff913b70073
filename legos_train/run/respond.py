"""What a run does when the collapse monitor raises an alarm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from legos_train.run.monitor import Alarm
    from legos_train.run.trainer import Trainer


def respond(trainer: Trainer, alarm: Alarm) -> dict[str, Any]:
    """Acts on an alarm as configured; returns what to log: the alarm and what was done.

    `warn`: nothing. `raise_kl`: the KL weight is multiplied by `kl_factor`. `inject_opponents`: `random` joins the
    league (or a league of fixed opponents begins). `rollback`: the best weights measured so far come back. `stop`: the
    run ends after this step, with its checkpoint.
    """
    done = "none"
    if alarm.action == "raise_kl":
        trainer.learner.kl_factor *= trainer.config.monitor.kl_factor
        done = f"KL weight now {trainer.learner.kl_weight(trainer.learner.step + 1):.3g}"
    elif alarm.action == "inject_opponents":
        done = _inject(trainer)
    elif alarm.action == "rollback":
        if trainer.best is None:
            done = "nothing measured yet to go back to"
        else:
            trainer.backend.load(trainer.best.weights)
            trainer.backend.forget_moments()
            trainer.drop_caches()
            trainer.republish()
            trainer.monitor.reset()
            done = f"weights of step {trainer.best.step} are back"
    elif alarm.action == "stop":
        trainer.stop_reason = alarm.text
        done = "stopping"
    return {"name": alarm.name, "value": alarm.value, "limit": alarm.limit, "text": alarm.text, "done": done}


def _inject(trainer: Trainer) -> str:
    from legos_train.league import League, LeagueSettings

    slots = [slot for slot in trainer.arena.envs.values() if len(trainer.arena.live(slot)) < 2]
    if slots:
        return f"{slots[0].name} has fewer than two trained seats: there is no seat for an opponent"
    if trainer.league is None:
        never = 10**9  # no snapshots: only random play is wanted
        start = trainer.learner.step
        settings = LeagueSettings(
            mode="fsp", opponents=("random",), latest=0.5, snapshot_every=never, start_from=start, pool=1
        )
        trainer.league = trainer.arena.league = League(settings, trainer.config.seed)
        return "half of the episodes are now against random play"
    if "random" not in trainer.league.members:
        trainer.league.join("random")
        return "random play has joined the league"
    return "random play is in the league already"
