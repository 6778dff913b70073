"""Writes a page for every algorithm, from its docstring, its settings and a worked example; and an index of them.

python docs/make_algorithm_pages.py    # the pages, into docs/_generated/algorithms; conf.py does it too
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from algorithm_examples import credit_example, curriculum_example, filter_example, league_example
from loss_examples import (
    entropy_example,
    kl_example,
    legality_example,
    loss_example,
    mask_example,
    truncation_example,
)
from page_parts import HEADS, code, docstring, link, sentence, settings, settings_table, table, toctree, write_pages

from legos_train import TrainConfig
from legos_train.arena.curriculum import SAMPLERS
from legos_train.config import sections
from legos_train.credit import METHODS, CreditSettings, PerEnv, PerLearner, PerRole
from legos_train.credit.methods import options_of
from legos_train.league import MODES, LeagueSettings
from legos_train.loss import LOSSES, LossSettings, penalties
from legos_train.loss.corrections import inside, truncated_weights
from legos_train.rollout import filters
from legos_train.settings import Section

FOLDER = Path(__file__).parent / "_generated/algorithms"
LEAGUE_COMMON = ("opponents", "latest", "snapshot_every", "pool", "start_from", "pool_from")


class Algorithm(NamedTuple):
    """One page."""

    name: str
    kind: str
    about: tuple[Any, ...]
    """Classes or functions whose docstrings tell of it; the first begins the page."""
    section: type[Section]
    fields: tuple[str, ...]
    prefix: str
    """Where the fields stand in the settings, such as `credit`."""
    command: str
    language: str = "bash"
    example: Callable[[], str] = str
    note: str = ""

    @property
    def title(self) -> str:
        return TITLES.get(self.name, self.name)

    @property
    def file(self) -> str:
        """The name of its page, with its kind where two tables have the name: `mirror` is a loss and a league mode."""
        twice = sum(self.name in table for table in (METHODS, LOSSES, MODES, SAMPLERS)) > 1
        return f"{self.name}_{self.kind}" if twice else self.name


TITLES = {
    "per_env": "A credit method per environment",
    "per_learner": "A credit method per learner",
    "per_role": "A credit method per role",
    "truncate_ratio": "Truncated importance sampling",
    "mask_ratio": "Sequence mask",
    "kl": "KL penalty and moving magnet",
    "entropy": "Entropy bonus",
    "legality": "A price for illegal answers",
    "keep": "Training on winners",
}
KINDS = {
    "credit": (
        "Credit",
        "From rewards to one advantage per turn. [A comparison](../../credit.md).",
    ),
    "loss": ("Losses", "What an advantage does to the probability of a token."),
    "correction": ("Corrections and penalties", "What is added to a loss."),
    "league": ("Opponents", "Who sits in the other seats. [The league](../../league.md)."),
    "curriculum": ("Task samplers", "What an episode is about. [Curriculum](../../curriculum.md)."),
    "filter": ("Filters", "What of the episodes is trained on. [Training](../../training.md)."),
}


def write(folder: Path = FOLDER) -> list[str]:
    """Writes `index.md` and `NAME.md` for each algorithm into a folder; returns their names."""
    every = list(algorithms())
    write_pages(folder, {**{one.file: page(one) for one in every}, "index": index(every)})
    return [one.file for one in every]


def algorithms() -> Iterator[Algorithm]:
    """All of them, by kind."""
    for name, method in METHODS.items():
        fields = tuple(options_of(name))
        tree = name == "hierarchical_grpo"
        note = (GROUPED if tree or getattr(method, "groups", False) else "") + (ALONE if tree else "")
        yield Algorithm(
            name, "credit", (method,), CreditSettings, fields, "credit", f"legos train --credit.name {name}",
            example=partial(credit_example, name), note=f"{note}\n\nIn Python: `{signature(name)}`.".strip(),
        )  # fmt: skip
    toml = '[[env]]\nid = "KuhnPoker-v0"\n\n[[env]]\nid = "GSM8K-v0"\ncredit = "grpo"'
    yield Algorithm(
        "per_env", "credit", (PerEnv,), sections.EnvEntry, ("id", "credit"), "env", toml, "toml",
        partial(credit_example, "per_env"),
    )  # fmt: skip
    toml = (
        '[[learner]]\nname = "first"\nroles = ["player_0"]\ncredit = {name = "grpo"}\n\n'
        '[[learner]]\nname = "second"\nroles = ["player_1"]'
    )
    yield Algorithm(
        "per_learner", "credit", (PerLearner,), sections.LearnerEntry, ("name", "roles", "credit"), "learner", toml,
        "toml", partial(credit_example, "per_learner"),
    )  # fmt: skip
    toml = '[credit]\nname = "hierarchical_grpo"\nroot_peers = "batch"\n\n[credit.roles]\nproposer = "rae"'
    yield Algorithm(
        "per_role", "credit", (PerRole,), CreditSettings, ("name", "roles"), "credit", toml, "toml",
        partial(credit_example, "per_role"),
    )  # fmt: skip
    for name, row in LOSSES.items():
        more = {"gspo": " --loss.clip-low 3e-4 --loss.clip-high 4e-4", "sft": " --filter.keep winners --loss.kl 0"}
        yield Algorithm(
            name, "loss", (row.function,), LossSettings, (*row.options, "aggregation", "constant", *LEFT_OUT), "loss",
            f"legos train --loss.name {name}{more.get(name, '')}", example=partial(loss_example, name),
        )  # fmt: skip
    yield from corrections()
    for name, mode in MODES.items():
        opponents = " --league.opponents random optimal" if mode.needs_opponents else ""
        common = LEAGUE_COMMON if mode.keeps_snapshots else ("opponents",) if mode.needs_opponents else ()
        yield Algorithm(
            name, "league", (mode.function,), LeagueSettings, (*mode.options, *common), "league",
            f"legos train --league.mode {name}{opponents}", example=partial(league_example, name),
        )  # fmt: skip
    for name, maker in SAMPLERS.items():
        fields = ("share", "low", "high", "max_age", "capacity")
        env, about = sections.SAMPLER_ROWS[name].env, getattr(maker, "__self__", maker)
        yield Algorithm(
            name, "curriculum", (about,), sections.CurriculumSettings, fields, "curriculum",
            f"legos train --env {env} --curriculum.sampler {name}", example=curriculum_example,
        )  # fmt: skip
    yield Algorithm(
        "keep", "filter", (filters.keep_best,), sections.FilterSettings, tuple(sections.FilterSettings.model_fields),
        "filter",
        "legos train --filter.keep winners --loss.name sft", example=filter_example,
    )  # fmt: skip


LEFT_OUT = ("mask_truncated", "skip_forced")
GROUPED = (
    "It compares the episodes of a group: `--group-size` of them are played from each seed (8 unless it is given), and"
    "\n`--batch-size` must be a multiple of it."
)
ALONE = ' With `peers = "role"` or `root_peers = "batch"` no group is needed, and its size is 1 unless it is given.'


def corrections() -> Iterator[Algorithm]:
    """What is added to a loss."""
    yield Algorithm(
        "truncate_ratio", "correction", (truncated_weights,), LossSettings, ("truncate_ratio",), "loss",
        "legos train --asynchronous.enabled --loss.truncate-ratio 2", example=truncation_example,
    )  # fmt: skip
    yield Algorithm(
        "mask_ratio", "correction", (inside,), LossSettings, ("mask_ratio",), "loss",
        "legos train --asynchronous.enabled --loss.mask-ratio 0.5 2", example=mask_example,
    )  # fmt: skip
    yield Algorithm(
        "kl", "correction", (penalties.kl_exact, penalties.kl_k3), LossSettings,
        ("kl", "kl_end", "kl_schedule", "kl_estimator", "magnet_every", "magnet", "magnet_base"), "loss",
        "legos train --loss.kl 0.2 --loss.kl-end 0.05\n"
        "legos train --loss.kl-end none --loss.magnet-every 10 --loss.magnet average", example=kl_example,
    )  # fmt: skip
    yield Algorithm(
        "entropy", "correction", (penalties.entropy, penalties.entropy_within, penalties.entropy_top), LossSettings,
        ("entropy", "entropy_over", "entropy_top"), "loss",
        "legos train --loss.entropy 0.01 --loss.entropy-over legal", example=entropy_example,
    )  # fmt: skip
    yield Algorithm(
        "legality", "correction", (penalties.legality,), LossSettings, ("legality",), "loss",
        "legos train --env TicTacToe-v0 --loss.legality 0.5", example=legality_example,
    )  # fmt: skip


def signature(name: str) -> str:
    """How a credit method is made in Python, with its own defaults."""
    options = ", ".join(f"{option}={row.default!r}" for option, row in options_of(name).items())
    return f"legos_train.credit.{METHODS[name].__name__}({options})"


def page(one: Algorithm) -> str:
    """The page of an algorithm as Markdown."""
    texts = [docstring(thing) for thing in one.about]
    text, heads = texts[0]
    if missing := [head for head in HEADS if head not in heads]:
        raise ValueError(
            f"the docstring of {one.about[0].__name__} has no paragraph that begins with {missing[0]!r} and :"
        )
    parts = [f"# {one.title}", text, *(more for more, _ in texts[1:])]
    parts += ["## When to choose it", heads["When"], f"**When not:** {heads['When not']}"]
    parts += ["## How to turn it on", code(one.language, one.command), one.note]
    if one.fields:
        named = [row._replace(name=key(one, row.name)) for row in settings(one.section, one.fields)]
        parts += ["## Settings", settings_table(named)]
    made = one.example()
    parts += ["## An example", "Computed by the code when this page was made.", made] if made else []
    sources = [more["Source"] for _, more in texts if "Source" in more]
    parts += ["## Source", " ".join(sources)]
    return "\n\n".join(part for part in parts if part)


def key(one: Algorithm, field: str) -> str:
    """How a setting is written: as a flag, or as a key where it stands in TOML only."""
    return field if one.prefix == "env" else f"--{one.prefix}.{field.replace('_', '-')}"


def index(every: Iterable[Algorithm]) -> str:
    """A table of the algorithms of each kind."""
    every = list(every)
    parts = ["# Every algorithm", INTRODUCTION]
    for kind, (title, text) in KINDS.items():
        rows = [
            [f"[{one.title if one.name in TITLES else f'`{one.name}`'}]({one.file}.md)", summary(one)]
            for one in every
            if one.kind == kind
        ]
        parts += [f"## {title}", text, table(["name", "what"], rows)]
    return "\n\n".join([*parts, toctree(one.file for one in every)])


def summary(one: Algorithm) -> str:
    return link(sentence(docstring(one.about[0])[0]))


INTRODUCTION = (
    f"The defaults of `legos train` are `{TrainConfig().credit.name}`, `{TrainConfig().loss.name}`, a KL penalty, and\n"
    f"`{TrainConfig().league.mode}` play. Each page has the equation with its source, the settings, and an example."
)


if __name__ == "__main__":
    write()
