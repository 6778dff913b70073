"""The gradients of a batch, computed by one process or by two.

The loss is a sum over the parts of a batch, and so is its gradient. A batch is always divided into the same two halves,
whose gradients are added, so the result is the same, bit for bit, whether one process computes both or two share them.
"""

from __future__ import annotations

import multiprocessing
import signal
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, NamedTuple, cast

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx import nn
from mlx.utils import tree_flatten, tree_unflatten

from legos_train.bootstrap.pretraining_loss import Readers, batch_loss
from legos_train.bootstrap.training_rows import PretrainingBatch

HostArrays = dict[str, npt.NDArray[np.float32]]


class Gradients(NamedTuple):
    """loss: a number; divergence (N,) in nats at each site; arrays: the gradient of each weight by name."""

    loss: float
    divergence: npt.NDArray[np.float32]
    arrays: HostArrays


class SharedGradients:
    """Computes gradients; a context manager that ends its worker process, if it has one.

    Args:
        readers: the model and its readers.
        processes: 1, or 2: a worker process takes half of the work.
        threads: BLAS threads of the worker.
    """

    def __init__(self, readers: Readers, processes: int = 1, threads: int = 1):
        self.readers = readers
        self._loss = nn.value_and_grad(readers, batch_loss)
        self._worker: _Worker | None = None
        if processes > 1:
            self._worker = _Worker(vars(readers.model.args), len(readers.readers), threads)

    def __call__(self, batch: PretrainingBatch, meanwhile: Callable[[], None] = lambda: None) -> Gradients:
        """The gradients of `batch_loss`. `meanwhile` is called once, if possible while the worker process computes.

        Raises:
            RuntimeError: the worker process ended.
        """
        sites, parts = zip(*halves(batch), strict=True)
        if self._worker is None or len(parts) == 1:
            results = [self._of(part) for part in parts]
            meanwhile()
        else:
            self._worker.begin(_arrays(self.readers.parameters()), parts[1])
            try:
                results = [self._of(parts[0])]
                meanwhile()
            except BaseException:
                self._worker.close()  # or the next call would get the answer to this one
                raise
            results.append(self._worker.result())
        divergence = np.empty(len(batch.kinds), np.float32)
        for at, one in zip(sites, results, strict=True):
            divergence[at] = one.divergence
        arrays = results[0].arrays
        for one in results[1:]:
            arrays = {name: array + one.arrays[name] for name, array in arrays.items()}
        return Gradients(sum(one.loss for one in results), divergence, arrays)

    def _of(self, part: PretrainingBatch) -> Gradients:
        return _gradients_of(self._loss, self.readers, part)

    def __enter__(self) -> SharedGradients:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._worker is not None:
            self._worker.close()


def halves(batch: PretrainingBatch) -> list[tuple[npt.NDArray[np.int64], PretrainingBatch]]:
    """One or two batches with about as many tokens each, the one with more last, and the indices of their sites in
    `batch`.
    """
    ends = np.cumsum([len(part.rows) for part in batch.parts])
    chosen: tuple[list[int], list[int]] = ([], [])
    tokens = [0, 0]
    for i in sorted(range(len(batch.parts)), key=lambda i: -batch.parts[i].size):
        lighter = int(tokens[1] < tokens[0])
        chosen[lighter].append(i)
        tokens[lighter] += batch.parts[i].size
    result = []
    if tokens[0] > tokens[1] > 0:
        chosen = (chosen[1], chosen[0])
    for numbers in filter(None, map(sorted, chosen)):
        at = np.concatenate([np.arange(ends[i] - len(batch.parts[i].rows), ends[i]) for i in numbers])
        arrays = (array[at] for array in batch[1:])
        result.append((at, PretrainingBatch([batch.parts[i] for i in numbers], *arrays)))
    return result


def _gradients_of(loss: Any, readers: Readers, batch: PretrainingBatch) -> Gradients:
    """What `loss`, a `value_and_grad` of `batch_loss`, returns, as numbers and numpy arrays."""
    (value, divergence), gradients = loss(readers, batch)
    mx.eval(value, divergence, gradients)
    return Gradients(value.item(), np.array(divergence), _arrays(gradients))


def _arrays(tree: Any) -> HostArrays:
    return {name: np.array(array) for name, array in cast(list[tuple[str, mx.array]], tree_flatten(tree))}


class _Worker:
    """A process that computes one half.

    Not an executor of `concurrent.futures`: before Python 3.11.5 it hangs if its process dies while data is being sent
    to it.
    """

    def __init__(self, shape: dict[str, Any], count: int, threads: int):
        spawn = multiprocessing.get_context("spawn")
        self._pipe, other = spawn.Pipe()
        self.process = spawn.Process(target=_work, args=(other, shape, count, threads), daemon=True)
        self.process.start()
        other.close()  # or the end of the process would not be noticed

    def begin(self, weights: HostArrays, batch: PretrainingBatch) -> None:
        try:
            self._pipe.send((weights, batch))
        except OSError as error:
            raise self._ended() from error

    def result(self) -> Gradients:
        try:
            found = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise self._ended() from error
        if isinstance(found, Exception):
            raise found
        return cast(Gradients, found)

    def _ended(self) -> RuntimeError:
        self.process.join()
        code = self.process.exitcode
        why = ", perhaps for lack of memory" if code == -signal.SIGKILL else ""
        return RuntimeError(
            f"the worker process ended with exit code {code}{why}; nothing after the last finished part was saved. "
            "Repeat the command to continue from there"
        )

    def close(self) -> None:
        self._pipe.close()
        self.process.kill()
        self.process.join()


def _work(pipe: Connection, shape: dict[str, Any], count: int, threads: int) -> None:
    from mlx_lm.models import qwen3

    from inference.forward import fastblas
    from inference.loading import prepare_mlx

    mx.set_default_device(mx.cpu)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both processes, and the first one ends this one
    prepare_mlx()
    fastblas.enable(threads)
    readers = Readers(qwen3.Model(qwen3.ModelArgs(**shape)), count, 0)
    loss = nn.value_and_grad(readers, batch_loss)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the first process has ended, however
        while True:
            weights, batch = pipe.recv()
            found: Gradients | Exception
            try:
                readers.update(tree_unflatten([(name, mx.array(array)) for name, array in weights.items()]))
                found = _gradients_of(loss, readers, batch)
            except Exception as error:
                error.add_note(f"in the worker process: {traceback.format_exc()}")
                found = error
            pipe.send(found)
