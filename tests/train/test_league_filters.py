"""Draws, retries and what is kept for training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest

from legos_envs.records import Episode, Trajectory, Turn
from legos_train import Actor, make_credit
from legos_train.league import mark
from legos_train.rollout.filters import competing, drawn_again, is_draw, is_learners, keep_best, keep_draws, retry
from legos_train.rollout.jobs import Job, mark_untrained
from legos_train.run.records.episode_metrics import episode_metrics


@dataclass(slots=True)
class Request:
    seed: int | None
    group: int | None = None
    played: list[int] = field(default_factory=list)


def episode(*returns: float, outcome: str | None = None, judge: bool = False) -> Episode:
    agents = [f"player_{i}" for i in range(len(returns))]
    seated = {a: Trajectory(a, a, turns=[Turn((), "x", r)]) for a, r in zip(agents, returns)}
    if judge:
        seated["judge"] = Trajectory("judge", "judge", trainable=False)
    return Episode("Env-v0", 0, {}, seated, info={"outcome": outcome})


def test_a_draw_is_told_by_returns() -> None:
    assert is_draw(episode(0, 0)) and is_draw(episode(0.1 + 0.2, 0.3)) and is_draw(episode(1, 1, 1))
    assert not is_draw(episode(1, -1)) and not is_draw(episode(0, 0, 1e-6))
    assert not is_draw(episode(1.0))  # nobody to draw with
    assert not is_draw(episode(0, 0, outcome="unscored"))
    assert is_draw(episode(1, 1, judge=True))  # the judge's 0 does not count
    won = episode(1, -1)
    mark(won, {"player_1": "step_0"})
    drawn = episode(0, 0)
    mark(drawn, {"player_1": "step_0"})
    assert is_draw(drawn) and not is_draw(won)  # the opponent counts, though it is not trained


def test_a_seat_that_the_run_does_not_train_still_competes() -> None:
    lost, drawn = episode(1, -1), episode(0, 0)
    for one in (lost, drawn):
        learner = Actor("player", model="policy")
        job = Job(one.env_id, seed=0, players=dict.fromkeys(one.trajectories, learner), train_roles=("player_0",))
        mark_untrained(one, job, dict.fromkeys(one.trajectories, True))
        assert [t.agent for t in competing(one)] == ["player_0", "player_1"]
        assert [t.agent for t in competing(one) if is_learners(t)] == ["player_0"]
    assert is_draw(drawn) and not is_draw(lost)
    assert episode_metrics([lost, drawn])["win_rate"] == {"player_0": 0.75}


def test_retry_works_when_baselines_have_moved() -> None:
    """A peer looks for advantages of 0, which a draw no longer has once the baseline is not 0."""
    credit = make_credit("rae")
    credit.assign([episode(1, -1)] * 20)
    (advantages,) = credit.assign([episode(0, 0)])
    assert advantages["player_0"][0] < -0.5  # the draw has an advantage
    seeds: list[list[int]] = []

    def play(requests: Sequence[Request]) -> list[Episode]:
        seeds.append([request.seed or 0 for request in requests])
        decided = [seed % 3 == 0 for seed in seeds[-1]]
        return [episode(1, -1) if won else episode(0, 0) for won in decided]

    requests = [Request(seed) for seed in range(30)]
    episodes, count = retry(requests, play, 5)
    assert len(seeds) == 6 and len(seeds[0]) == 30 and len(seeds[1]) == 20
    assert all(len(later) <= len(earlier) for earlier, later in pairwise(seeds))
    assert count == sum(map(len, seeds[1:]))
    assert sum(map(is_draw, episodes)) < 20 * (2 / 3) ** 5 + 7
    assert [is_draw(e) for e in episodes[::3]] == [False] * 10  # seeds 0, 3, 6 ... were not played again
    fresh = [seed for asked in seeds for seed in asked]
    assert len(set(fresh)) == len(fresh)
    before = list(seeds)
    retry(requests, play, 5)
    assert seeds[len(before) :] == before  # a function of the seeds alone
    assert retry(requests, play, 0)[1] == 0


def test_a_group_is_played_again_as_a_whole_and_only_when_all_of_it_was_drawn() -> None:
    requests = [Request(5, 0), Request(5, 0), Request(6, 1), Request(6, 1), Request(7)]
    episodes = [episode(0, 0), episode(0, 0), episode(0, 0), episode(1, -1), episode(0, 0)]
    again = drawn_again(requests, episodes, 1)
    assert list(again) == [0, 1, 4]
    assert again[0].seed == again[1].seed != 5 and again[0].group == 0
    assert drawn_again(requests, episodes, 2)[0].seed != again[0].seed
    with pytest.raises(ValueError, match="needs its seed"):
        drawn_again([Request(None)], [episode(0, 0)], 1)
    with pytest.raises(ValueError, match="one episode per request"):
        drawn_again(requests, episodes[:1], 1)


def test_a_share_of_draws_is_left_out() -> None:
    episodes = [episode(0, 0) if i % 2 else episode(1, -1) for i in range(40)]
    rng = np.random.default_rng(0)
    assert keep_draws(episodes, 0.0, rng) == episodes
    assert keep_draws(episodes, 1.0, rng) == episodes[::2]
    kept = keep_draws(episodes, 0.75, rng)
    assert [e for e in kept if not is_draw(e)] == episodes[::2] and sum(map(is_draw, kept)) == 5
    few = [len(keep_draws(episodes[:2], 0.3, rng)) for _ in range(500)]
    assert np.mean(few) == pytest.approx(1.7, abs=0.08)  # a share of one draw, right on average
    with pytest.raises(ValueError, match="from 0 to 1"):
        keep_draws(episodes, 1.5, rng)


def trained(e: Episode) -> list[bool]:
    return [t.trainable for t in e.trajectories.values()]


def test_survivors() -> None:
    def games() -> list[Episode]:
        lost = episode(-1, 1)
        mark(lost, {"player_1": "step_0"})
        return [episode(1, -1), episode(0, 0), episode(2, 2, -1, judge=True), lost]

    batch = games()
    assert keep_best(batch, "all") == 0 and trained(batch[0]) == [True, True]
    assert keep_best(batch, "winners") == 5
    assert [trained(e) for e in batch] == [
        [True, False],
        [False, False],
        [True, True, False, False],
        [False, False],  # the learner lost; its opponent's tokens are not trained on for that
    ]
    assert keep_best(batch, "winners") == 0  # again: nothing changes
    batch = games()
    assert keep_best(batch, "positive") == 5
    assert trained(batch[0]) == [True, False] and trained(batch[3]) == [False, False]
    alone = [episode(0.2), episode(-0.2)]
    assert keep_best(alone, "positive") == 1 and trained(alone[0]) == [True]
    assert keep_best([episode(0.2), episode(-0.2)], "success") == 1, "where nothing is right or wrong"
    answers = [episode(0.1), episode(1.1), episode(0.0)]
    for answer, right in zip(answers, (False, True, True), strict=True):
        answer.trajectories["player_0"].info["correct"] = right
    assert keep_best(answers, "success") == 1 and [trained(e) for e in answers] == [[False], [True], [True]]
    paid_for_its_form = [answers[0]]
    paid_for_its_form[0].trajectories["player_0"].trainable = True
    assert keep_best(paid_for_its_form, "positive") == 0
    with pytest.raises(ValueError, match="all, winners, success or positive"):
        keep_best(batch, "best")
