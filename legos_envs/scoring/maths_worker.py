"""The process with math-verify loaded, for `legos_envs.scoring.formula_workers`. Run as a script; imports no Legos.

Loading takes seconds, so it is done once: for every socket that arrives on its input, the process forks a child that
answers there, within milliseconds. A child reads `[given, truth, seconds]` and writes `[verdict, seconds used]`, as
lines of JSON. Time is the child's processor time, so a busy machine causes no timeouts. A timer kills a child that
exceeds it.

The process reports `ready`, or why it is not, and confirms every socket that arrives. It ends when its input closes,
and a child when its socket does.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
import time
from typing import Any

MEMORY = 3 * 2**30
"""Address space of a child, in bytes."""
WARM_UP = (
    ("x", "x+0"),
    ("(x+1)^2", "x^{2}+2x+1"),
    ("\\frac{\\sqrt{3}}{3}", "1/\\sqrt{3}"),
    ("(1,\\frac{\\pi}{2})", "(1,\\pi/2)"),
    ("[2,5)", "[2,5]"),
    ("\\{1,2\\}", "\\{2,1\\}"),
    ("(-\\infty,2)\\cup(3,\\infty)", "(-\\infty,2)"),
    ("y=2x+3", "2x-y+3=0"),
    ("\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}", "\\begin{pmatrix}1&2\\\\3&5\\end{pmatrix}"),
    ("\\sin^2(x)+\\cos(x)", "\\cos x+\\sin^2 x"),
    ("2\\sqrt{2}+3i", "3i+\\sqrt{8}"),
    ("\\log_2(3)-e^{x}", "\\exp(x)-\\ln(3)"),
    ("x\\le 3", "x<3"),
    ("1/2x-3\\cdot 2", "\\frac{1}{2x}-6"),
)
"""Compared once after loading: parsers and sympy build their tables when they first see each kind of formula."""


def main(control: socket.socket) -> None:
    try:
        from math_verify import parse, verify

        def same(given: str, truth: str) -> Any:
            read = [parse(f"\\boxed{{{text}}}", parsing_timeout=None) for text in (truth, given)]
            return verify(*read, timeout_seconds=None)

        for pair in WARM_UP:
            same(*pair)
    except Exception as error:
        control.sendall(f"{type(error).__name__}: {error}\n".encode())
        return
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children that end leave no zombies
    control.sendall(b"ready\n")
    while True:
        _, handles, _, _ = socket.recv_fds(control, 1, 1)
        if not handles:
            return
        control.sendall(b"r")
        if os.fork() == 0:
            try:
                control.close()
                _serve(socket.socket(fileno=handles[0]), same)
            finally:
                os._exit(0)
        os.close(handles[0])


def _serve(calls: socket.socket, same: Any) -> None:
    """Answers the questions of one socket, one after the other."""
    _limit(resource.RLIMIT_AS, MEMORY)
    _limit(resource.RLIMIT_CORE, 0)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # the timer's signal kills
    for line in calls.makefile("rb"):
        given, truth, seconds = json.loads(line)
        start = time.process_time()
        verdict = _timed(same, given, truth, seconds)
        calls.sendall(json.dumps([verdict, time.process_time() - start]).encode() + b"\n")


def _timed(same: Any, given: str, truth: str, seconds: float) -> bool:
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        return bool(same(given, truth))
    except MemoryError:
        os._exit(1)  # the state of this process can no longer be trusted
    except Exception:
        return False
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _limit(what: int, most: int) -> None:
    """Lowers the soft limit, if the system allows it."""
    try:
        resource.setrlimit(what, (most, resource.getrlimit(what)[1]))
    except (ValueError, OSError):
        return


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
