"""Writes the tables in the guides, between their marks: of methods, from their pages, and of the names of policies.

python docs/make_guide_tables.py
"""

from __future__ import annotations

from pathlib import Path

from make_algorithm_pages import TITLES, Algorithm, algorithms, summary
from page_parts import docstring, put, table

from legos_train import TrainConfig
from legos_train.rollout.players.policy_kinds import POLICY_KINDS

DOCS = Path(__file__).parent
METHODS = {"credit": "credit.md", "loss": "training.md", "league": "league.md", "curriculum": "curriculum.md"}
GUIDES = {**METHODS, "policies": "evaluation.md"}
"""The guide that has the table of each kind of algorithm, and that of the names of policies."""
END = "<!-- end of table -->"


def begin(kind: str) -> str:
    """The mark above the table of a kind."""
    return f"<!-- table of {kind}: written by `python docs/make_guide_tables.py`; a test compares it with the code -->"


def tables() -> dict[str, str]:
    """The table of each kind, as Markdown for a guide."""
    every = list(algorithms())
    head = ["name", "what", "source"]
    found = {kind: table(head, [row(one) for one in every if one.kind == kind]) for kind in METHODS}
    names = [[", ".join(f"`{word}`" for word in kind.typed), kind.plays] for kind in POLICY_KINDS]
    return {**found, "policies": table(["policy", "who plays"], names)}


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
