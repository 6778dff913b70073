"""Dialogues of `ProposerSolver-v0` with two digits, for a base model that can write problems and solve some of them.

The proposer knows every answer. Solvers know sums, most differences, and the start of the times table: the larger a
product, the more often their replies are wrong, though never by much. So the base knows more than it shows, problems of
every difficulty exist, and reinforcement learning has something to improve:

    python -m benchmarks.arithmetic_base OUT_DIR --start hard
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import legos_envs
from legos_envs.play import Runner
from legos_train.bootstrap.pretrain import Report
from legos_train.bootstrap.texts import Dialogue, Exchange

ENV = "ProposerSolver-v0"
STEPS = 1000
DIGITS = range(2, 10)
REPLIES = 200
"""A solver's replies are equally likely entries of a list that long; the right one stands in it several times."""
STARTS = {"hard": 0.6, "easy": -1.5}
"""A proposer writes a problem in proportion to exp(START * its difficulty): hard ones mostly, or easy ones."""


class Problem(NamedTuple):
    """`a + b`, `a - b` or `a * b`, its answer, and how often a solver of the base model is right."""

    text: str
    answer: int
    right: float

    @property
    def difficulty(self) -> float:
        """0 for the easiest problems, about 4 for the hardest."""
        return 4.0 * (1.0 - self.right) ** 2


def _problems() -> tuple[Problem, ...]:
    pairs = [(a, b) for a in DIGITS for b in DIGITS]
    found = [Problem(f"{a} + {b}", a + b, 0.9) for a, b in pairs]
    found += [Problem(f"{a} - {b}", a - b, 0.75) for a, b in pairs if a > b]
    products = sorted({a * b for a, b in pairs})
    odds = {n: 0.6 * (0.005 / 0.6) ** (i / (len(products) - 1)) for i, n in enumerate(products)}
    return (*found, *(Problem(f"{a} * {b}", a * b, odds[a * b]) for a, b in pairs))


PROBLEMS = _problems()
"""All there are: 64 sums, 28 differences and 64 products of digits from 2 to 9."""


def proposal(problem: Problem) -> str:
    """What a proposer writes."""
    return f"Problem: {problem.text}\nAnswer: {problem.answer}"


def solutions(problem: Problem) -> tuple[str, ...]:
    """What a solver may write, equally likely entries: the answer as often as `right` says, and the numbers near it."""
    right = max(1, round(problem.right * REPLIES))
    near = sorted((n for n in range(problem.answer + 11) if n != problem.answer), key=lambda n: abs(n - problem.answer))
    wrong = near[:10]
    others = [wrong[i % len(wrong)] for i in range(REPLIES - right)]
    return tuple(f"Answer: {n}" for n in [problem.answer] * right + others)


def stream(seed: int | str, start: str = "hard") -> Iterator[Dialogue]:
    """Dialogues without end, a function of the arguments: a proposer and a solver by turns.

    The proposer's problems are drawn as `STARTS[start]` says, the solver's evenly, so that the base knows them all.

    Raises:
        ValueError: `start` is not known.
    """
    if start not in STARTS:
        raise ValueError(f"start must be one of {', '.join(map(repr, STARTS))}; got {start!r}")
    rng = Random(f"arithmetic {seed}")
    odds = [2.718281828 ** (STARTS[start] * problem.difficulty) for problem in PROBLEMS]
    replies = {problem: solutions(problem) for problem in PROBLEMS}
    env = legos_envs.make(ENV, num_solvers=1)
    while True:
        (problem,) = rng.choices(PROBLEMS, odds)
        yield _ask(Runner(env, rng.randrange(2**31)), (proposal(problem),), rng)
        problem = rng.choice(PROBLEMS)
        yield _ask(Runner(env, rng.randrange(2**31), {"problem": problem.text}), replies[problem], rng)


def _ask(runner: Runner, replies: tuple[str, ...], rng: Random) -> Dialogue:
    """The first question of an episode, with a reply of those given, which are equally likely."""
    asked = runner.pending()[0].messages[-1]["content"]
    return Dialogue(ENV, (Exchange(asked, rng.choice(replies), replies),))


def make_base(
    out_dir: str | Path, start: str = "hard", steps: int = STEPS, seed: int = 0, progress: Report | bool = True
) -> Path:
    """Makes a base model of `tiny`'s shape that has read nothing but `stream(seed, start)`; see `bootstrap`."""
    from legos_train.bootstrap import RECIPES, bootstrap

    stage = RECIPES["tiny"].stages[0]._replace(stream=lambda number: stream(number, start))
    recipe = RECIPES["tiny"]._replace(stages=(stage,), batch_size=16, pool=16 * 16)
    return bootstrap(out_dir, steps, seed, progress, recipe=recipe)


def main(arguments: list[str] | None = None) -> int:
    """The command of the module text; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.arithmetic_base")
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
