"""Assigns requests to rows and slots: pure host logic, no model and no weight arrays.

A *row* is one sequence of tokens with its keys and values in one slot of the KV cache. Requests whose prompt and
adapter are identical share a row, and keep sharing it for as long as they sample the same tokens: the row's logits are
computed once, every request draws from them with its own seed, and then the row splits by token. The largest part
continues in place; every other part becomes a *branch*. Keys and values are only ever appended, so a branch needs only
"the first `pos` entries of that slot". While all rows are in use it waits on its host at no cost; later it either moves
to its own row by a copy, or takes over the host's slot when the host's own requests are done. The host hands over to
the deepest branch first, since running a branch overwrites everything beyond its own position. So no amount of
splitting needs more rows than there are, and started work is never thrown away.

One engine step is `plan` (branches that get rows, then new prompts; slots stay 0..n-1 without holes), the forward pass,
and `advance` with the draws.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

from inference.engine.rows import Finished, Outcome, Row, Says, split, successor, take
from inference.engine.sampling import CheckedParams
from inference.engine.waiting import Waiting


class Plan(NamedTuple):
    """Preparation for a forward pass: slot copies (destination, source, entries), all read before any is written."""

    copies: list[tuple[int, int, int]]
    admitted: list[Row]


class Scheduler:
    """Waiting and running rows.

    Args:
        max_rows: most rows at once.
        row_limit: function from a number of entries to how many rows may hold that many each.
        token_budget: most prompt tokens admitted per step; one prompt is always admitted.
        share: whether identical prompts share a row; the results are the same.
        says: function that tells whether the text of some tokens contains one of some strings; needed for stop texts.
    """

    def __init__(
        self,
        max_rows: int,
        *,
        row_limit: Callable[[int], int] | None = None,
        token_budget: int = 2048,
        share: bool = True,
        says: Says | None = None,
    ) -> None:
        self._says = says or (lambda tokens, stop: False)
        self.max_rows = max_rows
        self.token_budget = token_budget
        self.share = share
        self.rows: list[Row] = []  # rows[i].slot == i after `plan`
        self._row_limit = row_limit or (lambda reach: max_rows)
        self._waiting: dict[tuple[Any, ...], Waiting] = {}  # insertion order is arrival order
        self._same: dict[tuple[int, int], Waiting] = {}
        """Those of `_waiting` by the ids of adapter and prompt: hashing a long prompt takes longer than queueing it."""

    @property
    def busy(self) -> bool:
        """Whether any request is waiting or running."""
        return bool(self.rows or self._waiting)

    def waits_for(self, adapter: Hashable, prompt: tuple[int, ...]) -> bool:
        """Whether a request with this prompt and adapter is waiting, which means the prompt has been checked."""
        return (id(adapter), id(prompt)) in self._same or (adapter, prompt) in self._waiting

    def add(
        self,
        request_id: int,
        adapter: Hashable,
        prompt: tuple[int, ...],
        params: CheckedParams,
        seed: int,
        top_logprobs: int,
    ) -> None:
        """Queues a request; it joins the waiting requests with the same prompt and adapter."""
        waiting = self._same.get((id(adapter), id(prompt))) if self.share else None
        if waiting is None:
            key: tuple[Any, ...] = (adapter, prompt) if self.share else (adapter, prompt, request_id)
            waiting = self._waiting.get(key)
            if waiting is None:
                waiting = self._waiting[key] = Waiting(adapter, prompt)
                if self.share:
                    self._same[id(adapter), id(prompt)] = waiting
        waiting.add(request_id, params, seed)
        waiting.top_logprobs = max(waiting.top_logprobs, top_logprobs)

    def remove(self, ids: set[int]) -> list[Finished]:
        """Removes requests, waiting or running, with the tokens generated so far."""
        ended: list[Finished] = []
        for key, waiting in list(self._waiting.items()):
            ended += [Finished(part.ids, waiting.row(), [], "aborted") for part in take(waiting.cohorts(), ids)[0]]
            for members in waiting.members.values():
                members[:] = [m for m in members if m[0] not in ids]
            if not any(waiting.members.values()):
                del self._waiting[key]
        self._same.clear()
        survivors: list[Row] = []
        for row in self.rows:
            for member in (*row.branches, row):
                taken, member.cohorts = take(member.cohorts, ids)
                ended += [Finished(part.ids, member, part.sampled_logprobs, "aborted") for part in taken]
            row.branches = [branch for branch in row.branches if branch.cohorts]
            survivors += successor(row)
        self.rows = survivors
        return ended

    def plan(self) -> Plan:
        """Gives rows to waiting branches, then to new prompts; keeps slots dense."""
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
            depth = max([row.pos + row.flying, *(branch.pos for branch in row.branches)])
            copies.append((row.slot, source, depth))
        self.rows = sorted([*self.rows, *(row for row, _ in forks)], key=lambda row: row.slot)
        return [copy for copy in copies if copy[2] > 0]

    def _admit(self, reach: int) -> list[Row]:
        admitted: list[Row] = []
        tokens = 0
        for key in list(self._waiting):
            waiting = self._waiting[key]
            if getattr(waiting.adapter, "blocked", False):
                continue  # published to take over once earlier requests have finished
            row = waiting.row()
            wider = max(reach, row.reach)
            count = len(self.rows) + len(admitted) + 1
            # An idle engine admits a prompt of any size; `submit` has checked that it fits alone.
            if count > self._capacity(wider) and count > 1:
                break
            if admitted and tokens + len(row.prompt) > self.token_budget:
                break
            tokens += len(row.prompt)
            reach = wider
            del self._waiting[key]
            self._same.clear()
            admitted.append(row)
        # Sorted, so that neighbours of similar length are fed together with little padding.
        admitted.sort(key=lambda row: len(row.prompt))
        for slot, row in enumerate(admitted, start=len(self.rows)):
            row.slot = slot
        self.rows += admitted
        return admitted

    def advance(self, outcomes: Mapping[Row, Outcome]) -> list[Finished]:
        """Extends rows by their draws; a row without an outcome stays unchanged. Returns the requests that ended."""
        finished: list[Finished] = []
        survivors: list[Row] = []
        for row in self.rows:
            outcome = outcomes.get(row)
            if outcome is None:
                survivors.append(row)
                continue
            row.pos += len(row.pending)
            done, going = split(row, outcome, self._says)
            finished += done
            if going:
                # The largest part inherits the slot and the branches that already wait on it.
                keeper = max(going, key=lambda part: (sum(len(c.ids) for c in part.cohorts), -part.tokens[-1]))
                waiting = row.branches + [part for part in going if part is not keeper]
                keeper.slot, keeper.branches = row.slot, waiting
                survivors.append(keeper)
            else:
                row.cohorts = []
                survivors += successor(row)
        self.rows = survivors
        return finished

    def transfer(self, old: Hashable, new: Any, version: int) -> None:
        """Continues under another adapter: running rows mid-sequence, waiting ones from their start.

        version: the version of `old`, recorded for the tokens generated so far.
        """
        for host in self.rows:
            for row in (host, *host.branches):
                if row.adapter is old:
                    row.adapter = new
                    if row.tokens:
                        row.switches = (*row.switches, (len(row.tokens), version))
                    else:  # its prefilled prompt, such as a cached prefix, belongs to the old one
                        row.restart()
                        row.cached = 0
        waits, self._waiting = self._waiting, {}
        for key, waiting in waits.items():
            if waiting.adapter is old:
                waiting.adapter = new
            first = self._waiting.setdefault((waiting.adapter, *key[1:]), waiting)
            if first is not waiting:  # the same prompt waited under both
                first.join(waiting)
        self._same.clear()

    def fail(self, row: Row) -> list[Finished]:
        """Ends a row's own requests with an error; its branches continue."""
        ended = [Finished(c.ids, row, c.sampled_logprobs, "error") for c in row.cohorts]
        row.cohorts = []
        index = self.rows.index(row)
        self.rows[index : index + 1] = successor(row)
        return ended
