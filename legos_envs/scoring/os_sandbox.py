"""Runs code under full CPython, sandboxed by the operating system. Opt-in: `sandbox.run(code, kind="os")`.

On Linux `bwrap` (bubblewrap) isolates the program: separate namespaces for processes, network, users, mounts and IPC;
only Python itself and the system libraries from the file system, read-only, with nowhere to write; an empty
environment; no capabilities; a seccomp filter that refuses new processes and threads, shared memory, tracing and the
like. On macOS `sandbox-exec` denies everything but reading Python itself and the system libraries. Inside, resource
limits bound processor time, address space (not enforced by macOS) and files; from outside, the whole process group is
killed when time is up.

A program's result is determined outside the sandbox, from its exit status, the clock and two pipes, one for its output
and one for its value. There is no secret inside that it could find, and nothing it prints is taken for a result. A
program that writes to the second pipe itself invalidates its result, unless it also exits right then. So all it can
choose is its value, which it can choose by its last line anyway.

Without these tools it refuses to run: a model's code is never executed by an unprotected Python.
"""

from __future__ import annotations

import json
import os
import platform
import selectors
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from typing import Any, NamedTuple

from legos_envs.scoring.run_result import KEYS, MAX_ERROR, MAX_OUTPUT, RunResult, finished, refused

START = 5.0
"""Maximum seconds until the interpreter is up, for very busy machines. The program's own time starts then."""
PYTHON_MB = 64
"""Address space that CPython itself takes."""
MAX_RESULT = 2**20
LEAVE = 0.1
"""Seconds allowed for leaving the sandbox, in addition to the program's time."""
TOO_LARGE = "ValueError: the program's value is too large or was tampered with"

UP = b"up\n"

# What runs inside. It reads the task from its input, limits itself, reports that it is up, and runs the program.
RUNNER = """
import ast, json, os, resource, sys
task = json.loads(sys.stdin.buffer.read())
for name, most in task["limits"].items():
    try:
        resource.setrlimit(getattr(resource, name), (most, most))
    except (AttributeError, ValueError, OSError):
        if sys.platform == "linux":
            raise
results = int(sys.argv[1])
os.write(results, b"up\\n")
def check(part):  # JSON would turn the key 1 into "1"
    if isinstance(part, dict):
        if not all(isinstance(key, str) for key in part):
            raise ValueError(task["keys"])
        part = list(part.values())
    for item in part if isinstance(part, (list, tuple)) else ():
        check(item)
value = None
names = dict(task["inputs"], __name__="__main__")
try:
    tree = ast.parse(task["code"], "main.py")
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "main.py", "exec"), names)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), "main.py", "eval"), names)
    check(value)
    said = json.dumps([value, None], allow_nan=False)
except BaseException as caught:
    line, trace = getattr(caught, "lineno", None), caught.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == "main.py":
            line = trace.tb_lineno
        trace = trace.tb_next
    text = f"{type(caught).__name__}: {caught}".removesuffix(": ")[:task["most"]]
    said = json.dumps([None, f"{text} (line {line})" if line else text])
sys.stdout.flush()
with open(results, "w") as file:
    file.write(said)
"""

# Linux system calls that the filter refuses, by machine: (audit architecture, numbers).
_REFUSED = {
    "x86_64": (
        0xC000003E,
        (29, 30, 31, 56, 57, 58, 67, 101, 165, 248, 250, 272, 298, 308, 310, 311, 319, 321, 323, 425, 435),
    ),
    "aarch64": (
        0xC00000B7,
        (40, 97, 117, 194, 195, 196, 197, 217, 219, 220, 241, 268, 270, 271, 279, 280, 282, 425, 435),
    ),
}


def available() -> str | None:
    """The path of this machine's sandboxing tool; None if there is none."""
    if sys.platform == "linux":
        return shutil.which("bwrap") if platform.machine() in _REFUSED else None
    return shutil.which("sandbox-exec") if sys.platform == "darwin" else None


def run(code: str, inputs: dict[str, Any], seconds: float, memory_mb: int) -> RunResult:
    """Like `sandbox.run`, which checks the arguments.

    Raises:
        RuntimeError: the machine has no sandboxing tool, or the tool does not work here.
    """
    tool = available()
    if tool is None:
        raise RuntimeError(
            'kind "os" needs bubblewrap on Linux (x86_64 or aarch64; apt install bubblewrap) or sandbox-exec on macOS; '
            f'found neither on this {platform.system()} {platform.machine()}. kind "monty" needs neither'
        )
    limits = {
        "RLIMIT_AS": (memory_mb + PYTHON_MB) * 2**20,
        "RLIMIT_CPU": int(seconds) + 2,
        "RLIMIT_FSIZE": 0,
        "RLIMIT_CORE": 0,
        "RLIMIT_NOFILE": 32,
        "RLIMIT_NPROC": 1,
    }
    task = {"code": _utf8(code), "inputs": inputs, "limits": limits, "most": MAX_ERROR, "keys": refused(KEYS)}
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as rules:
        given.write(json.dumps(task).encode())
        given.seek(0)
        if sys.platform == "linux":
            rules.write(seccomp())
            rules.seek(0)
        ended = _watch(tool, given, rules, seconds)
    return _result(ended, seconds, memory_mb)._replace(starting=ended.starting)


class ProcessResult(NamedTuple):
    """A program's execution, as observed from outside."""

    output: bytes
    """Output of the program, or of the tool."""
    results: bytes
    """Data from the pipe for its value."""
    status: int | None
    """Exit status; None if it was killed for exceeding its time or output limit."""
    starting: float
    """Seconds until the interpreter was up."""


def _watch(tool: str, given: Any, rules: Any, seconds: float) -> ProcessResult:
    """Runs a task until it ends or exceeds its time or output limit, then kills the whole process group."""
    reading, writing = os.pipe()
    with (
        open(reading, "rb", buffering=0) as results,
        subprocess.Popen(  # noqa: S603 - the command is ours; the program comes in by its input
            _command(tool, rules.fileno(), writing),
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={},
            cwd="/",
            pass_fds=(rules.fileno(), writing),
            start_new_session=True,
        ) as process,
        selectors.DefaultSelector() as ready,
    ):
        os.close(writing)
        assert process.stdout is not None
        said = {results.fileno(): bytearray(), process.stdout.fileno(): bytearray()}
        began, starting = time.monotonic(), 0.0
        deadline = began + START
        for pipe in said:
            ready.register(pipe, selectors.EVENT_READ)
        try:
            while ready.get_map() and sum(map(len, said.values())) <= MAX_OUTPUT + MAX_RESULT:
                found = ready.select(max(0.0, deadline - time.monotonic()))
                if not found:
                    break
                for key, _ in found:
                    part = os.read(key.fd, 65536)
                    said[key.fd] += part
                    if not part:
                        ready.unregister(key.fd)
                if not starting and said[results.fileno()].startswith(UP):
                    starting = time.monotonic() - began
                    deadline = time.monotonic() + seconds + LEAVE
            status = None
            if not ready.get_map():
                with suppress(subprocess.TimeoutExpired):
                    status = process.wait(max(0.0, deadline - time.monotonic()))
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):  # already gone (macOS raises the latter)
                process.kill()
        return ProcessResult(bytes(said[process.stdout.fileno()]), bytes(said[results.fileno()]), status, starting)


def _result(ended: ProcessResult, seconds: float, memory_mb: int) -> RunResult:
    shown = ended.output[:MAX_OUTPUT].decode("utf-8", "replace").encode()[:MAX_OUTPUT].decode("utf-8", "ignore")
    if not ended.results.startswith(UP):
        raise RuntimeError(f"the sandbox did not start: {shown.strip()[:MAX_ERROR] or 'it said nothing'}")
    if len(ended.output) > MAX_OUTPUT:
        return RunResult(False, None, shown, f"MemoryError: printed more than {MAX_OUTPUT} bytes")
    reply = ended.results.removeprefix(UP)
    if ended.status is None:
        large = len(reply) > MAX_RESULT
        return RunResult(False, None, shown, TOO_LARGE if large else f"TimeoutError: ran longer than {seconds:g} s")
    if ended.status or not reply:
        return RunResult(False, None, shown, "SystemExit: the interpreter ended before the program did")
    try:
        value, error = json.loads(reply)
    except (ValueError, TypeError, RecursionError):
        return RunResult(False, None, shown, TOO_LARGE)
    if error is not None:
        memory = str(error).startswith("MemoryError")
        return RunResult(
            False, None, shown, f"MemoryError: took more than {memory_mb} MiB" if memory else str(error)[:600]
        )
    return finished(value, shown)


def _utf8(code: str) -> str:
    """The program; lone surrogates, which no source file can hold, become a character that Python refuses."""
    return code.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def _command(tool: str, rules: int, results: int) -> list[str]:
    python, prefix = os.path.realpath(sys.executable), sys.base_prefix
    start = [python, "-I", "-S", "-B", "-X", "utf8", "-c", RUNNER, str(results)]
    if sys.platform == "darwin":
        return [tool, "-p", profile(prefix), *start]
    flags = ["--unshare-all", "--unshare-user", "--die-with-parent", "--clearenv", "--cap-drop", "ALL"]
    flags += ["--uid", "65534", "--gid", "65534"]
    system = [path for path in ("/usr/lib", "/usr/lib64", "/lib", "/lib64") if os.path.exists(path)]
    for path in dict.fromkeys((*system, os.path.join(prefix, "lib"), os.path.join(prefix, "bin"))):
        flags += ["--ro-bind", path, path]
    return [tool, *flags, "--dir", "/tmp", "--remount-ro", "/", "--chdir", "/tmp", "--seccomp", str(rules), *start]  # noqa: S108


def profile(prefix: str) -> str:
    """The rules for `sandbox-exec`: everything is denied except what Python needs to start."""
    readable = [prefix, "/usr/lib", "/System/Library", "/System/Volumes/Preboot/Cryptexes", "/private/var/db/dyld"]
    paths = " ".join(f"(subpath {json.dumps(path)})" for path in readable)
    return (
        "(version 1)(deny default)(allow process-exec* "
        f"(subpath {json.dumps(prefix)}))(allow sysctl-read)(allow file-read-metadata)"
        f'(allow file-read* (literal "/") (literal "/dev/urandom") (literal "/dev/null") {paths})'
    )


def seccomp() -> bytes:
    """The filter for this machine as classic BPF: refused calls fail with EPERM, those of another architecture kill."""
    architecture, refused = _REFUSED[platform.machine()]
    load, equal, at_least, give = 0x20, 0x15, 0x35, 0x06
    allow, fail, kill = 0x7FFF0000, 0x00050000 | 1, 0x80000000
    code = [(load, 0, 0, 4), (equal, 1, 0, architecture), (give, 0, 0, kill), (load, 0, 0, 0)]
    code += [(at_least, len(refused) + 1, 0, 0x40000000)]  # the x32 calls of x86_64
    code += [(equal, len(refused) - i, 0, number) for i, number in enumerate(refused)]
    code += [(give, 0, 0, allow), (give, 0, 0, fail)]
    return b"".join(struct.pack("=HBBI", *step) for step in code)
