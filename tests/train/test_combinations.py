"""Every combination of settings that the types allow trains a step, or is refused with a reason.

Not all combinations are tried but all pairs of choices: most faults are of two settings that do not fit.
"""

from __future__ import annotations

import re
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest

from legos_train import ConfigError, Trainer, train
from legos_train.config import merged
from legos_train.credit import METHODS
from legos_train.league import MODES
from legos_train.loss import LOSSES
from legos_train.run import build
from tests.train.helpers import small

KUHN, SOLO = {"id": "KuhnPoker-v0"}, {"id": "GSM8K-v0", "args": {"level": 1}}
CHAT = {"id": "KuhnPoker-v0", "name": "chat", "args": {"memory": "chat", "num_rounds": 2}}
TREE = {"id": "ProposerSolver-v0", "name": "tree", "args": {"num_solvers": 2}}
THREE = {"id": "LiarsDice-v0", "name": "three", "args": {"num_players": 3, "dice": 1, "faces": 2}}
CHOICES: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "env": [
        ("kuhn", {"env": [KUHN]}),
        ("chat", {"env": [CHAT]}),
        ("alone", {"env": [SOLO]}),
        ("two envs", {"env": [KUHN, SOLO]}),
        ("three seats", {"env": [THREE, KUHN]}),
        ("tree", {"env": [TREE]}),
    ],
    "credit": [(name, {"credit": {"name": name}}) for name in METHODS],
    "loss": [(name, {"loss": {"name": name}}) for name, row in LOSSES.items() if not row.all_actions],
    "league": [
        (mode, {"league": {"mode": mode, "payoff_games": 2, "opponents": ["random"] if mode == "fixed" else []}})
        for mode in MODES
    ],
    "mode": [("sync", {}), ("async", {"asynchronous": {"enabled": True, "backend": "thread"}})],
    "reuse": [("once", {}), ("twice", {"replay": {"reuse": 2}})],
    "average": [(kind, {"average": {"kind": kind}}) for kind in ("ema", "uniform", "polynomial", "none")],
    "keep": [(keep, {"filter": {"keep": keep}}) for keep in ("all", "winners", "success", "positive")],
    "kl": [("kl", {}), ("magnet", {"loss": {"magnet_every": 1}}), ("entropy", {"loss": {"entropy": 0.01}})],
}
REFUSALS = (
    r"league\.mode = '\w+' needs two trained seats in GSM8K-v0",
    r"league\.mode = 'psro' fills a payoff matrix of two sides; three has 3",
    r"filter\.keep = 'winners' compares the seats of an episode",
)
"""All reasons there are; another one is a combination that somebody has to think about."""


def all_pairs(sizes: list[int]) -> list[list[int]]:
    """Rows of choices in which every pair of choices of two columns occurs; greedy, the same each time."""
    left = {
        (a, i, b, j)
        for a, b in combinations(range(len(sizes)), 2)
        for i, j in product(range(sizes[a]), range(sizes[b]))
    }
    rows = []
    while left:
        a, i, b, j = min(left)
        row: dict[int, int] = {a: i, b: j}
        for column in range(len(sizes)):
            if column not in row:
                gains = [
                    sum((*min((c, k), (column, x)), *max((c, k), (column, x))) in left for c, k in row.items())
                    for x in range(sizes[column])
                ]
                row[column] = gains.index(max(gains))
        rows.append([row[column] for column in range(len(sizes))])
        left -= {(c, row[c], d, row[d]) for c, d in combinations(range(len(sizes)), 2)}
    return rows


ROWS = all_pairs([len(choices) for choices in CHOICES.values()])


def parameters() -> list[Any]:
    found = []
    for row in ROWS:
        chosen = [choices[index] for choices, index in zip(CHOICES.values(), row, strict=True)]
        name = ", ".join(name for name, _ in chosen)
        found.append(pytest.param([settings for _, settings in chosen], id=name))
    return found


@pytest.mark.quick(1)
@pytest.mark.parametrize("chosen", parameters())
def test_a_combination_trains_or_is_refused(chosen: list[dict[str, Any]], tmp_path: Path) -> None:
    settings: dict[str, Any] = {"steps": 2, "batch_size": 8, "eval": {"every": 0, "games": 2}, "max_batch_tokens": 4096}
    for choice in chosen:
        settings = merged(settings, choice)
    config = small(tmp_path / "run", **settings)
    try:
        if config.asynchronous.enabled:
            assert train(config, quiet=True).steps == 2
            return
        trainer = Trainer(build(config))
    except ConfigError as refused:
        assert any(re.search(reason, str(refused)) for reason in REFUSALS), refused
        return
    try:
        records = [trainer.step() for _ in range(2)]
        assert all((record["episodes"] or record["replayed"]) == 8 for record in records)
    finally:
        trainer.parts.close()


def test_every_pair_of_choices_is_there_and_most_rows_are_not_refused() -> None:
    sizes = [len(choices) for choices in CHOICES.values()]
    for a, b in combinations(range(len(sizes)), 2):
        assert {(row[a], row[b]) for row in ROWS} == set(product(range(sizes[a]), range(sizes[b])))
    assert len(ROWS) < 120, "a cheap test of many thousand combinations"
