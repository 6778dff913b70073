"""Programs that are almost right: right ones with one operator, constant or function changed.

This is mutation testing. `mutants(item)` keeps those that run and return a different result on at least one call.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from legos_envs.tasks.code.code_items import Item
from legos_envs.tasks.code.sandboxed_calls import FAILED, reference_results, results_of, same

MOST = 3
TRIES = 24
"""Maximum number of mutants that are run to find three."""
OPERATORS: dict[Any, Any] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
FUNCTIONS = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "sorted": "list",
    "sum": "len",
    "len": "sum",
    "set": "list",
    "upper": "lower",
    "lower": "upper",
    "startswith": "endswith",
    "endswith": "startswith",
}


def mutants(item: Item, kind: str = "monty") -> tuple[str, ...]:
    """At most three programs that differ from the item's reference, starting with those that are right most often.

    Args:
        item: an exercise whose reference returns a value on each of its calls.
        kind: the sandbox.
    """
    return _mutants(item.reference, item.name, repr(item.calls), kind)


@lru_cache(1 << 12)
def _mutants(reference: str, name: str, calls: str, kind: str) -> tuple[str, ...]:
    item = Item(name, "", "", reference, (), ast.literal_eval(calls))
    expected = reference_results(item, kind)
    found: list[tuple[int, str]] = []
    for _, code in zip(range(TRIES), _changed(reference)):
        results, error = results_of(code, name, item.calls, kind=kind)
        right = sum(map(same, results, expected))
        if error is None and right < len(expected) and not all(result is FAILED for result in results):
            found.append((-right, code))
    return tuple([code for _, code in sorted(found, key=lambda pair: pair[0])[:MOST]])


def _changed(code: str) -> Iterator[str]:
    """All variants of the program with a single change."""
    tree = ast.parse(code)
    for number, node in enumerate(ast.walk(tree)):
        if _change(copy.copy(node)):
            other = copy.deepcopy(tree)
            _change(list(ast.walk(other))[number])
            yield ast.unparse(other)


def _change(node: Any) -> bool:
    """Changes a node in place; returns whether there was anything to change."""
    match node:
        case ast.Compare(ops=[operator, *rest]) if type(operator) in OPERATORS:
            node.ops = [OPERATORS[type(operator)](), *rest]
        case ast.BinOp() | ast.AugAssign() | ast.BoolOp() if type(node.op) in OPERATORS:
            node.op = OPERATORS[type(node.op)]()
        case ast.Constant(value=bool(value)):
            node.value = not value
        case ast.Constant(value=int(value)):
            node.value = value + 1
        case ast.Name(id=name) if name in FUNCTIONS:
            node.id = FUNCTIONS[name]
        case ast.Attribute(attr=name) if name in FUNCTIONS:
            node.attr = FUNCTIONS[name]
        case _:
            return False
    return True
