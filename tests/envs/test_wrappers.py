"""Wrappers: filled seats, the single-seat view, text observations, transcripts."""

import asyncio
import copy
import json
import pickle
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check
from pettingzoo.test import api_test, seed_test
from pettingzoo.utils.wrappers import OrderEnforcingWrapper

from legos_envs import make, play
from legos_envs.testing import check_env
from legos_envs.testing.harness import Player, drive
from legos_envs.wrappers import FillSeats, RecordTranscript, SingleAgent, TextObservation
from tests.envs.broken import Sealed
from tests.envs.nested import Debate, Tournament
from tests.envs.test_play import Elimination


def first(decision):
    return decision.legal_actions[0] if decision.legal_actions else f"word {decision.turn}"


def by_seed(decision):
    return decision.legal_actions[decision.seed % 2] if decision.legal_actions else f"{decision.agent} {decision.turn}"


JUDGE = {"judge": by_seed}


# --- FillSeats -------------------------------------------------------------------------------------------------------


def test_seats_are_filled_by_agent_before_role():
    env = FillSeats(Debate(), {"judge": by_seed, "con_0": lambda decision: f"no {decision.turn}"})
    assert env.possible_agents == ["pro_0"]
    env.reset(seed=1)
    assert env.agents == env.ready_agents == ["pro_0"] and set(env.infos) == set(env.rewards) == {"pro_0"}
    env.step("yes")
    assert env.observe("pro_0")["messages"][-1]["content"] == "con_0 said: no 0\nSpeak."
    assert env.unwrapped.log == [("pro_0", "yes"), ("con_0", "no 0")]


@pytest.mark.parametrize("seed", range(3))
def test_a_filled_env_plays_the_same_episode(seed):
    whole = asyncio.run(play(Tournament(), by_seed, seed))
    filled = FillSeats(Tournament(), {"judge": by_seed, "con": by_seed, "author_1": by_seed})
    part = asyncio.run(play(filled, by_seed, seed))
    assert set(part.trajectories) == set(filled.possible_agents) < set(whole.trajectories)
    for agent, trajectory in part.trajectories.items():
        assert trajectory.total == pytest.approx(whole.trajectories[agent].total)
        assert [t.observation for t in trajectory.turns] == [t.observation for t in whole.trajectories[agent].turns]


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "make_env",
    [
        lambda **kwargs: FillSeats(Debate(**kwargs), JUDGE),
        lambda **kwargs: FillSeats(Tournament(**kwargs), {"judge": by_seed, "con": by_seed}),
        lambda **kwargs: FillSeats(make("KuhnPoker-v0", **kwargs), {"player_0": by_seed}),
        lambda **kwargs: OrderEnforcingWrapper(Sealed(**kwargs)),
        lambda **kwargs: RecordTranscript(Sealed(**kwargs)),
    ],
    ids=["debate", "tournament", "kuhn", "order-enforcing", "record"],
)
def test_wrapped_envs_obey_every_law(make_env):
    assert check_env(make_env, episodes=12, policy=by_seed).failures == {}


def test_wrong_names_and_too_many_seats():
    with pytest.raises(ValueError, match=r"'jugde' is not an agent or role of Debate-v0; these are \['con', 'con_0'"):
        FillSeats(Debate(), {"jugde": first})
    with pytest.raises(ValueError, match="every seat of Debate-v0 is filled"):
        FillSeats(Debate(), {"pro": first, "con": first, "judge": first})


def test_an_asynchronous_policy_is_refused():
    async def slow(decision):
        return "x"

    env = FillSeats(Debate(), {"pro": slow})
    with pytest.raises(TypeError, match=r"'pro_0' is asynchronous; use legos_envs\.play"):
        env.reset(seed=0)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_copies_go_on(copied):
    env = FillSeats(Debate(), JUDGE)
    env.reset(seed=2)
    env.step("x")
    twin = copied(env)
    assert drive(twin, Player(first, 2)).plain() == drive(env, Player(first, 2)).plain()


def test_a_seed_of_numpys_is_that_seed_for_filled_seats_too():
    said = []
    for seed in (5, np.int64(5)):
        env = FillSeats(Debate(), {"pro": lambda d: f"seed {d.episode_seed}"})
        env.reset(seed=seed)
        said.append(env.unwrapped.log[0])
    assert said == [("pro_0", "seed 5")] * 2


def test_restore_goes_on_with_the_turns_of_the_filled_seats():
    env = FillSeats(Debate(), {"con": lambda d: f"turn {d.turn} of {d.episode_seed}", "judge": first})
    env.reset(seed=2)
    env.step("x")
    other = FillSeats(Debate(), {"con": lambda d: f"turn {d.turn} of {d.episode_seed}", "judge": first})
    other.restore(env.state())
    other.step("y")
    assert other.unwrapped.log[-3:-1] == [("con_0", "turn 1 of 2"), ("judge_0", "[pro]")]


def test_a_foreign_env():
    env = FillSeats(Elimination(), {"player_0": lambda decision: "[bet]"})
    env.reset(seed=0)
    assert env.agents == ["player_1"] and drive(env, Player(lambda decision: "[bet]", 0)).returns == {"player_1": 3.0}


# --- SingleAgent -----------------------------------------------------------------------------------------------------


def test_single_agent_passes_gymnasiums_checker():
    env = SingleAgent(make("KuhnPoker-v0", render_mode="ansi"), "player_1", first)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*render.*|.*spec.*")
        gymnasium_check(env, skip_render_check=True)
    assert isinstance(env, gymnasium.Env)


@pytest.mark.parametrize("seed", range(4))
def test_single_agent_gets_its_return(seed):
    whole = asyncio.run(play(Debate(), by_seed, seed))
    env = SingleAgent(Debate(), "con_0", by_seed)
    observation, info = env.reset(seed=seed)
    assert info["role"] == "con" and env.observation_space.contains(observation)
    total, over, turn = 0.0, False, 0
    while not over:
        observation, reward, terminated, truncated, info = env.step(f"con_0 {turn}")
        total, over, turn = total + reward, terminated or truncated, turn + 1
    assert (total, turn) == (whole.returns["con_0"], 2) and not truncated
    with pytest.raises(RuntimeError, match="after the end"):  # it used to pay the last reward again
        env.step("late")


def test_single_agent_truncates():
    env = SingleAgent(Debate(max_turns=2), "pro_0", first)
    env.reset(seed=0)
    assert env.step("x")[2:4] == (False, True)


def test_an_episode_that_ends_before_the_seat_can_act():
    env = SingleAgent(make("KuhnPoker-v0", invalid_retries=0), "player_1", lambda decision: "garbage")
    env.reset(seed=0)
    _, reward, terminated, _, info = env.step("[check]")
    assert (reward, terminated, info["outcome"]) == (1.0, True, "invalid")


def test_single_agent_with_nobody_to_play_a_seat():
    with pytest.raises(ValueError, match=r"nobody plays \['judge_0'\]; opponents are given for \['con'\]"):
        SingleAgent(Debate(), "pro_0", {"con": first})
    with pytest.raises(ValueError, match="'pro' is not an agent of Debate-v0"):
        SingleAgent(Debate(), "pro", first)


# --- TextObservation, RecordTranscript -------------------------------------------------------------------------------


def test_text_observation_passes_pettingzoos_tests():
    env = TextObservation(Sealed())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*NumPy array.*")
        api_test(env)
    seed_test(lambda: TextObservation(Sealed()))


def test_text_observation():
    env = TextObservation(Debate())
    env.reset(seed=0, options={"topic": "tea"})
    text = env.observe("pro_0")
    assert text == "Topic: tea.\nSpeak." and isinstance(text, str)
    env.step("P1")
    env.step("C1")
    assert env.last()[0] == "user:\nTopic: tea.\nSpeak.\n\nassistant:\nP1\n\nuser:\ncon_0 said: C1\nSpeak."
    assert env.observation_space("pro_0") is env.observation_space("con_0")


def test_record_transcript():
    env = RecordTranscript(Sealed())
    env.reset(seed=3)
    env.step("[3]")
    assert env.transcript()["outcome"] is None
    env.step("no")
    env.step("[1]")
    legal = "Reply with one legal action: [1] [2] [3]"
    notice = "Invalid move: the reply states no action; write it as [...]."
    assert env.transcript() == {
        "env": "Sealed-v0",
        "seed": 3,
        "options": {},
        "log": [
            {"agent": "bidder_0", "prompt": f"Bid.\n{legal}", "action": "[3]"},
            {"agent": "bidder_1", "prompt": f"Bid.\n{legal}", "action": "no"},
            {"agent": "bidder_1", "prompt": f"{notice}\n{legal}", "action": "[1]"},
        ],
        "returns": {"bidder_0": 1.0, "bidder_1": -1.0},
        "outcome": "terminated",
    }
    assert json.loads(json.dumps(env.transcript())) == env.transcript()


@pytest.mark.parametrize("filled", [{}, {"con": first}])
def test_a_transcript_comes_back_with_the_state(filled):
    def made():
        return RecordTranscript(FillSeats(Debate(), {**JUDGE, **filled}))

    env, fresh, used = made(), made(), made()
    env.reset(seed=3, options={"topic": "tea"})
    env.step("P1")
    used.reset(seed=9)
    used.step("P0")
    for other in (fresh, used):
        other.restore(env.state())
        assert other.transcript() == env.transcript()
    for each in (env, fresh, used):
        drive(each, Player(first, 3))
    assert env.transcript() == fresh.transcript() == used.transcript() and env.transcript()["outcome"]


def test_transcripts_of_other_endings():
    env = RecordTranscript(Sealed(max_turns=1))
    env.reset(seed=3)
    env.step("[3]")
    assert env.transcript()["outcome"] == "truncated"
    env = RecordTranscript(Sealed(invalid_retries=0))
    env.reset(seed=4)
    env.step("x")
    env.step("[1]")
    assert env.transcript()["outcome"] == "invalid" and env.transcript()["seed"] == 4
    env.reset()
    assert env.transcript()["log"] == [] and env.transcript()["seed"] == env.unwrapped.seed != 4
