"""From finished games to rows: one per pairing, one per comparison of two policies."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from legos_train.evaluation.games import Pairing, Record
from legos_train.evaluation.intervals import advice, bootstrap_interval, mean_and_pass
from legos_train.evaluation.outcomes import OUTCOMES, seated

Row = dict[str, Any]
MANY_SHORT = 0.02
"""Share of truncated answers above which a note reports it."""


def row(
    pairing: Pairing, records: Sequence[Record], seed: int, *, samples: int, failed: Sequence[str], zero_sum: bool
) -> Row:
    """The numbers of a pairing.

    `games` played and `failed` (with `errors`); `mean` return with `ci95`, over the `seeds` that were scored in every
    seat; mean return by seat (`seats`) and by role (`roles`, with intervals); shares of `OUTCOMES`, over all seats
    played, with `outcomes_ci95` of those that occurred; `turns` of the policy per game; `usage` by policy; `advice`.
    For problems with a right answer also `accuracy`: mean@K and pass@k. `alone`: there is no opponent.
    `competitive`: whether a `win` is against the other seats or a success, see `outcomes.competitive`; `zero_sum`, as
    given. Against an opponent also `score` with `score_ci95`: the share of the rivals beaten, draws half.

    Args:
        pairing: a policy and its opponent.
        records: records of the scheduled games.
        seed: seed of the resamples.
        samples: how often each seed was scheduled from each side.
        failed: why games could not be played.
        zero_sum: whether a mean return above 0 means that the policy is the better one.
    """
    per_seed = len(pairing.sides) * samples
    whole = by_seed(records, per_seed)
    values = [float(np.mean([_value(r) for r in group])) for group in whole.values()]
    outcomes = Counter(kind for r in records for kind in r["outcomes"].values())
    total = sum(outcomes.values())
    result: Row = {
        "env": pairing.title,
        "args": dict(pairing.args),
        "policy": pairing.policy,
        "opponent": pairing.opponent,
        "seated": pairing.seated,
        "alone": len(pairing.sides) == 1,
        "competitive": pairing.competitive and len(pairing.sides) > 1,
        "zero_sum": zero_sum,
        "games": len(records),
        "failed": len(failed),
        "seeds": len(values),
        "mean": float(np.mean(values)) if values else None,
        "ci95": bootstrap_interval(values, seed) if values else None,
        "seats": {name: _mean(group) for name, group in _grouped(whole, "seat").items()},
        "roles": {
            name: {"mean": _mean(group), "ci95": bootstrap_interval([np.mean(v) for v in group.values()], seed)}
            for name, group in _grouped(whole, "role").items()
        },
        **{kind: outcomes[kind] / total if total else 0.0 for kind in OUTCOMES},
        "outcomes_ci95": {kind: _share_interval(records, kind, seed) for kind in OUTCOMES if outcomes[kind]},
        "turns": float(np.mean([r["turns"] for r in records])) if records else None,
        "usage": usage(records),
        "advice": [],
    }
    if failed:
        result["errors"] = [f"{count} x {text}" for text, count in Counter(failed).most_common(3)]
        result["advice"].append(
            f"{len(failed)} games could not be played; with --out, the same command plays them later."
        )
    result["advice"] += short_answers(result["usage"])
    if not values:
        result["advice"].append("no seed was scored in every seat: there is no mean.")
        return result
    rivals = len(pairing.sides) > 1
    even = len(values) == 1 or np.ptp(values) == 0  # without an opponent only certainty is noted
    told = zero_sum if rivals else even
    if told and (note := advice(values, result["ci95"], per_seed, "the mean return")):
        result["advice"].append(note)
    scores = [s for g in whole.values() if (s := _score(g)) is not None] if rivals else []
    if scores and not zero_sum:
        margins = [2 * score - 1 for score in scores]
        result |= {"margin": float(np.mean(margins)), "margin_ci95": bootstrap_interval(margins, seed, bounds=(-1, 1))}
        note = advice(margins, result["margin_ci95"], per_seed, "wins minus losses")
        if note and pairing.competitive:
            result["advice"].append(note)
    if scores:
        result |= {"score": float(np.mean(scores)), "score_ci95": bootstrap_interval(scores, seed, bounds=(0, 1))}
    if problems := _answers(one for group in whole.values() for one in group):
        result["accuracy"] = mean_and_pass(problems, seed, samples)
    return result


def comparisons(rows: Sequence[tuple[Pairing, Sequence[Record]]], seed: int, samples: int) -> list[Row]:
    """The difference of every two policies that met the same opponent in the same env, seed by seed.

    `difference`: mean return of `first` minus that of `second` over the `seeds` that both have completely.
    """
    results = []
    for i, (one, first) in enumerate(rows):
        for other, second in rows[i + 1 :]:
            alone = len(one.sides) == 1  # then each is its own opponent
            if (one.env, one.args) != (other.env, other.args) or one.policy == other.policy:
                continue
            if not alone and one.opponent != other.opponent:
                continue
            per_seed = len(one.sides) * samples
            a, b = by_seed(first, per_seed), by_seed(second, per_seed)
            both = [n for n in a if n in b]
            if not both:
                continue
            values = [float(np.mean([_value(r) for r in a[n]]) - np.mean([_value(r) for r in b[n]])) for n in both]
            interval = bootstrap_interval(values, seed)
            note = advice(values, interval, per_seed, f"the difference between {one.policy} and {other.policy}")
            results.append(
                {
                    "env": one.title,
                    "opponent": (seated(one.seated) or "nobody") if alone else one.opponent,
                    "first": one.policy,
                    "second": other.policy,
                    "seeds": len(both),
                    "difference": float(np.mean(values)),
                    "ci95": interval,
                    "advice": [note] if note else [],
                }
            )
    return results


def by_seed(records: Iterable[Record], wanted: int) -> dict[Any, list[Record]]:
    """Records grouped by seed, or by problem, which several seeds may have drawn.

    Seeds with a game missing or unscored are left out: a mean over only the played seats would be biased.
    """
    seeds: dict[int, list[Record]] = defaultdict(list)
    for one in records:
        seeds[one["seed"]].append(one)
    groups: dict[Any, list[Record]] = defaultdict(list)
    for _, group in sorted(seeds.items()):
        if len(group) == wanted and not any("unscored" in one["outcomes"].values() for one in group):
            groups[_evidence(group[0])] += group
    return dict(groups)


def _evidence(one: Record) -> tuple[str, int]:
    """What a record is evidence about: a seed, or a problem, which several seeds may have drawn."""
    problem = one.get("problem")
    return ("seed", one["seed"]) if problem is None else ("problem", problem)


def usage(records: Iterable[Record]) -> dict[str, dict[str, float]]:
    """By policy: actions, tokens and cost, and tokens per action."""
    totals: dict[str, dict[str, float]] = {}
    for one in records:
        for policy, counts in one["usage"].items():
            total = totals.setdefault(policy, {})
            for name, count in counts.items():
                total[name] = total.get(name, 0) + count
    for total in totals.values():
        if "completion_tokens" in total:
            total["tokens_per_action"] = total["completion_tokens"] / total["actions"]
    return totals


def short_answers(used: dict[str, dict[str, float]]) -> list[str]:
    """Notes on policies with incomplete answers: their numbers measure a limit, not the policy."""
    notes = []
    for policy, counts in used.items():
        actions = counts["actions"]
        if (cut := counts.get("cut_off", 0)) > MANY_SHORT * actions:
            notes.append(f"{cut:.0f} of {actions:.0f} answers of {policy} were cut off: raise --max-tokens.")
        if long := counts.get("too_long", 0):
            notes.append(
                f"{long:.0f} of {actions:.0f} prompts of {policy} left no room for an answer in its context: invalid "
                "moves."
            )
    return notes


def _share_interval(records: Sequence[Record], kind: str, seed: int) -> list[float]:
    """The interval of the share of an outcome among the seats played: over seeds, whose games are dependent."""
    groups: dict[Any, list[float]] = defaultdict(list)
    for one in records:
        groups[_evidence(one)] += [float(outcome == kind) for outcome in one["outcomes"].values()]
    return bootstrap_interval([np.mean(shares) for shares in groups.values()], seed, bounds=(0, 1))


def _value(one: Record) -> float:
    return sum(one["returns"].values()) / len(one["returns"])


def _score(group: Sequence[Record]) -> float | None:
    scores = [one["score"] for one in group if one["score"] is not None]
    return float(np.mean(scores)) if scores else None


def _grouped(whole: dict[Any, list[Record]], by: str) -> dict[str, dict[Any, list[float]]]:
    """The returns, by seat or role, then by seed."""
    groups: dict[str, dict[Any, list[float]]] = defaultdict(lambda: defaultdict(list))
    for number, group in whole.items():
        for one in group:
            for agent, value in one["returns"].items():
                groups[agent if by == "seat" else one["roles"][agent]][number].append(value)
    return groups


def _mean(group: dict[Any, list[float]]) -> float:
    return float(np.mean([np.mean(values) for values in group.values()]))


def _answers(records: Iterable[Record]) -> list[list[bool]]:
    """For each problem, whether each answer was right; empty if the env has no right answers."""
    answers: dict[Any, list[bool]] = defaultdict(list)
    for one in records:
        if one["correct"] is not None or one["problem"] is not None:  # no answer counts as not right
            answers[one["seed"] if one["problem"] is None else one["problem"]].append(bool(one["correct"]))
    return list(answers.values())
