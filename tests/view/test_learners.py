"""The page of a run with several learners: who played a seat is known by name, in a real run."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from legos_train import train
from legos_train.observe.viewer import read_log, replay, write_page
from legos_train.observe.viewer.compact import compact
from tests.train.helpers import small
from tests.view.conftest import Watched
from tests.view.pages import choose, until

LEARNERS = [{"name": "red", "roles": ["player_0"]}, {"name": "blue", "roles": ["player_1"]}]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("learners") / "pair"
    league = {"mode": "fsp", "pool": 1, "snapshot_every": 1, "latest": 0.5}
    train(small(folder, steps=2, batch_size=8, learner=LEARNERS, league=league, logs={"rollouts": 8}), quiet=True)
    return folder


@pytest.fixture(scope="module")
def rows(run: Path) -> list[dict[str, Any]]:
    return [compact(line)[0] for line in read_log(run)[0]]


def test_seats_know_their_learner(run: Path, rows: list[dict[str, Any]]) -> None:
    live = {(s["agent"], s["learner"]) for row in rows for s in row["seats"] if s["player"] == "policy"}
    assert live == {("player_0", "red"), ("player_1", "blue")}
    said = io.StringIO()
    replay(read_log(run)[0], next(row["n"] for row in rows if row["seats"][0]["player"] == "policy"), out=said)
    assert said.getvalue().count("player_0 (policy, learner red), turn") >= 1
    assert "player_0: policy, learner red, trained" in said.getvalue()


@pytest.mark.parametrize("size", [pytest.param((1000, 700), marks=pytest.mark.slow), (360, 640)])
def test_the_page_counts_filters_and_shows_them_by_name(
    size: tuple[int, int], watched: Watched, run: Path, rows: list[dict[str, Any]]
) -> None:
    watched.page.set_viewport_size({"width": size[0], "height": size[1]})
    page = watched.open(write_page([run])[0].as_uri())
    if size[0] < 820:
        page.click("#overview")
    heads = page.locator("#main table.seats").first.locator("th").all_inner_texts()
    assert heads[:5] == ["environment", "role", "learner", "player", "games"]
    mine = [row for row in rows if any(s["learner"] == "red" and s["player"] == "policy" for s in row["seats"])]
    page.click("button[aria-label$='of red, policy as player_0']")
    assert page.input_value("[data-filter=learner]") == "red"
    assert len(mine) < len(rows) and f"{len(mine)} of {len(rows)} episodes" in page.inner_text("#summary")
    choose(page, role="", learner="", player="policy")
    choose(page, learner="blue")
    blue = [row for row in rows if any(s["learner"] == "blue" and s["player"] == "policy" for s in row["seats"])]
    assert f"{len(blue)} of {len(rows)} episodes" in page.inner_text("#summary")
    row = max(blue, key=lambda one: one["n"])
    assert "player_1 (blue)" in page.locator(".row").first.inner_text()
    page.goto(f"{page.url.partition('#')[0]}#e=0.{row['n']}")
    until(page, "document.querySelector('.turn') !== null")
    cells = page.locator("table.seats tbody tr").nth(1).locator("td").all_inner_texts()
    assert cells[:4] == ["player_1", "player_1", "blue", "policy"]
    for seat in (0, 1):
        for header in page.locator(f"[id^=turn-{seat}-] > header").all_inner_texts():
            assert (row["seats"][seat]["learner"] or "turn") in header
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out of the screen"


@pytest.mark.slow
def test_a_run_with_one_policy_has_no_such_column(watched: Watched, url: str) -> None:
    page = watched.open(url)
    assert page.locator("[data-filter=learner]").count() == 0
    assert "learner" not in page.locator("#main table.seats th").all_inner_texts()
    page.goto(f"{url}#e=0.1")
    until(page, "document.querySelector('.turn') !== null")
    assert "learner" not in page.locator("table.seats th").all_inner_texts()
