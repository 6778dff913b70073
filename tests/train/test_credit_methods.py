"""Numbers worked by hand for the methods beyond RAE and GRPO, settings, and credit per environment."""

from __future__ import annotations

import json
import pickle

import pytest

from legos_envs.records import Turn
from legos_train import CreditAssigner
from legos_train.credit import METHODS, CreditSettings, PerEnv
from legos_train.credit.agent_turn import AgentTurnCredit
from legos_train.credit.assigner import Gamma, PromptKeys
from legos_train.credit.constant import ConstantCredit
from legos_train.credit.gigpo import GiGPOCredit
from legos_train.credit.group import GRPOCredit, HierarchicalGRPOCredit
from legos_train.credit.maxrl import MaxRLCredit
from legos_train.credit.methods import declared_options, options_of
from legos_train.credit.rae import RAECredit
from legos_train.credit.reinforce import ReinforceCredit
from legos_train.credit.rloo import RLOOCredit
from legos_train.credit.role_norm import PerRoleNormCredit, TurnLevelCredit
from tests.train.credit_episodes import episode, match


def firsts(out, agent="first"):
    return [float(o[agent][0]) for o in out]


def solo(*rewards, group=0, **options):
    """One agent `p` that reads `s0`, `s1` ... in turn."""
    return episode({"p": ("p", [(f"s{i}", r) for i, r in enumerate(rewards)])}, group=group, **options)


def test_every_option_of_a_method_is_a_setting_with_its_default():
    settings, seen = CreditSettings(), set()
    for name in METHODS:
        for option, parameter in options_of(name).items():
            seen.add(option)
            assert parameter.default == getattr(settings, option), (name, option)
            assert f"`{name}`" in CreditSettings.model_fields[option].description
    assert seen | {"name", "roles", "return_scale"} == set(CreditSettings.model_fields)
    assert CreditSettings(name="constant", value=-2.0, return_scale="none").make().value == -2.0
    assert pickle.loads(pickle.dumps(CreditSettings(std=True))) == CreditSettings(std=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("std: float = 0.5", "credit option 'std' is float = 0.5 in 'other', but bool = False in 'agent_turn'; give"),
        (
            "gamma: Gamma = 0.5",
            "credit option 'gamma' is float = 0.5 in 'other', but float = 1.0 in 'agent_turn'; give",
        ),
        ("odds", "credit 'other': the option 'odds' needs a default"),
    ],
)
def test_an_option_of_several_methods_is_declared_alike(monkeypatch, options, message):
    space = {"Gamma": Gamma}
    exec(f"class Other:\n    def __init__(self, {options}): ...", space)
    monkeypatch.setitem(METHODS, "other", space["Other"])
    with pytest.raises(TypeError, match=message):
        declared_options()


def test_rloo_by_hand():
    out = RLOOCredit(singleton="zero").assign(
        [match(r, group=0) for r in (1, 1, 0)] + [match(4, group=1), match(2, group=1)]
    )
    assert firsts(out) == [0.5, 0.5, -1.0, 2.0, -2.0] and firsts(out, "second") == [-0.5, -0.5, 1.0, -2.0, 2.0]
    assert out[0]["first"].tolist() == [0.5, 0.5]


def test_rloo_is_grpo_times_n_over_n_minus_1():
    batch = [match(r, group=0) for r in (3.0, -1.0, 0.5, 2.0)]
    assert firsts(RLOOCredit(singleton="zero").assign(batch)) == pytest.approx(
        [4 / 3 * a for a in firsts(GRPOCredit(singleton="zero").assign(batch))]
    )


def test_rloo_leaves_the_whole_episode_out():
    def bids(a, b):
        return episode({"a": ("bidder", [("bid", a)]), "b": ("bidder", [("bid", b)])}, group=0)

    first, second = RLOOCredit(singleton="zero").assign([bids(1.0, -1.0), bids(4.0, -2.0)])
    assert first["a"].tolist() == [0.0] and first["b"].tolist() == [-2.0]  # minus the mean of 4 and -2
    assert second["a"].tolist() == [4.0] and second["b"].tolist() == [-2.0]


def test_rloo_alone_is_zero_or_rae():
    assert firsts(RLOOCredit(singleton="zero").assign([match(5.0, group=0), match(1.0, group=1)])) == [0.0, 0.0]
    warm = RLOOCredit(singleton="rae", decay=0.5)
    assert firsts(warm.assign([match(1.0, group=0)])) == [1.0]
    assert firsts(warm.assign([match(3.0, group=0)])) == [2.0]


def test_maxrl_by_hand():
    out = MaxRLCredit().assign([solo(r) for r in (1, 1, 0)])
    assert [float(o["p"][0]) for o in out] == pytest.approx([0.5, 0.5, -1.0])
    rare = MaxRLCredit().assign([solo(r) for r in (1, 0, 0, 0)])
    assert [float(o["p"][0]) for o in rare] == [3.0, -1.0, -1.0, -1.0]


def test_maxrl_where_the_mean_is_not_positive():
    for rewards in ((0, 0), (-1, -3), (0, -2)):  # nothing succeeded
        out = MaxRLCredit().assign([solo(r) for r in rewards])
        assert [float(o["p"][0]) for o in out] == [0.0, 0.0]
    out = MaxRLCredit().assign([solo(r) for r in (1, -0.999)])  # the plain quotient would be 1999 and -1999
    assert [float(o["p"][0]) for o in out] == [1.0, -1.0]
    assert MaxRLCredit().assign([solo(1)])[0]["p"].tolist() == [0.0]


def test_per_role_norm_by_hand():
    def lopsided(first, second):
        return episode({"first": ("first", [("a", 0.0), ("b", first)]), "second": ("second", [("c", second)])})

    out = PerRoleNormCredit().assign([lopsided(3, 10), lopsided(1, -10), lopsided(2, 30)])
    # first: mean 2, std sqrt(2/3); second: mean 10, std sqrt(800/3)
    assert firsts(out) == pytest.approx([1.5**0.5, -(1.5**0.5), 0.0], abs=1e-5)
    assert firsts(out, "second") == pytest.approx([0.0, -20 / (800 / 3) ** 0.5, 20 / (800 / 3) ** 0.5], abs=1e-5)
    assert out[0]["first"].tolist() == [out[0]["first"][0]] * 2
    assert firsts(PerRoleNormCredit().assign([lopsided(3, 1), lopsided(3, 2)])) == [0.0, 0.0]


def test_turn_level_by_hand():
    # Returns-to-go 3, 2, 2 and 1: mean 2, std sqrt(1/2).
    one, two = TurnLevelCredit().assign([solo(1, 2), solo(1, 1)])
    root = 2**0.5
    assert one["p"].tolist() == pytest.approx([root, 0.0], abs=1e-5)
    assert two["p"].tolist() == pytest.approx([0.0, -root], abs=1e-5)
    half, other = TurnLevelCredit(gamma=0.5).assign([solo(1, 2), solo(0, 0)])  # 2, 2, 0, 0
    assert half["p"].tolist() == pytest.approx([1, 1], abs=1e-5)
    assert other["p"].tolist() == pytest.approx([-1, -1], abs=1e-5)


def test_turn_level_is_per_role_norm_with_one_reward_at_the_end():
    batch = [match(r) for r in (1.0, -1.0, 0.5)]
    for a, b in zip(TurnLevelCredit().assign(batch), PerRoleNormCredit().assign(batch), strict=True):
        assert all(a[agent].tolist() == pytest.approx(b[agent].tolist()) for agent in b)


def test_agent_turn_by_hand():
    # To go: [6, 5, 4], [2, 1], [1]: turn 0 has 6, 2, 1 (mean 3), turn 1 has 5, 1 (mean 3), turn 2 only 4.
    batch = [solo(1, 1, 4), solo(1, 1), solo(1)]
    out = [o["p"].tolist() for o in AgentTurnCredit(singleton="zero").assign(batch)]
    assert out == [[3.0, 2.0, 0.0], [-1.0, -2.0], [-2.0]]
    scaled = AgentTurnCredit(std=True, singleton="zero").assign(batch)[0]["p"]
    assert scaled[:2].tolist() == pytest.approx([3 / (14 / 3) ** 0.5, 1.0], abs=1e-5) and scaled[2] == 0.0
    assert AgentTurnCredit(gamma=0.5, singleton="zero").assign([solo(1, 2), solo(0, 0)])[0]["p"].tolist() == [1.0, 1.0]


def test_agent_turn_falls_back_where_a_turn_has_no_peer():
    credit = AgentTurnCredit(singleton="rae", decay=0.5)
    assert credit.assign([solo(1, 3)])[0]["p"].tolist() == [4.0, 3.0]  # cold: b = 0
    assert credit.baselines("G", "p") == 3.5  # the mean return-to-go
    out = [o["p"].tolist() for o in credit.assign([solo(1, 3), solo(2)])]
    assert out == [[1.0, -0.5], [-1.0]]


def test_gigpo_by_hand():
    # Episode: returns 4 and 0, mean 2. Steps: `s` is read three times with 4, 3 and 0 to go (mean 7/3), `t` once.
    a = episode({"p": ("p", [("s", 1.0), ("s", 3.0)])}, group=0)
    b = episode({"p": ("p", [("s", 0.0), ("t", 0.0)])}, group=0)
    one, two = GiGPOCredit(singleton="zero").assign([a, b])
    assert one["p"].tolist() == pytest.approx([2 + 5 / 3, 2 + 2 / 3]) and two["p"].tolist() == pytest.approx(
        [-2 - 7 / 3, -2]
    )
    one, two = GiGPOCredit(step_weight=0.5, gamma=0.5, singleton="zero").assign([a, b])  # 2.5, 3, 0: mean 11/6
    assert one["p"].tolist() == pytest.approx([2 + 1 / 3, 2 + 7 / 12])
    one, two = GiGPOCredit(std=True, singleton="zero").assign([a, b])
    spread = ((25 + 4 + 49) / 27) ** 0.5
    assert one["p"].tolist() == pytest.approx([1 + 5 / 3 / spread, 1 + 2 / 3 / spread], abs=1e-5)
    batch = [match(r, group=0) for r in (1.0, -1.0, 2.0)]
    without = GiGPOCredit(step_weight=0.0, singleton="zero").assign(batch)
    assert [o["first"].tolist() for o in without] == [
        o["first"].tolist() for o in GRPOCredit(singleton="zero").assign(batch)
    ]


def test_gigpo_keeps_groups_roles_and_envs_apart():
    batch = [solo(1), solo(3, group=1), solo(5, env="H"), episode({"q": ("q", [("s0", 9.0)])}, group=0)]
    assert [float(next(iter(o.values()))[0]) for o in GiGPOCredit(singleton="zero").assign(batch)] == [0.0] * 4


def test_reinforce_is_the_return():
    (out,) = ReinforceCredit().assign([match(4.0)])
    assert out["first"].tolist() == [4.0, 4.0] and out["second"].tolist() == [-4.0]
    assert ReinforceCredit(gamma=0.5).assign([match(4.0)])[0]["first"].tolist() == [2.0, 4.0]


def bracket(*results, prefix=""):
    agents = {}
    for k, result in enumerate(results):
        agents[f"{prefix}match_{k}/white"] = ("white", [("w", result)])
        agents[f"{prefix}match_{k}/black"] = ("black", [("b", -result)])
    return agents


def test_peers_across_sibling_tables():
    cup = episode(bracket(1.0, 1.0, -2.0), group=0)
    (alone,) = HierarchicalGRPOCredit(singleton="zero").assign([cup])
    assert all(float(v[0]) == 0.0 for v in alone.values())
    (out,) = HierarchicalGRPOCredit(peers="role", singleton="zero").assign([cup])
    assert [float(out[f"match_{k}/white"][0]) for k in range(3)] == [1.0, 1.0, -2.0]
    assert [float(out[f"match_{k}/black"][0]) for k in range(3)] == [-1.0, -1.0, 2.0]
    deep = episode(bracket(1.0, 3.0, prefix="round_0/") | bracket(7.0, 9.0, prefix="round_1/") | bracket(50.0))
    (out,) = HierarchicalGRPOCredit(peers="role", singleton="zero").assign(
        [deep]
    )  # only tables beside each other, not cousins
    assert [float(out[f"round_{r}/match_{k}/white"][0]) for r in (0, 1) for k in (0, 1)] == [-1.0, 1.0, -1.0, 1.0]
    assert float(out["match_0/white"][0]) == 0.0


def test_peers_across_tables_do_not_mix_episodes_or_depths():
    agents = {"a/x": ("x", [("p", 1.0)]), "a/b/x": ("x", [("p", 5.0)]), "y/x": ("x", [("p", 3.0)])}
    one, two = HierarchicalGRPOCredit(peers="role", singleton="zero").assign(
        [episode(agents), episode(bracket(8.0, 4.0))]
    )
    assert {k: float(v[0]) for k, v in one.items()} == {"a/x": -1.0, "a/b/x": 0.0, "y/x": 1.0}
    assert float(two["match_0/white"][0]) == 2.0


def test_per_env_routes_by_env_id():
    shared = RAECredit(decay=0.5)
    credit = PerEnv(GRPOCredit(singleton="zero"), {"A": shared, "B": shared, "C": ConstantCredit(0.25)})
    assert isinstance(credit, CreditAssigner)
    batch = [match(1.0, env="C"), match(3.0, env="A"), match(1.0, group=0), match(5.0, env="B"), match(3.0, group=0)]
    assert firsts(credit.assign(batch)) == [0.25, 3.0, -1.0, 5.0, 1.0]
    assert shared.baselines.as_dict().keys() == {"A", "B"} and shared.baselines("A", "first") == 3.0
    assert firsts(credit.assign([match(4.0, env="A")])) == [1.0]


def test_per_env_calls_each_method_once_a_batch_with_all_its_episodes():
    class Spy(ConstantCredit):
        def assign(self, episodes):
            calls.append([e.env_id for e in episodes])
            return super().assign(episodes)

    calls: list[list[str]] = []
    shared = Spy()
    credit = PerEnv(Spy(), {"A": shared, "B": shared, "unused": Spy()})
    credit.assign([match(1.0, env=env) for env in ("A", "x", "B", "y", "A")])
    assert calls == [["A", "B", "A"], ["x", "y"]]


def test_per_env_state():
    def fresh(**more):
        return PerEnv(RAECredit(), {"A": GRPOCredit(singleton="rae"), **more})

    credit, resumed = fresh(), fresh()
    credit.assign([match(1.0), match(3.0, env="A", group=0)])
    resumed.load_state_dict(json.loads(json.dumps(credit.state_dict())))
    batch = [match(2.0), match(5.0, env="A", group=0)]
    assert firsts(resumed.assign(batch)) == firsts(credit.assign(batch)) == [1.0, 2.0]
    with pytest.raises(ValueError, match=r"methods of its own for \['A'\] but this run for \['A', 'B'\]"):
        fresh(B=ConstantCredit()).load_state_dict(credit.state_dict())
    with pytest.raises(ValueError, match="saved by 'per_env'"):
        RAECredit().load_state_dict(credit.state_dict())


def test_settings_reach_every_method():
    settings = CreditSettings(
        name="gigpo",
        decay=0.5,
        gamma=0.75,
        pseudo_count=7.0,
        std=True,
        per_role=False,
        singleton="zero",
        peers="role",
        root_peers="batch",
        step_weight=0.25,
        return_scale="none",
    )
    assert settings.options() == {
        "step_weight": 0.25,
        "gamma": 0.75,
        "std": True,
        "singleton": "zero",
        "decay": 0.5,
    }
    gigpo = settings.make()
    assert isinstance(gigpo, GiGPOCredit) and (gigpo.step_weight, gigpo.gamma, gigpo.std) == (0.25, 0.75, True)
    tree = settings.make("hierarchical_grpo")
    assert isinstance(tree, HierarchicalGRPOCredit) and tree.across and tree.root_peers == "batch" and tree.std
    assert settings.options("same_prompt") == {
        "pseudo_count": 7.0,
        "gamma": 0.75,
        "decay": 0.5,
        "target": "to_go",
    }
    assert settings.options("grpo") == {"std": True, "per_role": False, "singleton": "zero", "decay": 0.5}
    for name in METHODS:
        assert CreditSettings(name=name, return_scale="none").make().state_dict()["method"] == name
        assert METHODS[name].__name__.lower() == f"{name.replace('_', '')}credit"
    with pytest.raises(ValueError, match=r"unknown credit method 'gipo'.*did you mean 'gigpo'"):
        settings.make("gipo")


@pytest.mark.parametrize("name", ["rloo", "maxrl", "agent_turn", "gigpo"])
def test_group_methods_need_a_group(name):
    with pytest.raises(ValueError, match=r"an episode of G \(seed 0\) has no group.*or use credit"):
        CreditSettings(name=name).make().assign([match(1.0)])


def test_options_out_of_range():
    for kind, options in [
        (GiGPOCredit, {"step_weight": -0.5}),
        (GiGPOCredit, {"gamma": 1.5}),
        (RLOOCredit, {"singleton": "mean"}),
        (AgentTurnCredit, {"gamma": float("nan")}),
        (TurnLevelCredit, {"gamma": -0.1}),
        (HierarchicalGRPOCredit, {"peers": "tables"}),
    ]:
        with pytest.raises(ValueError, match=next(iter(options))):
            kind(**options)


def test_equal_messages_have_equal_keys_whoever_holds_them() -> None:
    key_of, shared = PromptKeys(), {"role": "user", "content": "a"}
    first = key_of(Turn((shared, {"role": "assistant", "content": "b"}), "x"))
    assert key_of(Turn((dict(reversed(shared.items())), {"role": "assistant", "content": "b"}), "y")) == first
    others = [(shared,), (shared, shared), (shared, {"role": "user", "content": "b"}), ()]
    assert len({first, *(key_of(Turn(messages, "x")) for messages in others)}) == 5
