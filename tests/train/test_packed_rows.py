"""Rows end to end: the hidden states and gradients of a model that sees each row alone."""

from __future__ import annotations

from itertools import accumulate, pairwise

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx import nn
from mlx.utils import tree_flatten
from mlx_lm.models import qwen3

from legos_train.bootstrap import pretrain
from legos_train.bootstrap.packed_rows import hidden_states, packed
from legos_train.bootstrap.training_rows import DialogueRow, RowGroup, Site, collate


def model() -> qwen3.Model:
    return pretrain.new_model(pretrain.model_config(40, pretrain.Shape(16, 2, 4, 2, 8, 24)), 0)


@st.composite
def groups(draw: st.DrawFn) -> RowGroup:
    """Rows of different lengths that share a prefix, or one row; some without a site, some with a site twice."""
    count = draw(st.integers(1, 4))
    prefix = draw(st.integers(0, 9)) if count > 1 else 0
    token = st.integers(0, 39)
    shared = draw(st.lists(token, min_size=prefix, max_size=prefix))
    rows = [shared + draw(st.lists(token, min_size=1, max_size=12)) for _ in range(count)]
    where = [(i, col) for i, row in enumerate(rows) for col in range(prefix, len(row))]
    sites = np.array(draw(st.lists(st.sampled_from(where), min_size=1, max_size=9)), np.int32)
    return RowGroup([np.array(row, np.int32) for row in rows], prefix, sites[:, 0], sites[:, 1])


def alone(model: qwen3.Model, parts: list[RowGroup]) -> mx.array:
    found = []
    for part in parts:
        states = [model.model(mx.array(row)[None])[0] for row in part.tokens]
        found += [states[row][int(col)] for row, col in zip(part.rows, part.cols, strict=True)]
    return mx.stack(found)


@given(st.lists(groups(), min_size=1, max_size=4))
@settings(max_examples=25, deadline=None)
def test_each_site_sees_its_own_row(parts: list[RowGroup]) -> None:
    net = model()
    count = sum(len(part.rows) for part in parts)
    weights = mx.array(np.random.default_rng(count).normal(size=(count, 16)).astype(np.float32))
    sides = []
    for compute in (hidden_states, alone):

        def loss(net: qwen3.Model, compute=compute) -> tuple[mx.array, mx.array]:  # type: ignore[no-untyped-def]
            hidden = compute(net, parts)
            return (hidden * weights).sum(), hidden

        (_, hidden), gradient = nn.value_and_grad(net, loss)(net)
        sides.append([np.asarray(hidden), *(np.asarray(g) for _, g in tree_flatten(gradient))])
    for a, b in zip(*sides, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5 * max(1.0, float(np.abs(b).max())), rtol=1e-3)


@given(st.lists(groups(), min_size=1, max_size=4))
@settings(max_examples=25, deadline=None)
def test_what_is_shared_is_computed_once_and_nothing_after_the_last_site(parts: list[RowGroup]) -> None:
    rows = packed(parts)
    wanted = 0
    for part in parts:
        ends = [max([c + 1 for r, c in zip(part.rows, part.cols, strict=True) if r == i], default=part.prefix) for i in
                range(len(part.tokens))]  # fmt: skip
        wanted += part.prefix + sum(end - part.prefix for end in ends)
    assert len(rows.tokens) == len(rows.positions) == wanted
    own = [span for _, span in rows.spans]
    assert all(a.stop == b.start for a, b in pairwise(own)) and own[-1].stop == wanted


def row(tokens: list[int], *sites: int, kind: int = 0) -> DialogueRow:
    return DialogueRow(tokens, [Site(at, {1: 1.0}, kind) for at in sites])


def test_three_rows_that_begin_alike_are_a_part_and_others_alone() -> None:
    start = list(range(20))
    many = [row([*start, 30 + i, 7, 7], 21, 22) for i in range(3)]
    two = [row([5, *start, 30 + i, 7], 22) for i in range(2)]
    batch = collate([*many, *two, row([9, 9, 9], 1), row([8, 8], *())])
    assert [(len(part.tokens), part.prefix) for part in batch.parts] == [(3, 20), (1, 0), (1, 0), (1, 0)]
    assert [part.size for part in batch.parts] == [20 + 3 * 3, 22 + 1, 23, 3]
    edges = [0, *accumulate(len(part.rows) for part in batch.parts)]
    assert edges[-1] == len(batch.kinds) == 9 and batch.weights.sum() == pytest.approx(1.0)
