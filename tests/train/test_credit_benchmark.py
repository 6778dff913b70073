"""The tabular part of `benchmarks.credit`: its games are the envs' games, its averages are averages, and it resumes."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from benchmarks import credit, credit_report, credit_tabular
from benchmarks.credit_games import GAMES, Arrays
from legos_envs import exact


@pytest.fixture(scope="module")
def kuhn():
    return Arrays("kuhn")


@pytest.mark.parametrize("name", GAMES)
def test_sampled_episodes_have_the_expected_returns(name):
    arrays = Arrays(name)
    rng = np.random.default_rng(0)
    policy = credit_tabular.softmax(rng.normal(size=arrays.mask.shape), arrays.mask)
    played = arrays.sample(policy, 4096, 4, rng)
    episodes = arrays.episodes(played, 4)
    assert [e.group for e in episodes[:5]] == [0, 0, 0, 0, 1]
    returns = arrays.scale * np.array([list(e.returns.values()) for e in episodes])
    expected = exact.expected_returns(arrays.game, arrays.exact(policy))
    error = 4 * 2 * returns.std(0) / len(returns) ** 0.5  # games of a group share a deal: at most twice the error
    assert (np.abs(returns.mean(0) - expected) < error).all()
    for p, e in zip(played[:50], episodes, strict=False):
        turns = [turn for agent in e.trajectories for turn in e.trajectories[agent].turns]
        for cell, turn in zip(p.cells, turns, strict=True):
            infoset = arrays.graph.infosets[cell // arrays.moves]
            assert infoset.view == turn.observation[0]["content"] and infoset.legal[cell % arrays.moves] == turn.action


def test_payoffs_have_unit_spread_at_the_uniform_policy(kuhn):
    rng = np.random.default_rng(1)
    returns = [list(e.returns.values()) for e in kuhn.episodes(kuhn.sample(kuhn.uniform, 8192, 1, rng), 1)]
    assert np.std(returns, axis=0).mean() == pytest.approx(1.0, abs=0.03)


def test_the_lopsided_game_has_the_equilibrium_of_the_even_one():
    table = np.array([[0.25, 0.5, 0.25]] * 2)
    assert Arrays("lopsided").measure(table)["nash_conv"] == pytest.approx(0.0, abs=1e-12)


def test_own_reach_multiplies_the_owners_moves(kuhn):
    policy = credit_tabular.softmax(np.random.default_rng(2).normal(size=kuhn.mask.shape), kuhn.mask)
    reach = dict(zip(kuhn.graph.infosets, kuhn.own_reach(policy), strict=True))
    for infoset, value in reach.items():
        if "check bet" in infoset.view:  # the first player checked
            before = next(s for s in reach if s.view == infoset.view.replace("check bet", "none"))
            check = policy[kuhn.graph.infosets.index(before), before.legal.index("check")]
            assert value == pytest.approx(check)
        else:
            assert value == 1.0
    assert (Arrays("nim").own_reach(Arrays("nim").uniform) == 1.0).all()


def test_an_update_learns_and_kl_holds_back(kuhn):
    start = kuhn.measure(kuhn.uniform)["nash_conv"]
    free, held = (credit_tabular.run(kuhn, "RAE", kl, 0, updates=60) for kl in (False, True))
    assert free["start"]["nash_conv"] == start and free["last"]["nash_conv"] < 0.75 * start
    assert free != held
    assert credit_tabular.run(kuhn, "RAE", True, 0, updates=60) == held


def run_command(monkeypatch, capsys, *flags):
    monkeypatch.setattr(sys, "argv", ["credit", *flags])
    credit.main()
    return capsys.readouterr().out


def test_resumes_after_a_torn_line_and_reports(tmp_path, monkeypatch, capsys):
    path = tmp_path / "cells.jsonl"
    flags = ["--out", str(path), "--part", "tabular", "--games", "kuhn", "--updates", "2", "--seeds", "2"]
    flags += ["--methods", "none", "RAE"]
    run_command(monkeypatch, capsys, *flags)
    lines = path.read_text().splitlines()
    cells = [json.loads(line) for line in lines]
    assert len({credit.key(cell) for cell in cells}) == len(cells) == 8
    path.write_text("\n".join([*lines[:5], lines[5][:40]]))  # killed while it wrote the sixth
    assert run_command(monkeypatch, capsys, *flags).count("\n") == 3
    again = [json.loads(line) for line in path.read_text().splitlines()]
    assert [c | {"cpu_seconds": 0} for c in again] == [c | {"cpu_seconds": 0} for c in cells]
    shown = run_command(monkeypatch, capsys, *flags, "--report")
    assert "### tabular: kuhn (updates 2, batch 64, rate 0.05; 2 seeds)" in shown
    assert "NashConv, at the start 0.917" in shown and shown.count("\n| none | ") == 1


def test_intervals():
    mean, low, high = credit_report.interval([1.0, 2.0, 3.0, 4.0])
    assert mean == 2.5 and 1.0 < low < 2.0 and 3.0 < high < 4.0
    assert credit_report.interval([2.0, 2.0]) == (2.0, 2.0, 2.0)
    assert credit_report.differs([1.0, 1.1, 0.9], [2.0, 2.1, 1.9])
    assert not credit_report.differs([1.0, 3.0, 2.0], [1.5, 2.5, 2.0])


def test_a_failed_run_is_reported_and_not_averaged():
    good = {"nash_conv": 0.5}
    base = {"part": "tiny", "game": "kuhn", "method": "RAE", "kl": False, "setup": {"steps": 2}}
    rows = [
        base | {"seed": 0, "start": good, "last": good, "average": None},
        base | {"seed": 1, "start": None, "last": None, "average": None, "failed": "no gradient"},
    ]
    shown = credit_report.tables(rows, ["RAE"])
    assert "| RAE | 0.500 [0.500, 0.500] |  |  |  |" in shown and "1 runs failed: ['no gradient']" in shown


def test_the_tiny_part_makes_valid_configs(monkeypatch):
    import legos_train

    seen = []

    class Result:
        start = last = {"nash_conv": 0.5}
        average = None

    # Into the module's dict, past the lazy import of the trainer.
    monkeypatch.setitem(vars(legos_train), "train", lambda config, quiet: seen.append(config) or Result())
    for method in credit_tabular.METHODS:
        for kl in (False, True):
            out = credit.run_tiny("lopsided", method, kl, 1)
    assert out == {"start": {"nash_conv": 0.5}, "last": {"nash_conv": 0.5}, "average": None}
    by_name = {(c.credit.name, c.credit.per_role, c.loss.kl): c for c in seen}
    joint = by_name["grpo", False, 0.0]
    assert joint.grouped == 8 and joint.loss.kl_end is None and joint.steps == 100 and joint.batch_size == 256
    assert by_name["rae", True, 0.2].grouped == 1 and by_name["turn_level", True, 0.2].grouped == 1
    assert by_name["agent_turn", True, 0.2].credit.singleton == "rae"
