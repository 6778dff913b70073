"""What should be published: by name, with the versions that an answer may still come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from inference.client.packing import PackedAdapter


@dataclass(frozen=True, slots=True)
class Publication:
    """One version of one adapter, with all that is needed to publish it again."""

    packed: PackedAdapter
    version: int


class Publications:
    """The adapters that all endpoints should have.

    Attributes:
        serial: changes with every change.
        dropped: names that were taken away.
    """

    def __init__(self) -> None:
        self._current: dict[str, Publication] = {}
        # Every version a name has stood for; None: whatever the servers had before. From `_floor` on they may be
        # current somewhere; a request may be answered by what was current when it began, or became so since.
        self._history: dict[str, list[int | None]] = {}
        self._floor: dict[str, int] = {}
        self.dropped: set[str] = set()
        self.serial = 0

    def __contains__(self, name: object) -> bool:
        return name in self._current

    def items(self) -> list[tuple[str, Publication]]:
        """Names and what they should stand for."""
        return list(self._current.items())

    def put(self, name: str, new: Publication) -> Callable[[], None]:
        """Want a new version; returns what goes back to the one before."""
        return self._set(name, new)

    def drop(self, name: str) -> Callable[[], None]:
        """Want a name to be gone; returns what goes back."""
        return self._set(name, None)

    def _set(self, name: str, new: Publication | None) -> Callable[[], None]:
        before, was_dropped = self._current.get(name), name in self.dropped
        self._write(name, new, new is None)

        def undo() -> None:
            self._write(name, before, was_dropped)
            self.settle(name)

        return undo

    def _write(self, name: str, publication: Publication | None, dropped: bool) -> None:
        self.serial += 1
        if publication is None:
            self._current.pop(name, None)
        else:
            self._current[name] = publication
        (self.dropped.add if dropped else self.dropped.discard)(name)
        self._history.setdefault(name, [None]).append(None if publication is None else publication.version)

    def settle(self, name: str) -> None:
        """Every endpoint in use has the last version: an answer to a later request comes from that one."""
        self._floor[name] = len(self._history[name]) - 1

    def mark(self, name: str | None) -> int:
        """To be kept when a request begins, for `plausible` when it ends."""
        return 0 if name is None else self._floor.get(name, 0)

    def plausible(self, name: str | None, version: int, since: int) -> bool:
        """A request that began at the mark `since` may have been answered by this version."""
        versions = None if name is None else self._history.get(name)
        return versions is None or version in versions[since:] or None in versions[since:]
