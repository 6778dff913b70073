"""The last published version of each adapter name, including the last `MOST` unpublished names.

A publication may arrive late or twice, for example if a client gave up waiting or a connection broke after the last
byte. Such a publication must not override a later one: a publisher that calls `check` first never goes back to an older
version, and repeats the last one only with the same weights. Without `check`, any version may be put.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from inference.types import VersionConflict

MOST = 4096
"""Names remembered after they were unpublished; the oldest is forgotten first."""


@dataclass(frozen=True, slots=True)
class LastVersion:
    """The last version of a name.

    Attributes:
        published: whether the name is served now.
        gone: unpublished for good; the same version does not come back.
    """

    version: int
    digest: str
    published: bool = True
    gone: bool = False


class VersionLedger:
    """The last version of every name."""

    def __init__(self, most: int = MOST) -> None:
        self._last: dict[str, LastVersion] = {}
        self._most = most

    def next(self, name: str) -> int:
        """The number for a version without one."""
        last = self._last.get(name)
        return 1 if last is None else last.version + 1

    def check(self, name: str, version: int, digest: str) -> None:
        """VersionConflict if this version must not become current."""
        last = self._last.get(name)
        if last is None or version > last.version:
            return
        if version < last.version:
            why = f"is older than version {last.version}, which was published already"
        elif last.digest != digest:
            why = f"was published with other weights ({last.digest[:12]}..., these are {digest[:12]}...)"
        elif last.gone:
            why = "was taken away"
        else:
            return
        raise VersionConflict(f"version {version} of {name!r} {why}; give new weights a version above {last.version}")

    def put(self, name: str, version: int, digest: str) -> None:
        """Records that this version has become current."""
        self._last.pop(name, None)  # to the end: ordered by last change
        self._last[name] = LastVersion(version, digest)

    def drop(self, name: str, *, for_good: bool = True) -> None:
        """Records that the name was unpublished. for_good: if False, `check` lets the same version come back."""
        if (last := self._last.pop(name, None)) is not None:
            self._last[name] = replace(last, published=False, gone=for_good)
        unpublished = [other for other, last in self._last.items() if not last.published]
        for oldest in unpublished[: max(0, len(unpublished) - self._most)]:
            del self._last[oldest]
