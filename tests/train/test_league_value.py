"""What a league is worth in a game that can be solved: the NashConv of its mixture, in the whole run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legos_envs import exact
from legos_envs.game import InfoSet
from legos_envs.games.kuhn_poker import KuhnPokerGame
from legos_train import Trainer, train
from legos_train.disk import MetricsFile
from legos_train.evaluation.exact_values import value_against
from legos_train.run import build
from legos_train.run.league_value import league_value, mixture
from tests.train.helpers import small

Table = dict[InfoSet, dict[str, float]]


def test_a_league_is_judged_by_its_mixture(tmp_path: Path) -> None:
    """The last weights only answer it: their NashConv rose from 3.9 to 4.5 where `worse` was all a run had to say."""
    league = {"mode": "psro", "snapshot_every": 1, "latest": 0.0, "payoff_games": 0, "opponents": ["optimal"]}
    config = small(tmp_path / "run", batch_size=4, league=league, eval={"every": 1}, optim={"lr": 1e-9})
    result = train(config, quiet=True)
    start, rows = result.start, [row["eval"] for row in MetricsFile.read(tmp_path / "run/metrics.jsonl")]
    assert start["nash_conv_mixture"] == start["nash_conv"] > 0.5, "nobody can be drawn yet"
    for row in rows:  # the player `optimal` is an equilibrium, and none that the run has learned
        assert row["nash_conv_mixture"] == pytest.approx(row["nash_conv"], rel=1e-3)
    said = f"Not shown to have learned: NashConv of the league's mixture went from {start['nash_conv']:.3f} to 0."
    assert result.verdict.startswith(said) and "weights" not in result.verdict
    trainer = Trainer(build(small(league={"mode": "fsp", "opponents": ["base"]})))
    found = league_value(trainer.parts)
    assert found["nash_conv_mixture"] == pytest.approx(start["nash_conv"], rel=1e-3), "the snapshot of the base"
    assert league_value(trainer.parts, ["rps"]) == {}
    trainer.parts.close()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 4))
def test_a_mixture_gets_on_average_what_its_policies_get(seed: int, count: int) -> None:
    game, rng = KuhnPokerGame(), np.random.default_rng(seed)

    def some() -> Table:
        infosets = exact.info_sets(game)
        return {i: dict(zip(i.legal, rng.dirichlet(np.full(len(i.legal), 0.3)).tolist())) for i in infosets}

    foe, drawn, shares = some(), [some() for _ in range(count)], rng.dirichlet(np.ones(count))
    mixed = mixture(game, [list(zip(shares.tolist(), drawn))] * 2)
    for player in (0, 1):
        apart = [value_against(game, one, foe, player) for one in drawn]
        assert value_against(game, mixed, foe, player) == pytest.approx(float(np.dot(shares, apart)), abs=1e-9)
