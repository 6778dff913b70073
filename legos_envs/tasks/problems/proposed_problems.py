"""Reads a proposed problem and its answer; determines the key its spellings share, and whether it may be played."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from legos_envs.scoring import answers
from legos_envs.table import InvalidMove
from legos_envs.tasks.problems import arithmetic, proposals

DOMAINS = ("arithmetic", "free")


class Proposal(NamedTuple):
    """A problem as solvers see it, its answer, the key for comparing it with others, and whether it may be played."""

    problem: str
    answer: str
    key: str
    verdict: str = "played"


@lru_cache(1 << 14)  # a run keeps passing the same problems as `seen`
def problem_key(problem: str, domain: str) -> str:
    """The key that all spellings of a problem share."""
    if domain == "free":
        return proposals.words(problem).strip()
    try:
        return arithmetic.read(problem).key
    except arithmetic.BadExpression:
        return "".join(problem.split())


def examine(problem: str, answer: str, domain: str) -> Proposal:
    """Reads a problem and its stated answer, and decides whether they may be played, ignoring duplicates.

    Raises:
        InvalidMove: it cannot be read.
    """
    proposals.bounded("problem", problem)
    proposals.bounded("answer", answer)
    if domain == "free":
        leaked = proposals.gives_away(problem, answer)
        return Proposal(problem, answer, problem_key(problem, domain), "leaked" if leaked else "played")
    try:
        read = arithmetic.read(problem.partition("\n")[0])
    except arithmetic.BadExpression as error:
        raise InvalidMove(f"the problem is not an arithmetic expression: {error}") from None
    truth = str(read.value)
    right = answers.same_number(answer, truth)
    verdict = "trivial" if not read.operations else "played" if right else "wrong_answer"
    return Proposal(problem.partition("\n")[0].strip(), truth, read.key, verdict)
