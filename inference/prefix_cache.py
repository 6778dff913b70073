"""Keys and values of prompt beginnings that many prompts share, such as the rules of a game.

Entries are found by exact comparison of token ids under the same adapter digest (an adapter changes keys and values, so
entries never cross over), and any part of an entry from its start can be used. The least recently used are dropped when
the byte budget is exceeded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .kv import Snapshot

MIN_PREFIX = 16  # shorter beginnings cost less to compute than to keep


@dataclass(slots=True)
class Entry:
    """A stored beginning: its tokens (P,) and what each layer made of them."""

    tokens: npt.NDArray[np.int64]
    snapshot: Snapshot
    nbytes: int


class PrefixCache:
    """Stored beginnings, by adapter digest; at most `max_bytes` of keys and values."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.nbytes = 0
        self._entries: OrderedDict[tuple[str, tuple[int, ...]], Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def longest(self, digest: str, prompt: Sequence[int]) -> tuple[Entry | None, int]:
        """The entry that shares the longest beginning with the prompt, and its length; (None, 0) below MIN_PREFIX.

        At least the prompt's last token is left out, because its logits are needed.
        """
        ids = np.asarray(prompt, dtype=np.int64)
        best, found = 0, None
        for key, entry in self._entries.items():
            if key[0] == digest:
                length = min(common_prefix(ids, entry.tokens), len(ids) - 1)
                if length > best:
                    best, found = length, key
        if found is None or best < MIN_PREFIX:
            return None, 0
        self._entries.move_to_end(found)
        return self._entries[found], best

    def put(self, digest: str, tokens: Sequence[int], snapshot: Snapshot) -> Entry:
        """Store a beginning; entries that it extends are dropped, then the least recently used beyond the budget."""
        key = (digest, tuple(tokens))
        entry = Entry(np.asarray(tokens, dtype=np.int64), snapshot, sum(k.nbytes + v.nbytes for k, v in snapshot))
        for other in [k for k in self._entries if k[0] == digest and key[1][: len(k[1])] == k[1]]:
            self._drop(other)
        self._entries[key] = entry
        self.nbytes += entry.nbytes
        while self.nbytes > self.max_bytes and self._entries:
            self._drop(next(iter(self._entries)))
        return entry

    def clear(self) -> None:
        """Drop every entry."""
        self._entries.clear()
        self.nbytes = 0

    def _drop(self, key: tuple[str, tuple[int, ...]]) -> None:
        self.nbytes -= self._entries.pop(key).nbytes


def common_prefix(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64]) -> int:
    """Length of the common beginning of two id arrays."""
    n = min(len(a), len(b))
    differ = np.flatnonzero(a[:n] != b[:n])
    return int(differ[0]) if len(differ) else n


def clusters(prompts: Sequence[Sequence[int]]) -> list[tuple[list[int], int]]:
    """Group prompts that begin alike: (indices, length of their common beginning) for each group.

    In sorted order neighbours share the most. A group ends where going on would fall below MIN_PREFIX, or would give up
    half of the beginning its members share.
    """
    order = sorted(range(len(prompts)), key=lambda i: tuple(prompts[i]))
    arrays = {i: np.asarray(prompts[i], dtype=np.int64) for i in order}
    groups: list[tuple[list[int], int]] = []
    for i in order:
        if groups:
            members, shared = groups[-1]
            common = min(shared, common_prefix(arrays[members[-1]], arrays[i]))
            alone = len(members) == 1
            if common >= MIN_PREFIX and (alone or common * 2 >= shared):
                groups[-1] = ([*members, i], common)
                continue
        groups.append(([i], len(arrays[i])))
    return groups
