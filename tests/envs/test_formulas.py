"""Formulas are compared in bounded time, whatever they are: by value, by math-verify, or not at all."""

import time
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
    for i in range(200):  # one of 16 is late, which is not a flood yet
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


@pytest.mark.slow
def test_an_episode_with_late_answers_everywhere_stays_within_its_time(asked):
    for paid_by in ("truth", "majority"):
        asked.clear()
        formulas._memory = formulas._Memory()
        env = EnsembleVote([{"question": "?", "answer": "\\sqrt{2}"}], num_solvers=64, paid_by=paid_by)
        env.reset(seed=0)
        for i in range(64):
            env.step(f"\\boxed{{\\sqrt{{{i}B}}}}")
        assert asked and sum(seconds for *_, seconds in asked) <= formulas.EPISODE + 0.001
