"""Determines a server's behaviour on throwaway weights, since names and version numbers do not reveal it.

It tests how the server reduces a loss, whether it clips gradients, and whether weights saved for sampling stay fixed.
The gradient of one token is measured by its log-probability after a very small step; with an epsilon of Adam far above
the gradient that is plain gradient descent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from legos_train.errors import ConfigError
from legos_train.model.tinker.data import SampledSequence
from legos_train.model.tinker.reduction import recognise
from legos_train.model.tinker.training import Training

EPSILON = 1e3
FIRST_RATE = 1e-4  # starting low: one far too large step leaves weights that no longer move
SHIFTS = (0.01, 0.4)  # nats that a step should move a token: well above rounding, and still nearly linear
TRIES = 12
LONGER = 4
TINY_CLIP = 1e-9


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """A server's behaviour.

    Attributes:
        reduction: one of `REDUCTIONS`.
        clips: whether it holds the gradient's norm below `grad_clip_norm`.
        frozen: whether weights saved for sampling stay fixed while training continues.
    """

    reduction: str
    clips: bool
    frozen: bool


def probe(training: Training, prompt: Sequence[int], token: int) -> ProbeResult:
    """Tests a server on one token after a prompt. The weights are useless afterwards.

    Raises:
        ConfigError: it reduces its losses in no known way, or steps have no effect.
    """
    service = training.service
    short = _item(prompt, token, [])
    long = _item(prompt, token, [token, *prompt] * LONGER)
    rate = FIRST_RATE

    def shift(parts: Sequence[SampledSequence], rate: float, clip: float = 0.0) -> float:
        """How much a step moves the token, per unit of learning rate."""
        before = training.logprobs(parts)
        training.gradient(parts, before)
        training.step(rate * EPSILON, beta1=0.0, beta2=0.999, eps=EPSILON, weight_decay=0.0, grad_clip_norm=clip)
        return float(training.logprobs(parts)[0][0] - before[0][0]) / rate

    for _ in range(TRIES):
        alone = shift([short], rate)
        if SHIFTS[0] <= alone * rate <= SHIFTS[1]:
            break
        rate *= 4.0 if abs(alone * rate) < SHIFTS[0] else 0.1
    else:
        raise ConfigError(
            f"{service.url}: training on one token did not raise its probability (last: {alone:.3g} nats)"
        )
    longer, beside, again = shift([long], rate), shift([short, long.silent], rate), shift([short], rate)
    try:  # the gradient itself changes over time, so each is compared with its current value
        middle = np.sqrt(abs(alone * again))
        reduction = recognise(middle, longer, beside, (len(short), len(long)))
    except ValueError as error:
        raise ConfigError(f"{service.url} reduces its losses in an unknown way: {error}") from None
    path = training.save_for_sampling("probe")
    kept = training.sampler(path)
    first = _last(service, kept, short)
    clips = abs(shift([short], rate, TINY_CLIP)) < 0.1 * abs(again)
    shift([short], rate)
    frozen = abs(_last(service, kept, short) - first) < 0.1 * abs(again) * rate
    service.discard(path)
    return ProbeResult(reduction, clips, frozen)


def _item(prompt: Sequence[int], token: int, rest: Sequence[int]) -> SampledSequence:
    tokens = np.array([*prompt, *([token] if rest else []), *rest[1:]], dtype=np.int32)
    targets = np.append(tokens[1:], token).astype(np.int64)
    place = len(prompt) - 1
    targets[place] = token
    return SampledSequence(tokens, targets, np.array([place]), np.zeros(1), np.ones(1), (np.zeros(1, dtype=np.int64),))


def _last(service: Any, sampler: Any, part: SampledSequence) -> float:
    """The log-probability of the last token after the others."""
    whole = service.sdk.types.ModelInput.from_ints(part.whole)
    return float(service.begin("score tokens", sampler.compute_logprobs(whole))[-1])
