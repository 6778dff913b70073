"""One seat of a registered env, by an id of Gymnasium's registry."""

import pickle
import subprocess
import sys

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import legos_envs
from legos_envs.policies import ScriptedPolicy
from legos_envs.wrappers import SingleAgent
from tests.envs.nested import Debate
from tests.envs.small_envs import env_of, paying_early
from tests.envs.test_wrappers import by_seed, first


def last_action(decision):
    return decision.legal_actions[-1]


@pytest.mark.parametrize("id", legos_envs.registered())
def test_gymnasiums_checker_finds_nothing(id, capsys):
    """Warnings are errors here, so this is without any."""
    env = gymnasium.make(f"legos_envs:legos/{id}", render_mode="ansi")
    seat = env.unwrapped
    whole = legos_envs.make(id)
    assert isinstance(seat, SingleAgent) and env.observation_space == whole.observation_space(seat.agent)
    assert seat.agent == next(agent for agent in whole.possible_agents if whole.seats[agent].trainable)
    check_env(seat)


@pytest.mark.parametrize("id", legos_envs.registered())
def test_every_trained_seat_can_be_played_to_the_end(id):
    seats = legos_envs.make(id).seats
    roles = {}
    for agent, seat in seats.items():
        if seat.trainable:
            roles.setdefault(seat.role, agent)
    for agent in roles.values():
        env = gymnasium.make(f"legos/{id}", agent=agent)
        env.reset(seed=1)
        for _ in range(5000):
            *_, terminated, truncated, info = env.step("I pass. [pass]")
            if terminated or truncated:
                break
        assert terminated or truncated
        assert env.unwrapped.env.agents and info["role"] == seats[agent].role


@pytest.mark.parametrize(
    ("opponents", "paid"),
    [
        (last_action, -1.0),  # scissors against paper
        ("scripted:first", 1.0),
        ({"player_1": "scripted:last"}, -1.0),
        ({"*": "scripted:first"}, 1.0),
        ({"*": "scripted:first", "player_1": last_action}, -1.0),
    ],
)
def test_opponents_are_functions_or_names(opponents, paid):
    env = gymnasium.make("legos_envs:legos/MatrixGame-v0", game="rps", opponents=opponents)
    env.reset(seed=0)
    assert env.step("[paper]")[1] == paid


def test_constructor_arguments_and_the_seat_are_passed_on():
    env = gymnasium.make("legos/KuhnPoker-v0", agent="player_1", opponents={"player_0": "random"}, num_rounds=3)
    observation, info = env.reset(seed=3)
    assert info["role"] == "player_1" and "Round 1 of 3" in observation["messages"][-1]["content"]
    assert env.unwrapped.env.unwrapped.num_rounds == 3 and env.spec.id == "legos/KuhnPoker-v0"
    with pytest.raises(ValueError, match="'nobody' is not an agent of KuhnPoker-v0"):
        gymnasium.make("legos/KuhnPoker-v0", agent="nobody")
    with pytest.raises(ValueError, match=r"policy 'optimul' is unknown\. Did you mean 'optimal'"):
        gymnasium.make("legos/KuhnPoker-v0", opponents="optimul")
    with pytest.raises(ValueError, match=r"opponents: \['player_7'\] are not agents or roles of KuhnPoker-v0"):
        gymnasium.make("legos/KuhnPoker-v0", opponents={"*": "random", "player_7": "random"})


def test_the_first_trained_seat_is_played_and_judges_are_scripted():
    env = SingleAgent(Debate(), opponents={"*": first, "judge": by_seed})
    assert env.agent == "pro_0" and set(env.env.policies) == {"con_0", "judge_0"}
    assert env.env.policies["judge_0"] is by_seed
    assert isinstance(SingleAgent(Debate(), opponents="scripted:first").env.policies["judge_0"], ScriptedPolicy)


def test_a_running_seat_pickles():
    env = gymnasium.make("legos/TicTacToe-v0", agent="player_1", opponents="random")
    env.reset(seed=4)
    env.step("[5]")
    twin = pickle.loads(pickle.dumps(env.unwrapped))
    for cell in ("[1]", "[2]", "[3]"):
        assert twin.step(cell) == env.unwrapped.step(cell)


def test_vectors_of_seats():
    envs = gymnasium.make_vec("legos/KuhnPoker-v0", num_envs=3, vectorization_mode="sync", opponents="scripted:first")
    observations, infos = envs.reset(seed=0)
    assert len(observations["messages"]) == 3 and list(infos["role"]) == ["player_0"] * 3
    _, rewards, terminated, _, _ = envs.step(["[check]"] * 3)  # who only checks is checked behind, and cards are shown
    assert terminated.all() and set(rewards) <= {-1.0, 1.0}
    envs.close()


def test_ids_are_registered_by_the_import_and_load_nothing():
    code = (
        "import gymnasium, legos_envs, sys; "
        "ids = {i.removeprefix('legos/') for i in gymnasium.registry if i.startswith('legos/')}; "
        "assert ids == set(legos_envs.registered()), ids; "
        "print(*(m for m in sys.modules if m.startswith(('legos_envs.wrappers', 'legos_envs.games.'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""


def test_what_is_paid_before_the_first_turn_comes_with_the_first_step():
    env = SingleAgent(env_of(paying_early)(), "b_0", by_seed)
    for _ in range(2):
        env.reset(seed=0)
        assert env.step("Yes.")[1:3] == (14.0, True)
