"""The gradient microscope with its axes crossed: credit method x loss x staleness x games of a batch.

    python -m benchmarks.microscope_grid --part 1/3 --json grid1.json     # and 2/3, 3/3
    python -m benchmarks.microscope_grid --tables grid1.json grid2.json grid3.json

The numbers are those of `benchmarks.microscope`. All cells of an age and a size see the same games, drawn from the same
seed, so differences between rows and columns are not luck of the deal.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.microscope import PPO, Microscope, measure
from legos_train.credit import make_credit
from legos_train.loss import LossSettings

CREDITS = ("reinforce", "rae", "same_prompt", "grpo", "hierarchical_grpo", "rloo", "gigpo", "turn_level")
LOSSES: dict[str, LossSettings] = {
    "importance_sampling": PPO.model_copy(update={"name": "importance_sampling"}),
    "ppo": PPO,
    "ppo, truncated": PPO.model_copy(update={"truncate_ratio": 2.0}),
    "cispo": PPO.model_copy(update={"name": "cispo"}),
    "gspo": PPO.model_copy(update={"name": "gspo"}),
}
AGES, GAMES = (0, 1, 4), (64, 256)
Cell = tuple[str, str, int, int]
"""Credit, loss, age in versions, games of a batch."""


def cells(part: int = 1, parts: int = 1) -> list[Cell]:
    """Every combination, or the `part`-th of so many parts, in turn."""
    every = [(credit, loss, age, games) for games in GAMES for age in AGES for credit in CREDITS for loss in LOSSES]
    return every[part - 1 :: parts]


def study(wanted: Sequence[Cell], count: int, seed: int) -> list[dict[str, Any]]:
    """The numbers of cells, as rows with `credit`, `loss`, `age`, `games` and each number with its 95 % interval."""
    scope = Microscope(seed=seed)
    out = []
    for credit, loss, age, games in wanted:
        rows = scope.batches(count, games, make_credit(credit), LOSSES[loss], seed, age=age)
        row = {"credit": credit, "loss": loss, "age": age, "games": games}
        out.append({**row, **measure(rows, scope.exact, scope.gram, games)})
        print(json.dumps(out[-1]), flush=True)
    scope.trainer.parts.close()
    return out


def tables(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: by age and size the cosine, the length and, in brackets, the noise; a row for each credit method."""
    found = {(r["credit"], r["loss"], r["age"], r["games"]): r for r in rows}
    lines = []
    for games in GAMES:
        for age in AGES:
            lines += [
                f"{age} version{'s' * (age != 1)} old, {games} games:",
                "",
                "| credit | " + " | ".join(f"`{x}`" for x in LOSSES) + " |",
            ]
            lines.append("|---" * (1 + len(LOSSES)) + "|")
            for credit in CREDITS:
                shown = [_shown(found.get((credit, loss, age, games))) for loss in LOSSES]
                lines.append(f"| `{credit}` | " + " | ".join(shown) + " |")
            lines.append("")
    return "\n".join(lines)


def _shown(row: dict[str, Any] | None) -> str:
    """`.98 ± .01, 1.03 (34)`: the cosine, half its interval, the length, the noise in games."""
    if row is None:
        return "-"
    value, low, high = row["cosine"]
    return f"{value:.2f} ± {(high - low) / 2:.2f}, {row['length'][0]:.2f} ({row['noise'][0]:.0f})"


def _part(word: str) -> tuple[int, int]:
    one, _, many = word.partition("/")
    if not (one.isdigit() and many.isdigit() and 1 <= int(one) <= int(many)):
        raise argparse.ArgumentTypeError(f"got {word!r}; give K/N with 1 <= K <= N, such as 1/3")
    return int(one), int(many)


def main(argv: Sequence[str] | None = None) -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", type=_part, default=(1, 1), metavar="K/N", help="measure only every N-th cell")
    parser.add_argument("--batches", type=int, default=30, help="batches per cell")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--tables", type=Path, nargs="+", metavar="FILE", help="print tables of rows measured before")
    args = parser.parse_args(argv)
    if args.tables:
        print(tables([row for file in args.tables for row in json.loads(file.read_text())]))
        return
    rows = study(cells(*args.part), args.batches, args.seed)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
