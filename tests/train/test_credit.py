"""Credit with hand-worked numbers, independence of order, state, and errors."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from legos_train import CreditAssigner, make_credit
from legos_train.credit import METHODS
from legos_train.credit.constant import ConstantCredit
from legos_train.credit.group import GRPOCredit, HierarchicalGRPOCredit
from legos_train.credit.rae import RAECredit
from legos_train.credit.same_prompt import SamePromptCredit
from tests.train.credit_episodes import episode, match, random_batch


def test_rae_by_hand():
    rae = RAECredit(decay=0.5)
    a, b = rae.assign([match(1.0), match(-1.0)])
    # Nothing is known before the first batch, so A = R, the same for every turn.
    assert a["first"].tolist() == [1.0, 1.0] and a["second"].tolist() == [-1.0]
    assert b["first"].tolist() == [-1.0, -1.0]
    assert rae.baselines("G", "first") == 0.0  # mean of +1 and -1
    rae.assign([match(1.0)])
    # ema = .25 * 0 + .75 * 0 = 0 after two returns, then .5 * 0 + .5 * 1; corrected by 1 - .5 ** 3.
    assert rae.baselines("G", "first") == pytest.approx(0.5 / 0.875)
    (c,) = rae.assign([match(3.0)])
    assert c["first"] == pytest.approx([3.0 - 4 / 7] * 2) and c["second"] == pytest.approx([-3.0 + 4 / 7])


def test_rae_is_the_papers_update_for_one_return_a_batch():
    rae, ema = RAECredit(), 0.0
    for n, result in enumerate([1.0, -1.0, 2.0, 0.5], start=1):
        rae.assign([match(result)])
        ema = 0.95 * ema + 0.05 * result
        assert rae.baselines("G", "first") == pytest.approx(ema / (1 - 0.95**n))


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        # m: 0 -> .5 -> -.25 -> 1.375 with decay .5; A = R - (m from before the game)
        ("game", [1.0, -1.5, 3.25]),
        # the same m, and A = R - (m with the game in it)
        ("game_first", [0.5, -0.75, 1.625]),
        # A = R in the first batch, whatever m becomes
        ("batch", [1.0, -1.0, 3.0]),
    ],
)
def test_rae_as_in_the_paper_by_hand(update: str, expected: list[float]):
    rae = make_credit("rae", decay=0.5, bias_correction=False, baseline_update=update)
    given = rae.assign([match(1.0), match(-1.0), match(3.0)])
    assert [a["first"].tolist() for a in given] == [[value, value] for value in expected]  # two turns
    assert [a["second"].tolist() for a in given] == [[-value] for value in expected]
    after = {"batch": 0.875 * 1.0}.get(update, 1.375)  # (1 - .5 ** 3) * mean of the three
    assert rae.baselines("G", "first") == after
    again = make_credit("rae", decay=0.5, bias_correction=False, baseline_update=update)
    again.load_state_dict(json.loads(json.dumps(rae.state_dict())))
    assert again.assign([match(2.0)])[0]["first"].tolist() == rae.assign([match(2.0)])[0]["first"].tolist()


def test_rae_refuses_an_unknown_update():
    with pytest.raises(ValueError, match=r"baseline_update must be one of 'batch', 'game', 'game_first', got 'epoch'"):
        make_credit("rae", baseline_update="epoch")


def test_rae_fold_is_the_mean_over_all_orders():
    from itertools import permutations

    returns, start, decay = [1.0, -2.0, 0.25], 0.4, 0.8
    rae = RAECredit(decay)
    rae.assign([match(start)])
    rae.assign([match(r) for r in returns])
    ends = []
    for order in permutations(returns):
        ema = (1 - decay) * start
        for value in order:
            ema = decay * ema + (1 - decay) * value
        ends.append(ema / (1 - decay**4))
    assert rae.baselines("G", "first") == pytest.approx(np.mean(ends))


def test_advantage_is_return_minus_baseline_not_twice_the_return():
    """An ancestor computes 2R - b: it agrees with R - b at R = 0 only."""
    rae = RAECredit()
    for _ in range(200):
        rae.assign([match(1.0)])
    (out,) = rae.assign([match(1.0)])
    assert out["first"] == pytest.approx([0.0, 0.0], abs=1e-9)  # 2R - b would be 1


def test_rae_keeps_env_and_role_apart_and_skips_untrained():
    rae = RAECredit()
    rae.assign([match(1.0, env="A"), match(5.0, env="B")])
    assert rae.baselines.as_dict() == {
        "A": {"first": pytest.approx(1.0), "second": pytest.approx(-1.0)},
        "B": {"first": pytest.approx(5.0), "second": pytest.approx(-5.0)},
    }
    silent = episode({"a": ("p", [("x", 1.0)]), "judge": ("judge*", [("y", 9.0)]), "late": ("p", [])})
    assert list(rae.assign([silent])[0]) == ["a"]
    assert "judge" not in rae.baselines.as_dict()["G"]


def test_gamma_discounts_by_turns_from_the_end():
    (out,) = RAECredit(gamma=0.5).assign([match(4.0, turns=(3, 1))])
    assert out["first"].tolist() == [1.0, 2.0, 4.0] and out["second"].tolist() == [-4.0]


def test_grpo_by_hand():
    batch = [match(1.0, group=0), match(-1.0, group=0), match(3.0, group=0), match(7.0, group=1), match(5.0, group=1)]
    out = GRPOCredit(singleton="zero").assign(batch)
    assert [float(o["first"][0]) for o in out] == [0.0, -2.0, 2.0, 1.0, -1.0]
    scaled = GRPOCredit(std=True, singleton="zero").assign(batch)
    std = (8 / 3) ** 0.5
    assert [float(o["first"][0]) for o in scaled[:3]] == pytest.approx([0.0, -2 / std, 2 / std], abs=1e-5)
    equal = GRPOCredit(std=True, singleton="zero").assign([match(1.0, group=0), match(1.0, group=0)])
    assert [o["first"].tolist() for o in equal] == [[0.0, 0.0]] * 2


def test_grpo_over_both_seats_of_a_zero_sum_match_subtracts_nothing():
    out = GRPOCredit(per_role=False, singleton="zero").assign(
        [match(1.0, group=0), match(-1.0, group=0), match(1.0, group=0)]
    )
    assert [float(o["first"][0]) for o in out] == [1.0, -1.0, 1.0]


def test_same_group_number_in_two_envs_is_two_groups():
    out = GRPOCredit(singleton="zero").assign([match(1.0, group=0, env="A"), match(3.0, group=0, env="B")])
    assert [float(o["first"][0]) for o in out] == [0.0, 0.0]


def test_a_group_of_one_gets_zero_or_the_rae_advantage():
    assert GRPOCredit(singleton="zero").assign([match(1.0, group=0)])[0]["first"].tolist() == [0.0, 0.0]
    warm = GRPOCredit(singleton="rae", decay=0.5)
    assert warm.assign([match(1.0, group=0)])[0]["first"].tolist() == [1.0, 1.0]
    assert warm.assign([match(3.0, group=0)])[0]["first"].tolist() == [2.0, 2.0]


def test_an_episode_without_a_group_is_an_error():
    with pytest.raises(ValueError, match=r"has no group.*credit 'rae'"):
        GRPOCredit(singleton="zero").assign([match(1.0)])
    with pytest.raises(ValueError, match=r"root_peers='batch'"):
        HierarchicalGRPOCredit(singleton="zero").assign([match(1.0)])


def tree(proposer, *solvers, group=0):
    """One proposer and per problem a list of solver rewards."""
    agents = {"proposer": ("proposer", [("make", proposer)])}
    for p, rewards in enumerate(solvers):
        agents |= {f"p{p}/solver_{i}": ("solver", [("solve", r)]) for i, r in enumerate(rewards)}
        agents[f"p{p}/critic"] = ("critic", [("judge", 5.0)])
        agents |= {f"p{p}/deep/helper_{i}": ("solver", [("help", 10.0 * r)]) for i, r in enumerate(rewards)}
    return episode(agents, group=group)


def test_hierarchical_grpo_by_hand():
    out = HierarchicalGRPOCredit(singleton="zero").assign(
        [tree(0.2, [1, 1, 0], [0, 1]), tree(0.6, [1, 0]), tree(4.0, group=1)]
    )
    third = 1 / 3
    assert [float(out[0][f"p0/solver_{i}"][0]) for i in range(3)] == pytest.approx([third, third, -2 * third])
    assert [float(out[0][f"p1/solver_{i}"][0]) for i in range(2)] == [-0.5, 0.5]
    assert [float(out[0][f"p0/deep/helper_{i}"][0]) for i in range(3)] == pytest.approx([10 / 3, 10 / 3, -20 / 3])
    assert [float(out[1][f"p0/solver_{i}"][0]) for i in range(2)] == [0.5, -0.5]  # another episode is another table
    assert [float(o["proposer"][0]) for o in out] == pytest.approx([-0.2, 0.2, 0.0])  # the last is alone in its group
    assert float(out[0]["p0/critic"][0]) == 0.0
    over_batch = HierarchicalGRPOCredit(root_peers="batch", singleton="zero").assign(
        [tree(0.2), tree(0.6), tree(4.0, group=1)]
    )
    assert [float(o["proposer"][0]) for o in over_batch] == pytest.approx([-1.4, -1.0, 2.4])


def test_hierarchical_grpo_with_the_rae_fallback():
    credit = HierarchicalGRPOCredit(root_peers="batch", singleton="rae", decay=0.5)
    credit.assign([tree(1.0, [1, 0])])
    (out,) = credit.assign([tree(1.0, [1, 0])])
    assert float(out["p0/critic"][0]) == 0.0 and float(out["proposer"][0]) == 0.0  # 5 - 5 and 1 - 1 by now
    assert float(out["p0/solver_0"][0]) == 0.5  # has peers, so the baseline of solvers is not used


def one_turn(prompt, reward, role="p"):
    return episode({role: (role, [(prompt, reward)])})


def test_same_prompt_by_hand():
    batch = [one_turn("K", 3.0), one_turn("K", 1.0), one_turn("K", 2.0), one_turn("Q", 10.0)]
    out = [float(o["p"][0]) for o in SamePromptCredit(pseudo_count=0).assign(batch)]
    assert out == pytest.approx([3 - 1.5, 1 - 2.5, 2 - 2.0, 10 - 0.0])  # Q is alone: the role baseline, 0 so far
    credit = SamePromptCredit(pseudo_count=2, decay=0.5)
    credit.assign([one_turn("K", 4.0)])
    out = [float(o["p"][0]) for o in credit.assign(batch)]
    # Role baseline 4 worth two observations: (1 + 2 + 8) / 4, (3 + 2 + 8) / 4, (3 + 1 + 8) / 4, and 4 alone.
    assert out == pytest.approx([3 - 11 / 4, 1 - 13 / 4, 2 - 3.0, 10 - 4.0])


def test_same_prompt_keeps_roles_and_envs_apart():
    batch = [one_turn("K", 1.0), one_turn("K", 5.0, role="q"), one_turn("K", 3.0)]
    batch[2].env_id = "other"
    out = SamePromptCredit(pseudo_count=0).assign(batch)
    assert [float(next(iter(o.values()))[0]) for o in out] == [1.0, 5.0, 3.0]


def test_same_prompt_leaves_the_whole_episode_out():
    """Both seats of a sealed bid may read the same words; the other seat's result is not independent of mine."""
    bids = episode({"a": ("bidder", [("bid", 1.0)]), "b": ("bidder", [("bid", -1.0)])})
    (alone,) = SamePromptCredit(pseudo_count=0).assign([bids])
    assert alone["a"].tolist() == [1.0] and alone["b"].tolist() == [-1.0]
    other = episode({"a": ("bidder", [("bid", 4.0)]), "b": ("bidder", [("bid", -2.0)])})
    first, _ = SamePromptCredit(pseudo_count=0).assign([bids, other])
    assert first["a"].tolist() == [0.0] and first["b"].tolist() == [-2.0]  # minus the mean of 4 and -2


def test_same_prompt_targets():
    played = episode({"p": ("p", [("a", 1.0), ("b", 0.0), ("c", 4.0)])})
    assert SamePromptCredit(gamma=0.5).assign([played])[0]["p"].tolist() == [2.0, 2.0, 4.0]
    assert SamePromptCredit().assign([played])[0]["p"].tolist() == [5.0, 4.0, 4.0]
    assert SamePromptCredit(gamma=0.5, target="return").assign([played])[0]["p"].tolist() == [1.25, 2.5, 5.0]
    played.trajectories["p"].carry = 10.0
    assert SamePromptCredit(target="return").assign([played])[0]["p"].tolist() == [15.0] * 3
    assert SamePromptCredit().assign([played])[0]["p"].tolist() == [5.0, 4.0, 4.0]


def test_constant():
    (out,) = ConstantCredit(0.5).assign([match(1.0)])
    assert out["first"].tolist() == [0.5, 0.5] and out["second"].tolist() == [0.5]


EVERY = [
    *({"name": name} for name in METHODS),
    {"name": "grpo", "std": True, "singleton": "rae"},
    {"name": "hierarchical_grpo", "singleton": "rae", "root_peers": "batch"},
    {"name": "same_prompt", "gamma": 0.9, "target": "return"},
]


@pytest.mark.parametrize("options", EVERY, ids=str)
def test_order_of_episodes_and_agents_does_not_matter(options):
    """Bit for bit, over several batches: a second worker only changes the order in which episodes finish."""
    one, two = make_credit(**options), make_credit(**options)
    for seed in range(3):
        batch = random_batch(seed)
        order = random.Random(99 + seed).sample(range(len(batch)), len(batch))
        shuffled = [batch[i] for i in order]
        for e in shuffled[::2]:
            e.trajectories = dict(reversed(e.trajectories.items()))
        straight, mixed = one.assign(batch), two.assign(shuffled)
        for place, i in enumerate(order):
            assert mixed[place].keys() == straight[i].keys()
            assert all(mixed[place][agent].tolist() == straight[i][agent].tolist() for agent in straight[i])
    assert one.state_dict() == two.state_dict()


@pytest.mark.parametrize("options", EVERY, ids=str)
def test_state_survives_json(options):
    credit, resumed = make_credit(**options), make_credit(**options)
    assert isinstance(credit, CreditAssigner)
    credit.assign(random_batch(0))
    resumed.load_state_dict(json.loads(json.dumps(credit.state_dict())))
    for expected, got in zip(credit.assign(random_batch(1)), resumed.assign(random_batch(1)), strict=True):
        assert {a: v.tolist() for a, v in expected.items()} == {a: v.tolist() for a, v in got.items()}
    other = make_credit("constant" if options["name"] != "constant" else "rae")
    with pytest.raises(ValueError, match="was saved by"):
        other.load_state_dict(credit.state_dict())


def test_errors_say_what_to_do():
    with pytest.raises(ValueError, match=r"unknown credit method 'hierarchical'.*did you mean 'hierarchical_grpo'"):
        make_credit("hierarchical")
    with pytest.raises(
        TypeError,
        match=r"'rae' has no option 'decey' \(did you mean 'decay'\?\); it takes decay, gamma, bias",
    ):
        make_credit("rae", decey=0.9)
    for name, options in [
        ("rae", {"decay": 1.0}),
        ("rae", {"gamma": 1.1}),
        ("grpo", {"singleton": "none"}),
        ("hierarchical_grpo", {"root_peers": "seed"}),
        ("same_prompt", {"pseudo_count": -1}),
        ("same_prompt", {"target": "reward"}),
        ("constant", {"value": float("nan")}),
    ]:
        with pytest.raises(ValueError, match=next(iter(options))):
            make_credit(name, **options)
    with pytest.raises(ValueError, match=r"agent 'first' of G \(seed 0\) has the return nan"):
        RAECredit().assign([match(float("nan"))])
