"""Speculation without a draft model: a row's next tokens are guessed from earlier text, then verified.

A draft is the continuation in an earlier answer of this engine after exactly the same tokens, else after the same last
`MATCH` tokens, there or earlier in the conversation itself. The adapter it was sampled under does not matter: nothing
in a draft is trusted. It is fed together with the row's next token, and at each position the row draws as always, with
that position's number (`sampling.uniforms`). As long as the draw equals the drafted token, the next position counts
too.

That is speculative sampling (Leviathan et al. 2023, arXiv 2211.17192, algorithm 1) for a draft that is certain of its
token x: there x is accepted with probability p(x), and a rejected x is replaced by a draw from p without x. Drawing
from p and comparing does exactly that, and needs no extra random numbers: a seed gives the same tokens with and without
speculation, whatever the drafts are.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence

from inference.engine.rows import Row

LONGEST = 8
"""Most tokens of a draft."""
MATCH = 3
MOST = 1 << 15
"""Positions remembered; the oldest are forgotten first."""
_HISTORY = 512


class Drafts:
    """Continuations seen after given tokens."""

    def __init__(self, most: int = MOST) -> None:
        self._next: OrderedDict[int, tuple[int, ...]] = OrderedDict()
        self._most = most
        self.fed = self.taken = 0
        """How many drafted tokens were fed, and how many of them were drawn and kept."""

    def __len__(self) -> int:
        return len(self._next)

    def clear(self) -> None:
        """Forgets everything."""
        self._next.clear()

    def learn(self, prompt: tuple[int, ...], tokens: Sequence[int]) -> None:
        """Learns from a finished answer."""
        history = [*prompt[-MATCH:], *tokens]
        whole = hash(prompt)
        for i, token in enumerate(tokens):
            following = tuple(tokens[i : i + LONGEST])
            end = len(history) - len(tokens) + i
            for key in (whole, hash(tuple(history[max(end - MATCH, 0) : end]))):
                self._next.pop(key, None)
                self._next[key] = following
            whole = hash((whole, token))
        while len(self._next) > self._most:
            self._next.popitem(last=False)

    def after(self, prompt: tuple[int, ...], tokens: Sequence[int], most: int) -> tuple[int, ...]:
        """A guess at the next tokens, at most `most`; empty when nothing is known."""
        key = hash(prompt)
        for token in tokens:
            key = hash((key, token))
        history = [*prompt[-max(_HISTORY - len(tokens), MATCH) :], *tokens[-_HISTORY:]]
        found = self._next.get(key) or self._next.get(hash(tuple(history[-MATCH:]))) or _repeated(history)
        return found[:most]


def _repeated(history: Sequence[int]) -> tuple[int, ...]:
    """The tokens after the last earlier occurrence of a history's own ending."""
    ids = array("q", history)
    data, size = ids.tobytes(), ids.itemsize
    key, end = data[-size * MATCH :], len(data) - size
    while len(history) > MATCH:
        at = data.rfind(key, 0, end)
        if at < 0:
            break
        if at % size == 0:
            return tuple(history[at // size + MATCH :][:LONGEST])
        end = at + len(key) - 1
    return ()


def wanted(row: Row) -> int:
    """How many tokens a row may be fed ahead: the most that any of its requests allows."""
    if not row.pos or len(row.pending) != 1:
        return 0
    return min(max(cohort.params.speculate for cohort in row.cohorts), LONGEST)


def draft(rows: Sequence[Row], drafts: Drafts) -> None:
    """Gives rows drafts of equal length, so that they are fed together.

    Rows without a draft are fed filler tokens, unless they are prompts or have no room: splitting the batch costs more.
    If a filler token equals the draw, it counts like any draft. Nothing is fed ahead when more than half of it would be
    filler.
    """
    found = {row: drafts.after(row.prompt, row.tokens, count) for row in rows if (count := wanted(row))}
    longest = max(map(len, found.values()), default=0)
    room = [row for row in rows if row.pos and len(row.pending) == 1 and row.reach - row.pos > longest]
    known = sum(len(found.get(row, ())) for row in room)
    if not longest or 2 * known < longest * len(room):
        return
    drafts.fed += known
    for row in room:
        guess = found.get(row, ())
        row.draft, row.guessed = (*guess, *[0] * (longest - len(guess))), len(guess)
