"""The processes that compare formulas, with a stand-in and with math-verify."""

import asyncio
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from legos_envs.scoring import formula_workers, formulas
from legos_envs.scoring.answers import same_answer

# --- the processes: their protocol, with a stand-in that is there at once --------------------------------------------

STAND_IN = """
import json, os, socket, sys, time
control = socket.socket(fileno=int(sys.argv[1]))
control.sendall(b"ready\\n")
while True:
    _, handles, _, _ = socket.recv_fds(control, 1, 1)
    if not handles:
        break
    control.sendall(b"r")
    if os.fork() == 0:
        control.close()
        calls = socket.socket(fileno=handles[0])
        for line in calls.makefile("rb"):
            given, truth, seconds = json.loads(line)
            if "die" in given:
                os._exit(3)
            time.sleep(0.3 if "slow" in given else 0)
            calls.sendall(json.dumps([given == truth, os.getpid()]).encode() + b"\\n")
        os._exit(0)
    os.close(handles[0])
"""


@pytest.fixture
def workers(tmp_path, monkeypatch):
    script = tmp_path / "worker.py"
    script.write_text(STAND_IN)
    monkeypatch.setattr(formula_workers, "SCRIPT", script)
    workers = formula_workers.Workers()
    yield workers
    workers.close()


def test_a_process_that_ends_over_a_question_is_replaced_without_loading_again(workers):
    assert workers.ask("a", "a", 1, 20)[0] is True
    loaded = workers.loaded.process.pid
    assert workers.ask("die", "die", 1, 20) == (None, 1)
    assert workers.ask("a", "b", 1, 20)[0] is False and workers.loaded.process.pid == loaded


def test_one_that_ended_in_its_idle_time_says_nothing_about_the_next_question(workers):
    _, pid = workers.ask("a", "a", 1, 20)
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.1)
    assert workers.ask("a", "a", 1, 20)[0] is True
    workers.loaded.process.kill()
    workers.loaded.process.wait()
    workers.idle.pop().close()
    assert workers.ask("a", "a", 1, 20)[0] is True


def test_a_process_that_confirms_no_socket_is_replaced(workers, monkeypatch):
    """Its late confirmation would be taken for that of the next socket."""
    workers.ask("a", "a", 1, 20)
    workers.idle.pop().close()
    stopped = workers.loaded.process.pid
    os.kill(stopped, signal.SIGSTOP)
    with monkeypatch.context() as patch, pytest.raises(TimeoutError):
        patch.setattr(formula_workers, "STUCK", 0.3)
        workers.ask("a", "a", 1, 20)
    assert workers.loaded is None
    assert workers.ask("a", "a", 1, 20)[0] is True and workers.loaded.process.pid != stopped


def test_threads_ask_at_the_same_time(workers):
    workers.ask("a", "a", 1, 20)
    with ThreadPoolExecutor(8) as pool:
        verdicts = list(pool.map(lambda i: workers.ask(f"x+{i % 5}", f"x+{i % 3}", 1, 20)[0], range(200)))
        assert verdicts == [i % 5 == i % 3 for i in range(200)]
        slow = list(pool.map(lambda i: workers.ask("slow", "slow", 1, 20), range(formula_workers.MOST)))
    assert len({pid for _, pid in slow}) == formula_workers.MOST
    assert len(workers.idle) <= formula_workers.MOST


@pytest.mark.parametrize("answer", [b"r", b"", b"x"])
def test_a_socket_is_not_closed_here_before_it_has_arrived_there(monkeypatch, answer):
    """macOS would lose it."""
    control, there = socket.socketpair()
    worker = object.__new__(formula_workers.LoadedWorker)
    worker.control = control
    made = []
    monkeypatch.setattr(socket, "socketpair", lambda make=socket.socketpair: made.extend(make()) or tuple(made[:2]))
    with ThreadPoolExecutor(1) as pool, there, control:
        forked = pool.submit(worker.fork)
        _, handles, _, _ = socket.recv_fds(there, 1, 1)
        time.sleep(0.05)
        assert made[1].fileno() >= 0 and not forked.done()
        there.sendall(answer) if answer else there.close()
        if answer == b"r":
            with forked.result(5) as ours, socket.socket(fileno=handles[0]) as theirs:
                ours.sendall(b"hello")
                assert theirs.recv(5) == b"hello"
        else:
            with pytest.raises(OSError, match="has ended"):
                forked.result(5)
            os.close(handles[0])
    assert made[1].fileno() < 0


def test_an_interrupt_leaves_no_stale_reply(workers, monkeypatch):
    workers.ask("a", "a", 1, 20)

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(formula_workers, "_call", interrupted)
        with pytest.raises(KeyboardInterrupt):
            workers.ask("a", "a", 1, 20)
    assert workers.idle == [] and workers.ask("a", "b", 1, 20)[0] is False


def test_a_process_that_cannot_start_says_why(workers):
    formula_workers.SCRIPT.write_text(
        "import socket, sys; socket.socket(fileno=int(sys.argv[1])).sendall(b'ImportError: no antlr\\n')"
    )
    with pytest.raises(RuntimeError, match="math-verify is installed but cannot be used: ImportError: no antlr"):
        workers.ask("x", "y", 1, 20)
    formula_workers.SCRIPT.write_text("")
    with pytest.raises(RuntimeError, match="its process has not begun"):
        workers.ask("x", "y", 1, 20)


def test_one_that_loads_for_long_is_not_waited_for(workers, tmp_path):
    """It loads until a file is there, which is after the question was given up."""
    there = tmp_path / "there"
    loads = f"""
import os, time
for _ in range(3000):
    if not os.path.exists({str(there)!r}):
        time.sleep(0.01)
"""
    formula_workers.SCRIPT.write_text(loads + STAND_IN)
    with pytest.raises(TimeoutError):
        workers.ask("a", "a", 1, 0.1)
    assert not workers.wait(0)
    there.touch()
    assert workers.wait(20) and workers.ask("a", "a", 1, 20)[0] is True


def test_a_forked_child_starts_its_own_processes():
    before = formula_workers.WORKERS
    try:
        formula_workers._after_fork()
        assert formula_workers.WORKERS is not before
    finally:
        formula_workers.WORKERS = before


def test_all_processes_end_with_the_one_that_asked(workers):
    code = (
        "import sys; from pathlib import Path; from legos_envs.scoring import formula_workers\n"
        "formula_workers.SCRIPT = Path(sys.argv[1])\n"
        "_, pid = formula_workers.WORKERS.ask('a', 'a', 1, 20)\n"
        "print(pid, formula_workers.WORKERS.loaded.process.pid, flush=True)\n"
        "import os; os._exit(0)"  # without its exit handlers, as after kill -9
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(formula_workers.SCRIPT)], capture_output=True, text=True, check=True
    )
    for pid in map(int, done.stdout.split()):
        for _ in range(100):
            if not _runs(pid):
                break
            time.sleep(0.05)
        assert not _runs(pid)


def _runs(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:  # in a container nobody may fetch the ended
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return True


# --- math-verify itself ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def math_verify():
    if importlib.util.find_spec("math_verify") is None:
        pytest.skip("math-verify is not installed")
    formulas.prepare(280)
    yield
    formula_workers.close()


@pytest.mark.parametrize(
    ("given", "truth", "same"),
    [
        ("\\frac{\\sqrt{2}}{2}", "1/\\sqrt{2}", True),
        ("\\sqrt{8}", "2\\sqrt{2}", True),
        ("\\sqrt{8}", "3\\sqrt{2}", False),
        ("3.1415926536", "\\pi", True),
        ("(x" + "{" * 20, "\\sqrt{x}", False),
        ("\\frac{", "\\sqrt{x}", False),
        ("\ud800x+1", "x+1", False),
    ],
)
def test_formulas(math_verify, given, truth, same):
    assert same_answer(given, truth) is same


def test_formulas_in_threads_and_in_a_running_event_loop(math_verify):
    """math-verify's own time limit works in the main thread only."""
    found = []
    thread = threading.Thread(target=lambda: found.append(same_answer("\\sqrt{12}", "2\\sqrt{3}")))
    thread.start()
    thread.join()

    async def inside():
        both = [asyncio.to_thread(same_answer, f"\\sqrt{{{n}}}", "3\\sqrt{2}") for n in (18, 17)]
        return [same_answer("\\sqrt{20}", "2\\sqrt{5}"), *await asyncio.gather(*both)]

    assert found == [True] and asyncio.run(inside()) == [True, True, False]


LATE = ["(\\sin x+\\cos x)^{60}", "9^{9^{9}}+\\sqrt{x}", "\\sum_{n=1}^{10^9} \\sin(n)"]


@pytest.mark.quick(1)
@pytest.mark.parametrize("text", LATE[:2])
def test_a_late_formula_takes_its_time_and_no_more(math_verify, text):
    workers = formula_workers.WORKERS
    _, process = workers.ask("x+x", "2x", 1.0), workers.loaded.process.pid
    verdict, used = workers.ask(text, "1+\\sqrt{x}", 0.1)
    assert (verdict, used) == (None, 0.1)
    assert workers.ask("x+x", "2x", 5.0)[0] is True and workers.loaded.process.pid == process


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", [*LATE, "((((" * 40 + "x" + "))))" * 40, "100000000!", "9**9**9**9", "\\frac" * 60, "x^" * 190]
)
def test_other_late_formulas(math_verify, text):
    assert not formula_workers.WORKERS.ask(text, "x+1", 0.4)[0]
    assert formula_workers.WORKERS.ask("x+x", "2x", 5.0)[0] is True
