"""A time limit for code that ships with a model, such as its chat template."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")
FIRST, LONGEST = 0.1, 2.0
"""Seconds between attempts to interrupt late work: at first, and at most."""


class Overdue(BaseException):
    """Time is up. Not an `Exception`, so that the late work cannot catch it by accident; callers turn it into one."""


def within(seconds: float, work: Callable[[], T]) -> T:
    """The result of some Python code, which runs in its own thread and is interrupted there when it takes too long.

    A single long call into C cannot be interrupted, but is no longer waited for.

    Raises:
        Overdue: no result in time.
    """
    result: Future[T] = Future()

    def run() -> None:
        with suppress(Overdue):  # the work has ended, and nobody is waiting any more
            try:
                value = work()
            except BaseException as error:
                result.set_exception(error)
            else:
                result.set_result(value)

    thread = threading.Thread(target=run, name="template", daemon=True)
    thread.start()
    try:
        return result.result(seconds)
    except TimeoutError:
        if result.done():  # the work itself raised it
            raise
        if _interrupt(thread, result):
            threading.Thread(target=_end, args=(thread, result), name="ends a template", daemon=True).start()
        raise Overdue(f"it took more than {seconds:g} seconds") from None


def _interrupt(thread: threading.Thread, result: Future[T]) -> bool:
    """Raises Overdue in a thread still at work; returns whether it did. The id of a finished thread may be reused."""
    if result.done() or not thread.is_alive():
        return False
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Overdue))
    return True


def _end(thread: threading.Thread, result: Future[T]) -> None:
    """Raises repeatedly: an exception inside a weak reference's callback or a finalizer is swallowed there."""
    wait = FIRST
    thread.join(wait)
    while _interrupt(thread, result):
        wait = min(2 * wait, LONGEST)
        thread.join(wait)
