"""CodeGen: the exercises are sound, the rewards are what the page says, and neither text runs outside the sandbox."""

import asyncio
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import legos_envs
from legos_envs.policies import make_policy
from legos_envs.scoring import os_sandbox
from legos_envs.scoring.sandbox import run
from legos_envs.tasks.code import code_gen, sandboxed_calls
from legos_envs.tasks.code.code_items import ITEMS
from legos_envs.tasks.code.mutants import _mutants as mutants_of
from legos_envs.tasks.code.sandboxed_calls import FAILED, reference_results, results_of, same
from legos_envs.tasks.code.unit_tests import UnitTest, read_tests
from legos_envs.testing import check_env
from tests.stopwatch import Stopwatch

CLAMP = ITEMS["clamp"]  # wrong programs: no lower bound, no upper bound, upper bound one too low
GOOD_TESTS = "assert clamp(-5, 0, 10) == 0\nassert clamp(15, 0, 10) == 10"


def test_without_the_interpreter_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydantic_monty", None)
    with pytest.raises(ImportError, match=r"--extra tasks"):
        code_gen.CodeGen()
    code_gen.CodeGen(sandbox="os")


def play(coder, tester, **kwargs):
    env = legos_envs.make("CodeGen-v0", **kwargs)
    said = {"coder": coder, "tester": tester}
    return asyncio.run(legos_envs.play(env, lambda d: said[d.role], 0, {"item": "clamp"}))


def info(episode, agent):
    return episode.trajectories[agent].info


@pytest.mark.parametrize("name", ITEMS)
def test_the_first_five_calls_tell_every_wrong_program_from_the_reference(name):
    item = ITEMS[name]
    expected = reference_results(ITEMS[name])
    assert len(item.calls) >= 5 and len(item.wrong) == 3 and FAILED not in expected
    assert len({*map(str, item.calls)}) == len(item.calls)
    for code in item.wrong:
        results, error = results_of(code, name, item.calls)
        right = [same(a, b) for a, b in zip(results, expected)]
        assert error is None and any(right), "a wrong program should be almost right"
        assert not all(right[:5]), f"the first five calls do not catch:\n{code}"


def test_there_are_enough_exercises_and_the_reference_agrees_with_python():
    assert len(ITEMS) >= 20
    names = {"is_palindrome": [True, True, False, True, False, False, True], "digit_sum": [15, 6, 18, 0, 1, 18]}
    for name, results in names.items():
        assert reference_results(ITEMS[name]) == results


def test_the_coder_is_paid_by_the_hidden_calls():
    assert play(f"```python\n{CLAMP.reference}\n```", GOOD_TESTS).returns["coder_0"] == 1
    episode = play("def clamp(value, low, high):\n    return min(value, high)", GOOD_TESTS)
    assert episode.returns["coder_0"] == pytest.approx(5 / 6)  # wrong on clamp(-5, 0, 10) only
    assert info(episode, "coder_0")["passed"] == episode.returns["coder_0"] and episode.outcome == "failed"
    assert play(CLAMP.reference, GOOD_TESTS).outcome == "solved"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("I cannot do it.", "SyntaxError"),
        ("def other(): pass", None),  # every call fails by itself
        ("1 / 0\n" + CLAMP.reference, "ZeroDivisionError"),
        ("while True: pass", "TimeoutError: ran longer than 0.2 s"),
        ("import os\nos.listdir('/')", "PermissionError"),
        ("def clamp(value, low, high):\n    return {value}", None),
        ("def clamp(value, low, high):\n    return float('nan')", None),
        ("def clamp(value, low, high):\n    raise SystemExit", "SystemExit"),
        ("```\n```", None),
    ],
)
def test_programs_that_do_not_work_get_nothing(code, error):
    episode = play(code, GOOD_TESTS, seconds=0.2)
    said = info(episode, "coder_0")["error"]
    assert episode.returns["coder_0"] == 0 and episode.returns["tester_0"] > 0
    assert said is None if error is None else said.startswith(error)


@pytest.mark.parametrize(
    "trick",
    [
        "class All:\n    def __eq__(self, other): return True\ndef clamp(a, b, c): return All()",
        "def clamp(a, b, c): return True",
        "results_ = ['0', '10', '4', '10', '0', '-3']\ndef clamp(a, b, c): pass",
        "calls_ = []\ndef clamp(a, b, c): pass",
        "def clamp(a, b, c):\n    calls_.clear()\n    return 0",
    ],
)
def test_a_program_cannot_give_itself_marks(trick):
    assert play(trick, GOOD_TESTS).returns["coder_0"] <= 2 / 6  # two of six results are 0


def test_the_tester_is_paid_for_right_tests_times_programs_caught():
    for tests, right, written, caught in (
        (GOOD_TESTS, 2, 2, 3),
        ("assert clamp(-5, 0, 10) == 0", 1, 1, 1),
        ("assert clamp(10, 0, 10) == 10\nassert clamp(15, 0, 10) == 10", 2, 2, 2),
        ("assert clamp(4, 0, 10) == 4", 1, 1, 0),
        ("assert clamp(4, 0, 10) == 5", 0, 1, 0),
        (GOOD_TESTS + "\nassert clamp(1, 2, 3) == 1", 2, 3, 3),
        (GOOD_TESTS + "\nassert clamp(open('x'), 2, 3) == 1", 2, 3, 3),
        (GOOD_TESTS + "\nassert clamp('a', 2, 3) == 1", 2, 3, 3),
        (GOOD_TESTS + "\nassert True", 2, 3, 3),
        ("Some tests:\n```python\n" + GOOD_TESTS + "\n```", 2, 2, 3),
    ):
        episode = play(CLAMP.reference, tests)
        assert episode.returns["tester_0"] == pytest.approx(right / written * caught / 3), tests
        facts = info(episode, "tester_0")
        assert (facts["tests"], facts["right"], facts["caught"]) == (written, right, caught)


def test_only_the_first_tests_count():
    tests = "\n".join([GOOD_TESTS] * 2 + ["assert clamp(0, 0, 0) == 9"] * 5)
    assert info(play(CLAMP.reference, tests), "tester_0")["tests"] == 5
    assert play(CLAMP.reference, tests, max_tests=4).returns["tester_0"] == 1


def test_the_coder_may_be_paid_by_the_tester_instead():
    wrong = "assert clamp(1, 0, 10) == 7\nassert clamp(2, 0, 10) == 2\nassert nonsense"
    episode = play(CLAMP.reference, wrong, coder_scored_by="tester")
    assert episode.returns == {"coder_0": 0.5, "tester_0": 0.0} and episode.outcome == "solved"
    assert play(CLAMP.reference, "assert what", coder_scored_by="tester").returns["coder_0"] == 0


def test_an_invalid_move_costs_only_its_own_agent():
    episode = play("", GOOD_TESTS)
    assert episode.returns == {"coder_0": -1, "tester_0": 1} and episode.outcome == "failed"
    episode = play(CLAMP.reference, "no tests here")
    assert episode.returns == {"coder_0": 1, "tester_0": -1}
    assert "no line begins with 'assert clamp('" in info(episode, "tester_0")["invalid"]
    assert play("", "none", coder_scored_by="tester").returns == {"coder_0": -1, "tester_0": -1}


def test_nothing_is_learned_from_code_that_nobody_has_tested():
    def learned(*said, **kwargs):
        return [agent for agent, trajectory in play(*said, **kwargs).trajectories.items() if trajectory.trainable]

    episode = play(CLAMP.reference, "no tests here", coder_scored_by="tester")
    assert episode.returns == {"coder_0": 0, "tester_0": -1}
    assert learned(CLAMP.reference, "no tests here", coder_scored_by="tester") == ["tester_0"]
    for said, scorer in (((CLAMP.reference, "no tests here"), "reference"), (("", "no"), "tester"),
                         ((CLAMP.reference, GOOD_TESTS), "tester")):  # fmt: skip
        assert learned(*said, coder_scored_by=scorer) == ["coder_0", "tester_0"]


def test_neither_sees_the_other_or_the_reference():
    env = legos_envs.make("CodeGen-v0")
    env.reset(seed=0, options={"item": "clamp"})
    env.select("coder_0")
    env.step("SECRET-CODE")
    prompt = env.observe("tester_0")["messages"][-1]["content"]
    assert "clamp(value: int, low: int, high: int) -> int" in prompt and CLAMP.spec in prompt
    assert "SECRET" not in prompt and "min(" not in prompt
    assert set(env.ready_agents) == {"tester_0"}


@pytest.mark.parametrize(
    ("line", "case"),
    [
        ("assert f(1, 'a') == [1, {'k': None}]", UnitTest([1, "a"], [1, {"k": None}])),
        ("assert f((1, 2)) == (3,)", UnitTest([(1, 2)], [3])),
        ("assert f({1: (2,)}) == {3: 'x'}", UnitTest([{1: (2,)}], {"3": "x"})),
        ("assert f(-1) == -2, 'why'", UnitTest([-1], -2)),
        ("assert f() is None", UnitTest([], None)),
        ("assert f('x')", UnitTest(["x"], True)),
        ("assert not f('x')", UnitTest(["x"], False)),
        ("assert(f(1) == 2)", UnitTest([1], 2)),
        ("assert(f(1) == 2, 'why')", None),
        ("assert f('\\d') == '\\d'", UnitTest(["\\d"], "\\d")),
        ("assert f({1, 2}) == 3", None),
        ("assert f(1) == f(1)", None),
        ("assert f(1) != 2", None),
        ("assert 2 == f(1)", None),
        ("assert 1 == f(1) == 1", None),
        ("assert f(x=1) == 1", None),
        ("assert f(*[1]) == 1", None),
        ("assert g(1) == 1", None),
        ("assert f(1) == 1; import os", None),
        ("assert f(__import__('os').system('ls')) == 1", None),
        ("assert f(1e999) == 1", None),
        ("assert f(1) ==", None),
        ("assert f(\x00) == 1", None),
        ("assert f(" + "9" * 6000 + ") == 1", None),
        ("assert f(" + "-" * 450 + "1) == 1", None),
        ("assert f(" + "(" * 200 + ") == 1", None),
    ],
)
def test_a_line_is_read_and_never_run(line, case):
    assert read_tests(line, "f", 5) == [case]


@given(st.text(st.sampled_from("f()[]{}'\"\\=,1-. \n\x00aé"), max_size=80))
def test_any_line_is_read_without_an_exception(text):
    assert len(read_tests(f"assert {text}\nassert f({text}) == 1", "f", 20)) >= 1


@pytest.mark.parametrize("text", ["assert " * 9000, "assert f(" * 7000, "assert f(1)\n" * 5400, "[" * 65536])
def test_tests_are_read_in_linear_time(text):
    start = time.process_time()
    read_tests(text, "f", 20)
    assert time.process_time() - start < 0.05


def test_results_are_compared_with_their_types():
    assert same([1, {"a": None}], [1, {"a": None}]) and same(2.0, 2)
    for a, b in ((True, 1), (0, False), ("1", 1), ([1], [1, 2]), ({"a": 1}, {"b": 1}), (None, 0), (FAILED, FAILED)):
        assert not same(a, b)


@pytest.mark.slow
def test_scripted_players_are_ordered_by_skill():
    def mean(**players):
        env = legos_envs.make("CodeGen-v0", source="written")
        made = {role: make_policy(f"scripted:{name}", env) for role, name in players.items()}
        make = lambda: legos_envs.make("CodeGen-v0", source="written")  # noqa: E731
        episodes = asyncio.run(legos_envs.play_many(make, made, range(30), concurrency=1))
        return [sum(e.returns[agent] for e in episodes) / 30 for agent in ("coder_0", "tester_0")]

    good, middle, poor = (
        mean(coder=c, tester=t) for c, t in (("good", "good"), ("almost", "single"), ("poor", "poor"))
    )
    assert good == [1, 1]
    assert all(good[i] - middle[i] > 0.2 and middle[i] - poor[i] > 0.2 for i in (0, 1))


def test_arguments_and_options_are_checked():
    for kwargs, message in (
        ({"coder_scored_by": "testers"}, "must be one of 'reference', 'tester'; got 'testers'"),
        ({"max_tests": 0}, "max_tests must be a whole number from 1 to 20; got 0"),
        ({"seconds": 0.01}, "seconds must be a finite number from 0.05 to 30"),
        ({"sandbox": "none"}, "sandbox must be one of 'monty', 'os'"),
    ):
        with pytest.raises(ValueError, match=message):
            legos_envs.make("CodeGen-v0", **kwargs)
    with pytest.raises(ValueError, match=r"option item: 'clam' is unknown\. Did you mean 'clamp'"):
        legos_envs.make("CodeGen-v0", source="written").reset(seed=0, options={"item": "clam"})


@pytest.mark.slow
@pytest.mark.parametrize("kwargs", [{"coder_scored_by": "tester", "max_tests": 2}, {"memory": "state"}])
def test_variants_keep_the_laws(kwargs):
    check_env("CodeGen-v0", episodes=10, skip=("seed.process",), raise_on_failure=True, **kwargs)


def test_the_sandbox_is_used_for_all_that_runs(monkeypatch):
    seen = []

    def watched(code, *args, **kwargs):
        seen.append(code)
        return run(code, *args, **kwargs)

    monkeypatch.setattr(code_gen.sandbox, "run", watched)
    play("SECRET = 1", GOOD_TESTS)
    assert sum("SECRET" in code for code in seen) == 1


LOOP = "def clamp(*_):\n    while True: pass"


def test_all_programs_of_a_step_share_its_time(monkeypatch):
    """Five or six programs run in the last step. However slow each is, they get three times `seconds` together."""
    given = []

    def slow(code, inputs, seconds, kind):
        given.append(seconds)
        clock[0] += seconds
        return run("1 / 0") if "while" in code else run(code, inputs)

    clock = [0.0]
    monkeypatch.setattr(sandboxed_calls.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(sandboxed_calls.sandbox, "run", slow)
    for kwargs in ({}, {"coder_scored_by": "tester"}):
        given.clear()
        play(LOOP, GOOD_TESTS, seconds=0.5, **kwargs)
        assert 3 <= len(given) <= 9 and sum(given) <= 3 * 0.5 + len(given) * sandboxed_calls.STARTING, given


@pytest.mark.parametrize("id", ["CodeGen-v0", "RedBlue-v0"])
def test_a_reference_that_was_not_run_decides_nothing_and_is_not_remembered(id, monkeypatch):
    sandboxed_calls._reference_results.cache_clear()
    mutants_of.cache_clear()
    row = {"prompt": "Doubles it.", "code": "def f(n):\n    return n * 2", "tests": ["assert f(3) == 6"]}
    env = legos_envs.make(id, source=[row], **({"variant": "patch"} if id == "RedBlue-v0" else {}))
    late, real = (
        [sandboxed_calls.sandbox.RunResult(False, None, "", "TimeoutError: ran longer than 5 s")],
        sandboxed_calls.sandbox.run,
    )
    monkeypatch.setattr(
        sandboxed_calls.sandbox, "run", lambda *args, **kwargs: late.pop() if late else real(*args, **kwargs)
    )
    said = {"coder": row["code"], "tester": row["tests"][0], "defender": row["code"], "attacker": '{"args": [3]}'}
    outcomes, returns = [], []
    for _ in range(2):
        episode = asyncio.run(legos_envs.play(env, lambda d: said[d.role], 1))
        outcomes.append(episode.outcome)
        returns.append(set(episode.returns.values()))
    assert outcomes == ["unscored", "solved" if id == "CodeGen-v0" else "defender"]
    assert returns == [{0}, {1} if id == "CodeGen-v0" else {1, -1}]


def test_wrong_programs_that_were_not_run_are_not_caught(monkeypatch):
    real = sandboxed_calls.results_of

    def late(code, name, calls, left=None, kind="monty"):
        results = real(code, name, calls, None, kind)
        if left is not None and code == CLAMP.wrong[0]:
            left.seconds = 0
        return results

    monkeypatch.setattr(code_gen, "results_of", late)
    assert info(play(CLAMP.reference, GOOD_TESTS), "tester_0")["caught"] == 1
    monkeypatch.undo()
    assert info(play(CLAMP.reference, GOOD_TESTS), "tester_0")["caught"] == 3


BOMBS = [
    LOOP,
    "def clamp(*_): return [0] * 10**10",
    "def clamp(*_): return 10**10**8",
    "def clamp(*_):\n    while True: print('x' * 10**5)",
    "import time\ntime.sleep(100)\ndef clamp(*_): return time.sleep(100)",
    "import os\nwhile True: os.fork()",
    "def clamp(*_): return clamp() + clamp()",
]


@pytest.mark.parametrize("sandbox", ["monty", pytest.param("os", marks=pytest.mark.slow)])
def test_bombs_take_no_longer_than_they_may(sandbox):
    if sandbox == "os" and os_sandbox.available() is None:
        pytest.skip("no bwrap or sandbox-exec on this machine")
    seconds = 0.05 if sandbox == "monty" else 0.5
    for bomb in BOMBS:
        env = legos_envs.make("CodeGen-v0", seconds=seconds, sandbox=sandbox, coder_scored_by="tester")
        env.reset(seed=0, options={"item": "clamp"})
        env.step(bomb)
        watch = Stopwatch()
        env.step("assert clamp(1, 2, 3) == 2\nassert clamp(5, 0, 3) == 3")
        assert watch.seconds < 2, bomb
        assert env.infos["coder_0"]["passed"] == 0
