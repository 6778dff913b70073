"""From a batch's logits to a draw for every request of every row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from inference.engine.rows import Cohort, Outcome, Row
from inference.engine.sampling import Draw, Floats, draw, is_greedy, log_normalisers, most_likely_tokens, uniforms


def draw_all(rows: Sequence[Row], logits: Floats) -> dict[Row, Outcome]:
    """Draws for every request of every row from logits (n, V); rows with non-finite logits are left out."""
    normalisers = log_normalisers(logits)
    finite = np.isfinite(normalisers)
    members = [(i, j, cohort) for i, row in enumerate(rows) if finite[i] for j, cohort in enumerate(row.cohorts)]
    draws: dict[tuple[int, int], Draw] = {}
    bound = {(i, j): ids for i, j, cohort in members if (ids := cohort.params.ids_after(rows[i].tokens)) is not None}
    free = [(i, j, cohort) for i, j, cohort in members if (i, j) not in bound]
    if free:
        numbers = _numbers(rows, free)
        chosen = [i for i, _, _ in free]
        selected = logits if chosen == list(range(len(logits))) else logits[chosen]
        params = [cohort.params for _, _, cohort in free]
        for (i, j, _), drawn in zip(free, draw(selected, params, numbers)):
            draws[i, j] = drawn
    for i, j, cohort in members:
        if (i, j) in bound:
            [number] = _numbers(rows, [(i, j, cohort)])
            draws[i, j] = _draw_among(logits[i], cohort, bound[i, j], number)
    outcomes = {}
    for i, row in enumerate(rows):
        if finite[i]:
            norm = float(normalisers[i])
            top = most_likely_tokens(logits[i], norm, row.top_logprobs) if row.top_logprobs else None
            outcomes[row] = Outcome([draws[i, j] for j in range(len(row.cohorts))], logits[i], norm, top)
    return outcomes


def _numbers(rows: Sequence[Row], members: Sequence[tuple[int, int, Cohort]]) -> list[np.ndarray]:
    """The uniform numbers of these cohorts' requests, one array (M,) per cohort; zeros if all are greedy."""
    sizes = [len(cohort.ids) for _, _, cohort in members]
    if all(is_greedy(cohort.params) for _, _, cohort in members):
        return [np.zeros(size) for size in sizes]
    seeds = np.concatenate([cohort.seeds for _, _, cohort in members])
    positions = np.repeat(np.array([len(rows[i].tokens) for i, _, _ in members], dtype=np.uint64), sizes)
    uniform = uniforms(seeds, positions)
    return [uniform[end - size : end] for end, size in zip(np.cumsum(sizes).tolist(), sizes)]


def _draw_among(logits: Floats, cohort: Cohort, allowed: Sequence[int], number: np.ndarray) -> Draw:
    """Draws from the allowed tokens, which are sorted by id; logits (V,)."""
    ids = np.array(allowed, dtype=np.int64)
    bias = tuple((int(np.searchsorted(ids, t)), v) for t, v in cohort.params.logit_bias if t in ids)
    [drawn] = draw(logits[ids][None], replace(cohort.params, logit_bias=bias), [number])
    return Draw(ids[drawn.tokens], drawn.logprobs)
