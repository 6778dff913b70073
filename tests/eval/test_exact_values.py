"""Exact numbers of policies: regret by information set, best responses, and the value of a pairing."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import legos_envs
from legos_envs import exact
from legos_train import train
from legos_train.cli.main import main
from legos_train.evaluation import exact_results, exact_values
from legos_train.evaluation.exact_values import (
    PolicyTable,
    action_probabilities,
    code_table,
    regrets,
    report,
    value_against,
)
from legos_train.observe import Progress
from tests.train.helpers import small


@pytest.fixture(scope="module")
def kuhn() -> legos_envs.GameEnv:
    env = legos_envs.make("KuhnPoker-v0").unwrapped
    assert isinstance(env, legos_envs.GameEnv)
    return env


def table(env: legos_envs.GameEnv, name: str) -> PolicyTable:
    found = code_table(env, name)
    assert found is not None
    return found


def some(env: legos_envs.GameEnv, seed: int) -> PolicyTable:
    rng = np.random.default_rng(seed)
    return {
        info: dict(zip(info.legal, rng.dirichlet([0.5] * len(info.legal)).tolist()))
        for info in exact.info_sets(env.game)
    }


@pytest.mark.parametrize("seed", range(5))
def test_regrets_bound_nash_conv_and_a_better_move_adds_what_they_say(kuhn: legos_envs.GameEnv, seed: int) -> None:
    policy = some(kuhn, seed)
    found = regrets(kuhn.game, policy)
    assert sum(one.regret for one in found.values()) >= exact.nash_conv(kuhn.game, policy.__getitem__) - 1e-9
    values = exact.expected_returns(kuhn.game, policy.__getitem__)
    for info, one in found.items():
        if info.view.count("Moves: none") == 0 and info.player == 0:
            continue  # whether player 0 comes back to move depends on its own first move
        changed = {**policy, info: {one.best: 1.0}}
        got = exact.expected_returns(kuhn.game, changed.__getitem__)[info.player]
        assert got - values[info.player] == pytest.approx(one.regret, abs=1e-9)


def test_an_equilibrium_regrets_nothing(kuhn: legos_envs.GameEnv) -> None:
    found = report(kuhn, table(kuhn, "optimal"))
    assert found["nash_conv"] == pytest.approx(0, abs=1e-9) and found["regret_sum"] == pytest.approx(0, abs=1e-9)
    assert found["value"]["player_0"] == pytest.approx(-1 / 18) == found["best_response"]["player_0"]


def test_uniform_play_of_kuhn_poker_by_hand(kuhn: legos_envs.GameEnv) -> None:
    """Best responses to it get 1/2 and 5/12, in sum 11/12. Who holds a king facing a bet folds half of the time: that
    costs 1 + 2 with probability 1/2, in the sixth of all games in which it happens: 1/4.
    """
    found = report(kuhn, table(kuhn, "random"))
    assert found["best_response"] == {"player_0": pytest.approx(1 / 2), "player_1": pytest.approx(5 / 12)}
    assert found["nash_conv"] == pytest.approx(11 / 12) and found["value"]["player_0"] == pytest.approx(1 / 8)
    king = next(one for one in found["regret"] if one["seat"] == "player_1" and one["best"] == "call")
    assert king["regret"] == pytest.approx(1 / 4) and king["reach"] == pytest.approx(1 / 6) and "K" in king["view"]


def test_the_value_of_a_pairing_is_what_the_game_says(kuhn: legos_envs.GameEnv) -> None:
    one, other = some(kuhn, 1), some(kuhn, 2)
    assert value_against(kuhn.game, one, other, 0) == pytest.approx(-value_against(kuhn.game, other, one, 1))
    assert value_against(kuhn.game, one, one, 0) == pytest.approx(exact.expected_returns(kuhn.game, one.__getitem__)[0])


def test_only_policies_whose_probabilities_are_known_have_a_table(kuhn: legos_envs.GameEnv) -> None:
    assert code_table(kuhn, "scripted:always_bet") is None and code_table(kuhn, "human") is None
    for name, move in (("first", 0), ("last", -1)):
        found = code_table(kuhn, f"scripted:{name}")
        assert found is not None and all(chances == {info.legal[move]: 1.0} for info, chances in found.items())
    assert code_table(legos_envs.make("KuhnPoker-v0", num_rounds=3).unwrapped, "random") is None
    assert code_table(legos_envs.make("Debate-v0").unwrapped, "random") is None


def test_each_seat_is_asked_of_its_own_player_and_counts_what_it_answers_legally(
    kuhn: legos_envs.GameEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a player whose answers are not all legal, the legal ones make up its play, and the rest is told apart."""

    class Listed:
        """An engine that knows the probability of every answer: by its player's name, half of them legal."""

        def __init__(self, first: float) -> None:
            self.first = first

        def score(self, prompts: list[Any], replies: list[Any], adapter: str | None) -> list[np.ndarray]:
            shares = [self.first, 1.0 - self.first] * (len(replies) // 2)
            return [np.log([share / 2, 1.0]) for share in shares]

    renderer = SimpleNamespace(end_id=0, start=lambda messages, system: [1], encode=lambda text: [2])
    players = [
        SimpleNamespace(renderer=renderer, system=None, adapter=None, engine=Listed(first)) for first in (0.25, 0.75)
    ]
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(exact_values, "PART", 4)
    infos = exact.info_sets(kuhn.game)
    found, leftover = action_probabilities(kuhn, players, infos, lambda *counts: seen.append(counts))  # type: ignore
    for info, chances in found.items():
        first = (0.25, 0.75)[info.player]
        assert [*chances.values()] == pytest.approx([first, 1.0 - first])
    assert [*leftover.values()] == pytest.approx([0.5] * 12) and len(found) == 12
    assert seen == [(4, 12), (6, 12), (10, 12), (12, 12)]


def test_long_exact_evaluations_show_their_progress(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[tuple[str, int, int]] = []

    class Line:
        def __init__(self, unit: str) -> None:
            self.unit = unit

        def __call__(self, done: int, total: int) -> None:
            seen.append((self.unit, done, total))

        def close(self) -> None:
            seen.append((self.unit, 0, 0))

    monkeypatch.setattr(exact_results, "MANY_POSITIONS", 5)
    monkeypatch.setattr(exact_results, "ProgressLine", Line)
    main(["eval", "KuhnPoker-v0", "-m", "tiny", "-n", "2", "--json"])
    assert seen == [("positions", 6, 6), ("positions", 0, 0)] * 2
    seen.clear()
    monkeypatch.setattr(Progress, "working", lambda self, *counts: seen.append(counts))
    train(small(tmp_path / "run", steps=1), quiet=True)
    assert ("positions of KuhnPoker-v0", 6, 12) in seen and ("positions of KuhnPoker-v0", 12, 12) in seen


def test_games_at_another_temperature_than_the_exact_numbers_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    def advice(*words: str) -> list[str]:
        main(["eval", "KuhnPoker-v0", "-n", "2", "--json", *words])
        return [said for row in json.loads(capsys.readouterr().out)["results"] for said in row["advice"]]

    cold = advice("-m", "tiny", "--temperature", "0.5")
    assert "the exact numbers are those of tiny at temperature 1; its games were played at 0.5 (--temperature)." in cold
    for words in (["-m", "tiny"], ["-m", "tiny", "--temperature", "0.5", "--no-exact"], ["-m", "random"]):
        assert not [said for said in advice(*words) if "exact" in said]


def test_a_seat_that_is_given_away_is_played_by_its_policy(
    kuhn: legos_envs.GameEnv, capsys: pytest.CaptureFixture[str]
) -> None:
    def numbers(*words: str) -> dict[str, Any]:
        main(["eval", "KuhnPoker-v0", "-n", "2", "--json", *words])
        found: dict[str, Any] = json.loads(capsys.readouterr().out)["results"][0]["exact"]
        return found

    first, second = table(kuhn, "optimal"), table(kuhn, "random")
    found = numbers("-m", "optimal", "--seat", "player_1=random")
    both = {info: (first, second)[info.player][info] for info in first}
    assert found["nash_conv"] == pytest.approx(exact.nash_conv(kuhn.game, both.__getitem__))
    assert found["value"]["player_0"] == pytest.approx(value_against(kuhn.game, first, second, 0))
    given = numbers("-m", "random", "--seat", "player_1=tiny")
    assert given["nash_conv"] != pytest.approx(numbers("-m", "random")["nash_conv"]) and 0 < given["illegal"] < 1


def test_who_has_a_seat_that_was_given_away_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["eval", "KuhnPoker-v0", "-n", "2", "-m", "random", "-m", "scripted:first", "--seat", "player_1=optimal"]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "KuhnPoker-v0: random with player_1=optimal, 2 games" in said and "against nobody" not in said
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["results"][0]["seated"] == {"player_1": "optimal"}
    assert found["comparisons"][0]["opponent"] == "player_1=optimal"
