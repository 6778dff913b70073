"""Who runs where: pure host logic, no model and no arrays of weights.

A *row* is one sequence of tokens with its keys and values in one slot of the KV cache. Requests whose prompt and
adapter are identical share a row, and keep sharing it for as long as they sample the same tokens: the row's logits are
computed once, every request draws from them with its own seed, and then the row splits by token. The largest part goes
on in place; each other part becomes a *branch*. Keys and values are only ever appended, so a branch needs nothing but
"the first `pos` entries of that slot": while the rows are all in use it waits on its host, free of charge, and either
moves to a row of its own by a copy, or takes over the host's slot when the host's own requests are done. The host hands
over to the deepest branch first, since running a branch overwrites what lies beyond its own position. So no amount of
splitting needs more rows than there are, and nothing that has started is ever thrown away.

One engine step is `plan` (branches that get rows, then new prompts; slots stay 0..n-1 without holes), the forward pass,
and `advance` with what was drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from inference.engine.sampling import CheckedParams, Draw
from inference.types import FinishReason

Seeds = npt.NDArray[np.uint64]


@dataclass(slots=True)
class Cohort:
    """Requests of one row with the same parameters, and the log-probabilities under the distribution they drew from."""

    params: CheckedParams
    ids: npt.NDArray[np.int64]
    seeds: Seeds
    sampled_logprobs: list[float] = field(default_factory=list)

    def part(self, chosen: npt.NDArray[np.bool_]) -> Cohort:
        """The members a mask (M,) selects, with the history so far."""
        return Cohort(self.params, self.ids[chosen], self.seeds[chosen], self.sampled_logprobs.copy())


@dataclass(slots=True, eq=False)
class Row:
    """A sequence being generated: tokens and raw logprobs so far, who shares it, and where its keys and values are.

    Attributes:
        pos: entries of the slot that are valid.
        pending: tokens to feed next, whose keys and values are not there yet.
        branches: rows that wait on this slot, shallowest first; they have no slot of their own.
    """

    prompt: tuple[int, ...]
    adapter: Any  # hashable; rows never share or compare what is computed under different adapters
    cohorts: list[Cohort]
    reach: int  # most entries the slot can ever hold for this row
    leader: int = -1  # the request that the prompt was computed for; the others of the row got it for free
    top_logprobs: int = 0
    cached: int = 0
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    tops: list[list[tuple[int, float]]] = field(default_factory=list)
    pos: int = 0
    pending: Sequence[int] = ()
    slot: int = -1
    home: int = -1  # where its keys and values lie when it has just ended
    switches: tuple[tuple[int, int], ...] = ()  # (index of a token, version that sampled those before it)
    branches: list[Row] = field(default_factory=list)

    def request_ids(self) -> Iterator[int]:
        """Ids of the requests that share the row now."""
        for cohort in self.cohorts:
            yield from cohort.ids.tolist()

    def restart(self) -> None:
        """Forget the keys and values: everything is to be fed again."""
        self.pos, self.pending = 0, (*self.prompt, *self.tokens)


class Outcome(NamedTuple):
    """What one step drew for a row: a draw (M,) for each of its cohorts, the row's logits (V,) and their logsumexp."""

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


class Plan(NamedTuple):
    """What a forward pass needs first: slot copies (destination, source, entries), all read before any is written."""

    copies: list[tuple[int, int, int]]
    admitted: list[Row]


class Scheduler:
    """Waiting and running rows.

    Args:
        max_rows: most rows at once.
        row_limit: from a number of entries to how many rows may hold that many each.
        token_budget: most prompt tokens admitted per step; one prompt is always admitted.
        share: whether identical prompts share a row; the results are the same.
        says: whether the text of some tokens contains one of some strings; needed for stop texts.
    """

    def __init__(
        self,
        max_rows: int,
        *,
        row_limit: Callable[[int], int] | None = None,
        token_budget: int = 2048,
        share: bool = True,
        says: Callable[[Sequence[int], tuple[str, ...]], bool] | None = None,
    ) -> None:
        self._says = says or (lambda tokens, stop: False)
        self.max_rows = max_rows
        self.token_budget = token_budget
        self.share = share
        self.rows: list[Row] = []  # rows[i].slot == i after `plan`
        self._row_limit = row_limit or (lambda reach: max_rows)
        self._waiting: dict[tuple[Any, ...], _Waiting] = {}  # insertion order is arrival order

    @property
    def busy(self) -> bool:
        """Whether a request waits or runs."""
        return bool(self.rows or self._waiting)

    def waits_for(self, adapter: Hashable, prompt: tuple[int, ...]) -> bool:
        """A request with this prompt and adapter is waiting, so the prompt has been checked already."""
        return (adapter, prompt) in self._waiting

    def add(
        self,
        request_id: int,
        adapter: Hashable,
        prompt: tuple[int, ...],
        params: CheckedParams,
        seed: int,
        top_logprobs: int,
    ) -> None:
        """Queue a request; it joins the waiting requests with the same prompt and adapter."""
        key: tuple[Any, ...] = (adapter, prompt) if self.share else (adapter, prompt, request_id)
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = _Waiting(adapter, prompt)
        waiting.members.setdefault(params, []).append((request_id, seed))
        waiting.top_logprobs = max(waiting.top_logprobs, top_logprobs)

    def remove(self, ids: set[int]) -> list[Finished]:
        """Take requests out, wherever they are, with what they have generated so far."""
        ended: list[Finished] = []
        for key, waiting in list(self._waiting.items()):
            ended += [Finished(part.ids, waiting.row(), [], "aborted") for part in _take(waiting.cohorts(), ids)[0]]
            for params, members in list(waiting.members.items()):
                waiting.members[params] = [m for m in members if m[0] not in ids]
            if not any(waiting.members.values()):
                del self._waiting[key]
        survivors: list[Row] = []
        for row in self.rows:
            for member in (*row.branches, row):
                taken, member.cohorts = _take(member.cohorts, ids)
                ended += [Finished(part.ids, member, part.sampled_logprobs, "aborted") for part in taken]
            row.branches = [branch for branch in row.branches if branch.cohorts]
            survivors += _successor(row)
        self.rows = survivors
        return ended

    def plan(self) -> Plan:
        """Give rows to branches that wait, then to new prompts; keep slots dense."""
        reach = max((row.reach for row in self.rows), default=0)
        free = self._capacity(reach) - len(self.rows)
        forks: list[tuple[Row, int]] = []
        for host in self.rows:
            while host.branches and free > 0:
                forks.append((host.branches.pop(0), host.slot))
                free -= 1
        copies = self._place(forks)
        return Plan(copies, self._admit(reach))

    def _capacity(self, reach: int) -> int:
        return min(self.max_rows, self._row_limit(max(reach, 1)))

    def _place(self, forks: list[tuple[Row, int]]) -> list[tuple[int, int, int]]:
        """Slots 0..n-1 for running rows and forks; a row whose slot is already below n stays where it is."""
        count = len(self.rows) + len(forks)
        stay = {row.slot for row in self.rows if row.slot < count}
        gaps = (slot for slot in range(count) if slot not in stay)
        copies = []
        for row, source in [(row, row.slot) for row in self.rows if row.slot >= count] + forks:
            row.slot = next(gaps)
            depth = max([row.pos, *(branch.pos for branch in row.branches)])
            copies.append((row.slot, source, depth))
        self.rows = sorted([*self.rows, *(row for row, _ in forks)], key=lambda row: row.slot)
        return [copy for copy in copies if copy[2] > 0]

    def _admit(self, reach: int) -> list[Row]:
        admitted: list[Row] = []
        tokens = 0
        for key in list(self._waiting):
            waiting = self._waiting[key]
            if getattr(waiting.adapter, "blocked", False):
                continue  # published to take over when those before have finished
            row = waiting.row()
            wider = max(reach, row.reach)
            count = len(self.rows) + len(admitted) + 1
            # An idle engine takes a prompt whatever its size; `submit` has made sure that it fits alone.
            if count > self._capacity(wider) and count > 1:
                break
            if admitted and tokens + len(row.prompt) > self.token_budget:
                break
            tokens += len(row.prompt)
            reach = wider
            del self._waiting[key]
            admitted.append(row)
        # Neighbours of similar length are fed together, so that little of a batch is padding.
        admitted.sort(key=lambda row: len(row.prompt))
        for slot, row in enumerate(admitted, start=len(self.rows)):
            row.slot = slot
        self.rows += admitted
        return admitted

    def advance(self, outcomes: Mapping[Row, Outcome]) -> list[Finished]:
        """Extend rows by what was drawn for them; a row without an outcome stays as it is. The ended are returned."""
        finished: list[Finished] = []
        survivors: list[Row] = []
        for row in self.rows:
            outcome = outcomes.get(row)
            if outcome is None:
                survivors.append(row)
                continue
            row.pos += len(row.pending)
            done, going = _split(row, outcome, self._says)
            finished += done
            if going:
                # The largest part inherits the slot and the branches that already wait on it.
                keeper = max(going, key=lambda part: (sum(len(c.ids) for c in part.cohorts), -part.tokens[-1]))
                waiting = row.branches + [part for part in going if part is not keeper]
                keeper.slot, keeper.branches = row.slot, waiting
                survivors.append(keeper)
            else:
                row.cohorts = []
                survivors += _successor(row)
        self.rows = survivors
        return finished

    def transfer(self, old: Hashable, new: Any, version: int) -> None:
        """Continue under another adapter: running rows in mid-sequence, waiting ones from their start.

        version: that of `old`, kept for the tokens that rows have by now.
        """
        for host in self.rows:
            for row in (host, *host.branches):
                if row.adapter is old:
                    row.adapter = new
                    if row.tokens:
                        row.switches = (*row.switches, (len(row.tokens), version))
        for waiting in self._waiting.values():
            if waiting.adapter is old:
                waiting.adapter = new
        self._waiting = {(waiting.adapter, *key[1:]): waiting for key, waiting in self._waiting.items()}

    def fail(self, row: Row) -> list[Finished]:
        """End a row's own requests with an error; its branches continue."""
        ended = [Finished(c.ids, row, c.sampled_logprobs, "error") for c in row.cohorts]
        row.cohorts = []
        index = self.rows.index(row)
        self.rows[index : index + 1] = _successor(row)
        return ended


@dataclass(slots=True)
class _Waiting:
    adapter: Hashable
    prompt: tuple[int, ...]
    members: dict[CheckedParams, list[tuple[int, int]]] = field(default_factory=dict)
    top_logprobs: int = 0

    def cohorts(self) -> list[Cohort]:
        return [
            Cohort(
                params,
                np.array([request_id for request_id, _ in members], dtype=np.int64),
                np.array([seed & 0xFFFFFFFFFFFFFFFF for _, seed in members], dtype=np.uint64),
            )
            for params, members in self.members.items()
            if members
        ]

    def row(self) -> Row:
        reach = len(self.prompt) + max(params.max_tokens for params in self.members)
        leader = min(request_id for members in self.members.values() for request_id, _ in members)
        return Row(self.prompt, self.adapter, self.cohorts(), reach, leader, self.top_logprobs, pending=self.prompt)


def _take(cohorts: list[Cohort], ids: set[int]) -> tuple[list[Cohort], list[Cohort]]:
    """Cohorts split into the members that are in `ids` and the others; empty parts are dropped."""
    taken, kept = [], []
    for cohort in cohorts:
        chosen = np.fromiter((i in ids for i in cohort.ids.tolist()), dtype=bool, count=len(cohort.ids))
        if chosen.any():
            taken.append(cohort.part(chosen))
        if not chosen.all():
            kept.append(cohort.part(~chosen) if chosen.any() else cohort)
    return taken, kept


def _successor(row: Row) -> list[Row]:
    """The next owner of the slot: the row itself while it has requests, else its deepest branch, else none."""
    if row.cohorts:
        return [row]
    if not row.branches:
        return []
    *others, heir = row.branches
    heir.slot, heir.branches = row.slot, others
    return [heir]


Says = Callable[[Sequence[int], tuple[str, ...]], bool]


def _split(row: Row, outcome: Outcome, says: Says) -> tuple[list[Finished], list[Row]]:
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
        # Nobody left: the row grows in place, without copying its history.
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
    """A row that continues `row` with one more token; it has no slot and no branches yet."""
    child = replace(
        row,
        cohorts=cohorts,
        tokens=row.tokens.copy(),
        logprobs=row.logprobs.copy(),
        tops=row.tops.copy(),
        slot=-1,
        home=row.slot,
        branches=[],
    )
    _append(child, token, outcome)
    return child


def _append(row: Row, token: int, outcome: Outcome) -> None:
    row.tokens.append(token)
    row.logprobs.append(float(outcome.logits[token]) - outcome.log_normaliser)
    if outcome.top is not None:
        row.tops.append(outcome.top)
    row.pending = (token,)
