"""The page in a real browser by keyboard, by screen reader, on a phone."""

from __future__ import annotations

from typing import Any

import pytest

from legos_train.observe.viewer import LogLine
from legos_train.observe.viewer.compact import compact
from tests.view.conftest import Watched
from tests.view.pages import episode, listed, until


def test_the_keyboard_goes_everywhere(watched: Watched, url: str, lines: list[dict[str, Any]]) -> None:
    page = watched.open(url)

    def here() -> str:
        return str(page.evaluate("location.hash"))

    page.keyboard.press("j")
    assert here() == "#e=0.60"
    page.keyboard.press("j")
    assert here() == "#e=0.59"
    page.keyboard.press("k")
    assert here() == "#e=0.60"
    for _ in range(2):
        page.keyboard.press("n")
    (seat, turn) = compact(LogLine(60, lines[59]))[1]["order"][1]
    assert here() == f"#e=0.60&t={seat}.{turn}"
    page.keyboard.press("p")
    assert here() == "#e=0.60&t=0.0"
    page.keyboard.press("w")
    assert page.locator(".turn.here").count() == 1
    page.keyboard.press("c")
    assert page.evaluate("document.body.dataset.colour") == "advantage"
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible() and "next episode" in page.inner_text("#keys")
    page.keyboard.press("Escape")
    assert not page.locator("#keys").is_visible()
    page.keyboard.press("l")
    assert page.evaluate("document.activeElement.className") == "open"
    before = page.evaluate("document.activeElement.textContent")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.textContent") != before
    page.keyboard.press("Enter")
    page.wait_for_selector(".turn")
    page.keyboard.press("/")
    page.keyboard.type("jkw")
    assert page.input_value("#text") == "jkw"
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    until(page, "location.hash === ''")
    assert page.inner_text("#main h2") == "Choose an episode"


@pytest.mark.slow
def test_every_button_and_fold_does_its_work(watched: Watched, url: str, rows: list[dict[str, Any]]) -> None:
    n = episode(rows, "Debate-v0")
    page = watched.open(f"{url}#e=0.{n}")
    page.click("[aria-label='Next episode']")
    page.wait_for_selector(f"h2:has-text('#{n - 1} ')")
    page.click("[aria-label='Episode before']")
    page.wait_for_selector(f"h2:has-text('#{n} ')")
    first = page.locator("#turn-0-0")
    for what in (".saw", ".legal"):
        if first.locator(what).count():
            was = first.locator(what).evaluate("node => node.open")
            first.locator(f"{what} > summary").click()
            assert first.locator(what).evaluate("node => node.open") != was
    later = page.locator(".before > summary").first
    assert later.inner_text().endswith(("message as before", "messages as before"))
    later.click()
    page.wait_for_selector(".before .message")
    page.click("text=Fold / unfold")
    assert not first.is_visible()
    page.click("text=Fold / unfold")
    assert first.is_visible()
    first.locator(".tok, .tokens").first.click()
    for name in ("light", "dark", "system"):
        page.click("#theme")
        assert page.inner_text("#theme") == f"Theme: {name}"
    page.click("#help")
    assert page.locator("#keys").is_visible()
    page.click("#keys-close")
    assert not page.locator("#keys").is_visible()
    for summary in page.locator(".facts > summary").all():
        summary.click()
    assert page.locator(".facts[open]").count() == page.locator(".facts").count() > 1
    page.go_back()
    page.wait_for_selector(f"h2:has-text('#{n - 1} ')")


NAMED = "button, select, input, summary, [tabindex='0'], [role=search], nav, main"
NAMELESS = f"""() => [...document.querySelectorAll("{NAMED}")]
    .filter((node) => !node.closest("[hidden]") && !(node.getAttribute("aria-label") || node.labels?.[0]?.textContent ||
      node.textContent || node.getAttribute("aria-labelledby"))).map((node) => node.outerHTML.slice(0, 120))"""
PALE = """() => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map((v) => v / (colour.startsWith("color(") ? 1 : 255))
      .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = getComputedStyle(node).backgroundColor;
      if (!/, 0\\)$|\\/ 0/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const found = new Set();
  const written = "h1, h2, p, b, span:not(.tok), td, th, button:enabled, summary, pre, label";
  for (const node of document.querySelectorAll(written)) {
    if (!node.textContent.trim() || !node.getClientRects().length || node.closest(".steps")) continue;
    const [a, b] = [light(getComputedStyle(node).color), light(behind(node))].sort((x, y) => y - x);
    const told = `${node.tagName}.${node.className} ${getComputedStyle(node).color} on ${behind(node)}`;
    if ((a + 0.05) / (b + 0.05) < 4.5) found.add(told);
  }
  return [...found];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_names_and_contrast(watched: Watched, url: str, rows: list[dict[str, Any]], scheme: str) -> None:
    watched.page.emulate_media(color_scheme=scheme)
    page = watched.open(f"{url}#e=0.{episode(rows, 'Debate-v0')}")
    page.wait_for_selector(".turn")
    for place, there in (
        (page.url, ".turn"),
        (f"{url}#e=0.{episode(rows, 'TicTacToe-v0')}", ".board"),
        (f"{url}#", "h3"),
    ):
        page.goto(place)
        page.wait_for_selector(f"#main {there}")
        assert page.evaluate(NAMELESS) == []
        assert page.evaluate(PALE) == []
    red = int(page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]"))
    assert (red > 200) == (scheme == "light")


def test_on_a_phone_list_and_overview_take_turns(watched: Watched, url: str, rows: list[dict[str, Any]]) -> None:
    watched.page.set_viewport_size({"width": 400, "height": 800})
    page = watched.open(url)
    main, side = page.locator("#main"), page.locator("#side")
    assert side.is_visible() and not main.is_visible()
    page.click("#overview")
    assert main.is_visible() and not side.is_visible() and "Sample episodes" in main.inner_text()
    page.locator("#main .seats button").first.click()  # the games that a number counts
    assert side.is_visible() and not main.is_visible() and len(listed(page)) > 0
    page.evaluate(f"location.hash = '#e=0.{rows[0]['n']}'")
    page.wait_for_selector(f"h2:has-text('#{rows[0]['n']} ')")
    page.click("#overview")
    assert "Choose an episode" in main.inner_text() and page.get_attribute("#overview", "aria-pressed") == "true"
    page.click("#overview")
    assert side.is_visible() and not main.is_visible()


def test_narrow_screens(watched: Watched, url: str, rows: list[dict[str, Any]]) -> None:
    watched.page.set_viewport_size({"width": 360, "height": 640})
    page = watched.open(url)
    assert page.locator("#side").is_visible() and not page.locator("#main").is_visible()
    page.click(".row .open")
    page.wait_for_selector(".turn")
    assert not page.locator("#side").is_visible()
    for env in ("Tournament-v0", "TicTacToe-v0"):
        page.goto(f"{url}#e=0.{episode(rows, env)}")
        page.wait_for_selector(".turn")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.evaluate("document.querySelector('.panes').scrollWidth") <= 360
    above, below = page.locator("#turn-0-0").bounding_box(), page.locator("#turn-1-0").bounding_box()
    assert above["x"] == below["x"] and above["y"] + above["height"] <= below["y"]
    page.click(".back")
    assert page.locator("#side").is_visible()
