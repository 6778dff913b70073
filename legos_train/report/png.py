"""PNG of the SVG figures, drawn by a Chromium on this machine; nothing is installed or fetched for it."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SECONDS = 60


def find_browser() -> str | None:
    """The path of a Chromium or Chrome on PATH."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def write_pngs(folder: Path, scale: int = 2) -> list[Path]:
    """Draws `folder/*.svg` beside themselves as PNG, `scale` pixels to each unit, on white; returns their paths.

    Raises:
        RuntimeError: no browser is here, or it failed; the message has what it said.
    """
    browser = find_browser()
    if browser is None:
        raise RuntimeError(f"PNG figures need a browser; none of {', '.join(BROWSERS)} is on PATH. The SVG files stand")
    out = []
    for svg in sorted(folder.glob("*.svg")):
        size = re.search(r'width="(\d+)" height="(\d+)"', svg.read_text(encoding="utf-8"))
        if size is None:
            continue
        png = svg.with_suffix(".png")
        with tempfile.TemporaryDirectory() as profile:
            done = subprocess.run(  # noqa: S603 - a program of this machine, a file of ours
                [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                 f"--user-data-dir={profile}", f"--force-device-scale-factor={scale}",
                 f"--window-size={size[1]},{size[2]}", f"--screenshot={png}", svg.resolve().as_uri()],
                capture_output=True, text=True, timeout=SECONDS, check=False,
            )  # fmt: skip
        if done.returncode or not png.exists():
            raise RuntimeError(f"{browser} could not draw {svg.name}: {done.stderr.strip()[-300:]}")
        out.append(png)
    return out
