"""Grade-school word problems generated from a seed: 20 kinds in three levels, every answer a whole number.

    word_problem(7).question, word_problem(7).answer, word_problem(7, level=3)

A level counts steps: 1 takes one operation, 2 takes two, 3 takes three or more. Level 0 has the kinds of level 1 with
small numbers. Without a level, all kinds of levels 1 to 3 are equally likely.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

from numpy.random import Generator

from legos_envs import arguments
from legos_envs.table import keyed_generator
from legos_envs.tasks.problems import arithmetic

LEVELS = (0, 1, 2, 3)
_NAMES = "Ana Ben Chloe Daniel Elif Femi Grace Hugo Ines Jamal Kofi Lena Mateo Nadia Omar Priya Rosa Sam Tara Yusuf"
NAMES = _NAMES.split()
THINGS = ["marbles", "stickers", "shells", "coins", "beads", "cards", "stamps", "buttons", "pencils", "pebbles"]
FRUIT = ["apples", "pears", "plums", "oranges", "peaches", "lemons", "figs", "mangoes"]


class WordProblem(NamedTuple):
    """A problem in words, its answer, its origin, and its working: an expression whose value is the answer."""

    question: str
    answer: int
    kind: str
    level: int
    working: str


class TemplateValues:
    """The values that a template draws from: numbers, names without repetition, things.

    If `small`, numbers are from 2 to 9, or from 11 to 18 where they would otherwise be at least 20.
    """

    def __init__(self, rng: Generator, small: bool = False):
        self.rng, self.small = rng, small
        self._names = [NAMES[i] for i in rng.permutation(len(NAMES)).tolist()]

    def number(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        if self.small:
            low, high = (11, 18) if low >= 20 else (2, min(high, 9))
        return int(self.rng.integers(low, high + 1))

    def among(self, values: list[str]) -> str:
        return values[self.number(0, len(values) - 1)]

    def name(self) -> str:
        return self._names.pop()


Template = Callable[[TemplateValues], tuple[str, str]]
KINDS: dict[str, tuple[int, Template]] = {}
"""Every kind by name: its level and its template."""


def kind(level: int) -> Callable[[Template], Template]:
    """Registers a template under its name."""

    def add(template: Template) -> Template:
        KINDS[template.__name__] = (level, template)
        return template

    return add


def word_problem(seed: int, level: int | None = None) -> WordProblem:
    """The word problem of a seed: equal for equal arguments, on every machine.

    Raises:
        ValueError: the seed is not a non-negative integer, or the level is not 0, 1, 2, 3 or None.
    """
    question, working, kind, of_level = _drawn(seed, level)
    answer = arithmetic.read(working).value
    if answer.denominator != 1:
        raise AssertionError(f"{kind} of seed {seed}: {working} is not a whole number")
    return WordProblem(question, int(answer), kind, of_level, working)


def question_of(seed: int, level: int | None = None) -> str:
    """`word_problem(seed, level).question`, but twice as fast, since the answer is not computed."""
    return _drawn(seed, level)[0]


def _drawn(seed: int, level: int | None) -> tuple[str, str, str, int]:
    """Question, working, kind and level."""
    seed = arguments.whole("seed", seed, 0)
    if level is not None:
        arguments.one_of("level", level, LEVELS)
    rng = keyed_generator(seed, f"word problem {'' if level is None else level}")
    names = _names_of(level)
    chosen = names[int(rng.integers(len(names)))]
    of_level, template = KINDS[chosen]
    question, working = template(TemplateValues(rng, small=level == 0))
    return question, working, chosen, 0 if level == 0 else of_level


@functools.cache
def _names_of(level: int | None) -> list[str]:
    return [name for name, (of, _) in KINDS.items() if level is None or of == max(level, 1)]


# --- level 1: one step -----------------------------------------------------------------------------------------------


@kind(1)
def gains(d: TemplateValues) -> tuple[str, str]:
    have, more, things = d.number(8, 60), d.number(5, 40), d.among(THINGS)
    one, other = d.name(), d.name()
    return (
        f"{one} has {have} {things}. {other} gives {one} {more} more. How many {things} does {one} have now?",
        f"{have} + {more}",
    )


@kind(1)
def loses(d: TemplateValues) -> tuple[str, str]:
    have, things, one = d.number(20, 90), d.among(THINGS), d.name()
    gone = d.number(3, have - 2)
    return f"{one} had {have} {things} and lost {gone} of them. How many {things} are left?", f"{have} - {gone}"


@kind(1)
def groups(d: TemplateValues) -> tuple[str, str]:
    boxes, each, fruit = d.number(3, 12), d.number(4, 15), d.among(FRUIT)
    return (
        f"A shop has {boxes} boxes with {each} {fruit} in each. How many {fruit} is that in all?",
        f"{boxes} * {each}",
    )


@kind(1)
def shares(d: TemplateValues) -> tuple[str, str]:
    children, each, fruit = d.number(3, 9), d.number(3, 14), d.among(FRUIT)
    return (
        f"{children * each} {fruit} are shared equally among {children} children. How many does each child get?",
        f"{children * each} / {children}",
    )


@kind(1)
def compares(d: TemplateValues) -> tuple[str, str]:
    less, more, things = d.number(5, 40), d.number(2, 30), d.among(THINGS)
    one, other = d.name(), d.name()
    text = f"{one} has {less + more} {things}. {other} has {less}. How many more {things} does {one} have than {other}?"
    return text, f"{less + more} - {less}"


@kind(1)
def before(d: TemplateValues) -> tuple[str, str]:
    start, got, things, one = d.number(6, 50), d.number(4, 30), d.among(THINGS), d.name()
    text = f"{one} found {got} {things} and has {start + got} now. How many {things} did {one} have before?"
    return text, f"{start + got} - {got}"


# --- level 2: two steps ----------------------------------------------------------------------------------------------


@kind(2)
def spends(d: TemplateValues) -> tuple[str, str]:
    pens, books, pen, book, one = d.number(2, 9), d.number(2, 6), d.number(1, 4), d.number(5, 12), d.name()
    text = (
        f"A pen costs ${pen} and a book costs ${book}. {one} buys {pens} pens and {books} books. "
        "How many dollars does that cost?"
    )
    return text, f"{pens} * {pen} + {books} * {book}"


@kind(2)
def change(d: TemplateValues) -> tuple[str, str]:
    count, price, one = d.number(2, 7), d.number(2, 9), d.name()
    paid = -(-(count * price + d.number(1, 9)) // 10) * 10
    text = (
        f"{one} buys {count} tickets at ${price} each and pays with ${paid}. How many dollars of change does {one} get?"
    )
    return text, f"{paid} - {count} * {price}"


@kind(2)
def packs(d: TemplateValues) -> tuple[str, str]:
    size, full, rest = d.number(4, 12), d.number(3, 9), d.number(1, 3)
    total = size * full + rest
    text = f"{total} eggs are packed into cartons of {size} eggs each. How many cartons are needed for all the eggs?"
    return text, f"({total} - {rest}) / {size} + 1"


@kind(2)
def times_as_many(d: TemplateValues) -> tuple[str, str]:
    few, times, things = d.number(4, 20), d.number(2, 6), d.among(THINGS)
    one, other = d.name(), d.name()
    text = f"{one} has {few} {things}. {other} has {times} times as many. How many {things} do they have together?"
    return text, f"{few} + {few} * {times}"


@kind(2)
def bus(d: TemplateValues) -> tuple[str, str]:
    start, on = d.number(12, 40), d.number(3, 20)
    off = d.number(2, start - 2)
    text = (
        f"A bus leaves with {start} passengers. At the first stop {off} get off and {on} get on. "
        "How many passengers are on the bus now?"
    )
    return text, f"{start} - {off} + {on}"


@kind(2)
def reading(d: TemplateValues) -> tuple[str, str]:
    pages, days, one = d.number(8, 25), d.number(3, 9), d.name()
    left = d.number(5, 60)
    text = (
        f"A book has {pages * days + left} pages. {one} reads {pages} pages a day for {days} days. "
        "How many pages are left to read?"
    )
    return text, f"{pages * days + left} - {pages} * {days}"


@kind(2)
def fence(d: TemplateValues) -> tuple[str, str]:
    long, wide = d.number(8, 30), d.number(3, 7)
    text = (
        f"A garden is a rectangle, {long} meters long and {wide} meters wide. "
        "How many meters of fence are needed to go around it?"
    )
    return text, f"2 * ({long} + {wide})"


# --- level 3: three steps or more ------------------------------------------------------------------------------------


@kind(3)
def wages(d: TemplateValues) -> tuple[str, str]:
    rate, hours, extra, one = d.number(10, 20), d.number(20, 40), d.number(2, 8), d.name()
    spent = d.number(20, 90)
    text = (
        f"{one} earns ${rate} an hour, and twice as much for each hour of overtime. This week {one} worked {hours} "
        f"normal hours and {extra} hours of overtime, and spent ${spent}. How many dollars are left?"
    )
    return text, f"{rate} * {hours} + 2 * {rate} * {extra} - {spent}"


@kind(3)
def discount(d: TemplateValues) -> tuple[str, str]:
    percent, price, count = 10 * d.number(1, 5), 10 * d.number(2, 9), d.number(2, 5)
    one = d.name()
    text = (
        f"A jacket costs ${price}. Today everything is {percent} percent cheaper. "
        f"How many dollars does {one} pay for {count} jackets today?"
    )
    return text, f"{count} * {price} * (100 - {percent}) / 100"


@kind(3)
def ages(d: TemplateValues) -> tuple[str, str]:
    age, times, years = d.number(5, 14), d.number(2, 4), d.number(3, 15)
    one, other = d.name(), d.name()
    text = (
        f"{one} is {age} years old. {other} is {times} times as old as {one}. "
        f"What will be the sum of their ages in {years} years?"
    )
    return text, f"{age} + {age} * {times} + 2 * {years}"


@kind(3)
def average(d: TemplateValues) -> tuple[str, str]:
    mean, one = d.number(10, 30), d.name()
    first, second = mean - d.number(1, 8), mean + d.number(1, 8)
    answer = mean + d.number(-8, 2)
    third = 4 * mean - first - second - answer
    text = (
        f"{one} scored {first}, {second} and {third} points in three games. How many points must {one} score in the "
        f"fourth game so that the average of the four games is {mean}?"
    )
    return text, f"4 * {mean} - {first} - {second} - {third}"


@kind(3)
def tank(d: TemplateValues) -> tuple[str, str]:
    out = d.number(2, 8)
    gain, minutes, start = d.number(2, 9), d.number(5, 20), d.number(10, 50)
    text = (
        f"A tank holds {start + gain * minutes} liters and has {start} liters of water in it. "
        f"A tap lets in {out + gain} liters a minute, and a leak lets out {out} liters a minute. "
        "After how many minutes is the tank full?"
    )
    return text, f"({start + gain * minutes} - {start}) / ({out + gain} - {out})"


@kind(3)
def half_away(d: TemplateValues) -> tuple[str, str]:
    left, given, fruit, one = d.number(4, 20), d.number(2, 12), d.among(FRUIT), d.name()
    bought, start = d.number(3, 15), 2 * (left + given)
    text = (
        f"{one} picks {start} {fruit}, sells half of them, gives {given} of the rest to friends and then picks "
        f"{bought} more. How many {fruit} does {one} have now?"
    )
    return text, f"{start} / 2 - {given} + {bought}"


@kind(3)
def legs(d: TemplateValues) -> tuple[str, str]:
    hens, cows, one = d.number(3, 20), d.number(2, 15), d.name()
    text = (
        f"{one} has hens and cows: {hens + cows} animals with {2 * hens + 4 * cows} legs in all. "
        f"How many cows does {one} have?"
    )
    return text, f"({2 * hens + 4 * cows} - 2 * {hens + cows}) / 2"
