"""Laws of every env whose rules are a `Game`: what is solved is what is played."""

import json
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import legos_envs
from legos_envs import Decision, exact, parsing
from legos_envs.game import info_set
from legos_envs.policies import make_policy
from legos_envs.testing.pages import page

ENVS = {
    "kuhn": ("KuhnPoker-v0", {}),
    "nim": ("Nim-v0", {}),
    "nim_heaps": ("Nim-v0", {"heaps": (2, 3), "misere": True, "max_take": None}),
    "tic_tac_toe": ("TicTacToe-v0", {}),
    "boxed": ("TicTacToe-v0", {"action_format": "boxed"}),
    "rps": ("MatrixGame-v0", {}),
    "iterated": ("MatrixGame-v0", {"game": "biased_rps", "rounds": 3}),
    "dilemma": ("MatrixGame-v0", {"game": "prisoners_dilemma"}),
    "leduc": ("LeducPoker-v0", {}),
    "connect_three": ("ConnectFour-v0", {"rows": 3, "columns": 3, "connect": 3}),
}
PLAY = {"seed": st.integers(0, 2**31), "choices": st.lists(st.integers(0, 2**16), min_size=40, max_size=40)}


@cache
def env_of(key):
    id, kwargs = ENVS[key]
    return legos_envs.make(id, **kwargs).unwrapped


@cache
def prompts_of(key):
    """The information set of every (player, prompt)."""
    env = env_of(key)
    sets = exact.info_sets(env.game)
    prompts = {(infoset.player, json.dumps(env.observation_in(infoset))): infoset for infoset in sets}
    assert len(prompts) == len(sets), "two information sets read alike"
    return prompts


def random_play(env, seed, choices, look=lambda agent: None):
    """Plays legal moves; returns the log and each agent's return."""
    env.reset(seed=seed)
    totals = dict.fromkeys(env.possible_agents, 0.0)
    while not env.ended:
        look(env.agent_selection)
        legal = env.infos[env.agent_selection]["legal_actions"]
        env.step(legal[choices[len(env.log)] % len(legal)])
        for agent, reward in env.rewards.items():
            totals[agent] += reward
    return list(env.log), totals


@pytest.mark.parametrize("key", ENVS)
@settings(max_examples=15, deadline=None)
@given(**PLAY)
def test_every_prompt_is_that_of_an_information_set(key, seed, choices):
    """And the moves of the episode, played in the `Game`, lead through the same sets to the same returns."""
    env, met = env_of(key), []

    def look(agent):
        infoset = prompts_of(key)[env.possible_agents.index(agent), json.dumps(env.observe(agent))]
        written = tuple(parsing.write_action(move, env.action_format) for move in infoset.legal)
        assert env.infos[agent]["legal_actions"] == env.infos[agent]["action_mask"] == written
        met.append(infoset)

    log, totals = random_play(env, seed, choices, look)
    moves = [parsing.action(text, env.action_format) for _, text in log]
    replayed = [end for _, state in env.game.initial() if (end := replay(env.game, state, moves, met)) is not None]
    assert tuple(totals.values()) in replayed
    assert all(env.terminations.values()) and not any(env.truncations.values())
    if env.zero_sum:
        assert sum(totals.values()) == pytest.approx(0)
    for agent in env.possible_agents:
        assert "numpy" not in repr([type(value).__module__ for value in env.infos[agent].values()])


def exact_policy(env, name):
    """A policy that pages name, as probabilities in every information set."""
    kind, _, script = name.rpartition(":")
    if not kind:
        return {"random": exact.uniform, "optimal": exact.nash(env.game)}[name]
    if script in ("first", "last"):
        return lambda infoset: {infoset.legal[0 if script == "first" else -1]: 1.0}
    if script.startswith("depth_"):

        def search(infoset):
            moves = env.game.best_moves(env.game.read(f"\n{infoset.view}"), int(script.removeprefix("depth_")))
            return dict.fromkeys(moves, 1 / len(moves))

        return search
    if script in getattr(env.game, "scripted", {}):
        return env.game.scripted[script]

    def ask(infoset):  # the other scripted players do not throw dice
        written = tuple(parsing.write_action(move, env.action_format) for move in infoset.legal)
        agent = env.possible_agents[infoset.player]
        decision = Decision(agent, agent, env.observation_in(infoset), {"legal_actions": written}, 0, 0)
        return {parsing.action(make_policy(name, env)(decision), env.action_format): 1.0}

    return ask


@pytest.mark.parametrize("id", sorted({id for id, _ in ENVS.values()}))
def test_the_expected_returns_on_the_page_are_exact(id):
    """To the digits given, wherever the game can be evaluated: all but matches and the full board of connect four."""
    checked = 0
    for claim in page(id).claims:
        env = legos_envs.make(id, **claim.arguments).unwrapped
        if "num_rounds" in claim.arguments or not getattr(env.game, "solvable", True):
            continue
        policies = [exact_policy(env, claim.players.get(agent) or claim.players["*"]) for agent in env.possible_agents]
        values = exact.expected_returns(env.game, lambda infoset, of=policies: of[infoset.player](infoset))
        for agent, value in zip(env.possible_agents, values):
            assert claim.returns.get(agent, value) == pytest.approx(value, abs=5.1e-5), claim
        checked += 1
    assert checked >= 4


def replay(game, state, moves, met):
    """The returns after the moves, or None when they do not lead through these information sets."""
    for move, infoset in zip(moves, met):
        if game.player(state) is None or info_set(game, state) != infoset:
            return None
        state = game.next(state, move)
    return game.returns(state) if game.player(state) is None else None


@pytest.mark.parametrize("key", ENVS)
@settings(max_examples=6, deadline=None)
@given(**PLAY)
def test_an_episode_is_a_function_of_seed_and_actions(key, seed, choices):
    id, kwargs = ENVS[key]
    seen = []
    for env in (env_of(key), legos_envs.make(id, **kwargs).unwrapped):
        said = []
        result = random_play(env, seed, choices, lambda agent, env=env, said=said: said.append(env.observe(agent)))
        seen.append((result, said))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("key", ["kuhn", "nim", "nim_heaps", "rps", "dilemma"])
def test_every_information_set_can_be_met(key):
    """In the small games, where chance meets them all: the solver sees no more than the env shows."""
    env, met = env_of(key), set()
    for seed in range(400):
        random_play(
            env,
            seed,
            [(seed * 7919 + turn * 104729) >> 3 for turn in range(40)],
            lambda agent: met.add((env.possible_agents.index(agent), json.dumps(env.observe(agent)))),
        )
    assert met == set(prompts_of(key))


@pytest.mark.parametrize("key", [*ENVS, "kuhn_match"])
@pytest.mark.parametrize("retries", [0, 3])
def test_the_turn_limit_leaves_room_for_every_retry(key, retries):
    id, kwargs = {**ENVS, "kuhn_match": ("KuhnPoker-v0", {"num_rounds": 3})}[key]
    env = legos_envs.make(id, **kwargs, invalid_retries=retries).unwrapped
    for seed in range(3):
        env.reset(seed=seed)
        number = 0
        while not env.ended:
            agent, number = env.agent_selection, number + 1
            for _ in range(retries):
                env.select(agent)
                env.step("what?")
            env.select(agent)
            env.step(env.infos[agent]["legal_actions"][(seed + number) % 2 - 1])
        assert all(env.terminations.values()) and not any(env.truncations.values())
        assert env.infos[agent].get("outcome") is None
    assert legos_envs.make(id, **kwargs, max_turns=5).unwrapped.max_turns == 5
