"""One episode of a TextArena game, held at arm's length.

The game is created for every episode, without TextArena's wrappers, and has its own randomness. Its messages to all
players are collected after every call. An action that it refuses leaves no trace: its messages are dropped, and before
the next action the game is recreated and the accepted actions replayed, since many games change something before, or
after, they refuse.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from legos_envs.textarena import isolation

MAX_REASON = 300

CHECKS_FIRST = ("SudokuEnv", "SokobanEnv")
"""Games that refuse before they change anything, and are slow to create: these are not recreated."""

MISTAKES = {
    "MinesweeperEnv": ("You hit a mine",),
    "CrosswordsEnv": ("The specified letter is incorrect",),
    "SudokuEnv": ("which violates Sudoku rules",),
}
"""Messages of games that call a legitimate but failed move invalid; TextArena's own handling applies (one warning, then
the end, with the progress so far as the reward)."""

PROGRESS = ("_get_percentage_completion", "_progress", "_calculate_progress")


class ActionRefused(Exception):
    """The game does not accept the action; the message is its reason."""


class Broken(Exception):
    """The game raised an exception, or returned a reward that is not a number."""


class Guest:
    """A running game.

    Args:
        game: TextArena's id, such as `"KuhnPoker-v0"`.
        num_players: number of players.
        seed: seed of all its randomness.
    """

    def __init__(self, game: str, num_players: int, seed: int):
        self.game, self.num_players, self.seed = game, num_players, seed
        self.accepted: list[str] = []
        self._begin()

    def _begin(self) -> None:
        import textarena

        self.chance = isolation.Chance(self.seed)
        known = textarena.envs.registration.ENV_REGISTRY
        raw = f"{self.game}-raw" if f"{self.game}-raw" in known else self.game
        isolation.load(known[raw].entry_point.partition(":")[0])
        with isolation.playing(self.chance):
            self.env = textarena.make(raw)
            self.env.reset(num_players=self.num_players, seed=self.seed % 2**31)
        self.state, self.kind = self.env.state, type(self.env).__name__
        self._mistakes = MISTAKES.get(self.kind, ())
        self._hook(self.state)
        self._stale = False
        self._refusal: str | None = None
        self.news = self._drain()

    def _hook(self, state: Any) -> None:
        """Takes over the handling of invalid moves from the game, and fixes calls that the state does not support."""
        own: Callable[..., Any] = state.set_invalid_move

        def set_invalid_move(*args: Any, **kwargs: Any) -> Any:
            # Four games pass reward and reason in the wrong order, so the text is identified by its type.
            reasons = [value for value in (kwargs.get("reason"), *args, *kwargs.values()) if isinstance(value, str)]
            reason = _line(reasons[0]) if reasons else "that is not a legal move."
            if any(part in reason for part in self._mistakes):
                return own(*args, **kwargs)
            self._refusal = self._refusal or reason
            state.made_invalid_move = True
            return False

        state.set_invalid_move = set_invalid_move
        if self.kind == "FifteenPuzzleEnv":
            state.set_winners = lambda player_ids, reason: state.set_outcome(1.0, reason)
        if self.kind == "TakEnv":
            win = state.set_winner

            def set_winner(player_ids: int, reason: str) -> None:
                win(player_ids, reason)

            state.set_winner = set_winner
        if self.kind == "CharacterConclaveEnv":
            import textarena

            add = state.add_observation
            state.add_observation = lambda observation_type=textarena.ObservationType.GAME_MESSAGE, **kwargs: add(
                observation_type=observation_type, **kwargs
            )

    @property
    def done(self) -> bool:
        return bool(self.state.done) and not self._stale

    @property
    def player(self) -> int:
        """The player to move."""
        return int(self.state.current_player_id)

    def act(self, action: str) -> None:
        """Plays an action of `player`; afterwards `news` holds the messages since then.

        Raises:
            ActionRefused: the game does not accept it, or fails on it; the game is as if nothing had been said.
        """
        if self._stale:
            self._replay()
        self._refusal = None
        try:
            with isolation.playing(self.chance):
                self.env.step(action)
        except Exception as error:
            self._stale = True
            raise ActionRefused(f"the game cannot read this action ({type(error).__name__}).") from error
        if self._refusal is not None:
            self._stale = self.done or self.kind not in CHECKS_FIRST
            self._drain()
            raise ActionRefused(self._refusal)
        self.accepted.append(action)
        self.news = self._drain()

    def _replay(self) -> None:
        """Recreates the game and brings it back to the current state."""
        accepted = self.accepted
        self._begin()
        with isolation.playing(self.chance):
            for action in accepted:
                self.env.step(action)
        self._drain()

    def _drain(self) -> list[tuple[int, int, str]]:
        """(reader, sender, text) of every message not read yet; the sender is -1 for the game."""
        news = []
        for reader, messages in self.state.observations.items():
            for message in messages:
                sender, text, kind = message
                in_order = isinstance(sender, int)  # three games pass player, text and kind in a different order
                news.append((reader, sender, str(text)) if in_order else (reader, text, str(kind)))
            messages.clear()
        return news

    def rewards(self) -> list[float]:
        """Each player's reward, once the game is over.

        Raises:
            Broken: a reward is not a finite number.
        """
        given = self.state.rewards or {}
        rewards = []
        for player in range(self.num_players):
            value = given.get(player, 0.0)
            try:
                number = float(value)
            except (TypeError, ValueError):
                number = math.nan
            if isinstance(value, str) or not math.isfinite(number):
                raise Broken(f"TextArena's {self.game} gave player {player} the reward {value!r}")
            rewards.append(number)
        return rewards

    @property
    def reason(self) -> str:
        """Why it ended, according to TextArena."""
        return _line(self.state.game_info.get(0, {}).get("reason") or "")

    @property
    def progress(self) -> float | None:
        """In a single-player game: the completed share, if the game reports it."""
        for name in PROGRESS:
            share = getattr(self.env, name, None)
            if self.num_players == 1 and share is not None:
                with isolation.playing(self.chance):  # some print what they count
                    return float(share())
        return None


def _line(text: Any) -> str:
    """A text on one line, without the phrase that announces an invalid move anyway."""
    line = " ".join(str(text).split())[:MAX_REASON]
    return line.removeprefix("Invalid move. ").removeprefix("Invalid action. ")
