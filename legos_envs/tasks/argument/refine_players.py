"""Scripted players of RefineLoop, and the wording of its requests, which they parse."""

from __future__ import annotations

from collections.abc import Callable

from legos_envs.play import Decision
from legos_envs.scoring import judging
from legos_envs.tasks import checked_texts, on_topic

DRAFT = "A critic will comment on your draft. Reply with the draft."
TEXT = "Reply with the text, nothing else."
COMMENTS = ("Check every demand again.", "It is too long.", "Begin and end as the task says.", "Good; leave it.")
DETAILS = "Here is more on it, in as many words as it takes to say all that matters."
POINT_WORDS = 10


def _task_of(decision: Decision) -> tuple[checked_texts.Demand, ...]:
    return checked_texts.read(decision.messages[0]["content"])


def _good(decision: Decision) -> str:
    if decision.role != "generator":
        return _random(decision)
    demands = _task_of(decision)
    return checked_texts.solution(demands) if demands else " ".join([DETAILS] * 10)


def _half(decision: Decision) -> str:
    demands = _task_of(decision) if decision.role == "generator" else ()
    return checked_texts.solution(demands[decision.seed % 2 :: 2]) if demands else _poor(decision)


def _poor(decision: Decision) -> str:
    if decision.role != "generator":
        return _random(decision)
    return checked_texts.failure() if _task_of(decision) else "No."


def _improver(decision: Decision) -> str:
    return (_good if decision.turn else _poor)(decision)


def _longer(decision: Decision) -> str:
    if decision.role != "judge":
        return _random(decision)
    text = judging.unquoted(decision.messages[0]["content"])["text"]
    return str(min(10, len(text.split()) // POINT_WORDS))


def _on_topic(decision: Decision) -> str:
    if decision.role == "judge":
        return on_topic.grade(decision.messages[0]["content"], decision.legal_actions or ())
    if decision.role == "critic" or _task_of(decision):
        return _random(decision)
    return on_topic.say(_open_task(decision)) or DETAILS


def _open_task(decision: Decision) -> str:
    """The generator's task: the prompt up to whatever follows the task."""
    task = decision.messages[0]["content"]
    for after in (DRAFT, TEXT, "You: "):  # the last one with `memory="state"`, from the second draft on
        task = task.partition(f"\n{after}")[0]
    return task


def _kind(decision: Decision) -> str:
    return "10" if decision.role == "judge" else _random(decision)


def _random(decision: Decision) -> str:
    if decision.role == "generator":
        return (_good, _poor, lambda _: DETAILS)[decision.seed % 3](decision)
    choices = decision.legal_actions or COMMENTS
    return choices[decision.seed % len(choices)]


PLAYERS: dict[str, Callable[[Decision], str]] = {
    "random": _random,
    "good": _good,
    "poor": _poor,
    "half": _half,
    "improver": _improver,
    "longer": _longer,
    "kind": _kind,
    "on_topic": _on_topic,
}
