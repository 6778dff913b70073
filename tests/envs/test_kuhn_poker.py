"""Kuhn poker: payoffs, matches, and what the ancestors got wrong about both."""

import re
from collections import Counter
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

import legos_envs
from legos_envs import exact
from legos_envs.game import info_set
from legos_envs.games.kuhn_poker import KuhnPoker, KuhnPokerGame, kuhn_nash
from legos_envs.testing.pages import page

# What the first player wins, for each deal (first player's card first) and each way a hand can go.
WAYS = ("check check", "bet call", "bet fold", "check bet call", "check bet fold")
PAYOFFS = {
    "JQ": (-1, -2, 1, -2, -1),
    "JK": (-1, -2, 1, -2, -1),
    "QJ": (1, 2, 1, 2, -1),
    "QK": (-1, -2, 1, -2, -1),
    "KJ": (1, 2, 1, 2, -1),
    "KQ": (1, 2, 1, 2, -1),
}


def play_hand(cards, way):
    env = KuhnPoker()
    env.reset(seed=0, options={"cards": cards})
    for number, move in enumerate(way.split()):
        assert env.agent_selection == f"player_{number % 2}"
        env.step(f"[{move}]")
    assert env.ended
    return env._cumulative_rewards


@pytest.mark.parametrize(
    ("cards", "way", "won"), [(cards, way, won) for cards in PAYOFFS for way, won in zip(WAYS, PAYOFFS[cards])]
)
def test_all_terminal_payoffs(cards, way, won):
    assert play_hand(cards, way) == {"player_0": won, "player_1": -won}


def test_folding_to_a_bluff_costs_one_chip_and_losing_a_call_costs_two():
    """In the ancestors bets and calls never entered the pot, so both cost the same."""
    assert play_hand("QJ", "check bet fold")["player_0"] == -1
    assert play_hand("QK", "check bet call")["player_0"] == -2
    assert play_hand("KQ", "bet fold")["player_1"] == -1
    assert play_hand("KQ", "bet call")["player_1"] == -2


def test_there_are_no_other_ways_for_a_hand_to_go():
    game = KuhnPokerGame()
    ends, open_states = [], [state for _, state in game.initial()]
    while open_states:
        state = open_states.pop()
        if game.player(state) is None:
            ends.append(" ".join(state[1]))
        else:
            open_states += [game.next(state, move) for move in game.legal(state)]
    assert Counter(ends) == dict.fromkeys(WAYS, 6)


def test_uniform_play_has_nashconv_eleven_twelfths():
    assert exact.nash_conv(KuhnPokerGame(), exact.uniform) == pytest.approx(float(Fraction(11, 12)), abs=1e-12)


@pytest.mark.parametrize("alpha", [0, 0.05, 1 / 6, 0.25, 1 / 3])
def test_the_equilibrium_family(alpha):
    game = KuhnPokerGame()
    assert exact.nash_conv(game, lambda infoset: kuhn_nash(infoset, alpha)) == pytest.approx(0, abs=1e-12)
    value = exact.expected_returns(game, lambda infoset: kuhn_nash(infoset, alpha))
    assert value == pytest.approx((-1 / 18, 1 / 18), abs=1e-12)


def test_bluffing_more_than_the_family_allows_can_be_exploited():
    def too_bold(infoset):
        jack_begins = infoset.view.endswith("Moves: none. Your card: J.")
        return {"check": 0.5, "bet": 0.5} if jack_begins else kuhn_nash(infoset, 1 / 3)

    assert exact.nash_conv(KuhnPokerGame(), too_bold) > 0.01


def test_every_deal_comes_equally_often():
    env = KuhnPoker()
    deals = Counter()
    for seed in range(1200):
        env.reset(seed=seed)
        first = shown_card(env, "player_0")
        env.step("[check]")
        deals[first + shown_card(env, "player_1")] += 1
    assert set(deals) == set(PAYOFFS)
    assert all(abs(count - 200) < 65 for count in deals.values())  # five standard deviations


def shown_card(env, agent):
    return re.findall(r"Your card: ([JQK])", env.observe(agent)["messages"][-1]["content"])[-1]


@given(
    seed=st.integers(0, 2**31), rounds=st.integers(2, 8), choices=st.lists(st.integers(0, 1), min_size=24, max_size=24)
)
def test_the_chip_leader_wins_the_match(seed, rounds, choices):
    """The ancestor gave the match to the winner of its last round, wrong in 28.7 % of random matches."""
    env = KuhnPoker(num_rounds=rounds)
    env.reset(seed=seed)
    hands = [[] for _ in range(rounds)]
    cards = [{} for _ in range(rounds)]
    while not env.ended:
        agent = env.agent_selection
        text = env.observe(agent)["messages"][-1]["content"]
        number = int(re.findall(r"Round (\d+) of", text)[-1]) - 1
        cards[number][agent] = shown_card(env, agent)
        action = env.infos[agent]["legal_actions"][choices[len(env.log)]]
        hands[number].append((agent, action.strip("[]")))
        env.step(action)
    chips = Counter(player_0=0, player_1=0)
    for number, hand in enumerate(hands):
        first, second = f"player_{number % 2}", f"player_{1 - number % 2}"
        assert hand[0][0] == first, "the first move alternates"
        won = PAYOFFS[cards[number][first] + cards[number][second]][WAYS.index(" ".join(move for _, move in hand))]
        chips[first] += won
        chips[second] -= won
    sign = (chips["player_0"] > chips["player_1"]) - (chips["player_0"] < chips["player_1"])
    assert env._cumulative_rewards == {"player_0": sign, "player_1": -sign}
    assert {agent: env.infos[agent]["chips"] for agent in chips} == dict(chips)


def test_winning_the_last_round_does_not_win_the_match():
    """Two chips up after the first round, one down in the second: ahead all the same."""
    env = KuhnPoker(num_rounds=2)
    env.reset(seed=0, options={"cards": "KQ"})
    for action in ("[bet]", "[call]", "[bet]", "[fold]"):
        env.step(action)
    assert env.ended and env.log[-1] == ("player_0", "[fold]")
    assert env._cumulative_rewards == {"player_0": 1, "player_1": -1}
    assert [env.infos[agent]["chips"] for agent in env.possible_agents] == [1, -1]


def test_the_spiral_setting():
    env = KuhnPoker(num_rounds=5, preset="spiral")
    env.reset(seed=0)
    env.step("[check]")
    env.step("I would rather not say.")
    assert env.ended and env.infos["player_0"]["outcome"] == "invalid"
    assert env._cumulative_rewards == {"player_0": 0.5, "player_1": -1.5}


def hand_results(first, second):
    """What the first player wins in one hand: probabilities by chips."""
    game, results = KuhnPokerGame(), Counter()
    open_states = [(state, chance) for chance, state in game.initial()]
    while open_states:
        state, chance = open_states.pop()
        player = game.player(state)
        if player is None:
            results[game.returns(state)[0]] += chance
            continue
        for move, probability in (first, second)[player](info_set(game, state)).items():
            open_states.append((game.next(state, move), chance * probability))
    return results


def match_value(policies, rounds):
    """The expected return of player 0 in a match, exactly."""
    chips = {0: 1.0}
    for number in range(rounds):
        first = number % 2
        results, after = hand_results(policies[first], policies[1 - first]), Counter()
        for (level, p), (won, q) in product(chips.items(), results.items()):
            after[level + (won if first == 0 else -won)] += p * q
        chips = after
    return sum(p * ((level > 0) - (level < 0)) for level, p in chips.items())


def test_the_expected_returns_of_matches_on_the_page_are_exact():
    players = {
        "random": exact.uniform,
        "scripted:always_bet": lambda infoset: {"call" if "call" in infoset.legal else "bet": 1.0},
    }
    claims = [claim for claim in page("KuhnPoker-v0").claims if claim.arguments]
    assert len(claims) == 2
    for claim in claims:
        policies = [players[claim.players.get(agent) or claim.players["*"]] for agent in KuhnPoker.seats]
        value = match_value(policies, claim.arguments["num_rounds"])
        assert claim.returns == pytest.approx({"player_0": value, "player_1": -value}, abs=5.1e-5)


def test_each_player_sees_its_own_card():
    for cards in PAYOFFS:
        env = KuhnPoker()
        env.reset(seed=1, options={"cards": cards})
        assert shown_card(env, "player_0") == cards[0]
        env.step("[check]")
        assert shown_card(env, "player_1") == cards[1]


def test_the_other_card_changes_nothing_of_what_a_player_sees():
    for own in "JQK":
        seen = set()
        for cards in PAYOFFS:
            if cards[0] == own:
                env = KuhnPoker()
                env.reset(seed=1, options={"cards": cards})
                env.step("[check]")
                env.step("[bet]")
                seen.add(str(env.observe("player_0")))
        assert len(seen) == 1


@pytest.mark.parametrize("cards", ["KK", "K", "AQ", "KQJ", 3])
def test_bad_cards_are_refused(cards):
    with pytest.raises(ValueError, match="two different letters"):
        legos_envs.make("KuhnPoker-v0").reset(seed=0, options={"cards": cards})


@pytest.mark.parametrize("rounds", [0, 101, 2.0, "3", True])
def test_bad_round_numbers_are_refused(rounds):
    with pytest.raises(ValueError, match="num_rounds must be a whole number from 1 to 100"):
        KuhnPoker(num_rounds=rounds)
