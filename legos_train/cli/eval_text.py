"""Human-readable results: the output of `legos eval` and `legos tournament` without `--json`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from legos_train.evaluation.outcomes import OUTCOMES, in_words, seated

SHOWN_REGRETS = 3
SAMPLES, MOST_SENTENCES = 2, 6
SURE = 6
"""Seeds that must all agree before a winner is named: six coin tosses agree in 1 of 32 cases (sign test)."""


def row_text(row: Mapping[str, Any], exact: bool = True) -> Iterator[str]:
    """The lines of a pairing. `exact`: include the policy's exact numbers that do not depend on the opponent."""
    who = row["policy"] if row["alone"] else f"{row['policy']} against {row['opponent']}"
    who += f" with {seated(row['seated'])}" if row.get("seated") else ""
    yield f"{row['env']}: {who}, {count(row['games'], 'game')}" + (
        f" ({row['failed']} could not be played)" if row["failed"] else ""
    )
    if row["mean"] is not None:
        yield f"  mean return {row['mean']:+.4f}  {interval_text(row['ci95'])}, {count(row['seeds'], 'seed')}"
        if len(row["seats"]) > 1:
            yield "  by seat     " + "  ".join(f"{seat} {value:+.4f}" for seat, value in row["seats"].items())
        if len(row["roles"]) > 1 and set(row["roles"]) != set(row["seats"]):
            for role, numbers_of_role in row["roles"].items():
                yield f"  as {role:<8} {numbers_of_role['mean']:+.4f}  {interval_text(numbers_of_role['ci95'])}"
    if "margin" in row and row["competitive"]:
        yield f"  win - loss  {row['margin']:+.4f}  {interval_text(row['margin_ci95'])}"
    yield f"  outcomes    {'  '.join(outcome_text(row)) or 'none'}"
    for name, value in row.get("accuracy", {}).items():
        if name != "pass@1" and f"{name}_ci95" in row["accuracy"]:  # pass@1 equals mean@K
            ends = [100 * end for end in row["accuracy"][f"{name}_ci95"]]
            yield f"  {name:<11} {value:.1%}  {interval_text(ends, '.1f')}"
    if row["turns"] is not None:
        yield f"  length      {row['turns']:.1f} turns per game"
    for policy, used in row["usage"].items():
        if "completion_tokens" in used:
            cost = f", ${used['cost']:.4f}" if "cost" in used else ""
            yield (
                f"  tokens      {policy}: {used['prompt_tokens']:.0f} read, {used['completion_tokens']:.0f} written "
                f"({used['tokens_per_action']:.1f} per action){cost}"
            )
    numbers = row.get("exact", {})
    yield from exact_text(numbers if exact else {k: v for k, v in numbers.items() if k == "against_opponent"})
    yield from (f"  error       {text}" for text in row.get("errors", ()))
    yield from (f"  note        {text}" for text in row["advice"])


def ending(results: Mapping[str, Any], samples: Sequence[Sequence[str]], out: Path | None) -> Iterator[str]:
    """The closing lines: two sample games, where to find the others, and one sentence per pairing."""
    for lines in samples[:SAMPLES]:
        yield ""
        yield from lines
    yield ""
    if out is not None:
        yield f"all games: legos view {shlex.quote(str(out))}"
    yield from (in_short(row) for row in results["results"][:MOST_SENTENCES])
    if len(results["results"]) > MOST_SENTENCES:
        yield f"and {len(results['results']) - MOST_SENTENCES} more pairings, see above"


def in_short(row: Mapping[str, Any]) -> str:
    """One sentence about a pairing that claims no more than its interval supports."""
    if row["mean"] is None:
        return f"In short: no game of {row['policy']} in {row['env']} could be scored."
    played = (
        f"mean return {row['mean']:+.3f} {interval_text(row['ci95'])} in {count(row['games'], 'game')} of {row['env']}"
    )
    if row["alone"] or not row["competitive"] or row["policy"] == row["opponent"]:
        return f"In short: {row['policy']}: {played}."
    # Where one side's gain is the other's loss, the return decides: who wins more games may lose the larger pots.
    even, ends = (0.0, row["ci95"]) if row["zero_sum"] else (0.5, row.get("score_ci95"))
    low, high = ends or (even, even)
    if low == high and row["seeds"] < SURE:
        low = high = even
    how = "beats" if low > even else "loses to" if high < even else "is not shown to differ from"
    return f"In short: {row['policy']} {how} {row['opponent']}: {played}."


def outcome_text(row: Mapping[str, Any]) -> Iterator[str]:
    """`win 52.5% (47.1 .. 58.0)` for each outcome that occurred; successes are shown even if there were none."""
    rivals = row["competitive"]
    for kind in OUTCOMES:
        name = in_words(kind, rivals)
        if name is not None and (row[kind] or (name == "success" and row["mean"] is not None)):
            low, high = (100 * end for end in row["outcomes_ci95"].get(kind, (0, 0)))
            ends = f" ({low:.1f} .. {high:.1f})" if low < high else ""  # one seed, or equal results: not informative
            yield f"{name.replace('_', ' ')} {row[kind]:.1%}{ends}"


def exact_text(exact: Mapping[str, Any]) -> Iterator[str]:
    """The lines with exact numbers."""
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
        f"{interval_text(one['ci95'])}, {count(one['seeds'], 'seed')}"
    )
    yield from (f"  note        {text}" for text in one["advice"])


def count(number: int, what: str) -> str:
    return f"{number} {what}" + "s" * (number != 1)


def interval_text(ends: tuple[float, float] | list[float], form: str = "+.4f") -> str:
    """The ends of an interval. A zero-width one, from one seed or equal results, would overstate the certainty."""
    if ends[0] == ends[1]:
        return "(no interval)"
    return f"(95 % interval {ends[0]:{form}} .. {ends[1]:{form}})"
