"""The environment that plays a `Game`.

In self-play on a small game, hundreds of episodes come to the same nodes. An env whose episodes follow from the
deal and the actions runs its rules only where it comes to a new one (`tree.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from legos_envs import parsing
from legos_envs.game.game_rules import Game, InfoSet, State
from legos_envs.game.tree import MAX_CHARS, MAX_DEPTH, GameTree, Node, Recorded, SharedMessage, tree_of
from legos_envs.table import Rules, Table
from legos_envs.text_env import TextEnv, write_prompt

SHOWN = ("rewards", "_cumulative_rewards", "terminations", "truncations", "infos")
"""Attributes of an env that callers get to see, and may change."""


class GameEnv(TextEnv):
    """Base class of environments whose rules are a `Game`: the subclass sets `self.game` and its seats."""

    default_memory = "state"
    view_shows_moves = False
    """Whether views name the legal moves, so that prompts need no list of them (prompts stay short and uniform)."""
    replayable: bool = False
    """Whether all texts, rewards and infos of an episode follow from what `deal` returns and the actions, so that what
    was recorded at a position stands for running the rules to it (tree.py). A subclass has to say so itself."""
    game: Game
    _deals: list[tuple[float, State]] | None = None
    _tree: GameTree | None = None
    _tree_settings: tuple[Any, ...] | None = None
    _node: Node | None = None
    """Where the episode is in the tree; None where it has left it."""
    _running = True
    """Whether the rules have been run to here."""

    def deal(self, table: Table) -> State:
        """Draws one of the game's initial states."""
        deals = self._deals = self._deals or self.game.initial()
        if len(deals) == 1:
            return deals[0][1]
        draw, total = table.random(), 0.0
        for chance, state in deals:
            total += chance
            if draw < total:
                return state
        return deals[-1][1]

    def play(self, table: Table) -> Rules[tuple[float, ...]]:
        game = self.game
        for i, agent in enumerate(self.possible_agents):
            table.tell(agent, self.rules_text(i))
        state = self.deal(table)
        while (player := game.player(state)) is not None:
            move = yield from table.ask(
                self.possible_agents[player],
                game.view(state, player),
                legal=game.legal(state),
                listed=not self.view_shows_moves,
            )
            state = game.next(state, move)
        returns = game.returns(state)
        for agent, value in zip(self.possible_agents, returns, strict=True):
            table.reward(agent, value)
        return returns

    def _open(self) -> None:
        tree, dealt = self._find_tree(), None
        self._node, self._shown, self._running = None, None, True
        if tree is not None:
            try:
                dealt = self.deal(Table(self, "", self.options))
            except Exception:  # the rules raise it again, with a note that says where
                dealt = None
        known = None if tree is None or dealt is None else tree.deals.get(dealt)
        if known is not None:
            self.agents = self.possible_agents.copy()
            self.log = []
            self._enter(known)
            return
        super()._open()
        if tree is not None and dealt is not None and not self.ended:
            self._node = tree.begin(dealt, self._recorded())

    def step(self, action: str | None) -> None:
        node = self._node
        if node is None or self.ended or not isinstance(action, str):
            super().step(action)
            return
        following = node.after.get(action)
        if following is not None:
            self.log.append(following.entry)
            self._enter(following)
            if self.render_mode == "human":
                self.render()
            return
        if not self._running:
            self._catch_up()
        self._node = None  # for good where the rules fail
        super().step(action)
        tree = self._tree
        if tree is not None and node.depth < MAX_DEPTH and len(action) <= MAX_CHARS:
            self._node = tree.go_on(node, action, self.log[-1], self._recorded())

    def _find_tree(self) -> GameTree | None:
        """The tree of such envs; None where an episode may depend on more than the deal and the actions."""
        if not (self.replayable and vars(type(self)).get("replayable")):
            return None
        settings: tuple[Any, ...] = (self.memory, self.action_format, self.invalid_retries, self.invalid_reward)
        settings += (self.invalid_opponent_reward, self.max_turns, self.max_action_chars)
        if settings != self._tree_settings:
            self._tree_settings = settings
            args, kwargs = self._made_with
            self._tree = tree_of(type(self), args, kwargs, settings)
        return self._tree

    def _recorded(self) -> Recorded:
        """What the env is now, apart from everything that goes on changing."""
        self._share_messages()
        if not self.ended:
            for agent in self._waiting:
                self.observe(agent)  # so that all who come here read the same object
        state = {
            "_returns": self._returns.copy(),
            "_conversations": self._conversations.copy(),
            "_facts": {agent: facts.copy() for agent, facts in self._facts.items()},
            "_waiting": dict.fromkeys(self._waiting),
            "agent_selection": self.agent_selection,
            "ended": self.ended,
        }
        return state, SimpleNamespace(**{name: _copied(getattr(self, name)) for name in SHOWN})

    def _share_messages(self) -> None:
        self._conversations.convert(_shared)

    def _enter(self, node: Node) -> None:
        """Becomes what was recorded; what callers get to see is copied only when they look, see `__getattr__`."""
        own = self.__dict__
        if not own.keys().isdisjoint(SHOWN):
            for name in SHOWN:
                own.pop(name, None)
        own.update(node.state)
        self._node, self._shown, self._running = node, node.shown, False

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """A copy of what was recorded, which is the env's own from then on."""
            if name in SHOWN and self._shown is not None:
                setattr(self, name, _copied(getattr(self._shown, name)))
                return self.__dict__[name]
            return super().__getattr__(name)

    def _catch_up(self) -> None:
        """Runs the rules to where the episode is."""
        log, mode, self.render_mode = self.log, self.render_mode, None
        self._waiting, self._shown = {}, None
        try:
            super()._open()
            for agent, action in log:
                self.select(agent)
                super().step(action)
        finally:
            self.render_mode = mode
        self._share_messages()  # of one type, whether an env runs the rules or enters what another has recorded
        log[:], self.log = self.log, log
        self._running = True

    def rules_text(self, player: int) -> str:
        """The text shown to a player at the start: the rules, and how to answer if prompts do not list the moves."""
        if not self.view_shows_moves:
            return self.game.rules(player)
        return f"{self.game.rules(player)} Reply with your move as {parsing.write_action('move', self.action_format)}."

    def observation_in(self, infoset: InfoSet) -> dict[str, tuple[dict[str, str], ...]]:
        """The observation of the player to move in this information set, with `memory="state"`."""
        written = None if self.view_shows_moves else self._written(infoset.legal)
        text = write_prompt(self.rules_text(infoset.player), infoset.view, None, written)
        return {"messages": ({"role": "user", "content": text},)}


def _shared(message: Mapping[str, str]) -> SharedMessage:
    return message if isinstance(message, SharedMessage) else SharedMessage(message)


def _copied(value: Any) -> Any:
    """A copy that shares nothing that can be changed, of plain values in dicts and lists."""
    if isinstance(value, dict):
        return {key: _copied(one) for key, one in value.items()}
    return value.copy() if isinstance(value, list) else value
