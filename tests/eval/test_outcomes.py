"""How a game ended, apart: also inside envs made of matches, and with judges that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

import legos_envs
from legos_envs import Decision, Episode
from legos_envs.records import Trajectory, Turn
from legos_train.evaluation.games import Pairing, PlannedGame, record
from legos_train.evaluation.outcomes import outcome_of, sides_by_info


def played(env_id: str, talk: Any, seed: int = 1, **args: Any) -> Episode:
    return asyncio.run(legos_envs.play(legos_envs.make(env_id, **args), talk, seed))


def careful(decision: Decision) -> str:
    return (decision.legal_actions or ("the sky is blue because air scatters blue light most",))[0]


def garbage_at(seat: str) -> Any:
    return lambda decision: "no action at all" if decision.agent == seat else careful(decision)


def test_a_forfeit_in_a_match_is_no_loss() -> None:
    episode = played("HeadToHead-v0", garbage_at("match_0/player_0"), match="KuhnPoker-v0")
    assert episode.outcome != "invalid", "the match was settled, the episode went on"
    assert outcome_of(episode, "match_0/player_0") == "invalid"
    assert outcome_of(episode, "match_0/player_1") == "opponent_invalid"
    assert {outcome_of(episode, f"match_1/player_{i}") for i in (0, 1)} == {"win", "loss"}


def test_a_void_match_is_unscored_for_both_and_another_match_still_counts() -> None:
    """The judge of match 0 says nothing; both answers of it got 0, which is not a draw."""
    episode = played("HeadToHead-v0", garbage_at("match_0/judge_0"), games=2)
    assert episode.outcome != "unscored"
    assert {outcome_of(episode, f"match_0/answer_{i}") for i in (0, 1)} == {"unscored"}
    assert outcome_of(episode, "match_1/answer_0") in ("win", "draw", "loss")


def made(returns: Mapping[str, float], **facts: Any) -> Episode:
    trajectories = {
        agent: Trajectory(agent, agent, facts.get("trainable", {}).get(agent, True), [Turn((), "x", reward)])
        for agent, reward in returns.items()
    }
    return Episode("Made-v0", 0, {}, trajectories, facts.get("truncated", False), info=facts.get("info", {}))


def test_a_rival_that_rules_took_out_of_training_is_still_compared_with() -> None:
    episode = made({"a": -1.0, "b": -3.0}, trainable={"b": False})
    assert outcome_of(episode, "a", seats=["a", "b"]) == "win"
    assert outcome_of(episode, "a") == "loss", "the record alone does not tell that b was a rival"


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, ("win", "loss")),
        ({"truncated": True}, ("truncated", "truncated")),
        ({"info": {"outcome": "invalid", "offenders": ["b"]}}, ("opponent_invalid", "invalid")),
        ({"info": {"outcome": "unscored"}}, ("unscored", "unscored")),
    ],
)
def test_endings_are_told_apart(facts: dict[str, Any], expected: tuple[str, str]) -> None:
    episode = made({"a": 1.0, "b": -1.0}, **facts)
    assert (outcome_of(episode, "a"), outcome_of(episode, "b")) == expected


def test_the_score_for_ratings() -> None:
    pairing = Pairing("Made-v0", "p", "o", (("a",), ("b",)))
    who = {"a": "p", "b": "o"}

    def score(returns: Mapping[str, float], **facts: Any) -> float | None:
        found = record(PlannedGame(pairing, 0, 0), made(returns, **facts), who)["score"]
        assert found is None or isinstance(found, float)
        return found

    assert [score({"a": x, "b": 0.0}) for x in (1.0, 0.0, -1.0)] == [1.0, 0.5, 0.0]
    assert score({"a": 0.0, "b": 0.0}, info={"outcome": "unscored"}) is None
    assert score({"a": 0.0, "b": 0.0}, info={"outcome": "invalid", "offenders": ["a"]}) == 0.0
    assert score({"a": 0.0, "b": 0.0}, info={"outcome": "invalid", "offenders": ["b"]}) == 1.0


def test_one_policy_takes_all_seats_of_an_entrant() -> None:
    env = legos_envs.make("HeadToHead-v0", match="KuhnPoker-v0")
    env.reset(seed=0)
    assert sides_by_info(env.infos) == [
        ("match_0/player_0", "match_1/player_1"),
        ("match_0/player_1", "match_1/player_0"),
    ]
    judged = legos_envs.make("HeadToHead-v0")
    judged.reset(seed=0)
    assert sides_by_info(judged.infos) == [("match_0/answer_0",), ("match_0/answer_1",)]
