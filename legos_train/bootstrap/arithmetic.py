"""Dialogues of `ProposerSolver-v0` on sums, for a base model that can write problems and solves some of them.

The proposer writes a sum of two to five digits, works it out term by term, and states the answer; solvers see the first
line alone and answer at once. The more terms, the more often the solver whose replies the model reads is wrong, though
never by much. So the base knows more than it says, and reinforcement learning has something to find:

    python -m legos_train.bootstrap.arithmetic OUT_DIR --start hard
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import NamedTuple

import legos_envs
from legos_envs.play import Runner
from legos_train.bootstrap.progress import Report
from legos_train.bootstrap.texts import Dialogue, Exchange

ENV = "ProposerSolver-v0"
STEPS = 1200
REPLIES = 20
RIGHT = {2: 18, 3: 10, 4: 4, 5: 1}
"""How many of `REPLIES` equally likely replies of a solver are right, by the number of terms."""
STARTS: dict[str, Mapping[int, float]] = {
    "hard": {2: 0.05, 3: 0.15, 4: 0.4, 5: 0.4},
    "easy": {2: 0.85, 3: 0.1, 4: 0.03, 5: 0.02},
}
"""How many terms the proposer's problems have, as shares: most problems too hard for the solver, or most too easy."""


class Sum(NamedTuple):
    """A problem: its text, and the totals after each term but the first, of which the last is the answer."""

    problem: str
    totals: tuple[int, ...]

    @property
    def answer(self) -> int:
        return self.totals[-1]


def draw_sum(rng: Random, terms: int) -> Sum:
    """A sum and difference of `terms` digits from 1 to 9 whose totals never go below 0."""
    total = rng.randrange(1, 10)
    text, totals = str(total), []
    for _ in range(terms - 1):
        digit = rng.randrange(1, 10)
        minus = digit <= total and rng.random() < 0.3
        total += -digit if minus else digit
        text += f" {'-' if minus else '+'} {digit}"
        totals.append(total)
    return Sum(text, tuple(totals))


def proposal(problem: Sum) -> str:
    """What a proposer writes. The working stands below the problem's line, where solvers do not see it."""
    return f"Problem: {problem.problem}\n{' '.join(map(str, problem.totals))}\nAnswer: {problem.answer}"


def solutions(problem: Sum) -> tuple[str, ...]:
    """What a solver may write, `REPLIES` equally likely replies: the answer, several times, and the numbers next to it."""
    right = RIGHT[len(problem.totals) + 1]
    near = sorted(range(problem.answer + REPLIES), key=lambda n: (abs(n - problem.answer), n))
    return tuple(f"Answer: {n}" for n in [problem.answer] * (right - 1) + near[: REPLIES - right + 1])


def stream(seed: int, start: str = "hard") -> Iterator[Dialogue]:
    """Dialogues without end, a function of the arguments: a proposer and a solver by turns.

    The proposer's problem has as many terms as `STARTS[start]` says; of the problems that solvers get all lengths are
    equally likely, so that the base knows them all whichever it proposes.

    Raises:
        ValueError: `start` is not known.
    """
    if start not in STARTS:
        raise ValueError(f"start must be one of {', '.join(map(repr, STARTS))}; got {start!r}")
    rng = Random(f"sums {seed}")
    lengths, shares = list(STARTS[start]), list(STARTS[start].values())
    env = legos_envs.make(ENV, num_solvers=1)
    while True:
        problem = draw_sum(rng, rng.choices(lengths, shares)[0])
        yield _ask(Runner(env, rng.randrange(2**31)), (proposal(problem),), rng)
        problem = draw_sum(rng, rng.choice(lengths))
        options = {"problem": problem.problem, "answer": str(problem.answer)}
        yield _ask(Runner(env, rng.randrange(2**31), options), solutions(problem), rng)


def _ask(runner: Runner, replies: tuple[str, ...], rng: Random) -> Dialogue:
    """The first question of an episode, with a reply of those given, which are equally likely."""
    asked = runner.pending()[0].messages[-1]["content"]
    return Dialogue(ENV, (Exchange(asked, rng.choice(replies), replies),))


def make_base(
    out_dir: str | Path, start: str = "hard", steps: int = STEPS, seed: int = 0, progress: Report | bool = True
) -> Path:
    """Makes a base model of `tiny`'s shape that has read nothing but `stream(seed, start)`; see `bootstrap`."""
    from legos_train.bootstrap import bootstrap

    return bootstrap(out_dir, steps, seed, progress, stream=lambda number: stream(number, start))


def main(arguments: list[str] | None = None) -> int:
    """The command of the module text; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m legos_train.bootstrap.arithmetic")
    parser.add_argument("out_dir")
    parser.add_argument("--start", choices=list(STARTS), default="hard")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    try:
        folder = make_base(given.out_dir, given.start, given.steps, given.seed)
    except (FileExistsError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"wrote {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
