"""Products of a few rows: the ways they are computed, and the threads among which they are divided."""

from __future__ import annotations

import os
import threading
import time
import warnings

import numpy as np
import pytest

from inference.forward import fastblas, few_rows, row_parts

RNG = np.random.default_rng(0)
WIDE = RNG.normal(size=(4096, 1024)).astype(np.float32)
NARROW = WIDE[:512]  # fewer slices than threads, for 4 rows
X = RNG.normal(size=(32, 1024)).astype(np.float32)


def multiply(rows: int, weight: np.ndarray) -> np.ndarray:
    return few_rows.product(X[:rows], weight, weight.T)


@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize("weight", [WIDE, NARROW, WIDE[:7, :1000], WIDE[:521]], ids=["wide", "narrow", "odd", "prime"])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 16, 17, 64, 65])
def test_every_way_gives_the_product(
    rows: int, weight: np.ndarray, packs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few_rows, "always_packs", lambda: packs)
    x = np.resize(X[:, : weight.shape[1]], (rows, weight.shape[1]))
    own = np.ascontiguousarray(weight)
    expected = x.astype(np.float64) @ own.T.astype(np.float64)
    for transposed in (own.T, np.ascontiguousarray(own.T)):
        result = few_rows.product(x, own, transposed)
        assert result.flags.c_contiguous and result.flags.writeable
        np.testing.assert_allclose(result, expected, atol=1e-3)


@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize(
    ("shape", "from_rows"),
    [((2048, 128), (1, 17)), ((640, 900), (17,)), ((4096, 256), (1, 65))],
    ids=["small", "small and narrow", "large"],
)
def test_a_copy_is_used_where_it_pays(
    shape: tuple[int, int], from_rows: tuple[int, ...], packs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few_rows, "always_packs", lambda: packs)
    weight = WIDE.reshape(-1)[: shape[0] * shape[1]].reshape(shape)
    other = np.zeros_like(weight.T, order="C")  # not a copy: the result tells which was read
    read = {
        rows
        for rows in (1, 2, 16, 17, 64, 65)
        if not few_rows.product(np.ones((rows, shape[1]), "f4"), weight, other).any()
    }
    narrow = shape[0] < shape[1]
    some = {1} & set(from_rows) | {rows for rows in (17, 64, 65) if rows >= from_rows[-1]}
    assert read == ({1, 2, 16, 17, 64, 65} - ({1} if narrow else set()) if packs else some)
    assert few_rows.copy_pays(*shape) == (not narrow or not packs)


def test_matrices_of_few_slices_do_not_replace_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastblas, "threads", lambda: 8)
    assert len(NARROW) // few_rows.slice_size(4, *NARROW.shape) < 8
    names: list[str] = []
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda self: (names.append(self.name), start(self))[1])
    row_parts.pool.cache_clear()
    for _ in range(5):
        multiply(4, NARROW), multiply(4, WIDE)
    assert len(names) <= 7


def test_infinite_weights_warn_in_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastblas, "threads", lambda: 2)
    weight = WIDE.copy()
    weight[-1] = np.inf
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("error")
        assert not np.isfinite(multiply(32, weight)).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
def test_a_forked_process_has_threads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastblas, "threads", lambda: 2)
    expected = multiply(4, WIDE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about forking with threads
        child = os.fork()
    if not child:
        os._exit(int(np.array_equal(multiply(4, WIDE), expected)))
    end = time.monotonic() + 10
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < end:
        time.sleep(0.01)
    if not ended[0]:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert ended[0] and os.waitstatus_to_exitcode(ended[1]) == 1
