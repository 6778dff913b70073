"""A made-up world of 32 towns, and short passages about them: the same facts recur in many passages.

So one can know the answer to a question about a passage without seeing it, as with passages about the real world. A
passage names a town and four of its seven facts, in any order and in one of two wordings each.
"""

from __future__ import annotations

from functools import lru_cache

from legos_envs.table import keyed_generator
from legos_envs.tasks.problems.corpus import Document

SIZE = 4_000
"""Number of passages."""
FACTS = 4
"""Number of facts in a passage."""
TOWNS = (
    "Alvera", "Belmor", "Corvin", "Delmar", "Elston", "Farrow", "Galden", "Harwick", "Ilmen", "Jorvik", "Kelso",
    "Lorne", "Marlow", "Nordin", "Orsova", "Pelham", "Quarry", "Rosten", "Selby", "Tarvin", "Uldale", "Velmora",
    "Wendell", "Yarrow", "Zelden", "Ashby", "Bramley", "Creston", "Dunmore", "Evering", "Foxley", "Grafton",
)  # fmt: skip
KINDS: dict[str, tuple[tuple[str, str], tuple[str, ...]]] = {
    "river": (
        ("{town} lies on the river", "The river of {town} is the"),
        ("Tarn", "Moss", "Lune", "Aire", "Wye", "Esk"),
    ),
    "flag": (
        ("The flag of {town} is", "Above the gate of {town} flies a flag of"),
        ("green", "white", "yellow", "black", "purple", "orange"),
    ),
    "trade": (
        ("{town} is known for its", "Most people of {town} live by making"),
        ("lamps", "boats", "cheese", "clocks", "carpets", "paper"),
    ),
    "animal": (
        ("The arms of {town} show a", "Every coin of {town} bears a"),
        ("heron", "badger", "falcon", "salmon", "beaver", "lizard"),
    ),
    "fair": (
        ("{town} holds its fair in", "Traders come to {town} each"),
        ("March", "April", "June", "July", "August", "October"),
    ),
    "founder": (
        ("{town} was founded by Queen", "On the square of {town} stands a statue of Queen"),
        ("Anna", "Berta", "Clara", "Emma", "Irene", "Olga"),
    ),
    "year": (
        ("The bridge of {town} was built in", "The people of {town} finished their bridge in"),
        ("1420", "1480", "1530", "1570", "1610", "1650"),
    ),
}
"""For each kind of fact: two wordings, each completed by the value, and the possible values."""


@lru_cache
def value(town: str, kind: str) -> str:
    """A fact of the world."""
    values = KINDS[kind][1]
    return values[int(keyed_generator(0, f"{town} {kind}").integers(len(values)))]


def sentence(town: str, kind: str, wording: int) -> str:
    """A fact, put in one of two wordings."""
    return f"{KINDS[kind][0][wording].replace('{town}', town)} {value(town, kind)}."


def passage(index: int) -> Document:
    """The passage of an index."""
    rng = keyed_generator(index, "passage")
    town = TOWNS[int(rng.integers(len(TOWNS)))]
    kinds = [list(KINDS)[i] for i in rng.permutation(len(KINDS))[:FACTS]]
    return Document(town, " ".join([sentence(town, kind, int(rng.integers(2))) for kind in kinds]))


@lru_cache(1)
def all_passages() -> tuple[Document, ...]:
    """Every passage."""
    return tuple(map(passage, range(SIZE)))


@lru_cache(1)
def all_sentences() -> str:
    """Every fact in every wording, separated by spaces."""
    return " ".join([sentence(town, kind, i) for town in TOWNS for kind in KINDS for i in (0, 1)])


def values_after(beginning: str) -> tuple[str, ...]:
    """The values that can follow the beginning of a sentence; none for other texts."""
    for wordings, values in KINDS.values():
        if beginning.rstrip().endswith(tuple([wording.partition("{town}")[2] for wording in wordings])):
            return values
    return ()
