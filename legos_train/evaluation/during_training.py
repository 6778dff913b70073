"""Evaluates the policy in the run's envs and held-out ones: exactly if a game can be solved, else by games."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from inference import Engine
from inference.text import Renderer
from legos_train.errors import ConfigError, PolicyError
from legos_train.evaluation.duel import NothingScored, head_to_head
from legos_train.evaluation.eval_tasks import EvalTask
from legos_train.evaluation.exact_values import PolicyTable, action_probabilities, table_metrics
from legos_train.evaluation.outcomes import OUTCOMES, competitive
from legos_train.observe import eval_numbers
from legos_train.rollout import Rollouts
from legos_train.rollout.players import Actor, ModelPlayer, Player, Roster, actors

ENDS = {"mean": "ci95", "score": "score_ci95"}
"""The key of each number's interval in a row."""
MOST_TABLES = 4
"""Policies kept after their evaluation: those that a report shows again."""


class Measurer:
    """Evaluates adapters of an engine on tasks.

    Args:
        tasks: the evaluations, see `eval_tasks_of`.
        engine: serves the adapters.
        renderer: how conversations become tokens.
        context: maximum tokens of a prompt and its answer.
        best: the metric that selects `best`, see `followed`.
        tell: called with the unit that is counted, the number done, and the total.
        learners: those that share seats; in a name such as `step_4.main` they say whose weights are meant.

    Raises:
        ConfigError: an opponent does not exist; the message lists those that do.
    """

    def __init__(
        self,
        tasks: Sequence[EvalTask],
        engine: Engine,
        renderer: Renderer,
        context: int,
        best: str,
        tell: Callable[[str, int, int], None] | None = None,
        learners: Collection[str] = (),
    ):
        self.learners = learners
        self.tasks = {task.slot.name: task for task in tasks}
        self.roster = Roster(engine, renderer, context)
        self.rollouts = Rollouts(lambda label, **args: self.tasks[label].slot.make(**args), concurrency=256)
        self.best, self.tell, self._engine = best, tell, engine
        self._tables: dict[tuple[str | None, ...] | None, tuple[PolicyTable, Mapping[Any, float]]] = {}
        for task in tasks:
            try:
                self._rival(task)
            except PolicyError as error:
                raise ConfigError(f"eval.env {task.slot.name!r}: opponent: {error}") from error

    def due(self, step: int, *, last: bool = False) -> list[str]:
        """The names of the tasks to evaluate after a step; after the last, all."""
        return [name for name, c in self.tasks.items() if last or (c.every and step % c.every == 0)]

    @property
    def contests(self) -> list[EvalTask]:
        """The run's own envs that are contests."""
        return [task for task in self.tasks.values() if task.contest and not task.held_out]

    @property
    def own_scales(self) -> set[str]:
        """The envs whose seats have returns on different scales, see `outcomes.competitive`."""
        return {name for name, task in self.tasks.items() if not competitive(task.env)}

    def player(self, task: EvalTask, agent: str, adapter: str | None, learner: str | None = None) -> ModelPlayer:
        """The model in a seat as in training, with another adapter (None: the base).

        Several learners have one each: that of `learner` or else of the seat's learner, unless the name says whose.
        """
        role, trainable = task.slot.seats[agent]
        actor = actors.lookup(task.players, agent, role, trainable)
        player = self._seated(task, replace(actor, model=actors.POLICY))
        assert isinstance(player, ModelPlayer)
        if adapter is not None:
            weights, named = actors.parts_of(adapter, self.learners)
            adapter = actors.adapter_name(weights, named or learner or actor.learner)
        return replace(player, adapter=adapter)

    def opponent(self, task: EvalTask, word: str) -> Player:
        """The player for a name in `league.opponents`.

        Raises:
            PolicyError: there is none.
        """
        return self._seated(task, task.players[actors.ANYBODY].with_model(word))

    def measure(self, adapter: str | None, tasks: Collection[str] | None = None) -> dict[str, float]:
        """The metrics of the named tasks, all by default; with several envs as `ENV/NUMBER`."""
        out: dict[str, float] = {}
        for name, task in self.tasks.items():
            if tasks is None or name in tasks:
                numbers = self._exactly(task, adapter) if task.exactly else self._by_games(task, adapter)
                out |= {task.prefix + key: value for key, value in numbers.items()}
        return out

    def _exactly(self, task: EvalTask, adapter: str | None) -> dict[str, float]:
        report = None if self.tell is None else partial(self.tell, f"positions of {task.slot.name}")
        return table_metrics(task.env, *self._evaluated(task, adapter, report))  # type: ignore[arg-type]

    def table(self, task: EvalTask, adapter: str | None) -> PolicyTable:
        """The policy in a game that is evaluated exactly; not computed again if these weights were evaluated lately."""
        return self._evaluated(task, adapter, None, again=False)[0]

    def _evaluated(
        self, task: EvalTask, adapter: str | None, report: Callable[[int, int], None] | None, *, again: bool = True
    ) -> tuple[PolicyTable, Mapping[Any, float]]:
        players = [self.player(task, agent, adapter) for agent in task.slot.seats]
        published: Any = self._engine.adapters()
        weights = None
        if isinstance(published, Mapping):  # else an engine that does not say which weights it has
            served = {player.adapter: published[player.adapter] for player in players if player.adapter}
            if None not in served.values():  # else they have yet to be fetched
                weights = task.slot.name, *(player.adapter and served[player.adapter].digest for player in players)
        if weights in self._tables and not again:
            return self._tables[weights]
        self._tables.pop(weights, None)
        found = action_probabilities(task.env, players, task.info_sets, report)  # type: ignore[arg-type]
        if weights is not None:
            self._tables[weights] = found
            if len(self._tables) > MOST_TABLES:
                del self._tables[next(iter(self._tables))]
        return found

    def _by_games(self, task: EvalTask, adapter: str | None) -> dict[str, float]:
        """Against the task's rival, else in self-play.

        Games and numbers are those of `legos eval` with the same seed, sampling and number of games. In self-play, all
        seats of the policy count in each game.
        """
        rival = self._rival(task)
        if rival is not None:
            row = self._played(task, adapter, task.sides, rival, task.games)
            by_score = task.score == eval_numbers.BASE_WINS
            return numbers_of(row, task.score, samples=task.samples, value="score" if by_score else "mean")
        own = self._own(task, adapter)
        mine = [agent for agent in own if task.slot.seats[agent][1]] or list(own)  # its judges have no return
        row = self._played(task, adapter, [mine], own[mine[0]], math.ceil(task.games / len(mine)))
        return numbers_of(row, task.score, samples=task.samples, by_role=True)

    def against(self, adapter: str | None, opponents: Mapping[str, str | None], share: float = 1.0) -> dict[str, float]:
        """Win rates in all `contests`, draws half, as `wins_vs_OPPONENT`; with several envs as `ENV/NUMBER`.

        Args:
            adapter: the evaluated adapter (None: the base).
            opponents: name -> adapter.
            share: fraction of an evaluation's games played against each.
        """
        out: dict[str, float] = {}
        for task in self.contests:
            games = max(2, round(task.games * share))
            for name, other in opponents.items():
                row = self._played(task, adapter, task.sides, self._own(task, other), games)
                if row.get("score") is not None:
                    out |= _with_interval(f"{task.prefix}wins_vs_{name}", row["score"], row["score_ci95"])
        return out

    def _played(
        self, task: EvalTask, adapter: str | None, sides: Sequence[Sequence[str]], opponent: Any, games: int
    ) -> dict[str, Any]:
        """The row of an adapter's games."""
        others: dict[str, Any] = {
            key: self._seated(task, actor) for key, actor in task.players.items() if actor.model != actors.POLICY
        }
        own: dict[str, Any] = self._own(task, adapter)
        try:
            return head_to_head(
                self.rollouts,
                task.slot.name,
                sides,
                own,
                opponent,
                games,
                task.seed,
                samples=task.samples,
                others={**others, **own},
                options=task.slot.options,
                competitive=competitive(task.env),
                report=None if self.tell is None else partial(self.tell, f"evaluation games of {task.slot.name}"),
            )
        except NothingScored as none:  # no reason to end a run: other games may be scored
            return none.row

    def _own(self, task: EvalTask, adapter: str | None) -> dict[str, ModelPlayer]:
        """The model in the seats of the policy."""
        return {agent: self.player(task, agent, adapter) for agent in task.own or task.slot.trained}

    def _rival(self, task: EvalTask) -> Player | Mapping[str, Player] | None:
        """The opponent in the games of a task; None: the policy itself."""
        if task.rival is None:
            return None
        if task.rival == actors.BASE:
            return self._own(task, None)
        return self.opponent(task, task.rival)

    def _seated(self, task: EvalTask, actor: Actor) -> Player:
        return self.roster.player(actor, task.slot.name, task.slot.make)

    def key(self, numbers: Mapping[str, float]) -> tuple[str, int] | None:
        """The metric that selects `best`, and 1 or -1 for whether higher or lower is better; None if it was not
        measured, or no game of it could be scored.
        """
        return (self.best, eval_numbers.direction(self.best.rpartition("/")[2])) if self.best in numbers else None

    def close(self) -> None:
        self.rollouts.close()
        self.roster.close()


def numbers_of(
    row: Mapping[str, Any],
    name: str,
    *,
    samples: int = 1,
    by_role: bool = False,
    value: Literal["mean", "score"] = "mean",
) -> dict[str, float]:
    """The numbers of an evaluation's row that training tracks.

    The mean return (or the score, see `value`) as `name` with the ends of its 95 % interval, `name_low` and
    `name_high`, unless no game could be scored; for problems with right answers `accuracy` and, with K > 1 samples,
    `pass@K`, with intervals; with `by_role` also `name_ROLE`; and the share of each of `OUTCOMES`, with its interval if
    it occurred. If seats do not compete, a win is a `success`, and there are no draws and losses.
    """
    out = {} if row.get(value) is None else _with_interval(name, row[value], row[ENDS[value]])
    if (found := row.get("accuracy")) is not None:
        out |= _with_interval("accuracy", found[key := f"mean@{found['samples']}"], found[f"{key}_ci95"])
        if samples > 1:
            out |= _with_interval(key := f"pass@{samples}", found[key], found[f"{key}_ci95"])
    if by_role and len(row["roles"]) > 1:
        for role, found in row["roles"].items():
            out |= _with_interval(f"{name}_{role}", found["mean"], found["ci95"])
    names = dict.fromkeys(OUTCOMES) if row["competitive"] else {"win": "success", **dict.fromkeys(OUTCOMES[3:])}
    for kind, other in names.items():
        ends = row["outcomes_ci95"].get(kind)  # none if it never occurred
        called = other or kind
        out |= {called: float(row[kind])} if ends is None else _with_interval(called, row[kind], ends)
    return out


def _with_interval(name: str, mean: float, ends: Sequence[float]) -> dict[str, float]:
    return {name: float(mean), f"{name}_low": float(ends[0]), f"{name}_high": float(ends[1])}
