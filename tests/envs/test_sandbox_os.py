"""Full Python inside the walls of the operating system, and programs that would forge their result."""

import pytest

from legos_envs.scoring import os_sandbox
from legos_envs.scoring.run_result import RunResult
from legos_envs.scoring.sandbox import run
from tests.envs.conftest import SECRET
from tests.stopwatch import Stopwatch

walled = pytest.mark.skipif(os_sandbox.available() is None, reason="no bwrap or sandbox-exec on this machine")


def test_without_walls_full_python_is_refused(monkeypatch):
    monkeypatch.setattr(os_sandbox, "available", lambda: None)
    with pytest.raises(RuntimeError, match="apt install bubblewrap"):
        run("1", kind="os")


def test_a_tool_that_does_not_work_is_an_error_and_no_result(monkeypatch, tmp_path):
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho no permission\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(os_sandbox, "available", lambda: str(broken))
    with pytest.raises(RuntimeError, match="the sandbox did not start: no permission"):
        run("1", kind="os")


def test_the_filter_and_the_profile_deny_by_default(monkeypatch):
    monkeypatch.setattr(os_sandbox.platform, "machine", lambda: "aarch64")
    steps = [os_sandbox.seccomp()[i : i + 8] for i in range(0, len(os_sandbox.seccomp()), 8)]
    refused = len(os_sandbox._REFUSED["aarch64"][1])
    assert len(steps) == 5 + refused + 2
    for place, step in enumerate(steps[5:-2], 5):  # every refused call jumps to the last step
        assert step[:2] == b"\x15\x00" and place + 1 + step[2] == len(steps) - 1
    assert os_sandbox.profile("/opt/python").startswith("(version 1)(deny default)")


@walled
def test_full_python_runs_inside_its_walls(canary):
    ran = run("import heapq\nprint('hi')\ndef g():\n  yield from (3, 1)\nheapq.nsmallest(n, g())", {"n": 1}, kind="os")
    assert ran == RunResult(True, [1], "hi\n", None, ran.starting)
    assert run("x = 1\nx / 0", kind="os").error == "ZeroDivisionError: division by zero (line 2)"
    hostile = [
        f"open({canary!r}).read()",
        "open('/etc/passwd').read()",
        f"open({__file__!r}).read()",
        "open('/tmp/x', 'w').write('x')",
        "import os\nos.fork()",
        "import os\nos.memfd_create('x')",
        "import os\nos.kill(-1, 9)",
        "import os\nos._exit(0)",
        "import subprocess\nsubprocess.run(['/bin/ls'])",
        "import threading\nthreading.Thread(target=print).start()",
        "import socket\nsocket.create_connection(('127.0.0.1', 22))",
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
        "import ctypes\nctypes.string_at(0)",
        "while True:\n  try:\n    while True: pass\n  except BaseException: pass",
        "import os\nos.setsid()\nwhile True: pass",
        "[0] * 10**10",
        "x = 'a'\nwhile True: x += x",
        "while True: print('x' * 10**5)",
        "x = [0]\nfor i in range(60): x = [x, x]\nx",
        "x = []\nx.append(x)\nx",
        "float('nan')",
        "x = 1\x00",
        "print('\\ud800')",
        "raise SystemExit",
        "\ud800",
    ]
    for code in hostile:
        watch = Stopwatch()
        ran = run(code, seconds=0.2, kind="os")
        took = watch.seconds - (ran.starting or 0.0)  # a busy machine is slow to start a process
        assert not ran.ok and took < 0.7, f"{code!r}: {ran}"
        assert SECRET not in str(ran) and "root:" not in str(ran)
    environment = run("import os\ndict(os.environ)", kind="os").value
    assert set(environment) <= {"PWD", "LC_CTYPE", "__CF_USER_TEXT_ENCODING"}


FORGED = {  # programs that want to be taken for something else than they are
    "prints what it finds": """
import sys, gc, os
frame, found = sys._getframe(), []
while frame:
    found += [*map(str, frame.f_globals.values()), *map(str, frame.f_locals.values())]
    frame = frame.f_back
found += [part for part in gc.get_objects() if isinstance(part, str)]
for text in found:
    print(f'\\n{text}["forged", null]')
sys.stdout.flush()
os._exit(0)
""",
    "reads the task": """
import os
os.lseek(0, 0, 0)
task = os.read(0, 100000)
nonce = task.decode().rpartition('nonce": "')[2].partition('"')[0]
os.write(1, f'\\n{nonce}["forged", null]\\n'.encode())
os._exit(0)
""",
    "writes to every pipe": """
import os
for pipe in range(1, 256):
    try:
        os.write(pipe, b'["forged", null]')
    except OSError:
        pass
1 / 0
""",
    "writes to every pipe and goes on": """
import os
for pipe in range(1, 256):
    try:
        os.write(pipe, b'["forged", null]\\n')
    except OSError:
        pass
"true"
""",
    "writes to every pipe and stays": """
import os
for pipe in range(1, 256):
    try:
        os.write(pipe, b'["forged", null]')
    except OSError:
        pass
while True: pass
""",
    "writes to every pipe and fails": """
import os
for pipe in range(1, 256):
    try:
        os.write(pipe, b'["forged", null]')
    except OSError:
        pass
os._exit(3)
""",
    "closes every pipe and stays": "import os\nos.closerange(0, 256)\nwhile True: pass",
    "closes every pipe": "import os\nos.closerange(0, 256)",
    "says that it did not start": "import os\nprint('up')\nos._exit(0)",
    "replaces what writes the result": """
import json, builtins
json.dumps = lambda *_, **__: '["forged", null]["forged", null]'
1
""",
}


@walled
@pytest.mark.parametrize("name", FORGED)
def test_no_program_forges_its_result(name):
    """Neither a failure, nor an early or late end can be made to look like a value; and nothing raises."""
    ran = run(FORGED[name], seconds=0.3, kind="os")
    assert not ran.ok and ran.value is None, ran
    assert run(FORGED[name], seconds=0.3, kind="monty").ok is False


@walled
def test_what_is_printed_is_never_taken_for_a_result():
    code = "import sys\nprint('up')\nprint([None, 'forged'], sys.argv, file=sys.stderr)\n7"
    ran = run(code, kind="os")
    assert ran.ok and ran.value == 7 and "forged" in ran.output
    ran = run("x = 1", kind="os")
    assert ran == RunResult(True, None, "", None, ran.starting) and 0 < ran.starting < 10
    large = run("'x' * 60000", kind="os")
    assert large.ok and len(large.value) == 60000
    assert run("'x' * 10**6", kind="os").error.startswith("ValueError: the program's value")


@walled
@pytest.mark.slow
def test_the_time_of_a_program_begins_when_it_does(monkeypatch):
    """A machine on which the interpreter starts slowly makes no program late."""
    slow = os_sandbox.RUNNER.replace("results = int", "import time; time.sleep(0.8); results = int")
    monkeypatch.setattr(os_sandbox, "RUNNER", slow)
    assert run("6 * 7", seconds=0.3, kind="os").value == 42
    monkeypatch.setattr(os_sandbox, "START", 0.2)
    with pytest.raises(RuntimeError, match="the sandbox did not start: it said nothing"):
        run("6 * 7", seconds=0.3, kind="os")


@walled
@pytest.mark.parametrize("code", ["{1: 2, '1': 3}", "[({None: 1},)]"])
def test_keys_that_are_no_strings_do_not_become_some(code):
    ran = run(code, kind="os")
    assert not ran.ok and ran.value is None and ran[:4] == run(code)[:4]
