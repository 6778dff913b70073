"""Trading goods in words: the grammar of offers.

    [Offer: 3 Sheep, 2 Ore -> 5 Brick]            gives the goods before the arrow for those after it
    [Offer player_1: 3 Sheep -> 5 Brick]          to one player only
    [Accept]  [Accept player_1]  [Deny]  [Deny player_1]  [Done]

Case does not matter, nor does a plural s; `→`, `=>` and `for` are arrows too; `and`, `+`, `;` and `&` are commas; "I
give" and "your" are ignored. Reading takes time linear in the length of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from legos_envs import arguments, parsing
from legos_envs.table import InvalidMove

KINDS = ("Wheat", "Wood", "Sheep", "Brick", "Ore", "Clay", "Coal", "Salt")
MOST = 1_000_000
MAX_CHAT = 1000
"""Maximum number of characters of a message that are shown to others; the rest is cut off."""
Counts = tuple[int, ...]
"""Units of each kind of goods, in the order of the market's `kinds`."""
_SIGNS = ((",", " "), (":", " : "), ("->", " -> "), ("=>", " -> "), ("→", " -> "), (";", " "), ("+", " "), ("&", " "))
_ARROWS = {"->", "for"}
_FILLERS = {"and", "i", "give", "offer", "my", "your"}
_ANYONE = {"anyone", "all", "everyone"}


class Offer(NamedTuple):
    """Goods given for goods wanted; `to` is one player, or None for anyone who accepts first."""

    give: Counts
    get: Counts
    to: str | None = None


class Action(NamedTuple):
    """The action of a message: `kind` is `offer`, `accept`, `deny` or `done`; `player` is whom it names, if anyone."""

    kind: str
    offer: Offer | None = None
    player: str | None = None


_WORDS = {word: Action(word) for word in ("accept", "deny", "done")}


# --- writing ---------------------------------------------------------------------------------------------------------


def write_goods(counts: Counts, kinds: Sequence[str]) -> str:
    """Goods in words: `3 Sheep, 2 Ore`; `nothing` for none."""
    return ", ".join([f"{count} {kind}" for count, kind in zip(counts, kinds) if count]) or "nothing"


def write_offer(offer: Offer, kinds: Sequence[str]) -> str:
    """The action that makes an offer, without brackets: the inverse of `read_action`."""
    to = f" {offer.to}" if offer.to is not None else ""
    return f"Offer{to}: {write_goods(offer.give, kinds)} -> {write_goods(offer.get, kinds)}"


def write_open(maker: str, offer: Offer, kinds: Sequence[str]) -> str:
    """An offer as shown to the player who may accept it."""
    return f"{maker} offers you {write_goods(offer.give, kinds)} for {write_goods(offer.get, kinds)}."


def write_stock(player: str, counts: Counts, values: Counts, kinds: Sequence[str]) -> str:
    """A player's goods and the value of a unit to it: `You, player_0, have 3 Sheep worth 5 each, ...`."""
    items = [f"{count} {kind} worth {value} each" for count, value, kind in zip(counts, values, kinds)]
    return f"You, {player}, have {', '.join(items)}."


# --- reading ---------------------------------------------------------------------------------------------------------


def split_message(text: str, action_format: str = "bracket") -> tuple[str, str | None]:
    """The talk in a public text, on one line of at most `MAX_CHAT` characters, and its last action, if any."""
    action = parsing.action(text, action_format)
    talk = text
    if action is not None:
        closing = "]" if action_format == "bracket" else "}"
        opening = "[" if action_format == "bracket" else "\\boxed{"
        start = text.rfind(opening, 0, text.rfind(closing))
        inside = text.find(action, start + len(opening))
        talk = f"{text[:start]} {text[text.find(closing, inside + len(action)) + 1 :]}"
    talk = " ".join(talk.split())
    return (talk if len(talk) <= MAX_CHAT else f"{talk[:MAX_CHAT]}..."), action


def kind_names(kinds: int | Sequence[str]) -> tuple[str, ...]:
    """Names of goods that can be used in offers: the first ones of `KINDS`, or the given names.

    Raises:
        ValueError: they are not 2 to 8 distinct words of ASCII letters.
    """
    count = isinstance(kinds, int)
    names = (
        KINDS[: arguments.whole("resources", kinds, 2, len(KINDS))] if count else arguments.listed("resources", kinds)
    )
    words = {name.casefold() for name in names if isinstance(name, str) and name.isascii() and name.isalpha()}
    if not 2 <= len(words) == len(names) <= len(KINDS) or words & (_FILLERS | _ARROWS):
        raise ValueError(f"resources must be 2 to {len(KINDS)}, or as many distinct words of letters; got {kinds!r}")
    return names


def read_action(text: str, kinds: Sequence[str], players: Sequence[str] = ()) -> Action:
    """The action inside a bracket.

    Raises:
        InvalidMove: it is not an action; the message says what is wrong.
    """
    verb = text.casefold()
    if verb in _WORDS:
        return _WORDS[verb]
    for sign, spaced in _SIGNS:
        verb = verb.replace(sign, spaced)
    words = verb.split()
    verb = words[0].rstrip(".!") if words else ""
    if verb in ("accept", "deny"):
        return Action(verb, player=_player(words[1:], players))
    if verb == "done" and len(words) == 1:
        return Action(verb)
    if verb == "offer":
        return Action(verb, _read_offer(words[1:], kinds, players))
    raise InvalidMove(
        f"{text[:40]!r} is not an action; the last thing written like an action must be one, "
        f"such as 'Offer: 1 {kinds[0]} -> 1 {kinds[-1]}'."
    )


def _read_offer(words: list[str], kinds: Sequence[str], players: Sequence[str]) -> Offer:
    words = ["->" if word in _ARROWS else word for word in words if word not in _FILLERS]
    to = None
    if ":" in words:
        colon = words.index(":")
        to, words = _player(words[:colon], players), words[colon + 1 :]
    elif words and not words[0][:1].isdigit():
        to, words = _player(words[:1], players), words[1:]
    if words.count("->") != 1:
        raise InvalidMove(f"an offer has the form 'Offer: 1 {kinds[0]} -> 1 {kinds[-1]}': give, one arrow, get.")
    arrow = words.index("->")
    return Offer(read_goods(words[:arrow], kinds), read_goods(words[arrow + 1 :], kinds), to)


def _player(words: list[str], players: Sequence[str]) -> str | None:
    name = "_".join([word for word in words[:4] if word not in ("to", "from")]).rstrip(".!")
    if not name or name in _ANYONE:
        return None
    for player in players:
        if player.casefold() == name and len(words) <= 4:
            return player
    raise InvalidMove(f"{name[:40]!r} is not a player you can name here; players: {', '.join(players) or 'none'}.")


def read_goods(words: list[str], kinds: Sequence[str]) -> Counts:
    """Reads lower-case words, alternately numbers and kinds, such as `3 sheep 2 ore`. Raises `InvalidMove`."""
    index = _index(tuple(kinds))
    counts = [0] * len(kinds)
    items = [word.rstrip(".!") for word in words]
    if not items or len(items) % 2:
        raise InvalidMove(f"each side of an offer is a list such as '2 {kinds[0]}, 1 {kinds[-1]}'.")
    for number, name in zip(items[::2], items[1::2]):
        at = index.get(name, index.get(name.removesuffix("s")))
        if at is None:
            raise InvalidMove(f"{name[:40]!r} is not traded here; goods: {', '.join(kinds)}.")
        if not (number.isascii() and number.isdigit() and len(number) <= 9 and 0 < int(number) <= MOST):
            raise InvalidMove(f"{number[:40]!r} is not a quantity; give a whole number from 1 to {MOST}.")
        counts[at] += int(number)
    return tuple(counts)


@lru_cache(256)
def _index(kinds: tuple[str, ...]) -> dict[str, int]:
    return {kind.casefold(): i for i, kind in enumerate(kinds)}
