"""What a run is made of. `build` makes it once; trainer, loop, checkpoints and alarms work on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from inference import Engine
from inference.text import Renderer
from legos_train.arena import Arena
from legos_train.config import TrainConfig
from legos_train.credit import CreditAssigner
from legos_train.evaluation import Measurer
from legos_train.league import League
from legos_train.model import Learner, Learners, Snapshot, TrainerBackend, World
from legos_train.run.decisions import DecisionTable
from legos_train.run.monitor import CollapseMonitor
from legos_train.run.replay import ReplayBuffer
from legos_train.run.weight_sync import WeightSync


@dataclass(frozen=True, slots=True)
class Best:
    """The best weights measured so far.

    Attributes:
        step: after which step.
        kind: `last` or `average`.
        numbers: what was measured.
        weights: a reference to them.
    """

    step: int
    kind: str
    numbers: dict[str, float]
    weights: Snapshot


@dataclass(slots=True)
class Parts:
    """One run in parts.

    Attributes:
        run_id: the id of the run, that of its `RunDirectory`; adapters published elsewhere carry it.
        base: the base model, for engines beside `engine` over the same weights.
        engine: measures, and plays unless episodes come from elsewhere.
        sync: gives new weights to whatever plays.
        decisions: with a loss for every action, what gives them; None: the sampled ones are learned from.
        league: None for mirror play; the collapse monitor may put one in.
        world: all ranks of the run, when there are several.
        best: the best weights measured so far.
        past: weights that the run had on its way, by step; what it is worth at the end is measured against them too.
        stop_reason: why the run ends early, once it does.
        steps_were: how many steps the run was to have when the checkpoint that was loaded was written.
        check: called while episodes are played; what it raises ends the run.
    """

    config: TrainConfig
    run_id: str
    arena: Arena
    base: Any
    engine: Engine
    renderer: Renderer
    backend: TrainerBackend
    learner: Learner | Learners
    credit: CreditAssigner
    replay: ReplayBuffer
    monitor: CollapseMonitor
    measurer: Measurer
    sync: WeightSync
    decisions: DecisionTable | None = None
    league: League | None = None
    world: World | None = None
    best: Best | None = None
    past: dict[int, Snapshot] = field(default_factory=dict)
    stop_reason: str | None = None
    steps_were: int | None = None
    check: Callable[[], None] = lambda: None

    def use_league(self, league: League) -> None:
        """Plays against the members of a league from now on."""
        self.league = self.arena.league = league

    def drop_caches(self) -> None:
        """Forgets what was computed before, so that what follows depends on the state alone."""
        self.engine.drop_caches()
        self.measurer.roster.drop_caches()
        self.sync.generator.drop_caches()
        self.backend.drop_caches()

    def close(self) -> None:
        """Ends engines, servers' clients, threads and stores."""
        self.measurer.close()
        self.sync.close()
        self.arena.generator = None
        if self.arena.from_config:
            for store in self.arena.stores.values():
                store.close()
