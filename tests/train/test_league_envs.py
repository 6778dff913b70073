"""A league in a run of several envs: members play where two seats are trained, and are known in each env by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from legos_train import ConfigError, Trainer, train
from legos_train.disk import MetricsFile
from legos_train.league import League, LeagueSettings
from legos_train.run import build
from tests.train.helpers import small

SOLO = {"id": "GSM8K-v0", "name": "math"}
KUHN = {"id": "KuhnPoker-v0", "name": "kuhn"}
RPS = {"id": "MatrixGame-v0", "name": "rps", "args": {"game": "rps"}}


def league_run(*envs: dict[str, Any], mode: str = "fsp", **league: Any) -> Trainer:
    settings = {"mode": mode, "snapshot_every": 1, "latest": 0.0, "payoff_games": 4, **league}
    return Trainer(build(small(env=list(envs), batch_size=12, league=settings)))


def members_met(trainer: Trainer) -> dict[str, set[str]]:
    met: dict[str, set[str]] = {slot: set() for slot in trainer.parts.arena.envs}
    for episode in trainer.play(1):
        met[episode.env_id] |= {t.info["member"] for t in episode.trajectories.values() if "member" in t.info}
    return met


@pytest.mark.slow
def test_a_task_of_one_seat_just_plays_beside_a_league(tmp_path: Path) -> None:
    settings = {"mode": "fsp", "snapshot_every": 1, "latest": 0.0}
    watched = {"every": 0, "games": 4}
    result = train(small(tmp_path / "run", env=[KUHN, SOLO], league=settings, eval=watched), quiet=True)
    rows = MetricsFile.read(tmp_path / "run/metrics.jsonl")
    assert result.steps == 2 and rows[-1]["league"]["members"] == 3
    assert {"kuhn/player_0", "kuhn/player_1", "math/solver"} <= set(rows[0]["reward"])


def test_an_env_may_stay_out_of_the_league() -> None:
    trainer = league_run(KUHN, {**RPS, "league": False})
    assert members_met(trainer) == {"kuhn": {"step_0"}, "rps": set()}
    assert list(trainer.parts.league.standings) == ["kuhn"]
    trainer.parts.close()


def test_psro_fills_a_matrix_for_each_env_and_draws_from_it() -> None:
    trainer = league_run(KUHN, RPS, mode="psro", opponents=["random"])
    trainer.step()
    league = trainer.parts.league
    assert league is not None and set(league.standings) == {"kuhn", "rps"}
    assert league.standing("kuhn").pairs.games == {
        (a, b): 2 for a in ("step_0", "random") for b in ("step_0", "random")
    }
    assert league.standing("rps").pairs.sums != league.standing("kuhn").pairs.sums
    kept = league.state_dict()
    again = League(league.settings, 0, {"kuhn": False, "rps": False})
    again.load_state_dict(kept)
    assert again.state_dict() == kept and again.mixture(0, "rps") == league.mixture(0, "rps")
    trainer.parts.close()


def test_how_hard_a_member_is_is_known_for_each_env() -> None:
    from tests.train.test_league import episode

    league = League(LeagueSettings(mode="pfsp", opponents=("random", "optimal")), 0, {"a": False, "b": False})
    plan = {"player_1": "random"}
    for env, won in (("a", 1.0), ("b", -1.0), ("elsewhere", 1.0)):
        played = episode({"player_0": won, "player_1": -won})
        played.env_id = env
        league.observe([played], [plan])
    assert league.mixture(env="a")["random"] < 0.5 < league.mixture(env="b")["random"]
    assert league.win_rate("random") == pytest.approx(0.5), "the mean over the envs of the league"
    assert league.plan(9, 1, ["player_0", "player_1"], env="elsewhere") == {}


@pytest.mark.parametrize(
    ("envs", "mode", "said"),
    [
        ([SOLO], "fsp", "league.mode = 'fsp' needs two trained seats in math"),
        ([KUHN, {**SOLO, "league": True}], "fsp", "needs two trained seats in math"),
        ([{**KUHN, "league": False}], "pfsp", "needs two trained seats in kuhn"),
        (
            [KUHN, {"id": "Negotiation-v0", "name": "talk", "args": {"num_players": 3}}],
            "psro",
            "payoff matrix of two sides; talk has 3. Use 'fsp' or 'pfsp', or league = false",
        ),
    ],
)
def test_a_league_without_opponents_to_seat_is_refused(envs: list[dict[str, Any]], mode: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        league_run(*envs, mode=mode)


def test_a_payoff_that_lacks_scored_games_plays_others(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = league_run(KUHN, mode="psro")
    played, local = list[int](), trainer.parts.sync.local
    run = local.run

    def one_scored(jobs: Any) -> Any:
        played.extend(job.seed for job in jobs)
        episodes = run(jobs)
        episodes[0].info["outcome"] = "unscored"
        return episodes

    monkeypatch.setattr(local, "run", one_scored)
    trainer.next_requests(1)
    trainer.next_requests(2)
    trainer.parts.close()
    assert trainer.parts.league is not None
    assert trainer.parts.league.standing("kuhn").pairs.games == {("step_0", "step_0"): 2}
    assert len(set(played)) == 4, "no game counts twice"


@pytest.mark.slow
def test_exact_payoffs_are_those_of_the_tree_and_games_come_close_to_them() -> None:
    matrices = {}
    for games in (0, 300):
        trainer = league_run(KUHN, mode="psro", opponents=["random", "optimal"], payoff_games=games)
        trainer.next_requests(1)
        assert trainer.parts.league is not None
        pairs = trainer.parts.league.standing("kuhn").pairs
        matrices[games] = pairs.matrix(["random", "optimal", "step_0"])
        assert set(pairs.games.values()) == {games // 2 or 1}
        trainer.parts.close()
    exact_, played = matrices[0], matrices[300]
    assert exact_[1, 1] == pytest.approx(-1 / 18, abs=1e-3), "the value of Kuhn poker for the first seat"
    assert exact_[0, 0] == pytest.approx(1 / 8), "uniform play: by hand, over 6 deals"
    assert 0 < abs(exact_ - played).max() < 0.45


def test_exact_payoffs_are_refused_where_they_cannot_be_had() -> None:
    with pytest.raises(ConfigError, match=r"payoff_games = 0 .*KuhnPoker-v0 as configured here is not one.*such as 64"):
        build(small(env_args={"memory": "chat"}, league={"mode": "psro", "payoff_games": 0}))
    with pytest.raises(ConfigError, match=r"'base' in KuhnPoker-v0 only gives answers"):
        build(small(league={"mode": "psro", "payoff_games": 0, "opponents": ["base"]}))


def test_a_game_in_which_the_learner_s_seat_is_taken_back_tells_nothing_of_the_opponent() -> None:
    """A coder whom only a tester can score is not scored where the tester, a snapshot here, wrote no test."""
    trainer = league_run({"id": "CodeGen-v0", "name": "code", "args": {"coder_scored_by": "tester"}})
    trainer.step()
    met = [e for e in trainer.last.episodes if "member" in e.trajectories["tester_0"].info]  # type: ignore[union-attr]
    assert met and not any(e.trajectories["coder_0"].trainable for e in met)
    assert trainer.parts.league is not None and not trainer.parts.league.standing("code").against.scores
    trainer.parts.close()


@pytest.mark.slow
def test_an_actor_of_the_name_of_a_member_is_no_member() -> None:
    """All seats live beside a fixed random one: mirror play, of which the league's standings know nothing."""
    trainer = Trainer(
        build(
            small(
                env="LiarsDice-v0",
                env_args={"num_players": 3, "dice": 1, "faces": 2},
                model="small",
                batch_size=6,
                actors={"player_2": {"model": "random"}},
                league={"mode": "pfsp", "opponents": ["random"], "latest": 1.0},
            )
        )
    )
    try:
        league = trainer.parts.league
        assert league is not None
        before = json.dumps(league.state_dict())
        assert trainer.step()["episodes"] == 6 and json.dumps(league.state_dict()) == before
    finally:
        trainer.parts.close()
