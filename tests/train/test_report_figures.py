"""Figures of a report: where things are drawn, what intervals cover, which figures a run has."""

from __future__ import annotations

import math
import re
import shutil
import sys
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from legos_train.observe.eval_numbers import ends_of, formatted, metric_name, results
from legos_train.observe.report import write_pngs
from legos_train.observe.report.figures import figures
from legos_train.observe.report.png import plain
from legos_train.observe.report.scales import nice_ticks, number, running_mean, thinned, tick_names, window_of
from legos_train.observe.report.svg import Figure, Line, heat_map, line_chart, standalone

SVG = "{http://www.w3.org/2000/svg}"


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


def test_alarms_of_evaluations_are_marked_in_the_figure_of_what_was_evaluated() -> None:
    last = {"eval": {"nash_conv": 0.5}, "alarms": [{"name": "worse"}, {"name": "entropy"}]}
    found = {f.name: f.marks for f in figures([*rows(3), {"step": 4, "entropy": 0.0, **last}], {"nash_conv": 0.4})}
    assert (found["nash_conv"], found["entropy"]) == ([(4, "alarm: worse")], [(4, "alarm: entropy")])
    assert not found["reward"]


def test_seats_are_lines_of_the_figure_of_their_mean() -> None:
    rate = {"no_loss_optimal": 0.75, "no_loss_optimal_as_player_0": 1.0, "no_loss_optimal_as_player_1": 0.5}
    found = [f for f in figures([{"step": 1, "eval": rate}], {}) if f.name.startswith("no_loss")]
    assert [line.name for line in found[0].lines] == ["last weights", "as player_0", "as player_1"] and len(found) == 1
    assert metric_name("no_loss_optimal_as_player_1") == "no-loss rate against optimal play as player_1"


def test_a_run_without_sampling_is_drawn_or_its_absence_explained() -> None:
    rows = [{"step": 1, "eval": {"nash_conv": 0.5}}, {"step": 2, "eval": {"nash_conv": 0.4}}]
    (one,) = [f for f in figures(rows, {}, {}, {"nash_conv": {"last": [[1, 0.3], [2, 0.2]]}}) if f.name == "nash_conv"]
    assert [line.name for line in one.lines] == ["last weights", "without sampling"]
    assert list(one.lines[1].points) == [(1.0, 0.3), (2.0, 0.2)]
    (one,) = [f for f in figures(rows, {}, {}, {"nash_conv": {"left_out": "too large"}}) if f.name == "nash_conv"]
    assert [line.name for line in one.lines] == ["last weights"] and one.note.endswith("beside it: too large.")


def test_several_envs_have_figures_of_their_own() -> None:
    reward = {"Nim-v0/first": 0.5, "Nim-v0/second": -0.5, "Kuhn/a": 0.0}
    records = [{"step": 1, "reward": reward, "eval": {"Nim-v0/nash_conv": 0.5, "Nim-v0/nash_conv_average": 0.4}}]
    found = {f.name: f for f in figures(records)}
    assert {line.name for line in found["reward--Nim-v0"].lines} == {"first", "second"}
    assert found["reward--Kuhn"].title == "Reward by role, Kuhn"
    assert found["Nim-v0_nash_conv"].title == "Nim-v0: NashConv (0 is an equilibrium)"
    assert [line.name for line in found["Nim-v0_nash_conv"].lines] == ["last weights", "weight average"]
    assert figures([]) == [] and figures([{"step": 1, "reward": {}}]) == []


def one_figure(folder: Path) -> Path:
    figure = Figure("f", "Title", "unit", [Line("a", [(0.0, 0.0), (1.0, 1.0)], [(0.0, 0.0, 0.5), (1.0, 0.5, 1.0)])])
    (folder / "f.svg").write_text(standalone(line_chart(figure)))
    return folder / "f.svg"


def is_png(data: bytes, width: int) -> bool:
    head = data.startswith(b"\x89PNG") and int.from_bytes(data[16:20], "big") == width
    return head and re.search(rb"IEND", data[-12:]) is not None


def test_png_needs_a_browser_or_resvg_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match=r"need Chromium .* or the extra `png`: uv sync --extra png"):
        write_pngs(tmp_path)


def test_what_only_browsers_know_is_taken_out_for_resvg(tmp_path: Path) -> None:
    text = plain(one_figure(tmp_path).read_text())
    assert not re.search(r"var\(|--\w+:|@media|font: ", text) and "DejaVu Sans" in text
    assert 'stroke="#0072b2"' in text and ".fig .paper { fill: #ffffff; }" in text, "the light colours"
    root = ET.fromstring(text)
    assert len(list(root.iter(f"{SVG}polyline"))) == 1


def test_png_of_a_figure_without_a_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any font of the list will do; the default family of resvg need not be installed."""
    resvg_py = pytest.importorskip("resvg_py")
    if sys.platform == "linux" and not any(Path("/usr/share/fonts").rglob("*.ttf")):
        pytest.skip("needs a font")
    one_figure(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    (png,) = write_pngs(tmp_path)
    assert png == tmp_path / "f.png" and is_png(png.read_bytes(), 1120)
    draw = resvg_py.svg_to_bytes
    asked = []
    monkeypatch.setattr(resvg_py, "svg_to_bytes", lambda **given: asked.append(given["svg_string"]) or draw(**given))
    write_pngs(tmp_path)
    assert len(asked) == 3 and all("DejaVu Sans" in text for text in asked)
    monkeypatch.setattr(resvg_py, "svg_to_bytes", lambda **given: draw(**{**given, "skip_system_fonts": True}))
    with pytest.raises(RuntimeError, match="finds no font on this machine"):
        write_pngs(tmp_path)


@pytest.mark.slow
def test_png_of_a_figure(tmp_path: Path) -> None:
    if shutil.which("chromium") is None:
        pytest.skip("needs chromium")
    one_figure(tmp_path)
    (png,) = write_pngs(tmp_path)
    assert is_png(png.read_bytes(), 1120)


def test_results_of_games_have_bands_and_their_endings_one_figure() -> None:
    def measured(mean: float, **more: float) -> dict[str, float]:
        ends = {"vs_random_low": mean - 0.2, "vs_random_high": mean + 0.1}
        weights = {"vs_random": mean, **ends, "win": 0.6, "loss": 0.4, "invalid": 0.0, "truncated": 0.0, **more}
        return weights | {f"{name}_average": value + 0.01 for name, value in weights.items()}

    start = {k: v for k, v in measured(0.0).items() if not k.endswith("_average")}
    found = {f.name: f for f in figures([{"step": 5, "eval": measured(0.5, draw=0.25)}], start)}
    assert set(found) == {"vs_random", "endings"}, "no figure of an interval's end"
    last, average = found["vs_random"].lines
    assert last.points == [(0.0, 0.0), (5.0, 0.5)] and last.band == [(0.0, -0.2, 0.1), (5.0, 0.3, 0.6)]
    assert average.points == [(5.0, 0.51)] and average.band[0] == pytest.approx((5.0, 0.31, 0.61))
    assert "95 % interval over seeds" in found["vs_random"].note
    assert [line.name for line in found["endings"].lines] == ["won", "drawn", "lost"], "what never came is not drawn"
    assert results(start) == ["vs_random", "win", "loss"] and ends_of(start, "win") is None
    assert formatted(measured(0.5), "vs_random_average") == "0.510 (0.31 to 0.61)" and formatted(start, "draw") == ""
    assert results({"return_low": 1.0, "return_high": 2.0}) == ["return_low", "return_high"], "roles may be so called"


def test_ratings_have_the_band_that_openskill_gives_them() -> None:
    league = {"members": 2.0, "win_rate": 0.5, "least_win_rate": 0.5, "rating": 25.0}
    (plain,) = [f for f in figures([{"step": 1, "league": league}]) if f.name == "rating"]
    assert not plain.lines[0].band and "Band" not in plain.note, "runs of before recorded no uncertainty"
    (rated,) = [f for f in figures([{"step": 1, "league": league | {"rating_sigma": 2.0}}]) if f.name == "rating"]
    assert rated.lines[0].band == [(1.0, 25.0 - 1.96 * 2, 25.0 + 1.96 * 2)] and "mu ± 1.96 sigma" in rated.note


def test_several_learners_have_a_line_each() -> None:
    rows = [{"step": n, "kl": 0.5, "learners": {"a": {"kl": 0.1 * n}, "b": {"kl": 1.0}}} for n in (1, 2, 3)]
    (kl,) = [figure for figure in figures(rows) if figure.name == "kl"]
    assert [line.name for line in kl.lines] == ["a", "b"]
    assert [y for _, y in kl.lines[1].points or ()] == [1.0] * 3
