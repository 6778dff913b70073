"""Reading completions: examples, laws, and linear time."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legos_envs import parsing

PIECES = ["<think>", "</think>", "[", "]", "[a]", "\\boxed{", "}", "{", "a", " ", "-", "1,234", "5", "."]
PIECES += ['{"a": 1}', "\ud800", "é"]
UNITS = ["[", "]", "][", "\\boxed{", "{", "}", "<think>", "</think>", "1,", "1.", "0", "-", " ", '{"a":', "[{", "a b "]
UNITS += ["\ud800", "é"]
TEXTS = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PIECES), max_size=20).map("".join))


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("hello", "hello"),
        ("<think>a</think> b", "b"),
        ("a</think> b", "b"),
        ("<think>a</think>b<think>c</think> d ", "d"),
        ("<think>all of it", ""),
        ("said <think>the rest", "said"),
        ("<think>a</think> b <think>c", "b"),
        ("", ""),
    ],
)
def test_public(text, public):
    assert parsing.public(text) == public


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("[bet]", "bet"),
        ("I [check], no, [ bet ]", "bet"),
        ("[a] then [b", "a"),
        ("[b]]", "b"),
        ("[[b]]", "b"),
        ("[]", ""),
        ("]b[", None),
        ("bet", None),
        ("", None),
    ],
)
def test_bracketed(text, action):
    assert parsing.bracketed(text) == action == parsing.action(text, "bracket")


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (r"\boxed{7}", "7"),
        (r"\boxed{1} no \boxed{ \frac{1}{2} } done", r"\frac{1}{2}"),
        (r"\boxed{a", None),
        (r"\boxed{{a}", None),
        (r"boxed{a}", None),
    ],
)
def test_boxed(text, action):
    assert parsing.boxed(text) == action == parsing.action(text, "boxed")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,234", 1234),
        ("it costs $12,345,678.", 12345678),
        ("1,2,3", 3),
        ("(3,4)", 4),
        ("1234,567", 567),
        ("18.00", 18),
        ("$1,234.0!", 1234),
        ("3.14", None),
        ("1.2.0", None),
        (".5", None),
        ("it is -.5", None),
        ("it is so.5", 5),
        ("-5", -5),
        ("\N{MINUS SIGN}5", -5),
        ("9-5", 5),
        ("x=-5", -5),
        ("#### 42\n", 42),
        ("007", 7),
        ("9" * 18, 10**18 - 1),
        ("9" * 19, None),
        ("9" * 5000, None),
        ("٣", None),
        (",,,", None),
        ("none", None),
        ("", None),
    ],
)
def test_last_integer(text, number):
    assert parsing.last_integer(text) == number


def test_choice():
    assert parsing.choice("I vote PRO, surely", ["pro", "con"]) == "pro"
    assert parsing.choice("pro or con?", ["pro", "con"]) is None
    assert parsing.choice("the professional", ["pro", "con"]) is None
    assert parsing.choice("rock-n-roll!", ["rock-n-roll", "pop"]) == "rock-n-roll"
    assert parsing.choice("no deal", ["deal", "pass"]) == "deal"


def test_json_object():
    assert parsing.json_object('Here: {"a": 1, "b": [2]} ok', ["a", "b"]) == {"a": 1, "b": [2]}
    assert parsing.json_object('{"a": 1}', ["a", "b"]) is None
    assert parsing.json_object('{"a": 1, "b": 2, "c": 3}', ["a", "b"]) is None
    assert parsing.json_object('{"a": 1} {"a": 2}', ["a"]) is None
    assert parsing.json_object('{"a": ' + "9" * 5000 + "}", ["a"]) is None
    assert parsing.json_object("}{", ["a"]) is None


def test_clean_joins_surrogate_pairs_and_replaces_lone_ones():
    assert parsing.clean("a\ud83d\ude00b\ud800c\udc00") == "a\N{GRINNING FACE}b\ufffdc\ufffd"


@given(TEXTS)
def test_nothing_raises_and_nothing_private_is_public(text):
    cleaned = parsing.clean(text)
    assert len(cleaned.encode("utf-8")) >= len(cleaned) and len(cleaned) <= len(text)
    assert parsing.clean(cleaned) == cleaned
    public = parsing.public(text)
    assert public in text and "</think>" not in public and "<think>" not in public
    assert parsing.public(public) == public
    for read in (parsing.bracketed, parsing.boxed):
        found = read(text)
        assert found is None or (found in text and found == found.strip())
    number = parsing.last_integer(text)
    assert number is None or abs(number) < 10**18
    assert parsing.choice(text, ["a", "b"]) in ("a", "b", None)
    value = parsing.json_object(text, ["a"])
    assert value is None or set(value) == {"a"}


@given(TEXTS, st.text(alphabet="abc19 _-", max_size=8), st.sampled_from(parsing.FORMATS))
def test_the_last_written_action_is_read_whatever_stands_before(before, name, action_format):
    written = parsing.write_action(name, action_format)
    assert parsing.action(f"{before} {written}", action_format) == name.strip()
    assert parsing.action(f"{before} {written}. That is all.", action_format) == name.strip()


@pytest.mark.parametrize(
    ("reply", "written", "stated"),
    [
        ("[a]", ("[a]", "[b]"), True),
        ("<think>[b] loses.</think>I take [a].", ("[a]",), True),
        ("<think>[a] wins.</think>[b]", ("[a]",), False),
        ("<think>[a]", ("[a]",), False),  # a thought that never ended
        ("a", ("[a]",), False),
        ("So it is \\boxed{a}", ("\\boxed{a}",), True),
        ("[a]", ("\\boxed{a}",), False),
        ("[a]", (), False),
    ],
)
def test_a_reply_states_an_action_with_or_without_words_around_it(reply, written, stated):
    assert parsing.states_one_of(reply, written) is stated


@given(TEXTS, TEXTS)
def test_a_thought_never_changes_what_is_public(thought, said):
    said = parsing.public(said)
    assert parsing.public(f"<think>{thought}</think>{said}") == said
    assert parsing.public(f"{said}<think>{thought.replace('</think>', '')}") == said


@given(TEXTS.filter(lambda text: not any(c.isalnum() or c in ".,-" for c in text[-1:])), st.integers(-(10**17), 10**17))
def test_the_last_integer_is_read_in_both_spellings(before, number):
    for written in (f"{number}", f"{number:,}", f"{number}.00"):
        assert parsing.last_integer(f"{before} {written}. Done") == number


@pytest.mark.quick
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(
    "read",
    [
        parsing.clean,
        parsing.public,
        parsing.bracketed,
        parsing.boxed,
        parsing.last_integer,
        lambda text: parsing.choice(text, ["a", "b c"]),
        lambda text: parsing.json_object(text, ["a"]),
    ],
    ids=["clean", "public", "bracketed", "boxed", "last_integer", "choice", "json_object"],
)
def test_linear_time(read, unit):
    small, large = (unit * (size // len(unit)) for size in (16_384, 131_072))
    assert best_time(read, large) < max(8 * 4 * best_time(read, small), 0.02)


def best_time(read, text):
    times = []
    for _ in range(3):
        start = time.process_time()
        read(text)
        times.append(time.process_time() - start)
    return min(times)
