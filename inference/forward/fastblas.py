"""Give MLX's Linux CPU build a fast BLAS.

The `mlx[cpu]` wheel links the reference BLAS, about 6 GFLOP/s a core; OpenBLAS reaches 100 and more. MLX calls only a
few CBLAS functions, through pointers that the dynamic linker keeps in a table of libmlx.so (the GOT). `enable` loads
the OpenBLAS of the `scipy-openblas32` wheel privately, writes its addresses into those slots, checks a product against
numpy, and puts the old addresses back if anything is wrong. No compiler, no root, before or after `import mlx.core`.

`LEGOS_BLAS=off` leaves MLX alone; `LEGOS_BLAS=/path/to/libopenblas.so` names a library.
`python -m inference.forward.fastblas` prints the state and a measured speed.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import mmap
import os
import platform
import struct
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import threadpoolctl

# Every CBLAS symbol that libmlx.so imports. LAPACK is left alone.
SYMBOLS = ("cblas_sgemm", "cblas_dgemm", "cblas_cgemm")
_threads = [1]

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_STRTAB, _DT_SYMTAB, _DT_RELA, _DT_RELASZ, _DT_PLTRELSZ, _DT_JMPREL = 5, 6, 7, 8, 2, 23
# R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT, R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT
_SLOT_RELOCATIONS = (6, 7, 1025, 1026)


@dataclass
class Status:
    """Which BLAS MLX uses.

    Attributes:
        state: patched (here), already-fast (elsewhere), reference (could not be patched), off, not-needed.
        library: the one in use.
        tried: why other libraries were rejected.
    """

    state: Literal["patched", "already-fast", "reference", "off", "not-needed"]
    library: str | None = None
    tried: list[str] = field(default_factory=list)
    handle: ctypes.CDLL | None = field(default=None, repr=False)
    prefix: str = field(default="", repr=False)

    @property
    def fast(self) -> bool:
        """True when matrix products run on an optimised library, as far as this module knows."""
        return self.state in ("patched", "already-fast", "not-needed")


def enable(threads: int | None = None) -> Status:
    """Points MLX's matrix products at OpenBLAS, once per process; later calls return the first answer.

    Args:
        threads: BLAS threads; None keeps OPENBLAS_NUM_THREADS or the library's default.

    Never raises. When MLX stays on the reference BLAS although it was not switched off, a RuntimeWarning says why.
    """
    first = _enable.cache_info().currsize == 0
    status = _enable()
    if first and status.state == "reference":
        why = "; ".join(status.tried) or "no OpenBLAS was found"
        warnings.warn(
            f"MLX runs on its bundled reference BLAS (about 6 GFLOP/s a core): {why}. "
            "`uv pip install scipy-openblas32` (or pip) makes it 15 to 30 times faster; LEGOS_BLAS=off silences this.",
            RuntimeWarning,
            stacklevel=2,
        )
    if threads is not None:
        set_threads(threads)
    return status


def set_threads(n: int) -> bool:
    """Sets the number of threads of every BLAS in the process, numpy's own included; False if there is none to set."""
    _enable()
    pools = threadpoolctl.ThreadpoolController().select(user_api="blas")
    pools.limit(limits=int(n))
    _threads[0] = int(n)
    return bool(pools.info())


def threads() -> int:
    """The number that `set_threads` was last called with; 1 before."""
    return _threads[0]


@functools.cache
def _enable() -> Status:
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return Status("not-needed")
    choice = os.environ.get("LEGOS_BLAS", "")
    if choice in ("0", "off", "reference"):
        return Status("off")

    import mlx.core as mx

    if mx.default_device() != mx.cpu:
        return Status("not-needed")
    try:
        base, path = _loaded_library("libmlx.so")
        slots = {name: [base + offset for offset in offsets] for name, offsets in _got_slots(path).items()}
        if "cblas_sgemm" not in slots:
            raise RuntimeError("libmlx.so imports no cblas_sgemm")
        # One product first: lazy binding fills the slot with the real address only on first use.
        mx.eval(mx.ones((8, 8), stream=mx.cpu) @ mx.ones((8, 8), stream=mx.cpu))
        owner = _mapped_file(ctypes.c_uint64.from_address(slots["cblas_sgemm"][0]).value)
    except (OSError, RuntimeError, struct.error, ValueError) as error:
        return Status("reference", tried=[f"libmlx.so: {error}"])
    if owner and not Path(owner).name.startswith(("libblas", "libmlx")):
        return Status("already-fast", owner)

    tried: list[str] = []
    for library in _candidates(choice):
        try:
            handle, prefix = _patch(slots, library)
        except (OSError, RuntimeError) as error:
            tried.append(f"{library}: {error}")
        else:
            return Status("patched", library, tried, handle, prefix)
    return Status("reference", tried=tried)


def _candidates(choice: str) -> Iterator[str]:
    if choice:
        yield choice
        return
    # The LP64 build. The one numpy bundles uses 64-bit integers and would read MLX's arguments wrongly.
    spec = importlib.util.find_spec("scipy_openblas32")
    if spec is not None and spec.submodule_search_locations:
        for folder in spec.submodule_search_locations:
            yield from (str(p) for p in sorted(Path(folder, "lib").glob("libscipy_openblas.so*")))
    yield from ("libopenblas.so.0", "libopenblas.so")


def _patch(slots: dict[str, list[int]], library: str) -> tuple[ctypes.CDLL, str]:
    """Writes the library's functions into the slots; on any failure, restores the old addresses and raises."""
    handle = ctypes.CDLL(library)  # RTLD_LOCAL: nobody else's symbols change
    prefix = next((p for p in ("scipy_", "") if hasattr(handle, p + "cblas_sgemm")), None)
    if prefix is None:
        raise RuntimeError("it exports no cblas_sgemm")
    libc = ctypes.CDLL(None, use_errno=True)
    previous: list[tuple[ctypes.c_uint64, int]] = []
    try:
        for name, addresses in slots.items():
            function = ctypes.cast(getattr(handle, prefix + name), ctypes.c_void_p).value
            if function is None:
                raise RuntimeError(f"{name} has no address")
            for address in addresses:
                page = address & ~(mmap.PAGESIZE - 1)  # the table may have been made read-only after loading
                writable = mmap.PROT_READ | mmap.PROT_WRITE
                if libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(mmap.PAGESIZE), writable):
                    raise OSError(ctypes.get_errno(), "mprotect refused")
                cell = ctypes.c_uint64.from_address(address)
                previous.append((cell, cell.value))
                cell.value = function
        if not _numbers_are_right():
            raise RuntimeError("its products are wrong")
    except (OSError, RuntimeError, AttributeError) as error:
        for cell, value in previous:
            cell.value = value
        raise RuntimeError(str(error)) from error
    return handle, prefix


def _numbers_are_right() -> bool:
    """Plain and transposed float32 products on odd shapes, against numpy."""
    import mlx.core as mx
    import numpy as np

    rng = np.random.default_rng(0)
    a = rng.standard_normal((37, 53)).astype(np.float32)
    b = rng.standard_normal((53, 29)).astype(np.float32)
    with mx.stream(mx.cpu):
        plain = np.array(mx.array(a) @ mx.array(b))
        transposed = np.array(mx.array(a) @ mx.array(np.ascontiguousarray(b.T)).T)
    return bool(np.allclose(plain, a @ b, atol=1e-3) and np.allclose(transposed, a @ b, atol=1e-3))


def _loaded_library(name: str) -> tuple[int, str]:
    """Load address and path of a library mapped into this process."""
    lowest: tuple[int, str] | None = None
    for low, _, path in _mappings():
        if path is not None and os.path.basename(path) == name and (lowest is None or low < lowest[0]):
            lowest = (low, path)
    if lowest is None:
        raise RuntimeError(f"{name} is not loaded")
    return lowest


def _mapped_file(address: int) -> str | None:
    return next((path for low, high, path in _mappings() if low <= address < high), None)


def _mappings() -> Iterator[tuple[int, int, str | None]]:
    with open("/proc/self/maps") as lines:
        for line in lines:
            fields = line.split(maxsplit=5)
            low, high = (int(x, 16) for x in fields[0].split("-"))
            yield low, high, fields[5].rstrip("\n") if len(fields) > 5 else None


def _got_slots(path: str) -> dict[str, list[int]]:
    """File-relative addresses of the table slots through which an ELF64 library calls each of SYMBOLS."""
    data = Path(path).read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise RuntimeError("not a little-endian ELF64 file")
    header_offset = struct.unpack_from("<Q", data, 32)[0]
    header_size, header_count = struct.unpack_from("<HH", data, 54)
    segments: list[tuple[int, int, int]] = []
    dynamic: tuple[int, int] | None = None
    for i in range(header_count):
        kind, _, offset, address, _, size, _, _ = struct.unpack_from("<IIQQQQQQ", data, header_offset + i * header_size)
        if kind == _PT_LOAD:
            segments.append((address, offset, size))
        elif kind == _PT_DYNAMIC:
            dynamic = (offset, size)
    if dynamic is None:
        raise RuntimeError("no dynamic section")

    def file_offset(address: int) -> int:
        for start, offset, size in segments:
            if start <= address < start + size:
                return offset + address - start
        raise RuntimeError(f"address {address:#x} lies in no segment")

    tags: dict[int, int] = {}
    for position in range(dynamic[0], sum(dynamic), 16):
        tag, value = struct.unpack_from("<QQ", data, position)
        if tag == 0:
            break
        tags.setdefault(tag, value)
    symbols, strings = file_offset(tags[_DT_SYMTAB]), file_offset(tags[_DT_STRTAB])
    slots: dict[str, list[int]] = {}
    for start_tag, size_tag in ((_DT_JMPREL, _DT_PLTRELSZ), (_DT_RELA, _DT_RELASZ)):
        if start_tag not in tags:
            continue
        start = file_offset(tags[start_tag])
        for position in range(start, start + tags[size_tag], 24):
            address, info, _ = struct.unpack_from("<QQq", data, position)
            symbol, relocation = info >> 32, info & 0xFFFFFFFF
            if symbol == 0 or relocation not in _SLOT_RELOCATIONS:
                continue
            begin = strings + struct.unpack_from("<I", data, symbols + 24 * symbol)[0]
            name = data[begin : data.index(b"\0", begin)].decode()
            if name in SYMBOLS:
                slots.setdefault(name, []).append(address)
    return slots


def gflops() -> float:
    """Speed of a (768, 768) float32 product through MLX, best of five."""
    import mlx.core as mx

    n = 768
    a = mx.ones((n, n))
    mx.eval(a, a @ a)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        mx.eval(a @ a)
        best = min(best, time.perf_counter() - start)
    return 2 * n**3 / best / 1e9


def main() -> None:
    """Prints the state of this process and its speed."""
    status = enable()
    print(f"{status.state}  {status.library or '-'}  {gflops():.0f} GFLOP/s")
    for line in status.tried:
        print("tried:", line)


if __name__ == "__main__":
    main()
