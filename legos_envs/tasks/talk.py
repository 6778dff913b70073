"""What rules of conversations share: long texts are cut, and an agent that sees no history is told its own words."""

from __future__ import annotations

from legos_envs.table import Table


def excerpt(text: str, most: int) -> str:
    """A text of at most `most` characters as it is; a longer one with its middle replaced by a mark that says so.

    Beginning and end are kept because that is where a claim and its conclusion stand.
    """
    if len(text) <= most:
        return text
    head = (most + 1) // 2
    tail = most - head
    return f"{text[:head]} [... {len(text) - most} characters cut ...] {text[len(text) - tail :]}"


def remember(table: Table, agent: str, text: str) -> None:
    """Tells an agent what it said itself, where each of its prompts stands alone (`memory="state"`)."""
    if table.env.memory == "state":
        table.tell(agent, f"You: {text}")
