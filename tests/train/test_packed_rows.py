"""Rows end to end: the hidden states and gradients of a model that sees each row alone."""

from __future__ import annotations

from itertools import pairwise

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx import nn
from mlx.utils import tree_flatten
from mlx_lm.models import qwen3

from legos_train.bootstrap import packed_rows, pretrain
from legos_train.bootstrap.packed_rows import packed, packed_hidden

Rows = tuple[list[np.ndarray], np.ndarray, np.ndarray]


def model() -> qwen3.Model:
    return pretrain.new_model(pretrain.model_config(40, pretrain.Shape(16, 2, 4, 2, 8, 24)), 0)


@st.composite
def trees(draw: st.DrawFn) -> Rows:
    """Rows that continue each other's beginnings, equal ones and parts of others among them; sites anywhere, some
    twice; rows without a site.
    """
    token = st.integers(0, 39)
    rows = [draw(st.lists(token, min_size=1, max_size=14))]
    for _ in range(draw(st.integers(0, 5))):
        parent = draw(st.sampled_from(rows))
        cut = draw(st.integers(0, len(parent)))
        more = draw(st.lists(token, min_size=0 if cut else 1, max_size=8))
        rows.append([*parent[:cut], *more])
    where = [(i, col) for i, row in enumerate(rows) for col in range(len(row))]
    sites = np.array(draw(st.lists(st.sampled_from(where), min_size=1, max_size=12)), np.int32)
    return [np.array(row, np.int32) for row in rows], sites[:, 0], sites[:, 1]


@pytest.fixture(autouse=True, scope="module")
def short_pieces() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_rows, "SHORTEST", 3)
        yield


@given(trees())
@settings(max_examples=40, deadline=None)
def test_each_site_sees_its_own_row(batch: Rows) -> None:
    rows, site_rows, site_cols = batch
    net = model()
    weights = mx.array(np.random.default_rng(len(site_rows)).normal(size=(len(site_rows), 16)).astype(np.float32))

    def alone(net: qwen3.Model) -> mx.array:
        states = [net.model(mx.array(row)[None])[0] for row in rows]
        return mx.stack([states[row][int(col)] for row, col in zip(site_rows, site_cols, strict=True)])

    sides = []
    for compute in (lambda net: packed_hidden(net, packed(*batch)), alone):

        def loss(net: qwen3.Model, compute=compute) -> tuple[mx.array, mx.array]:  # type: ignore[no-untyped-def]
            hidden = compute(net)
            return (hidden * weights).sum(), hidden

        (_, hidden), gradient = nn.value_and_grad(net, loss)(net)
        sides.append([np.asarray(hidden), *(np.asarray(g) for _, g in tree_flatten(gradient))])
    for a, b in zip(*sides, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5 * max(1.0, float(np.abs(b).max())), rtol=1e-3)


@given(trees())
@settings(max_examples=60, deadline=None)
def test_pieces_spell_the_rows_and_long_beginnings_run_once(batch: Rows) -> None:
    rows, site_rows, site_cols = batch
    laid = packed(*batch)
    assert all(a.stop == b.start for a, b in pairwise(laid.own)) and laid.own[-1].stop == len(laid.tokens)
    assert all(own.stop > own.start for own in laid.own)
    for row, col, place in zip(site_rows, site_cols, laid.sites[laid.site], strict=True):
        chain = next(chain for chain in laid.pieces if chain[-1].start <= place < chain[-1].stop)
        spelled = np.concatenate([laid.tokens[part] for part in chain])[: col + 1]
        assert spelled.tolist() == rows[row][: col + 1].tolist() and laid.positions[place] == col
    ends = np.zeros(len(rows), int)
    np.maximum.at(ends, site_rows, site_cols + 1)
    needed = sorted(tuple(row[:end].tolist()) for row, end in zip(rows, ends, strict=True) if end)
    nodes = {row[:i] for row in needed for i in range(1, len(row) + 1)}
    common = min(
        len(needed[0]), *(i for i, (a, b) in enumerate(zip(needed[0], needed[-1], strict=False)) if a != b), 99
    )
    most = sum(map(len, needed)) - (common * (len(needed) - 1) if common >= packed_rows.SHORTEST else 0)
    assert len(nodes) <= len(laid.tokens) <= most
