"""PNG of the SVG figures: drawn by a local Chromium, or else by resvg (the extra `png`, 1.4 MB)."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from legos_envs import arguments
from legos_train.errors import RunError

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SECONDS = 60
SCALE = 2
"""Pixels to each unit of a figure."""
FONTS = '"DejaVu Sans", "Liberation Sans", Arial, Helvetica, "Noto Sans", Roboto, "Segoe UI", sans-serif'
SIZE = re.compile(r'width="(\d+)" height="(\d+)"')


def find_browser() -> str | None:
    """The path of a Chromium or Chrome on PATH."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def write_pngs(folder: Path) -> list[Path]:
    """Renders `folder/*.svg` as PNG in the same folder, two pixels to each unit, on white; returns their paths.

    Raises:
        RunError: no renderer is available, or it failed; the message includes its output.
    """
    browser = find_browser()
    if browser is None and importlib.util.find_spec("resvg_py") is None:
        raise RunError(
            f"PNG figures need Chromium or Chrome on PATH, or the extra `png`: {arguments.install('png')}. "
            f"The SVG files in {folder} are kept"
        )
    out = []
    for svg in sorted(folder.glob("*.svg")):
        text = svg.read_text(encoding="utf-8")
        if (size := SIZE.search(text)) is None:
            continue
        png = svg.with_suffix(".png")
        if browser is not None:
            _photograph(browser, svg, png, (size[1], size[2]))
        else:
            png.write_bytes(_drawn(text))
        out.append(png)
    return out


def _photograph(browser: str, svg: Path, png: Path, size: tuple[str, str]) -> None:
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(  # noqa: S603 - a program of this machine, a file of ours
            [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             f"--user-data-dir={profile}", f"--force-device-scale-factor={SCALE}",
             f"--window-size={size[0]},{size[1]}", f"--screenshot={png}", svg.resolve().as_uri()],
            capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
    if done.returncode or not png.exists():
        raise RunError(f"{browser} could not draw {svg.name}: {done.stderr.strip()[-300:]}")


def _drawn(svg: str) -> bytes:
    """The figure as resvg draws it. Raises RunError if none of `FONTS` is installed: resvg would omit all text."""
    import resvg_py

    def render(text: str, fonts: bool = True) -> bytes:
        png = resvg_py.svg_to_bytes(svg_string=text, zoom=SCALE, background="#ffffff", skip_system_fonts=not fonts)
        return bytes(png)

    text = f"<text y='15' font-family='{FONTS}'>step</text>"
    word = f"<svg xmlns='http://www.w3.org/2000/svg' width='40' height='20'>{text}</svg>"
    if render(word) == render(word, fonts=False):
        raise RunError("resvg finds no font on this machine; install one, such as fonts-dejavu-core")
    return render(plain(svg))


def plain(svg: str) -> str:
    """The figure without what only browsers support: colours by name, dark colours, the short form of `font`."""
    svg = re.sub(r"@media [^{]*\{[^{}]*\{[^{}]*\} *\}", "", svg)
    colours = dict(re.findall(r"--(\w+): ([^;}]+)", svg))
    svg = re.sub(r"--\w+: [^;}]+;", "", svg)
    svg = re.sub(r"var\(--(\w+)\)", lambda match: colours[match[1]].strip(), svg)
    return re.sub(r"font: (\d+px) [^;}]+", rf"font-size: \1; font-family: {FONTS}", svg)
