"""Pictures of pages as a stranger sees them: on a desktop and on a phone, in light and in dark."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NamedTuple

CHROMIUM = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None
)


class Picture(NamedTuple):
    """A window: its name, width and height in pixels, and the colour scheme that the browser asks for."""

    name: str
    width: int
    height: int
    scheme: str


PICTURES = [
    Picture(f"{device}_{scheme}", width, height, scheme)
    for device, width, height in (("desktop", 1280, 900), ("phone", 400, 800))
    for scheme in ("light", "dark")
]


def photograph(url: str, name: str, folder: Path) -> None:
    """Writes FOLDER/NAME_PICTURE.png of a page in every window, whole pages up to 4000 pixels.

    Without Chromium nothing is written. AssertionError for a page that says anything on the console, asks anything of
    another machine, or is wider than its window.
    """
    if CHROMIUM is None:
        return
    from playwright.sync_api import sync_playwright

    home = url.rpartition("/")[0]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for picture in PICTURES:
            size = {"width": picture.width, "height": picture.height}
            page = browser.new_page(viewport=size, color_scheme=picture.scheme)  # type: ignore[arg-type]
            said: list[str] = []
            page.on("console", lambda message, said=said: said.append(message.text))  # type: ignore[misc]
            page.on("pageerror", lambda error, said=said: said.append(str(error)))  # type: ignore[misc]
            page.on(
                "request", lambda one, said=said: None if one.url.startswith((home, "data:")) else said.append(one.url)
            )  # type: ignore[misc]
            page.goto(url)
            page.wait_for_timeout(500)
            wide, tall = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.scrollHeight]")
            clip = {"x": 0, "y": 0, "width": picture.width, "height": min(max(tall, picture.height), 4000)}
            page.screenshot(path=folder / f"{name}_{picture.name}.png", full_page=True, clip=clip)  # type: ignore[arg-type]
            page.close()
            assert not said, (url, picture, said)
            assert wide <= picture.width, f"{url} is {wide} pixels wide in a window of {picture.width}"
        browser.close()
