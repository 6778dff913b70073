"""The page in a real browser: games are found, shown, compared and filled in as they come."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from legos_train.cli.main import main
from legos_train.observe.viewer import write_page
from tests.view.conftest import Watched
from tests.view.made import append, line_of, played, serving, some_lines, write_log
from tests.view.pages import choose, episode, listed, until
from tests.view.payloads import PAYLOADS, poisoned

LOST = ("loss", "invalid")


@pytest.mark.slow
def test_a_thousand_episodes_open_in_three_seconds(
    watched: Watched, lines: list[dict[str, Any]], tmp_path: Path
) -> None:
    texts = [json.dumps(line) for line in lines]
    (tmp_path / "rollouts.jsonl").write_text("".join(texts[n % len(texts)] + "\n" for n in range(1000)))
    path, _ = write_page([tmp_path])
    took = []
    for _ in range(3):
        start = time.monotonic()
        page = watched.open(path.as_uri())
        took.append(time.monotonic() - start)
        if took[-1] < 3:
            break
        watched.leave()
    assert min(took) < 3, took
    assert page.inner_text("#summary") == "test_a_thousand_episodes_open_0 · 1,000 episodes"
    assert listed(page)[:3] == [1000, 999, 998] and page.locator(".row").count() < 40
    page.evaluate("document.querySelector('#list').scrollTop = 1e7")
    page.wait_for_selector("[aria-posinset='1000']")
    assert listed(page)[-1] == 1 and page.locator(".row").count() < 40


def test_filters_search_and_order(watched: Watched, url: str, rows: list[dict[str, Any]]) -> None:
    page = watched.open(url)

    def says(fits: list[dict[str, Any]]) -> str:
        return f"kuhn · {len(fits)} of 60 episodes"

    def by_seat(name: str, *values: Any) -> list[dict[str, Any]]:
        return [row for row in rows if any(seat[name] in values for seat in row["seats"])]

    assert choose(page, env="Debate-v0") == says([row for row in rows if row["env"] == "Debate-v0"])
    assert choose(page, env="", step="20") == says([row for row in rows if row["step"] == 20])
    assert choose(page, step="", outcome="draw") == says(by_seat("outcome", "draw"))
    assert choose(page, outcome="loss or invalid") == says(by_seat("outcome", *LOST))
    assert choose(page, outcome="", role="solver") == says(by_seat("role", "solver"))
    assert choose(page, role="", player="league:step_10") == says(by_seat("player", "league:step_10"))
    assert choose(page, player="", trained="not trained") == says(by_seat("trained", False))
    assert choose(page, trained="not: judge") == says(by_seat("why", "judge"))
    both = [
        row for row in rows if any(s["player"] == "league:step_10" and s["outcome"] == "loss" for s in row["seats"])
    ]
    assert choose(page, trained="", player="league:step_10", outcome="loss") == says(both)
    page.select_option("[data-filter=outcome]", "")
    page.select_option("[data-filter=player]", "")
    page.fill("#text", "YOUR CARD: K.")
    until(page, "document.querySelector('#summary').textContent.includes(' of ')")
    assert {row["env"] for row in rows if row["n"] in listed(page)} == {"KuhnPoker-v0"}
    page.fill("#text", "no such words")
    page.wait_for_selector("#none:not([hidden])")
    page.click("#clear")
    assert page.inner_text("#summary") == "kuhn · 60 episodes" and page.input_value("#text") == ""
    assert listed(page)[0] == 60
    choose(page, sort="oldest")
    assert listed(page)[:3] == [1, 2, 3]
    choose(page, sort="longest")
    assert rows[listed(page)[0] - 1]["turns"] == max(row["turns"] for row in rows)
    choose(page, sort="lowest")
    assert min(s["return"] for s in rows[listed(page)[0] - 1]["seats"]) == min(
        s["return"] for row in rows for s in row["seats"]
    )


def test_one_click_from_the_lost_games_to_the_turn_that_cost_most(
    watched: Watched, url: str, rows: list[dict[str, Any]]
) -> None:
    page = watched.open(url)
    page.click("#lost")
    lost = [
        (seat["worst"], row["n"], number)
        for row in rows
        for number, seat in enumerate(row["seats"])
        if seat["outcome"] in LOST and seat["player"] == "policy" and seat["worst"]
    ]
    drops = sorted((w["value"], n, seat, w["turn"]) for w, n, seat in lost if w["by"] == "exact")
    credit = sorted((w["value"], n, seat, w["turn"]) for w, n, seat in lost if w["by"] == "advantage")
    assert drops and credit
    value, n, seat, turn = drops[0]
    assert listed(page)[0] == n
    page.click(f"[aria-label^='Episode {n}: go to the turn with the largest drop in exact value']")
    page.wait_for_selector(f"#turn-{seat}-{turn}.here")
    assert page.evaluate("document.activeElement.id") == f"turn-{seat}-{turn}"
    assert f"{value:.3g}".replace("-", "−") in page.inner_text(f"#turn-{seat}-{turn} .exact")
    choose(page, env=rows[credit[0][1] - 1]["env"])
    value, n, seat, turn = credit[0]
    page.click(f"[aria-label^='Episode {n}: go to the turn with the most negative advantage']")
    page.wait_for_selector(f"#turn-{seat}-{turn}.here")
    assert f"advantage {value:.3g}".replace("-", "−") in page.inner_text(f"#turn-{seat}-{turn} header")


def test_the_worst_turn_of_an_episode_is_the_losers(watched: Watched, url: str, rows: list[dict[str, Any]]) -> None:
    row = next(row for row in rows if row["env"] == "TicTacToe-v0" and row["seats"][1]["outcome"] == "loss")
    page = watched.open(f"{url}#e=0.{row['n']}")
    page.click("#worst")
    page.wait_for_selector(f"#turn-1-{row['seats'][1]['worst']['turn']}.here")


def test_an_evaluation_says_what_it_found_and_lists_what_its_policy_lost(
    watched: Watched, lines: list[dict[str, Any]], tmp_path: Path
) -> None:
    games = [json.loads(json.dumps(line)) for line in lines if line["env"] == "TicTacToe-v0"]
    lost = []
    for n, line in enumerate(games, 1):
        mine, other = ("player_0", "player_1") if n % 2 else ("player_1", "player_0")
        line |= {"players": {mine: "runs/x@best", other: "random"}, "advantages": {}, "step": 0}
        for trajectory in line["episode"]["trajectories"]:  # code has no tokens
            for turn in trajectory["turns"]:
                del turn["action_tokens"], turn["action_texts"], turn["logprobs"]
        line["game"] = {"policy": "runs/x@best", "opponent": "random", "outcomes": {mine: line["outcome"].get(mine)}}
        lost += [n] if line["outcome"].get(mine) in LOST else []
    folder = write_log(tmp_path / "ev", games)
    row = {"env": "TicTacToe-v0", "policy": "runs/x@best", "opponent": "random", "games": len(games), "mean": -0.25}
    (folder / "results.json").write_text(json.dumps({"results": [row | {"ci95": [-0.5, 0.125], "win": 0.375}]}))
    page = watched.open(write_page([folder])[0].as_uri())
    told = page.inner_text("#main")
    assert "runs/x@best" in told and "−0.5 … +0.125" in told and "37.5 %" in told
    assert "success" not in told
    page.click("#lost")
    assert 0 < len(lost) < len(games) and sorted(listed(page)) == lost
    assert "x@best −1 loss" in page.inner_text("#rows") and "player_" not in page.inner_text("#rows")
    assert "step" not in page.inner_text("#rows")
    page.click(".jump")
    page.wait_for_selector(".turn.here")
    assert "runs/x@best against random" in page.inner_text(".head") and "not trained" not in page.inner_text("#main")
    assert page.locator(".legend, #colour").count() == 0, "nothing to colour"
    page.keyboard.press("c")
    seat = int(page.evaluate("document.querySelector('.turn.here').id.split('-')[1]"))
    n = int(page.evaluate("location.hash").split("&")[0].split(".")[1])
    assert n in lost and games[n - 1]["players"][f"player_{seat}"] == "runs/x@best"


def test_what_exploit_computed_is_shown_without_an_episode(watched: Watched, tmp_path: Path) -> None:
    assert main(["exploit", "KuhnPoker-v0", "-m", "random", "--out", str(tmp_path / "e")]) == 0
    watched.page.set_viewport_size({"width": 390, "height": 800})  # which shows either the list or the numbers
    page = watched.open(write_page([tmp_path / "e"])[0].as_uri())
    shown = page.inner_text("#main")
    assert (
        "No episodes" in shown and "How exploitable" in shown and "+0.917" in shown and "Sample episodes" not in shown
    )
    assert page.is_hidden("#none") and page.evaluate("document.documentElement.scrollWidth") == 390


def test_counts_of_the_first_view_list_their_games(watched: Watched, url: str, rows: list[dict[str, Any]]) -> None:
    page = watched.open(url)
    lost = [
        row["n"] for row in rows for seat in row["seats"]
        if (row["env"], seat["role"], seat["player"], seat["outcome"]) == ("TicTacToe-v0", "player_0", "policy", "loss")
    ]  # fmt: skip
    page.click(f"[aria-label='{len(lost)} games of policy as player_0: loss'] >> nth=-1")
    assert page.input_value("[data-filter=outcome]") == "loss" and len(listed(page)) > 0
    assert page.inner_text("#summary") == f"kuhn · {len(lost)} of 60 episodes" and sorted(listed(page)) == sorted(lost)


def test_boards_are_drawn(
    watched: Watched, url: str, rows: list[dict[str, Any]], lines: list[dict[str, Any]], tmp_path: Path
) -> None:
    n = episode(rows, "TicTacToe-v0")
    page = watched.open(f"{url}#e=0.{n}")
    turn = lines[n - 1]["episode"]["trajectories"][0]["turns"][1]
    cells = turn["observation"][-1]["content"].split("Board: ")[1].split()[:9]
    drawn = "table => [...table.rows].map(row => [...row.cells].map(cell => cell.textContent))"
    assert page.eval_on_selector("#turn-0-1 .board", drawn) == [cells[0:3], cells[3:6], cells[6:9]]
    assert page.inner_text("#turn-0-1 .board .moved") == turn["action"].strip("[]")
    assert not page.locator("#turn-0-1 .board .mark0, #turn-0-1 .board .mark1").count() < 2
    page.goto(f"{url}#e=0.{episode(rows, 'Debate-v0')}")
    page.wait_for_selector("h2:has-text('Debate')")
    assert page.locator(".board").count() == 0
    four = line_of(played("ConnectFour-v0", [1])[0], 0)
    page = watched.open(write_page([write_log(tmp_path, [four])])[0].as_uri() + "#e=0.1")
    assert page.locator(".legend").count() == 1
    grid = page.eval_on_selector("#turn-0-1 .board", drawn)
    assert grid[0] == list("1234567") and len(grid) == 7 and sum(cell in "XO" for row in grid for cell in row) == 2


def test_tables_within_tables_fold(watched: Watched, url: str, rows: list[dict[str, Any]]) -> None:
    n = episode(rows, "ProposerSolver-v0")
    page = watched.open(f"{url}#e=0.{n}")
    assert page.locator(".table").count() == 2 and page.locator(".table[open]").count() == 2
    inner = page.locator(".table[data-path='problem_0']")
    assert inner.locator("> summary").inner_text().startswith("problem_0 · 4 seats")
    assert inner.locator(".seats tbody tr").count() == 4
    inner.locator("> summary").click()
    assert not page.locator("#turn-1-0").is_visible() and page.locator("#turn-0-0").is_visible()
    page.keyboard.press("f")
    assert page.locator("#turn-1-0").is_visible()
    page.keyboard.press("f")
    assert not page.locator("#turn-1-0").is_visible()
    page.goto(f"{url}#e=0.{n}&t=2.0")  # an address unfolds what it leads to
    page.wait_for_selector("#turn-2-0.here")
    assert page.locator("#turn-2-0").is_visible()


def test_a_seats_view_hides_what_the_others_saw(
    watched: Watched, url: str, rows: list[dict[str, Any]], lines: list[dict[str, Any]]
) -> None:
    n = episode(rows, "KuhnPoker-v0")
    cards = [
        t["turns"][0]["observation"][0]["content"].split("Your card: ")[1][0]
        for t in lines[n - 1]["episode"]["trajectories"]
    ]
    page = watched.open(f"{url}#e=0.{n}")
    shown = page.inner_text("#main")
    assert all(f"Your card: {card}" in shown for card in cards)
    left, right = page.locator("#turn-0-0").bounding_box(), page.locator("#turn-1-0").bounding_box()
    assert left["y"] == right["y"] and left["x"] + left["width"] <= right["x"]
    page.select_option("#seat", "1")
    page.wait_for_selector("#turn-0-0", state="detached")
    shown = page.inner_text("#main")
    assert f"Your card: {cards[1]}" in shown and f"Your card: {cards[0]}" not in shown
    page.click(".seats button[aria-pressed=true]")
    page.wait_for_selector("#turn-0-0")
    page.keyboard.press("1")
    page.wait_for_selector("#turn-1-0", state="detached")
    assert f"Your card: {cards[0]}" in page.inner_text("#main")
    assert page.locator("#turn-0-0 pre").first.evaluate("node => getComputedStyle(node).fontFamily").count("mono")


def test_every_token_tells_its_numbers(
    watched: Watched, url: str, rows: list[dict[str, Any]], lines: list[dict[str, Any]]
) -> None:
    row = next(row for row in rows if row["env"] == "TicTacToe-v0" and not row["seats"][1]["trained"])
    line = lines[row["n"] - 1]
    page = watched.open(f"{url}#e=0.{row['n']}")
    trajectory = line["episode"]["trajectories"][1]
    for at, turn in enumerate(trajectory["turns"]):
        texts = page.eval_on_selector_all(f"#turn-1-{at} .tok", "nodes => nodes.map(node => node.textContent)")
        assert texts == turn["action_texts"]
        kinds = page.eval_on_selector_all(f"#turn-1-{at} .tok", "nodes => nodes.map(node => node.classList[1])")
        bounds = (0.02, 0.1, 0.3, 0.6, 0.9)
        assert kinds == [f"p{sum(2.718281828**logprob >= b for b in bounds)}" for logprob in turn["logprobs"]]
    page.hover("#turn-1-0 .tok")
    told = page.inner_text("#tip")
    first = trajectory["turns"][0]
    assert f"probability {2.718281828 ** first['logprobs'][0]:.3g}" in told
    assert f"policy version {first['policy_version']}" in told and "not trained: opponent: step_10" in told
    page.hover("#turn-0-0 .tok")
    advantage = line["advantages"]["player_0"][0]
    told = page.inner_text("#tip")
    assert f"advantage {advantage:+.3g}".replace("-", "−") in told and told.endswith("\ntrained")
    page.focus("#turn-0-0 .tokens")
    page.keyboard.press("End")
    assert page.inner_text("#spoken").startswith('"<|end|>"') and page.locator(".tok.now").inner_text() == "<|end|>"
    page.keyboard.press("Escape")
    colours = set()
    for mode in ("probability", "advantage", "version", "trained"):
        page.goto(f"{url}#e=0.{row['n']}")
        page.select_option("#colour", mode)
        assert page.inner_text(".legend").startswith("Token colour")
        colours.add(page.evaluate("getComputedStyle(document.querySelector('#turn-0-0 .tok')).background"))
    assert len(colours) >= 3 and "(the tooltip says why)" in page.inner_text(".legend")


def test_rewards_and_credit_of_each_trajectory(
    watched: Watched, url: str, rows: list[dict[str, Any]], lines: list[dict[str, Any]]
) -> None:
    row = next(row for row in rows if row["env"] == "TicTacToe-v0" and row["step"] == 10)
    page = watched.open(f"{url}#e=0.{row['n']}")
    for number, (seat, cells) in enumerate(zip(row["seats"], page.locator(".seats tbody tr").all())):
        told = cells.inner_text()
        assert seat["agent"] in told and seat["outcome"] in told
        assert f"{seat['return']:+g}".replace("-", "−") in told
        assert ("trained" if seat["trained"] else f"not trained: {seat['why']}") in told
        given = lines[row["n"] - 1]["advantages"].get(seat["agent"])
        if given:
            assert f"{sum(given) / len(given):+.3g}".replace("-", "−") in told
        cells.locator(".steps button").nth(1).click()
        page.wait_for_selector(f"#turn-{number}-1.here")
    assert "Metrics of step 10" in page.inner_text("#main")
    page.click("text=Metrics of step 10")
    assert '"loss": 0.125' in page.inner_text(".facts[open] pre")


def test_two_runs_are_compared(watched: Watched, lines: list[dict[str, Any]], tmp_path: Path) -> None:
    folders = [write_log(tmp_path / "a", lines[:5]), write_log(tmp_path / "b", lines[5:8])]
    page = watched.open(write_page(folders)[0].as_uri())
    assert page.inner_text("#summary") == "a and b · 8 episodes"
    assert choose(page, run="1") == "a and b · 3 of 8 episodes"
    page.click(".row .open")
    page.wait_for_selector(".turn")
    assert page.evaluate("location.hash").startswith("#e=1.") and page.inner_text(".head").endswith("· b")


def test_runs_of_one_name_are_told_apart(watched: Watched, lines: list[dict[str, Any]], tmp_path: Path) -> None:
    page = watched.open(write_page([write_log(tmp_path / name / "run", lines[:2]) for name in "xy"])[0].as_uri())
    assert page.inner_text("#summary") == "x/run and y/run · 4 episodes"


def test_new_games_appear_in_the_open_page(watched: Watched, tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    folder = write_log(tmp_path / "run", lines[:2])
    with serving(folder) as port:
        page = watched.open(f"http://127.0.0.1:{port}/")
        assert page.inner_text("#summary") == "run · 2 episodes · live"
        assert "Choose an episode" in page.inner_text("#main")
        page.click(".row .open")
        (folder / "metrics.jsonl").write_text(json.dumps({"step": lines[2]["step"], "loss": 0.5}) + "\n")
        append(folder, lines[2])
        page.wait_for_selector("[aria-setsize='3']")
        assert page.inner_text("#summary") == "run · 3 episodes · live"
        page.keyboard.press("k")
        page.wait_for_selector("h2:has-text('#3')")
        assert f"Metrics of step {lines[2]['step']}" in page.inner_text(".factbar")
        write_log(folder, lines[3:5])
        page.wait_for_selector("[aria-setsize='2']")
        page.wait_for_selector("html[data-ready]")
        watched.leave()  # it would notice that the server ends


@pytest.mark.slow
def test_long_episodes_are_filled_when_they_come_near(watched: Watched, tmp_path: Path) -> None:
    line = some_lines(1, ("KuhnPoker-v0",))[0]
    first, second = line["episode"]["trajectories"]
    turn = first["turns"][0]
    turn |= {"action_tokens": [1] * 300, "action_texts": ["word "] * 300, "logprobs": [-0.1] * 300}
    for trajectory in (first, second):
        trajectory["turns"] = [dict(turn) for _ in range(100)]
    line["advantages"] = line["exact"] = {}
    page = watched.open(write_page([write_log(tmp_path, [line])])[0].as_uri() + "#e=0.1")
    assert page.locator(".turn").count() == 200
    page.wait_for_selector(".turn:not(.far)")
    assert page.locator(".turn:not(.far)").count() < 60
    page.goto(page.url + "&t=1.99")
    page.wait_for_selector("#turn-1-99.here .tok")
    assert page.locator("#turn-1-99 .tok").count() == 300


VISIT_ALL = """async () => {
  const settled = () => new Promise((resolve) => setTimeout(resolve, 0));
  const count = JSON.parse(document.getElementById("data").textContent.split("\\n")[0]).rows.length;
  let tokens = 0;
  let settings = "";
  for (let n = 1; n <= count; n++) {
    location.hash = `#e=0.${n}&t=0.1`;
    await settled();
    for (const node of document.querySelectorAll("#main details")) {
      if (n === 1 || node.textContent !== settings) node.open = true; // they are long, and the same each time
    }
    await settled();
    settings = document.querySelector(".facts:last-child").textContent;
    for (const token of [...document.querySelectorAll("#turn-0-0 .tok")].slice(0, 2)) {
      token.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
      tokens += 1;
    }
    if (n % 10 === 1) {
      location.hash = `#e=0.${n}&s=1`;
      await settled();
    }
  }
  const odd = "script, iframe, object, embed, svg, video, link, base, img, body [style*=url], meta, style, a";
  const names = [...document.querySelectorAll("*")].flatMap((node) => node.getAttributeNames());
  return { tokens, odd: [...document.querySelectorAll(odd)].map((node) => node.tagName).sort(),
    handlers: names.filter((name) => name.startsWith("on") || ["src", "href", "srcdoc"].includes(name)),
    pwned: window.__pwned ?? null };
}"""


@pytest.mark.parametrize("part", [12, pytest.param(1, marks=pytest.mark.slow)])
def test_a_hundred_payloads_in_every_text_field_run_nothing(part: int, watched: Watched, tmp_path: Path) -> None:
    """All of them in the slow test, every twelfth here."""
    assert len(set(PAYLOADS)) == 100
    payloads = PAYLOADS[99 % part :: part]  # with the last one, which is looked for below
    count = len(payloads)
    folder = write_log(tmp_path / "<img src=x onerror=window.__pwned=1>", [poisoned(text) for text in payloads])
    (folder / "config.toml").write_text("\n".join(payloads))
    found = {"games": 1, "ci95": [0, 1]}
    results = [{"env": text, "policy": text, "opponent": text, "win": text} | found for text in payloads]
    ratings = {text: {"elo": text, "score": 0.5} | found for text in payloads}
    (folder / "results.json").write_text(json.dumps({"results": results, "ratings": ratings}))
    watched.page.set_viewport_size({"width": 840, "height": 120})  # little to paint
    page = watched.open(write_page([folder])[0].as_uri())
    assert page.locator("#main td").count() > 9 * count and page.evaluate("window.__pwned ?? null") is None
    found = page.evaluate(VISIT_ALL)
    page.set_viewport_size({"width": 840, "height": 600})
    assert found["tokens"] == count * 2
    assert found["pwned"] is None and found["handlers"] == []
    assert "⟨U+2028⟩" in page.inner_text("#turn-0-0 .message") and "⟨U+0000⟩" in page.inner_text("#turn-0-0 .tokens")
    assert found["odd"] == ["META"] * 4 + ["SCRIPT"] * 2 + ["STYLE"]
    page.fill("#text", "window.__pwned")
    page.click("#lost")  # before the search begins, which must not come after it then
    page.evaluate("document.querySelector('#list').scrollTop = 1e6")
    page.wait_for_selector(f"[aria-posinset='{count}']")
    assert page.input_value("#text") == ""
    page.go_back()
    assert page.evaluate("window.__pwned ?? null") is None
