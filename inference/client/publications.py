"""What should be published: by name, with the versions that an answer may still come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from inference.client.packing import PackedAdapter


@dataclass(frozen=True, slots=True)
class Publication:
    """One version of one adapter, with all that is needed to publish it again."""

    packed: PackedAdapter
    version: int


@dataclass(slots=True)
class _History:
    """Every (version, digest) a name has stood for; None: whatever the servers had before. From `floor` on they may be
    current somewhere; a request may be answered by what was current when it began, or became so since.
    """

    entries: list[tuple[int, str] | None] = field(default_factory=lambda: [None])
    floor: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """The moment at which a request began."""

    history: _History
    since: int


class Publications:
    """The adapters that all endpoints should have.

    Attributes:
        serial: changes with every change.
        dropped: names that were taken away, and that some endpoint may still have.
    """

    def __init__(self) -> None:
        self._current: dict[str, Publication] = {}
        self._history: dict[str, _History] = {}
        self.dropped: set[str] = set()
        self.serial = 0

    def __contains__(self, name: object) -> bool:
        return name in self._current

    def items(self) -> list[tuple[str, Publication]]:
        """Names and what they should stand for."""
        return list(self._current.items())

    def put(self, name: str, new: Publication) -> Callable[[], None]:
        """Want a new version; returns what goes back to the one before."""
        before, was_dropped = self._current.get(name), name in self.dropped
        self._write(name, new, False)

        def undo() -> None:
            self._write(name, before, was_dropped)
            self.settle(name)

        return undo

    def drop(self, name: str) -> None:
        """Want a name to be gone."""
        self._write(name, None, True)

    def _write(self, name: str, publication: Publication | None, dropped: bool) -> None:
        self.serial += 1
        if publication is None:
            self._current.pop(name, None)
        else:
            self._current[name] = publication
        (self.dropped.add if dropped else self.dropped.discard)(name)
        entry = None if publication is None else (publication.version, publication.packed.digest)
        self._history.setdefault(name, _History()).entries.append(entry)

    def settle(self, name: str) -> None:
        """Every endpoint in use has the last version: an answer to a later request comes from that one."""
        history = self._history[name]
        history.floor = len(history.entries) - 1

    def forget_dropped(self) -> None:
        """No endpoint has what was taken away."""
        for name in self.dropped:
            del self._history[name]
        self.dropped.clear()

    def mark(self, name: str | None) -> Mark | None:
        """To be kept when a request begins, for `plausible` when it ends. None for what was not published here."""
        history = None if name is None else self._history.get(name)
        return None if history is None else Mark(history, history.floor)

    def plausible(self, mark: Mark | None, version: int, digest: str | None) -> bool:
        """A request that began at the mark may have been answered by this version with these weights."""
        possible = [None] if mark is None else mark.history.entries[mark.since :]
        return None in possible or (version, digest) in possible
