r"""Runs code that a model wrote: `run(code)` takes any text, returns in time, and never raises because of that text.

    run("def f(n):\n    return n * 2\n\nf(x)", {"x": 21})   # RunResult(ok=True, value=42, output="", error=None)

The default interpreter, kind `"monty"`, is Monty (github.com/pydantic/monty): Python written in Rust, in separate
worker processes. Programs in it have no access to a file system, network, clock, entropy or subprocesses; time, memory,
recursion, output and the value are limited. A call takes less than a millisecond. Kind `"os"` is full CPython, isolated
by the operating system (`legos_envs.scoring.os_sandbox`), at some 50 milliseconds a call.

The Python that Monty 1.4 accepts, for prompts that ask for code (`SUBSET` says it in one sentence):

- Yes: functions, closures, lambdas, decorators, recursion, comprehensions and generator expressions, `match`,
  f-strings, `try`, `with`, `assert`, type hints, `async`, `eval`, plain classes with methods and operators, and the
  modules `math`, `re`, `json`, `itertools`, `functools`, `collections`, `bisect`, `copy`, `random`, `datetime`,
  `decimal`, `typing`, `dataclasses`, `base64`, `hashlib`.
- No: `yield`, `del`, inheritance (so no custom exceptions), decorators in a class (`@property`), methods as values
  (`key=str.lower`; use a lambda), most dunder attributes (`__class__`), and the modules `heapq`, `string`, `fractions`,
  `statistics`, `operator`, `enum`, `threading` and all that access the machine.

Runs are repeatable: `random` always starts from the same seed, the clock stands still, and sleeping takes no time. Runs
cut off by a limit are not, so give a program far more time than it needs. A worker that is stopped because of its
memory reports this on stderr.
"""

from __future__ import annotations

import atexit
import datetime
import os
import threading
from collections.abc import Mapping
from typing import Any

from legos_envs import arguments
from legos_envs.scoring import os_sandbox
from legos_envs.scoring.os_sandbox import available as available  # noqa: PLC0414  the tool of kind "os"
from legos_envs.scoring.run_result import MAX_ERROR, MAX_OUTPUT, RunResult, finished
from legos_envs.scoring.run_result import plain as plain  # noqa: PLC0414  what values become

KINDS = ("monty", "os")
GRACE = 0.1
"""Seconds after its time limit at which a program of kind `"monty"` is killed if it has not stopped."""
SUBSET = (
    "Plain Python: no yield, del, inheritance, files or input; you may import math, re, json, itertools, functools, "
    "collections and bisect."
)
"""What programs may contain, in words for a prompt."""


def run(
    code: str,
    inputs: Mapping[str, Any] | None = None,
    seconds: float = 2.0,
    memory_mb: int = 64,
    kind: str = "monty",
) -> RunResult:
    """Runs a program and returns its result. Blocks until then; safe to call from any thread.

    Every call starts from scratch: no names, imports or files are left over from the one before.

    Args:
        code: the program; any text at all.
        inputs: variables that are set for the program: JSON values by name.
        seconds: how long the program may run, 0.01 to 60. It is killed at most 0.1 s later.
        memory_mb: how much memory the program may take, 1 to 4096 MiB.
        kind: `"monty"` or `"os"`.

    Raises:
        TypeError: `code` is not a str, or a name or value in `inputs` is of the wrong kind.
        ValueError: a limit or the kind is out of range.
        ImportError: Monty is not installed.
        RuntimeError: with kind `"os"`, the machine has no working sandboxing tool; with `"monty"`, this process was
            forked from one that had run code.
    """
    if not isinstance(code, str):
        raise TypeError(f"code must be a str; got {type(code).__name__}")
    arguments.one_of("kind", kind, KINDS)
    seconds = arguments.real("seconds", seconds, 0.01, 60)
    memory_mb = arguments.whole("memory_mb", memory_mb, 1, 4096)
    given = dict(inputs or {})
    for name, value in given.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise TypeError(f"names in inputs must be Python identifiers; got {name!r}")
        try:
            plain(value, 2**31)
        except ValueError as error:
            raise TypeError(f"inputs[{name!r}] must be a JSON value: {error}") from None
    if kind == "os":
        return os_sandbox.run(code, given, seconds, memory_mb)
    return _run_monty(code, given, seconds, memory_mb)


def program(text: str) -> str:
    """The code in a completion: the content of its last Markdown fence of three backticks, else the whole text.

    A fence that is not closed runs to the end. Linear time.
    """
    lines = text.splitlines(keepends=True)
    fences = [number for number, line in enumerate(lines) if line.lstrip().startswith("```")]
    if not fences:
        return text
    closed = len(fences) % 2 == 0
    start, end = (fences[-2], fences[-1]) if closed else (fences[-1], len(lines))
    return "".join(lines[start + 1 : end])


# --- Monty -----------------------------------------------------------------------------------------------------------

_pools: dict[int, Any] = {}
"""The pool of workers, by the id of the process that created it; at most one entry."""
_lock = threading.Lock()


@atexit.register
def _close() -> None:
    pool = _pools.pop(os.getpid(), None)
    if pool is not None:
        pool.__exit__(None, None, None)


def check_installed() -> None:
    """Raises ImportError if the interpreter is missing. Envs that need it call this when they are created."""
    try:
        import pydantic_monty  # noqa: F401
    except ImportError as error:
        raise ImportError(f"running code needs pydantic-monty: {arguments.install('tasks')}") from error


def _pool() -> Any:
    """This process's pool of workers, created on first use. While all of its workers are busy, further runs wait."""
    pool = _pools.get(os.getpid())
    if pool is not None:
        return pool
    if _pools:  # the pool's threads do not exist in this forked process
        raise RuntimeError(
            "this process was forked from one that had run code already, and shares its workers; start processes with "
            'multiprocessing.get_context("spawn")'
        )
    with _lock:
        if not _pools:
            check_installed()
            from pydantic_monty import Monty

            pool = Monty(max_processes=max(8, os.cpu_count() or 1), feed_duration_limit_grace=GRACE)
            pool.__enter__()
            _pools[os.getpid()] = pool
    return _pools[os.getpid()]


def _run_monty(code: str, inputs: dict[str, Any], seconds: float, memory_mb: int) -> RunResult:
    pool = _pool()
    from pydantic_monty import CollectString, MontyCrashedError, MontyError, MontySyntaxError

    printed = CollectString(MAX_OUTPUT)
    limits = {"max_feed_duration_secs": seconds, "max_memory": memory_mb * 2**20}
    policy = {"datetime": datetime.datetime(2000, 1, 1), "sleep": "zero", "random_start": {"seed": 0}}
    try:
        with pool.checkout(limits=limits, os_policy=policy) as session:
            value = session.feed_run(code, inputs=inputs, print_callback=printed)
    except MontyCrashedError as error:
        why = _too_slow(seconds) if error.timed_out else "MemoryError: the interpreter broke down"
        return RunResult(False, None, printed.output, why)
    except MontyError as error:
        reason = f"SyntaxError: {error}" if isinstance(error, MontySyntaxError) else str(error)
        if reason.startswith("TimeoutError: feed time limit"):  # Monty's own message names microseconds
            reason = _too_slow(seconds)
        elif reason.endswith(f"> {MAX_OUTPUT} bytes"):
            reason = f"MemoryError: printed more than {MAX_OUTPUT} bytes"
        elif reason.startswith(("MemoryError: memory limit exceeded", "MemoryError: the worker exceeded")):
            reason = f"MemoryError: took more than {memory_mb} MiB"
        else:
            reason = reason[:MAX_ERROR]
            frames = error.traceback() if hasattr(error, "traceback") else []
            reason += f" (line {frames[-1].line})" if frames else ""
        return RunResult(False, None, printed.output, reason)
    return finished(value, printed.output)


def _too_slow(seconds: float) -> str:
    return f"TimeoutError: ran longer than {seconds:g} s"
