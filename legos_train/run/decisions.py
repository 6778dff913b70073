"""Every action of every decision point of a game, with what it is worth: what `expected` and `mirror` learn from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from legos_envs import Episode, InfoSet, exact, parsing
from legos_envs.records import Trajectory, Turn
from legos_train.credit import Advantages
from legos_train.errors import ConfigError
from legos_train.evaluation import Measurer
from legos_train.evaluation.exactly import ScoredAction, code_table, scored_answers
from legos_train.players import actors

Seating = tuple[str | None, ...]
"""By player number, the league's member at the seat; None: the policy that learns."""
Played = tuple[str, Seating]
"""The env of an episode, and who sat where."""
Policies = dict[tuple[str, str | None], Mapping[InfoSet, Sequence[ScoredAction]]]
"""By env and member, what may be answered at the decision points."""
Floats = NDArray[np.float64]
TINY = 1e-300


class Decisions(NamedTuple):
    """Decision points as episodes: of each the legal actions, as turns that read the same prompt.

    Attributes:
        episodes: one for each decision point and seating.
        advantages: of the actions.
        weights: how often play comes to the decision point, times the action's probability.
        values: by env and seating, the advantage of an action by its tokens (read, written), and by the tokens read
            alone (written: `()`) that of an answer that is not a legal action.
    """

    episodes: list[Episode]
    advantages: list[Advantages]
    weights: list[Advantages]
    values: dict[Played, dict[tuple[tuple[int, ...], tuple[int, ...]], float]]

    def advantages_of(self, episode: Episode) -> Advantages:
        """What the turns of a played episode were worth against those who were met in it."""
        values = self.values.get(_played(episode), {})
        return {
            agent: np.array([_value(values, turn) for turn in trajectory.turns], dtype=np.float64)
            for agent, trajectory in episode.trajectories.items()
            if trajectory.trainable
        }


class DecisionTable:
    """Values the decision points of the run's games by their trees.

    Args:
        measurer: knows the games and seats the policies.
        scaled: divide by the spread of a player's returns at uniform play, where that is above 1.
        explore: how often, for the weights of decision points, any player makes a uniformly random move.
        mirror_step: advantages are those of the target of such a step, as the loss `mirror` wants them.
        opponents: the league's members that are not snapshots.

    Raises:
        ConfigError: an env of the run cannot be solved, not all of its seats are the policy's, or nobody knows how
            likely the actions of an opponent are.
    """

    def __init__(
        self,
        measurer: Measurer,
        *,
        scaled: bool = True,
        explore: float = 0.0,
        mirror_step: float | None = None,
        opponents: Sequence[str] = (),
    ):
        self.measurer, self.scaled, self.explore, self.opponents = measurer, scaled, explore, opponents
        self.mirror_step = mirror_step
        self._name = "expected" if mirror_step is None else "mirror"
        for name, course in measurer.courses.items():
            if not course.held_out and not course.exactly:
                raise ConfigError(
                    f"loss.name = {self._name!r} goes through every decision of a game, and {name} has no exact truth "
                    "(a game that can be solved, memory='state', one round, no reasoning, all seats the policy's); "
                    "use 'ppo'"
                )
            if not course.held_out:
                for word in opponents:
                    self._check(course, word)

    def of(self, episodes: Sequence[Episode], version: int) -> Decisions:
        """The decision points of the games that were played, against whom they were played.

        Args:
            episodes: say how often each game was played in which seating.
            version: of the policy that is published.
        """
        played: Counter[Played] = Counter()
        trained: dict[Played, set[int]] = {}
        for episode in episodes:
            key = _played(episode)
            own = {number for number, one in enumerate(episode.trajectories.values()) if one.trainable}
            if own:
                played[key] += 1
                trained.setdefault(key, set()).update(own)
        out = Decisions([], [], [], {})
        policies: Policies = {}
        for key, count in played.items():
            name, seating = key
            course = self.measurer.courses[name]
            for member in seating:
                if (name, member) not in policies:
                    policies[name, member] = self._policy(course, member)
            mine = [policies[name, member] for member in seating]
            share = count / played.total()
            _add(self, out, course, mine, key, trained[key], share, version)
        return out

    def _policy(self, course: Any, member: str | None) -> Mapping[InfoSet, Sequence[ScoredAction]]:
        """What a member may answer at the decision points of all seats, with probabilities."""
        env: Any = course.env
        infos = exact.graph_of(env.game).infosets
        table = None if member is None else code_table(env, member)
        if table is not None:
            return {i: [ScoredAction((), (), np.log([table[i].get(m, 0.0) or TINY])) for m in i.legal] for i in infos}
        if member in self.opponents and member != actors.BASE:
            return scored_answers(env, self.measurer.opponent(course, member), infos)  # type: ignore[arg-type]
        adapter = None if member == actors.BASE else member or actors.POLICY
        players = [self.measurer.player(course, agent, adapter) for agent in env.possible_agents]
        out: dict[InfoSet, Sequence[ScoredAction]] = {}
        for number, player in enumerate(players):
            if player not in players[:number]:  # seats with equal prompts are scored in one call
                out |= scored_answers(env, player, [info for info in infos if players[info.player] == player])
        return out

    def _check(self, course: Any, word: str) -> None:
        """Whether it is known how likely an opponent's actions are."""
        if word == actors.BASE or code_table(course.env, word) is not None:
            return
        player: Any = self.measurer.opponent(course, word)
        if hasattr(player, "renderer") and not player.renderer.reasons:
            return
        raise ConfigError(
            f"loss.name = {self._name!r} has to know how likely every action of an opponent is, and league.opponents "
            f"has {word!r}, of whom only answers are known in {course.slot.name}; accepted are base, random, optimal, "
            "scripted:NAME, a run, an adapter or a model of this machine that answers without a thought, and a "
            "strategy of `legos exploit`. Leave it out, or use 'ppo'"
        )


def _played(episode: Episode) -> Played:
    return episode.env_id, tuple(one.info.get("member") for one in episode.trajectories.values())


def _value(values: Mapping[tuple[tuple[int, ...], tuple[int, ...]], float], turn: Turn) -> float:
    prompt = tuple(turn.prompt_tokens or ())
    return values.get((prompt, tuple(turn.action_tokens or ())), values.get((prompt, ()), 0.0))


def _add(
    table: DecisionTable,
    out: Decisions,
    course: Any,
    policies: Sequence[Mapping[InfoSet, Sequence[ScoredAction]]],
    played: Played,
    trained: set[int],
    share: float,
    version: int,
) -> None:
    """Adds the decision points of a game, seat by seat one of the `policies`; together they weigh `share`."""
    env: Any = course.env
    graph = exact.graph_of(env.game)
    answers = [policies[info.player][info] for info in graph.infosets]
    masses = [np.array([answer.probability for answer in choices]) for choices in answers]
    policy = [(m / m.sum() if m.sum() else np.full(len(m), 1 / len(m))).tolist() for m in masses]
    values, reached = graph.values(policy), graph.reach([_mixed(policy, table.explore)] * env.game.num_players)
    mixing = [reached] * env.game.num_players  # which state of a decision point it is: the others do not explore
    if table.explore:
        seats = range(env.game.num_players)
        mixing = [graph.reach([None if seat == own else policy for seat in seats]) for own in seats]
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
        mean = float(masses[at] @ gains) + max(0.0, 1.0 - float(masses[at].sum())) * illegal
        agent = env.possible_agents[info.player]
        legal = parsing.write_actions(info.legal, env.action_format)
        turns = [_turn(move, legal, answer, version) for move, answer in zip(info.legal, answers[at])]
        role, declared = course.slot.seats[agent]
        learner = actors.lookup(course.players, agent, role, declared).learner
        seat = Trajectory(agent, role, turns=turns, info={} if learner is None else {"learner": learner})
        out.episodes.append(Episode(course.slot.name, 0, {}, {agent: seat}))
        better = gains - mean if table.mirror_step is None else mirrored(masses[at], gains - mean, table.mirror_step)
        out.advantages.append({agent: better})
        out.weights.append({agent: masses[at] * (share * visits[at] / total)})
        prompt = tuple(answers[at][0].prompt)
        own = out.values.setdefault(played, {})
        own[prompt, ()] = illegal - mean
        for answer, gain in zip(answers[at], gains):
            own[prompt, tuple(answer.tokens)] = float(gain - mean)


def mirrored(masses: Floats, advantages: Floats, step: float) -> Floats:
    """log(q / p) / step, (A,), of q, which is p exp(step * advantage) over the legal actions and sums to 1.

    Args:
        masses: p of each legal action, (A,), together at most 1.
        advantages: what each gains over the policy's mean, (A,).
        step: of mirror descent.
    """
    logs = np.log(np.maximum(masses, TINY))
    target = logs + step * advantages
    peak = target.max()
    return (target - peak - np.log(np.exp(target - peak).sum()) - logs) / step


def _mixed(table: list[list[float]], explore: float) -> list[list[float]]:
    """The table with a uniformly random move every so often."""
    return [[(1 - explore) * p + explore / len(row) for p in row] for row in table] if explore else table


def action_values(
    graph: Any, at: int, values: Sequence[Sequence[float]], chances: Sequence[float], scale: float
) -> Floats | None:
    """What each action of an information set is worth to its player, (A,); None where the others never let it come up.

    Args:
        graph: of the game, see `legos_envs.exact`.
        at: the number of the information set.
        values: of each node for each player.
        chances: how likely the others and chance come to each node.
        scale: what the values are divided by.
    """
    info, nodes = graph.infosets[at], graph.members[at]
    met = sum(chances[node] for node in nodes)
    if not met:
        return None
    gains = np.zeros(len(info.legal))
    for node in nodes:
        gains += chances[node] * np.array([values[child][info.player] for child in graph.children[node]])
    gains /= met * scale
    return gains


def spreads(graph: Any) -> list[float]:
    """By player, the standard deviation of the returns when all play uniformly; 1 where it is less."""
    uniform = [[1 / len(info.legal)] * len(info.legal) for info in graph.infosets]
    reached = graph.reach([uniform] * graph.num_players)
    ends = [(mass, returns) for mass, returns in zip(reached, graph.returns) if returns]
    chances, returns = np.array([mass for mass, _ in ends]), np.array([returns for _, returns in ends])
    means = chances @ returns
    found = np.sqrt(np.maximum(1.0, chances @ (returns - means) ** 2))
    return [float(spread) for spread in found]


def _turn(move: str, legal: tuple[str, ...], answer: ScoredAction, version: int) -> Turn:
    return Turn(
        (),
        move,
        legal_actions=legal,
        prompt_tokens=answer.prompt,
        action_tokens=answer.tokens,
        logprobs=answer.logprobs.tolist(),
        policy_version=version,
    )
