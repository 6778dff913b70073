"""Rows: sequences being generated, the requests that share them, and how one step's draws split them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from inference.engine.sampling import CheckedParams, Draw
from inference.types import FinishReason

Seeds = npt.NDArray[np.uint64]
Says = Callable[[Sequence[int], tuple[str, ...]], bool]


@dataclass(slots=True)
class Cohort:
    """Requests of one row with the same parameters, and their log-probabilities under the sampling distribution."""

    params: CheckedParams
    ids: npt.NDArray[np.int64]
    seeds: Seeds
    sampled_logprobs: list[float] = field(default_factory=list)

    def part(self, chosen: npt.NDArray[np.bool_]) -> Cohort:
        """The members a mask (M,) selects, with the history so far."""
        return Cohort(self.params, self.ids[chosen], self.seeds[chosen], self.sampled_logprobs.copy())


@dataclass(slots=True, eq=False)
class Row:
    """A sequence being generated: its tokens and raw logprobs so far, its requests, and its place in the KV cache.

    Attributes:
        pos: number of valid entries in the slot.
        pending: tokens to feed next, whose keys and values are not stored yet.
        flying: how many of them are being fed by a pass that has not landed; see `flight`.
        draft: guessed continuation of `pending`, fed with it; see `drafts`.
        guessed: how many tokens of the draft are real guesses; the rest pad it to the length of the other rows' drafts.
        branches: rows that wait on this slot, shallowest first; they have no own slot.
        held: the recurrent states after `pos` tokens, once the slot's own have moved on; see `branch_states`.
    """

    prompt: tuple[int, ...]
    adapter: Any  # hashable; rows never share or compare what is computed under different adapters
    cohorts: list[Cohort]
    reach: int  # most entries the slot can ever hold for this row
    leader: int = -1  # the request that the prompt was computed for; the row's others got it for free
    top_logprobs: int = 0
    cached: int = 0
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    tops: list[list[tuple[int, float]]] = field(default_factory=list)
    pos: int = 0
    pending: Sequence[int] = ()
    flying: int = 0
    draft: Sequence[int] = ()
    guessed: int = 0
    slot: int = -1
    home: int = -1  # the slot of its keys and values when it has just ended
    switches: tuple[tuple[int, int], ...] = ()  # (index of a token, version that sampled those before it)
    branches: list[Row] = field(default_factory=list)
    held: Any = None

    def request_ids(self) -> Iterator[int]:
        """Ids of the requests that share the row now."""
        for cohort in self.cohorts:
            yield from cohort.ids.tolist()

    @property
    def next(self) -> int:
        """How many entries the slot will have once all pending and in-flight tokens are fed."""
        return self.pos + len(self.pending) + (self.flying > 0)

    def restart(self) -> None:
        """Forgets keys, values and states: everything is to be fed again."""
        self.pos, self.pending, self.flying, self.held = 0, (*self.prompt, *self.tokens), 0, None
        self.draft = ()


class Outcome(NamedTuple):
    """One step's result for a row: a draw (M,) for each of its cohorts, the row's logits (V,) and their logsumexp."""

    draws: list[Draw]
    logits: npt.NDArray[np.floating]
    log_normaliser: float
    top: list[tuple[int, float]] | None = None


class Finished(NamedTuple):
    """Requests of one cohort that ended together. Read `row` at once: other requests may continue on it."""

    ids: npt.NDArray[np.int64]
    row: Row
    sampled_logprobs: list[float]
    reason: FinishReason


def take(cohorts: list[Cohort], ids: set[int]) -> tuple[list[Cohort], list[Cohort]]:
    """Cohorts split into the members that are in `ids` and the others; empty parts are dropped."""
    taken, kept = [], []
    for cohort in cohorts:
        chosen = np.fromiter((i in ids for i in cohort.ids.tolist()), dtype=bool, count=len(cohort.ids))
        if chosen.any():
            taken.append(cohort.part(chosen))
        if not chosen.all():
            kept.append(cohort.part(~chosen) if chosen.any() else cohort)
    return taken, kept


def successor(row: Row) -> list[Row]:
    """The next owner of the slot: the row itself while it has requests, else its deepest branch, else none."""
    if row.cohorts:
        return [row]
    if not row.branches:
        return []
    *others, heir = row.branches
    heir.slot, heir.branches = row.slot, others
    return [heir]


def split(row: Row, outcome: Outcome, says: Says) -> tuple[list[Finished], list[Row]]:
    """The requests of a row that end with this step's token, and one row per distinct token of the others."""
    finished: list[Finished] = []
    by_token: dict[int, list[Cohort]] = {}
    length = len(row.tokens) + 1
    ends: dict[int, Row] = {}
    for cohort, (tokens, logprobs) in zip(row.cohorts, outcome.draws, strict=True):
        params = cohort.params
        for token, first, chosen in _parts(tokens):
            part = cohort if chosen is None else cohort.part(chosen)
            part.sampled_logprobs.append(float(logprobs[first]))
            stopped = (
                token in params.stop_ids
                or (params.stop and says([*row.tokens, token], params.stop))
                or (params.allowed is not None and not params.ids_after([*row.tokens, token]))
            )
            if not stopped and length < params.max_tokens:
                by_token.setdefault(token, []).append(part)
                continue
            if token not in ends:
                ends[token] = _extended(row, [], token, outcome)
            reason: FinishReason = "stop" if stopped else "length"
            finished.append(Finished(part.ids, ends[token], part.sampled_logprobs, reason))
    if len(by_token) == 1 and not ends:
        # No request left it: the row grows in place, without copying its history.
        ((token, row.cohorts),) = by_token.items()
        _append(row, token, outcome)
        return [], [row]
    return finished, [_extended(row, cohorts, token, outcome) for token, cohorts in by_token.items()]


def _parts(tokens: npt.NDArray[np.int64]) -> Iterator[tuple[int, int, npt.NDArray[np.bool_] | None]]:
    """(token, index of its first draw, mask of its draws) for each distinct token; the mask is None for all."""
    if len(tokens) == 1 or (tokens == tokens[0]).all():
        yield int(tokens[0]), 0, None
        return
    distinct, firsts, inverse = np.unique(tokens, return_index=True, return_inverse=True)
    for i, (token, first) in enumerate(zip(distinct.tolist(), firsts.tolist())):
        yield token, first, inverse == i


def _extended(row: Row, cohorts: list[Cohort], token: int, outcome: Outcome) -> Row:
    """A row that continues `row` with one more token, without a slot or branches yet."""
    child = replace(
        row,
        cohorts=cohorts,
        tokens=row.tokens.copy(),
        logprobs=row.logprobs.copy(),
        tops=row.tops.copy(),
        slot=-1,
        home=row.slot,
        flying=0,
        draft=(),
        branches=[],
    )
    _append(child, token, outcome)
    return child


def _append(row: Row, token: int, outcome: Outcome) -> None:
    row.tokens.append(token)
    row.logprobs.append(float(outcome.logits[token]) - outcome.log_normaliser)
    if outcome.top is not None:
        row.tops.append(outcome.top)
    row.pending, row.flying = (token,), 0
