"""The exact numbers of `legos eval`, for the policies that meet in a pairing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from inference.types import UNCHANGED
from legos_envs import InfoSet, exact
from legos_train.evaluation.exact_values import (
    MANY_POSITIONS,
    PolicyTable,
    action_probabilities,
    code_table,
    report,
    solvable,
    value_against,
)
from legos_train.evaluation.games import Pairing
from legos_train.observe import ProgressLine
from legos_train.rollout.players import actors


class ExactResults:
    """Exact numbers for pairings, for `legos eval`. The probabilities of each policy are computed once.

    Args:
        player: creates the player of a policy, given an env's id and arguments, the policy's name and `system`.
        note: called with a readable line before slow operations.
        systems: system prompts of agents, by title of the env.
    """

    def __init__(
        self,
        player: Callable[..., Any],
        note: Callable[[str], None],
        systems: Mapping[str, Mapping[str, str]] | None = None,
    ):
        self.player, self.note, self.systems = player, note, systems or {}
        self._tables: dict[tuple[str, str, str], tuple[PolicyTable | None, Mapping[InfoSet, float]]] = {}
        self._reports: dict[tuple[str, str], dict[str, Any]] = {}
        self._sampled: dict[tuple[str, str], dict[str, float]] = {}

    def remarks(self, pairing: Pairing) -> list[str]:
        """A note if the games of a pairing were not drawn as its exact numbers are."""
        words = dict.fromkeys((pairing.policy, pairing.opponent, *pairing.fixed.values()))
        return [
            f"the exact numbers are those of {word} at {name} {getattr(UNCHANGED, name):g}; its games were played at "
            f"{value:g} (--{name.replace('_', '-')})."
            for word in words
            for name, value in self._sampled.get((pairing.title, word), {}).items()
        ]

    def of(self, pairing: Pairing, env: Any) -> dict[str, Any]:
        """`{"exact": ...}`; empty if the game cannot be solved or the policy's probabilities are not known.

        Seats fixed to a player in every game are played by that player here too.

        Args:
            pairing: a policy and its opponent.
            env: env of the pairing. One in a wrapper, which may change rewards or players, has no exact numbers.
        """
        if not solvable(env):
            return {}
        policy, illegal = self._together(pairing, env, pairing.policy)
        if policy is None:
            return {}
        key = pairing.title, pairing.policy
        if key not in self._reports:
            self._reports[key] = report(env, policy) | ({} if illegal is None else {"illegal": illegal})
        numbers = dict(self._reports[key])
        if pairing.opponent != pairing.policy and len(pairing.sides) > 1:
            opponent, _ = self._together(pairing, env, pairing.opponent)
            if opponent is not None:
                numbers["against_opponent"] = {
                    seat: value_against(env.game, policy, opponent, player)
                    for player, seat in enumerate(env.possible_agents)
                }
        return {"exact": numbers}

    def _together(self, pairing: Pairing, env: Any, word: str) -> tuple[PolicyTable | None, float | None]:
        """The probabilities of a policy in its seats and of the other players in theirs, and its mass on illegal
        answers (None: code gives none).
        """
        table: dict[InfoSet, Mapping[str, float]] = {}
        leftover: dict[InfoSet, float] = {}
        for agent in env.possible_agents:
            who = actors.lookup(
                {**pairing.fixed, actors.ANYBODY: word}, agent, env.infos[agent].get("role", agent), True
            )
            key = pairing.title, who, agent
            if key not in self._tables:
                self._tables[key] = self._ask(pairing, env, who, agent)
            found, illegal = self._tables[key]
            if found is None:
                return None, None
            table |= found
            leftover |= illegal
        return table, sum(leftover.values()) / len(leftover) if leftover else None

    def _ask(
        self, pairing: Pairing, env: Any, word: str, agent: str
    ) -> tuple[PolicyTable | None, Mapping[InfoSet, float]]:
        """The probabilities of a policy in a seat, and its mass on illegal answers; none for code."""
        number = env.possible_agents.index(agent)
        if (table := code_table(env, word)) is not None:
            return {info: moves for info, moves in table.items() if info.player == number}, {}
        own = self.systems.get(pairing.title, {})
        player = self.player(pairing.env, pairing.args, word, system=own.get(agent))
        if not hasattr(player, "renderer") or player.renderer.reasons:
            return None, {}  # models that reason first have no such probabilities
        infos = exact.info_sets(env.game)
        if len(infos) > MANY_POSITIONS and (pairing.title, word) not in self._sampled:
            positions = f"{len(infos)} positions of {pairing.title}"
            self.note(f"exact numbers: asking {word} about {positions} (skip with --no-exact)")
        self._sampled[pairing.title, word] = player.draw.unusual
        mine = [info for info in infos if info.player == number]
        line = ProgressLine("positions") if len(mine) > MANY_POSITIONS else None
        try:
            return action_probabilities(env, [player] * env.game.num_players, mine, line)
        finally:
            if line is not None:
                line.close()
