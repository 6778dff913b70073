"""Reads a proposer's labelled fields, of which solvers see only one, and detects worthless problems."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from legos_envs.scoring import answers
from legos_envs.table import InvalidMove

MAX_PROBLEM = 2_000
MAX_ANSWER = 200
"""Maximum number of characters of a problem and of an answer."""
MARKUP = "*_#>`- \t"


def fields(text: str, names: Sequence[str]) -> dict[str, str]:
    """The fields of a text such as `Problem: ...` and `Answer: ...`, each starting with its name at the beginning of a
    line.

    A field extends to the next one; the last field extends to the end of its line. If a name is repeated, its last
    occurrence counts; text before the first name is ignored. Case and Markdown around names are ignored. Linear time.

    Raises:
        InvalidMove: a field is missing or empty.
    """
    result: dict[str, list[str]] = {}
    current: str | None = None
    for line in text.splitlines():
        name, rest = _label(line, names)
        if name is not None:
            current = name
            result[name] = [rest]
        elif current is not None:
            result[current].append(line)
    values = {name: "\n".join(result.get(name, ())).strip().strip("*`").strip() for name in names}
    values[names[-1]] = values[names[-1]].partition("\n")[0].rstrip()
    for name, value in values.items():
        if not value:
            wanted = " and ".join(f"a line that begins with `{n}:`" for n in names)
            raise InvalidMove(f"write {wanted}; there is no {name}.")
    return values


def _label(line: str, names: Iterable[str]) -> tuple[str | None, str]:
    head, colon, _ = line[:80].partition(":")
    word = head.strip(MARKUP).casefold()
    for name in names:
        if colon and word == name.casefold():
            return name, line[len(head) + 1 :].lstrip("*_ \t")
    return None, ""


def bounded(name: str, text: str) -> str:
    """The text, checked for its length: at most 200 characters for an answer, 2,000 for anything else.

    Raises:
        InvalidMove: it is too long.
    """
    most = MAX_ANSWER if name == "answer" else MAX_PROBLEM
    if len(text) > most:
        raise InvalidMove(f"the {name} has {len(text)} characters; at most {most} are allowed.")
    return text


def words(text: str) -> str:
    """The words of a text, lowercased, separated and surrounded by single spaces, without punctuation.

    A point or comma between digits is kept, so that `2` is not found in `2.5`.
    """
    text = text.casefold()
    kept = [
        c
        if c.isalnum() or (c in ".," and 0 < i < len(text) - 1 and text[i - 1].isdigit() and text[i + 1].isdigit())
        else " "
        for i, c in enumerate(text)
    ]
    return f" {' '.join(''.join(kept).split())} "


def contains(text: str, phrase: str) -> bool:
    """Whether a phrase occurs in a text as whole words, ignoring punctuation and case. A wordless phrase never does."""
    wanted = words(phrase)
    return bool(wanted.strip()) and wanted in words(text)


def gives_away(problem: str, answer: str) -> bool:
    """Whether a problem contains its own answer, in the same words or as an equal number (`27` for `27.0`)."""
    numbers = {word for word in words(problem).split() if word[0].isdigit()}
    return contains(problem, answer) or any(answers.same_number(number, answer) for number in numbers)


def goldilocks(rate: float) -> float:
    """`1 - 2|p - 1/2|`: 1 if half of the solvers succeed, 0 if all or none do."""
    return 1 - 2 * abs(rate - 0.5)


def variance(rate: float) -> float:
    """`4p(1 - p)`: the variance of success, scaled to a maximum of 1."""
    return 4 * rate * (1 - rate)
