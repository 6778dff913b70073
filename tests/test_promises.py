"""The list of promises: what it names exists, and the page shows it."""

import json
from pathlib import Path

import pytest

from benchmarks import reliability
from benchmarks.promises import MEASUREMENTS, PROMISES

ROOT = Path(__file__).parent.parent
ROWS = [row for rows in PROMISES.values() for row in rows]


def test_what_holds_a_promise_exists():
    assert len({row.text for row in ROWS}) == len(ROWS) > 25
    for row in ROWS:
        assert row.tests or row.measured_by, row.text
        assert all((ROOT / test).is_file() for test in row.tests), row
        assert all(name in MEASUREMENTS for name in row.measured_by), row
    assert {name for row in ROWS for name in row.measured_by} == set(MEASUREMENTS)


def test_the_page_shows_the_list_and_the_last_figures():
    kept = json.loads((ROOT / "docs/reliability.json").read_text())
    page = (ROOT / "docs/reliability.md").read_text()
    assert reliability.written(page, kept) == page, "run python -m benchmarks.reliability"
    assert set(kept) <= set(MEASUREMENTS)
    assert all(found["figure"] in page for found in kept.values())


def test_a_page_without_marks_is_refused():
    with pytest.raises(ValueError, match="lacks the marks"):
        reliability.written("# Reliability\n", {})


@pytest.mark.parametrize(("status", "figure"), [(0, "3 killed"), (1, "**missed**: 3 killed")])
def test_a_measurement_keeps_its_last_line_and_says_that_it_missed(monkeypatch, tmp_path, capfd, status, figure):
    script = tmp_path / f"measuring_{status}.py"  # of one name, a case may run the bytecode of the other
    script.write_text(f"import sys\nprint('first')\nprint('3 killed')\nsys.exit({status})\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    one = MEASUREMENTS["mutants"]._replace(quick=script.stem)
    found = reliability.measured("mutants", one, full=False)
    assert found["figure"] == figure and found["passed"] is (status == 0) and found["how"] == "quick"
