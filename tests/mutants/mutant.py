"""What a mutant is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mistake in one place of one file.

    Attributes:
        name: unique.
        file: path from the root of the repository.
        old: text that occurs exactly once in it.
        new: what stands there instead.
        why: what is wrong then.
        tests: the nearest tests, as pytest is told them, separated by blanks.
        equivalent: why no test can tell it from the right code; empty for a mistake.
    """

    name: str
    file: str
    old: str
    new: str
    why: str
    tests: str
    equivalent: str = ""

    def applied(self, source: str) -> str | None:
        """The file with the mistake in it; None where the old text is not there exactly once."""
        return source.replace(self.old, self.new) if source.count(self.old) == 1 else None


def mutants(
    file: str,
    tests: str,
    *changes: tuple[str, str, str, str] | tuple[str, str, str, str, str],
    equivalent: str = "",
) -> list[Mutant]:
    """The mutants of a file.

    Args:
        file: path from the root of the repository.
        tests: the nearest tests of those that name none.
        changes: name, old text, new text, what is wrong then, and the nearest tests where they are others.
        equivalent: why no test can see any of them.
    """
    return [
        Mutant(name, file, old, new, why, *(own or [tests]), equivalent=equivalent)
        for name, old, new, why, *own in changes
    ]
