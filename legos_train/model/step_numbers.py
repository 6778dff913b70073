"""The numbers of a step from those of its parts: the passes of a learner, or several learners."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

TOGETHER: dict[str, Callable[[Iterable[Any]], Any]] = {
    **dict.fromkeys(("updates", "idle", "skipped"), sum),
    **dict.fromkeys(("finite", "ratio_min"), min),
    **dict.fromkeys(("grad_norm", "mismatch_max", "adapter_change", "staleness_max", "ratio_max"), max),
}
"""How to combine these; counts add up, and all others are means weighted by trained tokens."""


def combined(parts: Sequence[Mapping[str, Any]], tokens: Sequence[int]) -> dict[str, Any]:
    """The numbers of all parts together; a part may lack some, or have None for them.

    Args:
        parts: the numbers of each.
        tokens: how many trained tokens each had.
    """
    if len(parts) == 1:
        return dict(parts[0])
    out: dict[str, Any] = {}
    for key in dict.fromkeys(key for own in parts for key in own):
        values, weights = zip(*((own.get(key), count) for own, count in zip(parts, tokens, strict=True)))
        found = [(value, weight) for value, weight in zip(values, weights) if value is not None]
        if key in TOGETHER and found:
            out[key] = TOGETHER[key](value for value, _ in found)
        elif any(isinstance(value, Mapping) for value, _ in found):  # counts, such as tokens by staleness
            counts = Counter[str]()
            for value, _ in found:
                counts.update(value)
            out[key] = dict(counts)
        elif total := sum(weight for _, weight in found):
            out[key] = sum(value * weight for value, weight in found) / total
        elif found:
            out[key] = found[0][0]
    return out
