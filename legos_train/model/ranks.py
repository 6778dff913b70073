"""Data-parallel training on MLX's distributed back ends: `mlx.launch -n 2 --backend ring -- python -m legos_train ...`.

Every rank plays its share of a step's episodes; then all hold all episodes, so credit, league, samplers, replay,
monitor and metrics are computed identically everywhere and need not be sent. Each rank computes the loss and gradient
of its share of the batch's rows, weighted as in the whole batch, and the sums over the ranks are those of the whole
batch: two ranks compute what one would with the same `batch_size`. Only rank 0 writes the run directory; the others
receive its checkpoint on a resume.
"""

from __future__ import annotations

import faulthandler
import hashlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from legos_train.errors import ConfigError, RankLost, Stopped, TrainingError
from legos_train.loss.batch import Batch
from legos_train.model.rank_watch import Watch, host_of_rank_0

Arrays = dict[str, mx.array]

MEET = 120.0
"""Seconds within which all ranks have to join."""


class World:
    """All ranks of a run, seen from one of them. Every method but `part` must be called by all ranks.

    Raises (every such method):
        RankLost: a rank has ended.
    """

    def __init__(self, group: mx.distributed.Group):
        self.group, self.rank, self.size = group, group.rank(), group.size()
        self._stop: Callable[[], None] = lambda: None
        self._watch = Watch(self.rank, self.size, self.share, host_of_rank_0())

    # --- bytes -------------------------------------------------------------------------------------------------------

    def gather(self, data: bytes) -> list[bytes]:
        """The data of all ranks, by rank."""
        sizes = np.array(self._run(mx.distributed.all_gather, mx.array([len(data)], dtype=mx.int64))).tolist()
        padded = np.zeros(max(*sizes, 1), dtype=np.uint8)
        padded[: len(data)] = np.frombuffer(data, dtype=np.uint8)
        rows = np.array(self._run(mx.distributed.all_gather, mx.array(padded))).reshape(self.size, -1)
        return [row[:size].tobytes() for row, size in zip(rows, sizes, strict=True)]

    def share(self, data: bytes) -> bytes:
        """The data of rank 0."""
        mine = data if self.rank == 0 else b""
        size = int(np.array(self._run(mx.distributed.all_sum, mx.array([len(mine)], dtype=mx.int64)))[0])
        padded = np.zeros(max(size, 1), dtype=np.uint8)
        padded[: len(mine)] = np.frombuffer(mine, dtype=np.uint8)
        return np.array(self._run(mx.distributed.all_sum, mx.array(padded)))[:size].tobytes()

    def agree(self, what: str, data: bytes) -> None:
        """Checks that all ranks have the same data.

        Raises:
            TrainingError: they do not; the message names the ranks that differ from rank 0.
        """
        digests = self.gather(hashlib.sha256(data).digest())
        others = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
        if others:
            named = ", ".join(map(str, others))
            raise TrainingError(
                f"{what} of rank {named} differs from rank 0's: all ranks need the same settings, "
                "model and version of Legos, on machines that round identically; --resume continues from the checkpoint"
            )

    def barrier(self) -> None:
        """Waits until all ranks get here."""
        self.gather(b"")

    # --- the batch ---------------------------------------------------------------------------------------------------

    def part(self, batch: Batch) -> tuple[Batch, NDArray[np.int64]]:
        """This rank's share of a batch, with the positions of its sampled tokens: neighbouring rows, which share
        prefixes, with about equally many tokens for each rank. It may be empty; a turn is never divided.
        """
        cost = batch.lengths.astype(np.float64) - batch.prefix + 1
        middle = np.cumsum(cost) - cost / 2
        owner = np.minimum((middle * self.size / max(cost.sum(), 1.0)).astype(np.int64), self.size - 1)
        keep = owner[batch.row] == self.rank
        return batch.select(keep), np.flatnonzero(keep)

    def total(self, arrays: Mapping[str, mx.array]) -> Arrays:
        """The sum of arrays of the same names and shapes over all ranks, in float32 and one message, returned in their
        own types.
        """
        names = sorted(arrays)
        flat = mx.concatenate([arrays[name].astype(mx.float32).reshape(-1) for name in names])
        parts = mx.split(self._run(mx.distributed.all_sum, flat), np.cumsum([arrays[n].size for n in names]).tolist())
        return {
            name: part.reshape(arrays[name].shape).astype(arrays[name].dtype)
            for name, part in zip(names, parts, strict=False)
        }

    def total_numbers(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """The sum of named numbers; a rank may lack some. Added in the order of ranks: equal everywhere."""
        out: dict[str, float] = {}
        for data in self.gather(json.dumps(dict(numbers)).encode()):
            for name, value in json.loads(data).items():
                out[name] = out.get(name, 0.0) + value
        return out

    # --- ending ------------------------------------------------------------------------------------------------------

    def checked(self, stop: Callable[[], None]) -> Callable[[], None]:
        """A check for the loop to call while playing: raises what `stop` raises, and RankLost."""
        self._stop = stop

        def check() -> None:
            stop()
            self._watch.check()

        return check

    def _run(self, operation: Callable[..., mx.array], array: mx.array) -> mx.array:
        try:
            result = operation(array, group=self.group)
            mx.eval(result)
        except RuntimeError as error:  # from the ring, which does not say which rank
            raise RankLost(f"a rank has ended ({error})") from error
        return result

    def stop_or(self, error: RankLost) -> BaseException:
        """The error to raise if the run can be resumed: `Stopped` if this rank was asked to stop, else `error`."""
        try:
            self._stop()
        except Stopped as stopped:
            return stopped
        return error

    def close(self) -> None:
        """Ends this rank's part in the run."""
        self._watch.close()


@contextmanager
def joined() -> Iterator[World | None]:
    """The ranks started by `mlx.launch`, including this one; None for a single process.

    On a normal exit it waits for all ranks; on an error the other ranks end too.

    Raises:
        ConfigError: this process was started as one of several ranks, but no back end connects them.
    """
    if "MLX_RANK" not in os.environ:
        yield None
        return
    group = _meet()
    if group.size() == 1:
        if os.environ["MLX_RANK"] != "0":
            raise ConfigError(
                f"MLX_RANK is {os.environ['MLX_RANK']}, but MLX found no other rank; start all ranks with "
                "`mlx.launch -n 2 --backend ring -- python -m legos_train ...`"
            )
        yield None
        return
    world = World(group)
    try:
        yield world
        world.barrier()
    finally:
        world.close()


def _meet() -> mx.distributed.Group:
    """The group of all ranks.

    MLX waits forever for a rank that never joins, and no Python runs meanwhile, neither signal handlers nor other
    threads. So a timer outside Python ends the process, and advice on how to continue is printed first.
    """
    rank = os.environ["MLX_RANK"]
    print(
        f"rank {rank} waits for the other ranks, at most {MEET:.0f} s. Start all ranks again with --resume if it ends "
        "before they have joined",
        file=sys.stderr,
        flush=True,
    )
    in_main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM) if in_main else ()
    before = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        faulthandler.dump_traceback_later(MEET, exit=True, file=nowhere)
        try:
            return mx.distributed.init()
        finally:
            faulthandler.cancel_dump_traceback_later()
            for number, handler in before.items():
                signal.signal(number, handler or signal.SIG_DFL)  # None: not set from Python
