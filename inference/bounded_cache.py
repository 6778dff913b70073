"""A thread-safe cache of a function's latest results, bounded by count and by bytes."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

V = TypeVar("V")


class BoundedCache(Generic[V]):
    """Values by key; the least recently used are dropped first.

    Args:
        most: maximum number of entries.
        most_bytes: maximum memory of keys and values together, as estimated by `footprint`.

    Attributes:
        nbytes: estimate of the memory they take.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self.most, self.most_bytes, self.nbytes = most, most_bytes, 0
        self._kept: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable) -> V | None:
        """The value of a key, if it is still cached. TypeError for a key that cannot be hashed."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: V) -> V:
        """Keeps a value, and returns it. A value larger than the whole budget is not kept."""
        size = footprint(key) + footprint(value)
        with self._lock:
            self.nbytes -= self._kept.pop(key, (None, 0))[1]
            if size <= self.most_bytes:
                self._kept[key] = value, size
                self.nbytes += size
            while len(self._kept) > self.most or self.nbytes > self.most_bytes:
                self.nbytes -= self._kept.popitem(last=False)[1][1]
        return value


def footprint(value: Any) -> int:
    """Roughly how many bytes a value made of texts, numbers, tuples and sets takes; each token id is an object of its
    own.
    """
    if isinstance(value, frozenset):
        return sys.getsizeof(value) + 28 * len(value)
    if not isinstance(value, tuple):
        return sys.getsizeof(value)
    if value and type(value[0]) is int:
        return sys.getsizeof(value) + 28 * len(value)
    return sys.getsizeof(value) + sum(map(footprint, value))
