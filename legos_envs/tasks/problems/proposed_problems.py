"""A proposed problem and its answer, read: what spellings of it share, and whether it may be played."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from legos_envs.scoring import answers
from legos_envs.table import InvalidMove
from legos_envs.tasks.problems import arithmetic, proposals

DOMAINS = ("arithmetic", "free")


class Proposal(NamedTuple):
    """A problem as solvers see it, its answer, how it is compared with others, and whether it may be played."""

    problem: str
    answer: str
    key: str
    verdict: str = "played"


@lru_cache(1 << 14)  # a run passes the same problems as `seen` again and again
def problem_key(problem: str, domain: str) -> str:
    """What two spellings of one problem share."""
    if domain == "free":
        return proposals.words(problem).strip()
    try:
        return arithmetic.read(problem).key
    except arithmetic.BadExpression:
        return "".join(problem.split())


def examine(problem: str, answer: str, domain: str) -> Proposal:
    """Reads a problem and its stated answer, and says whether they may be played, duplicates aside.

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
