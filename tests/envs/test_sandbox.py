"""Hostile programs come back in time, read nothing, raise nothing, and leave the sandbox as it was."""

import asyncio
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from legos_envs.scoring import sandbox
from legos_envs.scoring.run_result import MAX_OUTPUT, RunResult
from legos_envs.scoring.sandbox import run
from tests.envs.conftest import SECRET
from tests.stopwatch import Stopwatch

LIMIT = 0.1

ENDLESS = {  # run into the limit of time
    "loop": "while True: pass",
    "loop that catches": "while True:\n  try:\n    while True: pass\n  except BaseException: pass",
    "exec loop": "exec('while 1: pass')",
    "long sum": "sum(range(10**10))",
    "long max": "max(range(10**10))",
    "repeat": "import itertools\nsum(itertools.repeat(1))",
    "cycle": "import itertools\nfor x in itertools.cycle([1]): pass",
    "factorial": "import math\nmath.factorial(10**6)",
    "growing integer": "x = 10**18\nwhile True: x *= x",
    "integer as text": "10**10000000",
    "sleep": "import time\nwhile True: time.sleep(1)",
    "async sleep": "import asyncio\nasync def f():\n  while True: await asyncio.sleep(10)\nawait f()",
    "doubling text": "x = [0]\nfor i in range(60): x = [x, x]\nlen(repr(x))",
    "mutual recursion": "def f():\n  try: f()\n  except RecursionError: f()\nf()",
}
LARGE = {  # run into the limit of memory
    "list": "[0] * 10**10",
    "text": "'a' * 10**10",
    "bytes": "bytes(10**10)",
    "power": "10 ** 10**8",
    "modular": "pow(3, 10**9)",
    "appending": "x = []\nwhile True: x.append(x)",
    "growing text": "x = 'a'\nwhile True: x += x",
    "dict": "d = {}\ni = 0\nwhile True:\n  d[i] = i\n  i += 1",
    "padding": "'a'.ljust(10**10)",
    "percent": "'%1000000000d' % 1",
    "replace": "'a'.replace('a', 'b' * 10**9)",
    "join": "('x' * 10**6).join(['y'] * 10**5)",
    "caught": "while True:\n  try:\n    x = [0] * 10**9\n  except MemoryError:\n    pass",
    "print": "print('x' * 10**8)",
    "range": "list(range(10**8))",
    "product": "import itertools\nlist(itertools.product(range(1000), repeat=5))",
}
REFUSED = {  # the machine is not there
    "open": "open({path!r}).read()",
    "write": "open('/tmp/legos-was-here', 'w').write('x')",
    "path": "from pathlib import Path\nPath({path!r}).read_text()",
    "listdir": "import os\nos.listdir('/')",
    "iterdir": "from pathlib import Path\nlist(Path('/').iterdir())",
    "environ": "import os\ndict(os.environ)",
    "getenv": "import os\nos.getenv('HOME', 1) + 1",
    "urandom": "import os\nos.urandom(4)",
    "system": "import os\nos.system('ls')",
    "popen": "import os\nos.popen('ls').read()",
    "fork": "import os\nos.fork()",
    "subprocess": "import subprocess",
    "socket": "import socket",
    "urllib": "import urllib.request",
    "threading": "import threading",
    "ctypes": "import ctypes",
    "importlib": "import importlib",
    "pickle": "import pickle",
    "gc": "import gc",
    "inspect": "import inspect",
    "__import__": "__import__('os').system('ls')",
    "builtins": "__builtins__['open']",
    "globals": "globals()",
    "input": "input()",
    "exit": "exit()",
    "sys.exit": "import sys\nsys.exit(0)",
    "breakpoint": "breakpoint()",
    "subclasses": "().__class__.__bases__[0].__subclasses__()",
    "object": "object.__subclasses__()",
    "code": "(lambda: 0).__code__",
    "function globals": "(lambda: 0).__globals__",
    "getattribute": "().__getattribute__('__class__')",
    "format": "'{0.__class__}'.format(1)",
    "compile": "compile('1', '', 'eval')",
}
WRONG = {  # ordinary mistakes, and text that is not a program
    "division": "1 / 0",
    "name": "nothing",
    "assert": "assert 1 == 2, 'no'",
    "recursion": "def f(): return f()\nf()",
    "tree recursion": "def f(): return [f() for _ in range(10)]\nf()",
    "exec recursion": "def f(): exec('f()')\nf()",
    "raise": "raise ValueError('\\x00\\ud800')",
    "system exit": "raise SystemExit",
    "interrupt": "raise KeyboardInterrupt",
    "base": "raise BaseException('b')",
    "memory": "raise MemoryError",
    "timeout": "raise TimeoutError('mine')",
    "long message": "raise Exception('x' * 10**7)",
    "syntax": "def f(:",
    "prose": "Here is the code you asked for!",
    "fence": "```python\n1\n```",
    "nul": "x = 1\x00",
    "surrogate": "x = '\ud800'",
    "right to left": "\u202ex = 1",
    "open brackets": "[" * 20000,
    "nested brackets": "[" * 20000 + "]" * 20000,
    "minus": "-" * 50000 + "1",
    "sum": "1+" * 50000 + "1",
    "attributes": "a." * 10000 + "b",
    "blocks": "".join(" " * i + "if 1:\n" for i in range(500)) + " " * 500 + "pass",
    "json": "import json\njson.loads('[' * 100000)",
    "regex": "import re\nre.compile('(' * 10000)",
    "digits": "int('9' * 100000)",
    "yield": "def f():\n  yield 1",
    "del": "x = 1\ndel x",
    "inheritance": "class A: pass\nclass B(A): pass",
}
VALUES = {  # programs that run, with a value that is not JSON or too large
    "set": "{1, 2}",
    "bytes": "b'a'",
    "nan": "float('nan')",
    "infinity": "[1e999]",
    "complex": "1j",
    "ellipsis": "...",
    "exception": "ValueError('a')",
    "object": "class A: pass\nA()",
    "equal to all": "class A:\n  def __eq__(self, other): return True\n[A()]",
    "integer keys": "{1: 2}",
    "huge integer": "2 ** 10**6",
    "long text": "'a' * 10**6",
    "many items": "[0] * 10**5",
    "shared items": "x = [0]\nfor i in range(60): x = [x, x]\nx",
    "deep": "x = []\nfor i in range(10**5): x = [x]\nx",
    "deep dict": "x = 1\nfor i in range(3000): x = {'a': x}\nx",
}


@pytest.mark.parametrize("kind", ["ENDLESS", "LARGE", "REFUSED", "WRONG", "VALUES"])
def test_hostile_programs_come_back_in_time_with_nothing(kind, canary):
    error = {"ENDLESS": "TimeoutError: ran longer than 0.1 s", "LARGE": "MemoryError: took more than 32 MiB"}.get(kind)
    for name, code in globals()[kind].items():
        watch = Stopwatch()
        # endless ones get little time; the others enough to reach the limit they are about on a busy machine
        seconds = LIMIT if kind == "ENDLESS" else 2.0
        code = code.replace("{path!r}", repr(canary))
        ran = run(code, seconds=seconds, memory_mb=32 if kind == "LARGE" else 64)
        assert watch.seconds < seconds + 0.5, name
        assert not ran.ok and ran.value is None, f"{name}: {ran}"
        assert len(ran.error) <= 600 and len(ran.output) <= MAX_OUTPUT, name
        assert SECRET not in str(ran) and "root:" not in str(ran), name
        json.dumps(ran)
        if error:
            assert ran.error == error, f"{name}: {ran}"
        if kind == "VALUES":
            assert ran.error.startswith("ValueError: the program's value "), f"{name}: {ran}"
        assert run("6 * 7").value == 42, f"after {name}"
    assert not os.path.exists("/tmp/legos-was-here")


def test_there_are_enough_hostile_programs():
    assert sum(map(len, (ENDLESS, LARGE, REFUSED, WRONG, VALUES))) >= 100


@pytest.mark.parametrize("code", ["print('x' * 10**6)", "for i in range(20000): print('some words')"])
def test_what_is_printed_is_kept_up_to_a_limit(code):
    ran = run(code)
    assert ran.error == f"MemoryError: printed more than {MAX_OUTPUT} bytes"
    assert MAX_OUTPUT - 8192 < len(ran.output) <= MAX_OUTPUT


def test_a_flood_of_prints_ends_with_the_time():
    watch = Stopwatch()
    assert not run("while True: print('x' * 10**5)", seconds=LIMIT).ok
    assert watch.seconds < LIMIT + 0.5


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("def f(n):\n  return n if n < 2 else f(n - 1) + f(n - 2)\nf(15)", 610),
        ("def f(n):\n  return 1 if n < 2 else n * f(n - 1)\nf(300) % 1000003 == 0", False),
        ("def f(*a, k=1, **kw):\n  return [a, k, kw]\nf(1, 2, k=3, z=4)", [[1, 2], 3, {"z": 4}]),
        ("sorted([3, 1, 2], key=lambda x: -x)", [3, 2, 1]),
        ("d = {}\nfor c in 'abca': d[c] = d.get(c, 0) + 1\nd", {"a": 2, "b": 1, "c": 1}),
        ("' a,b '.strip().upper().split(',')", ["A", "B"]),
        ("[x * y for x in range(3) for y in range(3) if x != y]", [0, 0, 0, 2, 0, 2]),
        ("def f(a):\n  return max(a)\nassert f([1, 3]) == 3\nassert f([-1]) == -1\n'passed'", "passed"),
        ("import math, re\n[math.gcd(12, 18), re.findall('[0-9]+', 'a1b22')]", [6, ["1", "22"]]),
        ("from collections import Counter, deque\nCounter('aab').most_common(1)", [["a", 2]]),
        ("from functools import lru_cache\n@lru_cache(None)\ndef f(n): return n if n < 2 else f(n-1) + f(n-2)\nf(80)",
         23416728348467685),
        ("import itertools\nlist(itertools.combinations('abc', 2))", [["a", "b"], ["a", "c"], ["b", "c"]]),
        ("def f():\n  n = 0\n  def g():\n    nonlocal n\n    n += 1\n    return n\n  return g\nf()()", 1),
        ("class A:\n  def __init__(s, x): s.x = x\n  def __add__(s, o): return A(s.x + o.x)\n(A(1) + A(2)).x", 3),
        ("try:\n  int('x')\nexcept ValueError as e:\n  r = 'bad'\nfinally:\n  s = 1\nr", "bad"),
        ("match [1, 2]:\n  case [a, b]: r = a + b\nr", 3),
        ("f'{3.14159:.2f}' + '%03d' % 7", "3.14007"),
        ("x, *y = range(4)\ny[::-1]", [3, 2, 1]),
        ("x = 1", None),
        ("", None),
        ("'\\ud800'", "\ufffd"),
    ],
)  # fmt: skip
def test_ordinary_programs_work(code, value):
    assert run(code) == RunResult(True, value, "", None)


def test_the_subset_named_in_prompts_is_the_real_one():
    named = sandbox.SUBSET.partition("import ")[2].rstrip(".").replace(" and ", ", ").split(", ")
    assert len(named) == 7
    assert all(run(f"import {module}").ok for module in named)


def test_inputs_output_and_errors_are_reported():
    ran = run("print('hi')\nprint('there')\na['k'][0] + b", {"a": {"k": [20]}, "b": 22})
    assert ran == RunResult(True, 42, "hi\nthere\n", None)
    assert run("x = 1\n\nx / 0").error == "ZeroDivisionError: division by zero (line 3)"
    assert run("print('so far')\n1 / 0").output == "so far\n"
    assert run("def f(:").error.startswith("SyntaxError: ")


def test_runs_start_from_nothing_and_are_repeatable():
    run("leak = 5\nimport math")
    assert run("leak").error.startswith("NameError") and run("math").error.startswith("NameError")
    code = "import random, datetime\n[random.random(), str(datetime.datetime.now()), hash('a'), list({'b', 'a', 'c'})]"
    assert run(code).ok and run(code) == run(code)
    watch = Stopwatch()
    assert run("import time\ntime.sleep(100)").ok and watch.seconds < 1


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("x = 1", "x = 1"),
        ("Here:\n```python\nx = 1\ny = 2\n```\nDone.", "x = 1\ny = 2\n"),
        ("```\nx\n```\nBetter:\n```py\ny\n```", "y\n"),
        ("```python\nx = 1", "x = 1"),
        ("```\nx\n```\n```python\ny", "y"),
        ("```", ""),
        ("", ""),
        ("  ```\n  x\n  ```", "  x\n"),
    ],
)
def test_the_program_in_a_completion(text, code):
    assert sandbox.program(text) == code


@pytest.mark.parametrize("text", ["```\n" * 16000, "`" * 65536, "```" * 20000, "\n" * 65536])
def test_programs_are_found_in_linear_time(text):
    start = time.process_time()
    sandbox.program(text)
    assert time.process_time() - start < 0.05


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"code": 5}, TypeError, "code must be a str; got int"),
        ({"kind": "month"}, ValueError, "kind must be one of 'monty', 'os'; got 'month' .did you mean 'monty'"),
        ({"seconds": 0}, ValueError, "seconds must be a finite number from 0.01 to 60"),
        ({"memory_mb": 0}, ValueError, "memory_mb must be a whole number from 1 to 4096"),
        ({"inputs": {"a b": 1}}, TypeError, "names in inputs must be Python identifiers; got 'a b'"),
        ({"inputs": {"a": {1}}}, TypeError, "inputs.'a'. must be a JSON value: has a set"),
    ],
)
def test_arguments_are_checked(given, error, message):
    with pytest.raises(error, match=message):
        run(**{"code": "1", **given})


def test_it_works_from_threads_and_inside_an_event_loop():
    with ThreadPoolExecutor(12) as threads:
        assert list(threads.map(lambda n: run("n * n", {"n": n}).value, range(60))) == [n * n for n in range(60)]

    async def inside():
        return run("1 + 1").value, await asyncio.to_thread(lambda: run("2 + 2").value)

    assert asyncio.run(inside()) == (2, 4)


def test_a_forked_process_is_told_to_be_spawned_and_harms_nobody():
    code = """
import os
from legos_envs.scoring.sandbox import run
assert run("1").value == 1
child = os.fork()
if not child:
    try:
        run("1")
    except RuntimeError as error:
        raise SystemExit(7 if "spawn" in str(error) else 8)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert run("2").value == 2
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code], capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_without_monty_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(sandbox, "_pools", {})
    monkeypatch.setitem(sys.modules, "pydantic_monty", None)
    with pytest.raises(ImportError, match=r"uv sync --extra tasks"):
        run("1")
