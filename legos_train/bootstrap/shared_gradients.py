"""The gradients of a batch, the work of two processes.

The loss is a sum over the parts of a batch, and so is its gradient. A batch is always divided in the same two halves,
whose gradients are added: whether one process computes both or two share them, the result is the same, bit for bit.
"""

from __future__ import annotations

import multiprocessing
import signal
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Any, NamedTuple, cast

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx import nn
from mlx.utils import tree_flatten, tree_unflatten

from legos_train.bootstrap.pretraining_loss import Readers, batch_loss
from legos_train.bootstrap.training_rows import PretrainingBatch, RowGroup

Arrays = dict[str, npt.NDArray[np.float32]]


class Gradients(NamedTuple):
    """loss: a number; divergence (N,) in nats at each site; arrays: the gradient of each weight by name."""

    loss: float
    divergence: npt.NDArray[np.float32]
    arrays: Arrays


class SharedGradients:
    """Computes gradients, with a second process if asked to; a context manager that ends it.

    Args:
        readers: the model and its readers.
        second: whether to start another process, which takes half of the work.
        threads: BLAS threads of the other process.
    """

    def __init__(self, readers: Readers, second: bool = False, threads: int = 1):
        self.readers = readers
        self._loss = nn.value_and_grad(readers, batch_loss)
        self._pool: ProcessPoolExecutor | None = None
        if second:
            self._pool = ProcessPoolExecutor(
                1,
                multiprocessing.get_context("spawn"),
                _begin,
                (vars(readers.model.args), readers.readers.shape[0], threads),
            )

    def __call__(self, batch: PretrainingBatch) -> Gradients:
        """The gradients of `batch_loss`.

        Raises:
            RuntimeError: the second process ended.
        """
        sites, parts = zip(*halves(batch), strict=True)
        waiting: Future[Gradients] | None = None
        if self._pool is not None and len(parts) > 1:
            try:
                waiting = self._pool.submit(_in_second, _arrays(self.readers.parameters()), parts[1])
                results = [self._of(parts[0]), waiting.result()]
            except BrokenProcessPool as error:
                raise RuntimeError(
                    "the second process ended, perhaps for lack of memory; nothing after the last finished part was "
                    "saved. Repeat the command to continue from there"
                ) from error
        else:
            results = [self._of(part) for part in parts]
        divergence = np.empty(len(batch.kinds), np.float32)
        for at, one in zip(sites, results, strict=True):
            divergence[at] = one.divergence
        arrays = results[0].arrays
        for one in results[1:]:
            arrays = {name: array + one.arrays[name] for name, array in arrays.items()}
        return Gradients(sum(one.loss for one in results), divergence, arrays)

    def _of(self, part: PretrainingBatch) -> Gradients:
        return gradients_of(self._loss, self.readers, part)

    def __enter__(self) -> SharedGradients:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def halves(batch: PretrainingBatch) -> list[tuple[npt.NDArray[np.int64], PretrainingBatch]]:
    """One or two batches with about as many tokens each, and the indices of their sites in `batch`."""
    ends = np.cumsum([len(part.rows) for part in batch.parts])
    chosen: tuple[list[int], list[int]] = ([], [])
    tokens = [0, 0]
    for i in sorted(range(len(batch.parts)), key=lambda i: -_tokens(batch.parts[i])):
        lighter = int(tokens[1] < tokens[0])
        chosen[lighter].append(i)
        tokens[lighter] += _tokens(batch.parts[i])
    result = []
    for numbers in filter(None, map(sorted, chosen)):
        at = np.concatenate([np.arange(ends[i] - len(batch.parts[i].rows), ends[i]) for i in numbers])
        arrays = (array[at] for array in batch[1:])
        result.append((at, PretrainingBatch([batch.parts[i] for i in numbers], *arrays)))
    return result


def _tokens(part: RowGroup) -> int:
    rows, length = part.tokens.shape
    return part.prefix + rows * (length - part.prefix)


def gradients_of(loss: Any, readers: Readers, batch: PretrainingBatch) -> Gradients:
    """What `loss`, a `value_and_grad` of `batch_loss`, returns, as numbers and numpy arrays."""
    (value, divergence), gradients = loss(readers, batch)
    mx.eval(value, divergence, gradients)
    return Gradients(value.item(), np.array(divergence), _arrays(gradients))


def _arrays(tree: Any) -> Arrays:
    return {name: np.array(array) for name, array in cast(list[tuple[str, mx.array]], tree_flatten(tree))}


_second: list[tuple[Any, Readers]] = []
"""In the second process: the loss with its gradient, and the model."""


def _begin(shape: dict[str, Any], count: int, threads: int) -> None:
    from mlx_lm.models import qwen3

    from inference.forward import fastblas
    from inference.loading import prepare_mlx

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both; the first process ends this one
    prepare_mlx()
    fastblas.enable(threads)
    readers = Readers(qwen3.Model(qwen3.ModelArgs(**shape)), count, 0)
    _second.append((nn.value_and_grad(readers, batch_loss), readers))


def _in_second(weights: Arrays, batch: PretrainingBatch) -> Gradients:
    loss, readers = _second[0]
    readers.update(tree_unflatten([(name, mx.array(array)) for name, array in weights.items()]))
    return gradients_of(loss, readers, batch)
