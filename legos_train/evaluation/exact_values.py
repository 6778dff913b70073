"""Numbers without sampling noise, for games small enough to enumerate, from the policy's own probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pettingzoo import AECEnv

from legos_envs import GameEnv, InfoSet, exact, parsing
from legos_envs.game import Game
from legos_train.rollout.players import words

if TYPE_CHECKING:
    from legos_train.rollout.players import ModelPlayer

PolicyTable = Mapping[InfoSet, Mapping[str, float]]
"""The probability of every legal move, in every information set."""
NOTHING = 1e-12
MOST_REGRETS = 20
MANY_POSITIONS = 500
"""With more information sets than this, `legos eval` warns that it is slow, and training evaluates less often."""
PART = 256
"""Information sets evaluated between two reports of progress."""
ReportProgress = Callable[[int, int], None]
"""Called with the number of evaluated information sets and of all."""


def action_probabilities(
    env: GameEnv, players: Sequence[ModelPlayer], info_sets: Sequence[InfoSet], report: ReportProgress | None = None
) -> tuple[dict[InfoSet, dict[str, float]], dict[InfoSet, float]]:
    """The models' own probabilities of the legal actions, each as the tokens `[move]` and the end of the turn.

    Args:
        env: the game.
        players: the players, by player number.
        info_sets: where to evaluate the models.
        report: called after every `PART` of them.

    Returns:
        The probabilities by information set, normalised over the legal moves, and the remaining mass in each:
        the probability of any other answer.
    """
    probabilities: dict[InfoSet, dict[str, float]] = {}
    leftover: dict[InfoSet, float] = {}
    for number, player in enumerate(players):
        mine = [info for info in info_sets if info.player == number]
        for begin in range(0, len(mine), PART):
            for info, answers in scored_answers(env, player, mine[begin : begin + PART]).items():
                mass = [answer.probability for answer in answers]
                total = sum(mass)
                probabilities[info] = {m: p / total if total else 1 / len(mass) for m, p in zip(info.legal, mass)}
                leftover[info] = max(0.0, 1.0 - total)
            if report is not None:
                report(len(probabilities), len(info_sets))
    return probabilities, leftover


class ScoredAction(NamedTuple):
    """A legal action as a model would write it: the tokens it reads and writes, and their log-probabilities (L,)."""

    prompt: Sequence[int]
    tokens: Sequence[int]
    logprobs: NDArray[np.float64]

    @property
    def probability(self) -> float:
        """The probability of the whole answer, including its end."""
        return math.exp(float(np.sum(self.logprobs)))


def scored_answers(env: GameEnv, player: ModelPlayer, infos: Sequence[InfoSet]) -> dict[InfoSet, list[ScoredAction]]:
    """The legal actions of information sets, in their order, as a model would write them: `[move]` and the end."""
    if not infos:
        return {}
    end = player.renderer.end_id
    prompts: list[Sequence[int]] = []
    replies: list[Sequence[int]] = []
    for info in infos:
        prompt = player.renderer.start(env.observation_in(info)["messages"], player.system)
        for move in info.legal:
            prompts.append(prompt)
            replies.append([*player.renderer.encode(parsing.write_action(move, env.action_format)), end])
    engine: Any = player.engine  # only local engines can score; callers ensure this
    answers = map(ScoredAction, prompts, replies, engine.score(prompts, replies, adapter=player.adapter))
    return {info: [next(answers) for _ in info.legal] for info in infos}


def table_metrics(env: GameEnv, policy: PolicyTable, leftover: Mapping[InfoSet, float]) -> dict[str, float]:
    """`policy_metrics`, and `illegal`: the mean of what is left over, the probability of answers that are no action."""
    return {**policy_metrics(env, policy), "illegal": float(np.mean(list(leftover.values())))}


def policy_metrics(env: GameEnv, policy: PolicyTable) -> dict[str, float]:
    """The exact numbers of a policy given as probabilities per information set.

    `nash_conv`: what both players together could gain by deviating (0 at an equilibrium). For games of perfect
    information also `optimal_move` (mean probability of an optimal move where moves differ) and `no_loss` and
    `no_loss_optimal` (probability of not losing to uniformly random and to optimal play, averaged over the seats), and
    both by seat as `no_loss_as_AGENT` and `no_loss_optimal_as_AGENT`.
    """
    numbers = {"nash_conv": float(exact.nash_conv(env.game, policy.__getitem__))}
    if env.zero_sum and exact.graph_of(env.game).perfect_information:
        numbers["optimal_move"] = float(exact.optimal_move_probability(env.game, policy.__getitem__))
        for name, opponent in (("no_loss", exact.uniform), ("no_loss_optimal", exact.nash(env.game))):
            seats = [
                float(exact.no_loss_rate(env.game, policy.__getitem__, opponent, seat))
                for seat in range(env.game.num_players)
            ]
            numbers[name] = float(np.mean(seats))
            numbers |= {f"{name}{seat}": rate for seat, rate in zip(_as_seats(env), seats)}
    return numbers


def exact_names(env: GameEnv) -> list[str]:
    """The names of `table_metrics`, without evaluating a policy."""
    perfect = env.zero_sum and exact.graph_of(env.game).perfect_information
    rates = [f"{name}{seat}" for name in ("no_loss", "no_loss_optimal") for seat in ("", *_as_seats(env))]
    return ["nash_conv", *(["optimal_move", *rates] if perfect else []), "illegal"]


def _as_seats(env: GameEnv) -> list[str]:
    return [f"_as_{agent}" for agent in env.possible_agents]


def report(env: GameEnv, policy: PolicyTable) -> dict[str, Any]:
    """`policy_metrics`; by seat `value` (the return if all play the policy) and `best_response` (the return of the
    best response from that seat); the sum of `regrets`, and the information sets with the largest.
    """
    seats = env.possible_agents
    values = exact.expected_returns(env.game, policy.__getitem__)
    by_regret = sorted(regrets(env.game, policy).items(), key=lambda item: -item[1].regret)
    total = sum(one.regret for _, one in by_regret)
    return {
        **policy_metrics(env, policy),
        "value": {seat: float(value) for seat, value in zip(seats, values)},
        "best_response": {
            seat: float(exact.best_response(env.game, policy.__getitem__, player)[0])
            for player, seat in enumerate(seats)
        },
        "regret_sum": total,
        "regret": [
            {"seat": seats[info.player], "view": info.view, "best": one.best, "regret": one.regret, "reach": one.reach}
            for info, one in by_regret[:MOST_REGRETS]
            if one.regret > NOTHING
        ],
    }


def value_against(game: Game, policy: PolicyTable, opponent: PolicyTable, player: int) -> float:
    """The expected return of `player` with `policy` if all others play `opponent`."""
    graph = exact.graph_of(game)
    own, other = graph.probabilities(policy.__getitem__), graph.probabilities(opponent.__getitem__)
    reached = graph.reach([own if i == player else other for i in range(game.num_players)])
    return float(sum(mass * returns[player] for mass, returns in zip(reached, graph.returns) if returns))


@dataclass(frozen=True, slots=True)
class Regret:
    """`regret`: what the best move in an information set would add to the expected return if its player steered towards
    it and all else stayed the same (immediate counterfactual regret). `reach`: how often it is reached if all play the
    policy. `best`: that move.
    """

    regret: float
    reach: float
    best: str


def regrets(game: Game, policy: PolicyTable) -> dict[InfoSet, Regret]:
    """The regret of every information set. Zinkevich et al. 2007, "Regret Minimization in Games with Incomplete
    Information", equation 7; by their theorem 3 the sum bounds NashConv, and it is 0 only at an equilibrium.
    """
    graph = exact.graph_of(game)
    table = graph.probabilities(policy.__getitem__)
    values = graph.values(table)
    everybody = graph.reach([table] * game.num_players)
    without = [graph.reach_without(player, table) for player in range(game.num_players)]
    result: dict[InfoSet, Regret] = {}
    for at, info in enumerate(graph.infosets):
        moves = graph.move_values(at, [without[info.player][node] for node in graph.members[at]], values)
        best = max(range(len(moves)), key=moves.__getitem__)
        gain = moves[best] - sum(p * value for p, value in zip(table[at], moves))
        reach = sum(everybody[node] for node in graph.members[at])
        result[info] = Regret(max(0.0, float(gain)), float(reach), info.legal[best])
    return result


def solvable(env: AECEnv) -> bool:
    """Whether exact numbers can be computed: a `GameEnv` whose prompts are information sets, played for one round."""
    return (
        isinstance(env, GameEnv)
        and getattr(env.game, "solvable", True)
        and env.memory == "state"
        and getattr(env, "num_rounds", 1) == 1
        and getattr(env.game, "rounds", 1) == 1
    )


EDGES = {"first": 0, "last": -1}
"""The index of the move of `scripted:first` and `scripted:last` among the legal ones."""


def code_table(env: Any, name: str) -> dict[InfoSet, Mapping[str, float]] | None:
    """The table of `random`, `optimal`, `scripted:first` or `last`, a script that the game has as probabilities
    (`Game.scripted`), or a strategy directory; None for others.
    """
    if not solvable(env):
        return None
    infos = exact.info_sets(env.game)
    if words.is_strategy(name):
        return dict(words.strategy_table(name, infos))
    scripted = getattr(env.game, "scripted", {})
    own = set(env.scripted_players)
    if name == "random" and "random" not in own:
        return {info: exact.uniform(info) for info in infos}
    if name == "optimal" and "optimal" not in own:
        solution = exact.nash(env.game)
        return {info: solution(info) for info in infos}
    kind, _, script = name.partition(":")
    if kind != "scripted":
        return None
    if script in scripted:
        return {info: scripted[script](info) for info in infos}
    if script in EDGES and script not in own:
        return {info: {info.legal[EDGES[script]]: 1.0} for info in infos}
    return None
