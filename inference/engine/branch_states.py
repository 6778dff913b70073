"""Recurrent states of branches that wait while their host goes on.

A branch finds its keys and values on the slot of its host whenever it gets there, since those are only ever appended.
A state is overwritten by the next token, so it is copied before the host is fed, once for all branches of one split.
Where that would take too much memory the branch starts over from its tokens: slower, the same result.
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
    """Give rows that waited, and have a slot now, their states back."""
    for row in rows:
        if row.held is not None:
            kv.resume(row.held.states, row.slot, row.pos)
            row.held = None


def hold(kv: Any, rows: Sequence[Row], most: int) -> None:
    """Copy the states that branches still wait for, at most so many bytes; the other branches are to start over."""
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
        # They come first among the branches, as the shallowest: the slot is overwritten when they run on it.
        host.branches.sort(key=lambda branch: branch.pos)
