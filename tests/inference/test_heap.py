"""What the allocator keeps goes back to the machine, and a server sees to it."""

from __future__ import annotations

import os
import platform
import re
import threading
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from benchmarks.wire import Live
from inference.forward import heap
from inference.server import Settings, server

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps and returns memory on request")


def resident() -> float:
    """MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@glibc
def test_what_was_freed_between_arrays_in_use_is_returned() -> None:
    heap.keep_freed_memory()
    arrays = [mx.full((1 << 18,), float(k)) for k in range(100)]  # 1 MiB each
    mx.eval(arrays)
    heap.return_freed_memory()  # what other tests have left
    full = resident()
    kept = arrays[::10]
    del arrays
    before = resident()
    heap.return_freed_memory()
    assert before > full - 10.0 and resident() < full - 40.0
    assert [array[0].item() for array in kept] == [float(k) for k in range(0, 100, 10)]


@glibc
@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").is_dir(), reason="this system has no huge pages")
def test_the_weights_of_a_model_come_in_huge_pages() -> None:
    def advised() -> bool:
        """Whether the kernel was asked for huge pages where a new array of 96 MiB lies."""
        array = mx.full((24 << 20,), 1.0)
        middle = np.asarray(array).ctypes.data + (48 << 20)
        for area in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text()):
            low, high = (int(edge, 16) for edge in area.split(maxsplit=1)[0].split("-"))
            if low <= middle < high:
                return " hg" in area.partition("VmFlags:")[2]
        raise AssertionError("the array lies nowhere")

    heap.keep_freed_memory()
    with heap.in_huge_pages(96 << 20):
        assert advised()


def test_a_server_returns_memory_until_it_stops(random_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, twice = [], threading.Event()

    def trim() -> None:
        calls.append(threading.current_thread())
        if len(calls) == 2:
            twice.set()

    monkeypatch.setattr(server, "TRIM_SECONDS", 0.01)
    monkeypatch.setattr(heap, "return_freed_memory", trim)
    live = Live(Settings(model=str(random_model_dir)))
    try:
        assert twice.wait(20)
    finally:
        live.stop()
    assert {thread.name.split("_")[0] for thread in calls} == {"asyncio"}  # the pool's, not the event loop's
    assert live.core._trimming.cancelled()
