"""What holds for any episodes: sums of zero, behaviour under scale and shift, order, what is left out."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legos_train.credit import METHODS, CreditAssigner, make_credit
from legos_train.credit.methods import options_of
from tests.train.credit_episodes import episode

REWARD = st.integers(-8, 8).map(lambda n: n / 4)
TURNS = st.lists(st.tuples(st.sampled_from("abc"), REWARD), max_size=3)
EPISODE = st.tuples(
    st.dictionaries(st.sampled_from(["x", "y", "t0/x", "t0/y", "t1/x", "t1/u/x"]), TURNS, min_size=1, max_size=4),
    st.integers(0, 2),
    st.sampled_from("GH"),
)
BATCH = st.lists(EPISODE, min_size=1, max_size=8)
FEW = settings(max_examples=15, deadline=None)


def build(batch, scale=1.0, shift=0.0):
    """Episodes; `shift` is added to the last reward of every trajectory, so that it moves each return by as much."""
    made = []
    for seed, (agents, group, env) in enumerate(batch):
        rewarded = {
            agent: (
                agent.rpartition("/")[2],
                [(p, scale * r + shift * (i == len(turns) - 1)) for i, (p, r) in enumerate(turns)],
            )
            for agent, turns in agents.items()
        }
        made.append(episode(rewarded, env=env, group=group, seed=seed))
    return made


def flat(out):
    return [float(v) for advantages in out for agent in sorted(advantages) for v in advantages[agent]]


def bare(name: str, **options: Any) -> CreditAssigner:
    """A method without its fallback on a moving baseline, which would see more than the peers."""
    return make_credit(name, **({"singleton": "zero"} if "singleton" in options_of(name) else {}), **options)


@pytest.mark.quick(5)
@pytest.mark.parametrize("name", METHODS)
@given(batch=BATCH, data=st.data())
@FEW
def test_order_shape_and_state(name, batch, data):
    order = data.draw(st.permutations(range(len(batch))))
    one, two = bare(name), bare(name)
    for _ in range(2):  # the second time with whatever is remembered
        episodes = build(batch)
        straight, mixed = one.assign(episodes), two.assign([episodes[i] for i in order])
        assert [flat([mixed[place]]) for place in range(len(order))] == [flat([straight[i]]) for i in order]
        for played, advantages in zip(episodes, straight, strict=True):
            assert {a: len(v) for a, v in advantages.items()} == {
                a: len(t.turns) for a, t in played.trajectories.items() if t.turns
            }
        assert all(math.isfinite(v) for v in flat(straight))
    assert json.dumps(one.state_dict()) == json.dumps(two.state_dict())


@pytest.mark.parametrize("name", ["grpo", "gigpo", "per_role_norm", "maxrl", "hierarchical_grpo"])
@given(batch=BATCH)
@FEW
def test_the_advantages_of_peers_sum_to_zero(name, batch):
    """Over trajectories; `gigpo` without its step term, which is centred over other groups."""
    options = {"step_weight": 0.0} if name == "gigpo" else {}
    out = bare(name, **options).assign(build(batch))
    assert sum(float(v[0]) for advantages in out for v in advantages.values()) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("name", ["turn_level", "agent_turn"])
@given(batch=BATCH)
@FEW
def test_the_advantages_of_turns_sum_to_zero(name, batch):
    assert sum(flat(bare(name).assign(build(batch)))) == pytest.approx(0.0, abs=1e-9)


SCALE = st.sampled_from([0.5, 2.0, 8.0])  # powers of two, so that nothing is rounded


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "name", ["rae", "grpo", "hierarchical_grpo", "rloo", "same_prompt", "agent_turn", "gigpo", "reinforce"]
)
@given(batch=BATCH, scale=SCALE)
@FEW
def test_without_std_advantages_scale_with_the_rewards(name, batch, scale):
    plain, scaled = bare(name).assign(build(batch)), bare(name).assign(build(batch, scale))
    assert flat(scaled) == pytest.approx([scale * v for v in flat(plain)], abs=1e-9)


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("per_role_norm", {}),
        ("turn_level", {}),
        ("maxrl", {}),
        ("constant", {}),
        ("grpo", {"std": True}),
        ("agent_turn", {"std": True}),
        ("gigpo", {"std": True}),
    ],
)
@given(batch=BATCH, scale=SCALE)
@FEW
def test_with_std_advantages_do_not_depend_on_the_scale(name, options, batch, scale):
    plain = bare(name, **options).assign(build(batch))
    scaled = bare(name, **options).assign(build(batch, scale))
    assert flat(scaled) == pytest.approx(flat(plain), abs=2e-4)  # up to the epsilon beside the deviation


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "name", ["grpo", "hierarchical_grpo", "rloo", "per_role_norm", "turn_level", "agent_turn", "gigpo"]
)
@given(batch=BATCH, shift=st.sampled_from([-2.0, 0.25, 16.0]))
@FEW
def test_peer_methods_do_not_see_a_constant_added_to_every_return(name, batch, shift):
    plain, moved = bare(name).assign(build(batch)), bare(name).assign(build(batch, shift=shift))
    assert flat(moved) == pytest.approx(flat(plain), abs=1e-4)


@given(batch=BATCH)
@FEW
def test_maxrl_is_bounded_whatever_the_rewards(batch):
    out = flat(bare("maxrl").assign(build(batch)))
    assert all(-1.0 <= v <= 4 * len(batch) for v in out)


@pytest.mark.parametrize("value", [0.1, 0.7, 1 / 3, -2.3, 1e17])
@pytest.mark.parametrize("name", sorted(set(METHODS) - {"rae", "same_prompt", "reinforce", "constant"}))
def test_equal_returns_of_peers_give_exactly_nothing(name, value):
    """A mean that is off by rounding would leave every advantage at 1e-17: a group that looks as if it taught."""
    for size in (2, 3, 5, 6, 7, 49):
        equal = [episode({"x": ("x", [("a", value)])}, group=0, seed=seed) for seed in range(size)]
        assert set(flat(bare(name).assign(equal))) == {0.0}
