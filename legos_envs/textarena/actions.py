"""The part of a player's public text that reaches a TextArena game: always short, and only as much as it needs.

TextArena's games search the raw completion with their own regular expressions; some take the first bracketed action,
one the last; several need seconds for repeated brackets, spaces or digits. So the action is extracted here, in linear
time: whitespace is collapsed, long texts and numbers are refused, and only the last bracketed action keeps its
brackets.
"""

from __future__ import annotations

import re

from legos_envs import parsing
from legos_envs.table import InvalidMove

MAX_ACTION = 400
MAX_TALK = 2000
MAX_BRACKETS = 32
_LONG_NUMBER = re.compile(rf"\d{{{parsing.MAX_DIGITS + 1}}}")

TALK = (
    "CharacterConclaveEnv",
    "IteratedPrisonersDilemmaEnv",
    "IteratedStagHuntEnv",
    "IteratedUltimatumGameEnv",
    "MarketEntryGameEnv",
    "NewRecruitEnv",
    "PublicGoodsGameEnv",
    "SecretMafiaEnv",
    "SettlersOfCatanEnv",
    "SimpleNegotiationEnv",
    "TabooEnv",
    "TruthAndDeceptionEnv",
    "TwoDollarEnv",
)
"""Games in which the whole text is the message. Its last bracketed action counts, if there is one."""
SEVERAL = ("SimpleBlindAuctionEnv", "ThreePlayerIPDEnv")
"""Games in which the text is the message and every bracketed action counts."""
NESTED = ("TakEnv",)
"""Games whose actions have brackets inside."""


def kind_of(game_class: str) -> str:
    """`"talk"`, `"several"`, `"nested"`, or `"action"` for games that read only one bracketed action."""
    for kind, classes in (("talk", TALK), ("several", SEVERAL), ("nested", NESTED)):
        if game_class in classes:
            return kind
    return "action"


def for_game(reply: str, kind: str, action_format: str) -> str:
    """The text to pass to a game.

    Raises:
        InvalidMove: it states no action where one is needed, or is too long.
    """
    if kind in ("action", "nested"):
        result = (
            outer(reply) if kind == "nested" and action_format == "bracket" else parsing.action(reply, action_format)
        )
        if result is None:
            wanted = parsing.write_action("...", action_format)
            raise InvalidMove(f"the reply states no action; write it as {wanted}.")
        if kind == "action":
            result = result.replace("[", " ").replace("]", " ")
        return f"[{_tidy(result, MAX_ACTION)}]"
    text = _tidy(reply, MAX_TALK)
    if kind == "several":
        if text.count("[") > MAX_BRACKETS:
            raise InvalidMove(f"the reply has {text.count('[')} brackets; at most {MAX_BRACKETS} are read.")
        return text
    return _last_only(text, action_format)


def outer(text: str) -> str | None:
    """The content of the last `[...]` with balanced brackets: the outermost if nested."""
    end = text.rfind("]")
    depth = 0
    for i in range(end, -1, -1):
        if text[i] == "]":
            depth += 1
        elif text[i] == "[":
            depth -= 1
            if depth == 0:
                return text[i + 1 : end].strip()
    return None


def _last_only(text: str, action_format: str) -> str:
    """The text with round brackets instead of square ones, except for the last bracketed action."""
    name = parsing.action(text, action_format)
    if name is None:
        return _round(text)
    start = text.rfind("\\boxed{") if action_format == "boxed" else text.rfind("[", 0, text.rfind("]"))
    opening = "\\boxed{" if action_format == "boxed" else "["
    end = text.index(name, start + len(opening)) + len(name)
    rest = text[end:].lstrip()[1:]
    return f"{_round(text[:start])}[{_round(name)}]{_round(rest)}"


def _round(text: str) -> str:
    return text.replace("[", "(").replace("]", ")")


def _tidy(text: str, most: int) -> str:
    """The text on one line."""
    text = " ".join(text.split())
    if len(text) > most:
        raise InvalidMove(f"it has {len(text)} characters; at most {most} are read.")
    if _LONG_NUMBER.search(text):
        raise InvalidMove(f"it has a number of more than {parsing.MAX_DIGITS} digits.")
    return text
