"""A judge in code: it counts the subject's keywords that a text names.

Unlike with a judge that prefers longer texts, more words do not help: words that are not in the subject score nothing,
a repeated word costs a point, and a text that copies the whole subject, or what the other side has said, scores zero.
It provides a learning signal without a judge model, but does not measure the quality of arguments: a bare list of the
keywords satisfies it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from legos_envs.scoring import judging
from legos_envs.tasks.checked_texts import words

SHORTEST = 4
"""Minimum number of letters of a keyword."""
_COMMON = """
about advice also answer argues asks been before best better between children describe does each every explain fewer
five four from give gives have into just learn least many mention mentions more most must need never note only other
people piece plan present response says sentences should some story tell than that their them then there these they
this three used very want were what when where which while will with without words works write your
"""
COMMON = frozenset(_COMMON.split())
"""Words that are not keywords."""


def long_words(text: str) -> list[str]:
    """The words of a text with at least `SHORTEST` letters, in order, lowercased."""
    return [word for word in words(text) if len(word) >= SHORTEST]


def keywords(subject: str) -> list[str]:
    """The distinct keywords of a subject, in order of appearance."""
    return [word for word in dict.fromkeys(long_words(subject)) if word not in COMMON]


def points(texts: Sequence[str], subject: str, others: Sequence[str] = ()) -> int:
    """The number of the subject's keywords named in texts by one author, minus the words repeated within a text.

    Equal texts count once. A text does not count if it contains the whole subject, or what the other side said in an
    earlier round: `others` holds the other side's texts, round by round.
    """
    said = []
    for text in dict.fromkeys(texts):
        copied = [subject, *others[: texts.index(text)]]
        if not any(_plain(whole) in _plain(text) for whole in copied if words(whole)):
            said.append(long_words(text))
    named = {word for text in said for word in text} & set(keywords(subject))
    return len(named) - sum(len(text) - len(set(text)) for text in said)


def _plain(text: str) -> str:
    return f" {' '.join(words(text))} "


def share(texts: Sequence[str], subject: str) -> float:
    """The points as a share of the keywords, 0 to 1."""
    return max(0.0, points(texts, subject) / max(1, len(keywords(subject))))


def verdict(prompt: str) -> str:
    """Which of two quoted texts, A or B, has more points; A on a tie."""
    shown = judging.unquoted(prompt)
    one, other = (_texts(shown[label]) for label in judging.LABELS)
    subject = subject_of(shown)
    return judging.LABELS[points(other, subject, one) > points(one, subject, other)]


def grade(prompt: str, legal: Sequence[str], key: str = "text") -> str:
    """The grade of the quoted text, one of `legal`, which are sorted from worst to best."""
    shown = judging.unquoted(prompt)
    text = shown.pop(key)
    return legal[round(share(_texts(text), subject_of(shown)) * (len(legal) - 1))]


def subject_of(shown: Mapping[str, Any]) -> str:
    """The subject of the quoted texts: everything else that is quoted."""
    return " ".join(text for key, text in shown.items() if key not in judging.LABELS)


def _texts(shown: Any) -> list[str]:
    return shown["speeches"] if isinstance(shown, Mapping) else [shown]


def say(subject: str, seed: int | None = None) -> str | None:
    """Names all keywords of the subject; with a seed, one or two of them, or none (then returns None)."""
    chosen = keywords(subject)
    if seed is not None:
        rng = random.Random(seed)
        chosen = rng.sample(chosen, min(len(chosen), rng.choice((0, 0, 1, 1, 2))))
    if not chosen:
        return None
    return f"Think of {' and '.join(filter(None, (', '.join(chosen[:-1]), chosen[-1])))}."
