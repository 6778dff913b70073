"""How a server normalises the loss of a call, and how to scale advantages to undo it.

Names do not reveal it: the hosted service sums over tokens, SkyRL's JAX backend averages over each sequence and then
over sequences. `loss.aggregation` decides how Legos aggregates a batch, so the server's normalisation is undone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Lengths = NDArray[np.float64]
REDUCTIONS: dict[str, Callable[[Lengths], Lengths]] = {
    "sum": np.ones_like,
    "mean over sequences of the sum": lambda n: np.full_like(n, len(n)),
    "mean over tokens": lambda n: np.full_like(n, n.sum()),
    "mean over sequences of the mean": lambda n: n * len(n),
}
"""By name, the divisor of a sequence's loss, from the lengths (B,) of all sequences of a call."""
TOLERANCE = 0.2


def recognise(alone: float, longer: float, beside: float, lengths: tuple[int, int]) -> str:
    """The reduction that explains three measurements of one token's gradient.

    Args:
        alone: the token in a sequence of the first length.
        longer: the same token followed by tokens without advantage, up to the second length.
        beside: the first sequence in one call with the second, whose advantages are zero.
        lengths: lengths of the two sequences.

    Raises:
        ValueError: none does; the message has the measurements and what each reduction would give.
    """
    seen = np.array([longer, beside]) / alone
    short, long = (np.array([float(n)]) for n in lengths)
    told = []
    for name, divisor in REDUCTIONS.items():
        own = divisor(short)[0]
        wanted = own / np.array([divisor(long)[0], divisor(np.concatenate([short, long]))[0]])
        if np.all(np.abs(np.log(seen / wanted)) < TOLERANCE if np.all(seen > 0) else [False]):
            return name
        told.append(f"{name}: {wanted[0]:.3f} and {wanted[1]:.3f}")
    raise ValueError(
        f"with a longer sequence the gradient of a token is {seen[0]:.3f} of what it was, and next to another "
        f"{seen[1]:.3f}; known are {'; '.join(told)}"
    )


def undone(name: str, lengths: Sequence[int]) -> Lengths:
    """Factors of the advantages of each sequence of a call, (B,)."""
    return REDUCTIONS[name](np.asarray(lengths, dtype=np.float64))
