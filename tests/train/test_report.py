"""The report of a run: figures, intervals, sample games, settings; runs compared."""

from __future__ import annotations

import json
import math
import re
import shutil
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from legos_train import train
from legos_train.config import TrainConfig, to_toml
from legos_train.report import (
    Figure,
    Line,
    compare,
    figures,
    heat_map,
    line_chart,
    print_table,
    report_again,
    standalone,
    write_comparison,
    write_pngs,
)
from legos_train.report.__main__ import main as by_hand
from legos_train.report.compare import labels_of
from legos_train.report.games import games_html, sample_games
from legos_train.report.scales import nice_ticks, number, running_mean, thinned, tick_names, window_of
from legos_train.report.settings import changed, differing, flat
from legos_train.storage import RunError
from tests.train.helpers import small

SVG = "{http://www.w3.org/2000/svg}"
VOID = {"meta", "line", "circle", "rect", "polyline", "polygon", "br"}


class Page(HTMLParser):
    """Checks that tags close in order; collects text, tags and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def loads_nothing(text: str) -> Page:
    page = Page(text)
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    assert all(value is not None and value.startswith("#") for key, value in page.attributes if key in ("href", "src"))
    assert not any(key.startswith("on") for key, _ in page.attributes)
    assert "url(" not in text and "@import" not in text
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes
    return page


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run in a league with numbers of all kinds; and its files under other settings, still running, as a second."""
    root = tmp_path_factory.mktemp("report")
    first, second = root / "first", root / "second"
    league = {"mode": "psro", "snapshot_every": 1, "payoff_games": 2, "latest": 0.0}
    alarming = {"kl": 0.0, "patience": 1}
    train(config=small(first, steps=3, batch_size=16, league=league, eval={"every": 1}, monitor=alarming), quiet=True)
    second.mkdir()
    for name in ("metrics.jsonl", "start.json"):
        shutil.copy(first / name, second)
    (second / "config.toml").write_text(to_toml(small(steps=3, batch_size=16, optim={"lr": 1e-3})))
    return first, second


def test_the_report_is_one_file_with_everything_in_it(runs: tuple[Path, Path]) -> None:
    page = loads_nothing((runs[0] / "report.html").read_text())
    for wanted in (
        "Before and after", "NashConv (0 is an equilibrium)", "Reward by role", "Win rate by role", "Invalid actions",
        "Entropy", "KL to the reference", "Staleness", "Generation speed", "Weight swap", "Payoffs between members",
        "The learner against members", "Sample games", "before (step 1)", "after (step 3)", "Alarms",
        "the policy is far", "What the policy does",
        "You are player 0. Moves: none. Your card: J.", "league.mode", "psro", "Running mean",
        "Exact: computed from the policy's own action probabilities",
    ):  # fmt: skip
        assert wanted in page.text, wanted
    assert "Rating of the learner" in page.text, "openskill is installed for the tests"
    assert "alarm: kl" in page.text, "the alarm is marked in its figure"
    start = json.loads((runs[0] / "start.json").read_text())["nash_conv"]
    assert f"{start:.4f}" in page.text


def test_every_figure_is_a_file_that_any_reader_of_svg_can_read(runs: tuple[Path, Path]) -> None:
    names = {file.stem for file in (runs[0] / "figures").glob("*.svg")}
    assert {"nash_conv", "reward", "win_rate", "entropy", "kl", "staleness", "publish", "payoffs", "against"} <= names
    for file in (runs[0] / "figures").glob("*.svg"):
        root = ET.fromstring(file.read_text())
        assert root.tag == f"{SVG}svg" and root.findall(f"{SVG}style") and root.get("aria-label")
        box = [float(v) for v in (root.get("viewBox") or "").split()]
        for text in root.iter(f"{SVG}text"):
            assert -1 <= float(text.get("x") or "nan") <= box[2] and 0 <= float(text.get("y") or "nan") <= box[3]
    report_again(runs[1])
    assert "payoffs" not in {file.stem for file in (runs[1] / "figures").glob("*.svg")}, (
        "what is not known is not drawn"
    )


def test_the_report_can_be_written_again_from_the_files(runs: tuple[Path, Path], tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(runs[0], copy)
    before = (copy / "report.html").read_text()
    assert report_again(copy) == copy / "report.html" and (copy / "report.html").read_text() == before
    (copy / "result.json").unlink()  # as while a run goes on
    report_again(copy)
    assert "Stopped early: not finished" in (copy / "report.html").read_text()
    with pytest.raises(RunError, match="no run directory"):
        report_again(tmp_path)


def test_runs_compared(runs: tuple[Path, Path]) -> None:
    page = loads_nothing(compare(runs))
    for wanted in (
        "Runs compared: first, second", "Settings that differ", "optim.lr", "0.001", "Reward by role: player_0",
        "NashConv (0 is an equilibrium): last weights", "league.mode",
    ):  # fmt: skip
        assert wanted in page.text, wanted
    assert "lora.rank" not in page.text, "what is the same is left out"
    assert write_comparison(runs) == runs[0] / "compare.html"
    with pytest.raises(RunError, match=r"no config\.toml"):
        compare([runs[0], runs[0].parent])
    assert "The settings of these runs are the same" in compare([runs[0], runs[0]])
    assert labels_of([Path("/a/x"), Path("/b/x"), Path("/b/y")]) == ["a/x", "b/x", "b/y"]
    assert labels_of([Path("/a/x"), Path("/a/x")]) == ["x (1)", "x (2)"]


def test_by_hand_on_the_command_line(
    runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert by_hand([str(tmp_path)]) == 1 and "is no run directory" in capsys.readouterr().err
    assert by_hand([str(run) for run in runs]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"wrote {runs[0] / 'report.html'}", f"wrote {runs[1] / 'report.html'}", f"wrote {runs[0] / 'compare.html'}"
    ]  # fmt: skip


def test_the_table_at_the_end(runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    from legos_train.loop import Result

    result = Result(runs[0], **{k: v for k, v in json.loads((runs[0] / "result.json").read_text()).items()})
    print_table(result)
    text = capsys.readouterr().out
    assert "3 steps in" in text and f"{result.last['nash_conv']:.4f}" in text and str(runs[0] / "report.html") in text
    print_table(result, "json")
    said = json.loads(capsys.readouterr().out)["result"]
    assert said["last"] == result.last and said["run_dir"] == str(runs[0])


def test_bands_cover_the_mean_95_times_in_100() -> None:
    """Batches of 16 returns with their own standard errors, windows of 5: what the page says is what it is."""
    rng = np.random.default_rng(0)
    hits, trials, window = 0, 2000, 5
    for _ in range(trials):
        games = rng.normal(0.3, 1.0, (window, 16))
        means, errors = games.mean(1), games.std(1, ddof=1) / 4
        _, bands = running_mean(list(enumerate(means.tolist())), window, errors.tolist())
        _, low, high = bands[-1]
        hits += low <= 0.3 <= high
    assert 0.92 <= hits / trials <= 0.97


def test_running_means() -> None:
    points = [(1.0, 1.0), (2.0, 3.0), (3.0, 5.0)]
    means, bands = running_mean(points, 2)
    assert means == [(1.0, 1.0), (2.0, 2.0), (3.0, 4.0)]
    assert [x for x, *_ in bands] == [2.0, 3.0], "one value has no spread"
    assert bands[0][1:] == pytest.approx((2 - 1.96 * 1.0, 2 + 1.96 * 1.0))
    _, known = running_mean(points, 2, [0.3, 0.4, None])
    assert known[1] == pytest.approx((2.0, 2 - 1.96 * 0.25, 2 + 1.96 * 0.25)) and len(known) == 2
    assert window_of(3) == 1 and window_of(60) == 6 and window_of(10_000) == 20


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (-0.31, 0.74), (0, 0), (5, 5), (-3, -3), (1e-9, 2e-9), (0, 123456), (0.999, 1.001)]
)
def test_ticks_cover_the_range_in_round_steps(low: float, high: float) -> None:
    ticks = nice_ticks(low, high)
    size = ticks[1] - ticks[0]
    assert ticks[0] <= low + 1e-9 * size and ticks[-1] >= high - 1e-9 * size and 2 <= len(ticks) <= 7
    assert round(size / 10 ** math.floor(math.log10(size) + 1e-9), 6) in (1, 2, 5)
    assert len(set(tick_names(ticks))) == len(ticks)


def test_numbers_on_axes() -> None:
    said = [number(v) for v in (0, -0.0, 0.5, -0.25, 150, 12345, 2e6, 4e-6, -1.5e-9)]
    assert said == ["0", "0", "0.5", "−0.25", "150", "12.3k", "2M", "4e-6", "−1.5e-9"]
    assert tick_names([0.999, 0.9995, 1.0]) == ["0.999", "0.9995", "1"]
    assert tick_names([120000, 122500]) == ["120k", "122.5k"]
    assert thinned(list(range(10)), 3) == [1, 5, 9] and thinned([1, 2], 5) == [1, 2]


def coordinates(svg: str, tag: str) -> list[list[tuple[float, float]]]:
    root = ET.fromstring(standalone(svg))
    found = [e.get("points") or "" for e in root.iter(f"{SVG}{tag}")]
    return [[(float(x), float(y)) for x, y in (p.split(",") for p in points.split())] for points in found]


def test_a_line_is_drawn_where_its_numbers_are() -> None:
    line = Line("a", [(0.0, 0.0), (5.0, 1.0), (10.0, 0.5)], [(5.0, -3.0, 4.0)])
    svg = line_chart(Figure("f", "Title & <b>", "share", [line], bounds=(0.0, 1.0)))
    ((p0, p1, p2),) = coordinates(svg, "polyline")
    assert p0[0] < p1[0] < p2[0] and p1[0] - p0[0] == pytest.approx(p2[0] - p1[0], abs=0.2)
    assert p1[1] < p2[1] < p0[1] and p2[1] == pytest.approx((p0[1] + p1[1]) / 2, abs=0.2)
    assert coordinates(svg, "polygon") == [[p1, (p1[0], p0[1])]], "no interval leaves what a share can be"
    assert "Title &amp; &lt;b&gt;" in svg and "<b>" not in svg
    with pytest.raises(ValueError, match="'f' has no points"):
        line_chart(Figure("f", "t", "u", [Line("a", [])]))


def test_labels_of_many_lines_do_not_cover_each_other() -> None:
    lines = [Line(f"line {k}", [(0.0, 0.0), (1.0, 0.5 + 0.001 * k)]) for k in range(12)]
    root = ET.fromstring(standalone(line_chart(Figure("f", "t", "u", lines))))
    heights = sorted(float(t.get("y") or 0) for t in root.iter(f"{SVG}text") if t.get("class") == "label")
    assert len(heights) == 12 and all(b - a >= 13.9 for a, b in pairwise(heights)) and heights[-1] < 270


def test_a_heat_map_says_every_number_and_what_was_not_played() -> None:
    svg = heat_map("t", "u", ["a<", "b"], ["x", "y"], [[1.0, -1.0], [0.0, None]])
    root = ET.fromstring(standalone(svg))
    cells = [t.text for t in root.iter(f"{SVG}text") if t.get("class") == "cell"]
    fills = [r.get("fill") for r in root.iter(f"{SVG}rect") if r.get("fill")]
    assert cells == ["1.00", "-1.00", "0.00"] and "not played" in svg and "a&lt;" in svg
    assert fills == ["#e68c3c", "#5aa5dc", "#fafafa", "var(--line)"]


def rows(count: int, **changes: Any) -> list[dict[str, Any]]:
    return [
        {"step": k, "reward": {"a": 0.1 * k, "b": -0.1 * k}, "entropy": 0.5, **changes} for k in range(1, count + 1)
    ]


def test_figures_of_a_run() -> None:
    found = {f.name: f for f in figures(rows(40, reward_error={"a": 0.1, "b": None}), {"nash_conv": 0.9})}
    reward = found["reward"]
    assert [line.name for line in reward.lines] == ["a", "b"] and "standard error" in reward.note
    assert len(reward.lines[0].band) == 40 and not reward.lines[1].band, "no interval without an error"
    assert reward.lines[0].points[-1][1] == pytest.approx(0.1 * np.mean([37, 38, 39, 40]))
    assert found["nash_conv"].lines[0].points == [(0.0, 0.9)] and "win_rate" not in found
    old = {f.name: f for f in figures(rows(40))}
    assert "spread between steps" in old["reward"].note and len(old["reward"].lines[1].band) == 39


def test_several_envs_have_figures_of_their_own() -> None:
    reward = {"Nim-v0/first": 0.5, "Nim-v0/second": -0.5, "Kuhn/a": 0.0}
    records = [{"step": 1, "reward": reward, "eval": {"Nim-v0/nash_conv": 0.5, "Nim-v0/nash_conv_average": 0.4}}]
    found = {f.name: f for f in figures(records)}
    assert {line.name for line in found["reward--Nim-v0"].lines} == {"first", "second"}
    assert found["reward--Kuhn"].title == "Reward by role, Kuhn"
    assert found["Nim-v0_nash_conv"].title == "Nim-v0: NashConv (0 is an equilibrium)"
    assert [line.name for line in found["Nim-v0_nash_conv"].lines] == ["last weights", "weight average"]
    for other, unit in (("return", "share of actions"), ("vs_random", "share of games lost by one")):
        played = figures([{"step": 1, "reward": {}, "eval": {"E/invalid": 0.0, f"E/{other}": 0.5}}])
        assert {f.name: f.unit for f in played}["E_invalid"] == unit
        assert "−" not in line_chart(next(f for f in played if f.name == "E_invalid")), "no share is below 0"
    assert figures([]) == [] and figures([{"step": 1, "reward": {}}]) == []


def test_what_models_write_is_text_and_not_markup(tmp_path: Path) -> None:
    evil = "</pre></details><script>alert(1)</script><img src=x onerror=alert(1)>"
    turn = {"observation": [{"role": "user", "content": evil}], "action": evil, "reward": 1.0, "legal_actions": ["[a]"]}
    line = {
        "step": 1, "env": evil, "players": {"a": evil}, "outcome": {"a": evil},
        "episode": {"seed": 1, "trajectories": [{"agent": "a", "role": "a", "carry": 0.5, "turns": [turn] * 30}]},
    }  # fmt: skip
    text = games_html("before", [line])
    page = Page(text)
    assert "script" not in page.tags and "img" not in page.tags and evil in page.text
    assert "+30.5" in text and "not legal" in text and "and more turns" in text


def test_sample_games_are_those_of_the_first_step_and_the_last(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    assert sample_games(path) == ([], [])
    lines = [json.dumps({"step": s, "k": k}) for s in (1, 10, 20) for k in range(5)]
    path.write_text("\n".join(["not json", *lines, json.dumps({"step": 20, "k": 9})[:-4]]) + "\n" + '{"step": 30, "k"')
    first, last = sample_games(path, 2)
    assert first == [{"step": 1, "k": 0}, {"step": 1, "k": 1}] and last == [{"step": 20, "k": 0}, {"step": 20, "k": 1}]
    path.write_text(f"{lines[0]}\n")
    assert sample_games(path) == ([{"step": 1, "k": 0}], [])


def test_settings_that_differ() -> None:
    assert changed(TrainConfig()) == [] and changed(TrainConfig(seed=3)) == [["seed", "3", "0"]]
    rows = differing([flat({"a": 1, "s": {"x": "y"}}), flat({"a": 1, "s": {"x": "z"}, "new": [1]})])
    assert rows == [["s.x", "y", "z"], ["new", "none", "[1]"]]


def test_png_needs_a_browser_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="none of chromium"):
        write_pngs(tmp_path)


@pytest.mark.slow
def test_png_of_a_figure(tmp_path: Path) -> None:
    if shutil.which("chromium") is None:
        pytest.skip("needs chromium")
    figure = Figure("f", "t", "u", [Line("a", [(0.0, 0.0), (1.0, 1.0)])])
    (tmp_path / "f.svg").write_text(standalone(line_chart(figure)))
    (png,) = write_pngs(tmp_path)
    data = png.read_bytes()
    assert data.startswith(b"\x89PNG") and int.from_bytes(data[16:20], "big") == 1120
    assert re.search(rb"IEND", data[-12:])
