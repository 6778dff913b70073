"""Problems as text: arithmetic expressions, and the labelled lines of a proposal."""

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legos_envs import InvalidMove
from legos_envs.tasks.problems import arithmetic, proposals

# --- arithmetic ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value", "operations"),
    [
        ("3 * (4 + 5)", 27, 2),
        ("2+3*4", 14, 2),
        ("2-3-4", -5, 2),
        ("24/4/2", 3, 2),
        ("-2*-3", 6, 1),
        ("-(1 + 2) - -4", 1, 2),
        ("--3", 3, 0),
        ("1/3+1/6", Fraction(1, 2), 3),
        ("((7))", 7, 0),
        ("6 × 7 ÷ 2 − 1", 20, 3),
        ("2 + 2 = ?", 4, 1),
        ("2 + 2 =", 4, 1),
    ],
)
def test_expressions(text, value, operations):
    read = arithmetic.read(text)
    assert (read.value, read.operations) == (value, operations)


def test_one_spelling_for_all_ways_to_space():
    assert arithmetic.read("3*( 4+5 )").key == arithmetic.read(" (3 * ((4) + 05)) ").key == "((4 5 +) 3 *)"
    assert arithmetic.read("3*4+5").key != arithmetic.read("3*(4+5)").key
    assert arithmetic.read("-3-4").key == arithmetic.read("(-3)-4").key != arithmetic.read("-(3+4)").key


def test_one_spelling_for_all_orders_of_sums_and_products():
    """`(4+5)*3` after `3*(4+5)` was a new problem."""
    for same in (
        ["3*(4+5)", "(4+5)*3", "3*(5+4)", "(5+4)*3"],
        ["1+2+3", "3+1+2", "1+(2+3)", "(3+2)+1"],
        ["2*3*4/5", "4*2*3/5", "4*(3*2)/5"],
        ["2+-3", "-3+2"],
    ):
        assert len({arithmetic.read(text).key for text in same}) == 1
    other = [
        "3-4",
        "4-3",
        "3/4",
        "4/3",
        "3+4",
        "3*4",
        "3+4*5",
        "(3+4)*5",
        "8-(4-2)",
        "8-4-2",
        "12",
        "1+2",
        "-(3+4)",
        "-3+4",
    ]
    assert len({arithmetic.read(text).key for text in other}) == len(other)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        ("3 +", "ends where a number"),
        ("+ 3", "a number is missing before '\\+'"),
        ("3 4", "an operator is missing before '4'"),
        ("3 (4)", "an operator is missing before '\\('"),
        ("(3", "'\\(' is not closed"),
        ("3)", "'\\)' closes nothing"),
        ("()", "a number is missing before '\\)'"),
        ("1 / (2 - 2)", "divides by zero"),
        ("2 ** 3", "a number is missing before '\\*'"),
        ("2 ^ 3", "'\\^' is not"),
        ("x + 1", "'x' is not"),
        ("__import__('os')", "'_' is not"),
        ("1.5 + 1", "'.' is not"),
        ("٣ + 1", "is not a whole number"),
        ("1234567", "7 digits"),
        ("999999*999999*9", "must stay below"),
        ("1/(999999*999999*9)", "must stay below"),
        ("1+" * 200 + "1", "401 characters"),
    ],
)
def test_what_is_no_expression(text, reason):
    with pytest.raises(arithmetic.BadExpression, match=reason):
        arithmetic.read(text)


@st.composite
def expressions(draw, depth=3):
    """Text and value, built together; division by what is not zero."""
    if depth == 0 or draw(st.booleans()):
        n = draw(st.integers(0, 99))
        return str(n), Fraction(n)
    (a, x), (b, y) = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    sign = draw(st.sampled_from("+-*/" if y else "+-*"))
    value = {"+": x + y, "-": x - y, "*": x * y, "/": x / y if y else None}[sign]
    return f"({a}){sign}-({b})" if sign == "-" else f"({a}) {sign} ({b})", x + y if sign == "-" else value


@given(expressions())
def test_values_of_built_expressions(built):
    text, value = built
    if len(text) <= arithmetic.MAX_CHARS and max(abs(value.numerator), value.denominator) < arithmetic.LARGEST:
        assert arithmetic.read(text).value == value


@given(st.text(alphabet="0123456789+-*/() ", max_size=60))
def test_any_signs_are_read_or_refused(text):
    """Python agrees wherever both can read it (powers, floor division and leading zeros or pluses aside)."""
    try:
        value = arithmetic.read(text).value
    except arithmetic.BadExpression:
        return
    tokens = [f"Fraction({int(t)})" if t.isdigit() else t for t in arithmetic.read(text).tokens]
    assert eval(" ".join(tokens), {"Fraction": Fraction}) == value


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text):
    try:
        arithmetic.read(text)
    except arithmetic.BadExpression as error:
        assert str(error)


# --- the labelled lines ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem", "answer"),
    [
        ("Problem: 1 + 2\nAnswer: 3", "1 + 2", "3"),
        ("I think 9.\nproblem: 1 + 2\nANSWER: 3\nDone.", "1 + 2", "3"),
        ("**Problem:** 1 + 2\n**Answer:** **3**", "1 + 2", "3"),
        ("Problem: old\nAnswer: 0\nProblem: new\nAnswer: 1", "new", "1"),
        ("Problem:\nTwo lines\nof text\nAnswer:\n 7\n8", "Two lines\nof text", "7"),
        ("Problem: why: because\nAnswer: x", "why: because", "x"),
    ],
)
def test_fields(text, problem, answer):
    assert proposals.fields(text, ("Problem", "Answer")) == {"Problem": problem, "Answer": answer}


@pytest.mark.parametrize("text", ["", "Problem: 1 + 2", "Answer: 3", "Problem:\nAnswer: 3", "The Problem: 1\nAnswer 3"])
def test_missing_fields(text):
    with pytest.raises(
        InvalidMove, match="write a line that begins with `Problem:` and a line that begins with `Answer:`"
    ):
        proposals.fields(text, ("Problem", "Answer"))


def test_contains_looks_for_whole_words():
    assert proposals.contains("He went to New-York, then home.", "new york")
    assert not proposals.contains("He has 2.5 and 12 apples", "2") and proposals.contains("He has 2.", "2")
    assert not proposals.contains("anything", "?!") and not proposals.contains("theatre", "eat")


@pytest.mark.parametrize(("rate", "goldilocks", "variance"), [(0, 0, 0), (0.25, 0.5, 0.75), (0.5, 1, 1), (1, 0, 0)])
def test_reward_shapes(rate, goldilocks, variance):
    assert proposals.goldilocks(rate) == goldilocks and proposals.variance(rate) == variance


@pytest.mark.parametrize(
    "text", ["Problem:" * 8192, "\n" * 65536, "Problem: " + "x" * 65000, ":" * 65536, "Problem:\n" * 7000]
)
def test_any_proposal_is_read_in_linear_time(text):
    start = time.process_time()
    with pytest.raises(InvalidMove):
        found = proposals.fields(text, ("Problem", "Answer"))
        proposals.bounded("problem", found["Problem"])
    proposals.contains(text, "x")
    assert time.process_time() - start < 0.1
