"""The log-probabilities of a prompt's own tokens, in stretches, so that other requests run in between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from inference.adapters import AdapterVersion
from inference.engine.model_runner import ModelRunner
from inference.engine.sampling import log_normalisers, most_likely_tokens
from inference.forward import Fed

_MAX_LOGITS = 1 << 24  # numbers in the logits (L, V) of one stretch: 64 MiB


class PromptPart(NamedTuple):
    """Some tokens of a prompt: their raw log-probabilities, and the likeliest (id, logprob) pairs at each position."""

    logprobs: list[float]
    tops: list[list[tuple[int, float]]]


def read_prompt(
    runner: ModelRunner, prompt: tuple[int, ...], adapter: AdapterVersion, top: int
) -> Iterator[PromptPart]:
    """Parts that together cover all tokens but the first, which has no predecessor.

    Cached prefixes are not used: they hold keys and values, but no logits.

    Raises:
        FloatingPointError: the model's logits are not finite.
    """
    kv = runner.new_kv()
    kv.reserve(1, len(prompt))
    width = max(1, min(runner.prefill_tokens, _MAX_LOGITS // runner.vocab))
    for start in range(0, len(prompt) - 1, width):
        targets = prompt[start + 1 : start + 1 + width]
        tokens = np.array([prompt[start : start + len(targets)]], dtype=np.int32)
        logits = runner.forward(kv, Fed(0, [start], tokens, [adapter]))[0]
        norms = log_normalisers(logits)
        if not np.isfinite(norms).all():
            raise FloatingPointError("the model's logits are not finite for this adapter and prompt")
        logprobs = logits[np.arange(len(targets)), list(targets)] - norms
        tops = [most_likely_tokens(row, float(norm), top) for row, norm in zip(logits, norms)] if top else []
        yield PromptPart(logprobs.tolist(), tops)
