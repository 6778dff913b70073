"""The page of a folder as a single, shareable file."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from legos_train.disk import fsops
from legos_train.observe.browser.catalog import Catalog
from legos_train.observe.browser.entries import Json
from legos_train.observe.self_contained import BASE_SCRIPT, BASE_STYLE, script_json, self_contained

FOLDER_PAGE = "browse.html"
ASSETS = files("legos_train.observe.browser") / "assets"


def write_folder_page(folder: Path) -> Path:
    """Writes `browse.html` into a folder of runs and evaluations and returns its path.

    Raises:
        OSError: the folder cannot be read or written.
    """
    path = Path(folder) / FOLDER_PAGE
    fsops.write_text(path, folder_page(Catalog(folder).read()))
    return path


def folder_page(found: Json, live: Json | None = None) -> str:
    """The page as HTML text.

    Args:
        found: what `Catalog.read` returns.
        live: on a server, the `generation` of the data and the polling interval `every` in seconds.
    """
    return self_contained(
        ASSETS / "folder.html",
        title=f"{Path(found['folder']).resolve().name} · Legos runs",
        styles=[BASE_STYLE, ASSETS / "folder.css"],
        scripts=[BASE_SCRIPT, ASSETS / "lines.js", ASSETS / "comparison.js", ASSETS / "folder.js"],
        data=[script_json(found | {"live": live})],
        live=live is not None,
    )
