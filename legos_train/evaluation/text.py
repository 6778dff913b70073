"""Results for people: what `legos eval` and `legos tournament` print without `--json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from legos_train.evaluation.outcomes import OUTCOMES

SHOWN_REGRETS = 3


def row_text(row: Mapping[str, Any]) -> Iterator[str]:
    """The lines of a pairing."""
    yield f"{row['env']}: {row['policy']} against {row['opponent']}, {row['games']} games" + (
        f" ({row['failed']} could not be played)" if row["failed"] else ""
    )
    if row["mean"] is not None:
        yield f"  mean return {row['mean']:+.4f}  {interval(row['ci95'])}, {row['seeds']} seeds"
        if len(row["seats"]) > 1:
            yield "  by seat     " + "  ".join(f"{seat} {value:+.4f}" for seat, value in row["seats"].items())
        if set(row["roles"]) != set(row["seats"]):
            for role, found in row["roles"].items():
                yield f"  as {role:<8} {found['mean']:+.4f}  {interval(found['ci95'])}"
    if "margin" in row:
        yield f"  win - loss  {row['margin']:+.4f}  {interval(row['margin_ci95'])}"
    shares = "  ".join(f"{kind.replace('_', ' ')} {row[kind]:.1%}" for kind in OUTCOMES if row[kind])
    yield f"  outcomes    {shares or 'none'}"
    for name, value in row.get("accuracy", {}).items():
        if f"{name}_ci95" in row["accuracy"]:
            yield f"  {name:<11} {value:.1%}  {interval(row['accuracy'][f'{name}_ci95'])}"
    if row["turns"] is not None:
        yield f"  length      {row['turns']:.1f} turns a game"
    for policy, used in row["usage"].items():
        if "completion_tokens" in used:
            cost = f", {used['cost']:.4f} $" if "cost" in used else ""
            yield (
                f"  tokens      {policy}: {used['prompt_tokens']:.0f} read, {used['completion_tokens']:.0f} written "
                f"({used['tokens_per_action']:.1f} an action){cost}"
            )
    yield from exact_text(row.get("exact", {}))
    yield from (f"  error       {text}" for text in row.get("errors", ()))
    yield from (f"  note        {text}" for text in row["advice"])


def exact_text(exact: Mapping[str, Any]) -> Iterator[str]:
    """The lines of the exact numbers."""
    for name, value in exact.items():
        if isinstance(value, float):
            yield f"  exact       {name} {value:.4f}"
        elif isinstance(value, Mapping):
            yield f"  exact       {name} " + "  ".join(f"{seat} {number:+.4f}" for seat, number in value.items())
    for one in exact.get("regret", [])[:SHOWN_REGRETS]:
        yield f"  regret      {one['regret']:.4f} as {one['seat']}, best {one['best']}: {' '.join(one['view'].split())}"


def comparison_text(one: Mapping[str, Any]) -> Iterator[str]:
    """The lines of a comparison."""
    yield (
        f"{one['env']}, against {one['opponent']}: {one['first']} minus {one['second']} {one['difference']:+.4f}  "
        f"{interval(one['ci95'])}, {one['seeds']} seeds"
    )
    yield from (f"  note        {text}" for text in one["advice"])


def interval(ends: tuple[float, float] | list[float]) -> str:
    return f"(95 % interval {ends[0]:+.4f} .. {ends[1]:+.4f})"
