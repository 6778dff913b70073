"""Leduc poker: payoffs, information sets, published values, and OpenSpiel as an oracle where it is installed."""

from collections import Counter
from itertools import product

import pytest

from legos_envs import exact
from legos_envs.game import info_set
from legos_envs.games.leduc_poker import CARDS, Hand, LeducPoker, LeducPokerGame
from legos_envs.testing.pages import page

GAME = LeducPokerGame()


def ends():
    open_states = [state for _, state in GAME.initial()]
    while open_states:
        state = open_states.pop()
        if GAME.player(state) is None:
            yield state
        else:
            open_states += [GAME.next(state, move) for move in GAME.legal(state)]


def play(cards, moves):
    env = LeducPoker()
    env.reset(seed=0, options={"cards": cards})
    for move in moves.split():
        env.step(f"[{move}]")
    assert env.ended
    assert env._cumulative_rewards["player_0"] == -env._cumulative_rewards["player_1"]
    return env._cumulative_rewards["player_0"]


def test_an_invalid_move_is_never_cheaper_than_a_fold():
    def lost(last, **kwargs):
        env = LeducPoker(**kwargs)
        env.reset(seed=0, options={"cards": "JKQ"})
        for move in ("[bet]", "[raise]", "[call]", "[bet]", "[raise]", last, last):
            if not env.ended:
                env.step(move)
        assert sum(env.rewards.values()) == 0
        return env.rewards["player_0"]

    assert lost("[fold]") == -9 and lost("hm") == min(min(GAME.returns(state)) for state in ends()) == -13
    assert lost("hm", invalid_reward=-1) == -1


@pytest.mark.parametrize(
    ("cards", "moves", "won"),
    [
        ("KQJ", "check check check check", 1),
        ("QKJ", "check check check check", -1),
        ("KKJ", "bet raise call bet raise call", 0),  # equal cards split
        ("QKQ", "check check check check", 1),  # a pair beats a king
        ("JKJ", "check bet raise call check bet raise call", 13),  # the most there is: 1 + 2 * 2 + 2 * 4
        ("KJJ", "bet raise call bet raise call", -13),
        ("JKQ", "bet fold", 1),  # the bet goes back
        ("KJQ", "bet raise fold", -3),
        ("KJQ", "check bet fold", -1),
        ("JKQ", "check bet raise fold", 3),
        ("KJQ", "bet call check bet fold", -3),
        ("JQK", "bet call bet fold", 3),
        ("QJK", "bet call bet call", 7),
        ("JQK", "check check bet raise fold", -5),
    ],
)
def test_payoffs(cards, moves, won):
    assert play(cards, moves) == won


def test_the_size_of_the_game():
    sets = exact.info_sets(GAME)
    assert len(sets) == 288
    assert Counter((infoset.player, "Round 2" in infoset.view) for infoset in sets) == {
        (0, False): 9,
        (1, False): 9,
        (0, True): 135,
        (1, True): 135,
    }
    assert Counter(infoset.legal for infoset in sets).keys() == {
        ("check", "bet"),
        ("fold", "call", "raise"),
        ("fold", "call"),
    }


def test_deals_have_the_probabilities_of_a_deck_of_six():
    deals = {state.cards: chance for chance, state in GAME.initial()}
    assert sum(deals.values()) == pytest.approx(1) and len(deals) == 24
    for cards, chance in deals.items():
        assert chance == pytest.approx({1: 0, 2: 4 / 120, 3: 8 / 120}[len(set(cards))])


def test_published_values():
    """NashConv of uniform play as in OpenSpiel's papers; the value of the game for the player who begins."""
    assert exact.nash_conv(GAME, exact.uniform) == pytest.approx(4.747222, abs=1e-6)
    solution = exact.nash(GAME)
    assert exact.nash_conv(GAME, solution) < 2e-3
    assert exact.expected_returns(GAME, solution)[0] == pytest.approx(-0.0856, abs=1e-3)


def test_the_page_gives_the_nash_conv_of_the_scripted_players():
    text = page("LeducPoker-v0").sections["Scripted players"]
    for policy in (exact.uniform, *GAME.scripted.values()):
        assert f"{exact.nash_conv(GAME, policy):.4f}" in text


def test_nothing_of_the_other_card_nor_of_the_public_card_before_its_time_is_seen():
    for state in ends():
        moves = [*state.first, *state.second]
        for count in range(len(moves)):
            here = Hand(state.cards)
            for move in moves[:count]:
                here = GAME.next(here, move)
            infoset = info_set(GAME, here)
            own = here.cards[infoset.player]
            shown = {CARDS.index(part[0]) for part in infoset.view.split("card: ")[1:]}
            public = {here.cards[2]} if "Round 2" in infoset.view else set()
            assert shown == {own} | public


def test_all_prompts_are_equal_for_equal_knowledge():
    seen = {}
    env = LeducPoker()
    for own, other, public in product("JQK", repeat=3):
        if own == other == public:
            continue
        env.reset(seed=1, options={"cards": own + other + public})
        env.step("[check]")
        env.step("[bet]")
        seen.setdefault(own, set()).add(str(env.observe("player_0")))
        env.step("[call]")
        assert f"Your card: {own}. Public card: {public}." in env.observe("player_0")["messages"][0]["content"]
    assert {own: len(texts) for own, texts in seen.items()} == {"J": 1, "Q": 1, "K": 1}


def test_the_prompt():
    env = LeducPoker()
    env.reset(seed=0, options={"cards": "KQJ"})
    for action in ("[check]", "[bet]", "[raise]", "[call]", "[bet]"):
        env.step(action)
    assert env.observe("player_1")["messages"][0]["content"].splitlines()[1:] == [
        "You are player 1. Round 1: check bet raise call. Round 2: bet. Pot: 14. To call: 4. "
        "Your card: Q. Public card: J.",
        "Reply with one legal action: [fold] [call] [raise]",
    ]


@pytest.mark.parametrize("cards", ["KK", "KKK", "AQJ", "KQJJ", 3, ["K", "Q", "J"]])
def test_bad_cards_are_refused(cards):
    with pytest.raises(ValueError, match="option cards must be three letters of 'JQK', each at most twice"):
        LeducPoker().reset(seed=0, options={"cards": cards})


def test_open_spiel_agrees():
    """Legal moves, the player to move and payoffs after every history of every deal; NashConv of uniform play."""
    pyspiel = pytest.importorskip("pyspiel")
    exploitability = pytest.importorskip("open_spiel.python.algorithms.exploitability")
    policy = pytest.importorskip("open_spiel.python.policy")
    game = pyspiel.load_game("leduc_poker")
    codes = {"fold": 0, "call": 1, "check": 1, "bet": 2, "raise": 2}

    def same(theirs, ours):
        if theirs.is_chance_node():
            theirs.apply_action(2 * ours.cards[2] + deck.count(ours.cards[2]))
        if theirs.is_terminal():
            assert GAME.player(ours) is None
            assert theirs.returns() == list(GAME.returns(ours))
            return 1
        assert theirs.current_player() == GAME.player(ours)
        assert sorted(theirs.legal_actions()) == sorted(codes[move] for move in GAME.legal(ours))
        return sum(same(theirs.child(codes[move]), GAME.next(ours, move)) for move in GAME.legal(ours))

    checked = 0
    for _, hand in GAME.initial():
        state, deck = game.new_initial_state(), []
        for card in hand.cards[:2]:
            state.apply_action(2 * card + deck.count(card))
            deck.append(card)
        checked += same(state, hand)
    assert checked == sum(1 for _ in ends())
    theirs = exploitability.nash_conv(game, policy.UniformRandomPolicy(game))
    assert exact.nash_conv(GAME, exact.uniform) == pytest.approx(theirs, abs=1e-9)
