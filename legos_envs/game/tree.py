"""Positions reached before: self-play on a small game comes to the same few of them thousands of times.

Where an episode follows from the deal and the actions alone, an env that comes to a known position takes over what was
recorded there instead of running its rules. Envs of the same class, arguments and settings share one `GameTree`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from types import SimpleNamespace
from typing import Any

MAX_POSITIONS = 4096
"""The most positions a tree holds; a full one starts over."""
MAX_DEPTH = 8
"""Positions after more actions are not recorded: they rarely recur."""
MAX_CHARS = 1024
"""Nor are those after a longer action: thoughts of such a length do not recur, and 4096 of them take much memory."""
MAX_TREES = 32
PLAIN = (str, int, float, bool, type(None))


class SharedMessage(dict[str, str]):
    """A message that several episodes show: changing it is an error, and its copies are plain dicts.

    Raises:
        TypeError: on any change.
    """

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError(
            "this message is shared by all episodes that came to it; change a copy: {**message, 'content': ...}"
        )

    __setitem__ = __delitem__ = __ior__ = update = pop = popitem = clear = setdefault = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, ({**self},)


Recorded = tuple[Mapping[str, Any], SimpleNamespace]
"""`Node.state` and `Node.shown`."""


class Node:
    """What an env is after a deal and some actions.

    Attributes:
        state: its attributes.
        shown: further attributes, which an env copies for callers that look at them.
        entry: the line of its log that led here.
        depth: how many actions led here.
        after: the positions reached from here, by the text of the action.
    """

    __slots__ = ("after", "depth", "entry", "shown", "state")

    def __init__(self, recorded: Recorded, entry: tuple[str, str] = ("", ""), depth: int = 0):
        self.state, self.shown = recorded
        self.entry, self.depth = entry, depth
        self.after: dict[str, Node] = {}


class GameTree:
    """The positions that envs of one kind have come to, by the state dealt."""

    def __init__(self) -> None:
        self.deals: dict[Hashable, Node] = {}
        self.count = 0

    def begin(self, dealt: Hashable, recorded: Recorded) -> Node:
        """Records what an env is after a deal."""
        self._grow()
        node = self.deals[dealt] = Node(recorded)
        return node

    def go_on(self, before: Node, action: str, entry: tuple[str, str], recorded: Recorded) -> Node:
        """Records what an env is after an action."""
        self._grow()
        node = before.after[action] = Node(recorded, entry, before.depth + 1)
        return node

    def _grow(self) -> None:
        if self.count >= MAX_POSITIONS:
            self.deals.clear()  # envs that are in one of its positions go on from there
            self.count = 0
        self.count += 1


_trees: OrderedDict[Hashable, GameTree] = OrderedDict()


def tree_of(kind: type, args: tuple[Any, ...], kwargs: Mapping[str, Any], settings: tuple[Any, ...]) -> GameTree | None:
    """The tree shared by envs of a class that were made with these arguments; None for arguments that are no plain
    values.
    """
    if not all(type(value) in PLAIN for value in (*args, *kwargs.values())):
        return None
    key = kind, repr(args), repr(sorted(kwargs.items())), repr(settings)  # not equality: 0.0 == -0.0 == False
    tree = _trees.get(key)
    if tree is None:
        tree = _trees[key] = GameTree()
        if len(_trees) > MAX_TREES:
            _trees.popitem(last=False)
    else:
        _trees.move_to_end(key)
    return tree
