"""Teacher-forced evaluation: how likely the model finds given tokens.

It has its own KV cache, so running rows are untouched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from inference.adapters import AdapterVersion
from inference.engine.model_runner import ModelRunner
from inference.engine.rows import Row
from inference.engine.sampling import Floats, log_normalisers
from inference.forward import Fed

Ids = tuple[int, ...]
_MAX_LOGITS = 1 << 25  # numbers in one (rows, L, V) block of logits: 128 MiB


def next_logits(runner: ModelRunner, prompts: Sequence[Ids], adapter: AdapterVersion, max_rows: int) -> Floats:
    """Logits (n, V) after each prompt; equal prompts are computed once.

    Cached prefixes are not used: earlier results would change the last bits, and a canary compares every bit.
    """
    distinct = sorted(set(prompts), key=lambda p: (len(p), p))
    results: dict[Ids, Floats] = {}
    for start in range(0, len(distinct), max_rows):
        chunk = distinct[start : start + max_rows]
        for row, logits in _prefill(runner, runner.new_kv(), chunk, adapter, warm=False):
            results[row.prompt] = logits
    return np.stack([results[p] for p in prompts]) if prompts else np.zeros((0, runner.vocab), np.float32)


def score(
    runner: ModelRunner, pairs: Sequence[tuple[Ids, Ids]], adapter: AdapterVersion, max_rows: int
) -> list[npt.NDArray[np.float64]]:
    """Log-probability of each token of each continuation after its prompt, for (prompt, continuation) pairs."""
    if not runner.forward.batches:
        return [_score_alone(runner, *pair, adapter) for pair in pairs]
    by_prompt: dict[Ids, list[Ids]] = {}
    for prompt, continuation in dict.fromkeys(pairs):
        by_prompt.setdefault(prompt, []).append(continuation)
    distinct = sorted(by_prompt, key=lambda p: (len(p), p))
    results: dict[tuple[Ids, Ids], npt.NDArray[np.float64]] = {}
    for start in range(0, len(distinct), max_rows):
        kv = runner.new_kv()
        rows: dict[Ids, Row] = {}
        for row, logits in _prefill(runner, kv, distinct[start : start + max_rows], adapter):
            rows[row.prompt] = row
            norm = _finite(log_normalisers(logits[None]))[0]
            for continuation in by_prompt[row.prompt]:
                first = [float(logits[continuation[0]]) - norm] if continuation else []
                results[row.prompt, continuation] = np.array(first)
        longer = [(rows[p], c) for p in rows for c in by_prompt[p] if len(c) > 1]
        for chunk, tails in _tails(runner, kv, longer, len(rows), max_rows):
            for (row, continuation), tail in zip(chunk, tails):
                key = (row.prompt, continuation)
                results[key] = np.concatenate([results[key], tail])
    return [results[pair].copy() for pair in pairs]


def _score_alone(
    runner: ModelRunner, prompt: Ids, continuation: Ids, adapter: AdapterVersion
) -> npt.NDArray[np.float64]:
    """One pair in one pass, for models whose rows cannot be copied."""
    if not continuation:
        return np.zeros(0)
    tokens = np.array([(*prompt, *continuation[:-1])], dtype=np.int32)
    logits = runner.forward(runner.new_kv(), Fed(0, [0], tokens, [adapter]))[0, len(prompt) - 1 :]
    return _finite(logits[np.arange(len(continuation)), list(continuation)] - log_normalisers(logits))


def _prefill(
    runner: ModelRunner, kv: Any, prompts: Sequence[Ids], adapter: AdapterVersion, *, warm: bool = True
) -> Iterator[tuple[Row, Floats]]:
    """Feeds prompts in slots 0..n-1 of the KV cache; yields the rows with the logits (V,) after each."""
    rows = [Row(p, adapter, [], len(p), pending=p, slot=slot) for slot, p in enumerate(prompts)]
    kv.reserve(len(rows), 0)
    if warm:
        runner.warm(kv, rows)
    for batch, logits in runner.feed(kv, rows):
        for row, row_logits in zip(batch, logits):
            row.pos, row.pending = len(row.prompt), ()
            yield row, row_logits  # type: ignore[misc]


def _tails(
    runner: ModelRunner, kv: Any, work: Sequence[tuple[Row, Ids]], base: int, max_rows: int
) -> Iterator[tuple[Sequence[tuple[Row, Ids]], list[npt.NDArray[np.float64]]]]:
    """Log-probabilities of all but the first continuation token, in chunks, on copies of the prompts' slots."""
    work = sorted(work, key=lambda item: len(item[1]))
    while work:
        count = min(max_rows, len(work))
        while count > 1 and count * len(work[count - 1][1]) * runner.vocab > _MAX_LOGITS:
            count -= 1
        chunk, work = work[:count], work[count:]
        kv.reserve(base + count, 0)
        kv.copy([(base + i, row.slot, row.pos) for i, (row, _) in enumerate(chunk)])
        width = max(len(c) for _, c in chunk) - 1
        tokens, targets = np.zeros((2, count, width), dtype=np.int32)
        for i, (_, c) in enumerate(chunk):
            tokens[i, : len(c) - 1], targets[i, : len(c) - 1] = c[:-1], c[1:]
        offsets, adapters = [row.pos for row, _ in chunk], [row.adapter for row, _ in chunk]
        logits = runner.forward(kv, Fed(base, offsets, tokens, adapters))
        picked = np.take_along_axis(logits, targets[..., None].astype(np.int64), axis=-1)[..., 0]
        values = picked - log_normalisers(logits.reshape(-1, logits.shape[-1])).reshape(picked.shape)
        yield chunk, [_finite(values[i, : len(c) - 1]) for i, (_, c) in enumerate(chunk)]


def _finite(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    if not np.isfinite(values).all():
        raise FloatingPointError("the model's logits are not finite for this adapter and prompt; nothing is scored")
    return values
