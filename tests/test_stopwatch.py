"""Limits of time in tests are not about the load of the machine."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests import stopwatch
from tests.stopwatch import Stopwatch


def test_waiting_for_a_core_does_not_count_and_sleeping_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures, now = tmp_path / "schedstat", [100.0]
    monkeypatch.setattr(stopwatch, "SCHEDULED", figures)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    figures.write_text("7000000000 2000000000 40\n")
    watch = Stopwatch()
    now[0] += 5.0
    assert watch.seconds == pytest.approx(5.0)
    figures.write_text("8000000000 5500000000 90\n")
    assert watch.seconds == pytest.approx(1.5)
    figures.unlink()
    assert Stopwatch().seconds == 0.0, "where the system does not say it"
