"""The texts of the arithmetic base: proposals that are played, solvers as often right as they should be."""

from __future__ import annotations

import math
from itertools import islice

import pytest

from benchmarks.arithmetic_base import DIGITS, PROBLEMS, REPLIES, STARTS, proposal, solutions, stream
from legos_envs.tasks.problems.proposed_problems import examine


def test_every_proposal_is_played():
    for problem in PROBLEMS:
        first, second = proposal(problem).splitlines()
        found = examine(first.removeprefix("Problem: "), second.removeprefix("Answer: "), "arithmetic")
        assert (found.verdict, found.answer) == ("played", str(problem.answer))
    assert len({p.text for p in PROBLEMS}) == len(PROBLEMS) == 156 and len(DIGITS) == 8


def test_solvers_are_right_as_often_as_they_should_be():
    for problem in PROBLEMS:
        replies = solutions(problem)
        right = replies.count(f"Answer: {problem.answer}") / REPLIES
        assert len(replies) == REPLIES and right == pytest.approx(problem.right, abs=1 / REPLIES)
        assert all(int(reply.removeprefix("Answer: ")) >= 0 for reply in replies)
    products = [p for p in PROBLEMS if "*" in p.text]
    assert max(p.right for p in products) == pytest.approx(0.6) and min(p.right for p in products) < 0.01


@pytest.mark.parametrize(("start", "low", "high"), [("hard", 0.15, 0.25), ("easy", 0.75, 1.0)])
def test_proposers_begin_outside_of_the_middle(start, low, high):
    """The expected pass rate of what the base proposes."""
    odds = [math.exp(STARTS[start] * p.difficulty) for p in PROBLEMS]
    assert low < sum(o * p.right for o, p in zip(odds, PROBLEMS)) / sum(odds) < high


def test_the_stream_is_a_function_of_seed_and_start():
    first, again, other = (list(islice(stream(seed), 6)) for seed in (1, 1, 2))
    assert first == again != other != list(islice(stream(2, "easy"), 6))
    proposer, solver = first[0].exchanges[0], first[1].exchanges[0]
    assert "End with two lines" in proposer.prompt and proposer.reply.startswith("Problem: ")
    assert solver.prompt.startswith("Work out: ") and solver.reply in solver.legal
    with pytest.raises(ValueError, match="start must be one of 'hard', 'easy'; got 'medium'"):
        next(stream(0, "medium"))
