"""The system calls that store a run. Each goes through `gate`, so that tests can fail, truncate or record it.

Every function either succeeds or raises an OSError that names the file.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from legos_train.disk.crash import crashpoint

logger = logging.getLogger(__name__)
RETRIES = 8
"""How often a call interrupted by a signal is retried. Python itself retries reads and writes, but not renames and
the like, which network file systems may interrupt."""


def _pass(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


gate: Callable[..., Any] = _pass
"""Calls a function of `os` with its arguments and returns its result. Tests replace it."""


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    for attempt in range(RETRIES):
        try:
            return gate(function, *arguments)
        except InterruptedError:
            if attempt == RETRIES - 1:
                raise
    raise AssertionError("unreachable")


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Adds the file's name to errors of calls on a descriptor."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    """A descriptor that is always closed on exit; an error in the block takes precedence over one in closing."""
    descriptor = _call(os.open, str(path), flags | os.O_CLOEXEC, 0o644)
    try:
        with _naming(path):
            yield descriptor
    except BaseException:
        with suppress(OSError):
            gate(os.close, descriptor)
        raise
    with _naming(path), suppress(InterruptedError):  # never twice: the number may be another file's by now
        gate(os.close, descriptor)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Writes until everything is written; a nearly full disk accepts a part and fails at the next call."""
    view = memoryview(data)
    while view:
        written = _call(os.write, descriptor, view)
        if written == 0:
            raise OSError(errno.EIO, "the system wrote nothing and gave no reason")
        view = view[written:]


UNSUPPORTED = (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY, errno.ENOSYS)
"""How file systems of other machines (network, FAT, FUSE, 9p) refuse calls that they do not know."""


def sync(descriptor: int) -> None:
    """Makes a file, or the names in a directory, as durable as the file system can (macOS needs F_FULLFSYNC for that).

    Some file systems cannot synchronise a directory; what is written there survives a crash of the process, but perhaps
    not one of the machine.
    """
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is None or not _done(fcntl.fcntl, descriptor, full):
        _done(os.fsync, descriptor)


def _done(function: Callable[..., Any], *arguments: Any) -> bool:
    """Calls a function; False if the file system does not support it."""
    try:
        _call(function, *arguments)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        return False
    return True


def lock(file: IO[Any]) -> None:
    """Locks an open file until it is closed or its process ends. Only warns where the file system has no locks.

    File systems on clusters may have none: Lustre mounted without `flock`, NFS without its lock service.

    Raises:
        BlockingIOError: another process holds the lock.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (*UNSUPPORTED, errno.ENOLCK):
            raise
        logger.warning("%s: this file system has no locks; nothing keeps another process from using it", file.name)


def write_file(path: Path, data: bytes, torn: str) -> None:
    """Writes a file and makes its content durable; `torn` is the crash point in the middle of it."""
    with opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as descriptor:
        append(descriptor, path, data, torn)
        sync(descriptor)


def open_append(path: Path) -> int:
    """A descriptor for adding to a file, which is created durably if it does not exist."""
    new = not path.exists()
    descriptor: int = _call(os.open, str(path), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        if new:
            sync_directory(path.parent)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def append(descriptor: int, path: Path, data: bytes, torn: str) -> None:
    """Writes at the end of an open file; `torn` is the crash point in the middle of it."""
    view, middle = memoryview(data), len(data) // 2
    with _naming(path):
        write_all(descriptor, view[:middle])
        crashpoint(torn)
        write_all(descriptor, view[middle:])


def truncate(descriptor: int, path: Path, size: int) -> None:
    with _naming(path):
        _call(os.ftruncate, descriptor, size)


def sync_open(descriptor: int, path: Path) -> None:
    """Makes an open file's content durable."""
    with _naming(path):
        sync(descriptor)


def read_file(path: Path) -> bytes:
    parts = []
    with opened(path, os.O_RDONLY) as descriptor:
        while part := _call(os.read, descriptor, 1 << 24):
            parts.append(part)
    return b"".join(parts)


def sync_directory(path: Path) -> None:
    with opened(path, os.O_RDONLY) as descriptor:
        sync(descriptor)


def rename(old: Path, new: Path) -> None:
    """Renames atomically; a file at `new` is replaced."""
    _call(os.rename, str(old), str(new))


def put_in_place(new: Path, final: Path, old: Path, moved: str) -> None:
    """Renames a directory over another, which becomes `old`; undone if the second rename fails.

    `moved` is the crash point between the two.
    """
    rename(final, old)
    crashpoint(moved)
    try:
        rename(new, final)
    except BaseException:
        with suppress(OSError):
            rename(old, final)
        raise


def make_directory(path: Path) -> None:
    """Creates a directory and its parents durably."""
    missing = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for new in reversed(missing):
        _call(os.mkdir, str(new))
        sync_directory(new.parent)


def unlink(path: Path) -> None:
    _call(os.unlink, str(path))


def remove_directory(path: Path) -> None:
    """Removes an empty directory."""
    _call(os.rmdir, str(path))


def names(path: Path) -> list[str]:
    """The names in a directory, sorted."""
    return sorted(_call(os.listdir, str(path)))


def remove_own(directory: Path) -> None:
    """Removes a flat directory that only this program wrote to; a subdirectory in it is an error."""
    for name in names(directory):
        unlink(directory / name)
    remove_directory(directory)


def free(path: Path) -> Path:
    """The path, or the first of PATH-2, PATH-3, ... that does not exist."""
    found, count = path, 1
    while os.path.lexists(found):
        count += 1
        found = path.with_name(f"{path.name}-{count}")
    return found


def exchange(one: Path, other: Path) -> bool:
    """Swaps two paths atomically, as Linux and macOS support but Python does not offer; False if not supported.

    Raises:
        OSError: it is supported but failed.
    """
    return bool(_call(_exchange, str(one), str(other)))


def _exchange(one: str, other: str) -> bool:
    library = ctypes.CDLL(None, use_errno=True)
    a, b = os.fsencode(one), os.fsencode(other)
    if sys.platform == "darwin" and hasattr(library, "renamex_np"):
        failed = library.renamex_np(a, b, 2)  # RENAME_SWAP
    elif hasattr(library, "renameat2"):
        failed = library.renameat2(-100, a, -100, b, 2)  # AT_FDCWD, RENAME_EXCHANGE
    else:
        return False
    if not failed:
        return True
    code = ctypes.get_errno()
    if code in UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), one)


_POINTS = {
    "run.json": "identity",
    "config.toml": "config",
    "start.json": "start",
    "report.html": "report",
    "result.json": "result",
}


_REMEDIES = {
    errno.ENOSPC: "the disk is full; free space",
    errno.EDQUOT: "the disk quota is used up; free space",
    errno.EFBIG: "the file is larger than this process may write (ulimit -f); raise the limit",
    errno.EMFILE: "this process has too many open files (ulimit -n); raise the limit",
    errno.ENFILE: "the system has too many open files; close some programs",
    errno.EACCES: "this process lacks permission; grant it or choose another {place}",
    errno.EROFS: "the file system is read-only; choose another {place} or remount it",
    errno.EIO: "the disk reported an error (EIO); check it",
}


def write_bytes(path: Path, data: bytes, points: str = "file") -> None:
    """Replaces a file atomically: after a crash it holds the old content or the new, never a part.

    Args:
        path: the file.
        data: its new content.
        points: the crash points passed are `{points}.written` and `{points}.renamed`.

    Raises:
        OSError: writing failed; the old content is kept.
    """
    temporary = path.with_name(f"{_draft()}{path.name}")
    try:
        write_file(temporary, data, torn=f"{points}.torn")
        crashpoint(f"{points}.written")
        rename(temporary, path)
    except BaseException:
        with suppress(OSError):  # not there, or removed on the next opening; the first error says more
            unlink(temporary)
        raise
    crashpoint(f"{points}.renamed")
    sync_directory(path.parent)


def _draft() -> str:
    """The prefix of a file's name while this process writes it."""
    return f".tmp-{os.getpid()}-"


def write_text(path: Path, text: str) -> None:
    """Replaces a text file atomically. Paths in the text are encoded as in the file system, whatever the locale."""
    write_bytes(path, text.encode(errors="surrogateescape"), _POINTS.get(path.name, "file"))


def explain_os_error(error: OSError, doing: str, *, of_run: bool = True) -> str:
    """What went wrong with a file and what to do; `of_run`: a file of a training run, which can be resumed."""
    remedy = _REMEDIES.get(error.errno or 0)
    if remedy is None:
        hint = "; set TMPDIR to one" if "temporary directory" in str(error) else ""
        return f"{error.strerror or error} while {doing}" + (f" ({error.filename})" if error.filename else hint)
    remedy = remedy.format(place="--run-dir" if of_run else "place")
    if of_run and isinstance(error.filename, str | bytes):  # without a config.toml there is nothing to resume
        folders = list(Path(os.fsdecode(error.filename)).parents)[:4]
        of_run = any(os.path.exists(folder / "config.toml") for folder in folders)
    again = ", then continue with --resume: nothing written before is lost" if of_run else ""
    where = "" if error.filename is None else f": {str(error.filename).replace(_draft(), '')}"
    return f"{remedy}{again} (while {doing}{where})"
