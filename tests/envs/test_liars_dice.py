"""Liar's dice: the single round against OpenSpiel and against hand-made cases, the match by its bookkeeping."""

import asyncio
import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

import legos_envs
from legos_envs import exact, parsing
from legos_envs.games.liars_dice import LiarsDice, likelihood
from legos_envs.games.liars_dice_round import LiarsDiceGame, higher, ladder, read_bid
from legos_envs.policies import make_policy
from legos_envs.testing import check_env

# OpenSpiel 2.0.2, liars_dice(numdice=1, dice_sides=FACES), the highest face wild: faces, NashConv and value of uniform.
OPEN_SPIEL = {2: (1.125, 0.125), 3: (1.1111111111111112, 0.0185185185), 4: (1.3101190476190476, -0.015625)}


def play(policies, seed=0, **kwargs):
    env = legos_envs.make("LiarsDice-v0", **kwargs)
    made = {name: make_policy(policy, env) for name, policy in policies.items()}
    return asyncio.run(legos_envs.play(env, lambda d: (made.get(d.agent) or made["*"])(d), seed))


@pytest.mark.parametrize("faces", OPEN_SPIEL)
def test_uniform_play_is_worth_what_open_spiel_says(faces):
    game = LiarsDiceGame((1, 1), faces, wild=True)
    nash_conv, value = OPEN_SPIEL[faces]
    assert exact.nash_conv(game, exact.uniform) == pytest.approx(nash_conv)
    assert exact.expected_returns(game, exact.uniform) == pytest.approx((value, -value))


def test_every_history_pays_as_in_open_spiel():
    pyspiel = pytest.importorskip("pyspiel")
    game = LiarsDiceGame((1, 1), 3, wild=True)
    names = {bid: action for action, bid in enumerate(higher(2, 3, None))} | {"call": 6}
    other = pyspiel.load_game("liars_dice", {"numdice": 1, "dice_sides": 3})
    ends = 0

    def compare(state, twin):
        nonlocal ends
        if game.player(state) is None:
            assert twin.is_terminal() and tuple(twin.returns()) == game.returns(state)
            ends += 1
            return
        assert game.player(state) == twin.current_player()
        assert sorted(names[move] for move in game.legal(state)) == twin.legal_actions()
        for move in game.legal(state):
            compare(game.next(state, move), twin.child(names[move]))

    for _, state in game.initial():
        twin = other.new_initial_state()
        for hand in state[0]:
            twin.apply_action(hand[0] - 1)
        compare(state, twin)
    assert ends == 9 * 63


def test_two_faces_by_hand():
    """Without wild faces: both have a 1 in 1/4, a 2 in 1/4, different dice in 1/2 of the deals."""
    game = LiarsDiceGame((1, 1), 2)
    assert higher(2, 2, None) == ("1x1", "1x2", "2x1", "2x2")
    # Calling at once the bid of one's own face never pays: it is true.
    honest = exact.expected_returns(
        game, lambda i: {f"1x{i.view.partition('dice: ')[2][0]}": 1} if "call" not in i.legal else {"call": 1}
    )
    assert honest == (1.0, -1.0)
    liar = exact.expected_returns(game, lambda i: {"2x1": 1} if "call" not in i.legal else {"call": 1})
    assert liar == pytest.approx((-0.5, 0.5))  # true in one deal of four
    assert exact.best_response(game, exact.uniform, 0)[0] + exact.best_response(game, exact.uniform, 1)[
        0
    ] == pytest.approx(exact.nash_conv(game, exact.uniform))


def test_the_deals_are_the_products_of_the_hands():
    deals = LiarsDiceGame((2, 1), 3).initial()
    assert len(deals) == 6 * 3 and math.fsum(chance for chance, _ in deals) == pytest.approx(1)
    assert dict((state[0], chance) for chance, state in deals)[(1, 2), (3,)] == pytest.approx(2 / 27)
    for counts, faces in (((1, 1), 3), ((2, 1), 2), ((1, 1, 1), 2)):
        game = LiarsDiceGame(counts, faces)
        assert len(exact.graph_of(game).states) == game.size
    with pytest.raises(ValueError, match="too large for exact"):
        LiarsDiceGame((5, 5)).initial()


@pytest.mark.parametrize(
    ("dice", "bids", "wild", "loser"),
    [
        ([[1, 3], [3, 6]], ["2x3", "call"], False, 1),  # true: the caller loses
        ([[1, 3], [3, 6]], ["3x3", "call"], False, 0),
        ([[1, 3], [3, 6]], ["3x3", "call"], True, 1),  # the 6 counts too
        ([[1, 3], [3, 6]], ["1x6", "2x6", "call"], True, 1),  # of 6s there is but one
        ([[1, 3], [3, 6]], ["1x6", "2x1", "call"], False, 1),  # a larger quantity may have a lower face
        ([[2, 2], [2, 2]], ["4x6", "call"], False, 0),  # nothing is higher
        ([[6, 6], [6, 6]], ["4x6", "call"], False, 1),
    ],
)
def test_who_loses_a_round(dice, bids, wild, loser):
    env = LiarsDice(dice=2, wild=wild, one_round=True)
    env.reset(seed=0, options={"dice": dice})
    for bid in bids:
        assert not env.ended
        env.step(f"[{bid}]")
    assert env.ended and env._cumulative_rewards[f"player_{loser}"] == -1
    assert env._cumulative_rewards[f"player_{1 - loser}"] == 1


def test_a_bid_must_be_higher_and_within_the_dice_in_play():
    env = LiarsDice(dice=2)
    env.reset(seed=0)
    assert "[call]" not in env.infos["player_0"]["legal_actions"]
    for said in ("[call]", "[5x1]", "[0x1]", "[1x7]", "[2 x 3]"):
        env.reset(seed=0)
        env.step(said)
        assert "is not legal now" in env.observe("player_0")["messages"][-1]["content"]
    env.reset(seed=0)
    env.step("I say [2x3].")
    legal = env.infos["player_1"]["legal_actions"]
    assert legal[:5] == ("[call]", "[2x4]", "[2x5]", "[2x6]", "[3x1]") and legal[-1] == "[4x6]"
    assert len(legal) == 3 + 2 * 6 + 1


@given(players=st.integers(2, 5), dice=st.integers(1, 3), faces=st.integers(2, 6), data=st.data())
def test_one_die_is_lost_a_round_until_one_player_is_left(players, dice, faces, data):
    env = LiarsDice(num_players=players, dice=dice, faces=faces)
    env.reset(seed=data.draw(st.integers(0, 10**6)))
    left, order, last = dict.fromkeys(range(players), dice), [], None
    turn, to_begin, bid, bidder = None, 0, None, None
    while not env.ended:
        seat = int(env.agent_selection.removeprefix("player_"))
        living = [s for s in (*range(to_begin, players), *range(to_begin)) if left[s]]
        assert seat == living[0] if bid is None else seat == turn
        assert env.agents == env.possible_agents
        legal = env.infos[env.agent_selection]["legal_actions"]
        total = sum(left.values())
        above = len(ladder(total, faces)) - (0 if bid is None else ladder(total, faces)[bid] + 1)
        assert len(legal) == above + (bid is not None)
        hands = dict(env._hands)
        move = parsing.bracketed(data.draw(st.sampled_from((legal[0], legal[-1], legal[len(legal) // 2]))))
        env.step(f"[{move}]")
        if move != "call":
            bid, bidder = move, seat
            turn = next(s for s in (*range(seat + 1, players), *range(seat + 1)) if left[s])
            continue
        quantity, face = read_bid(bid)
        loser = seat if sum(hand.count(face) for hand in hands.values()) >= quantity else bidder
        left[loser] -= 1
        last = bidder if loser == seat else seat
        bid, to_begin = None, loser
        if not left[loser]:
            order.append(loser)
    assert sum(left.values()) == left[last] >= 1
    ranked = [*order, last]
    assert sorted(ranked) == list(range(players))
    for rank, seat in enumerate(ranked):
        assert env._cumulative_rewards[f"player_{seat}"] == pytest.approx(2 * rank / (players - 1) - 1)
    assert env.infos["player_0"]["winner"] == f"player_{last}"
    assert env.infos["player_0"]["rounds"] == players * dice - left[last]


def test_prompts_of_one_round_are_information_sets():
    env = LiarsDice(dice=1, faces=2, one_round=True)
    prompts = {str(env.observation_in(infoset)) for infoset in exact.info_sets(env.game)}
    assert len(prompts) == len(exact.info_sets(env.game)) == 2 * 2**4  # the die, and which of four bids were made
    for seed in range(8):
        env.reset(seed=seed)
        while not env.ended:
            assert str(env.observe(env.agent_selection)) in prompts
            env.step(env.infos[env.agent_selection]["legal_actions"][seed % 2 - 1])


def test_many_bids_are_told_as_a_range():
    """15 players read 450 bids each turn."""
    env = LiarsDice(num_players=15)
    env.reset(seed=0)
    assert env.observe("player_0")["messages"][-1]["content"].endswith("\nMake any bid from 1x1 to 75x6.")
    assert len(env.infos["player_0"]["legal_actions"]) == 450
    env.step("[65x5]")  # 61 are left
    assert env.observe("player_1")["messages"][-1]["content"].endswith("bids: any bid from 65x6 to 75x6. Or call.")
    env.step("[65x6]")  # 60 are left
    said = env.observe("player_2")["messages"][-1]["content"].rpartition("\n")[2]
    assert said.startswith("Higher bids: 66x1 66x2 ") and said.endswith(" 75x6. Or call.") and len(said.split()) == 64


def test_nobody_sees_the_dice_of_others():
    seen = set()
    for other in ([1, 1], [2, 5], [3, 4]):
        env = LiarsDice(dice=2)
        env.reset(seed=0, options={"dice": [[3, 4], other]})
        assert env.private_texts("player_1") == [f"You are player 1. Your dice: {other[0]} {other[1]}."]
        env.step("[1x3]")
        env.step("[4x6]")
        env.step("[call]")  # what has lain under the cup stays there, only the count is told
        env.step("[1x1]")
        assert "0 matched" in str(env.observe("player_0"))
        seen.add(str(env.observe("player_0")))
    assert len(seen) == 1


def test_an_eliminated_player_has_no_private_texts_and_is_not_asked():
    env = LiarsDice(num_players=3, dice=1)
    env.reset(seed=0, options={"dice": [[1], [1], [1]]})
    env.step("[3x6]")
    env.step("[call]")  # player 0 is out; player 1 begins
    assert env.private_texts("player_0") == [] and env.agent_selection == "player_1"
    assert "player 0 loses a die and has 0" in env.observe("player_1")["messages"][-1]["content"].replace("P", "p")
    env.step("[1x1]")
    assert env.agent_selection == "player_2" and len(env.agents) == 3


def forfeited(outs, players=4, **kwargs):
    """What players get when 0, 1, ... are out, so many, and the next one forfeits."""
    env = LiarsDice(num_players=players, dice=1, invalid_retries=0, **kwargs)
    env.reset(seed=0, options={"dice": [[1]] * players})
    for gone in range(outs):
        env.step(f"[{players - gone}x6]")  # a lie
        env.step("[call]")
    assert env.agent_selection == f"player_{outs}"
    env.step("[nonsense]")
    assert env.ended and {info["outcome"] for info in env.infos.values()} == {"invalid"}
    assert env.infos["player_0"]["offenders"] == [f"player_{outs}"]
    return list(env._cumulative_rewards.values())


def test_who_is_out_gains_nothing_by_anothers_forfeit():
    """It got the share of an opponent, +0.5 of three, where its rank pays -1."""
    assert forfeited(1, players=3) == [-1, -1, 2]
    assert forfeited(0) == pytest.approx([-1, 1 / 3, 1 / 3, 1 / 3])
    assert forfeited(1) == pytest.approx([-1, -1, 1, 1])
    assert forfeited(2) == pytest.approx([-1, -1 / 3, -1, 7 / 3])
    assert forfeited(0, players=2) == [-1, 1]


def test_given_rewards_of_invalid_moves_hold_for_those_still_in():
    assert forfeited(1, preset="spiral") == [-1, -1.5, 0.5, 0.5]
    assert forfeited(1, invalid_reward=-3) == [-1, -3, 2, 2]
    assert forfeited(1, invalid_opponent_reward=0) == [-1, -1, 0, 0]


def test_bystanders_of_a_single_round_get_nothing():
    env = LiarsDice(num_players=3, dice=1, one_round=True)
    env.reset(seed=0, options={"dice": [[1], [1], [1]]})
    for said in ("[1x1]", "[2x1]", "[call]"):
        env.step(said)
    assert env._cumulative_rewards == {"player_0": 0, "player_1": 1, "player_2": -1}


def test_a_match_has_no_optimal_player():
    with pytest.raises(ValueError, match="played for as many rounds as it takes here"):
        make_policy("optimal", LiarsDice(dice=1, faces=2))
    with pytest.raises(ValueError, match="too large for exact evaluation"):
        make_policy("optimal", LiarsDice(one_round=True))


def test_only_a_single_small_round_counts_as_solvable():
    """`num_rounds == 1` is what the trainer looks at before it asks for exact numbers."""
    assert LiarsDice(one_round=True, dice=1).num_rounds == 1
    assert LiarsDice(one_round=True).num_rounds is None and LiarsDice(dice=1).num_rounds is None


def test_likelihood_by_hand():
    assert likelihood("1x3", (3,), 2, 6, False) == 1
    assert likelihood("2x3", (3,), 2, 6, False) == pytest.approx(1 / 6)
    assert likelihood("2x3", (3,), 2, 6, True) == pytest.approx(1 / 3)
    assert likelihood("1x6", (3, 3), 4, 6, False) == pytest.approx(1 - 25 / 36)
    assert likelihood("3x1", (2,), 2, 6, False) == 0


def test_careful_beats_random_by_a_margin():
    got = [play({"player_0": "scripted:careful", "*": "random"}, s, dice=1, one_round=True).returns for s in range(200)]
    mean, error = statistics.mean(r["player_0"] for r in got), statistics.stdev(r["player_0"] for r in got) / 200**0.5
    assert mean - 1.96 * error > 0.6, f"{mean:.3f} +- {1.96 * error:.3f}"
    matches = [play({"*": "scripted:careful", "player_1": "random"}, s, num_players=3, dice=2) for s in range(30)]
    assert statistics.mean(e.returns["player_1"] for e in matches) < -0.8


@pytest.mark.parametrize(
    "kwargs",
    [{"action_format": "boxed", "wild": True}, {"memory": "chat"}, {"one_round": True}, {"num_players": 4, "dice": 1}],
)
def test_careful_reads_every_kind_of_prompt(kwargs):
    for seed in range(3):
        episode = play({"*": "scripted:careful"}, seed, **kwargs)
        assert episode.outcome != "invalid" and not math.fsum(episode.returns.values())


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "kwargs",
    [
        {"num_players": 3, "dice": 1},
        {"num_players": 11, "dice": 1, "one_round": True},
        {"one_round": True, "dice": 1, "faces": 4},
    ],
)
def test_variants_keep_the_laws(kwargs):
    fast = ("play.legal", "seed.process", "copy.pickle", "copy.deepcopy", "copy.restore", "action.last")
    check_env("LiarsDice-v0", episodes=6, skip=fast, raise_on_failure=True, **kwargs)


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_players": 1},
        {"num_players": 16},
        {"dice": 0},
        {"dice": 11},
        {"faces": 1},
        {"wild": 2},
        {"one_round": "no"},
    ],
)
def test_bad_arguments_are_refused(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"{name} must be"):
        LiarsDice(**wrong)


@pytest.mark.parametrize("dice", [3, [[1, 2]], [[1, 2], [3]], [[1, 2], [3, 7]], [[1, 2], [3, 1.5]], "12"])
def test_bad_dice_are_refused(dice):
    with pytest.raises(ValueError, match="option dice must be"):
        LiarsDice(dice=2).reset(seed=0, options={"dice": dice})
