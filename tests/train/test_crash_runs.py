"""Real runs, killed for real. The whole campaign: `python -m benchmarks.kills --kills 500 --stops 20 --configs all`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from benchmarks import kill_runs, kills
from legos_train.disk import crash

pytestmark = pytest.mark.slow


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["--kills=25", "--stops=10"])
def test_killed_at_random_times(tmp_path: Path, kind: str) -> None:
    assert kills.main([kind, "--seed", "3", "--json", str(tmp_path / "found.json")]) == 0
    (found,) = json.loads((tmp_path / "found.json").read_text()).values()
    assert found["files_compared"] > 15
    assert len(found["rows_when_hit"]) > 2, "all kills hit the same place"


@pytest.mark.timeout(3600)
def test_killed_in_every_configuration(tmp_path: Path) -> None:
    assert kills.main(["--kills", "20", "--configs", "all", "--seed", "5", "--json", str(tmp_path / "found.json")]) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert len(found) == len(kill_runs.CONFIGS) >= 10 and all(one["signals"] == 2 for one in found.values())


@pytest.mark.timeout(1800)
def test_killed_at_every_point_of_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = kill_runs.CONFIGS["plain"]
    kill_runs.finish(tmp_path / "whole", False, config)
    for point in crash.LOOP_POINTS:
        # the third step comes after the first checkpoint
        spec = point if point in ("loop.resumed", "loop.finishing", "loop.finished") else f"{point}:3"
        run = tmp_path / point
        monkeypatch.setenv(crash.CRASH_VARIABLE, spec)
        started = kill_runs.Started(run, False, config)
        try:
            assert started.wait(kill_runs.LIMIT) and started.ended() == crash.EXIT_CODE, f"{spec} was not reached"
        finally:
            started.end()
        monkeypatch.delenv(crash.CRASH_VARIABLE)
        assert crash.CRASH_VARIABLE not in os.environ
        assert kill_runs.unreadable(run) == []
        kill_runs.finish(run, True, config)
        found = kill_runs.compare(run, tmp_path / "whole")
        assert not any(found.values()), (point, found)
