"""Processes that compare formulas with math-verify. At worst, a hostile formula gets one of them killed.

One process loads math-verify (`maths_worker.py`) and forks the ones that compare, so that a killed one costs
milliseconds. Threads that ask at the same time get one process each.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

SCRIPT = Path(__file__).with_name("maths_worker.py")
START_SECONDS = 300.0
"""How long math-verify may take to load before it counts as broken."""
MOST = max(2, os.cpu_count() or 1)
"""Maximum number of concurrent comparisons; further ones wait for their turn."""
STUCK = 20.0
"""Wall-clock seconds after which a comparison is abandoned, even if it has not used up its processor time."""
MAX_REPLY = 4096
RECEIVED = b"r"
"""What the process says when a socket has arrived."""


class LoadedWorker:
    """The process that has loaded math-verify, or is still loading it."""

    def __init__(self) -> None:
        self.ready = False
        self.started = time.monotonic()
        self._said = b""
        self.control, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-P", str(SCRIPT), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONHASHSEED": "0"},
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C in a terminal is for the parent
            )

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def wait_until_ready(self, until: float) -> bool:
        """Whether the process is ready by a deadline in `time.monotonic` seconds.

        Raises:
            RuntimeError: the process has ended, or takes far too long; the message includes its output.
        """
        while not self.ready:
            left = until - time.monotonic()
            self.control.settimeout(max(left, 0.001))
            try:
                part = self.control.recv(MAX_REPLY)
            except TimeoutError:
                part = None
            self._said += part or b""
            self.ready = self._said == b"ready\n"
            if part == b"" or (not self.ready and time.monotonic() - self.started > START_SECONDS):
                self.kill()
                said = self._said.decode(errors="replace").strip()
                raise RuntimeError(
                    f"math-verify is installed but cannot be used: {said or 'its process has not begun'}"
                )
            if left <= 0:
                break
        return self.ready

    def fork(self) -> socket.socket:
        """Forks a new process for comparisons, and returns its socket.

        Raises:
            OSError: the process has ended, or does not answer.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self.control.settimeout(STUCK)
                socket.send_fds(self.control, [b"f"], [theirs.fileno()])
                # macOS may lose a handle that is closed here before it has arrived there (bpo-14669)
                if self.control.recv(1) != RECEIVED:
                    raise ConnectionResetError("math-verify's process has ended")
        except BaseException:
            ours.close()
            raise
        return ours

    def kill(self) -> None:
        """Kills it and everything it has forked."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.control.close()


class Workers:
    """The workers of this process: at most one `LoadedWorker`, and sockets to its forks."""

    def __init__(self) -> None:
        self.loaded: LoadedWorker | None = None
        self.idle: list[socket.socket] = []
        self._lock = threading.Lock()
        """Held briefly, to change the two attributes above."""
        self._loading = threading.Lock()
        """Held while waiting for math-verify to load."""
        self._forking = threading.Lock()
        """Held while one of the processes is made, and taken before `_lock`."""
        self._turns = threading.BoundedSemaphore(MOST)

    def start(self) -> None:
        """Starts to load math-verify, unless that is already done. Does not wait."""
        with self._lock:
            if self.loaded is None or not self.loaded.alive:
                self._close()
                self.loaded = LoadedWorker()

    def wait(self, seconds: float) -> bool:
        """Starts, and waits until a comparison could begin immediately; False if that takes longer."""
        until = time.monotonic() + seconds
        self.start()
        if not self._loading.acquire(timeout=seconds):
            return False
        try:
            loaded = self.loaded
            return loaded is not None and loaded.wait_until_ready(until)
        except RuntimeError:
            self.close()
            raise
        finally:
            self._loading.release()

    def ask(self, given: str, truth: str, seconds: float, loading: float = 1.0) -> tuple[bool | None, float]:
        """Whether math-verify finds two formulas equal, None if it timed out; and the processor time used.

        Args:
            given: the answer.
            truth: the true one.
            seconds: processor time limit of the comparison.
            loading: seconds to wait for math-verify if it is not loaded yet.

        Raises:
            TimeoutError: there is no verdict on the formulas: math-verify was still loading, or the machine is stuck.
            RuntimeError: math-verify cannot be started.
        """
        if not self._turns.acquire(timeout=STUCK):
            raise TimeoutError
        try:
            while True:
                calls, fresh = self._take(loading)
                try:
                    reply = _call(calls, given, truth, seconds)
                except BaseException:  # an unread reply must not be taken for the reply to the next question
                    calls.close()
                    raise
                if reply:
                    with self._lock:
                        self.idle.append(calls)
                    verdict, used = json.loads(reply)
                    return verdict, used
                calls.close()
                if reply == b"":
                    return None, seconds
                if fresh:  # it ended before reading, so there is no verdict on this question
                    raise TimeoutError
        finally:
            self._turns.release()

    def _take(self, loading: float) -> tuple[socket.socket, bool]:
        """A socket to a waiting process, and whether it has just started."""
        with self._lock:
            if self.idle:
                return self.idle.pop(), False
        try:
            if not self.wait(loading):
                raise TimeoutError
            with self._forking:
                loaded = self.loaded
                if loaded is None:
                    raise TimeoutError
                try:
                    return loaded.fork(), True
                except BaseException:  # a late confirmation must not be taken for the next one's
                    with self._lock:
                        if self.loaded is loaded:
                            self._close()
                    raise
        except OSError:  # it was closed, or has died or stopped in the meantime
            raise TimeoutError from None

    def close(self) -> None:
        """Ends all processes; the next comparison starts new ones."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        for calls in self.idle:
            calls.close()
        self.idle.clear()
        if self.loaded is not None:
            self.loaded.kill()
            self.loaded = None


def _call(calls: socket.socket, given: str, truth: str, seconds: float) -> bytes | None:
    """The reply; empty if the process died while working on the question, None if it had ended before."""
    calls.settimeout(STUCK)
    try:
        calls.sendall(json.dumps([given, truth, seconds]).encode() + b"\n")
    except (BrokenPipeError, ConnectionResetError):
        return None
    reply = b""
    with suppress(ConnectionResetError):
        while not reply.endswith(b"\n"):
            part = calls.recv(MAX_REPLY)
            if not part:
                break
            reply += part
    return reply if reply.endswith(b"\n") else b""


WORKERS = Workers()
"""The workers of this process."""


@atexit.register
def close() -> None:
    """Ends the processes, if there are any; the next comparison that needs them starts new ones."""
    WORKERS.close()


def _after_fork() -> None:
    """Resets the workers in a forked child, which must not touch its parent's sockets."""
    global WORKERS  # noqa: PLW0603
    WORKERS = Workers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
