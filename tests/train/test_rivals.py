"""Learners that share seats, in whole runs: who learns from which games, and what is kept of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inference import read_adapter
from legos_envs import exact
from legos_train import ConfigError, Trainer, train
from legos_train.evaluation.exact_values import value_against
from legos_train.league import RivalLeague
from legos_train.loss.batch import BatchByLearner
from legos_train.run import build
from legos_train.run.alarm_actions import respond
from legos_train.run.all_actions.decisions import spreads
from legos_train.run.parts.monitor import Alarm
from legos_train.run.payoff_games import model_table
from tests.train.helpers import digest, identify, small
from tests.train.test_population import rows

SEATS = ["player_0", "player_1"]
PAIR: list[dict[str, Any]] = [
    {"name": "main", "roles": SEATS, "rank": 2},
    {"name": "exploiter", "roles": SEATS, "opponents": ["main"], "optim": {"lr": 1e-3}},
]
APART: list[dict[str, Any]] = [{**PAIR[0], "opponents": ["main"]}, PAIR[1]]
"""The first never learns from games against the second."""


@pytest.fixture
def pair() -> Iterator[Trainer]:
    trainer = Trainer(
        build(small(learner=APART, batch_size=12, league={"mode": "fsp", "snapshot_every": 1, "pool": 2}))
    )
    yield trainer
    trainer.parts.close()


def test_each_learns_from_the_games_it_wants_and_from_no_other(pair: Trainer) -> None:
    seen = set()
    for _ in range(4):
        record = pair.step()
        assert pair.last is not None and isinstance(pair.batch, BatchByLearner)
        turns: Counter[str] = Counter()
        for episode in pair.last.episodes:
            seats = list(episode.trajectories.values())
            who = tuple(seat.info.get("member") or seat.info["learner"] for seat in seats)
            seen.add(who)
            for seat, other in zip(seats, who[::-1]):
                learner = seat.info.get("learner")
                assert seat.trainable == (learner is not None)
                if learner is not None:
                    turns[learner] += len(seat.turns)
                    assert other.rpartition(".")[2] == "main", "both only want to meet `main`"
        assert {n: part.counters.turns for n, part in pair.batch.parts.items()} == turns
        assert all(own["mismatch_max"] < 1e-4 for own in record["learners"].values()), "sampled from its own weights"
    assert {("main", "main"), ("exploiter", "policy.main"), ("policy.main", "exploiter")} <= seen
    assert {("main", "step_1.main"), ("exploiter", "step_1.main")} <= seen


def test_results_are_kept_for_each_learner(pair: Trainer) -> None:
    for _ in range(2):
        record = pair.step()
    made = pair.parts.league
    assert isinstance(made, RivalLeague)
    results = made.standing().results
    assert "main" in results["exploiter"].scores and "exploiter" not in results["main"].scores
    assert made.pool == ["step_1", "step_2"] and record["league"]["members"] == 4
    assert made.members == [f"step_{n}.{name}" for n in (1, 2) for name in ("main", "exploiter")]
    told = record["league"]["learners"]
    assert set(told["exploiter"]["against"]) == {"main"} and not told["main"]["against"]
    assert told["exploiter"]["against"]["main"] == made.win_rate("main", "exploiter")
    assert {"main", "exploiter"} <= set(made.ratings) and told["main"]["rating"] == made.ratings["main"].mu
    again = RivalLeague(made.settings, made.seed, {"KuhnPoker-v0": True}, made.rivals)
    again.load_state_dict(json.loads(json.dumps(made.state_dict())), made.weights)
    assert again.state_dict() == made.state_dict() and again.members == made.members


def test_wins_are_counted_by_hand() -> None:
    trainer = Trainer(build(small(learner=PAIR, batch_size=16, league={"mode": "mirror"})))
    try:
        trainer.step()
        assert trainer.last is not None and isinstance(trainer.parts.league, RivalLeague)
        expected: dict[str, Counter[str]] = {"main": Counter(), "exploiter": Counter()}
        for episode in trainer.last.episodes:
            first, second = episode.trajectories.values()
            for mine, theirs in ((first, second), (second, first)):
                me, other = (
                    seat.info.get("learner") or seat.info["member"].rpartition(".")[2] for seat in (mine, theirs)
                )
                if me != other and mine.trainable:
                    expected[me]["won" if mine.total > theirs.total else "lost"] += 1
        assert expected["main"] and expected["exploiter"], "both want to meet the other"
        results = trainer.parts.league.standing().results
        for name, other in (("main", "exploiter"), ("exploiter", "main")):
            scores = results[name].scores[other].values()
            assert sum(s.wins for s in scores) == expected[name]["won"]
            assert sum(s.losses for s in scores) == expected[name]["lost"]
        assert not trainer.parts.league.members, "mirror play has no pool"
        respond(trainer.parts, Alarm("kl", 1.0, 0.5, "inject_opponents", "stuck"))
        assert trainer.parts.league.members == ["random"]
        against = 0
        for _ in range(6):
            trainer.step()
            against += sum(
                any(s.info.get("member") == "random" for s in e.trajectories.values()) for e in trainer.last.episodes
            )
        assert 36 <= against <= 60, "half of 96 games"
    finally:
        trainer.parts.close()


def test_a_shared_seat_that_an_actor_takes_is_nobodys() -> None:
    parts = build(small(learner=[PAIR[0], {"name": "other", "roles": SEATS}], actors={"player_1": {"model": "random"}}))
    try:
        assert [task.prefix for task in parts.measurer.tasks.values()] == ["main/", "other/"]
    finally:
        parts.close()


def test_each_is_evaluated_and_published_under_its_name(tmp_path: Path) -> None:
    run = tmp_path / "run"
    config = small(run, steps=2, learner=PAIR, eval={"every": 1}, league={"mode": "fsp", "snapshot_every": 1})
    result = train(config, quiet=True)
    names = {"nash_conv_mixture", "main/nash_conv", "exploiter/nash_conv"}
    assert names <= set(result.last) and result.last["main/nash_conv"] != result.last["exploiter/nash_conv"]
    for name, rank in (("main", 2), ("exploiter", 4)):
        adapter = read_adapter(run / "adapter" / name)
        assert adapter.config["lora_parameters"]["rank"] == rank and adapter.config["legos"]["learner"] == name
        alone = Trainer(build(small(init_adapter=str(run / "last" / name), lora={"rank": rank})))
        own = alone.parts.measurer.measure("policy")
        assert own["nash_conv"] == pytest.approx(result.last[f"{name}/nash_conv"], abs=1e-6)
        alone.parts.close()
    shown = json.loads((run / "figures" / "data.json").read_text())["strategy"]
    weights = ["main: last", "main: average", "exploiter: last", "exploiter: average"]
    assert shown["columns"] == ["before", *weights, "an equilibrium"]
    assert len({tuple(shares[place] for _, _, shares in shown["rows"]) for place in (0, 1, 3)}) == 3
    page = (run / "report.html").read_text()
    assert "exploiter: last" in page
    for text in ("Learners against each other", "Ratings of the learners", "exploiter against main", "step_1.main"):
        assert text in page


def test_a_payoff_matrix_of_all_their_snapshots() -> None:
    psro = {"mode": "psro", "snapshot_every": 1, "payoff_games": 0, "latest": 0.0}
    trainer = Trainer(build(small(learner=PAIR, league=psro, optim={"lr": 0.02})))
    try:
        for _ in range(3):
            trainer.step()
        made = trainer.parts.league
        assert isinstance(made, RivalLeague)
        pairs = made.standing().pairs
        known = {f"step_{step}.{name}" for step in (0, 1, 2) for name in ("main", "exploiter")}
        assert {name for pair in pairs.games for name in pair} == known
        (task, _) = trainer.parts.measurer.tasks.values()
        game: Any = task.env.game  # type: ignore[attr-defined]
        tables = {n: model_table(trainer.parts.measurer, task, n) for n in ("step_2.main", "step_2.exploiter")}
        first, second = tables.values()
        paid = value_against(game, first, second, 0)
        assert pairs.sums["step_2.main", "step_2.exploiter"] == pytest.approx(paid, abs=1e-9) and first != second
        assert sum(made.mixture(0).values()) == pytest.approx(1)
        main = made.mixture(0, learner="exploiter", among=("main",))
        assert sum(main.values()) == pytest.approx(1) and all(m.endswith(".main") for m in main)
    finally:
        trainer.parts.close()


def test_every_action_is_valued_against_the_learner_in_the_other_seat() -> None:
    """The loss `expected` reads values from the game tree, which depend on who sits there."""
    loss = {"name": "expected", "aggregation": "constant", "kl": 0.0}
    trainer = Trainer(build(small(learner=APART, batch_size=8, loss=loss, optim={"lr": 0.02})))
    try:
        for _ in range(2):
            trainer.step()
        parts = trainer.parts
        (task, _) = parts.measurer.tasks.values()
        graph = exact.graph_of(task.env.game)  # type: ignore[attr-defined]
        tables = {n: model_table(parts.measurer, task, f"policy.{n}") for n in ("main", "exploiter")}
        episodes = trainer.play(3)
        trainer.assign_credit(episodes, 2)
        taken, _ = parts.replay.take(2)
        found = taken.decisions
        assert found is not None and parts.decisions is not None
        played = {tuple(name or "" for name in seating): values for (_, seating), values in found.values.items()}
        assert set(played) == {
            ("policy.main", "policy.main"), ("policy.exploiter", "policy.main"), ("policy.main", "policy.exploiter"),
        }  # fmt: skip
        seats = {
            (e.trajectories[a].agent, e.trajectories[a].info["learner"]) for e in found.episodes for a in e.trajectories
        }
        assert seats == {(seat, name) for seat in SEATS for name in ("main", "exploiter")}
        both = [tables["exploiter"], tables["main"]]
        policy = [[both[info.player][info][move] for move in info.legal] for info in graph.infosets]
        values = graph.values(policy)
        reached = graph.reach([policy] * 2)
        number = next(n for n, info in enumerate(graph.infosets) if info.player == 0)
        info = graph.infosets[number]
        weights = [reached[node] for node in graph.members[number]]
        wanted = np.array(graph.move_values(number, weights, values)) / sum(weights)
        answers = parts.decisions._policy(task, "policy.exploiter", {0})[info]
        own = played["policy.exploiter", "policy.main"]
        got = [own[tuple(answer.prompt), tuple(answer.tokens)] for answer in answers]
        assert np.subtract(*got) == pytest.approx(np.subtract(*wanted) / spreads(graph)[0], abs=1e-5)
    finally:
        trainer.parts.close()


@pytest.mark.slow  # by default test_population.py resumes several learners, and a league's state is compared above
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path) -> None:
    pool = {"mode": "pfsp", "snapshot_every": 1, "pool": 2}
    changes: dict[str, Any] = {
        "learner": PAIR,
        "league": pool,
        "checkpoint": {"every": 2},
        "batch_size": 12,
        "steps": 4,
    }
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for run in (whole, broken):
        identify(run)
    train(small(whole, **changes), quiet=True)

    class Enough(Exception): ...

    def stop(record: dict[str, Any]) -> None:
        if record["step"] == 3:
            raise Enough

    with pytest.raises(Enough):
        train(small(broken, **changes), quiet=True, on_step=stop)
    train(small(broken, **changes), quiet=True, resume=True)
    for name in ("main", "exploiter"):
        file = f"last/{name}/adapters.safetensors"
        assert digest(whole / file) == digest(broken / file)
    assert rows(whole) == rows(broken)


@pytest.mark.slow
def test_playing_ahead_in_another_process(tmp_path: Path) -> None:
    ahead = {"enabled": True, "backend": "process", "max_off_policy_steps": 1}
    config = small(tmp_path / "run", steps=3, learner=PAIR, league={"mode": "fsp", "pool": 1}, asynchronous=ahead)
    train(config, quiet=True)
    assert all(own["updates"] == 1 for row in rows(tmp_path / "run") for own in row["learners"].values())


@pytest.mark.slow
def test_branches_ask_the_learner_of_the_game() -> None:
    loss = {"name": "expected", "aggregation": "constant", "kl": 0.0}
    config = small(env="PigDice-v0", learner=PAIR, batch_size=8, loss=loss, optim={"lr": 0.02}, branch={"points": 1})
    trainer = Trainer(build(config))
    try:
        for _ in range(2):
            record = trainer.step()
        assert all(own["updates"] == 1 and own["mismatch_max"] < 1e-4 for own in record["learners"].values())
    finally:
        trainer.parts.close()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"learner": [PAIR[0], {**PAIR[1], "opponents": ["mian"]}]}, "names 'mian'; the learners are main, exploiter"),
        ({"learner": [PAIR[0], {**PAIR[1], "latest": 0.5}]}, "latest of learner 'exploiter' has no effect.*'mirror'"),
        (
            {"learner": [{"name": "a", "roles": [SEATS[0]]}, {"name": "b", "roles": [SEATS[1]], "opponents": ["a"]}]},
            "opponents of learner 'b' has no effect: no learners take turns",
        ),
        (
            {"learner": [*PAIR, {"name": "c", "roles": [SEATS[0]], "opponents": ["c"]}]},
            "learner 'c' has nobody to play against in KuhnPoker-v0: the other seat is played by main or exploiter",
        ),
        (
            {"learner": [*PAIR, {"name": "c", "roles": [SEATS[0]]}], "league": {"mode": "psro"}},
            "'psro' with learners that share seats needs the same learners in all seats of KuhnPoker-v0",
        ),
        (
            {
                "learner": [{"name": "random", "roles": SEATS}, PAIR[0]],
                "league": {"mode": "fsp", "opponents": ["random"]},
            },
            "learner 'random' is also the name of a player in league.opponents",
        ),
        (
            {"learner": PAIR, "eval": {"env": [{"id": "KuhnPoker-v0", "name": "exploiter"}]}},
            "eval.env 'exploiter' is also the name of a learner",
        ),
        (
            {"learner": PAIR, "league": {"mode": "fixed", "opponents": ["random"]}},
            "opponents of learner 'exploiter' has no effect with league.mode = 'fixed'",
        ),
        (
            {
                "env": "ProposerSolver-v0",
                "learner": [
                    {"name": "a", "roles": ["proposer", "solver", "problem_0/solver_0"]},
                    {"name": "b", "roles": ["proposer", "solver"]},
                ],
            },
            "the seats of 'solver' in ProposerSolver-v0 are one side and need the same learners",
        ),
    ],
)
def test_what_does_not_fit_is_said(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        build(small(**changes)).close()
