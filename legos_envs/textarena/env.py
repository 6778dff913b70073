"""Any of TextArena's games as an environment: a guest that is isolated, seeded, replayed and scored like a native one.

TextArena (Guertler et al., 2025) has over a hundred text games. Each one that plays without downloads and keys is
registered as `TextArena/NAME`, with TextArena's rules and wording; docs/textarena.md lists them, and why others are
refused. Needs `pip install "legos-selfplay[textarena]"`.

| | |
|---|---|
| seats | `player_0` ... in TextArena's order; role `player` |
| horizon | TextArena's own; at most `max_turns` actions |
| sum of rewards | zero in most games for two, see `env.zero_sum`; general in others |
| sample action | `(info["legal_actions"] or ["I pass."])[0]` |

## What each seat is told

TextArena's messages to that player, unchanged and in order: its prompt first, then the events since its last action.
Messages to one player are shown to no other. Of a player's text, others get only the public part that was passed to the
game, on one line, never a thought.

## Actions

As stated in the game's prompt, nearly always `[action]`: the last one outside thoughts counts, no matter what the game
itself would have read. Conversation games take the public text, up to 2,000 characters; there too, only the last
bracketed action keeps its brackets. If the state determines them, `info["legal_actions"]` and the prompt list the legal
actions.

An action that the game refuses has no effect, and only the mover is told the reason; invalid moves count as in every
environment here (`invalid_retries`, `invalid_reward`), not by TextArena's error allowance.

## Rewards

TextArena's, at the end: +1, 0 or -1 in most games, the share completed in many puzzles, points in a few (range: any
finite number). A reward that is not a number, or an error in the game, ends the episode as `"unscored"`.

## End

By the game's rules; by an invalid move (`outcome` is `"invalid"`); or by `max_turns`, which truncates. `reason` has
TextArena's explanation.

## Arguments

By default, `max_turns` is four times the longest of some random episodes, at least 200, and more with more players; for
2048 it is 20,000.

## Scripted players

`random` plays every game: a random legal action, or a suitable line. In KuhnPoker-v0, where both players hold each card
equally often:

| players | expected return | arguments |
|---|---|---|
| `*=scripted:first` | `player_0 0, player_1 0` | |
| `*=scripted:last` | `player_0 0, player_1 0` | |

## Versions

v0: as in TextArena 0.7.4.

## Source

Guertler et al., "TextArena" (2025), https://github.com/LeonGuertler/TextArena.
"""

from __future__ import annotations

from typing import Any

from legos_envs import arguments, parsing
from legos_envs.table import InvalidMove, Rules, Seat, Table, Truncated, Unscored
from legos_envs.text_env import TextEnv
from legos_envs.textarena import actions, isolation, legal
from legos_envs.textarena.guest import ActionRefused, Broken, Guest
from legos_envs.textarena.ids import GAMES, refusal
from legos_envs.textarena.players import random_player

HIDDEN = (
    "Battleship",
    "Briscola",
    "GermanWhist",
    "Golf",
    "IndianPoker",
    "KuhnPoker",
    "LiarsDice",
    "Poker",
    "SecretMafia",
    "SimpleBlindAuction",
    "SimpleNegotiation",
    "TwoDollar",
)
"""Games in which every player is dealt something that others must not see, and in which `check_env` can look for leaks
(in Taboo one player knows everything the other does; Spite and Malice, and Stratego, take too long without a plan).
"""


class TextArena(TextEnv):
    """One of TextArena's games.

    Args:
        game: TextArena's id, such as `"KuhnPoker-v0"`; each `TextArena/...` id has its own.
        num_players: number of players, within the game's range; by default its minimum.

    Raises:
        ValueError: the game is refused (the message says why) or unknown, or does not support this number of players.
        ImportError: TextArena is not installed.
    """

    name = "TextArena"
    default_memory = "chat"
    page_example = "TextArena/KuhnPoker-v0"

    def __init__(self, game: str, num_players: int | None = None, *, max_turns: int | None = None, **kwargs: Any):
        if why := refusal(game):
            raise ValueError(f"TextArena's {game} is refused: {why}")
        facts = GAMES[arguments.one_of("game", game, tuple(GAMES))]
        try:
            isolation.imported("textarena")
        except ImportError as error:
            raise ImportError(f"{game} needs TextArena: {arguments.install('textarena')} ({error})") from error
        self.game = game
        self.num_players = (
            facts.least if num_players is None else arguments.one_of("num_players", num_players, tuple(facts.players))
        )
        self.zero_sum = facts.zero_sum and self.num_players == facts.least  # type: ignore[misc]
        self.hidden_information = game.startswith(HIDDEN)  # type: ignore[misc]
        self.name = f"TextArena/{game}"  # type: ignore[misc]
        self.metadata = {"name": self.name, "render_modes": ["ansi", "human"], "is_parallelizable": False}
        self.scripted_players = {"random": random_player(game)}  # type: ignore[misc]
        self.seats = {f"player_{i}": Seat("player") for i in range(self.num_players)}
        longest = 20_000 if game.startswith("2048") else facts.max_turns * self.num_players // facts.least
        super().__init__(max_turns=longest if max_turns is None else max_turns, **kwargs)

    def play(self, table: Table) -> Rules[tuple[float, ...]]:
        guest = Guest(self.game, self.num_players, int(table.random() * 2**53))
        kind = actions.kind_of(guest.kind)
        self._pass_on(table, guest)
        try:
            while not guest.done:
                yield from self._turn(table, guest, kind)
                self._pass_on(table, guest)
        except Truncated:
            if guest.progress is not None:
                table.reward("player_0", guest.progress)
            raise
        return self._score(table, guest)

    def _turn(self, table: Table, guest: Guest, kind: str) -> Rules[None]:
        agent = f"player_{guest.player}"
        listed = legal.moves(guest.env)
        if listed is None:
            yield from table.ask(agent, self._question(kind), parse=lambda reply: self._act(guest, kind, reply))
            return
        if not listed:
            raise Unscored(f"TextArena's {self.game} goes on, but {agent} has no legal action")
        move = yield from table.ask(agent, "Your turn.", legal=listed)
        try:
            guest.act(f"[{move}]")
        except ActionRefused as reason:
            raise Unscored(f"TextArena's {self.game} refuses the legal action [{move}]: {reason}") from reason

    def _question(self, kind: str) -> str:
        boxed = self.action_format == "boxed"
        if kind == "several" or (kind == "talk" and not boxed):
            return "Your turn."
        what = "an action, if you take one," if kind == "talk" else "your action"
        note = " (not in square brackets)" if boxed else ""
        return f"Your turn. Write {what} as {parsing.write_action('...', self.action_format)}{note}."

    def _act(self, guest: Guest, kind: str, reply: str) -> None:
        try:
            guest.act(actions.for_game(reply, kind, self.action_format))
        except ActionRefused as reason:
            raise InvalidMove(str(reason)) from None

    def _pass_on(self, table: Table, guest: Guest) -> None:
        for reader, sender, text in guest.news:
            agent = self.possible_agents[reader]
            if sender < 0:
                table.tell(agent, text)
            elif sender != reader:
                table.tell(agent, f"[Player {sender}] {text}")
            elif self.memory == "state":  # with "chat" it is already in the dialogue
                table.tell(agent, f"[You] {text}")

    def _score(self, table: Table, guest: Guest) -> tuple[float, ...]:
        try:
            rewards = guest.rewards()
        except Broken as error:
            raise Unscored(str(error)) from error
        for agent, reward in zip(self.possible_agents, rewards):
            table.reward(agent, reward)
        same = len(set(rewards)) == 1
        table.note(outcome="finished" if self.num_players == 1 else "draw" if same else "decided", reason=guest.reason)
        return tuple(rewards)
