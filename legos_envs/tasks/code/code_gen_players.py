"""Scripted players of the coding env. They know the bundled exercises."""

from __future__ import annotations

from collections.abc import Callable

from legos_envs.play import Decision
from legos_envs.tasks.code import generated
from legos_envs.tasks.code.code_items import ITEMS, Item
from legos_envs.tasks.code.sandboxed_calls import reference_results


def _find(decision: Decision) -> Item | None:
    prompt, index = decision.messages[0]["content"], decision.info.get("index")
    known = ITEMS.values() if index is None else [generated.exercise(index).item]
    for item in known:
        if f"\n{item.signature}\n{item.spec}" in prompt:
            return item
    return None


def _item_of(decision: Decision) -> Item:
    item = _find(decision)
    if item is None:
        raise ValueError(
            "with your own source only 'random' is available; the other scripted players know only the bundled items"
        )
    return item


def _asserts(item: Item, count: int, right: bool) -> str:
    pairs = list(zip(item.calls, reference_results(item)))[:count]
    return "\n".join(f"assert {item.name}({str(call)[1:-1]}) == {value if right else 'b'!r}" for call, value in pairs)


def _good(decision: Decision) -> str:
    item = _item_of(decision)
    return f"```python\n{item.reference}\n```" if decision.role == "coder" else _asserts(item, 5, True)


def _almost(decision: Decision) -> str:
    return f"```python\n{_item_of(decision).wrong[0]}\n```" if decision.role == "coder" else _good(decision)


def _single(decision: Decision) -> str:
    return _asserts(_item_of(decision), 1, True) if decision.role == "tester" else _good(decision)


def _poor(decision: Decision) -> str:
    item = _item_of(decision)
    if decision.role == "coder":
        return f"{item.signature}\n    return None"
    return _asserts(item, 5, False)


def _random(decision: Decision) -> str:
    if _find(decision) is None:
        (signature,) = [line for line in decision.messages[0]["content"].splitlines()[:2] if line.startswith("def ")]
        name, _, rest = signature.removeprefix("def ").partition("(")
        first = rest.replace(")", ",").replace(":", ",").partition(",")[0]
        coder = decision.role == "coder"
        return f"{signature}\n    return {first or None}" if coder else f"assert {name}(1) == {decision.seed % 3}"
    return (_good, _almost, _single, _poor)[decision.seed % 4](decision)


PLAYERS: dict[str, Callable[[Decision], str]] = {
    "random": _random,
    "good": _good,
    "almost": _almost,
    "single": _single,
    "poor": _poor,
}
