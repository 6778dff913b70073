"""Products of a few rows with a weight matrix, which read the weights at the speed of memory.

OpenBLAS repacks a matrix before it multiplies, which costs more than the product itself where only a few rows share the
cost. With AVX-512, products of few enough results skip the repacking, so the outputs are computed in slices. Without, a
matrix-vector product for each row is faster for up to four rows, over slices that stay in the cache, and from there on
a matrix whose longer side is contiguous. Slices run on one thread however many OpenBLAS has, so large matrices are
divided among as many threads here.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import threadpoolctl

from inference.forward import fastblas, row_parts

FloatArray = npt.NDArray[np.float32]

FEW_ROWS = 16
_SOME_ROWS = 64
_DIVIDED_ROWS = 32  # up to which dividing slices among threads beats OpenBLAS's own threads
_NO_PACK = 1200  # OpenBLAS multiplies without packing below about this many results
_NO_PACK_WORK = 1_000_000
_LARGE = 1_500_000  # multiplications that are worth the 20 microseconds of another thread
_VECTORS = 4  # rows up to which as many matrix-vector products are faster where a matrix is repacked
_CACHED = 1 << 17  # weights that stay in a level 2 cache
_SMALL = 600_000  # weights up to which, with AVX-512, some tens of rows are fastest with a transposed copy
_NARROWEST = 16  # outputs of a slice; fewer cost more in calls than they save


def product(x: FloatArray, weight: FloatArray, transposed: FloatArray) -> FloatArray:
    """`x @ weight.T`, computed in whichever way is fastest for this many rows.

    Args:
        x: (rows, in).
        weight: (out, in), contiguous.
        transposed: (in, out): a view, or a copy with contiguous rows, which is faster where `copy_pays`.

    Returns:
        (rows, out).
    """
    rows, (out, width) = len(x), weight.shape
    threads = _threads(rows, out, width)
    copied = transposed.strides[1] == transposed.itemsize
    if rows == 1 and out < width:
        return x @ weight.T
    if copied and undivided(rows, out, width):
        return x @ transposed
    if threads == 1 and always_packs() and 1 < rows <= _VECTORS:
        chunk = _divisor(out, max(_NARROWEST, _CACHED // width))
        if chunk:
            return _by_vectors(x, weight.reshape(out // chunk, chunk, width).transpose(0, 2, 1))
    if 1 < rows <= FEW_ROWS or threads > 1:
        chunk = slice_size(rows, out, width)
        if chunk:
            return _sliced(x, weight.reshape(out // chunk, chunk, width).transpose(0, 2, 1), threads)
    if FEW_ROWS < rows <= _SOME_ROWS:
        return (weight @ x.T).T.copy()
    return x @ transposed


def undivided(rows: int, out: int, width: int) -> bool:
    """Whether a single product with a transposed copy is the fastest way for weights of this shape."""
    if _threads(rows, out, width) > 1:
        return False
    return always_packs() or rows == 1 or rows > (FEW_ROWS if out * width <= _SMALL else _SOME_ROWS)


def copy_pays(out: int, width: int) -> bool:
    """Whether a transposed copy of weights of this shape makes products faster."""
    return out > width or (out * width <= _SMALL and not always_packs())


def _threads(rows: int, out: int, width: int) -> int:
    return fastblas.threads() if 1 < rows <= _DIVIDED_ROWS and rows * out * width >= _LARGE else 1


def _sliced(x: FloatArray, slices: FloatArray, threads: int) -> FloatArray:
    """(rows, in) times (n, in, chunk) -> (rows, n * chunk)."""
    count, _, chunk = slices.shape
    y = np.empty((count, len(x), chunk), np.float32)
    parties = min(threads, count)
    edges = [count * i // parties for i in range(parties + 1)]
    parts = [slice(*pair) for pair in pairwise(edges)]
    waiting = [row_parts.pool(threads - 1).submit(_multiply, x[None], slices[part], y[part]) for part in parts[1:]]
    np.matmul(x[None], slices[parts[0]], y[parts[0]])
    for future in waiting:
        future.result()
    return y.transpose(1, 0, 2).reshape(len(x), count * chunk)


def _by_vectors(x: FloatArray, slices: FloatArray) -> FloatArray:
    """As `_sliced`, each row with a slice of the weights before the next slice is read."""
    y: FloatArray = np.matmul(x[None, :, None], slices[:, None])  # (n, rows, 1, chunk)
    return y[:, :, 0].swapaxes(0, 1).reshape(len(x), -1)


def _multiply(x: FloatArray, slices: FloatArray, y: FloatArray) -> None:
    with np.errstate(all="ignore"):  # each thread has settings of its own; the caller checks the results
        np.matmul(x, slices, y)


def slice_size(rows: int, out: int, width: int) -> int:
    """How many outputs to compute at a time for a few rows; 0: all at once."""
    most = min(out, _NO_PACK // rows, _NO_PACK_WORK // (rows * width))
    chunk = _divisor(out, most)
    return chunk if chunk < out else 0


@lru_cache(4096)
def _divisor(number: int, most: int) -> int:
    """The largest divisor up to `most` that makes a slice worth it; 0: there is none."""
    return next((divisor for divisor in range(min(number, most), _NARROWEST - 1, -1) if number % divisor == 0), 0)


@lru_cache(maxsize=1)
def always_packs() -> bool:
    """Whether numpy's OpenBLAS repacks small matrices too: its kernels for x86 without AVX-512 do."""
    libraries = threadpoolctl.ThreadpoolController().select(internal_api="openblas").info()
    return any(library.get("architecture") in ("Haswell", "Zen") for library in libraries)
