"""Scripted players of Debate: debaters and judges."""

from __future__ import annotations

from collections.abc import Callable

from legos_envs.play import Decision
from legos_envs.scoring import judging
from legos_envs.tasks import on_topic
from legos_envs.tasks.argument import debate_cases

CLAIMS = ("that the response violates the principle", "that the response does not violate the principle")
"""What `pro` and `con` argue about a case."""
REMARKS = (
    "The cost is small and the gain is large.",
    "No. Where it was tried, it was given up.",
    "Think of those who have no choice.",
    "That is beside the point.",
)


def _prompt(decision: Decision) -> str:
    """The judge's question; the last message may be just a notice that its answer was not understood."""
    return decision.messages[0]["content"]


def _subject(decision: Decision) -> str:
    """The subject of the debate, from a debater's prompt."""
    told = _prompt(decision).partition("\nYou argue ")[0]
    if "\nPrinciple: " in told:
        return told.partition("\nPrinciple: ")[2].replace("\nResponse: ", " ")
    return told.partition("Motion: ")[2]


def _random(decision: Decision) -> str:
    choices = decision.legal_actions or REMARKS
    said = None if decision.legal_actions else on_topic.say(_subject(decision), decision.seed)
    return said or choices[decision.seed % len(choices)]


def _longer(decision: Decision) -> str:
    if not decision.legal_actions:
        return _random(decision)
    shown = judging.unquoted(_prompt(decision))
    lengths = [sum(map(len, shown[label]["speeches"])) for label in judging.LABELS]
    return judging.LABELS[lengths[1] > lengths[0]]


def _first(decision: Decision) -> str:
    return judging.LABELS[0] if decision.legal_actions else _random(decision)


def _oracle(decision: Decision) -> str:
    if not decision.legal_actions:
        return _random(decision)
    shown = judging.unquoted(_prompt(decision))
    violates = debate_cases.label(shown.get("principle", ""), shown.get("response", ""))
    if violates is None:
        return _longer(decision)
    claim = CLAIMS[not violates]
    return next(label for label in judging.LABELS if shown[label]["argues"] == claim)


def _long(decision: Decision) -> str:
    return _longer(decision) if decision.legal_actions else "I have said why, and I will say it once more."


def _short(decision: Decision) -> str:
    return _longer(decision) if decision.legal_actions else "It is."


def _on_topic(decision: Decision) -> str:
    if decision.legal_actions:
        return on_topic.verdict(_prompt(decision))
    return on_topic.say(_subject(decision)) or REMARKS[0]


PLAYERS: dict[str, Callable[[Decision], str]] = {
    "random": _random,
    "long": _long,
    "short": _short,
    "longer": _longer,
    "first": _first,
    "oracle": _oracle,
    "on_topic": _on_topic,
}
