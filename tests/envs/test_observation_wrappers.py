"""What seats are shown: limits of context, first and last, the board alone."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legos_envs.testing import check_env
from legos_envs.testing.harness import Player, drive
from legos_envs.wrappers import BoardOnly, ContextLimit, FillSeats, FirstAndLast, TextObservation
from legos_envs.wrappers.observations import ShownMessages
from tests.envs.broken import Sealed
from tests.envs.nested import Debate
from tests.envs.test_wrappers import by_seed


def chat(*contents, system=False):
    roles = (["system"] if system else []) + ["user", "assistant"] * len(contents)
    return tuple({"role": role, "content": content} for role, content in zip(roles, contents))


def contents(messages):
    return [message["content"] for message in messages]


FIVE = chat("rules", "a0", "u1", "a1", "u2")


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (5, ["rules", "a0", "u1", "a1", "u2"]),
        (4, ["rules\n[1 message left out]\nu1", "a1", "u2"]),
        (3, ["rules\n[1 message left out]\nu1", "a1", "u2"]),
        (2, ["rules\n[3 messages left out]\nu2"]),
        (1, ["rules\n[3 messages left out]\nu2"]),
    ],
)
def test_messages_are_dropped_from_the_middle(limit, expected):
    assert contents(ContextLimit(Debate(), messages=limit).shown(FIVE)) == expected


def test_the_newest_may_be_the_agents_own():
    shown = ContextLimit(Debate(), messages=2).shown(FIVE[:4])
    assert [m["role"] for m in shown] == ["user", "assistant"]
    assert contents(shown) == ["rules\n[1 message left out]\nu1", "a1"]


def test_a_system_message_stays():
    messages = chat("be brief", "rules", "a0", "u1", "a1", "u2", system=True)
    shown = ContextLimit(Debate(), messages=2).shown(messages)
    assert contents(shown) == ["be brief", "rules\n[3 messages left out]\nu2"]


def test_characters_are_counted_over_all_messages():
    long = chat("r" * 50, "a" * 100, "u" * 100, "b" * 20, "v" * 20)
    assert ContextLimit(Debate(), characters=290).shown(long) == long
    shown = contents(ContextLimit(Debate(), characters=289).shown(long))
    assert shown == ["r" * 50 + "\n[1 message left out]\n" + "u" * 100, "b" * 20, "v" * 20]
    shown = contents(ContextLimit(Debate(), characters=200).shown(long))
    assert shown == ["r" * 50 + "\n[2 messages left out]", "b" * 20, "v" * 20]


def test_what_is_still_too_long_is_cut_in_its_middle():
    (message,) = ContextLimit(Debate(), characters=300).shown(chat("A" * 5000 + "Z" * 5000))
    assert message["content"] == "A" * 120 + "\n[9760 characters left out]\n" + "Z" * 120


@given(st.lists(st.integers(0, 400), max_size=12), st.integers(1, 12) | st.none(), st.integers(200, 1500) | st.none())
def test_limits_hold_and_roles_alternate(lengths, messages, characters):
    if messages is characters is None:
        return
    said = chat(*(str(i % 10) * length for i, length in enumerate(lengths)))
    shown = ContextLimit(Debate(), messages=messages, characters=characters).shown(said)
    assert [m["role"] for m in shown] == [("user", "assistant")[i % 2] for i in range(len(shown))]
    assert characters is None or sum(map(len, contents(shown))) <= characters
    if messages is not None:  # the agent's own last word, after the end, is a message apart from the first
        assert len(shown) <= max(messages, 1 + (len(said) % 2 == 0 and len(said) > 0))
    if said:
        assert shown[-1]["content"].endswith(said[-1]["content"][-1:]) and shown[0]["role"] == "user"


def test_arguments():
    with pytest.raises(ValueError, match=r"needs messages=\.\.\., characters=\.\.\., or both"):
        ContextLimit(Debate())
    with pytest.raises(ValueError, match="messages"):
        ContextLimit(Debate(), messages=0)
    with pytest.raises(ValueError, match=r"characters.*200"):
        ContextLimit(Debate(), characters=199)
    with pytest.raises(NotImplementedError, match="must define shown"):
        ShownMessages(Sealed()).shown(FIVE)


def test_first_and_last_and_board_only():
    assert contents(FirstAndLast(Debate()).shown(FIVE)) == ["rules\n[3 messages left out]\nu2"]
    assert contents(BoardOnly(Debate()).shown(FIVE)) == ["u2"]
    assert contents(BoardOnly(Debate()).shown(FIVE[:4])) == ["u1"]
    for wrapper in (FirstAndLast, BoardOnly):
        assert wrapper(Debate()).shown(()) == () and wrapper(Debate()).shown(FIVE[:1]) == FIVE[:1]


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "wrap",
    [
        lambda env: ContextLimit(env, messages=3),
        FirstAndLast,
        BoardOnly,
        lambda env: FirstAndLast(FillSeats(env, {"judge": by_seed})),
        lambda env: FillSeats(ContextLimit(env, characters=200), {"judge": by_seed}),
    ],
    ids=["context", "first-last", "board", "over-filled", "under-filled"],
)
def test_wrapped_envs_obey_every_law(wrap):
    assert check_env(lambda **kwargs: wrap(Debate(**kwargs)), episodes=12, policy=by_seed).failures == {}


def test_wrappers_compose_and_pickle():
    env = TextObservation(FirstAndLast(ContextLimit(Debate(), messages=3)))
    env.reset(seed=1, options={"topic": "tea"})
    env.step("P1")
    env.step("C1")
    twin = pickle.loads(pickle.dumps(env))
    assert twin.last()[0] == "Topic: tea.\nSpeak.\n[1 message left out]\ncon_0 said: C1\nSpeak."
    assert drive(twin, Player(by_seed, 2)).plain() == drive(env, Player(by_seed, 2)).plain()
