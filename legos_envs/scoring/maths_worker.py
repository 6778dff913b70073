"""The process in which `legos_envs.scoring.answers` asks math-verify. Run as a script; it imports nothing from here.

It reads a line `[given, truth, seconds]` of JSON and writes the line `same` or `different`. It says `ready` once
math-verify is loaded, or why it is not. It ends with its input. The parent kills it when an answer is late; should the
parent be gone, the limit on processor time does.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import TextIO

MEMORY = 4 * 2**30
"""Bytes of address space."""


def main(requests: TextIO, replies: TextIO) -> None:
    try:
        from math_verify import parse, verify

        def same(given: str, truth: str) -> bool:
            read = [parse(f"\\boxed{{{text}}}", parsing_timeout=None) for text in (truth, given)]
            return bool(verify(*read, timeout_seconds=None))

        same("x", "x+0")  # the first parse builds its tables
    except Exception as error:
        print(f"{type(error).__name__}: {error}".replace("\n", " "), file=replies, flush=True)
        return
    _limit(resource.RLIMIT_AS, MEMORY)
    print("ready", file=replies, flush=True)
    for line in requests:
        given, truth, seconds = json.loads(line)
        used = resource.getrusage(resource.RUSAGE_SELF)
        _limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime + seconds) + 5)
        try:
            verdict = same(given, truth)
        except MemoryError:
            os._exit(1)  # what is left of this process cannot be trusted
        except Exception:
            verdict = False
        print("same" if verdict else "different", file=replies, flush=True)


def _limit(what: int, most: int) -> None:
    """Lowers the soft limit; where the system does not take it the parent's clock remains."""
    try:
        resource.setrlimit(what, (most, resource.getrlimit(what)[1]))
    except (ValueError, OSError):
        return


if __name__ == "__main__":
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing that a library prints is taken for a reply
    main(sys.stdin, replies)
