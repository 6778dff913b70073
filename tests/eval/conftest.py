"""No leaderboard but the test's own, and no env left registered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pettingzoo
import pytest

import legos_envs  # registers: else the registry is put back to an empty one


@pytest.fixture(autouse=True)
def own_leaderboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LEGOS_DATA", str(tmp_path / "data"))
    for name in ("LEGOS_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "data" / "leaderboard.sqlite"


@pytest.fixture(autouse=True)
def registry_left_as_it_was() -> Iterator[None]:
    assert legos_envs.registered()
    before = dict(pettingzoo.aec_registry)
    yield
    pettingzoo.aec_registry.clear()
    pettingzoo.aec_registry.update(before)
