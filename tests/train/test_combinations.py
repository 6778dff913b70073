"""Every combination of settings that the types allow trains a step, or is refused with a reason.

Not all combinations are tried but all pairs of choices: most faults are of two settings that do not fit.
"""

from __future__ import annotations

import re
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest

import legos_envs
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
SPICE = {"id": "SPICE-v0"}
Choices = dict[str, list[tuple[str, dict[str, Any]]]]
LEAGUES = [
    (mode, {"league": {"mode": mode, "payoff_games": 2, "opponents": ["random"] if mode == "fixed" else []}})
    for mode in MODES
]
AVERAGES = [(kind, {"average": {"kind": kind}}) for kind in ("ema", "uniform", "polynomial", "none")]
LEARNERS: list[tuple[str, dict[str, Any]]] = [("one policy", {}), ("a learner a seat", {"learner": []})]
SAMPLED: Choices = {
    "env": [
        ("kuhn", {"env": [KUHN]}),
        ("chat", {"env": [CHAT]}),
        ("alone", {"env": [SOLO]}),
        ("two envs", {"env": [KUHN, SOLO]}),
        ("three seats", {"env": [THREE, KUHN]}),
        ("tree", {"env": [TREE]}),
        ("items", {"env": [KUHN, SOLO], "curriculum": {"sampler": "learnability"}}),
        ("proposed", {"env": [TREE], "curriculum": {"sampler": "proposed_problems"}}),
        ("corpus", {"env": [SPICE, KUHN], "curriculum": {"sampler": "corpus"}}),
    ],
    "credit": [(name, {"credit": {"name": name}}) for name in METHODS],
    "loss": [(name, {"loss": {"name": name}}) for name, row in LOSSES.items() if not row.all_actions],
    "league": LEAGUES,
    "learners": LEARNERS,
    "mode": [("sync", {}), ("async", {"asynchronous": {"enabled": True, "backend": "thread"}})],
    "reuse": [("once", {}), ("twice", {"replay": {"reuse": 2}})],
    "reply": [(reply, {"reply": reply}) for reply in ("env", "boxed", "boxed_reasoning")],
    "average": AVERAGES,
    "keep": [(keep, {"filter": {"keep": keep}}) for keep in ("all", "winners", "success", "positive")],
    "kl": [("kl", {}), ("magnet", {"loss": {"magnet_every": 1}}), ("entropy", {"loss": {"entropy": 0.01}})],
}
ALL_ACTIONS: Choices = {
    "env": [
        ("kuhn", {"env": [KUHN]}),
        ("chat", {"env": [CHAT]}),
        ("three seats", {"env": [THREE, KUHN]}),
        ("pig", {"env": [{"id": "PigDice-v0", "args": {"goal": 10}}, KUHN]}),
        ("line", {"env": [{"id": "TicTacToe-v0"}, KUHN]}),
    ],
    "loss": [
        (name, {"loss": {"name": name, "aggregation": "constant", "legality": 1.0}})
        for name, row in LOSSES.items()
        if row.all_actions
    ],
    "values": [
        ("tree or branches", {}),
        ("branches", {"branch": {"when": "always"}}),
        ("twice", {"branch": {"when": "always", "points": 2, "rollouts": 2}}),
    ],
    "league": LEAGUES,
    "learners": LEARNERS,
    "reply": [(reply, {"reply": reply}) for reply in ("env", "boxed")],
    "updates": [("one", {}), ("several", {"optim": {"minibatches": 2, "epochs": 2}})],
    "average": AVERAGES,
    "kl": [
        ("kl", {}),
        ("magnet", {"loss": {"magnet_every": 1, "magnet_base": 0.1}}),
        ("entropy", {"loss": {"entropy": 0.01}}),
    ],
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


TABLES = {
    name: (choices, all_pairs([len(column) for column in choices.values()]))
    for name, choices in (("sampled", SAMPLED), ("all actions", ALL_ACTIONS))
}


def parameters() -> list[Any]:
    found = []
    for choices, rows in TABLES.values():
        for row in rows:
            chosen = [column[index] for column, index in zip(choices.values(), row, strict=True)]
            name = ", ".join(name for name, _ in chosen)
            found.append(pytest.param([settings for _, settings in chosen], id=name))
    return found


def a_learner_a_seat(envs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Learners `even` and `odd`: the trained roles of each env go to them by turns."""
    roles: dict[str, list[str]] = {"even": [], "odd": []}
    for entry in envs:
        env = legos_envs.make(entry["id"], **entry.get("args", {})).unwrapped
        trained = dict.fromkeys(seat.role for seat in env.seats.values() if seat.trainable)
        for number, role in enumerate(trained):
            roles[("even", "odd")[number % 2]].append(f"{entry.get('name', entry['id'])}/{role}")
    return [{"name": name, "roles": own} for name, own in roles.items() if own]


@pytest.mark.quick(1)
@pytest.mark.parametrize("chosen", parameters())
def test_a_combination_trains_or_is_refused(chosen: list[dict[str, Any]], tmp_path: Path) -> None:
    settings: dict[str, Any] = {"steps": 2, "batch_size": 8, "eval": {"every": 0, "games": 2}, "max_batch_tokens": 4096}
    for choice in chosen:
        settings = merged(settings, choice)
    if "learner" in settings:
        settings["learner"] = a_learner_a_seat(settings["env"])
    try:
        config = small(tmp_path / "run", **settings)
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


@pytest.mark.parametrize("table", TABLES)
def test_every_pair_of_choices_is_there_and_most_rows_are_not_refused(table: str) -> None:
    choices, rows = TABLES[table]
    sizes = [len(column) for column in choices.values()]
    for a, b in combinations(range(len(sizes)), 2):
        assert {(row[a], row[b]) for row in rows} == set(product(range(sizes[a]), range(sizes[b])))
    assert len(rows) < 150, "a cheap test of many thousand combinations"
