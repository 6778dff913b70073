"""All against all, and ratings that persist."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from legos_envs.scoring.ratings import bradley_terry
from legos_train.cli.main import main
from legos_train.cli.tournament import lines
from legos_train.evaluation import crossplay
from legos_train.evaluation.leaderboard import Leaderboard, LeaderboardError, Meeting, default_path
from legos_train.evaluation.standings import online, payoffs, ratings, standings
from legos_train.rollout.players import words
from tests.eval.stub import chat, error, legal, serving


def tournament(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert main(["tournament", *arguments, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


THREE = ["-m", "random", "-m", "optimal", "-m", "scripted:first"]


def test_all_pairs_meet_in_all_seats(capsys: pytest.CaptureFixture[str], own_leaderboard: Path) -> None:
    found = tournament(capsys, "KuhnPoker-v0", "Nim-v0", *THREE, "-n", "40")
    assert [(r["env"], r["policy"], r["opponent"], r["games"]) for r in found["rows"]][:3] == [
        ("KuhnPoker-v0", "optimal", "random", 40),
        ("KuhnPoker-v0", "optimal", "scripted:first", 40),
        ("KuhnPoker-v0", "random", "scripted:first", 40),
    ]
    assert len(found["rows"]) == 6 and next(iter(found["ratings"])) == "optimal"
    assert all(len(row["seats"]) == 2 for row in found["rows"])
    matrix = np.array(found["payoffs"]["matrix"])
    assert np.allclose(matrix, -matrix.T) and (np.diag(matrix) == 0).all()
    assert sum(found["meta_nash"].values()) == pytest.approx(1)
    best = max(found["openskill"], key=lambda name: found["openskill"][name]["ordinal"])
    assert best == "optimal"
    for one in found["ratings"].values():
        assert one["ci95"][0] <= one["elo"] <= one["ci95"][1] and one["games"] == 160
    assert found["leaderboard"]["new_games"] == 240 and Path(found["leaderboard"]["file"]) == own_leaderboard


def test_the_leaderboard_grows_from_run_to_run_and_counts_a_game_once(
    capsys: pytest.CaptureFixture[str], own_leaderboard: Path
) -> None:
    two = ["KuhnPoker-v0", "-m", "random", "-m", "scripted:first", "-n", "20"]
    assert tournament(capsys, *two)["leaderboard"]["new_games"] == 20
    assert tournament(capsys, *two)["leaderboard"]["new_games"] == 0
    swapped = ["KuhnPoker-v0", "-m", "scripted:first", "-m", "random", "-n", "20"]
    assert tournament(capsys, *swapped)["leaderboard"]["new_games"] == 0
    assert tournament(capsys, *two, "--seed", "100")["leaderboard"]["new_games"] == 20
    assert tournament(capsys, *two, "--arg", "num_rounds=3")["leaderboard"]["new_games"] == 20
    tournament(capsys, *two, "--seed", "500", "--no-leaderboard")
    found = tournament(capsys)
    assert found["leaderboard"]["games"] == 60 and set(found["ratings"]) == {"random", "scripted:first"}
    assert found["envs"] == ["KuhnPoker-v0", "KuhnPoker-v0 (num_rounds=3)"]
    board = Leaderboard(own_leaderboard)
    again, _ = online(board.games())
    assert again is not None
    for name, skill in board.skills().items():
        assert skill["mu"] == pytest.approx(again[name]["mu"]), "in three parts as in one"
    assert main(["tournament"]) == 0 and "OpenSkill" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["NoSuch-v0", "-m", "random", "-m", "optimal"],
        ["KuhnPoker-v0", "-m", "random", "-m", "http://h?x#m"],
        ["KuhnPoker-v0", "-m", "random", "-m", "optimal", "--seat", "nobody=random"],
    ],
)
def test_a_tournament_that_is_refused_makes_no_leaderboard(words: list[str], own_leaderboard: Path) -> None:
    assert main(["tournament", *words]) == 1
    assert not own_leaderboard.exists()


def test_the_payoffs_are_numbered_as_the_ratings_are() -> None:
    one = {"elo": 1500.0, "ci95": [1400.0, 1600.0], "score": 0.5, "games": 2}
    payoffs = {"names": ["a", "b", "c"], "matrix": [[0.0, -0.5, 0.1], [0.5, 0.0, 0.2], [-0.1, -0.2, 0.0]]}
    results = {"ratings": dict.fromkeys("bac", one), "payoffs": payoffs, "openskill": None, "meta_nash": None}
    shown = list(lines({**results, "envs": ["X"], "notes": []}))
    first = next(i for i, line in enumerate(shown) if line.startswith("wins minus losses")) + 2
    assert [line.split() for line in shown[first:]] == [
        ["1", "b", "+0.000", "+0.500", "+0.200"],
        ["2", "a", "-0.500", "+0.000", "+0.100"],
        ["3", "c", "-0.200", "-0.100", "+0.000"],
    ]


def test_payoffs_are_wins_minus_losses_from_each_side() -> None:
    met = [Meeting(f"x{n}", "X", "a", "b", score, n) for n, score in enumerate((1.0, 1.0, 1.0, 0.5, 0.0))]
    met.append(Meeting("x5", "X", "c", "a", 1.0, 5))
    expected = [[0.0, 0.4, -1.0], [-0.4, 0.0, np.nan], [1.0, np.nan, 0.0]]
    np.testing.assert_allclose(payoffs(met, ["a", "b", "c"]), expected)


def test_a_leaderboard_is_no_other_file(tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()
    with pytest.raises(LeaderboardError, match="another kind"):
        Leaderboard(other)
    (tmp_path / "text").write_text("no database at all, but long enough to be read as a header")
    with pytest.raises(LeaderboardError, match="cannot be used"):
        Leaderboard(tmp_path / "text")


def test_envs_count_the_same_however_many_games_they_have() -> None:
    """`a` wins 30 of 40 in one env and 2 of 8 in the other: level, though it has won most of its games."""
    met = [Meeting(f"x{n}", "X", "a", "b", float(n % 4 != 0), n) for n in range(40)]
    met += [Meeting(f"y{n}", "Y", "a", "b", float(n % 4 == 0), n) for n in range(8)]
    found = ratings(met, seed=0)
    assert found["a"]["elo"] == pytest.approx(found["b"]["elo"], abs=1e-6)
    assert payoffs(met, ["a", "b"])[0, 1] == pytest.approx(0)
    plain = bradley_terry([(one.first, one.second, one.score) for one in met])
    assert plain["a"].elo() > plain["b"].elo() + 50


def test_weights_stand_for_repeated_results() -> None:
    results = [("a", "b", 1.0), ("a", "b", 0.0), ("b", "c", 0.5)]
    repeated = bradley_terry([*results, results[0], results[0], results[2]])
    for name, strength in bradley_terry(results, weights=[3, 1, 2]).items():
        assert strength == pytest.approx(repeated[name])
    with pytest.raises(ValueError):
        bradley_terry(results, weights=[1, 2])


@pytest.mark.slow
def test_intervals_of_ratings_cover_the_truth() -> None:
    """Two entrants, one of whom wins 64 in 100: 100 Elo apart."""
    covered = []
    for number in range(40):
        rng = np.random.default_rng(number)
        met = [Meeting(str(n), "X", "a", "b", float(rng.random() < 0.64), n) for n in range(150)]
        low, high = ratings(met, number, resamples=50)["a"]["ci95"]  # type: ignore[misc]
        covered.append(low <= 1550 <= high)
    assert np.mean(covered) > 0.86


@pytest.mark.parametrize("seeds", [1, 3])
def test_equal_results_give_no_interval_of_ratings(seeds: int) -> None:
    """Of a few games, all won, it said: 95 % interval 1624 .. 1624."""
    met = [Meeting(f"{seed}", "e", "a", "b", 0.75, seed) for seed in range(seeds)]
    found = standings(met, ["a", "b"], 0)
    assert "no interval for the ratings of a, b: they are based on one seed" in found["notes"][-1]
    shown = [line for line in lines(found) if line[0] in "12"][:2]
    assert all("none" in line and ".." not in line for line in shown), shown
    met.append(Meeting("other", "e", "a", "b", 0.25, 9))
    assert not any("interval" in note for note in standings(met, ["a", "b"], 0)["notes"])


def test_few_seeds_widen_the_interval_of_a_rating() -> None:
    few = [Meeting(f"{seed}", "e", "a", "b", seed % 2, seed) for seed in range(6)]
    low, high = ratings(few, 0)["a"]["ci95"]  # type: ignore[misc]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("legos_train.evaluation.standings.expanded_levels", lambda n: (0.025, 0.975))
        plain = ratings(few, 0)["a"]["ci95"]
    assert high - low > np.ptp(plain) + 10


@pytest.mark.slow
def test_a_failing_endpoint_costs_its_games_only(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from inference.client.retry import Retry

    monkeypatch.setattr("legos_train.rollout.players.endpoint.PATIENT", Retry(attempts=2, first=0.01, most=0.02))
    with serving(lambda number, body: error(500, "out of order")) as stub:
        players = ["-m", "random", "-m", "optimal", "-m", stub.spec]
        arguments = ["KuhnPoker-v0", *players, "-n", "10", "--out", str(tmp_path / "t")]
        broken = tournament(capsys, *arguments, code=1)
        assert broken["failed"] > 0 and [row["games"] for row in broken["rows"]].count(10) == 1
        lost = next(row for row in broken["rows"] if row["failed"])
        assert "out of order" in " ".join(lost["errors"])
        stub.script = lambda number, body: chat(legal(body))
        whole = tournament(capsys, *arguments)
    assert whole["failed"] == 0 and [row["games"] for row in whole["rows"]] == [10, 10, 10]
    assert whole["leaderboard"]["new_games"] == broken["failed"], "those that were missing"
    assert len(whole["ratings"]) == 3


def test_who_plays_alone_is_compared_problem_by_problem(capsys: pytest.CaptureFixture[str]) -> None:
    found = tournament(capsys, "GSM8K-v0", "-m", "scripted:oracle", "-m", "scripted:wrong", "-n", "12")
    assert (
        np.array(found["payoffs"]["matrix"]).tolist() == [[0, 1], [-1, 0]]
        and found["ratings"]["scripted:oracle"]["games"] == 12
    )


def test_more_than_two_seats(capsys: pytest.CaptureFixture[str]) -> None:
    found = tournament(
        capsys, "LiarsDice-v0", "--arg", "num_players=3", "-m", "random", "-m", "scripted:first", "-n", "12"
    )
    assert {(row["policy"], row["opponent"]) for row in found["rows"]} == {
        ("random", "scripted:first"),
        ("scripted:first", "random"),
    }
    assert all(len(row["seats"]) == 3 and row["games"] == 6 for row in found["rows"])


def test_a_note_where_the_winner_of_most_games_loses_chips(capsys: pytest.CaptureFixture[str]) -> None:
    found = tournament(capsys, "LeducPoker-v0", "-m", "random", "-m", "optimal", "-n", "64", "--no-leaderboard")
    row = found["rows"][0]
    score = found["ratings"][row["policy"]]["score"]
    noted = [note for note in found["notes"] if "different stakes" in note]
    assert bool(noted) == ((score - 0.5) * row["mean"] < 0)
    rows = [{"policy": "a", "opponent": "b", "env": "X", "zero_sum": True, "mean": mean} for mean in (-0.5, 0.5, 0.0)]
    played: Any = [(None, [{"score": 1.0}, {"score": 1.0}, {"score": 0.0}, {"score": None}])] * 3
    assert [note[:30] for note in crossplay.stakes(played, rows)] == ["a scores 67% in X against b, y"]


def test_a_directory_is_one_participant_however_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs/x").mkdir(parents=True)
    same = ["./runs/x/", str(tmp_path / "runs" / "x"), "runs//x", "runs/y/../x"]
    (tmp_path / "runs/y").mkdir()
    assert {words.spelled(one) for one in same} == {"runs/x"}
    assert words.spelled("tiny+./runs/x") == "tiny+runs/x" and words.spelled("runs/x/@best") == "runs/x@best"
    assert {one: words.spelled(one) for one in WORDS} == {one: one for one in WORDS}
    with pytest.raises(SystemExit):
        main(["tournament", "KuhnPoker-v0", "-m", "runs/x", "-m", "./runs/x"])
    assert "two different policies" in capsys.readouterr().err


WORDS = ("tiny", "random", "scripted:first", "org/name@main", "http://localhost:1/v1#a/./b", "../elsewhere")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["KuhnPoker-v0", "-m", "random"], "two different policies"),
        (["-m", "random", "-m", "optimal"], "at least one env"),
        ([], "no leaderboard"),
        (["KuhnPoker-v0", *THREE, "-n", "0"], "--games"),
    ],
)
def test_wrong_use_is_explained(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["tournament", *arguments])
    assert caught.value.code == 2 and said in capsys.readouterr().err


def test_the_leaderboard_lies_beside_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_path().name == "leaderboard.sqlite"
    monkeypatch.delenv("LEGOS_DATA")
    assert default_path() == Path("runs/leaderboard.sqlite")


def test_other_prompts_of_roles_are_another_player(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, own_leaderboard: Path
) -> None:
    with serving(lambda number, body: chat(legal(body))) as stub:
        two = ["KuhnPoker-v0", "-m", stub.spec, "-m", "random", "-n", "2"]
        first = tournament(capsys, *two)
        told = tournament(capsys, *two, "--system", "player_0=You are X.")
        assert {*first["ratings"]} & {*told["ratings"]} == {"random"} and any("X." in name for name in told["ratings"])
        judge = ["Debate-v0", "-m", stub.spec, "-m", "random", "-n", "2", "--system", "judge=Be strict."]
        assert {*tournament(capsys, *judge)["ratings"]} == {*first["ratings"]}


def test_judges_are_part_of_the_task_and_games_without_a_score_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    board = ["--leaderboard", str(tmp_path / "board")]
    command = ["tournament", "Debate-v0", "-m", "random", "-m", "scripted:first", "-n", "4", *board]
    assert main([*command, "--seat", "judge=tiny"]) == 0
    said = capsys.readouterr().out
    assert "note: 4 of 4 games of Debate-v0 had no score" in said and "another --seed" not in said
    for judge in ("scripted:longer", "scripted:on_topic"):
        assert main([*command, "--seat", f"judge={judge}"]) == 0
        assert f"Debate-v0 (judge={judge})" in capsys.readouterr().out
    assert main(["tournament", *board, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["envs"] == ["Debate-v0 (judge=scripted:longer)", "Debate-v0 (judge=scripted:on_topic)"]


@pytest.mark.parametrize("seat", [["-m", "human"], ["-m", "random", "--seat", "judge=human"]])
def test_a_person_is_not_asked_where_only_json_is_printed(seat: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "Debate-v0", *seat, "--opponent", "random", "-n", "1", "--json"]) == 1
    told = capsys.readouterr()
    assert not told.out and "cannot be combined with --json" in told.err
