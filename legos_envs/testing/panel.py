"""Earnings of degenerate players who play with the other players of a page's row, compared with the page."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

ERRORS = 4
"""Standard errors, plus `PAGE_TOLERANCE`, by which a mean may deviate from the page."""
PAGE_TOLERANCE = 0.005
STATED = "the players of the row"
TOGETHER = "together"


@dataclass
class Cell:
    """A player's earnings at the seats with one name.

    Attributes:
        returns: the mean over the seats for each scored episode.
        unscored: episodes that no judge could score; they pay nothing and are left out.
    """

    returns: list[float] = field(default_factory=list)
    unscored: int = 0

    @property
    def mean(self) -> float:
        return statistics.mean(self.returns) if self.returns else math.nan

    @property
    def slack(self) -> float:
        """The margin within which the true mean lies."""
        error = statistics.stdev(self.returns) / len(self.returns) ** 0.5 if len(self.returns) > 1 else 0.0
        return ERRORS * error + PAGE_TOLERANCE


@dataclass
class Attempts:
    """One row of the page, attacked.

    Attributes:
        title: the row's players and arguments.
        floors: permitted earnings, by column or degenerate player; None if the page states no floor.
        stated: earnings of the row's own players according to the page.
        cells: earnings by player and column: an agent or role, or `TOGETHER`.
        failures: deviations from the page.
    """

    title: str
    floors: Mapping[str, float] | None
    stated: Mapping[str, float]
    cells: dict[str, dict[str, Cell]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def floor(self, name: str, player: str) -> float:
        floors = self.floors or {}
        return floors.get(player, floors.get(name, math.inf))

    def compare(self) -> None:
        """Adds every cell that deviates from the page to the failures."""
        for player, row in self.cells.items():
            for column, cell in row.items():
                where, floor = f"{player} as {column}", self.floor(column, player)
                if player != STATED:
                    if cell.mean - cell.slack > floor:
                        self.failures.append(f"{where} earns {cell.mean:+.3f}, above the floor {floor:+g}")
                    continue
                maximum = self.stated.get(column, math.nan)
                if not abs(cell.mean - maximum) <= cell.slack:
                    self.failures.append(f"{where} earn {cell.mean:+.3f}, the page says {maximum:+g}")
                if floor > maximum + PAGE_TOLERANCE:
                    self.failures.append(f"the floor of {column}, {floor:+g}, is above {maximum:+g}")

    def __str__(self) -> str:
        columns = list(dict.fromkeys(column for row in self.cells.values() for column in row))
        widths = [max(9, len(column)) for column in columns]
        lines = [f"  {self.title}", f"    {'':{len(STATED)}}  " + "  ".join(map(str.rjust, columns, widths))]
        for player, row in self.cells.items():
            shown = []
            for column, width in zip(columns, widths):
                cell = row.get(column)
                shown.append(
                    ("" if cell is None else "unscored" if not cell.returns else f"{cell.mean:+.3f}").rjust(width)
                )
            above = any(line.startswith(f"{player} as ") for line in self.failures)
            lines.append(f"    {player:{len(STATED)}}  {'  '.join(shown)}{'  <-' if above else ''}".rstrip())
        return "\n".join([*lines, *(f"    FAIL  {line}" for line in self.failures)])


@dataclass
class Panel:
    """Earnings of degenerate players. `str()` is a table for each row of the page that states a floor."""

    name: str
    episodes: int
    tables: list[Attempts] = field(default_factory=list)

    @property
    def failures(self) -> list[str]:
        """Deviations from the page."""
        return [f"{table.title}: {line}" for table in self.tables for line in table.failures]

    @property
    def ok(self) -> bool:
        """Whether nobody exceeded a floor; also true if none is stated."""
        return not self.declared or not self.failures

    @property
    def declared(self) -> bool:
        """Whether the page states a floor."""
        return any(table.floors is not None for table in self.tables)

    def __str__(self) -> str:
        if not self.tables:
            return f"{self.name}: no degenerate players: none of its seats is trained"
        if self.declared:
            verdict = f"{len(self.failures)} not as the page says" if self.failures else "nobody exceeds a floor"
        else:
            verdict = "warning: no floor is stated for this, so nothing is compared"
        head = f"{self.name}: degenerate players, {self.episodes} episodes each: {verdict}"
        return "\n".join([head, *map(str, self.tables)])
