"""The majority's answer as the label."""

import asyncio
import json
from itertools import product

import pytest

import legos_envs
from legos_envs.scoring import answers
from legos_envs.tasks.problems.ensemble_vote import EnsembleVote, camps
from legos_envs.testing import check_env

ROWS = [{"question": "What is one half?", "answer": "0.5"}]


def play(said, rows=ROWS, paid_by="majority", **arguments):
    env = EnsembleVote(rows, num_solvers=len(said), paid_by=paid_by, **arguments)
    return asyncio.run(legos_envs.play(env, lambda d: said[int(d.agent[7:])], 0))


def returns(episode):
    return list(episode.returns.values())


def test_camps_are_made_of_equal_answers():
    assert camps(["1/2", "2", "0.50", None, "two", "2.0", "\\frac{1}{2}"]) == [[0, 2, 6], [1, 5], [4]]
    assert camps([None, None]) == []


def test_every_vote_of_four_on_three_answers():
    """Against a plain count."""
    for votes in product("abc", repeat=4):
        episode = play([f"Answer: {v}" for v in votes], penalty=0.5)
        counts = sorted((votes.count(v), v) for v in set(votes))
        clear = counts[-1][0] >= 2 and (len(counts) == 1 or counts[-1][0] > counts[-2][0])
        label = counts[-1][1] if clear else None
        assert episode.info["label"] == label and episode.outcome == ("label" if clear else "no_label")
        assert returns(episode) == [0.0 if label is None else 1.0 if v == label else -0.5 for v in votes]
        assert episode.info["votes"] == sorted(map(votes.count, set(votes)), reverse=True)
        assert episode.info["agreement"] == counts[-1][0] / 4


def test_the_majority_is_paid_whatever_the_truth_is():
    episode = play(["Answer: 7", "7", "\\boxed{1/2}"])
    assert returns(episode) == [1, 1, -1]
    assert episode.info["truth"] == "0.5" and episode.info["label_correct"] is False
    assert [t.info["correct"] for t in episode.trajectories.values()] == [False, False, True]
    assert play(["1/2", "0.5", "2"]).info["label_correct"] is True


def test_where_the_truth_is_known_it_is_what_is_paid():
    """Solvers that all say the same wrong thing agree, and lose."""
    assert EnsembleVote(ROWS).paid_by == EnsembleVote().paid_by == "truth"
    assert returns(play(["0", "0", "0"], paid_by=None)) == [-1, -1, -1]
    episode = play(["7", "7", "1/2", "no idea", ""], paid_by=None, penalty=0.5, invalid_reward=-2)
    assert returns(episode) == [-0.5, -0.5, 1, -0.5, -2]
    assert episode.info["label"] == "7" and episode.info["paid_by"] == "truth"
    assert returns(play(["7", "8", "1/2"], paid_by="truth")) == [-1, -1, 1]  # no label is needed


def test_without_a_truth(monkeypatch):
    loaded = []
    monkeypatch.setattr(answers, "prepare", lambda *truths: loaded.append(truths))
    episode = play(["Answer: 7", "7", "8"], rows=[{"question": "?"}], paid_by=None, answer=None)
    assert episode.info["paid_by"] == "majority"
    assert loaded == [()]  # before the first answer: what solvers say is all there is to compare
    assert returns(episode) == [1, 1, -1] and not {"truth", "label_correct", "correct"} & set(episode.info)


def test_texts_without_an_answer_are_outliers_and_silence_has_no_vote():
    assert returns(play(["7", "7", "no idea"])) == [1, 1, -1]
    silent = play(["7", "7", ""], invalid_reward=-2)
    assert returns(silent) == [1, 1, -2] and silent.info["agreement"] == 2 / 3
    assert returns(play(["no idea", "none", "what"])) == [0, 0, 0]
    assert returns(play(["7", "", ""])) == [0, -1, -1]  # one vote is not a majority
    assert returns(play(["7", "8"])) == [0, 0]


def test_penalty_zero_only_rewards():
    assert returns(play(["7", "7", "8"], penalty=0)) == [1, 1, 0]


def test_solvers_see_the_question_alone():
    env = EnsembleVote([{"question": "Who?", "answer": "zebra"}], num_solvers=3)
    env.reset(seed=0)
    env.step("Answer: lion")
    for agent in env.possible_agents[1:]:
        shown = json.dumps([env.observe(agent), env.infos[agent]])
        assert "Who?" in shown and "lion" not in shown and "zebra" not in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_solvers": 1}, "num_solvers must be a whole number from 2 to 64"),
        ({"penalty": -1}, "penalty must be a finite number from 0"),
        ({"order": "x"}, "order must be one of"),
        ({"paid_by": "label"}, "paid_by must be one of 'truth', 'majority'; got 'label'"),
        ({"source": [{"question": "?"}], "answer": None, "paid_by": "truth"}, "needs true answers, but answer is None"),
        ({"prompt": "x"}, "prompt must contain"),
        ({"source": "x"}, "source must be 'words'"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        EnsembleVote(**arguments)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "arguments", [{"num_solvers": 2, "paid_by": "majority"}, {"penalty": 0, "order": "random", "level": 1}]
)
def test_variants_pass_every_check(arguments):
    check_env("EnsembleVote-v0", episodes=30, skip=("seed.process",), raise_on_failure=True, **arguments)
