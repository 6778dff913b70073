"""Games in numbers: `Numeric` obeys PettingZoo's tests, shows what the text says, and plays the same episodes."""

import random
import warnings

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import api_test, parallel_api_test, seed_test
from pettingzoo.utils import turn_based_aec_to_parallel
from pettingzoo.utils.wrappers import TerminateIllegalWrapper

import legos_envs
from legos_envs import exact
from legos_envs.spaces import Numbers
from legos_envs.wrappers import FillSeats, ParallelView, SingleAgent
from legos_envs.wrappers.numeric import Numeric

GAMES = [
    ("KuhnPoker-v0", {}),
    ("KuhnPoker-v0", {"num_rounds": 3}),
    ("KuhnPoker-v0", {"num_rounds": 3, "memory": "chat", "action_format": "boxed"}),
    ("LeducPoker-v0", {}),
    ("TicTacToe-v0", {}),
    ("TicTacToe-v0", {"memory": "chat"}),
    ("ConnectFour-v0", {}),
    ("ConnectFour-v0", {"rows": 3, "columns": 4, "connect": 3}),
    ("Nim-v0", {}),
    ("Nim-v0", {"heaps": (3, 4, 5), "max_take": None}),
    ("PigDice-v0", {"goal": 20}),
    ("MatrixGame-v0", {"game": "biased_rps"}),
    ("MatrixGame-v0", {"game": "stag_hunt", "rounds": 4}),
    ("LiarsDice-v0", {"dice": 2}),
    ("LiarsDice-v0", {"num_players": 3, "dice": 1, "faces": 3, "one_round": True}),
]
SOLVED = [
    ("KuhnPoker-v0", {}),
    ("LeducPoker-v0", {}),
    ("TicTacToe-v0", {}),
    ("ConnectFour-v0", {"rows": 3, "columns": 3, "connect": 3}),
    ("Nim-v0", {}),
    ("Nim-v0", {"heaps": (2, 3), "max_take": 2}),
    ("MatrixGame-v0", {"rounds": 2}),
    ("MatrixGame-v0", {"rounds": 3}),
    ("LiarsDice-v0", {"dice": 1, "faces": 3, "one_round": True}),
]


def named(case):
    return case[0] + "".join(f"-{value}" for value in case[1].values())


@pytest.mark.parametrize("mask", ["observation", "info"])
@pytest.mark.parametrize("case", GAMES, ids=named)
def test_pettingzoos_tests(case, mask, capsys):
    def make():
        return Numeric(legos_envs.make(case[0], **case[1]), mask=mask)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "Observation numpy array is all zeros")  # an empty board
        warnings.filterwarnings("ignore", "Agent's (minimum|maximum) (observation|action) space")
        warnings.filterwarnings("ignore", "Observation (is not a NumPy array|space for each agent probably)")  # a dict
        warnings.filterwarnings("ignore", "Action mask numpy array is all zeros")  # of who is not to move, as in chess
        api_test(make(), num_cycles=60)
        seed_test(make, num_cycles=20)


@pytest.mark.parametrize("case", GAMES, ids=named)
def test_the_same_episodes_as_in_text(case):
    text, numeric = (legos_envs.make(case[0], **case[1]) for _ in range(2))
    view, rng = Numeric(numeric), random.Random(0)
    for seed in range(10):
        text.reset(seed=seed)
        view.reset(seed=seed)
        while text.agents:
            agent = text.agent_selection
            observation, reward, terminated, truncated, info = view.last()
            assert (reward, terminated, truncated) == text.last(observe=False)[1:4]
            assert view.observation_space(agent).contains(observation) and agent == view.agent_selection
            mask = observation["action_mask"]
            assert mask.dtype == np.int8 and (mask == info["action_mask"]).all()
            if terminated or truncated:
                assert not mask.any()
                text.step(None)
                view.step(None)
                continue
            legal = text.infos[agent]["legal_actions"]
            assert sorted(view._texts[i] for i in np.flatnonzero(mask)) == sorted(legal)
            action = rng.choice(np.flatnonzero(mask))
            text.step(view._texts[action])
            view.step(action)
            others = [a for a in view.agents if a not in numeric.ready_agents]
            assert not any(view.infos[a]["action_mask"].any() for a in others)
        assert text.log == numeric.log


@pytest.mark.parametrize("case", SOLVED, ids=named)
def test_numbers_tell_information_sets_apart(case):
    """Whatever the text tells apart, the numbers do (no learner is blinder than a reader)."""
    env = legos_envs.make(case[0], **case[1])
    numbers, seen = env.numbers(), {}
    for infoset in exact.info_sets(env.game):
        read = tuple(numbers.read(env.observation_in(infoset)["messages"][0]["content"]))
        assert (
            len(read) == len(numbers.names)
            and all(-1 <= n <= 1 for n in read)
            and set(infoset.legal) <= {*numbers.moves}
        )
        assert seen.setdefault((infoset.player, read), infoset.view) == infoset.view
    assert len(seen) == len(exact.info_sets(env.game)) > 1


def test_the_dice_of_each_of_more_than_two_players_are_told_apart():
    env = legos_envs.make("LiarsDice-v0", num_players=3, dice=2)
    text = "Dice left: player 0: {}, player 1: 1, player 2: {}.\nYou are player 1. Your dice: 5. Dice in play: 4.\n"
    told = [dict(zip(env.numbers().names, env.numbers().read(text.format(*left)))) for left in ((2, 1), (1, 2))]
    assert [(one["dice of player +1"], one["dice of player +2"]) for one in told] == [(0.5, 1.0), (1.0, 0.5)]
    assert "dice of player +1" not in legos_envs.make("LiarsDice-v0").numbers().names


REMEMBERED = [
    ("KuhnPoker-v0", {"num_rounds": 3}),
    ("LeducPoker-v0", {}),
    ("LiarsDice-v0", {"num_players": 4, "dice": 2, "faces": 3}),
    ("TicTacToe-v0", {}),
    ("ConnectFour-v0", {"rows": 3, "columns": 4, "connect": 3}),
    ("Nim-v0", {}),
    ("PigDice-v0", {"goal": 20}),
    ("MatrixGame-v0", {"rounds": 3}),
]


@pytest.mark.parametrize("case", REMEMBERED, ids=named)
def test_both_memories_show_the_same_numbers(case):
    """A conversation also holds old positions, which are not to be read as the newest."""
    both = [Numeric(legos_envs.make(case[0], memory=memory, **case[1])) for memory in ("state", "chat")]
    rng = random.Random(0)
    for seed in range(20):
        for env in both:
            env.reset(seed=seed)
        while both[0].agents:
            agent = both[0].agent_selection
            one, other = (env.observe(agent) for env in both)
            assert one["observation"].tolist() == other["observation"].tolist(), (seed, agent)
            legal = np.flatnonzero(one["action_mask"])
            for env, action in zip(both, [rng.choice(legal) if len(legal) else None] * 2):
                env.step(action)


def test_what_some_numbers_say():
    env = Numeric(legos_envs.make("KuhnPoker-v0"))
    env.reset(seed=0, options={"cards": "KQ"})
    env.step(env.numbers.moves.index("check"))
    told = dict(zip(env.numbers.names, env.observe("player_1")["observation"]))
    assert [name for name, value in told.items() if value] == ["card Q", "second", "moves check"]
    assert env.infos["player_1"]["action_mask"].tolist() == [1, 1, 0, 0]
    board = Numeric(legos_envs.make("ConnectFour-v0"), mask="info")
    board.reset(seed=0)
    for column in (3, 3, 0):
        board.step(column)
    told = dict(zip(board.numbers.names, board.observe("player_1")))
    assert [name for name, value in told.items() if value] == ["own 4 2", "other 1 1", "other 4 1"]


def test_a_retry_shows_the_same_numbers():
    for memory in ("state", "chat"):
        env = Numeric(legos_envs.make("TicTacToe-v0", memory=memory))
        env.reset(seed=0)
        env.step(4)
        before = env.observe("player_1")["observation"].copy()
        env.step(4)  # taken
        assert env.agent_selection == "player_1" and (env.observe("player_1")["observation"] == before).all()
        env.step(4)
        assert env.infos["player_1"]["outcome"] == "invalid" and env._cumulative_rewards["player_1"] == -1


@pytest.mark.parametrize("mask", ["observation", "info"])
def test_pettingzoos_terminate_illegal_wrapper(mask):
    env = TerminateIllegalWrapper(Numeric(legos_envs.make("TicTacToe-v0"), mask=mask), illegal_reward=-7)
    for _ in range(2):
        env.reset(seed=0)
        for action in (4, 4):
            env.last()
            env.step(action)
        assert env.rewards == {"player_0": 0, "player_1": -7} and all(env.terminations.values())
        for agent in env.agent_iter():
            assert env.last()[1] == (-7 if agent == "player_1" else 0)
            env.step(None)
        assert env.agents == []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        api_test(env, num_cycles=30)


def test_one_seat_for_gymnasium():
    env = SingleAgent(Numeric(FillSeats(legos_envs.make("TicTacToe-v0"), {"player_1": "random"}), mask="info"))
    assert env.action_space == Discrete(9) and env.observation_space == Box(-1.0, 1.0, (18,), np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_env(env, skip_render_check=True)
    _, info = env.reset(seed=3)
    over = False
    while not over:
        _, reward, terminated, truncated, info = env.step(int(np.flatnonzero(info["action_mask"])[0]))
        over = terminated or truncated
    assert info.get("outcome") != "invalid" and reward in (-1, 0, 1)


def test_in_parallel():
    parallel_api_test(turn_based_aec_to_parallel(Numeric(legos_envs.make("KuhnPoker-v0"))), num_cycles=20)
    env = ParallelView(Numeric(legos_envs.make("MatrixGame-v0", game="rps")))
    _, infos = env.reset(seed=0)
    assert all(info["action_mask"].tolist() == [1, 1, 1] for info in infos.values())
    _, rewards, *_ = env.step({"player_0": 0, "player_1": 1})
    assert rewards == {"player_0": -1, "player_1": 1}


def test_what_has_no_numbers_is_refused_and_may_be_given_some():
    with pytest.raises(TypeError, match=r"Debate-v0 has no method numbers\(\).*Numbers\("):
        Numeric(legos_envs.make("Debate-v0"))
    given = Numbers(("1", "2", "3"), ("length",), lambda text: [len(text) / 10_000])
    env = Numeric(legos_envs.make("Nim-v0", heaps=3), given)
    env.reset(seed=0)
    assert env.observe("player_0")["observation"].shape == (1,) and env.infos["player_0"]["action_mask"].sum() == 3
    with pytest.raises(ValueError, match="mask must be one of 'observation', 'info'; got 'both'"):
        Numeric(legos_envs.make("Nim-v0"), mask="both")
    for wrong in (3, -1, "take 1"):
        with pytest.raises(ValueError, match=r"Nim-v0: an action must be a whole number from 0 to 2; got "):
            env.step(wrong)
