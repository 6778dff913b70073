"""Figures as plain SVG: line charts with intervals and direct labels, and heat maps.

Colours are those of Okabe and Ito (2008), distinguishable with any colour vision, darker on white and lighter on black;
lines also differ in their dashes. No scripts: points show their value through `<title>`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html import escape

from legos_train.observe.report.scales import Point, nice_ticks, number, thinned, tick_names

WIDTH, HEIGHT = 560, 278
TOP, BOTTOM, LEFT = 54, 34, 54
LABEL_PIXELS, LABEL_LENGTH, LABEL_GAP = 7.7, 22, 14
MOST_POINTS, MOST_HOVERS = 400, 60
DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 2", "1 2")
STYLE = """
.fig { --c0: #0072b2; --c1: #c44e00; --c2: #007a5a; --c3: #a8457f; --c4: #8a6100; --c5: #2b6fd6;
  --ink: #1c1e21; --soft: #5b6067; --line: #dedad3; --card: #ffffff; --bad: #a8231c;
  font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
@media (prefers-color-scheme: dark) { .fig { --c0: #56b4e9; --c1: #ff8f4d; --c2: #2ecc9b; --c3: #e79ac6; --c4: #f0c060;
  --c5: #9db8ff; --ink: #e7e5e1; --soft: #a3a8af; --line: #363b42; --card: #1d2024; --bad: #ff9188; } }
.fig .paper { fill: var(--card); } .fig text { fill: var(--soft); } .fig .title { fill: var(--ink); font-weight: 600; }
.fig .title { font-size: 14px; } .fig .rule { stroke: var(--line); } .fig .axis { stroke: var(--soft); }
.fig .end { text-anchor: end; } .fig .mid { text-anchor: middle; } .fig .label { font-weight: 600; }
.fig polyline { fill: none; stroke-width: 2; stroke-linejoin: round; } .fig .raw { stroke-width: 1; opacity: .3; }
.fig .band { opacity: .16; stroke: none; } .fig .hover { opacity: 0; } .fig .hover:hover { opacity: 1; }
.fig .mark { stroke: var(--bad); stroke-dasharray: 3 3; } .fig .marked { fill: var(--bad); font-size: 11px; }
.fig line.level { stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 1 4; stroke-linecap: round; }
.fig text.level { font-size: 11px; }
.fig .cell { fill: #1c1e21; text-anchor: middle; }
"""


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its points (step, value), their interval (step, low, high), and the unsmoothed points behind it."""

    name: str
    points: Sequence[Point]
    band: Sequence[tuple[float, float, float]] = ()
    raw: Sequence[Point] = ()
    colour: int | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """A line chart. `unit` is the unit of the vertical axis, `marks` are (step, word) for vertical lines, `levels`
    (value, word) for horizontal ones.

    `bounds`: the range of possible values, such as (0, 1) for shares: intervals are clipped to it.
    `note` is shown below the figure on a page.
    """

    name: str
    title: str
    unit: str
    lines: Sequence[Line]
    section: str = ""
    note: str = ""
    bounds: tuple[float | None, float | None] = (None, None)
    marks: Sequence[tuple[float, str]] = field(default_factory=tuple)
    levels: Sequence[tuple[float, str]] = field(default_factory=tuple)


def line_chart(figure: Figure) -> str:
    """The figure as one `<svg>`, with the title and units in it. Raises ValueError if no line has a point."""
    lines = [_within(line, *figure.bounds) for line in figure.lines if line.points]
    if not lines:
        raise ValueError(f"the figure {figure.name!r} has no points")
    values = [y for line in lines for _, y in line.points]
    values += [y for line in lines for _, *ys in line.band for y in ys]
    values += [y for line in lines for _, y in line.raw]
    values += [y for y, _ in figure.levels]
    limits = [bound for bound in figure.bounds if bound is not None]
    low, high = min([*values, *limits]), max([*values, *limits])
    if low == high == figure.bounds[0]:
        high = low + 1  # values cannot be lower
    ys = nice_ticks(low, high)
    first, last = min(x for line in lines for x, _ in line.points), max(x for line in lines for x, _ in line.points)
    last = max(last, first + 1)
    named = len(lines) > 1
    names = [_short(line.name) for line in lines] if named else [number(lines[0].points[-1][1])]
    right = WIDTH - 14 - LABEL_PIXELS * max(map(len, names))

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            LEFT + (right - LEFT) * (x - first) / (last - first),
            HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (y - ys[0]) / (ys[-1] - ys[0]),
        )

    parts = [_text(12, 20, figure.title, "title"), _text(12, 36, figure.unit)]
    for tick, label in zip(ys, tick_names(ys)):
        _, y = place(first, tick)
        kind = "axis" if tick == 0 else "rule"
        parts.append(f'<line class="{kind}" x1="{LEFT}" y1="{y:.1f}" x2="{right:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(LEFT - 6, y + 4, label, "end"))
    for tick in nice_ticks(first, last, 6):
        if first <= tick <= last and tick == round(tick):
            parts.append(_text(place(tick, ys[0])[0], HEIGHT - BOTTOM + 16, number(tick), "mid"))
    parts.append(_text(right, HEIGHT - 4, "step", "end"))
    for x, word in figure.marks:
        at = place(min(max(x, first), last), ys[0])[0]
        parts.append(f'<line class="mark" x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{HEIGHT - BOTTOM}"/>')
        parts.append(_text(at + 3, TOP + 9, word, "marked"))
    for value, word in figure.levels:
        _, y = place(first, value)
        parts.append(f'<line class="level" x1="{LEFT}" y1="{y:.1f}" x2="{right:.1f}" y2="{y:.1f}"/>')
        hint = f"{word}: {number(value)}"
        below = value == max(values)  # no room above at the upper edge
        parts.append(_text(right - 4, y + (12 if below else -4), hint, "end level"))
    ends = []
    for k, line in enumerate(lines):
        colour = f"var(--c{(k if line.colour is None else line.colour) % 6})"
        if line.band:
            upper = [place(x, high) for x, _, high in thinned(line.band, MOST_POINTS)]
            lower = [place(x, low) for x, low, _ in thinned(line.band, MOST_POINTS)]
            parts.append(f'<polygon class="band" points="{_path([*upper, *lower[::-1]])}" fill="{colour}"/>')
        if line.raw:
            raw = _path([place(*p) for p in thinned(line.raw, MOST_POINTS)])
            parts.append(f'<polyline class="raw" points="{raw}" stroke="{colour}"/>')
        dash = f' stroke-dasharray="{DASHES[k % 6]}"' if k % 6 else ""
        drawn = [place(*p) for p in thinned(line.points, MOST_POINTS)]
        parts.append(f'<polyline points="{_path(drawn)}" stroke="{colour}"{dash}/>')
        if len(drawn) == 1:
            parts.append(f'<circle cx="{drawn[0][0]:.1f}" cy="{drawn[0][1]:.1f}" r="3" fill="{colour}"/>')
        for x, y in thinned(line.points, MOST_HOVERS):
            cx, cy = place(x, y)
            hint = escape(f"{line.name}, step {x:.0f}: {y:.4g}")
            dot = f'<circle class="hover" cx="{cx:.1f}" cy="{cy:.1f}" r="5" fill="{colour}">'
            parts.append(f"{dot}<title>{hint}</title></circle>")
        ends.append((place(*line.points[-1])[1], names[k] if named else names[0], colour))
    for y, name, colour in _apart(ends):
        parts.append(
            f'<text class="label" x="{right + 7:.1f}" y="{y + 4:.1f}" style="fill: {colour}">{escape(name)}</text>'
        )
    return _svg(WIDTH, HEIGHT, figure.title, "".join(parts))


def heat_map(
    title: str,
    unit: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float | None]],
    *,
    middle: float = 0.0,
    reach: float | None = None,
) -> str:
    """A matrix as one `<svg>`: blue below `middle`, orange above, white at it; every cell shows its number.

    Args:
        title: heading of the figure.
        unit: unit of the numbers.
        rows: names of the rows.
        columns: names of the columns.
        values: (rows, columns); None if unknown.
        middle: the value drawn white.
        reach: distance from the middle with full colour; by default the largest distance.
    """
    distances = [abs(v - middle) for row in values for v in row if v is not None]
    reach = reach or max(distances, default=1.0) or 1.0
    names = [_short(name) for name in rows]
    left = 24 + LABEL_PIXELS * max(map(len, names), default=1)
    heads = [_short(name) for name in columns]
    side_x = max(52.0, LABEL_PIXELS * max(map(len, heads), default=1) + 10)
    side_y, top = 30, 72
    width = max(left + side_x * len(columns) + 12, 24 + 6.6 * max(len(title) * 1.2, len(unit)))
    height = top + side_y * len(rows) + 12
    parts = [_text(12, 20, title, "title"), _text(12, 36, unit)]
    for k, head in enumerate(heads):
        parts.append(_text(left + side_x * (k + 0.5), top - 8, head, "mid"))
    for r, row in enumerate(values):
        y = top + side_y * r
        parts.append(_text(left - 8, y + side_y / 2 + 4, names[r], "end"))
        for c, value in enumerate(row):
            x = left + side_x * c
            fill = "var(--line)" if value is None else _diverging((value - middle) / reach)
            hint = escape(f"{rows[r]} against {columns[c]}: " + ("not played" if value is None else f"{value:.4g}"))
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{side_x - 2:.1f}" height="{side_y - 2}" rx="3" fill="{fill}">'
                f"<title>{hint}</title></rect>"
            )
            if value is not None:
                parts.append(_text(x + side_x / 2 - 1, y + side_y / 2 + 3, f"{value:.2f}", "cell"))
    return _svg(width, height, title, "".join(parts))


def standalone(svg: str) -> str:
    """The same as a standalone file, with its style."""
    head, _, rest = svg.partition(">")
    return f'{head} xmlns="http://www.w3.org/2000/svg"><style>{escape(STYLE, quote=False)}</style>{rest}\n'


def _within(line: Line, low: float | None, high: float | None) -> Line:
    """The line with its interval clipped to the possible values."""
    least, most = -math.inf if low is None else low, math.inf if high is None else high
    band = [(x, max(a, least), min(b, most)) for x, a, b in line.band]
    return replace(line, band=band)


def _diverging(at: float) -> str:
    """From blue at -1 through white at 0 to orange at 1; light enough for dark text."""
    at = max(-1.0, min(1.0, at))
    end = (230, 140, 60) if at > 0 else (90, 165, 220)
    return "#" + "".join(f"{round(250 + (c - 250) * abs(at)):02x}" for c in end)


def _apart(ends: Sequence[tuple[float, str, str]]) -> list[tuple[float, str, str]]:
    """Labels moved apart so that none overlap, in the order of their lines and above the axis."""
    placed: list[tuple[float, str, str]] = []
    for y, name, colour in sorted(ends, key=lambda end: end[0]):
        placed.append((max(y, placed[-1][0] + LABEL_GAP) if placed else max(y, TOP), name, colour))
    limit = float(HEIGHT - BOTTOM)
    for k in range(len(placed) - 1, -1, -1):
        y, name, colour = placed[k]
        placed[k] = (min(y, limit), name, colour)
        limit = placed[k][0] - LABEL_GAP
    return placed


def _svg(width: float, height: float, label: str, body: str) -> str:
    return (
        f'<svg class="fig" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" role="img" '
        f'aria-label="{escape(label)}"><rect class="paper" width="100%" height="100%" rx="8"/>{body}</svg>'
    )


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}"{f""" class="{kind}" """.rstrip() if kind else ""}>{escape(text)}</text>'


def _path(points: Sequence[Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _short(name: str) -> str:
    return name if len(name) <= LABEL_LENGTH else f"{name[: LABEL_LENGTH - 1]}…"
