"""Exercises from your own data set: a description, a right program and tests, as in MBPP and HumanEval.

Tests are parsed into calls and results, never run directly: lines `assert f(1, [2]) == 3` with literal values.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from legos_envs import arguments
from legos_envs.tasks.code.code_items import Item
from legos_envs.tasks.code.sandboxed_calls import FAILED, results_of, same
from legos_envs.tasks.code.unit_tests import UnitTest, in_json, read_test
from legos_envs.tasks.rows import open_rows

NAMES = {"prompt": "prompt", "code": "code", "tests": "tests", "name": "name"}
LAYOUTS: dict[str, dict[str, str]] = {
    "mbpp": {"prompt": "text", "code": "code", "tests": "test_list"},
    "humaneval": {"prompt": "prompt", "code": "canonical_solution", "tests": "test", "name": "entry_point"},
}
"""Field names of known data sets."""
CANDIDATE = "candidate"
"""The name of the function in HumanEval's tests."""
MAX_TESTS = 20


def open_items(
    source: Any,
    fields: str | Mapping[str, str] | None,
    split: str,
    config: str | None,
    bad_rows: str,
    kind: str,
    built_in: tuple[str, ...],
    *,
    tuples: bool = True,
) -> tuple[Item, ...]:
    """The exercises of a source; arguments as for `CodeGen`. `tuples`: whether the arguments of calls may be tuples;
    where players write them in JSON they may not, and become lists.

    Raises:
        FileNotFoundError, ValueError, ImportError, RuntimeError: as in `legos_envs.tasks.rows.open_rows`.
    """
    if isinstance(fields, str):
        fields = LAYOUTS[arguments.one_of("fields", fields, tuple(LAYOUTS))]
    return open_rows(
        source,
        NAMES,
        fields,
        make=lambda row: read_item(row, kind, tuples=tuples),
        optional=["name"],
        values=["tests"],
        split=split,
        config=config,
        bad_rows=bad_rows,
        built_in=built_in,
    )


def read_item(row: Mapping[str, Any], kind: str = "monty", *, tuples: bool = True) -> Item:
    """The exercise of a row with `prompt`, `code`, `tests` and optionally `name`.

    The right program is run on its tests, to make sure that it is right in this sandbox too. The exercise has no wrong
    programs.

    Raises:
        ValueError: no test can be read, the function is not in the program, or the program fails a test.
    """
    prompt, code = (row[name].replace("\r\n", "\n").expandtabs(4) for name in ("prompt", "code"))
    lines = _assertions(row["tests"])
    name = row.get("name") or _most_called(code, lines)
    tests = [read_test(re.sub(rf"(?<!\w){CANDIDATE}\(", f"{name}(", line, count=1), name) for line in lines]
    cases = [test if tuples else UnitTest(in_json(test.call), test.result) for test in tests if test][:MAX_TESTS]
    if not cases:
        raise ValueError(f"none of its {len(lines)} tests has the form `assert {name}(...) == ...` with plain values")
    function = _function(prompt, name)
    if function is None:
        description = prompt.strip()
    else:  # HumanEval: the prompt is the beginning of the program
        description = ast.get_docstring(function) or ""
        code = code if _function(code, name) is not None else prompt + code
    function = _function(code, name)
    if function is None or not description:
        raise ValueError(f"the program has no function {name!r}" if description else "the function has no description")
    returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    signature = f"def {name}({ast.unparse(function.args)}){returns}:"
    item = Item(name, signature, description, code.strip(), (), tuple(_different(cases)))
    results, error = results_of(item.reference, name, [case.call for case in cases], kind=kind)
    for case, result in zip(cases, results):
        if not same(result, case.result):
            told = f"{name}({repr(case.call)[1:-1]}) == {json.dumps(case.result)}"
            why = error or ("it raises an error" if result is FAILED else f"it gives {json.dumps(result)}")
            raise ValueError(f"its own program fails {told}: {why}")
    return item


def _assertions(tests: Any) -> list[str]:
    """Each assertion of a program or of a list of programs, one per line."""
    text = tests if isinstance(tests, str) else "\n".join(map(str, tests)) if isinstance(tests, list | tuple) else ""
    try:
        nodes = list(ast.walk(ast.parse(text.replace("\r\n", "\n"))))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"its tests must be Python, or a list of it; got {str(tests)[:80]!r}") from None
    found = [ast.unparse(node) for node in nodes if isinstance(node, ast.Assert)]
    if not found:
        raise ValueError(f"its tests contain no assert; got {str(tests)[:80]!r}")
    return found


def _most_called(code: str, lines: list[str]) -> str:
    """The function of a program that is called by the most assertions."""
    names = [node.name for node in _body(code) if isinstance(node, ast.FunctionDef)]
    called = Counter({name: sum(_calls(line, name) for line in lines) for name in names})
    if not called.total():
        raise ValueError(f"its tests call none of the program's functions ({', '.join(names) or 'it has none'})")
    return called.most_common(1)[0][0]


def _calls(line: str, name: str) -> bool:
    """Whether a line calls the function, as opposed to one whose name merely ends in the same way."""
    return re.search(rf"(?<!\w){re.escape(name)}\(", line) is not None


def _body(code: str) -> list[ast.stmt]:
    """The statements of a program; none if it is not valid Python."""
    try:
        return ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _function(code: str, name: str) -> ast.FunctionDef | None:
    return next((node for node in _body(code) if isinstance(node, ast.FunctionDef) and node.name == name), None)


def _different(cases: list[UnitTest]) -> list[list[Any]]:
    return list({repr(case.call): case.call for case in cases}.values())
