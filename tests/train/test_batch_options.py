"""Packing: cut completions, forced tokens, legal tokens."""

from __future__ import annotations

import math

import numpy as np
import pytest

from legos_envs.records import Episode, Trajectory, Turn
from legos_train.loss.batch import pack

SURE, OPEN = math.log(0.999), math.log(0.5)


def one(prompt, action, logprobs, *, legal=None, finish=None, seed=0):
    turn = Turn((), "", 0.0, legal, prompt, action, logprobs, policy_version=0, finish_reason=finish)
    return Episode("G", seed, {}, {"a": Trajectory("a", "r", turns=[turn])})


def packed(*episodes, **options):
    return pack(episodes, [{"a": np.ones(1)}] * len(episodes), **options)


def test_cut_completions_leave_the_batch_on_request():
    games = [one([1], [2, 3], [OPEN] * 2, finish="length"), one([1], [4], [OPEN], finish="stop")]
    assert packed(*games).counters.dropped["cut"] == 0 and len(packed(*games)) == 3
    batch = packed(*games, mask_truncated=True)
    assert batch.target.tolist() == [4] and batch.counters.dropped["cut"] == 1 and batch.total_sequences == 1


def test_turns_with_no_advantage_leave_the_batch_on_request_unless_none_has_one():
    games = [one([1], [2, 3], [OPEN] * 2), one([4], [5], [OPEN]), one([6], [7], [OPEN], finish="length")]
    values = [{"a": np.array([0.0])}, {"a": np.array([-1.0])}, {"a": np.array([0.0])}]
    plain, batch = pack(games, values), pack(games, values, skip_zero=True)
    assert plain.counters.dropped["zero"] == 0 and plain.counters.zero_advantages == 2
    assert batch.tokens.tolist() == [[4]] and (batch.total_tokens, batch.total_sequences) == (1, 1)
    assert batch.counters.dropped["zero"] == 2 and batch.counters.turns == 1
    assert batch.counters.zero_advantage_share == plain.counters.zero_advantage_share == 2 / 3
    level = pack(games, [{"a": np.zeros(1)}] * 3, skip_zero=True)  # the KL alone acts, as it does without the option
    assert level.counters.turns == 3 and level.counters.dropped["zero"] == 0
    assert level.counters.zero_advantage_share == 1
    judge = Episode("G", 0, {}, {"j": Trajectory("j", "r", trainable=False, turns=games[0].trajectories["a"].turns)})
    others = pack([*games, judge], [{"a": np.zeros(1)}] * 3 + [{"j": np.ones(1)}], skip_zero=True)
    assert others.counters.turns == 3, "an advantage of a seat that is not trained is none"


def test_forced_tokens_shorten_rows_and_weigh_nothing_new():
    """A reply "[", digit, "]", end of which only the digit was open: the rows end at "[", and become one. The bracket
    before the digit lies on the row anyway and stays.
    """
    games = [one([1, 2, 3], [10, 20 + i, 11, 0], [SURE, OPEN, SURE, SURE], seed=i) for i in range(5)]
    games.append(one([1, 2, 4], [10, 11], [SURE, SURE]))  # nothing to learn from
    plain, batch = packed(*games), packed(*games, skip_forced=0.01)
    assert plain.tokens.shape == (6, 6) and plain.distinct_rows == 6
    assert batch.tokens.tolist() == [[1, 2, 3, 10]] and batch.cols.tolist() == [2, 3]
    assert batch.target.tolist() == [10, 20, 10, 21, 10, 22, 10, 23, 10, 24]
    assert batch.sequence.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    c = batch.counters
    assert (c.forced_tokens, c.action_tokens, c.turns, c.distinct_rows) == (12, 22, 6, 1)
    assert plain.counters.forced_tokens == 0
    for aggregation in ("token", "sequence", "constant"):
        ours, theirs = (b.token_weights(aggregation, 3.0) for b in (batch, plain))
        kept = np.isin(plain.target, batch.target) & (plain.sequence < 5)
        assert ours.tolist() == theirs[kept].tolist(), aggregation
    assert batch.select(batch.target == 22).sequence_length.tolist() == [4]


def test_minibatches_share_the_forced_tokens():
    games = [one([1], [10, 20 + i], [SURE, OPEN], seed=i) for i in range(4)] + [one([2], [10], [SURE])]
    batch = packed(*games, skip_forced=0.01)
    parts = list(batch.minibatches(2, seed=0))
    assert [(p.total_tokens, p.total_sequences) for p in parts] == [(4.5, 2.5), (4.5, 2.5)]
    assert sum(p.token_weights("token").sum() for p in parts) / 2 == pytest.approx(batch.token_weights("token").sum())


def test_nothing_is_forced_at_zero_and_everything_may_be():
    games = [one([1], [2, 3], [0.0, 0.0]), one([1], [4], [OPEN])]
    same, zero = packed(*games), packed(*games, skip_forced=0.0)
    assert zero.tokens.tolist() == same.tokens.tolist() and zero.target.tolist() == same.target.tolist() == [2, 3, 4]
    empty = packed(games[0], skip_forced=1e-6)
    assert len(empty) == 0 and empty.distinct_rows == 0 and empty.counters.turns == 1
    with pytest.raises(ValueError, match="skip_forced must be at least 0 and below 1, got 1"):
        packed(*games, skip_forced=1.0)


CODES = {"[1]": [10, 1, 11], "[12]": [10, 1, 2, 11], "[3]": [10, 3, 11]}


def test_legal_tokens_are_those_that_continue_what_was_sampled():
    legal = tuple(CODES)
    batch = packed(
        one([1], [10, 1, 2, 11, 0], [OPEN] * 5, legal=legal),  # [12] and an end token that no code has
        one([1], [10, 9, 11], [OPEN] * 3, legal=legal, seed=1),  # leaves the legal actions at its second token
        one([2], [10], [OPEN], seed=2),
        legal=CODES.__getitem__,
    )
    options = [None if number < 0 else batch.legal_sets[number] for number in batch.legal.tolist()]
    assert options == [(10,), (1, 3), (2, 11), (11,), (), (10,), (1, 3), (), None]
    part = batch.select(batch.sequence == 1)
    assert [part.legal_sets[n] for n in part.legal] == [(10,), (1, 3), ()]
    skipped = packed(one([1], [10, 1, 11], [SURE, OPEN, SURE], legal=legal), legal=CODES.__getitem__, skip_forced=0.01)
    assert [skipped.legal_sets[n] for n in skipped.legal] == [(10,), (1, 3)]


def test_without_encode_every_token_is_allowed_and_actions_need_tokens():
    game = one([1], [10], [OPEN], legal=("[1]",))
    assert packed(game).legal.tolist() == [-1]
    with pytest.raises(ValueError, match=r"'\[1\]' has no tokens"):
        packed(game, legal=lambda text: [])
