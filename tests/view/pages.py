"""What the tests of the page in a browser ask of it."""

from __future__ import annotations

import time
from typing import Any


def listed(page: Any) -> list[int]:
    """Episode numbers of the rows in sight, from the top."""
    found = page.eval_on_selector_all(".row b", "nodes => nodes.map(node => node.textContent)")
    return [int(text.split()[0][1:]) for text in found]


def choose(page: Any, **filters: str) -> str:
    """Sets filters and returns what the page says it found."""
    for name, value in filters.items():
        page.select_option(f"[data-filter={name}]", value)
    return str(page.inner_text("#summary"))


def until(page: Any, truth: str) -> None:
    """Waits for a JavaScript expression; Playwright's own way needs `eval`, which the page's policy forbids."""
    end = time.monotonic() + 10
    while not page.evaluate(truth):
        assert time.monotonic() < end, truth
        page.wait_for_timeout(20)


def episode(rows: list[dict[str, Any]], env: str, at: int = 0) -> int:
    return [row["n"] for row in rows if row["env"] == env][at]
