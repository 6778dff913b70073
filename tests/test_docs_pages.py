"""The pages written by hand say what there is: no example and no preset is missing, and their tables are true."""

from __future__ import annotations

import json
import pkgutil
import re
from pathlib import Path
from xml.etree import ElementTree

from benchmarks import learning_page, learning_tasks
from legos_train import TrainConfig
from legos_train.config import from_dict, preset, preset_names
from legos_train.run.parts.monitor import MEASURED, WATCHED

ROOT = Path(__file__).parents[1]
EXAMPLES = (ROOT / "docs/examples.md").read_text()
RESUME = (ROOT / "docs/resume_fsp.md").read_text()


def rows(page: str, first: str) -> dict[str, list[str]]:
    """The rows of the table whose first head is `first`, by their first cell without its backticks."""
    found = re.search(rf"^\| {first} \|.*\n\|[-|]+\n((?:\|.*\n)+)", page, re.MULTILINE)
    assert found, f"there is no table that begins with {first!r}"
    cells = [[cell.strip() for cell in line.strip("| ").split("|")] for line in found[1].splitlines()]
    return {row[0].strip("`"): row[1:] for row in cells}


def test_every_example_is_on_the_page_and_nothing_else() -> None:
    here = ROOT / "examples"
    files = {str(f.relative_to(here)) for kind in ("*.py", "*.ipynb", "*.toml") for f in here.rglob(kind)}
    named = re.findall(r"^\| `([\w/]+\.(?:py|ipynb|toml))` \|", EXAMPLES, re.MULTILINE)
    assert sorted(named) == sorted(f for f in files if ".ipynb_checkpoints" not in f)


def test_every_preset_is_in_the_table_as_it_is() -> None:
    table = rows(EXAMPLES, "preset")
    assert sorted(table) == preset_names()
    for name, (envs, size, method, *_) in table.items():
        config = from_dict(preset(name))
        assert re.findall(r"`([^`]+)`", envs) == [entry.id for entry in config.env], name
        assert size == f"{config.steps} x {config.batch_size} ({config.grouped})", name
        assert method == f"`{config.credit.name}`, `{config.loss.name}`", name


def test_the_league_settings_and_their_defaults_are_true() -> None:
    defaults = TrainConfig().league
    table = rows(RESUME, "setting")
    assert sorted(table) == sorted(f"league.{field}" for field in type(defaults).model_fields)
    for name, (given, _) in table.items():
        value = getattr(defaults, name.removeprefix("league."))
        said = given.strip("`")
        assert said == ("none" if value in (None, ()) else f"{value:g}" if isinstance(value, float) else str(value)), (
            name
        )


def test_the_monitors_limits_and_their_defaults_are_true() -> None:
    table = rows((ROOT / "docs/curriculum.md").read_text(), "limit")
    settings = TrainConfig().monitor
    limits = {name: str(getattr(settings, name)).lower() for name in (*WATCHED, *MEASURED)}
    assert {name: default for name, (default, _) in table.items()} == limits


def test_the_table_of_where_to_change_things_names_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = rows(text, "to change")
    assert len(table) == 22
    for what, (places,) in table.items():
        paths = [name for name in re.findall(r"`([^`]+)`", places) if "/" in name]
        assert paths, what
        for path in paths:
            assert (ROOT / path).exists(), (what, path)


def test_no_line_of_a_page_is_longer_than_130_characters() -> None:
    """Tables and links apart, which cannot be broken."""
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for number, line in enumerate(page.read_text().splitlines(), 1):
            assert len(line) <= 130 or line.startswith("|"), f"{page.name}:{number} has {len(line)} characters"


def test_files_and_names_of_the_code_on_pages_exist() -> None:
    """`benchmarks/x.py`, `legos_envs.wrappers.numeric.Numeric`, `python -m benchmarks.x`."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    text = "\n".join(page.read_text() for page in pages)
    tops = "legos_envs|legos_train|inference|benchmarks|tests|docs|examples"
    files = set(re.findall(rf"`((?:{tops})/[\w./-]+)`", text))
    names = set(re.findall(rf"(?:`|python -m )((?:{tops})(?:\.\w+)+)", text))
    names = {name for name in names if not name.endswith((".py", ".md", ".toml", ".json", ".yml"))}
    assert len(files) > 40 and len(names) > 40
    assert not [name for name in sorted(files) if not (ROOT / name).exists()]
    assert not [name for name in sorted(names) if not _resolves(name)]


def _resolves(name: str) -> bool:
    try:
        found = pkgutil.resolve_name(name)
    except AttributeError:  # a field without a default is not an attribute of its class
        owner, _, field = name.rpartition(".")
        kind = pkgutil.resolve_name(owner)
        return field in getattr(kind, "__annotations__", {}) or field in getattr(kind, "model_fields", {})
    except ImportError:
        return False
    return found is not None


def test_flags_and_settings_named_for_those_who_come_from_elsewhere_exist() -> None:
    """Every `--a.b-c` of the page is a setting, `--a.no-b` a switch; `--resume` and the like are not settings."""
    for flag in sorted(set(re.findall(r"--([a-z]+(?:[.-][a-z]+)+)", RESUME))):
        section: object = TrainConfig()
        for part in flag.split("."):
            switch = part.startswith("no-")
            section = getattr(section, part.removeprefix("no-").replace("-", "_"))
            assert not switch or isinstance(section, bool), flag


def test_the_hand_made_figure_stands_alone() -> None:
    """Well-formed, no outside resource, and no text that vanishes on a dark page: it is on a box or mid-grey."""
    text = (ROOT / "docs/images/concepts.svg").read_text()
    assert not re.search(
        r"https?:|@import|@font-face|<script|<image|href", text.replace("http://www.w3.org/2000/svg", "")
    )
    fills = {node.get("fill") for node in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}text")}
    assert fills == {"#1a1a1a", "#808080"} and "images/concepts.svg" in (ROOT / "docs/concepts.md").read_text()


def test_the_readmes_language_tasks_are_rows_of_what_was_measured() -> None:
    """Its times were once called seconds; docs/learning.md has CPU seconds."""
    measured = {(row["id"], row["seed"]): row for row in json.loads((ROOT / "docs/learning.json").read_text())}
    readme = (ROOT / "README.md").read_text()
    row = r"^\| `([\w-]+)[^|]*\| (-?[\d.]+) \| ([\d.]+) \| \+([\d.]+) to \+([\d.]+) \| (\d+) CPU-s \|$"
    found = re.findall(row, readme, re.MULTILINE)
    assert len(found) == 6
    for name, *numbers in found:
        one = measured[name, 0]
        told = [f"{value:.3f}" for value in (one["before"], one["after"], *one["gain_ci95"])]
        assert [*told, f"{one['cpu_seconds']:.0f}"] == numbers, name


def test_the_learning_table_came_from_the_settings_of_its_command() -> None:
    """Rows keep the flags they were trained with; those of other settings say so, and have no flags."""
    rows = json.loads((ROOT / "docs/learning.json").read_text())
    page = (ROOT / "docs/learning.md").read_text()
    for row in rows:
        task = learning_tasks.TASKS[row["id"]]
        if row["flags"] is not None:
            assert row["flags"] == " ".join(learning_tasks.training(row["id"], task)), (row["id"], row["seed"])
            assert tuple(row["args"]) == task.fixed, (row["id"], row["seed"])
        line = next(
            text for text in page.splitlines() if text.startswith(f"| {row['id']}") and f"| {row['seed']} |" in text
        )
        assert (learning_page.OTHER in line) == (row["flags"] is None), line
        assert row["base"] in (None, learning_tasks.base(task)), (row["id"], row["seed"])
        assert (learning_page.EARLIER in line) == (row["base"] is None), line
    assert learning_page.meaning(rows) in " ".join(page.split())
    assert sum(row["flags"] is not None and row["base"] is not None for row in rows) > len(rows) / 2


def test_a_cell_of_other_settings_loses_its_flags_and_one_of_another_base_its_base(tmp_path: Path) -> None:
    row = {"id": "Dataset-v0", "seed": 0, "flags": "--env Dataset-v0 --steps 1", "base": "of before"}
    tiny = learning_tasks.base(learning_tasks.TASKS["Nim-v0"])
    now = {"id": "Nim-v0", "seed": 0, "flags": " ".join(learning_tasks.TASKS["Nim-v0"].flags), "base": tiny}
    (tmp_path / "learning.json").write_text(json.dumps([row, now]))
    kept = learning_page.cells(tmp_path, tmp_path / "learning.json")
    assert [one["flags"] for one in kept] == [None, "--preset nim"]
    assert [one["base"] for one in kept] == [None, tiny]
    assert learning_page.meaning(kept[1:]) == learning_page.meaning([]) != learning_page.meaning(kept)
    assert all(f"*{mark}*" in learning_page.meaning(kept) for mark in (learning_page.OTHER, learning_page.EARLIER))
