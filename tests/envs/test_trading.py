"""The grammar of offers and the market: what is written can be read, and goods only change hands."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legos_envs import InvalidMove, parsing
from legos_envs.games.market import Market
from legos_envs.games.trading import KINDS, MAX_CHAT, Action, Offer, kind_names, read_action, split_message, write_offer
from legos_envs.testing.robust import GARBAGE

FIVE = KINDS[:5]
PLAYERS = ("player_0", "player_1", "player_10")
GOODS = st.lists(st.integers(0, 10**6), min_size=5, max_size=5).filter(any).map(tuple)
OFFERS = st.builds(Offer, GOODS, GOODS, st.sampled_from((None, *PLAYERS)))


@given(OFFERS)
def test_what_is_written_is_read_back(offer):
    text = write_offer(offer, FIVE)
    assert read_action(text, FIVE, PLAYERS) == Action("offer", offer)
    for form in parsing.FORMATS:
        said = f"Hello {parsing.write_action(text, form)} there"
        assert split_message(said, form) == ("Hello there", text)


@pytest.mark.parametrize(
    "text",
    [
        "Offer: 3 Sheep, 2 Ore -> 5 Brick",
        "offer 3 sheep,2 ore->5 bricks.",
        "OFFER : I give 3 Sheep and 2 Ores for 5 Brick",
        "Offer:\n3 Sheep + 2 Ore → 5 Brick!",
        "Offer to anyone: 1 Sheep, 2 Sheep; 2 Ore => your 5 Brick",
    ],
)
def test_ways_to_write_one_offer(text):
    assert read_action(text, FIVE) == Action("offer", Offer((0, 0, 3, 0, 2), (0, 0, 0, 5, 0)))


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("Accept", Action("accept")),
        ("accept player_1", Action("accept", player="player_1")),
        ("Deny the", None),
        ("ACCEPT from Player 10.", Action("accept", player="player_10")),
        ("deny", Action("deny")),
        ("Deny player_0", Action("deny", player="player_0")),
        ("Done.", Action("done")),
        ("Offer player 1: 1 Ore -> 1 Wood", Action("offer", Offer((0, 0, 0, 0, 1), (0, 1, 0, 0, 0), "player_1"))),
        ("Offer to player_0: 1 Ore -> 1 Wood", Action("offer", Offer((0, 0, 0, 0, 1), (0, 1, 0, 0, 0), "player_0"))),
    ],
)
def test_actions(text, action):
    if action is None:
        with pytest.raises(InvalidMove, match="'the' is not a player"):
            read_action(text, FIVE, PLAYERS)
    else:
        assert read_action(text, FIVE, PLAYERS) == action


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is not an action"),
        ("smiles", "'smiles' is not an action"),
        ("done deal", "is not an action"),
        ("Offer", "give, one arrow, get"),
        ("Offer: 3 Sheep", "give, one arrow, get"),
        ("Offer: 1 Ore -> 1 Ore -> 1 Ore", "give, one arrow, get"),
        ("Offer: -> 1 Ore", "each side"),
        ("Offer: 3 -> 1 Ore", "each side"),
        ("Offer: Ore 3 -> 1 Ore", "'3' is not traded here"),
        ("Offer: 3 Gold -> 1 Ore", "'gold' is not traded here"),
        ("Offer: 0 Ore -> 1 Wood", "'0' is not a quantity"),
        ("Offer: -1 Ore -> 1 Wood", "'-1' is not a quantity"),
        ("Offer: 1.5 Ore -> 1 Wood", "'1.5' is not a quantity"),
        ("Offer: ٣ Ore -> 1 Wood", "is not a quantity"),
        ("Offer: " + "9" * 5000 + " Ore -> 1 Wood", "'9{40}' is not a quantity"),
        ("Offer player_7: 1 Ore -> 1 Wood", "'player_7' is not a player"),
        ("Offer ore: 1 Ore -> 1 Wood", "'ore' is not a player"),
    ],
)
def test_what_is_no_action_says_why(text, reason):
    with pytest.raises(InvalidMove, match=reason):
        read_action(text, FIVE, PLAYERS)


def test_reading_takes_linear_time():
    """The ancestor's pattern took 9 seconds for blanks."""
    size = 65536
    bodies = (
        " ",
        "[",
        "Offer: ",
        "1 Ore, ",
        "-> ",
        "player_0 ",
        ".",
        "[Offer: 1 Ore -> 1 Ore] ",
        "s",
        "and ",
        "\\boxed{",
    )
    texts = [
        *GARBAGE,
        *(f"[Offer: {body * (size // len(body))}]" for body in bodies),
        *(b * (size // 8) for b in bodies),
    ]
    for text in texts:
        for form in parsing.FORMATS:
            start = time.process_time()
            try:
                _, action = split_message(text, form)
                read_action(action if action is not None else text, FIVE, PLAYERS)
            except InvalidMove as error:
                assert len(str(error)) < 300
            assert time.process_time() - start < 0.05, text[:40]


@given(st.text(alphabet="[]{}\\boxed aO\n", max_size=40))
def test_talk_is_what_is_left_beside_the_action(text):
    for form in parsing.FORMATS:
        talk, action = split_message(text, form)
        assert action == parsing.action(text, form) and "\n" not in talk
        if action is None:
            assert talk == " ".join(text.split())
        else:
            assert len(talk) <= len(text) - len(action)


def test_long_talk_is_cut():
    assert split_message("x" * 65536) == ("x" * MAX_CHAT + "...", None)


@pytest.mark.parametrize(
    "kinds",
    [
        1,
        9,
        (),
        ("Ore",),
        ("Ore", "ore"),
        ("Ore", "B2"),
        ("for", "Ore"),
        ("And", "Ore"),
        ("Ör",),
        (1, 2),
        ("a b",),
        True,
    ],
)
def test_bad_names_of_goods_are_refused(kinds):
    with pytest.raises(ValueError, match="resources must be"):
        kind_names(kinds)


# --- the market ------------------------------------------------------------------------------------------------------


def market(*rows, values=None):
    names = [f"player_{i}" for i in range(len(rows))]
    return Market(("Ore", "Wood"), dict(zip(names, rows)), dict(zip(names, values or [(1, 1)] * len(rows))))


def test_an_accepted_offer_moves_the_goods():
    trade = market((3, 0), (0, 4), values=[(2, 5), (7, 1)])
    trade.offer("player_0", Offer((2, 0), (0, 3)))
    assert trade.accept("player_1") == ("player_0", Offer((2, 0), (0, 3)), [])
    assert trade.stock == {"player_0": (1, 3), "player_1": (2, 1)}
    assert (trade.change("player_0"), trade.change("player_1")) == (-4 + 15, 14 - 3)
    with pytest.raises(InvalidMove, match="no offer is open"):
        trade.accept("player_1")


def test_nobody_accepts_his_own_offer():
    trade = market((3, 0), (0, 4))
    trade.offer("player_0", Offer((1, 0), (0, 1)))
    for maker in (None, "player_0"):
        with pytest.raises(InvalidMove, match="open"):
            trade.accept("player_0", maker)
    with pytest.raises(InvalidMove, match="to yourself"):
        trade.offer("player_0", Offer((1, 0), (0, 1), "player_0"))


def test_a_denied_offer_is_gone_when_everyone_has_denied_it():
    trade = market((3, 0), (0, 4), (0, 4))
    trade.offer("player_0", Offer((1, 0), (0, 1)))
    assert trade.deny("player_1") == ["player_0"] and trade.deny("player_1") == []
    assert trade.open_to("player_1") == [] and trade.open_to("player_2") == ["player_0"]
    trade.deny("player_2", "player_0")
    assert trade.offers == {}
    with pytest.raises(InvalidMove, match="player_0 has made you no open offer"):
        trade.deny("player_2", "player_0")


def test_an_offer_lapses_when_its_maker_cannot_cover_it_any_more():
    trade = market((3, 0), (0, 4), (0, 4))
    trade.offer("player_0", Offer((2, 0), (0, 1)))
    trade.offer("player_1", Offer((0, 1), (2, 0)))
    assert trade.accept("player_0")[2] == ["player_0"] and trade.stock["player_0"] == (1, 1)
    with pytest.raises(InvalidMove, match="no offer is open"):
        trade.accept("player_2")


def test_what_cannot_be_covered_is_refused_and_changes_nothing():
    trade = market((3, 0), (0, 1))
    with pytest.raises(InvalidMove, match="do not own that much"):
        trade.offer("player_0", Offer((4, 0), (0, 1)))
    trade.offer("player_0", Offer((1, 0), (0, 2)))
    with pytest.raises(InvalidMove, match="you do not own that much"):
        trade.accept("player_1")
    trade.stock["player_0"] = (0, 3)  # behind the market's back: acceptance looks again
    trade.stock["player_1"] = (0, 2)
    with pytest.raises(InvalidMove, match="player_0 no longer owns 1 Ore"):
        trade.accept("player_1")
    assert trade.stock == {"player_0": (0, 3), "player_1": (0, 2)} and trade.trades == 0


def test_offers_are_addressed_and_named():
    trade = market((3, 0), (3, 4), (0, 4))
    trade.offer("player_0", Offer((1, 0), (0, 1), "player_2"))
    trade.offer("player_1", Offer((1, 0), (0, 2)))
    assert trade.open_to("player_0") == ["player_1"] and trade.open_to("player_2") == ["player_0", "player_1"]
    with pytest.raises(InvalidMove, match="name one of player_0, player_1"):
        trade.accept("player_2")
    assert trade.accept("player_2", "player_1")[0] == "player_1"
    trade.offer("player_0", Offer((2, 0), (0, 1)))  # replaces the first
    assert len(trade.offers) == 1 and trade.open_to("player_1") == ["player_0"]


SMALL = st.tuples(st.integers(0, 3), st.integers(0, 3))
MOVES = st.lists(
    st.tuples(
        st.sampled_from(("offer", "accept", "deny")),
        st.integers(0, 2),
        SMALL,
        SMALL,
        st.sampled_from((None, "player_0", "player_1", "player_2")),
    ),
    max_size=30,
)


@given(rows=st.tuples(SMALL, SMALL, SMALL), moves=MOVES)
def test_goods_are_conserved_and_never_negative(rows, moves):
    trade = market(*rows)
    for kind, number, give, get, other in moves:
        player, before = f"player_{number}", dict(trade.stock)
        try:
            if kind == "offer":
                trade.offer(player, Offer(give, get, other))
            elif kind == "accept":
                trade.accept(player, other)
            else:
                trade.deny(player, other)
        except InvalidMove:
            assert trade.stock == before
        assert [sum(units) for units in zip(*trade.stock.values())] == [sum(units) for units in zip(*rows)]
        assert all(count >= 0 for goods in trade.stock.values() for count in goods)
        for maker, (offer, takers) in trade.offers.items():
            assert trade.covers(maker, offer.give) and takers and maker not in takers
