"""Negotiation: rewards are gains by one's own values, goods are conserved, what is left on the table is computed."""

import asyncio
import statistics
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import legos_envs
from legos_envs.games.negotiation import Negotiation, rank_rewards
from legos_envs.policies import make_policy
from legos_envs.testing import check_env

OPPOSITE = {"stock": [[0, 2], [2, 0]], "values": [[3, 1], [1, 3]]}


def started(options=OPPOSITE, **kwargs):
    env = Negotiation(**({"resources": 2} | kwargs))
    env.reset(seed=0, options=options)
    return env


def last(env, agent=None):
    return env.observe(agent or env.agent_selection)["messages"][-1]["content"]


def says(env, *texts):
    for text in texts:
        env.step(text)


def play(policies, seed, **kwargs):
    env = legos_envs.make("Negotiation-v0", **kwargs)
    made = {name: make_policy(policy, env) for name, policy in policies.items()}
    return asyncio.run(legos_envs.play(env, lambda d: (made.get(d.agent) or made["*"])(d), seed))


def test_a_game_by_hand():
    """Both begin with 2 worth 1 each; half of the swap brings each 4, all of it 6."""
    env = started(rounds=1)
    says(env, "[Offer: 1 Wood -> 1 Wheat]", "Gladly. [Accept]")
    assert env.ended and env._cumulative_rewards == {"player_0": 1, "player_1": 1}
    facts = env.infos["player_0"]
    assert (facts["welfare"], facts["gain"], facts["trades"]) == (2, 2, 1)
    assert (facts["pareto_optimal"], facts["pareto_gap"]) == (False, pytest.approx(2))
    assert facts["pareto_method"] == "enumeration"


def test_the_whole_swap_is_pareto_optimal():
    env = started(rounds=1)
    says(env, "[Offer: 2 Wood -> 2 Wheat]", "[Accept]")
    assert env._cumulative_rewards == {"player_0": 2, "player_1": 2}
    assert env.infos["player_1"]["pareto_optimal"] is True and env.infos["player_1"]["pareto_gap"] == 0


def test_losses_are_negative_and_winning_is_by_share():
    lopsided = {"stock": [[0, 4], [2, 0]], "values": [[1, 1], [1, 1]]}
    for outcome, rewards in (("gain", (-0.25, 0.5)), ("win_lose", (-1, 1))):
        env = started(lopsided, rounds=1, outcome=outcome)
        says(env, "[Offer: 2 Wood -> 1 Wheat]", "[Accept]")
        assert tuple(env._cumulative_rewards.values()) == rewards
        assert env.zero_sum == (outcome == "win_lose") and env.infos["player_0"]["welfare"] == 0.25


@given(st.lists(st.integers(-3, 3), min_size=2, max_size=8))
def test_ranks_are_zero_sum_and_fair(scores):
    rewards = rank_rewards(scores)
    assert sum(rewards) == pytest.approx(0) and all(-1 <= reward <= 1 for reward in rewards)
    for a, x in zip(scores, rewards):
        for b, y in zip(scores, rewards):
            assert (a < b) == (x < y)
    assert rank_rewards(list(range(5))) == [-1, -0.5, 0, 0.5, 1]


@pytest.mark.parametrize(("players", "rounds"), [(2, 1), (2, 4), (3, 2)])
def test_it_has_exactly_the_turns_it_says(players, rounds):
    env = started(None, num_players=players, rounds=rounds)
    for turn in range(players * rounds):
        assert not env.ended and env.agent_selection == f"player_{turn % players}"
        assert f"Round {turn // players + 1} of {rounds}." in last(env)
        env.step("Just talk." if turn % 2 else "[Done]")
    assert env.ended and not any(env.truncations.values())


def test_it_ends_when_all_are_done_one_after_the_other():
    env = started(None, num_players=3)
    says(env, "[Done]", "[Done]", "Wait!", "[Done]", "I am [Done]")
    assert not env.ended
    env.step("[Done]")
    assert env.ended and env._cumulative_rewards == dict.fromkeys(env.possible_agents, 0)


def test_an_offer_stands_until_it_is_answered():
    env = started()
    says(env, "[Offer: 1 Wood -> 1 Wheat]", "Let me think.", "Well?")
    assert "player_0 offers you 1 Wood for 1 Wheat." in last(env)
    env.step("[Accept]")
    assert env._market.stock == {"player_0": (1, 1), "player_1": (1, 1)}
    env.step("[Accept]")
    assert "no offer is open to you" in last(env, "player_0")


def test_deny_clears_the_offer_and_nobody_accepts_his_own():
    env = started()
    says(env, "[Offer: 1 Wood -> 1 Wheat]", "Hm.")
    assert "Your open offer: 1 Wood for 1 Wheat." in last(env)
    env.step("[Accept]")
    assert env.agent_selection == "player_0" and "no offer is open to you" in last(env)
    says(env, "ok", "[Deny]")
    assert "player_1 turns down the offer of player_0." in last(env) and "open offer" not in last(env)
    says(env, "so?", "[Accept]")
    assert "no offer is open to you" in last(env) and env._market.trades == 0


def test_an_offer_that_its_maker_cannot_cover_any_more_lapses():
    env = started({"stock": [[2, 0], [0, 2], [0, 2]], "values": [[1, 1]] * 3}, num_players=3)
    says(env, "[Offer: 2 Wheat -> 1 Wood]", "[Offer player_0: 1 Wood -> 1 Wheat]", "hm", "[Accept player_1]")
    assert "The offer of player_0 lapses." in last(env, "player_1")
    says(env, "well", "[Accept player_0]")
    assert env.agent_selection == "player_2" and "player_0 has made you no open offer" in last(env)
    assert env._market.stock == {"player_0": (1, 1), "player_1": (1, 1), "player_2": (0, 2)}


def test_an_offer_to_one_player_is_open_to_that_player_only():
    env = started({"stock": [[2, 0], [0, 2], [0, 2]], "values": [[1, 1]] * 3}, num_players=3)
    env.step("[Offer to player_2: 1 Wheat -> 1 Wood]")
    assert "player_0 offers player_2 1 Wheat for 1 Wood." in last(env) and "offers you" not in last(env)
    env.step("[Accept]")
    assert "no offer is open to you" in last(env)
    env.step("Fine.")
    assert "player_0 offers you 1 Wheat for 1 Wood." in last(env) and last(env).count("player_0 offers") == 1
    env.step("[Accept]")
    assert "Trade: player_0 gives player_2 1 Wheat for 1 Wood." in last(env, "player_0")


def test_of_several_offers_one_must_be_named():
    env = started({"stock": [[2, 0], [2, 0], [0, 2]], "values": [[1, 1]] * 3}, num_players=3)
    says(env, "[Offer: 1 Wheat -> 1 Wood]", "[Offer: 2 Wheat -> 1 Wood]", "[Accept]")
    assert "name one of player_0, player_1" in last(env)
    env.step("[Accept player_1]")
    assert env._market.stock["player_2"] == (2, 1)


def menu(env):
    return last(env).split("\n")[-1].partition("may end with ")[2].split(" or ")


def test_accept_is_offered_for_what_can_be_covered_only():
    """The prompt named `[Accept]` where it was an invalid move."""
    env = started()
    assert menu(env) == ["[Offer: ... -> ...]", "[Done]"]
    env.step("[Offer: 1 Wood -> 3 Wheat]")
    assert menu(env) == ["[Offer: ... -> ...]", "[Deny]", "[Done]"]
    says(env, "No.", "[Offer: 1 Wood -> 2 Wheat]")
    assert menu(env) == ["[Offer: ... -> ...]", "[Accept]", "[Deny]", "[Done]"]


def test_of_several_offers_the_menu_names_those_that_can_be_covered():
    stock = [[2, 0], [2, 0], [2, 0], [0, 2]]
    env = started({"stock": stock, "values": [[1, 1]] * 4}, num_players=4, action_format="boxed")
    for number in (1, 3, 2):
        env.step(f"\\boxed{{Offer: 1 Wheat -> {number} Wood}}")
    accepts = [r"\boxed{Accept player_0}", r"\boxed{Accept player_2}"]
    assert menu(env) == [r"\boxed{Offer: ... -> ...}", *accepts, r"\boxed{Deny}", r"\boxed{Done}"]


@pytest.mark.parametrize(("outcome", "reader"), [("gain", "Your reward is"), ("win_lose", "Players are ranked by")])
def test_the_rules_state_the_reward(outcome, reader):
    assert f"{reader} (worth at the end - worth at the start) / worth at the start;" in last(started(outcome=outcome))


def test_talk_is_heard_by_all_and_own_words_stand_in_self_contained_prompts():
    for memory in ("chat", "state"):
        env = started(None, num_players=3, memory=memory)
        env.step("<think>secret</think>I need Wood.\nBadly.")
        assert "\nplayer_0: I need Wood. Badly.\n" in last(env)
        says(env, "Me too.")
        assert "player_0: I need Wood. Badly.\nplayer_1: Me too.\n" in last(env) and "secret" not in last(env)
        env.step("[Deny]")
        assert ("player_0: I need" in last(env)) == (memory == "state")


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), players=st.integers(2, 4), kinds=st.integers(2, 5), outcome=st.booleans())
def test_random_play_conserves_goods_and_pays_gains(seed, players, kinds, outcome):
    env = Negotiation(players, kinds, rounds=3, outcome="win_lose" if outcome else "gain", values=(1, 4))
    policy = make_policy("random", env)
    env.reset(seed=seed)
    market = env._market
    start, worth = dict(market.stock), dict(market.start)
    turns = 0
    while not env.ended:
        agent = env.agent_selection
        env.step(policy(legos_envs.Decision(agent, agent, env.observe(agent), env.infos[agent], turns, seed)))
        turns += 1
        assert [sum(n) for n in zip(*market.stock.values())] == [sum(n) for n in zip(*start.values())]
        assert all(n >= 0 for goods in market.stock.values() for n in goods)
    assert "outcome" not in env.infos["player_0"] and turns == 3 * players
    shares = {a: (market.worth(a) - worth[a]) / worth[a] for a in market.players}
    assert env.infos["player_0"]["welfare"] == pytest.approx(sum(shares.values()))
    paid = {a: env._returns[a] for a in market.players}
    if outcome:
        assert sum(paid.values()) == pytest.approx(0)
        assert max(paid, key=paid.get) == max(shares, key=shares.get)
    else:
        assert paid == pytest.approx(shares)


def test_large_games_use_a_linear_program_and_without_scipy_say_none(monkeypatch):
    def facts():
        env = Negotiation(num_players=4, resources=4, rounds=1)
        env.reset(seed=1)
        says(env, *["pass"] * 4)
        return {key: env.infos["player_0"][key] for key in ("pareto_optimal", "pareto_gap", "pareto_method", "welfare")}

    found = facts()
    assert found["pareto_method"] == "linear_program" and found["pareto_gap"] > 0 and found["pareto_optimal"] is False
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    assert facts() == {"pareto_optimal": None, "pareto_gap": None, "pareto_method": None, "welfare": 0}
    env = Negotiation(num_players=4, resources=4, rounds=1, weights={"efficiency": 1})
    env.reset(seed=1)
    with pytest.raises(ImportError, match="rewarding efficiency in a market this large needs scipy"):
        says(env, *["pass"] * 4)


def test_the_goods_of_others_change_nothing_of_what_one_sees():
    seen = set()
    for other in (1, 4):
        env = started({"stock": [[2, 3], [other, 5]], "values": [[1, 2], [other, 3]]})
        assert f"{other} Wheat worth {other} each" in env.private_texts("player_1")[0]
        says(env, "[Offer: 1 Wheat -> 1 Wood]", "[Accept]")
        seen.add(str(env.observe("player_0")))
    assert len(seen) == 1


def test_the_turn_limit_settles_by_gain():
    env = started(max_turns=2)
    says(env, "[Offer: 1 Wood -> 1 Wheat]", "[Accept]")
    assert all(env.truncations.values()) and env._cumulative_rewards == {"player_0": 1, "player_1": 1}


@pytest.mark.slow
def test_a_trader_never_loses_gains_with_its_like_and_beats_random():
    pairs = [play({"*": "scripted:trader"}, seed).returns for seed in range(80)]
    assert min(min(returns.values()) for returns in pairs) >= 0
    gains = [sum(returns.values()) for returns in pairs]
    assert statistics.mean(gains) - 1.96 * statistics.stdev(gains) / 80**0.5 > 0.15
    greed = [sum(play({"*": "scripted:greedy"}, seed).returns.values()) for seed in range(80)]
    margins = [a - b for a, b in zip(gains, greed)]  # the same deals
    assert statistics.mean(margins) - 1.96 * statistics.stdev(margins) / 80**0.5 > 0.1
    won = [play({"player_1": "scripted:trader", "*": "random"}, s, outcome="win_lose").returns for s in range(80)]
    mean, error = (f([r["player_1"] for r in won]) for f in (statistics.mean, statistics.stdev))
    assert mean - 1.96 * error / 80**0.5 > 0.3, f"{mean:.3f}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "kwargs",
    [
        {"num_players": 3, "rounds": 2, "resources": 2},
        {"memory": "state", "outcome": "win_lose", "action_format": "boxed", "rounds": 2},
    ],
)
def test_variants_keep_the_laws(kwargs):
    skip = ("seed.process", "copy.pickle", "copy.deepcopy", "copy.restore")
    check_env("Negotiation-v0", episodes=10, skip=skip, raise_on_failure=True, **kwargs)


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_players": 1},
        {"num_players": 9},
        {"resources": 1},
        {"resources": ["Ore", "ore"]},
        {"rounds": 0},
        {"quantities": 5},
        {"quantities": (0, 5)},
        {"quantities": (5, 4)},
        {"values": (1, 2, 3)},
        {"values": (1.5, 2)},
        {"outcome": "win"},
    ],
)
def test_bad_arguments_are_refused(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"{name} must be"):
        Negotiation(**wrong)


def test_bad_options_are_refused():
    for name in ("stock", "values"):
        with pytest.raises(ValueError, match=f"option {name} must be"):
            started({name: [[1, 2]]})
    with pytest.raises(ValueError, match="leave player_1 with nothing of value"):
        started({"stock": [[1, 1], [0, 1]], "values": [[1, 1], [1, 0]]})


# --- rewards by weight -----------------------------------------------------------------------------------------------

LOSS = {"stock": [[0, 4], [2, 0]], "values": [[1, 1], [1, 1]]}


@pytest.mark.parametrize(
    ("market", "said", "gain", "efficiency", "fairness"),
    [
        (OPPOSITE, ("[Offer: 2 Wood -> 2 Wheat]", "[Accept]"), (2, 2), 1, 2),
        (OPPOSITE, ("[Offer: 1 Wood -> 1 Wheat]", "[Accept]"), (1, 1), 0.5, 1),
        (OPPOSITE, ("[Offer: 2 Wood -> 1 Wheat]", "[Accept]"), (0.5, 2.5), 1, 0.5),
        (OPPOSITE, ("Hm.", "No."), (0, 0), 0, 0),
        (LOSS, ("[Offer: 2 Wood -> 1 Wheat]", "[Accept]"), (-0.25, 0.5), 1, -0.25),
        (LOSS, ("[Offer: 1 Wood -> 2 Wheat]", "[Accept]"), (0.25, -0.5), 0, -0.5),
        (LOSS, ("Hm.", "No."), (0, 0), 1, 0),
    ],
)
def test_efficiency_and_fairness_can_be_paid(market, said, gain, efficiency, fairness):
    for weights in ({}, {"efficiency": 2}, {"gain": 0, "fairness": 1}, {"gain": 3, "efficiency": 1, "fairness": 0.5}):
        env = started(market, rounds=1, weights=weights)
        says(env, *said)
        facts = env.infos["player_0"]
        assert (facts["efficiency"], facts["fairness"]) == (pytest.approx(efficiency), fairness)
        common = weights.get("efficiency", 0) * efficiency + weights.get("fairness", 0) * fairness
        expected = [weights.get("gain", 1) * own + common for own in gain]
        assert list(env._cumulative_rewards.values()) == pytest.approx(expected)


def test_players_are_told_what_is_paid():
    assert "Your reward is (worth at the end" in last(started())
    told = last(started(weights={"gain": 0.5, "fairness": 2}))
    assert "Your reward is 0.5 times your own gain plus 2 times the smallest gain of all players." in told


def test_garbage_is_no_way_out_of_a_bad_trade():
    for weights, cost in ((None, 1), ({"efficiency": 9}, 1), ({"gain": 10}, 10), ({"gain": 0.5, "fairness": 3}, 3.5)):
        assert Negotiation(weights=weights).invalid_reward == -cost
    assert Negotiation(weights={"gain": 10}, invalid_reward=-2).invalid_reward == -2


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"weights": {"pareto": 1}}, "weight 'pareto' is unknown"),
        ({"weights": {"fairnes": 1}}, "Did you mean 'fairness'"),
        ({"weights": {"fairness": -1}}, "weight fairness must be a finite number from 0"),
        ({"weights": {"gain": 0}}, "one of the weights must be above 0"),
        ({"weights": {"efficiency": 1}, "outcome": "win_lose"}, "weights are for outcome 'gain'"),
    ],
)
def test_weights_are_checked(kwargs, message):
    with pytest.raises(ValueError, match=message):
        Negotiation(**kwargs)
