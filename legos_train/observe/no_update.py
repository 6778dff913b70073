"""Why a run made no update, from its metrics rows, and what to change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

MOSTLY = 0.9
"""Share of episodes above which their common outcome counts as the reason."""

MetricsRow = Mapping[str, Any]


def what_to_change(records: Sequence[MetricsRow]) -> str:
    """The likeliest reason for a run without updates, and the setting that changes it."""
    episodes = sum(r.get("episodes") or 0 for r in records)
    endings: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    for record in records:
        endings.update(record.get("outcomes") or {})
        lost.update({name: count for name, count in (record.get("dropped") or {}).items() if isinstance(count, int)})
        lost.update({name: count for name, count in (record.get("left_out") or {}).items() if isinstance(count, int)})
    if not episodes:
        return "no episode was played; look at the arena's get_batch"
    if endings["unscored"] >= MOSTLY * episodes:
        return (
            f"{endings['unscored']} of {episodes} episodes could not be scored: no verdict could be parsed; "
            "give it a model that can judge (--seat judge=MODEL) or a scripted player"
        )
    broken = [r["invalid_rate"] for r in records if r.get("invalid_rate") is not None]
    if broken and sum(broken) / len(broken) >= MOSTLY:
        return (
            f"in {sum(broken) / len(broken):.0%} of the games the policy made an invalid move: the model does not "
            "know the format; start with one that does (--model, --init-adapter), or give more retries (--arg "
            "invalid_retries=3)"
        )
    if lost["not_finite"] >= MOSTLY * episodes:
        return f"{lost['not_finite']} of {episodes} episodes had a reward that is not finite: fix the reward"
    turns = sum(r.get("turns") or 0 for r in records)
    for name, advice in (
        ("too_long", "prompts and actions did not fit: raise --context"),
        ("cut", "actions were cut off by the token limit: raise --sampling.max-tokens"),
        ("stale", "turns were too old: raise --asynchronous.max-off-policy-steps"),
    ):
        if turns and lost[name] >= MOSTLY * turns:
            return f"{lost[name]} of {turns} {advice}"
    if lost["filtered"] and not any(r.get("zero_advantages") is not None for r in records):
        return "filter.keep removed every trajectory: use --filter.keep all, or an easier task"
    if sum(r.get("skipped") or 0 for r in records):
        return "no update was finite: try a smaller --optim.lr"
    means = sorted({round(v, 4) for r in records for v in (r.get("reward") or {}).values() if v is not None})
    seen = f" (mean rewards from {means[0]:g} to {means[-1]:g})" if means else ""
    return (
        f"every advantage was 0: all compared returns were equal{seen}, or groups held one episode each; make the "
        "task easier or harder, compare more episodes (--group-size, --batch-size), or start with a stronger model"
    )
