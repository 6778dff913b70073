"""Choose tokens from logits: vectorised numpy, keyed by (seed, position), every parameter a value and none a constant.

The uniform number of a draw is a hash of the request's seed and the index of the generated token, so a request's tokens
do not depend on the rest of the batch, on its id, or on when it joined. A token is the inverse of the cumulative
distribution, in order of token id, at that number; rounding noise in the logits therefore moves a choice only when the
number lies within that noise of a boundary.

Filters work on the tempered distribution: min_p (relative to the most likely token) and top_k first, then top_p on the
remainder, renormalised: the same order as in vLLM and transformers.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from inference.thoughts import ThoughtLimit
from inference.types import SamplingParams

GREEDY_BELOW = 1e-4
_FIRST_CANDIDATES = 256  # top_p looks at this many likely tokens before it sorts a whole vocabulary
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)

Floats = npt.NDArray[np.floating]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedParams(SamplingParams):
    """Parameters in the scheduler's form: in range, hashable, without seed and reporting options.

    Requests of one row whose checked parameters are equal are drawn and ended alike.

    Attributes:
        max_tokens: the context limit included.
        allowed: sorted.
        thought: `thinking_token_budget` for this prompt; None for no limit.
    """

    max_tokens: int
    stop_ids: frozenset[int]
    logit_bias: tuple[tuple[int, float], ...] = ()
    allowed: tuple[tuple[int, ...], ...] | None = None
    thought: ThoughtLimit | None = None

    def ids_after(self, tokens: Sequence[int]) -> Sequence[int] | None:
        """The tokens that may follow; None when any may."""
        if self.allowed is None:
            if self.thought and self.thought.must_close(tokens):
                return [self.thought.markers.close]
            return None if self.guide is None else self.guide.ids_after(tokens)
        done, begun = len(tokens), tuple(tokens)
        return sorted({ids[done] for ids in self.allowed if len(ids) > done and ids[:done] == begun})


def is_greedy(params: SamplingParams) -> bool:
    return params.temperature < GREEDY_BELOW


def is_filtered(params: SamplingParams) -> bool:
    """Whether some token may be excluded."""
    return params.top_p < 1.0 or params.top_k > 0 or params.min_p > 0.0


class Draw(NamedTuple):
    """Tokens drawn from one row and their log-probabilities under the distribution drawn from; both (M,)."""

    tokens: npt.NDArray[np.int64]
    logprobs: npt.NDArray[np.float64]


def uniforms(seeds: npt.NDArray[np.uint64], positions: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Numbers in [0, 1) for seeds (M,) at token indices (M,): two rounds of SplitMix64 (Steele, Lea, Flood 2014)."""
    bits = _mix(_mix(seeds) + (positions + np.uint64(1)) * _GOLDEN)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    x = x + _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def log_normalisers(logits: Floats) -> npt.NDArray[np.float64]:
    """Logsumexp of each row of (R, V). Not finite when the row holds a NaN or +inf, or nothing but -inf."""
    top = logits.max(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", over="ignore"):
        total = np.exp(logits - top).sum(axis=-1, dtype=np.float64)
        result: npt.NDArray[np.float64] = top[:, 0].astype(np.float64) + np.log(total)
    return result


def draw(
    logits: Floats, params: SamplingParams | Sequence[SamplingParams], numbers: Sequence[npt.NDArray[np.float64]]
) -> list[Draw]:
    """Draws from each row of logits (R, V); numbers[r] (M_r,) are row r's uniforms, params those of all rows or each.

    A row's distribution is computed once, however many draws it serves, and rows are processed together whatever their
    parameters.
    """
    each = [params] * len(logits) if isinstance(params, SamplingParams) else params
    logits = _biased(logits, each)
    draws: dict[int, Draw] = {}
    greedy = [i for i, p in enumerate(each) if is_greedy(p)]
    if greedy:
        best = _rows(logits, greedy).argmax(axis=-1)
        draws.update((i, Draw(np.full(len(numbers[i]), b), np.zeros(len(numbers[i])))) for i, b in zip(greedy, best))
    mixed = [i for i, p in enumerate(each) if not is_greedy(p)]
    if mixed:
        scaled = _rows(logits, mixed)
        if any(each[i].temperature != 1.0 for i in mixed):
            scaled = scaled / np.array([each[i].temperature for i in mixed], dtype=np.float32)[:, None]
        weights = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
        plain = [k for k, i in enumerate(mixed) if not is_filtered(each[i])]
        if plain:
            rows = [mixed[k] for k in plain]
            draws.update(zip(rows, _invert(_rows(weights, plain), [numbers[i] for i in rows])))
        for k, i in enumerate(mixed):
            if is_filtered(each[i]):
                draws[i] = _draw_filtered(weights[k], each[i], numbers[i])
    return [draws[i] for i in range(len(each))]


def _rows(values: Floats, indices: Sequence[int]) -> Floats:
    """Some rows of (R, V); no copy if all are selected."""
    return values if len(indices) == len(values) else values[list(indices)]


def _biased(logits: Floats, each: Sequence[SamplingParams]) -> Floats:
    if not any(p.logit_bias for p in each):
        return logits
    logits = logits.copy()
    for row, p in zip(logits, each):
        for token, value in dict(p.logit_bias or ()).items():
            row[token] += np.float32(value)
    return logits


def _draw_filtered(weights: Floats, params: SamplingParams, numbers: npt.NDArray[np.float64]) -> Draw:
    ids = np.sort(_kept_ids(weights, params))
    [drawn] = _invert(weights[ids][None], [numbers])
    return Draw(ids[drawn.tokens], drawn.logprobs)


def _kept_ids(weights: Floats, params: SamplingParams) -> npt.NDArray[np.int64]:
    """Token ids kept by min_p, top_k and top_p from unnormalised probabilities (V,) whose maximum is 1."""
    if params.top_k == 0 and params.top_p >= 1.0:
        return np.flatnonzero(weights >= params.min_p)
    size = weights.shape[0]
    if 0 < params.top_k < size:
        ids = _most_likely(weights, params.top_k)
        ids = ids[weights[ids] >= params.min_p]
        total = weights[ids].sum(dtype=np.float64)
        return ids if params.top_p >= 1.0 else ids[: _nucleus(weights[ids], params.top_p * total)]
    total = weights[weights >= params.min_p].sum(dtype=np.float64)
    count = min(_FIRST_CANDIDATES, size)
    while True:
        ids = _most_likely(weights, count)
        ids = ids[weights[ids] >= params.min_p]
        cut = _nucleus(weights[ids], params.top_p * total)
        if cut < len(ids) or count == size or len(ids) < count:
            return ids[:cut]
        count = min(count * 16, size)


def _most_likely(weights: Floats, count: int) -> npt.NDArray[np.int64]:
    """The ids of the `count` largest weights, largest first; ties go to the smaller id."""
    if count < weights.shape[0]:
        threshold = np.partition(weights, -count)[-count]
        candidates = np.flatnonzero(weights >= threshold)
    else:
        candidates = np.arange(weights.shape[0])
    return candidates[np.argsort(-weights[candidates], kind="stable")[:count]]


def _nucleus(descending: Floats, mass: float) -> int:
    """How many leading weights are needed to reach the mass; at least one."""
    reached = np.searchsorted(np.cumsum(descending, dtype=np.float64), mass)
    return min(int(reached) + 1, len(descending))


def _invert(weights: Floats, numbers: Sequence[npt.NDArray[np.float64]]) -> list[Draw]:
    """The inverse of each row's cumulative sums at its numbers: weights (R, V), numbers[r] (M_r,) in [0, 1).

    A number is at most 1 - 2^-53 and a sum at least 1, so their product is below the sum however it is rounded, and
    the token found has a positive weight.
    """
    cumulative = weights.astype(np.float64)
    np.cumsum(cumulative, axis=-1, out=cumulative)  # three times as fast as with a `dtype`
    sizes = [len(own) for own in numbers]
    rows = np.repeat(np.arange(len(weights)), sizes)
    totals = cumulative[:, -1]
    targets = np.concatenate(numbers) * totals[rows]
    parts = [slice(end - size, end) for end, size in zip(itertools.accumulate(sizes), sizes)]
    picks = np.concatenate([sums.searchsorted(targets[part], "right") for sums, part in zip(cumulative, parts)])
    logprobs = np.log(weights[rows, picks].astype(np.float64)) - np.log(totals)[rows]
    return [Draw(picks[part], logprobs[part]) for part in parts]


def most_likely_tokens(logits: Floats, log_normaliser: float, count: int) -> list[tuple[int, float]]:
    """The `count` most likely (id, raw log-probability) pairs of one row (V,), best first."""
    ids = _most_likely(logits, min(count, logits.shape[0]))
    return [(int(i), float(logits[i]) - log_normaliser) for i in ids]
