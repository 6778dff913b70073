"""A submitted forward pass of all rows, whose tokens the host has not read yet.

With lookahead a second pass is submitted before the first has landed: rows are fed the tokens that the device drew for
them (`guessing`), and once the first has landed, `Flight.confirm` keeps the correct ones. A row that ended, moved to
another adapter version, or drew another token drops out of the second pass. Its keys and values are overwritten by the
row's next token, and recurrent states are restored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any, cast, get_args

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from inference.engine.drawing import draw_all
from inference.engine.guessing import guess
from inference.engine.rows import Outcome, Row
from inference.engine.sampling import uniforms
from inference.forward import Fed, Forward
from inference.types import Lookahead


def on_host(array: mx.array) -> npt.NDArray[Any]:
    """A device array on the host: the only place where a step waits for the device."""
    return np.asarray(array)


def looks_ahead(setting: Lookahead, forward: Forward) -> bool:
    """Whether a setting enables lookahead for this forward pass on this device. ValueError for unknown settings."""
    if setting not in get_args(Lookahead):
        raise ValueError(f"lookahead must be one of {', '.join(get_args(Lookahead))}; got {setting!r}")
    on = setting == "on" or (setting == "auto" and mx.default_device().type == mx.DeviceType.gpu)
    return on and forward.ahead


@dataclass(slots=True, eq=False)
class InFlightRow:
    """The input of a pass for one slot.

    Attributes:
        row: the row it belongs to; None if its result is no longer needed.
        source: which token of the previous pass is fed, as an index into its draws; -1 if the host knows `pending`.
        drawn: how many tokens the row will have when its next one is drawn.
    """

    row: Row | None
    adapter: Any
    slot: int
    pos: int
    pending: Sequence[int]
    source: int
    drawn: int
    draft: Sequence[int] = ()


class Submission:
    """A non-blocking forward pass over tokens, some of which may still be on the device."""

    def __init__(self, forward: Forward, before: Flight | None) -> None:
        self._forward = forward
        self._drawn = None if before is None else before.drawn()
        self._sources: dict[int, int] = {}

    def take(self, members: Iterable[InFlightRow]) -> None:
        """Sets which slots are fed a token still on the device, and which token."""
        self._sources = {member.slot: member.source for member in members if member.source >= 0}

    def __call__(self, kv: Any, fed: Fed) -> mx.array:
        """Like `Forward`, but the logits are still being computed."""
        tokens = fed.tokens
        sources = [self._sources.get(slot, -1) for slot in range(fed.low, fed.low + len(tokens))]
        if self._drawn is not None and max(sources) >= 0:
            assert tokens.shape[1] == 1, "only single tokens come from the device"
            picked = self._drawn if sources == list(range(self._drawn.size)) else self._drawn[mx.array(sources)]
            known = mx.array(np.array(sources, dtype=np.int32) < 0)
            picked = picked if min(sources) >= 0 else mx.where(known, mx.array(tokens[:, 0]), picked)
            fed = fed._replace(tokens=picked[:, None])
        return self._forward.submit(kv, fed)


class Flight:
    """One pass over the rows of a scheduler.

    Args:
        rows: the rows, in the order of their slots.
        places: for rows that have not landed, which draw of the previous pass is their next token.
        kv: the KV cache, before the rows are fed.
    """

    def __init__(self, rows: Sequence[Row], places: dict[Row, int], kv: Any) -> None:
        self.members = [_member(row, places.get(row)) for row in rows]
        self._kv, self._mark = kv, kv.mark()
        self._batches: list[tuple[Sequence[InFlightRow], mx.array, mx.array]] = []
        self._tokens: list[int] = []

    def add(self, members: Sequence[InFlightRow], logits: mx.array) -> None:
        """Adds a batch of rows being fed; its logits (n, V) may still be pending."""
        cohorts = [cast(Row, member.row).cohorts[0] for member in members]
        seeds = np.array([cohort.seeds[0] for cohort in cohorts], dtype=np.uint64)
        positions = np.array([member.drawn for member in members], dtype=np.uint64)
        guessed = guess(logits, [cohort.params for cohort in cohorts], uniforms(seeds, positions))
        mx.async_eval(guessed)
        self._batches.append((members, logits, guessed))

    def drawn(self) -> mx.array:
        """The device's draw for each member, in the order they were fed: (m,)."""
        guessed = [batch[2] for batch in self._batches]
        return guessed[0] if len(guessed) == 1 else mx.concatenate(guessed)

    @property
    def places(self) -> dict[Row, int]:
        """The index in `drawn` of each row in flight."""
        order = (member for members, _, _ in self._batches for member in members)
        return {member.row: i for i, member in enumerate(order) if member.row is not None}

    def keep(self, rows: Iterable[Row]) -> list[Row]:
        """Drops rows that have since ended or moved to another adapter version; returns the others."""
        running = set(rows)
        stale = []
        for member in self.members:
            row = member.row
            if row is not None and (row not in running or row.adapter is not member.adapter):
                row.flying = 0
                stale.append(member)
        self._leave(stale)
        return [member.row for member in self.members if member.row is not None]

    def land(self) -> dict[Row, Outcome]:
        """Waits for the logits, and draws for every request of its rows, except rows with bad logits."""
        outcomes: dict[Row, Outcome] = {}
        for members, logits, guessed in self._batches:
            values = on_host(logits)
            self._tokens += on_host(guessed).tolist()
            chosen = [i for i, member in enumerate(members) if member.row is not None]
            if chosen:
                rows = [cast(Row, members[i].row) for i in chosen]
                outcomes.update(draw_all(rows, values if len(chosen) == len(members) else values[chosen]))
        return outcomes

    def confirm(self, before: Flight, rows: Sequence[Row], parked: Set[int] = frozenset()) -> bool:
        """Keeps the members confirmed by the landed pass; returns whether there are any.

        Args:
            before: the landed pass that the guessed tokens came from.
            rows: the rows that continue.
            parked: slots that must stay as they were before this pass, if they hold states.
        """
        by_slot = {row.slot: row for row in rows}
        stale = []
        for member in self.members:
            row = by_slot.get(member.slot)
            needed = self._mark is not None and member.slot in parked
            if row is not None and not needed and self._right(member, row, before):
                member.row = row
            else:
                stale.append(member)
        self._leave(stale)
        self.launched()
        return len(stale) < len(self.members)

    def launched(self) -> None:
        """Marks the tokens being fed as in flight in their rows."""
        for member in self.members:
            if member.row is not None:
                member.row.flying = len(member.row.pending)

    def _right(self, member: InFlightRow, row: Row, before: Flight) -> bool:
        """Whether a row would now be fed exactly what its slot was fed."""
        if member.source < 0:
            return row is member.row
        if self._mark is not None and any(branch.pos and branch.held is None for branch in row.branches):
            return False  # they need the states from before the row continues
        fed = before._tokens[member.source]
        return row.adapter is member.adapter and row.pos == member.pos and tuple(row.pending) == (fed,)

    def _leave(self, members: Sequence[InFlightRow]) -> None:
        for member in members:
            member.row = None
        if self._mark is not None and members:
            self._kv.rewind(self._mark, [member.slot for member in members])


def _member(row: Row, place: int | None) -> InFlightRow:
    if place is None:
        return InFlightRow(row, row.adapter, row.slot, row.pos, row.pending, -1, len(row.tokens))
    return InFlightRow(row, row.adapter, row.slot, row.pos + row.flying, (0,), place, len(row.tokens) + 1)
