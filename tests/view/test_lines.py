"""Lines of the log: what is written, what is refused, and how the page's compact form gives it all back."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from legos_envs.records import Episode, Trajectory, Turn, episode_from_json, episode_to_json
from legos_train.observe.viewer import LogLine, rollout_line
from legos_train.observe.viewer.compact import compact, worst_turn
from legos_train.observe.viewer.lines import seat_outcomes
from tests.view.made import ENVS, VOCABULARY, line_of, played, with_tokens


def game(returns: tuple[float, float], **info: Any) -> Episode:
    def seat(agent: str, reward: float) -> Trajectory:
        return Trajectory(agent, agent, True, [Turn(({"role": "user", "content": "move"},), "[a]", reward)])

    return Episode("g", 1, {}, {a: seat(a, r) for a, r in zip(("x", "y"), returns)}, info=info)


def test_a_line_holds_the_episode_and_what_became_of_it() -> None:
    (episode,) = played("KuhnPoker-v0", [3])
    with_tokens(episode, 7)
    line = rollout_line(
        episode,
        step=7,
        policy_version=7,
        env="kuhn",
        advantages={"player_0": [0.5]},
        trained={"player_0": True},
        why_not={"player_1": "opponent: step_2"},
        players={"player_1": "league:step_2"},
        exact={"player_0": [(0.25, -0.5)], "player_1": [None]},
        order=["player_0", "player_1"],
        decode=VOCABULARY.__getitem__,
    )
    assert json.loads(json.dumps(line)) == line
    assert line["trained"] == {"player_0": True, "player_1": False}
    assert line["players"] == {"player_0": "policy", "player_1": "league:step_2"}
    assert line["outcome"] == {"player_0": "win", "player_1": "loss"}
    assert line["exact"] == {"player_0": [[0.25, -0.5]], "player_1": [None]}
    turn = line["episode"]["trajectories"][0]["turns"][0]
    assert turn["action_texts"] == ["[be", "t]", "<|end|>"] and turn["action"] == "[bet]"
    assert episode_to_json(episode_from_json(line["episode"])) == episode_to_json(episode)


def test_trained_by_default_is_who_got_credit_and_no_reason_against_it() -> None:
    given = {"advantages": {"x": [1.0], "y": [2.0]}, "why_not": {"y": "stale"}}
    assert rollout_line(game((1, -1)), step=0, policy_version=0, **given)["trained"] == {"x": True, "y": False}
    assert rollout_line(game((1, -1)), step=0, policy_version=0)["trained"] == {"x": False, "y": False}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"advantages": {"z": [1.0]}}, r"advantages names \['z'\]; the agents are \['x', 'y'\]"),
        ({"why_not": {"z": "judge"}}, "why_not names"),
        ({"advantages": {"x": [1.0, 2.0]}}, "advantages of 'x' has 2 entries; it made 1 turns"),
        ({"exact": {"y": []}}, "exact of 'y' has 0 entries"),
        ({"order": ["x", "x"]}, "order must name each agent once per turn"),
        ({"order": ["x", "y", "z"]}, "order must name each agent once per turn"),
    ],
)
def test_what_does_not_fit_the_episode_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        rollout_line(game((1, -1)), step=0, policy_version=0, **given)


def test_outcomes_that_the_record_tells() -> None:
    assert seat_outcomes(game((1, -1))) == {"x": "win", "y": "loss"}
    assert seat_outcomes(game((-0.1, 0.3))) == {"x": "loss", "y": "win"}
    assert seat_outcomes(game((0.3, 0.1 + 0.2))) == {"x": "draw", "y": "draw"}
    assert seat_outcomes(game((1, -1), offenders=["y"])) == {"x": "win", "y": "invalid"}
    cut = game((1, -1))
    cut.truncated = True
    assert seat_outcomes(cut) == {"x": "truncated", "y": "truncated"}
    judged = game((1, -1))
    judged.trajectories["j"] = Trajectory("j", "judge", False)
    assert seat_outcomes(judged) == {"x": "win", "y": "loss"}
    for kept, wanted in ((True, {"x": "win", "y": "loss"}), (False, {})):  # a league opponent; a player that is a judge
        against = game((1, -1))
        against.trajectories["y"].trainable = False
        against.trajectories["y"].info["trainable"] = kept
        assert seat_outcomes(against) == wanted
    alone = game((1, -1))
    del alone.trajectories["y"]
    assert seat_outcomes(alone) == {}
    for right, wanted in ((True, {"x": "win"}), (False, {"x": "loss"})):
        alone.trajectories["x"].info["correct"] = right
        assert seat_outcomes(alone) == wanted
    alone.info["outcome"] = "unscored"
    assert seat_outcomes(alone) == {"x": "unscored"}


def rebuilt(turns: list[dict[str, Any]], at: int) -> list[dict[str, str]]:
    """What the page's `observation` does."""
    if turns[at]["kept"] == 0:
        return turns[at]["messages"]
    known = [*rebuilt(turns, at - 1), {"role": "assistant", "content": turns[at - 1]["action"]}]
    return [*known[: turns[at]["kept"]], *turns[at]["messages"]]


@pytest.mark.parametrize("env_id", [*ENVS, "Negotiation-v0"])
def test_the_compact_form_loses_no_message_and_no_turn(env_id: str) -> None:
    for episode in played(env_id, range(3)):
        line = json.loads(json.dumps(line_of(episode, 3)))
        row, body = compact(LogLine(5, line))
        assert row["n"] == 5 and row["turns"] == episode.turns
        for seat, facts, trajectory in zip(body["seats"], row["seats"], episode.trajectories.values()):
            assert facts["return"] == pytest.approx(trajectory.total)
            for at, turn in enumerate(trajectory.turns):
                assert rebuilt(seat["turns"], at) == list(turn.observation)
                assert seat["turns"][at]["prompt"] == len(turn.prompt_tokens or ())
                for logprob, exactly in zip(seat["turns"][at]["logprobs"], turn.logprobs or ()):
                    assert math.isclose(logprob, exactly, abs_tol=5.1e-5)
            kept = {key: value for key, value in trajectory.info.items() if key not in ("role", "trainable")}
            assert {**{k: v for k, v in body["info"].items() if k in kept}, **seat["info"]} == kept
        places = [(seat, turn) for seat, turn in body["order"]]
        counts = [len(t.turns) for t in episode.trajectories.values()]
        assert sorted(places) == [(seat, turn) for seat, count in enumerate(counts) for turn in range(count)]


def test_the_order_of_play_is_the_logs_where_it_has_one() -> None:
    (episode,) = played("TicTacToe-v0", [1])
    line = rollout_line(episode, step=0, policy_version=0)
    assert compact(LogLine(1, line))[1]["order"][:4] == [[0, 0], [1, 0], [0, 1], [1, 1]]
    turns = {agent: len(t.turns) for agent, t in episode.trajectories.items()}
    line["order"] = ["player_1"] * turns["player_1"] + ["player_0"] * turns["player_0"]
    assert compact(LogLine(1, line))[1]["order"][:2] == [[1, 0], [1, 1]]
    for wrong in (["player_0"], ["player_7"], "player_0", [3]):
        assert compact(LogLine(1, line | {"order": wrong}))[1]["order"][:2] == [[0, 0], [1, 0]]


def test_the_worst_turn_is_the_largest_drop_else_the_most_negative_advantage_else_the_last() -> None:
    exact = [{"exact": [1, 0.5], "advantage": -9}, {"exact": [0.5, -0.5], "advantage": 3}, {"advantage": 0}]
    assert worst_turn(exact) == {"turn": 1, "by": "exact", "value": -1.0}
    assert worst_turn([{"exact": [0, 1], "advantage": 1}, {"advantage": -2}, {"advantage": float("nan")}]) == {
        "turn": 1,
        "by": "advantage",
        "value": -2,
    }
    assert worst_turn([{"exact": [0, 0.5], "advantage": -2}, {"exact": [0.5, 0.5]}]) == {  # a bad card is not a mistake
        **{"turn": 1, "by": "luck", "value": None}
    }
    assert worst_turn([{"advantage": 0.5}])["by"] == "last"  # type: ignore[index]
    assert worst_turn([{}, {}]) == {"turn": 1, "by": "last", "value": None}
    assert worst_turn([]) is None
