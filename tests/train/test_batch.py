"""Packing: the prefix rule, rows stored once, sites, parts, and what is left out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from legos_envs.records import Episode, Trajectory, Turn
from legos_train.loss.batch import pack


def turn(prompt, action, logprobs=None, version=None):
    return Turn(
        (),
        "",
        0.0,
        None,
        prompt,
        action,
        [-0.5] * len(action) if logprobs is None else logprobs,
        policy_version=version,
    )


def episode(*seats, seed=0):
    """seats: lists of turns; a tuple (turns, False) is not trained."""
    trajectories = {}
    for i, seat in enumerate(seats):
        turns, trainable = seat if isinstance(seat, tuple) else (seat, True)
        trajectories[f"a{i}"] = Trajectory(f"a{i}", "r", trainable, turns)
    return Episode("G", seed, {}, trajectories)


def credit(episodes, value=1.0):
    return [
        {t.agent: np.full(len(t.turns), value) for t in e.trajectories.values() if t.trainable and t.turns}
        for e in episodes
    ]


def pack_all(*episodes, **options):
    return pack(episodes, credit(episodes), **options)


def contexts(batch):
    """What every sampled token was sampled after, read back from the arrays."""
    return [
        (tuple(batch.tokens[batch.rows[p], : batch.cols[p] + 1].tolist()), int(t))
        for p, t in zip(batch.position, batch.target, strict=True)
    ]


def test_a_growing_dialogue_is_one_row():
    chat = [turn([1, 2], [3, 4]), turn([1, 2, 3, 4, 5], [6, 7])]
    batch = pack_all(episode(chat))
    assert batch.tokens.tolist() == [[1, 2, 3, 4, 5, 6]]  # 7 predicts nothing
    assert batch.counters.rows == batch.distinct_rows == 1
    assert batch.cols.tolist() == [1, 2, 4, 5] and batch.target.tolist() == [3, 4, 6, 7]
    assert batch.sequence.tolist() == [0, 0, 1, 1] and batch.trajectory.tolist() == [0] * 4
    assert batch.prefix == 1  # column 1 predicts the first action token


@pytest.mark.parametrize("second", [[1, 2, 3, 9, 5], [1, 2, 3], [8]], ids=["other action", "shorter", "fresh"])
def test_a_prompt_that_does_not_continue_opens_a_row(second):
    batch = pack_all(episode([turn([1, 2], [3, 4]), turn(second, [6])]))
    assert batch.counters.rows == 2
    assert contexts(batch) == [((1, 2), 3), ((1, 2, 3), 4), (tuple(second), 6)]


def test_rows_and_contexts_are_stored_once():
    same = [episode([turn([1, 2, 3], [4, 5])], seed=i) for i in range(5)]
    other = episode([turn([1, 2, 3], [6])])  # the context of its action is the beginning of the row above
    batch = pack_all(*same, other)
    assert batch.counters.rows == 6
    assert batch.tokens.tolist() == [[1, 2, 3, 4]] and len(batch.rows) == 2 and len(batch) == 11
    assert batch.site_weights.tolist() == [6, 5]
    third = pack_all(*same, episode([turn([1, 2, 3], [6, 7])]))
    assert third.distinct_rows == 2 and len(third.rows) == 3  # the prompt's end is one site although in both rows


def test_only_trainable_agents_are_packed():
    batch = pack_all(episode([turn([1], [2])], ([turn([3], [4]), turn([3, 4], [5])], False)))
    assert contexts(batch) == [((1,), 2)]
    assert batch.counters.turns == 1


def test_an_untrained_seat_needs_no_tokens_a_trained_one_does():
    bare = Turn((), "bet")
    assert len(pack_all(episode([turn([1], [2])], ([bare], False)))) == 1
    with pytest.raises(
        ValueError, match=r"turn 1 of agent 'a0' in an episode of G \(seed 7, group None\) has no prompt_t"
    ):
        pack_all(episode([turn([1], [2]), bare], seed=7))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (turn([], [1]), "empty prompt"),
        (turn([1], [2, 3], [-0.1]), "2 action tokens but 1 log-probabilities"),
        (turn([1], [2], [float("-inf")]), "not finite"),
    ],
)
def test_bad_turns_are_errors(bad, message):
    with pytest.raises(ValueError, match=message):
        pack_all(episode([bad]))


def test_bad_advantages_are_errors():
    one = episode([turn([1], [2])])
    for given_, message in [
        ({}, "no advantages"),
        ({"a0": np.ones(2)}, "shape"),
        ({"a0": np.array([np.nan])}, "finite"),
    ]:
        with pytest.raises(ValueError, match=message):
            pack([one], [given_])
    with pytest.raises(ValueError, match="1 episodes but advantages for 0"):
        pack([one], [])
    with pytest.raises(ValueError, match="policy_version"):
        pack([one], credit([one]), max_staleness=1)


def test_dropped_turns_are_counted():
    turns = [turn([1] * 9, [2, 3]), turn([1], [], version=5), turn([4], [5], version=2), turn([6], [7], version=3)]
    batch = pack_all(episode(turns), max_tokens=10, policy_version=5, max_staleness=2)
    assert contexts(batch) == [((6,), 7)] and batch.version.tolist() == [3], "two steps old is not too old"
    assert batch.counters.dropped == {"too_long": 1, "stale": 1, "empty": 1, "cut": 0, "zero": 0}


def test_values_follow_their_tokens():
    played = episode([turn([1], [2, 3], [-0.1, -0.2], 4), turn([5], [6], [-0.3])])
    batch = pack([played], [{"a0": np.array([0.0, -2.0])}])
    assert batch.old_logprobs.tolist() == pytest.approx([-0.1, -0.2, -0.3])
    assert batch.advantages.tolist() == [0.0, 0.0, -2.0] and batch.version.tolist() == [4, 4, -1]
    assert batch.sequence_length.tolist() == [2, 2, 1]
    assert batch.counters.zero_advantage_share == 0.5 and batch.counters.action_tokens == 3


def test_weights_by_hand():
    batch = pack_all(episode([turn([1], [2, 3]), turn([5], [6])]))
    assert batch.token_weights("token").tolist() == pytest.approx([1 / 3] * 3)
    assert batch.token_weights("sequence").tolist() == pytest.approx([1 / 4, 1 / 4, 1 / 2])
    assert batch.token_weights("constant", 10).tolist() == pytest.approx([1 / 20] * 3)
    with pytest.raises(ValueError, match="'token', 'sequence' or 'constant'"):
        batch.token_weights("mean")
    with pytest.raises(ValueError, match="positive"):
        batch.token_weights("constant", 0)


def test_nothing_to_pack():
    batch = pack_all(episode([], ([turn([1], [2])], False)))
    assert len(batch) == 0 and batch.distinct_rows == 0 and batch.counters.zero_advantage_share is None
    assert list(batch.site_weights) == []


tokens = st.sampled_from([[0], [0, 1], [0, 1, 2]]) | st.lists(st.integers(0, 2), min_size=1, max_size=4)


@st.composite
def episodes(draw):
    """Dialogues over three tokens, so that rows, beginnings and contexts coincide often."""
    made = []
    for seed in range(draw(st.integers(1, 5))):
        seats = []
        for _ in range(draw(st.integers(1, 2))):
            turns, history = [], []
            for _ in range(draw(st.integers(0, 3))):
                prompt = (history if draw(st.booleans()) else []) + draw(tokens)
                action = draw(tokens)
                turns.append(turn(prompt, action, [draw(st.floats(-3, 0, width=32)) for _ in action]))
                history = prompt + action
            seats.append((turns, draw(st.booleans())))
        made.append(episode(*seats, seed=seed))
    return made


@given(episodes(), st.integers(1, 30), st.integers(1, 4))
def test_no_token_is_lost_or_invented(played, budget, count):
    """Whatever is merged, every sampled token is found once, after what was read and said before it."""
    expected = [
        (tuple([*t.prompt_tokens, *t.action_tokens[:i]]), token, np.float32(t.logprobs[i]))
        for e in played
        for trajectory in e.trajectories.values()
        if trajectory.trainable
        for t in trajectory.turns
        for i, token in enumerate(t.action_tokens)
    ]
    batch = pack_all(*played)

    def read(part):
        return [(*pair, old) for pair, old in zip(contexts(part), part.old_logprobs, strict=True)]

    assert read(batch) == expected
    assert len(set(batch.keys)) == len(batch.keys) == len(batch.rows)
    if len(batch):
        shared = batch.tokens[:, : batch.prefix]
        assert (shared == shared[:1]).all() and batch.prefix <= batch.cols.min()
        assert len(set(zip(batch.sequence.tolist(), batch.row.tolist(), strict=True))) == max(batch.sequence) + 1
    whole = {name: batch.token_weights(name, 3.0) for name in ("token", "sequence", "constant")}
    found = np.zeros(len(batch), dtype=int)
    for part, places in batch.parts(budget):
        found[places] += 1
        assert read(part) == [expected[i] for i in places]
        assert set(part.keys) <= set(batch.keys) and {len(key) for key in part.keys} <= {16}, "however long a context"
        for name, weights in whole.items():
            assert part.token_weights(name, 3.0).tolist() == weights[places].tolist()
        computed = part.distinct_rows * (part.tokens.shape[1] - part.prefix)
        assert computed <= budget or part.distinct_rows == 1
    assert (found == 1).all()
    minis = list(batch.minibatches(count, seed=1))
    assert sorted(x for m in minis for x in read(m)) == sorted(expected)
    for mini in minis:
        assert len(set(zip(mini.sequence.tolist(), mini.row.tolist(), strict=True))) == len(set(mini.sequence.tolist()))
        for name in whole:  # however unequal the minibatches, their mean is the batch
            place = [np.flatnonzero(batch.sequence == turn) for turn in dict.fromkeys(mini.sequence.tolist())]
            expect = len(minis) * whole[name][np.concatenate([*place, np.zeros(0, dtype=int)])]
            assert np.sort(mini.token_weights(name, 3.0)) == pytest.approx(np.sort(expect))
        assert sum(len(part) for part, _ in mini.parts(budget)) == len(mini)


def test_a_turn_stays_in_one_row_when_a_batch_is_taken_apart():
    """The end of the prompt is one context of three turns; a part must not take it away from two of them."""
    batch = pack_all(*[episode([turn([1, 2], [4 + i, 9, 9])], seed=i) for i in range(3)])
    assert len(batch.rows) == 7
    for part in (batch, batch.select(batch.sequence != 1)):
        assert [small.sequence.tolist() for small, _ in part.parts(1)] == [
            [i] * 3 for i in (2, 1, 0) if i in part.sequence
        ]


def test_sites_are_not_counted_as_shared_when_a_budget_is_kept():
    batch = pack_all(*[episode([turn([1], [4, 5 + i, 9])], seed=i) for i in range(2)])
    assert batch.tokens.tolist() == [[1, 4, 6], [1, 4, 5]] and batch.prefix == 0  # column 0 has a site
    assert [part.distinct_rows for part, _ in batch.parts(5)] == [1, 1]
    assert [part.distinct_rows for part, _ in batch.parts(6)] == [2]


def test_a_long_shared_beginning_is_not_counted():
    """Else each of these rows would be a part of its own, and each would compute the beginning."""
    batch = pack_all(*[episode([turn(range(3, 93), [93 + i, 9])], seed=i) for i in range(6)])
    assert batch.prefix == 89
    assert [part.distinct_rows for part, _ in batch.parts(6)] == [3, 3]


def test_games_with_other_rules_become_other_parts():
    """Four rule texts of 200 tokens, ten positions each: one pass a game computes a fifth of what one pass would."""
    played = [
        episode([turn([1, *[10 + game] * 200, 30 + position], [5, 6])], seed=game)
        for position in range(10)
        for game in range(4)
    ]
    batch = pack_all(*played)
    assert batch.prefix == 1 and batch.distinct_rows == 40
    found = list(batch.parts())
    assert sorted(places.tolist() for _, places in found) == [
        [2 * i + j for i in range(game, 40, 4) for j in range(2)] for game in range(4)
    ]
    assert [(part.distinct_rows, part.prefix) for part, _ in found] == [(10, 201)] * 4
    few = pack_all(*played[:8])  # two rows a game share too little to be worth more passes
    assert len(list(few.parts())) == 1


def test_minibatches_depend_on_the_seed_only():
    batch = pack_all(*[episode([turn([i], [i + 1, i + 2])], seed=i) for i in range(9)])
    first = [m.sequence.tolist() for m in batch.minibatches(3, seed=0)]
    assert first == [m.sequence.tolist() for m in batch.minibatches(3, seed=0)]
    assert first != [m.sequence.tolist() for m in batch.minibatches(3, seed=1)]
    assert [m.total_sequences for m in batch.minibatches(3, seed=0)] == [3, 3, 3]
    for call in (lambda: list(batch.minibatches(0, seed=0)), lambda: list(batch.parts(0))):
        with pytest.raises(ValueError, match="at least 1"):
            call()


def test_one_long_row_does_not_pad_the_others() -> None:
    start = list(range(1, 41))
    rows = [[*start, 50, 400 + i] for i in range(200)] + [[*start, 50, *range(70, 370)]]
    episodes = [
        Episode("G", 0, {}, {"a": Trajectory("a", "r", turns=[Turn((), "", 0.0, None, row, [5], [0.0])])})
        for row in rows
    ]
    parts = [part for part, _ in pack(episodes, [{"a": np.ones(1)}] * len(rows)).parts()]
    assert sorted(part.tokens.shape for part in parts) == [(1, 341), (200, 42)]
    assert sum(len(part) for part in parts) == len(rows)


def test_minibatches_of_many_rows_keep_equal_prompts_together():
    """Equal prompts are computed once an epoch; every turn is still in exactly one minibatch."""
    games = [
        Episode(
            "G", seed, {}, {"a": Trajectory("a", "r", turns=[Turn((), "", 0.0, None, [1, 2 + seed % 80], [5], [-1.0])])}
        )
        for seed in range(240)
    ]
    batch = pack(games, [{"a": np.ones(1)}] * len(games))
    parts = list(batch.minibatches(2, seed=0))
    assert sorted(turn for part in parts for turn in part.sequence.tolist()) == list(range(240))
    assert [part.distinct_rows for part in parts] == [40, 40] and [part.total_sequences for part in parts] == [120, 120]
    assert parts[0].sequence.tolist() != next(batch.minibatches(2, seed=1)).sequence.tolist()
