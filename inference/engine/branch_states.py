"""Recurrent states of branches that wait while their host continues.

A branch finds its keys and values in its host's slot whenever it resumes, since those are only ever appended. A state
is overwritten by the next token, so it is copied before the host is fed, once for all branches of one split. If that
would take too much memory, the branch starts over from its tokens: slower, but with the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from inference.engine.rows import Row


@dataclass(frozen=True, slots=True)
class SlotStates:
    """A copy of the states of one slot."""

    states: Any
    nbytes: int


def resume(kv: Any, rows: Sequence[Row]) -> None:
    """Restores the states of rows that waited and now have a slot."""
    for row in rows:
        if row.held is not None:
            kv.resume(row.held.states, row.slot, row.pos)
            row.held = None


def hold(kv: Any, rows: Sequence[Row], most: int) -> None:
    """Copies the states that waiting branches will need, up to `most` bytes; the other branches start over."""
    waiting = [(host, fresh) for host in rows if (fresh := [b for b in host.branches if b.pos and b.held is None])]
    if not waiting:
        return
    used = sum({id(b.held): b.held.nbytes for host in rows for b in host.branches if b.held is not None}.values())
    for host, fresh in waiting:
        if used + kv.bytes_per_row <= most:
            held = SlotStates(*kv.hold(host.slot))
            used += held.nbytes
            for branch in fresh:
                branch.held = held
            continue
        for branch in fresh:
            branch.restart()
        # As the shallowest, they come first among the branches: running them overwrites the slot.
        host.branches.sort(key=lambda branch: branch.pos)
