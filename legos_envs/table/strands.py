"""Runs rules: a tree of generators, from ask to ask.

A `yield from table.gather(...)` forks a strand into branches; the strand continues when all of them have ended. Nothing
here knows about agents or rewards: `run` takes callbacks for asks and for the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from legos_envs.table.rules import Ask, Forfeit, Rules, Truncated, Unscored

Failure = Forfeit | Unscored


class Strand:
    """One running generator, and the strand that waits for its result."""

    __slots__ = ("failures", "parent", "pending", "results", "rules", "slot")
    results: list[Any]
    """Results of its branches, once it has forked; `failures` are their forfeits, `pending` counts the running ones."""
    failures: list[Failure | None]

    def __init__(self, rules: Rules[Any], parent: Strand | None = None, slot: int = 0):
        self.rules, self.parent, self.slot, self.pending = rules, parent, slot, 0

    @property
    def path(self) -> str:
        return "the rules" if self.parent is None else f"branch {self.slot} of {self.parent.path}"


Work = list[tuple[Strand, Any, Failure | None]]
End = Callable[[Failure | None], None]


def run(strand: Strand, value: Any, pose: Callable[[Ask, Strand], None], end: End) -> None:
    """Resumes a strand with a value, and everything that follows from it, until every branch waits or the rules end.

    Args:
        strand: the strand to resume.
        value: the result of its `yield`.
        pose: called with every ask and the strand that awaits its answer.
        end: called when the root returns (with None), or with a forfeit or `Unscored` that the root does not catch.
    """
    work: Work = [(strand, value, None)]
    while work:
        strand, value, failure = work.pop()
        try:
            request = strand.rules.send(value) if failure is None else strand.rules.throw(failure)
        except StopIteration as stop:
            _return(strand, stop.value, None, work, end)
        except (Forfeit, Unscored) as failed:
            _return(strand, None, failed, work, end)
        else:
            if type(request) is Ask:
                pose(request, strand)
            else:
                _fork(strand, request, work)


def _fork(strand: Strand, branches: Any, work: Work) -> None:
    """Starts the branches of a `gather`; the first runs first."""
    if type(branches) is not list:
        raise TypeError(
            f"{strand.path} yielded a {type(branches).__name__}; "
            "write `yield from table.ask(...)` and `yield from table.gather(...)`"
        )
    count = strand.pending = len(branches)
    strand.results, strand.failures = [None] * count, [None] * count
    work.extend((Strand(branches[i], strand, i), None, None) for i in reversed(range(count)))
    if not branches:
        work.append((strand, [], None))


def _return(strand: Strand, result: Any, failure: Failure | None, work: Work, end: End) -> None:
    """Passes a strand's result or failure to its parent, which continues after the last of its branches."""
    parent = strand.parent
    if parent is None:
        end(failure)
        return
    parent.results[strand.slot], parent.failures[strand.slot] = result, failure
    parent.pending -= 1
    if parent.pending == 0:
        forfeits = [failed for failed in parent.failures if isinstance(failed, Forfeit)]
        unscored = next((failed for failed in parent.failures if isinstance(failed, Unscored)), None)
        work.append((parent, parent.results, unscored or (Forfeit.joint(forfeits) if forfeits else None)))


def abandon(leaves: Iterable[Strand]) -> None:
    """Closes the rules of an unfinished episode now, so that their cleanup still happens within it."""
    for leaf in leaves:
        node: Strand | None = leaf
        while node is not None:
            node.rules.close()
            node = node.parent


def truncate(leaves: Iterable[Strand], limit: int) -> None:
    """Ends all strands with `Truncated`, children first; `limit` is the turn limit that was reached.

    Raises:
        RuntimeError: rules asked again; they may only settle rewards.
    """
    for leaf in leaves:
        node: Strand | None = leaf
        while node is not None:
            try:
                node.rules.throw(Truncated())
            except (Truncated, StopIteration):
                pass
            else:
                raise RuntimeError(
                    f"{node.path} asked again after the turn limit of {limit}; "
                    "rules may settle rewards on Truncated but must not ask"
                )
            parent = node.parent
            if parent is not None:
                parent.pending -= 1
            node = parent if parent is not None and parent.pending == 0 else None
