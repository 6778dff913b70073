"""A process killed at any named point leaves the state before or after, and its resume ends as if nothing had been."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from legos_train.disk import crash

ROOT = Path(__file__).parents[2]


def kill_everywhere(folder: Path, passes: int) -> dict:
    command = [sys.executable, "-m", "tests.train.crash_driver", str(folder), str(passes)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_killed_at_every_point_of_storage(tmp_path: Path) -> None:
    found = kill_everywhere(tmp_path, passes=1)
    assert found["faults"] == {}
    assert set(found["reached"]) == set(crash.STORAGE_POINTS), "a point that no run passes tests nothing"
    assert len(found["reached"]) >= 25
    assert len(found["files"]) == 21, "the run that everything is compared with has lost files"


@pytest.mark.slow
def test_killed_at_every_later_pass_too(tmp_path: Path) -> None:
    found = kill_everywhere(tmp_path, passes=30)
    assert found["faults"] == {}
    assert found["cases"] >= 150


def test_every_point_is_declared_and_every_declared_one_stands_somewhere() -> None:
    used: set[str] = set()
    prefixes = set()
    for file in (ROOT / "legos_train").rglob("*.py"):
        if file.name == "crash.py":
            continue
        text = file.read_text()
        used |= set(re.findall(r'(?:crashpoint\(|torn=|, )"([a-z_]+\.[a-z_]+)"\)', text)) & set(crash.CRASH_POINTS)
        called = re.findall(r'crashpoint\("([^"]+)"\)', text)
        assert set(called) <= set(crash.CRASH_POINTS), f"{file.name} passes a point that crash.py does not declare"
        used |= set(called) | {name for name in re.findall(r'"(checkpoint\.[a-z_]+)"', text)}
        prefixes |= set(re.findall(r'write_bytes\([^)]*"([a-z]+)"\)', text))
    families = {"identity", "config", "start", "report", "result", "file", *prefixes}
    used |= {f"{family}.{moment}" for family in families for moment in ("torn", "written", "renamed")}
    assert set(crash.STORAGE_POINTS) <= used
    assert len(set(crash.CRASH_POINTS)) == len(crash.CRASH_POINTS)


def test_arming(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)
    try:
        crash.arm("checkpoint.begun:2")
        crash.crashpoint("checkpoint.begun")
        crash.crashpoint("checkpoint.renamed")
        assert ended == []
        crash.crashpoint("checkpoint.begun")
        assert ended == [137]
        with pytest.raises(ValueError, match=r"names 'no.such'; the points are run.locked, "):
            crash.arm("no.such:1")
        with pytest.raises(ValueError, match="1 or more, got '0'"):
            crash.arm("checkpoint.begun:0")
    finally:
        crash.arm(None)
    crash.crashpoint("checkpoint.begun")
    assert ended == [137]


def test_the_variable_is_read_at_the_start() -> None:
    code = "from legos_train.disk.crash import crashpoint as c; c('run.locked'); c('run.locked'); print('alive')"
    env = {**os.environ, crash.CRASH_VARIABLE: "run.locked:2"}
    done = subprocess.run([sys.executable, "-c", code], env=env, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (137, "")
