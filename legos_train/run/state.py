"""The state of a run in a checkpoint: everything that the rest of the run depends on."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from legos_train.disk import checkpoint
from legos_train.errors import TrainingError
from legos_train.league import League, LeagueSettings
from legos_train.model import Learner, Learners
from legos_train.run.generation.distributed import shared_checkpoint
from legos_train.run.generation.weight_sync import member_version
from legos_train.run.parts.parts import Best, Parts
from legos_train.run.parts.replay import ReplayBuffer

LEAGUE, PAST = "league_", "past_"


@dataclass(frozen=True, slots=True)
class RunState:
    """The state of a run after a whole step. Weights are the backend's references, which make their files when written.
    A learner whose state is expensive to copy is only asked for it by `write`, before its next step.
    """

    step: int
    groups: dict[str, Callable[[], bytes]]
    state: dict[str, Any]
    replay: ReplayBuffer
    run_id: str
    learner: Learner | Learners | None = None

    def write(self, root: Path, keep: int) -> None:
        """Writes `root/step_N` and keeps the last `keep` checkpoints.

        Raises:
            TrainingError: the learner has since moved on.
        """
        groups, state = self.groups, self.state
        if self.learner is not None:
            if self.learner.step != self.step:
                raise TrainingError(f"step {self.step} can no longer be saved: the learner is at {self.learner.step}")
            own, numbers = self.learner.state()
            groups, state = {**own, **groups}, {**state, "learner": numbers}
        files = {"replay.jsonl": self.replay.dump()}
        checkpoint.save(root, self.step, groups, state, keep, files=files, run=self.run_id)


def hold(parts: Parts) -> RunState | None:
    """The current state, in case the next step is interrupted; None on ranks that write nothing."""
    if parts.world is not None and parts.world.rank:
        return None
    learner = None if parts.backend.capabilities.state_at_any_time else parts.learner
    groups, state = _state(parts, with_learner=learner is None)
    return RunState(parts.learner.step, groups, copy.deepcopy(state), parts.replay.held(), parts.run_id, learner)


def save(parts: Parts, root: Path) -> None:
    """Writes `root/step_N` and drops caches, as a resume does. Of several ranks only the first writes."""
    if (held := hold(parts)) is not None:
        held.write(root, parts.config.checkpoint.keep)
    parts.drop_caches()


def _state(parts: Parts, *, with_learner: bool) -> tuple[dict[str, Callable[[], bytes]], dict[str, Any]]:
    groups, learner = parts.learner.state() if with_learner else ({}, {})
    best, league = parts.best, parts.league
    if best is not None:
        groups["best"] = parts.backend.pack(best.weights)
    if league is not None:
        groups |= {f"{LEAGUE}{name}": parts.backend.pack(weights) for name, weights in league.weights.items()}
    groups |= {f"{PAST}{step}": parts.backend.pack(weights) for step, weights in parts.past.items()}
    return groups, {
        "learner": learner,
        "credit": parts.credit.state_dict(),
        "branches": None if parts.decisions is None else parts.decisions.branches.state_dict(),
        "best": None if best is None else {"step": best.step, "kind": best.kind, "numbers": best.numbers},
        "arena": parts.arena.state_dict(),
        "monitor": parts.monitor.state_dict(),
        "steps": parts.config.steps,
        "stop_reason": parts.stop_reason,
        "league": league.state_dict() if league is not None else None,
        "league_settings": league.settings.plain() if league is not None else None,
    }


def restore(parts: Parts, root: Path) -> int:
    """Restores the latest complete checkpoint on all ranks; returns its step, 0 if there is none."""
    follows = parts.world is not None and parts.world.rank > 0
    loaded = None if follows else checkpoint.load_newest(root, parts.run_id, parts.config.checkpoint.keep)
    if parts.world is not None:
        loaded = shared_checkpoint(parts.world, loaded)
    if loaded is None:
        return 0
    groups, state = loaded.groups, loaded.state
    parts.learner.restore(groups, state["learner"])
    parts.credit.load_state_dict(state["credit"])
    if parts.decisions is not None:
        parts.decisions.branches.load_state_dict(state["branches"])
    parts.arena.load_state_dict(state["arena"])
    parts.monitor.load_state_dict(state["monitor"])
    parts.stop_reason = state["stop_reason"]
    parts.steps_were = state["steps"]
    parts.replay.load(loaded.files["replay.jsonl"])
    if state["league"] is not None:
        league = parts.league
        if league is None:  # the monitor had added it
            league = League(parts.config.league, parts.config.seed, parts.arena.league_envs())
            parts.use_league(league)
        league.settings = LeagueSettings(**state["league_settings"])
        names = {key.removeprefix(LEAGUE): key for key in groups if key.startswith(LEAGUE)}
        pool = {name: parts.backend.unpack(groups[key], member_version(name)) for name, key in names.items()}
        league.load_state_dict(state["league"], pool)
    if state["best"] is not None:
        best = state["best"]
        parts.best = Best(**best, weights=parts.backend.unpack(groups["best"], best["step"]))
    for key in [key for key in groups if key.startswith(PAST)]:
        step = int(key.removeprefix(PAST))
        parts.past[step] = parts.backend.unpack(groups[key], step)
    parts.sync.everything(parts.league)
    return parts.learner.step
