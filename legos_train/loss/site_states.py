"""Hidden states at the sites of a batch, whose logits are computed some sites at a time.

With the vocabulary of a real model, logits, log-probabilities, probabilities and their gradients are most of the memory
of a step: 4,096 sites of 150,000 tokens take 2.5 GB each. What a loss needs of them is a few numbers per site, and the
backward pass computes the logits again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from inference.forward import fastmath
from legos_train.loss.batch import Batch
from legos_train.loss.penalties import distribution

NUMBERS = 1 << 25
"""Up to this many logits, 128 MiB in float32, are computed at once. A step keeps seven such arrays."""
AT_A_TIME = 1 << 24
"""How many of more are computed at a time. Up to 18 such arrays exist at once, since MLX works ahead."""

Statistics = Callable[[mx.array, mx.array, slice, NDArray[np.int64]], Sequence[mx.array]]
"""Log-probabilities and probabilities (k, V), which sites these are, which tokens (m,) were sampled there -> arrays."""


def sites_at_once(vocabulary: int) -> int:
    """Up to how many sites the logits are computed at once."""
    return max(1, NUMBERS // vocabulary)


class SiteStates(NamedTuple):
    """Hidden states and what turns them into logits.

    Attributes:
        hidden: (K, H).
        head: (k, H) -> logits (k, V).
        vocabulary: V.
    """

    hidden: mx.array
    head: Callable[[mx.array], mx.array]
    vocabulary: int

    def logits(self) -> mx.array:
        """All of them, (K, V)."""
        return self.head(self.hidden)

    @property
    def fits(self) -> bool:
        """Whether the logits of all sites may be computed at once."""
        return self.hidden.shape[0] <= sites_at_once(self.vocabulary)

    def measured(
        self, batch: Batch, statistics: Statistics
    ) -> Iterator[tuple[NDArray[np.int64], tuple[mx.array, ...]]]:
        """What `statistics` gives for some sites at a time, each time with the tokens sampled there.

        Nothing of size (k, V) is kept for the backward pass. Both passes go from one group of sites to the next: MLX
        would else begin with all of them.
        """
        order = np.argsort(batch.position, kind="stable")
        ordered, step = batch.position[order], max(1, AT_A_TIME // self.vocabulary)
        last: list[mx.array] = []
        last_gradients: list[mx.array] = []
        for first in range(0, self.hidden.shape[0], step):
            sites = slice(first, first + step)
            tokens = order[slice(*np.searchsorted(ordered, [first, first + step]))]

            def plainly(
                hidden: mx.array, sites: slice = sites, tokens: NDArray[np.int64] = tokens
            ) -> tuple[mx.array, ...]:
                with fastmath.lazily():
                    return tuple(statistics(*distribution(self.head(hidden).astype(mx.float32)), sites, tokens))

            @mx.custom_function
            def run(hidden: mx.array, plainly: Any = plainly) -> Any:
                return plainly(_after(hidden, last))

            @run.vjp
            def back(hidden: mx.array, cotangents: Any, _: Any, plainly: Any = plainly) -> mx.array:
                _, last_gradients[:] = mx.vjp(
                    plainly, [_after(hidden, [*cotangents, *last_gradients])], list(cotangents)
                )
                return last_gradients[0]

            found: tuple[mx.array, ...] = cast(Any, run)(self.hidden[sites])
            last[:] = found
            yield tokens, found

    def sampled(self, batch: Batch) -> mx.array:
        """Log-probabilities (M,) of the sampled tokens, without a gradient."""
        if self.fits:
            logprobs, _ = distribution(self.logits().astype(mx.float32))
            return logprobs[mx.array(batch.position), mx.array(batch.target)]

        def chosen(logprobs: mx.array, _: mx.array, sites: slice, tokens: NDArray[np.int64]) -> list[mx.array]:
            return [logprobs[mx.array(batch.position[tokens] - sites.start), mx.array(batch.target[tokens])]]

        out = np.empty(len(batch), dtype=np.float32)
        for tokens, (logprobs,) in self.measured(batch, chosen):
            out[tokens] = np.array(logprobs)
        return mx.array(out)


def _after(array: mx.array, others: list[mx.array]) -> mx.array:
    """The array, computed after others."""
    return mx.depends(array, others) if others else array
