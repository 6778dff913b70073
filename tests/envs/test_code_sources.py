"""Exercises of your own for CodeGen and RedBlue: the layouts of MBPP and HumanEval, bad rows, programs almost right."""

import asyncio
import json

import numpy as np
import pytest

import legos_envs
from legos_envs.policies import make_policy
from legos_envs.tasks.code import sandboxed_calls
from legos_envs.tasks.code.mutants import mutants
from legos_envs.tasks.code.patch_items import patch_of
from legos_envs.tasks.code.source_items import read_item
from legos_envs.testing import check_env

MBPP = [
    {
        "task_id": 1,
        "text": "Write a function to add the numbers of a tuple that are above a limit.",
        "code": "def is_above(x, limit):\r\n\treturn x > limit\r\ndef add_above(numbers, limit):\r\n"
        "\treturn sum(x for x in numbers if is_above(x, limit))",
        "test_setup_code": "",
        "test_list": [
            "assert add_above((1, 5, 7), 4) == 12",
            'assert add_above((3, 4), 4) == 0, "none"',
            "assert add_above((9,),2)==9 ",
        ],
        "challenge_test_list": [],
    },
    {
        "task_id": 2,
        "text": "Write a function to split a number into its digits.",
        "code": "def digits(n):\r\n    return tuple(int(c) for c in str(n))",
        "test_list": ["assert digits(120) == (1, 2, 0)", "assert digits(7) == (7,)"],
    },
]
HUMANEVAL = [
    {
        "task_id": "HumanEval/900",
        "prompt": "from typing import List\n\n\ndef longest(words: List[str], least: int = 0) -> str:\n"
        '    """ The longest of the words that has at least so many letters.\n    >>> longest(["a", "bc"])\n    "bc"\n'
        '    """\n',
        "entry_point": "longest",
        "canonical_solution": "    return max([w for w in words if len(w) >= least], key=len)\n",
        "test": "\n\nMETADATA = {}\n\n\ndef check(candidate):\n    assert candidate(['a', 'bc']) == 'bc'\n"
        "    assert candidate(['abc', 'd'], 2) == 'abc'\n    assert candidate(['abc'] * 50) == 'abc'\n"
        "    assert abs(len(candidate(['ab'])) - 2) < 1\n",
    }
]


def save(path, rows):
    if path.suffix == ".parquet":
        pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.parametrize("name", ["mbpp.jsonl", "mbpp.parquet"])
def test_mbpp(tmp_path, name):
    env = legos_envs.make("CodeGen-v0", source=save(tmp_path / name, MBPP), fields="mbpp")
    above, digits = env.unwrapped.items
    assert above.name == "add_above" and above.signature == "def add_above(numbers, limit):"
    assert above.spec == MBPP[0]["text"] and above.calls == ([(1, 5, 7), 4], [(3, 4), 4], [(9,), 2])
    assert digits.calls == ([120], [7]) and "\r" not in digits.reference
    env.reset(seed=0, options={"index": 1})
    assert "def digits(n):\nWrite a function to split" in env.observe("coder_0")["messages"][0]["content"]


def test_humaneval():
    (item,) = legos_envs.make("CodeGen-v0", source=HUMANEVAL, fields="humaneval").unwrapped.items
    assert item.signature == "def longest(words: List[str], least: int=0) -> str:"
    assert item.spec.startswith("The longest of the words") and '"""' not in item.spec
    assert item.calls == ([["a", "bc"]], [["abc", "d"], 2])  # the others are not plain tests
    assert sandboxed_calls.reference_results(item) == ["bc", "abc"]


@pytest.mark.parametrize("sandbox", ["monty", "os"])
def test_arguments_keep_their_types(sandbox):
    """As lists, a right program for tuples failed, and one that returns lists was right."""
    tests = ["assert f((1, 2)) == {3: (1, 2)}", "assert f(()) == {3: ()}"]
    code = "def f(values):\n    return {3: () + values}"
    env = legos_envs.make("CodeGen-v0", source=[{"prompt": "Keep it.", "code": code, "tests": tests}], sandbox=sandbox)
    for program, passed in ((code, 1.0), (code.replace("values}", "tuple([*values])}"), 1.0), ("f = 3", 0.0)):
        env.reset(seed=0)
        env.step(program)
        env.step("\n".join(tests))
        assert env.infos["coder_0"]["passed"] == passed and env.infos["tester_0"]["right"] == 2
    assert env.infos["tester_0"]["caught"] > 0


def test_red_writes_json_so_its_arguments_are_lists():
    row = {"prompt": "Sums.", "code": "def f(v):\n    return sum(v)", "tests": ["assert f((1, 2)) == 3"]}
    (item,) = legos_envs.make("RedBlue-v0", variant="patch", source=[row]).unwrapped.items
    assert item.calls == ([[1, 2]],)
    tuples = row | {"code": "def f(v):\n    return sum(v + (0,))"}
    with pytest.raises(ValueError, match=r"its own program fails f\(\[1, 2\]\) == 3: it raises an error"):
        legos_envs.make("RedBlue-v0", variant="patch", source=[tuples])


def test_a_right_program_and_its_tests_are_paid_in_full():
    env = legos_envs.make("CodeGen-v0", source=MBPP, fields="mbpp")
    good = {
        "coder_0": MBPP[0]["code"].expandtabs(4),
        "tester_0": "assert add_above((1, 5, 7), 4) == 12\nassert add_above((3, 4), 4) == 0",
    }
    episode = asyncio.run(legos_envs.play(env, lambda d: good[d.agent], 0, {"index": 0}))
    assert episode.outcome == "solved" and episode.returns == {"coder_0": 1, "tester_0": 1}
    assert episode.trajectories["tester_0"].info["caught"] == len(mutants(env.unwrapped.items[0])) > 0
    weak = good | {
        "coder_0": "def add_above(numbers, limit):\n    return 12",
        "tester_0": "assert add_above([], 1) == 0",
    }
    episode = asyncio.run(legos_envs.play(env, lambda d: weak[d.agent], 0, {"index": 0}))
    assert episode.returns == {"coder_0": pytest.approx(1 / 3), "tester_0": 0}


def test_a_tester_learns_nothing_where_no_wrong_program_can_be_made():
    row = {
        "prompt": "The text itself.",
        "code": "def same(text):\n    return text",
        "tests": ["assert same('a') == 'a'"],
    }
    env = legos_envs.make("CodeGen-v0", source=[row])
    said = {"coder_0": row["code"], "tester_0": row["tests"][0]}
    episode = asyncio.run(legos_envs.play(env, lambda d: said[d.agent], 0))
    assert episode.returns == {"coder_0": 1, "tester_0": 0} and not episode.trajectories["tester_0"].trainable


def test_the_function_is_the_one_called_and_not_one_that_its_name_ends_with():
    code = "def total(n):\n    return sum(n)\ndef digit_total(n):\n    return total([int(c) for c in str(n)])"
    item = read_item({"prompt": "The sum of the digits.", "code": code, "tests": ["assert digit_total(12) == 3"]})
    assert item.name == "digit_total" and item.signature == "def digit_total(n):"
    code = "def best_candidate(votes):\n    return max(votes)"  # `candidate` is what HumanEval's tests call
    item = read_item({"prompt": "The best.", "code": code, "tests": ["assert best_candidate([1, 2]) == 2"]})
    assert item.name == "best_candidate" and item.calls == ([[1, 2]],)


MAX = "def f(a, b):\n    return max(a, b)"
ROW = {"prompt": "Doubles.", "code": "def f(n):\n    return n * 2", "tests": "assert f(3) == 6"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"code": "def f(n): return n"}, r"row 1: its own program fails f\(3\) == 6: it gives 3"),
        ({"code": "def f(n): return n / 0"}, r"its own program fails f\(3\) == 6: it raises an error"),
        ({"code": "import heapq\ndef f(n): return 6"}, "its own program fails .*: ModuleNotFoundError"),
        ({"code": "def g(n): return 6"}, r"its tests call none of the program's functions \(g\)"),
        ({"code": "return 6"}, r"its tests call none of the program's functions \(it has none\)"),
        ({"code": "def f(n): return 6", "name": "h"}, r"none of its 1 tests has the form `assert h\(\.\.\.\) == "),
        ({"tests": "assert f(open('x')) == 6"}, r"none of its 1 tests has the form `assert f\(\.\.\.\) == \.\.\.`"),
        ({"tests": "f(3)"}, r"its tests contain no assert; got 'f\(3\)'"),
        ({"tests": "assert f(3"}, "its tests must be Python, or a list of it"),
        ({"tests": None}, "its tests contain no assert; got 'None'"),
        ({"prompt": "def f(n):\n    pass"}, "the function has no description"),
        ({"prompt": ""}, "row 1: field 'prompt' must be text"),
    ],
)
def test_bad_rows_are_named_or_skipped(change, message):
    rows = [ROW, ROW | change]
    with pytest.raises(ValueError, match=message):
        legos_envs.make("CodeGen-v0", source=rows)
    with pytest.warns(UserWarning, match="skipped: 1 of 2 rows do not fit"):
        assert len(legos_envs.make("CodeGen-v0", source=rows, bad_rows="skip").unwrapped.items) == 1


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"fields must be one of 'mbpp', 'humaneval'; got 'mbp'.*mean 'mbpp'"):
        legos_envs.make("CodeGen-v0", source=MBPP, fields="mbp")
    with pytest.raises(ValueError, match=r"source must be 'generated', 'written', a path .*; got 'generatd'"):
        legos_envs.make("CodeGen-v0", source="generatd")
    with pytest.raises(ValueError, match="source is for variant 'patch'; this is 'secret'"):
        legos_envs.make("RedBlue-v0", source=[ROW])
    with pytest.raises(ValueError, match="option index must be a whole number from 0 to 0; got 1"):
        legos_envs.make("CodeGen-v0", source=[ROW]).reset(seed=0, options={"index": 1})


def test_mutants_run_and_differ():
    row = {
        "prompt": "How many of the words are long and not 'xx'.",
        "code": "def count(words, least):\n    return len([w for w in words if len(w) >= least and w != 'xx'])",
        "tests": [
            "assert count(['a', 'bcd', 'xx'], 2) == 1",
            "assert count([], 2) == 0",
            "assert count(['ab'], 2) == 1",
        ],
    }
    item = read_item(row)
    found = mutants(item)
    expected = sandboxed_calls.reference_results(item)
    shares = []
    for code in found:
        results, error = sandboxed_calls.results_of(code, item.name, item.calls)
        right = [sandboxed_calls.same(a, b) for a, b in zip(results, expected)]
        assert error is None and not all(right)
        shares.append(sum(right))
    assert len(found) == 3 and shares == sorted(shares, reverse=True) and shares[0] == 2


def test_functions_to_mend_have_their_bug_where_it_is_said_to_show():
    item, bugs = read_item(ROW), 0
    for seed in range(40):
        patch = patch_of(item, np.random.default_rng(seed))
        bugs += patch.witness is not None
        assert (patch.witness is None) == (patch.code == patch.reference) and patch.partial
        if patch.witness is not None:
            assert patch.holds(list(patch.witness))
            pair = [
                sandboxed_calls.results_of(code, "f", [list(patch.witness)])[0]
                for code in (patch.code, patch.reference)
            ]
            assert not sandboxed_calls.same(*pair[0], *pair[1])
    assert 20 < bugs < 40


@pytest.mark.parametrize(
    ("arguments", "how"),
    [
        ([[1, 5], 4], "right"),
        ([[200, 5], 4], "out of domain"),  # far larger than in any test
        ([[1, "a"], 4], "out of domain"),
        ([[1, 5]], "out of domain"),
        ([[[1]], 4], "out of domain"),
        ([[1, True], 4], "out of domain"),
    ],
)
def test_attackers_arguments_must_be_like_those_of_the_tests(arguments, how):
    env = legos_envs.make("RedBlue-v0", variant="patch", source=MBPP[:1], fields="mbpp")
    said = {"defender_0": MBPP[0]["code"].expandtabs(4), "attacker_0": json.dumps({"args": arguments})}
    episode = asyncio.run(legos_envs.play(env, lambda d: said[d.agent], 0))
    assert episode.info["how"] == how and episode.returns["defender_0"] == 1
    if how == "right":
        said["defender_0"] = "def add_above(numbers, limit):\n    return 0"
        assert asyncio.run(legos_envs.play(env, lambda d: said[d.agent], 0)).info["how"] == "wrong"


def test_arguments_that_some_tests_leave_out_are_inside():
    env = legos_envs.make("RedBlue-v0", variant="patch", source=HUMANEVAL, fields="humaneval")
    right = env.unwrapped.items[0].reference
    for given, how in (
        ([["abc", "d"], 2], "right"),
        ([["abc", "d"]], "right"),
        ([["abc", "d"], 2, 2], "out of domain"),
        ([], "out of domain"),
    ):
        said = {"defender_0": right, "attacker_0": json.dumps({"args": given})}
        episode = asyncio.run(legos_envs.play(env, lambda d, said=said: said[d.agent], 0))
        assert episode.info["how"] == how
    told = episode.trajectories["attacker_0"].turns[0].observation[0]["content"]
    assert '- words: a value like ["a", "bc"] or ' in told and "- least (may be left out): a value like 2\n" in told
    assert asyncio.run(legos_envs.play(env, make_policy("random", env), 0)).info["how"] != "out of domain"


@pytest.mark.parametrize(
    ("parameters", "call", "told"),
    [
        ("*numbers", "1, 2", "- numbers: a value like 1\n- numbers: a value like 2\n```"),
        ("a, /, b", "1, 2", "- a: a value like 1\n- b: a value like 2\n```"),
        ("a, *more", "1, 2", "- a: a value like 1\n- more: a value like 2\n```"),
        ("", "", "Arguments:\n```"),
    ],
)
def test_every_argument_is_told_and_the_random_player_gives_it(parameters, call, told):
    row = {"prompt": "Seven.", "code": f"def f({parameters}):\n    return 7", "tests": [f"assert f({call}) == 7"]}
    env = legos_envs.make("RedBlue-v0", variant="patch", source=[row])
    episode = asyncio.run(legos_envs.play(env, make_policy("random", env), 0))
    assert episode.info["how"] in ("right", "wrong")
    assert told in episode.trajectories["attacker_0"].turns[0].observation[0]["content"]


def test_arguments_on_which_the_right_program_fails_are_outside():
    row = {"prompt": "A quotient.", "code": "def f(a, b):\n    return a // b", "tests": ["assert f(6, 3) == 2"]}
    env = legos_envs.make("RedBlue-v0", variant="patch", source=[row])
    said = {"defender_0": row["code"], "attacker_0": '{"args": [6, 0]}'}
    assert asyncio.run(legos_envs.play(env, lambda d: said[d.agent], 0)).info["how"] == "out of domain"


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_split_holds_out_by_the_description(split):
    rows = [ROW | {"prompt": f"Doubles, version {n}."} for n in range(12)]
    items = legos_envs.make("CodeGen-v0", source=rows, split=split).unwrapped.items
    other = legos_envs.make("CodeGen-v0", source=rows, split={"train": "test", "test": "train"}[split]).unwrapped.items
    assert len(items) + len(other) == 12 and not {i.spec for i in items} & {i.spec for i in other}


@pytest.mark.quick(1)
@pytest.mark.parametrize(("id", "arguments"), [("CodeGen-v0", {}), ("RedBlue-v0", {"variant": "patch"})])
def test_envs_with_a_source_conform(id, arguments):
    check_env(
        id,
        episodes=12,
        only=(
            "play.ends",
            "play.outcomes",
            "infos.plain",
            "hidden.private",
            "garbage.safe",
            "copy.pickle",
            "seed.fresh",
        ),
        raise_on_failure=True,
        source=[{"prompt": "The larger.", "code": MAX, "tests": "assert f(3, 1) == 3; assert f(2, 5) == 5"}, ROW],
        **arguments,
    )


@pytest.mark.parametrize(("env_id", "more"), [("CodeGen-v0", {}), ("RedBlue-v0", {"variant": "patch"})])
def test_the_first_seeds_take_every_exercise_once(env_id, more):
    """They were drawn, so that N seeds of N exercises left out a third and repeated others."""
    rows = [MBPP[1] | {"task_id": n, "text": f"Number {n}: split a number into its digits."} for n in range(6)]
    env = legos_envs.make(env_id, source=rows, fields="mbpp", **more)
    seen = []
    for seed in range(12):
        env.reset(seed=seed)
        text = " ".join(message["content"] for message in env.observe(env.agent_selection)["messages"])
        seen.append(next(n for n in range(6) if f"Number {n}:" in text))
    assert sorted(seen[:6]) == sorted(seen[6:]) == list(range(6)) and seen[:6] != seen[6:]
