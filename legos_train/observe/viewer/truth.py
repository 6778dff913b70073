"""The exact cost of each move: the expected return before and after it if all play an equilibrium."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from legos_envs import exact, parsing
from legos_envs.game import GameEnv, InfoSet
from legos_envs.records import Episode
from legos_train.observe.viewer.lines import Step

Values = dict[InfoSet, tuple[float, dict[str, float]]]


def exact_values(env: GameEnv) -> Callable[[Episode], dict[str, list[Step | None]]]:
    """A function from episodes of the env to `rollout_line`'s `exact`; the game is solved once, here.

    Before a move: the value of the player's information set, that is, of its possible states, weighted by the
    probability that chance and an equilibrium's other players lead to them (equally if that is 0). After: the same for
    the move. The difference is 0 for a move that an equilibrium plays and negative for a mistake, whatever cards the
    others hold. Without hidden information it is the minimax value.

    None stands for a turn whose prompt is not an information set's (a second try, a chat memory) or whose
    move is illegal.

    Raises:
        ValueError: no equilibrium can be computed (`legos_envs.exact.nash`), or the game is too large.
    """
    table = solve(env.game)
    prompts: dict[Any, InfoSet] = {_key(env.observation_in(infoset)["messages"]): infoset for infoset in table}

    def values(episode: Episode) -> dict[str, list[Step | None]]:
        result: dict[str, list[Step | None]] = {}
        for agent, trajectory in episode.trajectories.items():
            steps: list[Step | None] = []
            for turn in trajectory.turns:
                infoset = prompts.get(_key(turn.observation))
                move = parsing.action(parsing.clean(turn.action), env.action_format)
                before, after = table[infoset] if infoset is not None else (0.0, {})
                steps.append((before, after[move]) if move in after else None)
            result[agent] = steps
        return result

    return values


def solve(game: Any) -> Values:
    """For each information set, its value and that of each legal move to the player to move, under an equilibrium.

    Raises:
        ValueError: as `exact_values`.
    """
    policy = exact.nash(game)
    graph = exact.graph_of(game)
    table = graph.probabilities(policy)
    at_node = graph.values(table)
    result: Values = {}
    for player in range(graph.num_players):
        reached = graph.reach_without(player, table)
        for index, infoset in enumerate(graph.infosets):
            if infoset.player != player:
                continue
            members = graph.members[index]
            weights = [reached[node] for node in members]
            if not any(weights):
                weights = [1.0] * len(members)
            total = sum(weights)
            moves = [worth / total for worth in graph.move_values(index, weights, at_node)]
            value = round(sum(p * q for p, q in zip(table[index], moves)), 9)
            # differences within the solver's accuracy are not mistakes
            rounded = [value if abs(q - value) <= 2 * exact.TOLERANCE else round(q, 9) for q in moves]
            result[infoset] = (value, dict(zip(infoset.legal, rounded)))
    return result


def _key(messages: Any) -> tuple[tuple[str, str], ...]:
    return tuple((message["role"], message["content"]) for message in messages)
