"""What a newcomer tries first: the loop of the README on every id, the list, and the usual mistakes."""

import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from pettingzoo.test import state_test
from pettingzoo.utils import turn_based_aec_to_parallel

import legos_envs
from legos_envs.textarena import GAMES
from legos_envs.wrappers import FillSeats, TurnLimit

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
LOOP = re.search(r"^```python\n(import legos_envs\n.*?)^```", README, re.DOTALL | re.MULTILINE)[1]


def play_the_readmes_loop(env_id):
    source = LOOP.replace("KuhnPoker-v0", env_id)
    assert env_id in source and "legal_actions" in source
    names = {}
    exec(source, names)
    return names["env"]


@pytest.mark.parametrize("env_id", legos_envs.registered())
def test_the_readmes_loop_plays_every_environment(env_id):
    assert play_the_readmes_loop(env_id).agents == []


@pytest.mark.slow
@pytest.mark.parametrize("env_id", ["TextArena/KuhnPoker-v0", "TextArena/IteratedPrisonersDilemma-v0"])
def test_the_readmes_loop_plays_guests(env_id):
    pytest.importorskip("textarena")
    assert env_id.removeprefix("TextArena/") in GAMES
    assert play_the_readmes_loop(env_id).agents == []


@pytest.mark.parametrize("env_id", legos_envs.registered())
def test_every_info_says_what_can_be_chosen(env_id):
    env = legos_envs.make(env_id, max_turns=30)
    env.reset(seed=1)
    for agent in env.agent_iter():
        assert all("legal_actions" in info for info in env.infos.values())
        _, _, terminated, truncated, info = env.last()
        listed = info["legal_actions"]
        if terminated or truncated:
            assert listed is None
            env.step(None)
            continue
        assert listed is None or listed == info["action_mask"]
        env.step(env.action_space(agent).sample(listed))
    wrapped = TurnLimit(legos_envs.make(env_id), turns=1)
    wrapped.reset(seed=1)
    wrapped.step(
        wrapped.action_space(wrapped.agent_selection).sample(wrapped.infos[wrapped.agent_selection]["legal_actions"])
    )
    assert all(info["legal_actions"] is None for info in wrapped.infos.values() if "outcome" in info)


@pytest.mark.slow
def test_the_list_from_the_module():
    done = subprocess.run([sys.executable, "-m", "legos_envs"], capture_output=True, text=True, check=True)
    first = [line.split()[0] for line in done.stdout.splitlines() if line]
    assert set(legos_envs.registered()) <= {*first} and done.stdout.startswith("Board, card and matrix games\n")
    assert "two players who choose simultaneously" in done.stdout


@pytest.mark.parametrize("wrong", [5, None, ["KuhnPoker-v0"]])
def test_an_id_that_is_no_text(wrong):
    with pytest.raises(TypeError, match=re.escape(repr(wrong)) + r".*python -m legos_envs"):
        legos_envs.make(wrong)


@pytest.mark.parametrize(
    ("env_id", "wrong", "near"),
    [
        ("KuhnPoker-v0", "num_round", "num_rounds"),
        ("LiarsDice-v0", "maxturns", "max_turns"),
        ("Debate-v0", "memry", "memory"),
        pytest.param("TextArena/KuhnPoker-v0", "players", "num_players", marks=pytest.mark.slow),
    ],
)
def test_an_unknown_argument_is_answered_with_the_accepted_ones(env_id, wrong, near):
    pattern = rf"{env_id}: argument '{wrong}' is unknown. Did you mean '{near}'\? Accepted: .*'invalid_retries'"
    with pytest.raises(legos_envs.BadArguments, match=pattern):
        legos_envs.make(env_id, **{wrong: 3})


@pytest.mark.parametrize(
    ("env_id", "argument", "value", "why"),
    [
        ("MatrixGame-v0", "game", ["rps"], "game must be one of 'rps'"),
        ("MatrixGame-v0", "actions", 3, "actions must be a list; got 3"),
        ("Nim-v0", "heaps", 1.5, "heaps must be a list; got 1.5"),
        ("Nim-v0", "misere", "no", "misere must be one of True, False; got 'no'"),
        ("Negotiation-v0", "resources", 1.5, "resources must be a list; got 1.5"),
        ("Negotiation-v0", "weights", [1], "weights must map names to values"),
        ("Dataset-v0", "weights", 0.5, "weights must map names to values"),
        ("Dataset-v0", "size", 10**30, "size must be a whole number from 1 to 1000000000"),
        ("GSM8K-v0", "bad_rows", "drop", "bad_rows must be one of 'refuse', 'skip'"),
        ("SPICE-v0", "bad_rows", "drop", "bad_rows must be one of 'refuse', 'skip'"),
        ("HeadToHead-v0", "match_kwargs", "{criteria: x}", "match_kwargs must map names to values"),
        ("EloArena-v0", "match_kwargs", [1], "match_kwargs must map names to values"),
        ("Tournament-v0", "entrants", 3, "multiple values for argument 'entrants'"),
    ],
)
def test_an_argument_of_another_kind_is_answered_with_what_it_must_be(env_id, argument, value, why):
    with pytest.raises(
        legos_envs.BadArguments, match=re.escape(f"{env_id} cannot be created with {argument}=")
    ) as caught:
        legos_envs.make(env_id, **{argument: value})
    assert why in str(caught.value)


def test_a_factory_of_anything_keeps_its_own_words():
    def factory(**kwargs):
        raise TypeError(f"a bad argument: {kwargs}")

    legos_envs.register("Anything-v0", factory)
    with pytest.raises(legos_envs.BadArguments, match=r"a bad argument: {'x': 1}"):
        legos_envs.make("Anything-v0", x=1)


@pytest.mark.parametrize("wrap", [lambda env: env, lambda env: FillSeats(env, {"player_1": "random"})])
def test_before_the_first_reset(wrap):
    env = wrap(legos_envs.make("KuhnPoker-v0"))
    for attempt in (lambda: list(env.agent_iter()), env.last):
        with pytest.raises(AttributeError, match=r"KuhnPoker-v0: call reset\(seed=\.\.\.\) first"):
            attempt()


def test_last_after_the_end():
    env = play_the_readmes_loop("KuhnPoker-v0")
    assert list(env.agent_iter()) == []
    with pytest.raises(RuntimeError, match=r"last\(\) after the end: .* call reset\(\)"):
        env.last()


@pytest.mark.parametrize(
    "env_id",
    [
        "KuhnPoker-v0",
        "Debate-v0",
        pytest.param("TextArena/KuhnPoker-v0", marks=pytest.mark.slow),
        pytest.param("TextArena/IteratedPrisonersDilemma-v0", marks=pytest.mark.slow),
    ],
)
def test_pettingzoos_state_test(env_id):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        state_test(legos_envs.make(env_id), turn_based_aec_to_parallel(legos_envs.make(env_id)))


def test_the_space_of_states():
    env = legos_envs.make("KuhnPoker-v0")
    env.reset(seed=3)
    env.step(env.infos["player_0"]["legal_actions"][0])
    space = env.state_space
    assert space.contains(env.state()) and space.contains(space.sample()) and space == type(space)()
    assert not space.contains({**env.state(), "log": [["player_0", 1]]}) and not space.contains({"seed": 1})
    env.restore(space.sample())
    assert env.log == []


@pytest.mark.slow
def test_the_list_of_environments_may_be_cut_off():
    command = f"{sys.executable} -m legos_envs | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stdout and not done.stderr
