"""Keys and values of prompt prefixes: rules shared by many prompts, conversations that will continue.

An entry is found by exact comparison of token ids under the same adapter digest (an adapter changes keys and values, so
entries never cross over), and any prefix of an entry can be used; with recurrent states only whole entries can, since
no states are stored for positions in between. An index of chained block hashes only suggests which entries to compare.
Beyond the byte budget, the least recently used are dropped.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

MIN_PREFIX = 16  # shorter prefixes cost less to compute than to keep; also the size of an index block
_COMPARED = 8  # most entries compared that agree in their last indexed block

Key = tuple[str, tuple[int, ...]]


@dataclass(slots=True)
class Entry:
    """A stored prefix: its tokens (P,) and each layer's keys, values or states."""

    tokens: npt.NDArray[np.int64]
    snapshot: Any
    nbytes: int


class PrefixCache:
    """Stored prefixes, by adapter digest.

    Args:
        max_bytes: most bytes of keys, values and states.
        whole: entries can only be used whole; entries that others extend are then kept too.
    """

    def __init__(self, max_bytes: int, *, whole: bool = False) -> None:
        self.max_bytes = max_bytes
        self.whole = whole
        self.nbytes = 0
        self._entries: OrderedDict[Key, Entry] = OrderedDict()
        self._index: dict[int, dict[Key, None]] = {}  # entries by each of their links
        self._ends: dict[int, dict[Key, None]] = {}  # and by the last

    def __len__(self) -> int:
        return len(self._entries)

    def longest(self, digest: str, prompt: Sequence[int]) -> tuple[Entry | None, int]:
        """The entry with the longest prefix of the prompt, and its length; (None, 0) below MIN_PREFIX.

        At least the prompt's last token is left out, because its logits are needed.
        """
        ids = np.asarray(prompt, dtype=np.int64)
        best, best_key = 0, None
        for key in self._candidates(digest, prompt):
            if key[0] == digest:
                tokens = self._entries[key].tokens
                length = min(common_prefix(ids, tokens), len(ids) - 1)
                if length > best and (length == len(tokens) or not self.whole):
                    best, best_key = length, key
        if best_key is None or best < MIN_PREFIX:
            return None, 0
        self._entries.move_to_end(best_key)
        return self._entries[best_key], best

    def put(self, digest: str, tokens: Sequence[int], snapshot: Any) -> Entry:
        """Stores a prefix; drops the entries it replaces, then the least recently used beyond the budget."""
        key = (digest, tuple(tokens))
        nbytes = sum(array.nbytes for part in snapshot for array in part)
        entry = Entry(np.asarray(tokens, dtype=np.int64), snapshot, nbytes)
        links = list(_chain(digest, key[1]))
        shorter = [other for link in links for other in self._ends.get(link, ())]
        for other in [k for k in shorter if k[0] == digest and key[1][: len(k[1])] == k[1]]:
            if other == key or not self.whole:
                self._drop(other)
        self._entries[key] = entry
        self._ends.setdefault(links[-1] if links else 0, {})[key] = None
        for link in links:
            self._index.setdefault(link, {})[key] = None
        self.nbytes += entry.nbytes
        while self.nbytes > self.max_bytes and self._entries:
            self._drop(next(iter(self._entries)))
        return entry

    def _candidates(self, digest: str, prompt: Sequence[int]) -> Iterator[Key]:
        """Entries worth comparing with a prompt, the most promising first."""
        found: list[dict[Key, None]] = [{}]
        for link in _chain(digest, prompt):
            if link not in self._index:
                break
            found.append(self._ends.get(link, {}) if self.whole else self._index[link])
        for candidates in reversed(found if self.whole else found[-1:]):
            yield from list(reversed(candidates))[:_COMPARED]

    def clear(self) -> None:
        """Drops every entry."""
        self._entries.clear()
        self._index.clear()
        self._ends.clear()
        self.nbytes = 0

    def _drop(self, key: Key) -> None:
        self.nbytes -= self._entries.pop(key).nbytes
        links = list(_chain(*key))
        for index, link in [(self._index, link) for link in links] + [(self._ends, links[-1] if links else 0)]:
            index[link].pop(key)
            if not index[link]:
                del index[link]


def _chain(digest: str, tokens: Sequence[int]) -> Iterator[int]:
    """A hash of each prefix whose length is a multiple of MIN_PREFIX, shortest first."""
    link = hash(digest)
    for end in range(MIN_PREFIX, len(tokens) + 1, MIN_PREFIX):
        link = hash((link, tuple(tokens[end - MIN_PREFIX : end])))
        yield link


def common_prefix(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64]) -> int:
    """Length of the common prefix of two id arrays."""
    n = min(len(a), len(b))
    differ = np.flatnonzero(a[:n] != b[:n])
    return int(differ[0]) if len(differ) else n


def clusters(prompts: Sequence[Sequence[int]]) -> list[tuple[list[int], int]]:
    """Group prompts that begin alike: (indices, length of their common prefix) for each group.

    In sorted order neighbours share the most. A group ends where the next prompt would shrink its common prefix below
    MIN_PREFIX, or by more than half.
    """
    order = sorted(range(len(prompts)), key=lambda i: tuple(prompts[i]))
    arrays = {i: np.asarray(prompts[i], dtype=np.int64) for i in order}
    result: list[tuple[list[int], int]] = []
    for i in order:
        if result:
            members, shared = result[-1]
            common = min(shared, common_prefix(arrays[members[-1]], arrays[i]))
            alone = len(members) == 1
            if common >= MIN_PREFIX and (alone or common * 2 >= shared):
                result[-1] = ([*members, i], common)
                continue
        result.append(([i], len(arrays[i])))
    return result
