"""The parts of a run. `build` creates them once; trainer, loop, checkpoints and alarms work on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from inference.text import Renderer
from legos_train.arena import Arena
from legos_train.config import TrainConfig
from legos_train.credit import CreditAssigner
from legos_train.evaluation import Measurer
from legos_train.league import League
from legos_train.model import Learner, Learners, Snapshot, WeightStore, World, backends
from legos_train.run.all_actions.decisions import DecisionTable
from legos_train.run.generation.weight_sync import WeightSync
from legos_train.run.parts.monitor import CollapseMonitor
from legos_train.run.parts.replay import ReplayBuffer


@dataclass(frozen=True, slots=True)
class Best:
    """The best weights found so far.

    Attributes:
        step: the step after which they were taken.
        kind: `last` or `average`.
        numbers: their evaluation.
        weights: a reference to them.
    """

    step: int
    kind: str
    numbers: dict[str, float]
    weights: Snapshot


@dataclass(slots=True)
class Parts:
    """The parts of one run.

    Attributes:
        run_id: the id of the run's `RunDirectory`; part of the names of adapters published elsewhere.
        place: who holds the weights, and who plays them.
        sync: publishes new weights to whatever plays.
        decisions: provides all actions for a loss over them; None: learn from sampled actions.
        league: None for mirror play; the collapse monitor may add one.
        world: all ranks of the run, if there are several.
        best: the best weights found so far.
        tables: probabilities of league members in games that can be solved, by env and member.
        past: earlier weights of the run, by step; the final evaluation also plays against them.
        stop_reason: why the run ends early, once it does.
        steps_were: the configured number of steps when the loaded checkpoint was written.
        check: called while episodes are played; an exception in it ends the run.
        tell: called with the unit that a step or an evaluation counts, the number done, and the total.
    """

    config: TrainConfig
    run_id: str
    arena: Arena
    place: backends.Place
    renderer: Renderer
    backend: WeightStore
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
    tables: dict[tuple[str, str], Any] = field(default_factory=dict)
    past: dict[int, Snapshot] = field(default_factory=dict)
    stop_reason: str | None = None
    steps_were: int | None = None
    check: Callable[[], None] = lambda: None
    tell: Callable[[str, int, int], None] = lambda unit, done, total: None

    @property
    def engine(self) -> Any:
        """Evaluates, and plays unless episodes come from elsewhere."""
        return self.place.engine

    def use_league(self, league: League) -> None:
        """Starts playing against the members of a league."""
        self.league = self.arena.league = league

    def drop_caches(self) -> None:
        """Drops cached results, so that what follows depends only on the state."""
        self.engine.drop_caches()
        self.measurer.roster.drop_caches()
        self.sync.generator.drop_caches()
        self.backend.drop_caches()
        self.tables.clear()  # computed with other rows beside them, they differ in the last digits

    def close(self) -> None:
        """Closes engines, server clients, threads and stores."""
        self.measurer.close()
        self.sync.close()
        self.arena.generator = None
        if self.arena.from_config:
            for store in self.arena.stores.values():
                store.close()
