"""What somebody does wrong with their first environment is answered in words that say what to write."""

import gymnasium
import pytest

import legos_envs
from legos_envs import Seat
from tests.envs.small_envs import env_of, started


def rules(*work):
    """Rules that do `work(table)`, each, and then ask."""

    def play(self, table):
        for each in work:
            each(table)
        yield from table.ask("a_0", "Say something.")

    return env_of(play)


def gathering_one(self, table):
    yield from table.gather(table.ask("a_0", "Say something."))


def asking_a_number(self, table):
    yield from table.ask("a_0", 5)


@pytest.mark.parametrize(
    ("made", "error", "says"),
    [
        (rules(lambda table: table.reward("c_0", 1)), KeyError, "rewarded 'c_0', which has no seat; seats are .'a_0'"),
        (rules(lambda table: table.tell("c_0", "Hi.")), KeyError, "told 'c_0', which has no seat; seats are .'a_0'"),
        (rules(lambda table: table.tell("a_0", 5)), TypeError, r"tell\(\) takes a str; got 5 for 'a_0'"),
        (rules(lambda table: table.reward("a_0", "x")), ValueError, "reward of 'a_0' must be a finite number; got 'x'"),
        (env_of(asking_a_number), TypeError, r"ask\(\) takes a str; got 5 for 'a_0'"),
        (env_of(gathering_one), TypeError, r"gather\(\) takes several branches, .* Got 'Ask'"),
        (env_of(gathering_one, seats=["a_0"]), TypeError, r"Made.seats must be a mapping .* got \['a_0'\]"),
        (env_of(gathering_one, seats={"a_0": "a"}), TypeError, "Made.seats must be a mapping .* got {'a_0': 'a'}"),
    ],
)
def test_mistakes_of_first_rules(made, error, says):
    with pytest.raises(error, match=says):
        started(made)


def test_an_entry_point_that_makes_nothing():
    with pytest.raises(TypeError, match=r"register\('Foo-v0', ...\) takes a class, a function or .* got 3"):
        legos_envs.register("Foo-v0", 3)


def test_steps_at_the_wrong_time_and_spaces_of_nobody():
    env = env_of(lambda self, table: (yield from table.ask("a_0", "Go.")), {"a_0": Seat("a")}, name="One-v0")()
    with pytest.raises(RuntimeError, match=r"One-v0: step\(\) before reset\(\); call reset\(\) first"):
        env.step("x")
    env.reset(seed=0)
    env.step("x")
    env.step(None)
    with pytest.raises(RuntimeError, match=r"step\(\) after the end: every agent has left the episode; call reset"):
        env.step("x")
    for space in (env.action_space, env.observation_space):
        with pytest.raises(KeyError, match=r"'bob' is not an agent of One-v0; its agents are .'a_0'"):
            space("bob")


def test_a_gymnasium_seat_pays_the_last_reward_once():
    env = gymnasium.make("legos_envs:legos/TicTacToe-v0", opponents="scripted:first")
    _, info = env.reset(seed=0)
    over = False
    while not over:
        _, _, over, _, info = env.step(info["legal_actions"][-1])
    with pytest.raises(RuntimeError, match=r"step\(\) after the end of the episode; call reset\(\)"):
        env.step("[1]")
    env.reset(seed=1)
    env.step("[1]")


def test_a_game_that_reads_no_text_is_never_suggested():
    with pytest.raises(legos_envs.UnknownEnv) as caught:
        legos_envs.make("Chess-v0")
    assert "classic/" not in str(caught.value)


def test_a_file_without_the_id_names_what_it_has(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("import legos_envs\nlegos_envs.register('Mine-v0', 'tests.envs.small_envs:Nothing')\n")
    for _ in range(2):  # imported, and imported already
        with pytest.raises(legos_envs.UnknownEnv, match=r"registers no 'Foo-v0'; it has .*mine.py:Mine-v0"):
            legos_envs.make(f"{file}:Foo-v0")
