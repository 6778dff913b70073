"""The state of a run as a checkpoint has it: everything that what comes next depends on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from legos_train.disk import checkpoint
from legos_train.league import League, LeagueSettings

if TYPE_CHECKING:
    from legos_train.run.trainer import Trainer

LEAGUE = "league_"


@dataclass(slots=True)
class Best:
    """The best weights measured so far: after which step, the last ones or the average, and their numbers."""

    step: int
    kind: str
    numbers: dict[str, float]
    weights: dict[str, Any]


def save(trainer: Trainer, root: Path) -> None:
    """Writes `root/step_N`, and drops caches, here as after a resume. Of several ranks only the first writes."""
    if trainer.world is None or not trainer.world.rank:
        arrays, state = _state(trainer)
        files = {"replay.jsonl": trainer.replay.dump()}
        checkpoint.save(root, trainer.learner.step, arrays, state, trainer.config.checkpoint.keep, files=files)
    trainer.drop_caches()


def _state(trainer: Trainer) -> tuple[dict[str, Any], dict[str, Any]]:
    arrays: dict[str, Any] = trainer.learner.arrays()
    best, league = trainer.best, trainer.league
    if best is not None:
        arrays["best"] = best.weights
    if league is not None:
        arrays |= {f"{LEAGUE}{name}": weights for name, weights in league.weights.items()}
    return arrays, {
        "learner": trainer.learner.state(),
        "credit": trainer.credit.state_dict(),
        "best": None if best is None else {"step": best.step, "kind": best.kind, "numbers": best.numbers},
        "arena": trainer.arena.state_dict(),
        "monitor": trainer.monitor.state_dict(),
        "stop_reason": trainer.stop_reason,
        "league": league.state_dict() if league is not None else None,
        "league_settings": league.settings.plain() if league is not None else None,
    }


def restore(trainer: Trainer, root: Path) -> int:
    """Comes back to the newest whole checkpoint, on all ranks; returns its step, 0 when there is none."""
    found = None if trainer.world is not None and trainer.world.rank else checkpoint.load_newest(root)
    if trainer.world is not None:
        from legos_train.run.shared import shared_checkpoint

        found = shared_checkpoint(trainer.world, found)
    if found is None:
        return 0
    arrays, state, files = found.arrays, found.state, found.files
    trainer.learner.restore(arrays, state["learner"])
    trainer.credit.load_state_dict(state["credit"])
    trainer.arena.load_state_dict(state["arena"])
    trainer.monitor.load_state_dict(state["monitor"])
    trainer.stop_reason = state["stop_reason"]
    trainer.replay.load(files["replay.jsonl"])
    if state["league"] is not None:
        if trainer.league is None:  # the monitor had put it in
            trainer.league = trainer.arena.league = League(trainer.config.league, trainer.config.seed)
        trainer.league.settings = LeagueSettings(**state["league_settings"])
        kept = {name.removeprefix(LEAGUE): w for name, w in arrays.items() if name.startswith(LEAGUE)}
        trainer.league.load_state_dict(state["league"], kept)
    if state["best"] is not None:
        trainer.best = Best(**state["best"], weights=arrays["best"])
    trainer.publish_all()
    return trainer.learner.step
