"""Makes the pictures of `look.md` and `viewer.md` from a real run: python docs/make_screenshots.py [FOLDER]

Trains for about a minute (Kuhn poker, the bundled model), evaluates that model (tic-tac-toe), then photographs the
dashboard as it stood at step 75, a game of `legos play`, and report, viewer and the list of a folder in Chromium (on
PATH; driven by the `playwright` wheel). Pictures go to docs/images; run and evaluation stay in FOLDER (a temporary
directory), and what is there already is photographed again, without the dashboard. Fails when a picture is larger than
150 KB.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import CONSOLE_SVG_FORMAT, Console
from rich.text import Text

import legos_envs
from legos_envs.policies import make_policy
from legos_train import train
from legos_train.cli.main import main as main_of
from legos_train.cli.play_table import PlaySession
from legos_train.config import from_dict
from legos_train.observe import Progress
from legos_train.observe.browser import write_folder_page
from legos_train.observe.viewer import write_page

IMAGES = Path(__file__).parent / "images"
LIMIT = 150_000
SHOWN = 75
"""The step whose dashboard is shown: some time is left."""
SETTINGS = {
    "steps": 100,
    "batch_size": 192,
    "eval": {"every": 5},
    "checkpoint": {"every": 0},
    "logs": {"rollouts": 12},
    "league": {"mode": "pfsp", "snapshot_every": 20, "latest": 0.5},
}
# Without the web font that rich names: a page of ours loads nothing from elsewhere.
SVG = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
TYPED = ("?", "5", "2", "undo", "3", "look", "4", "frog", "8", "9", "7", "2", "1")


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(temporary) / "runs")
        run = folder / "kuhn"
        if not (run / "result.json").exists():
            dashboard(run)
        game()
        games = folder / "tictactoe"
        if not (games / "results.json").exists():
            words = ["-m", "tiny", "--opponent", "random", "--opponent", "optimal", "-n", "60"]
            main_of(["eval", "TicTacToe-v0", *words, "--out", str(games)])
        pages(run, games)
    for picture in sorted(IMAGES.iterdir()):
        size = picture.stat().st_size
        print(f"{picture.relative_to(IMAGES.parent.parent)}: {size / 1000:.0f} kB")
        if size > LIMIT:
            sys.exit(f"{picture.name} is larger than {LIMIT / 1000:.0f} kB")


def dashboard(run: Path) -> None:
    """Trains, and keeps the dashboard of one step."""
    config = from_dict({**SETTINGS, "run_dir": run})
    console = Console(width=80, file=io.StringIO(), force_terminal=True, record=True)
    progress = Progress(f"{config.title} with {config.model}, seed {config.seed}", config.steps, console=console)
    last: dict[str, Any] = {}

    def show(record: dict[str, Any]) -> None:
        if record["step"] == 1:
            progress.before(json.loads((run / "start.json").read_text()))
        progress.update(record)
        if record["step"] == SHOWN:
            last.update(panel=progress.panel(record))

    train(config=config, quiet=True, on_step=show)
    console.print(last["panel"])
    _save(console, "terminal.svg", "legos train")


def game() -> None:
    """A game of tic-tac-toe with a typo, as it looks in `legos play`."""
    console = Console(width=80, file=io.StringIO(), force_terminal=True, record=True)
    typed = iter(TYPED)

    def read(prompt: str) -> str:
        said = next(typed)
        console.print(Text.assemble((prompt, "bold cyan"), (said, "bold")))
        return said

    env = legos_envs.make("TicTacToe-v0")
    env.reset(seed=0)
    players: dict[str, Any] = {"player_0": None, "player_1": make_policy("random", env)}
    table = PlaySession(env, players, 3, read, lambda text: console.print(Text(text)))
    episode = asyncio.run(table.play())
    for agent, total in episode.returns.items():
        console.print(Text(f"{agent}: {total:+g}"))
    _save(console, "play.svg", "legos play TicTacToe-v0")


def pages(run: Path, games: Path) -> None:
    """Report, viewer and the list of a folder in a browser, light and dark, the report also as wide as a phone."""
    from playwright.sync_api import Page, sync_playwright

    viewer, evaluation = (write_page([folder])[0] for folder in (run, games))
    with contextlib.chdir(run.parents[1]):  # the page says where it looks
        folder = write_folder_page(Path(run.parent.name)).resolve()

    def worst_of_the_lost(page: Page) -> None:
        page.keyboard.press("l")
        page.get_by_text("↘").first.click()
        page.wait_for_timeout(500)

    def health(page: Page) -> None:
        page.evaluate("[...document.querySelectorAll('h2')].find(h => h.innerText == 'Health').scrollIntoView()")

    def chosen(page: Page) -> None:
        for box in page.locator("#lines tbody input").all()[:2]:
            box.check()

    def nothing(page: Page) -> None:
        """As it opens."""

    shots: tuple[tuple[str, Path, str, tuple[int, int], Callable[[Page], None]], ...] = (
        ("report", run / "report.html", "light", (1120, 860), nothing),
        ("report_phone", run / "report.html", "light", (400, 700), nothing),
        ("browse", folder, "light", (1120, 620), chosen),
        ("browse_phone", folder, "dark", (400, 700), nothing),
        ("report_dark", run / "report.html", "dark", (1120, 560), health),
        ("viewer", viewer, "light", (1000, 600), worst_of_the_lost),
        ("evaluation", evaluation, "light", (1000, 460), nothing),
        ("board", evaluation, "dark", (1000, 700), worst_of_the_lost),
    )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, file, scheme, (width, height), prepare in shots:
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
            page.goto(file.resolve().as_uri())
            prepare(page)
            page.screenshot(path=IMAGES / f"{name}.png")
            page.close()
        browser.close()


def _save(console: Console, name: str, title: str) -> None:
    text = console.export_svg(title=title, code_format=SVG, unique_id=name.partition(".")[0])
    (IMAGES / name).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
