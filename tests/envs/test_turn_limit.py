"""A limit of turns for any env."""

import asyncio
import copy
import pickle

import pytest

from legos_envs import make, play
from legos_envs.testing import check_env
from legos_envs.testing.harness import Player, drive
from legos_envs.wrappers import FillSeats, RecordTranscript, TurnLimit
from tests.envs.nested import Debate, Tournament
from tests.envs.test_play import Elimination
from tests.envs.test_wrappers import by_seed, first


def test_all_agents_together():
    env = TurnLimit(Debate(), turns=3)
    env.reset(seed=0)
    record = drive(env, Player(first, 0))
    assert [step.agent for step in record.steps] == ["pro_0", "con_0", "pro_0"]
    assert set(record.endings.values()) == {(False, True)} and record.outcome == "truncated"
    with pytest.raises(RuntimeError, match="every agent has left"):
        env.step(None)


def test_each_agent():
    env = TurnLimit(Debate(), per_agent=1)
    env.reset(seed=0)
    assert [step.agent for step in drive(env, Player(first, 0)).steps] == ["pro_0", "con_0"]
    env = TurnLimit(Debate(), per_agent=2)  # the judge is asked twice: nobody needs a third turn
    env.reset(seed=0)
    record = drive(env, Player(first, 0))
    assert set(record.endings.values()) == {(True, False)} and len(record.steps) == 6


def test_rewards_paid_before_stay_and_are_counted_once():
    for seed in range(5):
        whole = asyncio.run(play(Tournament(), by_seed, seed))
        for turns in (1, 5, 14, 15):
            env = TurnLimit(Tournament(), turns=turns)
            env.reset(seed=seed)
            record = drive(env, Player(by_seed, seed))
            assert len(record.steps) == min(turns, 15)
            episode = asyncio.run(play(TurnLimit(Tournament(), turns=turns), by_seed, seed))
            assert episode.returns == pytest.approx(record.returns)
            if turns == 15:
                assert record.returns == pytest.approx(whole.returns)
                assert not episode.truncated and not record.truncated


def test_the_final_infos_have_nothing_to_choose():
    env = TurnLimit(make("KuhnPoker-v0"), turns=1)
    env.reset(seed=0)
    env.step("[check]")
    over = {"role": "player_1", "trainable": True, "legal_actions": None, "outcome": "truncated"}
    assert env.infos["player_1"] == over
    assert env.ready_agents == [] and env.agents == ["player_0", "player_1"]
    with pytest.raises(ValueError, match="only valid action is None"):
        env.step("[bet]")


def test_only_the_seats_left_are_counted():
    env = TurnLimit(FillSeats(Debate(), {"con": first, "judge": first}), turns=1)
    env.reset(seed=0)
    env.step("x")
    assert env.truncations == {"pro_0": True}
    other = TurnLimit(FillSeats(Debate(), {"con": first, "judge": first}), turns=1)
    other.restore(env.state())
    assert other.truncations == {"pro_0": True}
    patient = TurnLimit(FillSeats(Debate(), {"con": first, "judge": first}), turns=2)
    patient.restore(env.state())
    assert patient.truncations == {"pro_0": False}


def test_coming_back_to_before_the_limit():
    env = TurnLimit(Debate(), turns=2)
    env.reset(seed=0)
    before = env.state()
    env.step("x")
    env.step("y")
    assert env.truncations["pro_0"]
    env.restore(before)
    assert not env.truncations["pro_0"] and env.ready_agents == ["pro_0"]


def test_a_limited_env_can_be_filled_and_recorded():
    env = RecordTranscript(FillSeats(TurnLimit(Debate(), turns=3), {"con": first, "judge": first}))
    env.reset(seed=0)
    drive(env, Player(first, 0))
    assert env.transcript()["outcome"] == "truncated" and len(env.transcript()["log"]) == 2


def test_a_foreign_env():
    env = TurnLimit(Elimination(), turns=1)
    env.reset(seed=0)
    env.step("[bet]")
    assert env.terminations == {"player_0": True, "player_1": False}
    env.step(None)  # who is out leaves first, as AEC has it
    assert env.agents == ["player_1"] and env.truncations == {"player_1": True}
    env = TurnLimit(Elimination(), turns=2)
    env.reset(seed=0)
    env.step("[bet]")
    env.step(None)  # is not a turn
    assert env.truncations == {"player_1": False}


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_copies_go_on(copied, after):
    env = TurnLimit(Debate(), turns=2)
    env.reset(seed=2)
    for _ in range(after):
        env.step("x")
    twin = copied(env)
    assert drive(twin, Player(first, 2)).plain() == drive(env, Player(first, 2)).plain()


@pytest.mark.quick(1)
@pytest.mark.parametrize("limits", [{"turns": 4}, {"per_agent": 2}, {"turns": 100, "per_agent": 50}])
def test_wrapped_envs_obey_every_law(limits):
    def make_env(**kwargs):
        return TurnLimit((Debate if "per_agent" in limits else Tournament)(**kwargs), **limits)

    # Where every episode is cut before anything is paid, there are no two outcomes to see.
    skip = ("play.outcomes",) if limits.get("turns") == 4 else ()
    assert check_env(make_env, episodes=12, policy=by_seed, skip=skip).failures == {}


def test_arguments():
    with pytest.raises(ValueError, match=r"needs turns=\.\.\., per_agent=\.\.\., or both"):
        TurnLimit(Debate())
    with pytest.raises(ValueError, match="turns"):
        TurnLimit(Debate(), turns=0)
    with pytest.raises(ValueError, match="per_agent"):
        TurnLimit(Debate(), per_agent=1.5)
