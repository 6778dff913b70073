"""All actions at all decision points of a game, with values: the training data of `expected` and `mirror`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from legos_envs import Episode, InfoSet, exact, parsing
from legos_envs.records import Trajectory
from legos_train.errors import ConfigError
from legos_train.evaluation import Measurer
from legos_train.evaluation.exact_values import ScoredAction, code_table, scored_answers
from legos_train.rollout import Job
from legos_train.rollout.players import actors
from legos_train.run.all_actions.branches import Branches
from legos_train.run.all_actions.decision_points import (
    TINY,
    Decisions,
    Floats,
    MirrorStep,
    PlayedSeats,
    learner_in,
    nothing_decided,
    played_by,
    turns_of,
)

Policies = dict[tuple[str, str | None], Mapping[InfoSet, Sequence[ScoredAction]]]
"""By env and member, the possible answers at the decision points."""


class DecisionTable:
    """Values the decision points of the run's games: by the game tree, else by playing on from sampled points.

    Args:
        measurer: knows the games and assigns policies to seats.
        branches: values the actions of games without a tree.
        scaled: divide by the spread of a player's returns under uniform play, if that is above 1.
        explore: probability of a uniformly random move by any player, used in the weights of decision points.
        mirror: advantages are those of the target of such a step, as the loss of that name needs them.
        opponents: the league's members that are not snapshots.

    Raises:
        ConfigError: neither works for an env of the run, `explore` or `branches` has no effect, or the action
            probabilities of an opponent are unknown.
    """

    def __init__(
        self,
        measurer: Measurer,
        branches: Branches,
        *,
        scaled: bool = True,
        explore: float = 0.0,
        mirror: MirrorStep | None = None,
        opponents: Sequence[str] = (),
    ):
        self.measurer, self.scaled, self.explore, self.opponents = measurer, scaled, explore, opponents
        self.mirror, self.branches = mirror, branches
        self._name = "expected" if mirror is None else "mirror"
        tasks = {name: task for name, task in measurer.tasks.items() if not (task.held_out or task.again)}
        always = branches.settings.when == "always"
        self.trees = frozenset(name for name, task in tasks.items() if task.exactly and not always)
        for name, task in tasks.items():
            if name in self.trees:
                for word in opponents:
                    self._check(task, word)
            elif explore:
                raise ConfigError(
                    f"loss.explore = {explore} applies only to games valued by their tree, and {name} is valued by "
                    "branches of what was played; leave it out"
                )
            else:
                branches.check(task, self._name)
        if not always and len(self.trees) == len(tasks) and branches.settings != type(branches.settings)():
            raise ConfigError(
                f"[branch] has no effect: {', '.join(tasks)} is valued by its tree; leave it out, or set "
                'branch.when = "always"'
            )

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes printed at the start of a run about its games without a tree, if any."""
        names = [name for name, task in self.measurer.tasks.items() if not (task.held_out or task.again)]
        branched = ", ".join(name for name in names if name not in self.trees)
        of = self.branches.settings
        counted = f"{of.points} decision{'s' * (of.points > 1)} per game"
        counted += f", {f'{of.rollouts} times' if of.rollouts > 1 else 'once'} each"
        return (f"{branched}: branches value every legal action ({counted})",) if branched else ()

    def of(self, episodes: Sequence[Episode], version: int, jobs: Sequence[Job] = ()) -> Decisions:
        """The decision points of the played games, against the opponents of those games.

        Args:
            episodes: determine how often each game was played in which seating.
            version: version of the published policy.
            jobs: jobs of the episodes; needed by branches.
        """
        played: Counter[PlayedSeats] = Counter()
        trained: dict[PlayedSeats, set[int]] = {}
        for episode in episodes:
            key = played_by(episode)
            own = {number for number, one in enumerate(episode.trajectories.values()) if one.trainable}
            if own:
                played[key] += 1
                trained.setdefault(key, set()).update(own)
        out = nothing_decided()
        seats: dict[tuple[str, str | None], set[int]] = {}
        for name, seating in played:
            for number, member in enumerate(seating):
                seats.setdefault((name, member), set()).add(number)
        policies: Policies = {}
        for key, count in played.items():
            name, seating = key
            if name not in self.trees:
                continue
            task = self.measurer.tasks[name]
            for member in seating:
                if (name, member) not in policies:
                    policies[name, member] = self._policy(task, member, seats[name, member])
            mine = [policies[name, member] for member in seating]
            share = count / played.total()
            _add(self, out, task, mine, key, trained[key], share, version)
        rest = Counter({key: count for key, count in played.items() if key[0] not in self.trees})
        if rest:
            if len(jobs) != len(episodes):
                raise ConfigError(
                    f"loss.name = {self._name!r} plays branches of the jobs of Arena.generate_rollouts, which this "
                    "arena has replaced; use 'ppo'"
                )
            pairs = [pair for pair in zip(jobs, episodes, strict=True) if played_by(pair[1]) in rest]
            self.branches.add(out, pairs, rest.total() / played.total(), version)
        return out

    def _policy(
        self, task: Any, member: str | None, seats: Collection[int]
    ) -> Mapping[InfoSet, Sequence[ScoredAction]]:
        """A member's possible answers, with probabilities, at the decision points of seats; by code, of all."""
        env: Any = task.env
        infos = exact.graph_of(env.game).infosets
        table = None if member is None else code_table(env, member)
        if table is not None:
            return {i: [ScoredAction((), (), np.log([table[i].get(m, 0.0) or TINY])) for m in i.legal] for i in infos}
        if member in self.opponents and member != actors.BASE:
            return scored_answers(env, self.measurer.opponent(task, member), infos)  # type: ignore[arg-type]
        learner = learner_in(member)
        adapter = None if member == actors.BASE else actors.POLICY if learner else member or actors.POLICY
        players = {n: self.measurer.player(task, env.possible_agents[n], adapter, learner) for n in sorted(seats)}
        out: dict[InfoSet, Sequence[ScoredAction]] = {}
        scored: list[Any] = []
        for player in players.values():
            if player not in scored:  # seats with equal prompts are scored in one call
                scored.append(player)
                out |= scored_answers(env, player, [info for info in infos if players.get(info.player) == player])
        return out

    def _check(self, task: Any, word: str) -> None:
        """Checks that an opponent's action probabilities are known."""
        if word == actors.BASE or code_table(task.env, word) is not None:
            return
        player: Any = self.measurer.opponent(task, word)
        if hasattr(player, "renderer") and not player.renderer.reasons:
            return
        accepted = actors.listed(actors.BASE, but=(actors.HUMAN, actors.ENDPOINT), mark="")
        raise ConfigError(
            f"loss.name = {self._name!r} needs the probability of every action of an opponent, and league.opponents "
            f"has {word!r}, which only gives answers in {task.slot.name}; accepted are {accepted}, where models answer "
            "without a thought. Leave it out, or use 'ppo'"
        )


def _add(
    table: DecisionTable,
    out: Decisions,
    task: Any,
    policies: Sequence[Mapping[InfoSet, Sequence[ScoredAction]]],
    played: PlayedSeats,
    trained: set[int],
    share: float,
    version: int,
) -> None:
    """Adds the decision points of a game, with one of the `policies` per seat and a total weight of `share`."""
    env: Any = task.env
    graph = exact.graph_of(env.game)
    answers = [policies[info.player][info] for info in graph.infosets]
    masses = [np.array([answer.probability for answer in choices]) for choices in answers]
    policy = [(m / m.sum() if m.sum() else np.full(len(m), 1 / len(m))).tolist() for m in masses]
    values, reached = graph.values(policy), graph.reach([_mixed(policy, table.explore)] * env.game.num_players)
    mixing = [reached] * env.game.num_players  # weights of states within a decision point: the others do not explore
    if table.explore:
        mixing = [graph.reach_without(player, policy) for player in range(env.game.num_players)]
    worst = np.min([returns for returns in graph.returns if returns], axis=0)
    scales = spreads(graph) if table.scaled else [1.0] * env.game.num_players
    visits = [sum(reached[node] for node in nodes) for nodes in graph.members]
    total = sum(visit for visit, info in zip(visits, graph.infosets) if info.player in trained)
    for at, info in enumerate(graph.infosets):
        if info.player not in trained or not visits[at]:
            continue
        gains = action_values(graph, at, values, mixing[info.player], scales[info.player])
        if gains is None:
            continue
        illegal = min(float(env.invalid_reward), float(worst[info.player])) / scales[info.player]
        agent = env.possible_agents[info.player]
        legal = parsing.write_actions(info.legal, env.action_format)
        turns = turns_of(info.legal, legal, answers[at], version)
        learner = learner_in(played[1][info.player])
        role = task.slot.seats[agent][0]
        seat = Trajectory(agent, role, turns=turns, info={} if learner is None else {"learner": learner})
        weight = share * visits[at] / total
        out.add(played, seat, masses[at], gains, illegal, weight, table.mirror)


def _mixed(table: list[list[float]], explore: float) -> list[list[float]]:
    """The table mixed with uniformly random moves at rate `explore`."""
    return [[(1 - explore) * p + explore / len(row) for p in row] for row in table] if explore else table


def action_values(
    graph: Any, at: int, values: Sequence[Sequence[float]], chances: Sequence[float], scale: float
) -> Floats | None:
    """The value of each action of an information set to its player, (A,); None if the others never let it occur.

    Args:
        graph: graph of the game, see `legos_envs.exact`.
        at: the number of the information set.
        values: value of each node for each player.
        chances: probability that the others and chance reach each node.
        scale: divisor of the values.
    """
    weights = [chances[node] for node in graph.members[at]]
    met = sum(weights)
    return np.array(graph.move_values(at, weights, values)) / (met * scale) if met else None


def spreads(graph: Any) -> list[float]:
    """For each player, the standard deviation of the returns under uniform play, but at least 1."""
    uniform = [[1 / len(info.legal)] * len(info.legal) for info in graph.infosets]
    reached = graph.reach([uniform] * graph.num_players)
    ends = [(mass, returns) for mass, returns in zip(reached, graph.returns) if returns]
    chances, returns = np.array([mass for mass, _ in ends]), np.array([returns for _, returns in ends])
    means = chances @ returns
    found = np.sqrt(np.maximum(1.0, chances @ (returns - means) ** 2))
    return [float(spread) for spread in found]
