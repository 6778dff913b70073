"""A headless Chromium for the tests of the page, watched: nothing may be loaded, logged, asked or thrown."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from legos_train.observe.viewer import LogLine, write_page
from legos_train.observe.viewer.compact import compact
from tests.view.made import some_lines, write_log

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The system's Chromium, driven by Playwright's wheel; one per file, for its event loop blocks `asyncio.run`.

    Without one the tests are skipped, but fail where LEGOS_BROWSER_TESTS=required.
    """
    missing = pytest.fail if os.environ.get("LEGOS_BROWSER_TESTS") == "required" else pytest.skip
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        missing("the page's browser tests need playwright: uv sync, or pip install playwright (no browser download)")
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        missing("the page's browser tests need Chromium: apt-get install chromium, or its path in CHROMIUM")
    flags = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []  # it refuses root otherwise
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=flags)
        yield running
        running.close()


class Watched:
    """A page and what happened on it that must not: console lines, errors, dialogs, requests besides the page's own."""

    def __init__(self, browser: Any):
        self.page = browser.new_page()
        self.page.set_default_timeout(10_000)
        self.incidents: list[str] = []
        self.page.on("console", lambda message: self.incidents.append(f"console: {message.text}"))
        self.page.on("pageerror", lambda error: self.incidents.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: (self.incidents.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("popup", lambda popup: self.incidents.append(f"popup: {popup.url}"))
        self.page.on("request", self._request)
        self.home = ""

    def _request(self, request: Any) -> None:
        if not request.url.startswith((self.home, "about:blank")):
            self.incidents.append(f"request: {request.url}")

    def open(self, url: str) -> Any:
        self.home = url.partition("#")[0]
        self.page.goto(url)
        self.page.wait_for_selector("html[data-ready]")
        return self.page

    def leave(self) -> None:
        self.page.goto("about:blank")
        self.home = "about:blank"


@pytest.fixture(scope="module")
def tab(browser: Any) -> Watched:
    return Watched(browser)


@pytest.fixture
def watched(tab: Watched) -> Iterator[Watched]:
    """The module's page, empty, in a small window (less to paint); whatever happened must have been nothing."""
    tab.incidents.clear()
    tab.page.set_viewport_size({"width": 1000, "height": 500})
    yield tab
    tab.leave()
    assert tab.incidents == []


@pytest.fixture(scope="module")
def lines() -> list[dict[str, Any]]:
    return some_lines(60)


@pytest.fixture(scope="module")
def rows(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [compact(LogLine(n, line))[0] for n, line in enumerate(lines, 1)]


@pytest.fixture(scope="module")
def url(lines: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = write_log(tmp_path_factory.mktemp("view") / "kuhn", lines)
    (folder / "config.toml").write_text("steps = 50\n")
    (folder / "metrics.jsonl").write_text('{"step": 10, "loss": 0.125}\n')
    return write_page([folder])[0].as_uri()
