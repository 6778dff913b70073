"""How prompts ask for an answer: the format of actions, and the template around every prompt."""

from __future__ import annotations

import difflib
from typing import NamedTuple

from inference.types import OBSERVATION
from legos_train.errors import ConfigError

REASON = "Please reason step by step, and put your final answer within \\boxed{}."


class ReplyTemplate(NamedTuple):
    """A row of `REPLIES`.

    Attributes:
        action_format: the env's argument of that name; "" keeps it.
        ask: the template of prompts; "" for none.
        help: what the help says about it, besides the name.
    """

    action_format: str
    ask: str = ""
    help: str = ""


REPLIES = {
    "env": ReplyTemplate("", help="the environment's own way"),
    "bracket": ReplyTemplate("bracket"),
    "boxed": ReplyTemplate("boxed"),
    "boxed_reasoning": ReplyTemplate("boxed", f"{OBSERVATION}\n{REASON}", "step by step, then `boxed`"),
    "spiral": ReplyTemplate(
        "boxed",
        f"You are playing a two-player zero-sum game. Make valid actions to win.\nObservation: {OBSERVATION}\n{REASON}",
        "the SPIRAL paper's prompt",
    ),
}
"""The reply templates by name. `spiral` is the prompt of SPIRAL's code for games (`qwen3` of its templates)."""


def read_reply(word: str) -> ReplyTemplate:
    r"""A row of `REPLIES`, or the user's own text.

    A text has `{observation}` in place of the env's prompt, or is appended to it. It sets the format to `boxed` if it
    names `\boxed`, else it keeps the env's.

    Raises:
        ConfigError: it is a single word that is not a row; the message names the nearest.
    """
    if word in REPLIES:
        return REPLIES[word]
    if OBSERVATION not in word and not any(character.isspace() for character in word.strip()):
        near = difflib.get_close_matches(word, REPLIES, 1)
        hint = f", did you mean {near[0]!r}?" if near else "."
        raise ConfigError(
            f"unknown reply template {word!r}{hint} Available: {', '.join(REPLIES)}, or your own text with "
            f"{OBSERVATION} in it"
        )
    ask = word if OBSERVATION in word else f"{OBSERVATION}\n{word}"
    return ReplyTemplate("boxed" if "\\boxed" in word else "", ask)


def formatted(args: dict[str, object], word: str, what: str) -> dict[str, object]:
    """The constructor arguments of an env with the action format of a reply template.

    Raises:
        ConfigError: they set another format.
    """
    wanted = read_reply(word).action_format
    given = args.get("action_format", wanted)
    if wanted and given != wanted:
        raise ConfigError(f"reply = {word!r} needs action_format = {wanted!r}, but {what} has {given!r}; leave one out")
    return {**args, "action_format": wanted} if wanted else args
