"""The exact numbers of a pairing, for `legos eval`: what each policy's probabilities are is found out once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import legos_envs
from legos_train.evaluation import exactly
from legos_train.evaluation.games import Pairing

MANY_POSITIONS = 500
"""Information sets from which on asking a model about each of them takes long enough to be announced."""


class ExactPart:
    """Makes the `exact` part of rows.

    Args:
        player: who is called a word, in an env of an id and arguments.
        note: called with a line for people before something that takes long.
    """

    def __init__(self, player: Callable[[str, Any, str], Any], note: Callable[[str], None]):
        self.player, self.note = player, note
        self._tables: dict[tuple[str, str], tuple[exactly.Table | None, float | None]] = {}
        self._reports: dict[tuple[str, str], dict[str, Any]] = {}

    def of(self, pairing: Pairing, env: Any) -> dict[str, Any]:
        """`{"exact": ...}`; nothing where the game cannot be solved or the policy's probabilities are not known.

        Args:
            env: of the pairing, unwrapped.
        """
        if not exactly.solvable(env):
            return {}
        policy, illegal = self._table(pairing, env, pairing.policy)
        if policy is None:
            return {}
        key = pairing.title, pairing.policy
        if key not in self._reports:
            self._reports[key] = exactly.report(env, policy) | ({} if illegal is None else {"illegal": illegal})
        found = dict(self._reports[key])
        if pairing.opponent != pairing.policy and len(pairing.sides) > 1:
            opponent, _ = self._table(pairing, env, pairing.opponent)
            if opponent is not None:
                found["against_opponent"] = {
                    seat: exactly.value_against(env.game, policy, opponent, player)
                    for player, seat in enumerate(env.possible_agents)
                }
        return {"exact": found}

    def _table(self, pairing: Pairing, env: Any, word: str) -> tuple[exactly.Table | None, float | None]:
        """The probabilities of a policy, and how much of them goes to illegal answers (None: code gives none)."""
        key = pairing.title, word
        if key not in self._tables:
            self._tables[key] = self._asked(pairing, env, word)
        return self._tables[key]

    def _asked(self, pairing: Pairing, env: Any, word: str) -> tuple[exactly.Table | None, float | None]:
        if (known := exactly.code_table(env, word)) is not None:
            return known, None
        player = self.player(pairing.env, pairing.args, word)
        if not hasattr(player, "renderer"):
            return None, None
        infos = legos_envs.exact.info_sets(env.game)
        if len(infos) > MANY_POSITIONS:
            self.note(f"exact numbers: asking {word} about {len(infos)} positions of {pairing.title} (--no-exact: not)")
        probabilities, leftover = exactly.action_probabilities(env, [player] * env.game.num_players, infos)
        return probabilities, sum(leftover.values()) / len(leftover)
