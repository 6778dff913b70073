"""Formulas are compared in bounded time, whatever they are: by value, by math-verify, or not at all."""

import asyncio
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legos_envs.scoring import algebra, formula_workers, formulas
from legos_envs.scoring.answers import Budget, agree, same_answer
from legos_envs.tasks.problems.ensemble_vote import EnsembleVote, camps

# --- by value: no process is asked -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("(x+1)^2", "x^2 + 2x + 1"),
        ("(x+1)^{9001}-y", "-y+(1+x)^{9001}"),
        ("\\frac{x^2-1}{x-1}", "x+1"),
        ("\\frac12x", "0.5x"),
        ("\\frac{x}{2}", "x/2"),
        ("x^{-1}", "1/x"),
        ("x_1+x_{2}", "x_2+x_1"),
        ("\\alpha\\cdot\\beta", "\\beta \\alpha"),
        ("2\\pi r", "\\pi\\times r \\times 2"),
        ("a-(b-c)", "a-b+c"),
        ("-x^2", "-(x^2)"),
        ("x^10", "x^{10}"),
        ("(1)(2)(x)", "2x"),
    ],
)
def test_equal_values(one, other):
    assert formulas.by_value(one, other) is True


@pytest.mark.parametrize(
    ("one", "other", "known"),
    [
        ("(x+1)^2", "x^2+2x", False),
        ("(-x)^2", "-x^2", False),
        ("x", "y", False),
        ("a-(b-c)", "a-b-c", False),
        ("x_1", "x1", None),
        ("0.333x", "\\frac{x}{3}", None),  # decimals may be rounded
        ("i^2", "-1", None),
        ("\\pi", "3.14", None),
        ("\\sqrt{x}", "x", None),
        ("f(x)", "fx", None),
        ("1/2x", "x/2", None),  # two readings
        ("2^{3^2}", "x", None),
        ("1\\frac12x", "1.5x", None),
        ("(1,2)", "x", None),
        ("x=1", "x", None),
        ("\\frac{1}{x-x}", "x", None),
        ("sin x", "x", None),
        ("x+", "x", None),
        (")x(", "x", None),
        ("x+٣", "x", None),
        ("(" * 200 + "x" + ")" * 200, "x", None),
        ("9" * 5000, "x", None),
    ],
)
def test_other_values(one, other, known):
    assert formulas.by_value(one, other) is formulas.by_value(other, one) is known


EXPRESSIONS = st.recursive(
    st.sampled_from("xyz") | st.integers(0, 20).map(str),
    lambda inner: (
        st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda t: f"({t[0]}{t[1]}{t[2]})")
        | st.tuples(inner, st.integers(0, 3)).map(lambda t: f"({t[0]})^{{{t[1]}}}")
    ),
    max_leaves=8,
)


def at(text, **letters):
    return eval(text.replace("^{", "**(").replace("}", ")"), {}, letters)


@given(EXPRESSIONS, EXPRESSIONS)
def test_values_are_those_of_the_formula(one, other):
    """Against Python's own arithmetic on whole numbers, where small polynomials differ at one point of many."""
    points = [{"x": 1009, "y": -377, "z": 10007}, {"x": 5, "y": 3, "z": -2}, {"x": 0, "y": 1, "z": 77}]
    equal = all(at(one, **point) == at(other, **point) for point in points)
    assert formulas.by_value(one, other) is equal


@given(st.text(alphabet="xyabei0129.+-*/^(){}\\frac _,=!", max_size=40))
def test_any_text_has_a_value_or_none(text):
    assert algebra.value(text) is None or algebra.value(text) == algebra.value(f" {text} ")


# --- which formulas are not tried ------------------------------------------------------------------------------------

ENDLESS = [
    "9^{9^{9^{9}}}",
    "9^9^9^9".replace("^9", "^{9", 3) + "}}}",
    "100000000!",
    "(9!)!",
    "5!!+\\sqrt2",
    "(\\sqrt{x}+1)^{9000001}",
    "((((" * 10 + "\\sqrt{x}" + "))))" * 10,
]
HONEST = ["e^{x^2}", "\\sqrt{5}^{12}", "10!", "2^{2024}-1", "\\frac{1}{1+\\frac{1}{1+\\sqrt{x}}}", "e^{\\frac{x^2}{2}}"]


def test_a_glance_tells_what_would_not_end():
    assert all(map(formulas.endless, ENDLESS)) and not any(map(formulas.endless, HONEST))


@pytest.fixture
def unknown(monkeypatch):
    """Nothing is remembered; math-verify is there."""
    monkeypatch.setattr(formulas, "_memory", formulas._Memory())
    monkeypatch.setattr(formulas, "installed", lambda: True)


@pytest.fixture
def asked(unknown, monkeypatch):
    """A stand-in for math-verify: what it was asked, for how long. B is late; what has the same before a + is equal."""
    calls = []

    def ask(given, truth, seconds, loading):
        calls.append((given, truth, seconds))
        return (None, seconds) if "B" in given + truth else (given.split("+")[0] == truth.split("+")[0], 0.01)

    monkeypatch.setattr(formula_workers.WORKERS, "ask", ask)
    monkeypatch.setattr(formulas, "prepare", lambda seconds: None)
    return calls


def test_endless_formulas_are_not_asked_about(asked):
    assert not any(same_answer(text, "\\sqrt{x}") for text in ENDLESS) and asked == []


def test_verdicts_are_remembered_and_bounded(asked, monkeypatch):
    monkeypatch.setattr(formulas, "REMEMBERED", 10)
    for _ in range(3):
        assert same_answer("\\sqrt{2}+1", "\\sqrt{2}") and not same_answer("\\sqrt{3}", "\\sqrt{2}")
    assert len(asked) == 2
    for i in range(200):  # one of 16 is late, which is no flood yet
        same_answer(f"\\sqrt{{{i}}}" if i % 16 else f"\\sqrt{{{i}B}}", "\\sqrt{2}")
    assert len(formulas._memory.verdicts) == len(formulas._memory.strikes) == 10


def test_a_formula_that_was_late_twice_is_not_tried_again(asked):
    for truth in ("\\sqrt{2}", "\\sqrt{3}", "\\sqrt{5}", "\\sqrt{7}"):
        assert not same_answer("\\sqrt{B}", truth)
    assert len(asked) == 2
    assert same_answer("\\sqrt{2}+1", "\\sqrt{2}")  # the truths are not blamed


def test_a_formula_that_got_less_than_its_time_is_not_judged_for_good(asked, monkeypatch):
    monkeypatch.setattr(formulas, "_memory", formulas._Memory())
    budget = Budget()
    budget.left = budget.limit / 100
    for _ in range(3):
        assert not formulas.same("\\sqrt{B}", "\\sqrt{2}", budget)
        budget.left = budget.limit / 100
    assert not formulas._memory.verdicts and not formulas._memory.strikes and sum(formulas._memory.late) == 3


def test_of_two_unknown_formulas_the_one_that_was_late_before_is_blamed(asked):
    budget, strikes = Budget(), formulas._memory.strikes
    agree("\\sqrt{B}", "\\sqrt{2}", budget)
    assert strikes == {"\\sqrt{B}": 1, "\\sqrt{2}": 1}
    agree("\\sqrt{B}", "\\sqrt{3}", budget)
    assert strikes == {"\\sqrt{B}": 2, "\\sqrt{2}": 1}
    agree("\\sqrt{2}", "\\sqrt{2}+1", budget)
    assert strikes == {"\\sqrt{B}": 2}  # found in time, so not slow in itself


def test_an_episode_pays_for_what_is_late_and_no_more(asked):
    budget = Budget(5)
    late = [same_answer(f"\\sqrt{{{i}B}}", "\\sqrt{2}", budget) for i in range(20)]
    assert not any(late) and sum(seconds for *_, seconds in asked) <= formulas.EPISODE + 1e-9
    assert budget.left <= 1e-9 and len(asked) == 5


def test_when_many_are_late_each_gets_little(asked):
    for i in range(100):
        same_answer(f"\\sqrt{{{i}B}}", "\\sqrt{2}")
    times = [seconds for *_, seconds in asked]
    assert times[0] == formulas.LIMIT and times[10:] == [formulas.FLOODED] * 90
    for i in range(60):
        assert same_answer(f"\\sqrt{{2}}+{i}", "\\sqrt{2}")
    same_answer("\\sqrt{BB}", "\\sqrt{2}")
    assert asked[-1][2] == formulas.LIMIT  # the flood is over


def test_a_process_that_is_not_there_yet_says_nothing_about_a_formula(unknown, monkeypatch):
    def loading(*_):
        raise TimeoutError

    with monkeypatch.context() as patch:
        patch.setattr(formula_workers.WORKERS, "ask", loading)
        assert not same_answer("\\sqrt{2}+0", "\\sqrt{2}")
    monkeypatch.setattr(formula_workers.WORKERS, "ask", lambda *_: (True, 0.0))
    assert same_answer("\\sqrt{2}+0", "\\sqrt{2}")


# --- many answers ----------------------------------------------------------------------------------------------------

BOMBS = [f"(x+1)^{{{n}}}-y" for n in range(9001, 9006)]


def test_five_different_powers_are_settled_without_a_process(asked):
    """They took 69.6 s in one step."""
    env = EnsembleVote([{"question": "?", "answer": "0.5"}], paid_by="majority")
    env.reset(seed=0)
    start = time.process_time()
    for bomb in BOMBS:
        env.step(f"\\boxed{{{bomb}}}")
    assert time.process_time() - start < 0.2 and asked == []
    assert env.infos["solver_0"]["votes"] == [1] * 5


def test_camps_of_formulas_do_not_depend_on_their_order(asked):
    said = ["\\sqrt{2}", "\\sqrt{2}+1", "1/2", "0.5", "2+3", "5", "\\sqrt{B}"]
    sizes = {tuple(map(len, camps(list(order)))) for order in list(permutations(said))[::97]}
    assert sizes == {(2, 2, 1, 1, 1)}
    assert agree("5", "2+3", None) is agree("2+3", "5", None) is False
    assert agree("x = 5", "5", None) is agree("5", "x = 5", None) is True


def test_late_formulas_do_not_cost_the_others_their_camp(asked):
    honest = ["\\sqrt{2}", "\\sqrt{2}+1", "\\sqrt{2}+2", "\\sqrt{2}+3"]
    found = camps(["\\sqrt{B}", *honest[:2], "\\sqrt{BB}", *honest[2:]])
    assert found[0] == [1, 2, 4, 5]
    assert sum(seconds for one, other, seconds in asked if "B" in one + other) <= formulas.EPISODE


def test_answers_that_are_right_are_one_camp_without_comparing_them(asked):
    right = [same_answer(a, "\\sqrt{2}") for a in ("\\sqrt{2}+1", "\\sqrt{2}+2", "\\sqrt{3}")]
    before = len(asked)
    assert camps(["\\sqrt{2}+1", "\\sqrt{2}+2", "\\sqrt{3}"], right) == [[0, 1], [2]] and len(asked) == before


def test_an_episode_with_late_answers_everywhere_stays_within_its_time(asked):
    for paid_by in ("truth", "majority"):
        asked.clear()
        formulas._memory = formulas._Memory()
        env = EnsembleVote([{"question": "?", "answer": "\\sqrt{2}"}], num_solvers=64, paid_by=paid_by)
        env.reset(seed=0)
        for i in range(64):
            env.step(f"\\boxed{{\\sqrt{{{i}B}}}}")
        assert asked and sum(seconds for *_, seconds in asked) <= formulas.EPISODE + 0.001


# --- the processes: their protocol, with a stand-in that is there at once --------------------------------------------

STAND_IN = """
import json, os, socket, sys, time
control = socket.socket(fileno=int(sys.argv[1]))
control.sendall(b"ready\\n")
while True:
    _, handles, _, _ = socket.recv_fds(control, 1, 1)
    if not handles:
        break
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


def test_threads_ask_at_the_same_time(workers):
    workers.ask("a", "a", 1, 20)
    with ThreadPoolExecutor(8) as pool:
        verdicts = list(pool.map(lambda i: workers.ask(f"x+{i % 5}", f"x+{i % 3}", 1, 20)[0], range(200)))
        assert verdicts == [i % 5 == i % 3 for i in range(200)]
        slow = list(pool.map(lambda i: workers.ask("slow", "slow", 1, 20), range(formula_workers.MOST)))
    assert len({pid for _, pid in slow}) == formula_workers.MOST
    assert len(workers.idle) <= formula_workers.MOST


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


def test_one_that_loads_for_long_is_not_waited_for(workers):
    formula_workers.SCRIPT.write_text(f"import time; time.sleep(1.5)\n{STAND_IN}")
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        workers.ask("a", "a", 1, 0.1)
    assert time.monotonic() - start < 1.4
    assert workers.wait(20) and workers.ask("a", "a", 1, 0.1)[0] is True


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
