"""Generated word problems: every answer is worked out anew from the numbers in the text."""

import re
import subprocess
import sys
from collections import Counter

import pytest

from legos_envs.tasks.problems.word_problems import KINDS, LEVELS, question_of, word_problem

BY_HAND = {
    "gains": lambda a, b: a + b,
    "loses": lambda a, b: a - b,
    "groups": lambda a, b: a * b,
    "shares": lambda a, b: a / b,
    "compares": lambda a, b: a - b,
    "before": lambda got, now: now - got,
    "spends": lambda pen, book, pens, books: pen * pens + book * books,
    "change": lambda count, price, paid: paid - count * price,
    "packs": lambda eggs, size: -(-eggs // size),
    "times_as_many": lambda few, times: few * (1 + times),
    "bus": lambda start, off, on: start - off + on,
    "reading": lambda book, pages, days: book - pages * days,
    "fence": lambda long, wide: 2 * (long + wide),
    "wages": lambda rate, hours, extra, spent: rate * (hours + 2 * extra) - spent,
    "discount": lambda price, percent, count: count * price * (1 - percent / 100),
    "ages": lambda age, times, years: age * (1 + times) + 2 * years,
    "average": lambda a, b, c, mean: 4 * mean - a - b - c,
    "tank": lambda full, start, inflow, out: (full - start) / (inflow - out),
    "half_away": lambda start, given, more: start / 2 - given + more,
    "legs": lambda animals, legs: (legs - 2 * animals) / 2,
}


def test_every_kind_is_solved_here_too():
    assert set(BY_HAND) == set(KINDS) and len(KINDS) >= 12


@pytest.mark.quick(2)
@pytest.mark.parametrize("level", [None, *LEVELS])
def test_answers_follow_from_the_text(level):
    kinds = Counter()
    for seed in range(1500):
        made = word_problem(seed, level)
        assert question_of(seed, level) == made.question
        numbers = [int(n) for n in re.findall(r"\d+", made.question)]
        assert BY_HAND[made.kind](*numbers) == pytest.approx(made.answer), made
        assert eval(made.working) == pytest.approx(made.answer), made
        assert isinstance(made.answer, int) and made.answer > 0 and min(numbers) > 0
        assert level in (None, made.level) and max(made.level, 1) == KINDS[made.kind][0]
        if level == 0:
            assert max(numbers) <= 81 and sum(n > 18 for n in numbers) <= 1  # a product of two numbers up to 9
        kinds[made.kind] += 1
    expected = [name for name, (of, _) in KINDS.items() if level is None or of == max(level, 1)]
    assert set(kinds) == set(expected)
    assert min(kinds.values()) > 1500 / len(expected) / 2


def test_sentences_are_whole():
    for seed in range(500):
        text = word_problem(seed).question
        assert text.endswith("?") and "  " not in text and "{" not in text and text.isascii()
        assert " 1 " not in text.replace("$1 ", "")  # so that plurals are right


@pytest.mark.slow
def test_problems_differ_and_are_a_function_of_the_seed():
    assert len({word_problem(seed).question for seed in range(1000)}) > 950
    assert word_problem(5) == word_problem(5) and word_problem(5, 3) != word_problem(5, 1)
    code = (
        "from legos_envs.tasks.problems.word_problems import word_problem as w; print([w(s).answer for s in range(50)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "77"}
    )
    assert done.stdout.strip() == str([word_problem(seed).answer for seed in range(50)])


@pytest.mark.parametrize(
    ("seed", "level", "message"), [(-1, None, "seed must be"), (1.5, None, "seed must"), (0, 4, "level")]
)
def test_bad_arguments(seed, level, message):
    with pytest.raises(ValueError, match=message):
        word_problem(seed, level)
