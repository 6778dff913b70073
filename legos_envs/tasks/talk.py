"""Shared by the rules of conversations: cutting long texts, and reminding agents without history of their own words."""

from __future__ import annotations

from legos_envs.table import Table


def excerpt(text: str, most: int) -> str:
    """A text of at most `most` characters unchanged; a longer one with its middle replaced by a marker.

    The beginning and the end are kept because claims and conclusions are found there.
    """
    if len(text) <= most:
        return text
    head = (most + 1) // 2
    tail = most - head
    return f"{text[:head]} [... {len(text) - most} characters cut ...] {text[len(text) - tail :]}"


def remember(table: Table, agent: str, text: str) -> None:
    """Reminds an agent of what it said itself if its prompts show no history (`memory="state"`)."""
    if table.env.memory == "state":
        table.tell(agent, f"You: {text}")
