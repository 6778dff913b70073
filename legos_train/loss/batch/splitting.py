"""Where to split a batch, so that its parts fit in memory and share prefixes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
PART_OVERHEAD = 512  # tokens whose computation costs about as much as one more forward and backward pass


def row_chunks(tokens: Ints, lengths: Ints, rows: Ints, cols: Ints, max_tokens: int | None) -> list[list[int]]:
    """Row numbers of each part: families of rows with a common prefix, then by length, each chunk within `max_tokens`.

    The prefix is not counted: every part computes it, so fewer rows in each would only compute it more often.
    Raises ValueError if `max_tokens` is less than 1.
    """
    if max_tokens is not None and max_tokens < 1:
        raise ValueError(f"max_tokens must be at least 1, got {max_tokens!r}")
    chunks: list[list[int]] = []
    for first, end, prefix in _families(tokens, lengths, rows, cols):
        order = first + np.argsort(lengths[first:end], kind="stable")
        widths = lengths[order] - prefix
        ends = _cuts(widths, prefix + PART_OVERHEAD)
        chunks.append([])
        for place, (row, width) in enumerate(zip(order.tolist(), widths.tolist(), strict=True)):
            # widths ascend: this row is the widest of its chunk
            full = max_tokens is not None and (len(chunks[-1]) + 1) * width > max_tokens
            if chunks[-1] and (full or place in ends):
                chunks.append([])
            chunks[-1].append(row)
    return chunks


def _families(tokens: Ints, lengths: Ints, site_rows: Ints, site_cols: Ints) -> list[tuple[int, int, int]]:
    """Runs of rows (first, end, their shared prefix). Rows are sorted, so rows with a common prefix are adjacent."""
    count, width = tokens.shape
    same = (tokens[1:] == tokens[:-1]) & (np.arange(width) < np.minimum(lengths[1:], lengths[:-1])[:, None])
    common = np.append(same, np.zeros((len(same), 1), dtype=bool), axis=1).argmin(axis=1)  # row i with row i + 1
    limit = np.full(count, width, dtype=np.int64)
    np.minimum.at(limit, site_rows, site_cols)  # a site must stay out of the prefix

    def shared(first: int, end: int) -> int:
        return int(min(common[first : end - 1].min(initial=width), limit[first:end].min()))

    def cost(first: int, end: int) -> int:
        prefix = shared(first, end)
        return prefix + int(lengths[first:end].sum()) - (end - first) * prefix

    done, todo = [], [(0, count)]
    while todo:
        first, end = todo.pop()
        if end - first > 1:
            middle = first + 1 + int(common[first : end - 1].argmin())
            if cost(first, middle) + cost(middle, end) + PART_OVERHEAD < cost(first, end):
                todo += [(middle, end), (first, middle)]
                continue
        done.append((first, end, shared(first, end) if end > first else 0))
    return done


def _cuts(widths: NDArray, overhead: int) -> set[int]:
    """Where to cut rows of ascending widths (n,) so that parts of `overhead + rows * widest` cost least in total.

    One long row must not pad hundreds of short ones. Dynamic programming over the distinct widths.
    """
    if not len(widths):
        return set()
    ends = np.append(np.flatnonzero(np.diff(widths)) + 1, len(widths))  # after the last row of each width
    starts, least = [0], [0]
    cut_before: list[int] = []
    for end in ends.tolist():
        costs = np.array(least) + overhead + (end - np.array(starts)) * int(widths[end - 1])
        best = int(costs.argmin())
        cut_before.append(best)
        starts.append(end)
        least.append(int(costs[best]))
    cuts, place = set(), len(cut_before)
    while place:
        place = cut_before[place - 1]
        cuts.add(starts[place])
    return cuts - {0}
