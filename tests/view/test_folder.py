"""The page over a folder of runs and evaluations: what it lists, what its server answers, and how it looks alive."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from legos_train.cli.main import main
from legos_train.observe.browser import holds_several, serve_folder, write_folder_page
from legos_train.observe.browser.catalog import Catalog
from tests.view.conftest import Watched
from tests.view.made import serving, some_lines, write_log
from tests.view.payloads import SEEDS
from tests.view.test_watch import ask


def make_run(
    folder: Path, nash_conv: float, *, lr: float = 0.1, finished: bool = True, env: str = "KuhnPoker-v0"
) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(f'env = {json.dumps(env)}\nmodel = "tiny"\nsteps = 3\n[optim]\nlr = {lr}\n')
    (folder / "start.json").write_text('{"nash_conv": 0.9}')
    values = (0.8, 0.7, nash_conv)
    rows = [
        {"step": k, "episodes": 8, "action_tokens": 32, "seconds": 0.5, "eval": {"nash_conv": v}}
        for k, v in enumerate(values, 1)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if finished:
        result = {
            "last": {"nash_conv": 0.7},
            "average": {"nash_conv": nash_conv},
            "published": "average",
            "verdict": "Learned.",
            "stopped": None,
        }
        (folder / "result.json").write_text(json.dumps(result))
        (folder / "report.html").write_text("<!doctype html><title>report</title>")
    return folder


def make_evaluation(folder: Path, mean: float, opponent: str = "random") -> Path:
    folder.mkdir(parents=True)
    row = {
        "env": "Nim-v0",
        "policy": "tiny",
        "opponent": opponent,
        "alone": False,
        "games": 40,
        "mean": mean,
        "ci95": [mean - 0.1, mean + 0.1],
        "win": 0.6,
        "draw": 0.0,
        "loss": 0.4,
        "invalid": 0.0,
        "exact": {"no_loss": 0.7, "by_seat": {"player_0": 1.0}},
    }
    (folder / "results.json").write_text(json.dumps({"results": [row, {**row, "opponent": "optimal"}]}))
    return folder


@pytest.fixture
def several(tmp_path: Path) -> Path:
    root = tmp_path / "runs"
    make_run(root / "a", 0.1)
    make_run(root / "deep/b", 0.3, lr=0.2, finished=False)
    write_log(root / "a", some_lines(3, ("KuhnPoker-v0",)))
    make_evaluation(root / "evals/nim", 0.2)
    (root / "a/checkpoints/step_1").mkdir(parents=True)
    (root / "a/checkpoints/step_1/config.toml").write_text("no = 1")
    (root / "empty").mkdir()
    return root


def lines_of(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {line["id"] + (" " + line["opponent"] if line["opponent"] else ""): line for line in found["lines"]}


def test_it_lists_runs_and_each_row_of_an_evaluation(several: Path) -> None:
    found = Catalog(several).read()
    lines = lines_of(found)
    assert set(lines) == {"a", "deep/b", "evals/nim random", "evals/nim optimal"}
    assert lines["a"]["numbers"] == {"nash_conv": 0.1, "steps": 3, "episodes": 24, "tokens": 96, "seconds": 1.5}
    assert lines["a"]["before"] == {"nash_conv": 0.9} and lines["a"]["curve"] == [0.8, 0.7, 0.1]
    assert (lines["a"]["state"], lines["deep/b"]["state"]) == ("finished", "unfinished")
    assert lines["deep/b"]["numbers"]["nash_conv"] == 0.3
    assert lines["a"]["settings"] == {"optim.lr": "0.1"} and lines["deep/b"]["settings"] == {"optim.lr": "0.2"}
    assert lines["evals/nim random"]["numbers"] == {"mean": 0.2, "win": 0.6, "loss": 0.4, "no_loss": 0.7, "games": 40}
    assert lines["evals/nim random"]["ends"]["mean"] == pytest.approx([0.1, 0.3])
    better = {column["key"]: column["better"] for column in found["columns"]}
    assert (better["nash_conv"], better["mean"], better["loss"], better["steps"]) == (-1, 1, -1, 0)
    assert holds_several(several) and not holds_several(several / "a") and not holds_several(several / "empty")


def test_it_lists_what_exploit_found_and_no_interval_where_there_is_none(tmp_path: Path) -> None:
    for number, width in enumerate((0.0, 0.2)):
        (tmp_path / f"e{number}").mkdir()
        found = {"env": "Nim-v0", "policy": "m", "nash_conv": {"estimate": 0.5, "ci95": [0.5 - width, 0.5 + width]}}
        (tmp_path / f"e{number}/results.json").write_text(json.dumps({"exploit": found, "setting": {}}))
    lines = lines_of(Catalog(tmp_path).read())
    assert [line["ends"] for line in lines.values()].count({}) == 1 and lines["e1"]["ends"] == {"nash_conv": [0.3, 0.7]}
    for line in lines.values():
        assert (line["kind"], line["state"], line["env"], line["policy"]) == ("examination", "finished", "Nim-v0", "m")
        assert line["numbers"] == {"nash_conv": 0.5}


def test_a_run_that_goes_on_is_read_on(several: Path) -> None:
    catalog = Catalog(several)
    catalog.read()
    metrics = several / "deep/b/metrics.jsonl"
    with metrics.open("a") as file:
        file.write('{"step": 4, "episodes": 8, "eval": {"nash_conv": 0.05}}\nno json\n{"step": 5, "epi')
    line = lines_of(catalog.read())["deep/b"]
    assert (line["numbers"]["steps"], line["numbers"]["nash_conv"], line["numbers"]["episodes"]) == (4, 0.05, 32)
    metrics.write_text('{"step": 1, "episodes": 8}\n')  # a resume cuts it back
    assert lines_of(catalog.read())["deep/b"]["numbers"] == {"steps": 1, "episodes": 8}
    metrics.write_text("".join(f'{{"step": {k}, "episodes": 10, "seconds": 2}}\n' for k in range(1, 9)))
    assert lines_of(catalog.read())["deep/b"]["numbers"] == {"steps": 8, "episodes": 80, "seconds": 16}, "and went on"
    (several / "a/result.json").write_text("{")
    assert "result.json" in lines_of(catalog.read())["a"]["note"]


def test_curves_of_long_runs_stay_short(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs/long", 0.1, finished=False)
    with (run / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps({"step": k, "eval": {"nash_conv": 1 / k}}) + "\n" for k in range(4, 2000))
    (line,) = Catalog(tmp_path / "runs").read()["lines"]
    assert 64 <= len(line["curve"]) < 128 and line["curve"][-1] == round(1 / 1999, 6)


def test_its_server_opens_what_the_list_has_and_nothing_else(several: Path) -> None:
    (several.parent / "secret").mkdir()
    (several.parent / "secret/report.html").write_text("secret")
    with serving(several, serve_folder, 0.1) as port:
        status, headers, text = ask(port, "/")
        assert status == 200 and "deep/b" in text and headers["Content-Security-Policy"] == "frame-ancestors 'none'"
        assert ask(port, "/", "evil.example")[0] == 421
        assert json.loads(ask(port, "/rows?generation=0")[2]) == {"generation": 0}
        assert "found" in json.loads(ask(port, "/rows?generation=7")[2])
        assert ask(port, "/rows")[0] == 400
        status, _, text = ask(port, "/run/a/")
        assert status == 200 and "Rollouts" in text
        assert json.loads(ask(port, "/run/a/lines?generation=0&seen=3")[2])["seen"] == 3
        status, headers, text = ask(port, "/run/a/report")
        assert (status, text) == (200, "<!doctype html><title>report</title>")
        assert (
            "sandbox" in headers["Content-Security-Policy"]
            and "default-src 'none'" in headers["Content-Security-Policy"]
        )
        assert ask(port, "/run/deep%2Fb/report")[0] == 404
        assert ask(port, "/run/deep%2Fb/")[0] == 400  # no episodes yet
        status, _, text = ask(port, "/compare?run=a&run=deep%2Fb")
        assert status == 200 and "NashConv" in text and "optim.lr" in text
        assert ask(port, "/compare")[0] == 400
        for path in (
            "/run/../secret/report",
            "/run/%2E%2E%2Fsecret/report",
            "/compare?run=..%2Fsecret",
            "/run/a/config.toml",
        ):
            assert ask(port, path)[0] == 404


def test_what_changes_is_told_once(several: Path) -> None:
    with serving(several, serve_folder, 0.1) as port:
        make_run(several / "new", 0.2)
        deadline = time.monotonic() + 20
        while not (answer := json.loads(ask(port, "/rows?generation=0")[2]))["generation"]:
            assert time.monotonic() < deadline, "the new run was never found"
            time.sleep(0.02)
        assert "new" in {line["id"] for line in answer["found"]["lines"]}
        assert json.loads(ask(port, f"/rows?generation={answer['generation']}")[2]) == {
            "generation": answer["generation"]
        }


def test_view_of_a_folder_writes_a_page(several: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", str(several), "--no-open"]) == 0
    assert capsys.readouterr().out == f"wrote {several / 'browse.html'}\n"
    assert main(["view", str(several), "--terminal"]) == 1
    assert "There is one in" in capsys.readouterr().err


def names(page: Any) -> list[str]:
    found: list[str] = page.locator("#lines tbody th b").all_inner_texts()
    return found


def test_the_page_sorts_filters_and_compares(several: Path, watched: Watched) -> None:
    page = watched.open(write_folder_page(several).as_uri())
    page.get_by_role("button", name="NashConv").click()
    assert names(page)[:2] == ["a", "deep/b"]
    page.get_by_role("button", name="NashConv").click()
    assert names(page)[:2] == ["deep/b", "a"]
    page.fill("#text", "nash_conv < 0.2")
    assert names(page) == ["a"]
    page.fill("#text", "lr=0.2")
    assert names(page) == ["deep/b"]
    page.fill("#text", "zzz")
    page.get_by_role("button", name="Clear all filters").click()
    page.select_option("[data-filter=kind]", "evaluation")
    assert sorted(names(page)) == ["evals/nim: tiny against optimal", "evals/nim: tiny against random"]
    page.select_option("[data-filter=kind]", "run")
    for box in page.locator("#lines tbody input").all():
        box.check()
    told = page.locator("#comparison").inner_text()
    assert "2 compared" in told and "optim.lr" in told and "was 0.9" in told
    assert page.locator("#comparison .best").all_inner_texts() == ["0.1"]
    page.get_by_text("Numbers shown").click()
    page.locator("#picks").get_by_label("NashConv").uncheck()
    assert "NashConv" not in page.locator("#lines thead").inner_text()


def test_the_page_is_live(several: Path, watched: Watched) -> None:
    with serving(several, serve_folder, 0.1) as port:
        page = watched.open(f"http://127.0.0.1:{port}/")
        make_run(several / "newcomer", 0.2)
        page.get_by_text("newcomer").wait_for()
        page.get_by_role("link", name="episodes").click()
        page.get_by_role("link", name="All runs").click()
        page.get_by_text("newcomer").wait_for()
        watched.leave()


@pytest.mark.slow
def test_names_and_settings_enter_as_text(tmp_path: Path, watched: Watched) -> None:
    root = tmp_path / "runs"
    for number, payload in enumerate(SEEDS[:5]):
        make_run(root / f"{number}", 0.1, env=payload)
        (root / f"{number}/result.json").write_text(
            json.dumps({"last": {payload: 0.5}, "verdict": payload, "stopped": payload})
        )
    make_evaluation(root / "<img src=x onerror=alert(1)>", 0.1, SEEDS[0])
    page = watched.open(write_folder_page(root).as_uri())
    for box in page.locator("#lines tbody input").all():
        box.check()
    assert page.locator("#lines tbody tr").count() == 7
    assert page.locator("img, iframe, body script[src]").count() == 0


def test_a_phone_can_read_it(several: Path, watched: Watched) -> None:
    page = watched.open(write_folder_page(several).as_uri())
    page.set_viewport_size({"width": 400, "height": 800})
    page.locator("#lines tbody input").first.check()
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.locator("#lines tbody tr").first.bounding_box()["width"] > 300
