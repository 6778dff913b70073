"""Real runs, killed for real. The whole campaign is `python -m benchmarks.kills --kills 100 --stops 20`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from benchmarks import kills
from legos_train.disk import crash

pytestmark = pytest.mark.slow


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["--kills=25", "--stops=10"])
def test_killed_at_random_times(tmp_path: Path, kind: str) -> None:
    assert kills.main([kind, "--seed", "3", "--json", str(tmp_path / "found.json")]) == 0
    (found,) = json.loads((tmp_path / "found.json").read_text()).values()
    assert found["files_compared"] > 15
    assert len(found["rows_when_hit"]) > 2, "all kills hit the same place"


@pytest.mark.timeout(1800)
def test_killed_at_every_point_of_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kills.finish(tmp_path / "whole", False, [])
    reference = kills.outcome(tmp_path / "whole")
    for point in crash.LOOP_POINTS:
        # the third step comes after the first checkpoint
        spec = point if point in ("loop.resumed", "loop.finishing", "loop.finished") else f"{point}:3"
        run = tmp_path / point
        monkeypatch.setenv(crash.CRASH_VARIABLE, spec)
        process = kills.start(run, False, [])
        try:
            assert process.wait(kills.LIMIT) == crash.EXIT_CODE, f"{spec} was not reached"
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        monkeypatch.delenv(crash.CRASH_VARIABLE)
        assert crash.CRASH_VARIABLE not in os.environ
        assert kills.unreadable(run) == []
        kills.finish(run, True, [])
        assert not any(kills.compare(run, reference).values()), (point, kills.compare(run, reference))
