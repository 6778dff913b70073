"""Elementwise work in parts and on several threads: the same bits, every row once."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.forward import fastblas, row_parts
from inference.forward.host_layers import Norm, rotate, swiglu


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(fastblas, "threads", lambda: request.param)
    row_parts.pool.cache_clear()
    yield request.param
    row_parts.pool.cache_clear()


@given(rows=st.integers(0, 70), width=st.integers(1, 1 << 16), threads=st.integers(1, 5))
def test_every_row_is_worked_on_once(rows: int, width: int, threads: int) -> None:
    seen = np.zeros(rows, int)

    def work(part: slice) -> None:
        seen[part] += 1
        assert part.stop - part.start <= max(1, row_parts.PART // width)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fastblas, "threads", lambda: threads)
        row_parts.pool.cache_clear()
        row_parts.in_parts(work, rows, width)
    assert (seen == 1).all()


def test_parts_give_the_bits_of_the_whole(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x, gate, up = (rng.normal(size=(700, 640)).astype(np.float32) for _ in range(3))
    heads, angles = x.reshape(700, 10, 64), rng.normal(size=(2, 700, 1, 2, 24)).astype(np.float32)
    norm, each = (Norm(rng.normal(size=shape).astype(np.float32), 1e-6) for shape in (640, (10, 64)))

    def numbers() -> list[np.ndarray]:
        return [norm(x), each(heads), swiglu(gate, up.copy()), rotate(heads, *angles)]

    assert x.size > row_parts.LARGE
    parts = numbers()
    monkeypatch.setattr("inference.forward.host_layers.PART", x.size)
    for one, other in zip(parts, numbers(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_large_work_takes_all_threads_and_little_work_one(threads: int) -> None:
    for rows, expected in ((600, threads), (200, 1)):
        names = set()
        row_parts.in_parts(lambda part, names=names: names.add(threading.current_thread().name), rows, 1000)
        assert 1 <= len(names) <= expected and (len(names) == 1 or expected > 1)
        if expected > 1:
            assert len(names) > 1, "the caller works on one share only"


def test_an_error_in_a_thread_is_raised_and_an_overflow_is_not_reported(threads: int) -> None:
    def work(part: slice) -> None:
        if part.stop == 600:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        row_parts.in_parts(work, 600, 1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        huge = np.full((600, 1000), 1e38, np.float32)
        assert np.isinf(swiglu(huge, huge.copy())).all()
