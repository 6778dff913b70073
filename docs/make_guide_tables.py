"""Writes the tables of methods in the guides, between their marks, from the pages of algorithms.

python docs/make_guide_tables.py
"""

from __future__ import annotations

from pathlib import Path

from make_algorithm_pages import TITLES, Algorithm, algorithms, summary
from page_parts import docstring, put, table

from legos_train import TrainConfig

DOCS = Path(__file__).parent
GUIDES = {"credit": "credit.md", "loss": "training.md", "league": "league.md", "curriculum": "curriculum.md"}
"""The guide that has the table of each kind of algorithm."""
END = "<!-- end of table -->"


def begin(kind: str) -> str:
    """The mark above the table of a kind."""
    return f"<!-- table of {kind}: written by `python docs/make_guide_tables.py`; a test compares it with the code -->"


def tables() -> dict[str, str]:
    """The table of each kind, as Markdown for a guide."""
    every = list(algorithms())
    return {kind: table(["name", "what", "source"], [row(one) for one in every if one.kind == kind]) for kind in GUIDES}


def row(one: Algorithm) -> list[str]:
    """The name with a link, the first sentence, and where it comes from."""
    default = {
        "credit": TrainConfig().credit.name,
        "loss": TrainConfig().loss.name,
        "league": TrainConfig().league.mode,
    }
    name = one.title if one.name in TITLES else f"`{one.name}`"
    told = " (default)" if one.name == default.get(one.kind) else ""
    source = docstring(one.about[0])[1]["Source"].split("; ")[0].removesuffix(".")
    source = "" if source.startswith("None") else source
    return [
        f"[{name}](_generated/algorithms/{one.file}.md){told}",
        *(text.replace("../../", "") for text in (summary(one), source)),
    ]


def written(kind: str) -> str:
    """The table that a guide has now. Raises ValueError when it lacks the marks."""
    _, found, rest = (DOCS / GUIDES[kind]).read_text(encoding="utf-8").partition(begin(kind))
    now, end, _ = rest.partition(END)
    if not found or not end:
        raise ValueError(f"{GUIDES[kind]} lacks the marks of its table, {begin(kind)!r} and {END!r}")
    return now.strip()


def write() -> None:
    """Puts each table into its guide."""
    for kind, text in tables().items():
        written(kind)
        guide = DOCS / GUIDES[kind]
        head, mark, rest = guide.read_text(encoding="utf-8").partition(begin(kind))
        put(guide, f"{head}{mark}\n\n{text}\n\n{rest[rest.index(END) :]}")


if __name__ == "__main__":
    write()
