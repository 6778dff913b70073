"""What a run shows at its end: a table on the terminal, and `report.html`, one file without scripts or links."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from legos_train.config import TrainConfig, to_toml
from legos_train.evaluate import action_probabilities
from legos_train.storage import write_text

if TYPE_CHECKING:
    from legos_train.loop import Result
    from legos_train.trainer import Trainer

NAMES = {
    "nash_conv": "NashConv (0 is an equilibrium)",
    "optimal_move": "probability of an optimal move",
    "no_loss": "no-loss rate against random play",
    "illegal": "probability of an illegal answer",
    "vs_random": "mean return against random play",
    "invalid": "games lost by an invalid move",
}
COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700")
MANY_ROWS = 60


def summary_rows(result: Result) -> list[list[str]]:
    """One row per number: name, before, last, average, best."""
    rows = []
    for key in result.last:
        cells = [NAMES.get(key, key)]
        for numbers in (result.start, result.last, result.average, result.best):
            cells.append(f"{numbers[key]:.4f}" if key in numbers else "")
        rows.append(cells)
    return rows


def print_table(result: Result) -> None:
    """The result of a run: before and after, the files, how to use them."""
    from rich.console import Console
    from rich.table import Table

    step = int(result.best["step"]) if result.best else 0
    table = Table(title=f"{result.steps} steps in {result.seconds:.0f} s")
    for i, name in enumerate(("", "before", "last", "weight average", f"best (step {step})")):
        table.add_column(name, justify="left" if i == 0 else "right")
    for row in summary_rows(result):
        table.add_row(*row)
    console = Console()
    console.print(table)
    console.print(f"published adapter ({result.published}): {result.run_dir / 'adapter'}", highlight=False)
    console.print(f"report: {result.run_dir / 'report.html'}", highlight=False)


def write_report(
    path: Path, config: TrainConfig, result: Result, records: Sequence[Mapping[str, Any]], trainer: Trainer
) -> None:
    """Writes `report.html`: before and after, learning curves, and what the policy does in each situation."""
    title = f"{config.title}: {config.model}, {config.steps} steps, seed {config.seed}"
    parts = [f"<h1>{html.escape(title)}</h1>", _table(["", "before", "last", "average", "best"], summary_rows(result))]
    curves: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for key in result.last:
        lines = {"last weights": [(0.0, result.start[key])] if key in result.start else []}
        for record in records:
            for suffix, name in (("", "last weights"), ("_average", "weight average")):
                value = (record.get("eval") or {}).get(key + suffix)
                if value is not None:
                    lines.setdefault(name, []).append((record["step"], value))
        curves[NAMES.get(key, key)] = lines
    roles = sorted({role for record in records for role in record["reward"]})
    curves["reward by role"] = {
        role: [(r["step"], r["reward"][role]) for r in records if role in r["reward"]] for role in roles
    }
    for key, name in (
        ("entropy", "entropy of the next token (nats)"),
        ("kl", "KL to the base model (nats per token)"),
        ("invalid_rate", "share of actions that were not legal"),
        ("grad_norm", "gradient norm before clipping"),
        ("mismatch_max", "largest log-probability gap between engine and trainer"),
        ("seconds", "seconds per step"),
    ):
        curves[name] = {name: [(r["step"], r[key]) for r in records if r.get(key) is not None]}
    parts.append("<div class=grid>")
    parts += [_chart(name, lines) for name, lines in curves.items() if any(lines.values())]
    parts.append("</div>")
    parts += _strategy(trainer)
    parts += ["<h2>Settings</h2>", f"<pre>{html.escape(to_toml(config))}</pre>"]
    write_text(path / "report.html", _page(title, "\n".join(parts)))


def _strategy(trainer: Trainer) -> list[str]:
    """Action probabilities before and after, in every information set of a small game."""
    if len(trainer.arena.envs) > 1:
        return []
    infos = trainer.course.info_sets
    if infos is None or len(infos) > MANY_ROWS:
        return []
    columns = {}
    for name, adapter in (("before", None), ("last", "policy"), ("average", "average")):
        if adapter is None or adapter in trainer.engine.adapters():
            players = [trainer.player(agent, adapter) for agent in trainer.roles]
            columns[name], _ = action_probabilities(trainer.env, players, infos)  # type: ignore[arg-type]
    rows = [
        [info.view, move, *(f"{columns[name][info][move]:.3f}" for name in columns)]
        for info in infos
        for move in info.legal
    ]
    return ["<h2>What the policy does</h2>", _table(["situation", "move", *columns], rows)]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = ["<tr>" + "".join(f"<th>{html.escape(cell)}</th>" for cell in head) + "</tr>"]
    cells += ["<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows]
    return f"<table>{''.join(cells)}</table>"


def _chart(title: str, lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """A line chart as SVG; `lines` maps a name to points (step, value)."""
    points = [p for line in lines.values() for p in line]
    width, height, left, bottom = 440, 200, 52, 24
    right = max(x for x, _ in points) or 1
    low, high = min(y for _, y in points), max(y for _, y in points)
    low = min(low, 0.0) if low > 0 and low < 0.5 * high else low
    span = (high - low) or 1.0

    def place(x: float, y: float) -> str:
        return f"{left + (width - left - 8) * x / right:.1f},{8 + (height - bottom - 8) * (1 - (y - low) / span):.1f}"

    drawn = [
        f"<line class=axis x1={left} y1={height - bottom} x2={width} y2={height - bottom} />",
        f"<text x={left - 4} y=14 class=end>{high:.3g}</text>",
        f"<text x={left - 4} y={height - bottom} class=end>{low:.3g}</text>",
        f"<text x={width} y={height - 6} class=end>step {right:.0f}</text>",
    ]
    legend = []
    for (name, line), colour in zip(lines.items(), COLOURS * len(lines), strict=False):
        path = " ".join(place(x, y) for x, y in line)
        drawn.append(f'<polyline points="{path}" stroke="{colour}" />')
        legend.append(f'<span style="color:{colour}">{html.escape(name)}</span>')
    key = " ".join(legend) if len(lines) > 1 else ""
    label = html.escape(title)
    svg = f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{"".join(drawn)}</svg>'
    return f"<figure><figcaption>{label} <small>{key}</small></figcaption>{svg}</figure>"


def _page(title: str, body: str) -> str:
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 960px; margin: 2rem auto; padding: 0 1rem; color: #1f2328; }}
h1 {{ font-size: 1.4rem; }} h2 {{ font-size: 1.1rem; margin-top: 2rem; }}
table {{ border-collapse: collapse; margin: 1rem 0; }}
td, th {{ border-bottom: 1px solid #d1d9e0; padding: .25rem .75rem; text-align: left; }}
.grid {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(400px, 1fr)); gap: 1rem; }}
figure {{ margin: 0; border: 1px solid #d1d9e0; border-radius: 6px; padding: .5rem; }}
svg {{ width: 100%; }} polyline {{ fill: none; stroke-width: 1.5; }} .axis {{ stroke: #8c959f; }}
text {{ font-size: 11px; fill: #59636e; }} .end {{ text-anchor: end; }}
pre {{ background: #f6f8fa; padding: 1rem; border-radius: 6px; overflow: auto; }}
</style></head><body>
{body}
</body></html>
"""
