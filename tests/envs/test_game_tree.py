"""Positions that envs share: an env that takes over what was recorded is, to its callers, one that ran its rules."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import numpy as np
import pytest

import legos_envs
from legos_envs import Runner
from legos_envs.game import GameEnv, tree
from legos_envs.games.kuhn_poker import KuhnPoker

GAMES: list[tuple[str, dict[str, Any]]] = [
    ("KuhnPoker-v0", {}),
    ("KuhnPoker-v0", {"memory": "chat", "invalid_retries": 2}),
    ("KuhnPoker-v0", {"max_turns": 2}),
    ("LeducPoker-v0", {}),
    ("TicTacToe-v0", {"random_opening": 2}),
    ("ConnectFour-v0", {}),
    ("Nim-v0", {"preset": "spiral"}),
    ("LiarsDice-v0", {"one_round": True, "dice": 1}),
]


def seen(env: Any) -> dict[str, Any]:
    """All that AEC code can see of an env."""
    return {
        "agents": list(env.agents),
        "selection": env.agent_selection,
        "ready": list(env.ready_agents),
        "rewards": dict(env.rewards),
        "since": dict(env._cumulative_rewards),
        "over": (dict(env.terminations), dict(env.truncations)),
        "infos": {agent: dict(info) for agent, info in env.infos.items()},
        "observed": {agent: env.observe(agent) for agent in env.possible_agents},
        "log": list(env.log),
        "shown": env.render(),
        "state": env.state(),
    }


def texts(env: Any, rng: np.random.Generator) -> str:
    """Mostly a legal action, in few words, so that positions recur; at times nonsense."""
    legal = env.infos[env.agent_selection]["legal_actions"]
    if rng.random() < 0.15:
        return ["", "[nonsense]", "<think>[bet]"][rng.integers(3)]
    return str(legal[rng.integers(min(len(legal), 2))])


@pytest.mark.parametrize(("env_id", "args"), GAMES, ids=lambda value: str(value))
def test_known_positions_are_what_the_rules_make(env_id: str, args: dict[str, Any]):
    plain = legos_envs.make(env_id, render_mode="ansi", **args)
    plain.unwrapped.replayable = False
    known = [legos_envs.make(env_id, render_mode="ansi", **args) for _ in range(2)]
    taken_over = 0
    for seed in range(60):
        env, rng = known[seed % 2], np.random.default_rng(seed)
        for one in (plain, env):
            one.reset(seed=seed % 12)
        assert seen(env) == seen(plain)
        while not plain.ended:
            action = texts(plain, rng)
            for one in (plain, env):
                one.step(action)
            assert seen(env) == seen(plain)
            taken_over += not env.unwrapped._running
        while plain.agents:  # the steps of dead agents too
            for one in (plain, env):
                one.step(None)
            assert (env.agents, env.rewards, env.infos) == (plain.agents, plain.rewards, plain.infos)
    assert taken_over > 20


def known_kuhn(*, seed: int = 0, actions: tuple[str, ...] = ()) -> KuhnPoker:
    """An env at a position that another one has been at."""
    for _ in range(2):
        env = KuhnPoker()
        env.reset(seed=seed)
        for action in actions:
            env.step(action)
    assert not env._running
    return env


def test_changes_to_what_an_env_shows_stay_in_it():
    env = known_kuhn(actions=("[check]",))
    before = seen(env)
    env.infos["player_0"]["role"] = "somebody else"
    env.rewards["player_0"] = 7.0
    env.agents.clear()
    env.log.clear()
    assert seen(known_kuhn(actions=("[check]",))) == before


def test_changes_to_a_list_of_offenders_stay_in_it():
    for _ in range(3):  # runs the rules; takes over what was recorded, twice
        env = KuhnPoker(invalid_retries=0, invalid_reward=-3.25)
        env.reset(seed=0)
        env.step("nonsense")
        assert env.infos["player_1"]["offenders"] == ["player_0"]
        env.infos["player_1"]["offenders"].append("player_1")


def test_changes_to_what_a_runner_hands_out_stay_in_its_episode():
    for _ in range(3):  # runs the rules; takes over what was recorded, twice
        runner = Runner(KuhnPoker(invalid_retries=0, invalid_reward=-3.5), 0)
        (decision,) = runner.pending()
        assert decision.info["role"] == "player_0"
        decision.info["role"] = "somebody else"
        runner.answer(decision, "nonsense")
        for trajectory in runner.episode.trajectories.values():
            assert trajectory.info["role"] == trajectory.role == trajectory.agent
            assert trajectory.info["offenders"] == ["player_0"]
        for trajectory in runner.episode.trajectories.values():
            trajectory.info["role"] = "somebody else"
            trajectory.info["offenders"].append("player_1")
        assert runner.episode.returns["player_0"] == -3.5


def test_a_message_that_episodes_share_cannot_be_changed_but_copied():
    for _ in range(2):  # runs the rules; takes over what was recorded
        env = KuhnPoker(memory="chat")
        env.reset(seed=0)
        env.step("[check]")
        for agent in env.possible_agents:
            (message, *_) = env.observe(agent)["messages"]
            for change in (lambda m: m.update(content=""), lambda m: m.pop("role"), lambda m: m.__setitem__("x", "")):
                with pytest.raises(TypeError, match="shared by all episodes"):
                    change(message)
            for copied in (message.copy(), copy.deepcopy(message), pickle.loads(pickle.dumps(message)), {**message}):
                assert type(copied) is dict and copied == message == json.loads(json.dumps(message))


def test_long_texts_are_not_kept():
    for seed in range(2):
        env = KuhnPoker(max_turns=40)
        env.reset(seed=0)
        env.step("t" * tree.MAX_CHARS)
        assert env._running == (seed == 0)  # the second one takes over
        env.step(f"{'t' * tree.MAX_CHARS}[bet]")
        assert env._running and env._node is None and len(env.log) == 2


def test_the_log_stays_one_list():
    env = known_kuhn()
    log = env.log
    for action in ("[check]", "a new text, so that the rules run", "[bet]"):
        env.step(action)
    assert env.log is log and log[0] == ("player_0", "[check]") and len(log) == 3


def test_an_env_in_the_middle_of_the_tree_can_be_copied():
    env = known_kuhn(actions=("[check]", "[bet]"))
    twin = pickle.loads(pickle.dumps(env))
    assert seen(twin) == seen(env)
    for one in (env, twin):
        one.step("[call]")
    assert seen(twin) == seen(env) and env.ended


def test_settings_changed_later_count():
    env = known_kuhn()
    env.invalid_retries, env.invalid_reward = 0, -5.0
    env.reset(seed=0)
    env.step("nonsense")
    assert env.ended and env.rewards["player_0"] == -5.0


def test_a_subclass_with_other_rules_shares_nothing():
    known_kuhn(actions=("[bet]", "[fold]"))

    class Generous(KuhnPoker):
        def play(self, table):
            returns = yield from GameEnv.play(self, table)
            table.reward("player_1", 10.0)
            return returns

    for _ in range(2):
        env = Generous()
        env.reset(seed=0)
        env.step("[bet]")
        env.step("[fold]")
        assert env._running and env.rewards["player_1"] == 9.0


def test_a_full_tree_starts_over(monkeypatch):
    monkeypatch.setattr(tree, "MAX_POSITIONS", 4)
    env = KuhnPoker(max_turns=50)
    for number in range(10):
        env.reset(seed=number)
        env.step(f"nonsense {number}")
        assert env._tree is not None and env._tree.count <= 4 and len(env._tree.deals) <= 4
        env.step("[bet]")


def test_messages_have_one_type_whoever_comes_first():
    """PettingZoo's `seed_test` compares types, and the second of two envs enters what the first has recorded."""
    envs = [
        legos_envs.make("ConnectFour-v0", memory="chat", invalid_reward=-0.5) for _ in range(2)
    ]  # a tree of their own
    kinds: list[list[type]] = [[], []]
    for env, found in zip(envs, kinds):
        env.reset(seed=0)
        for move in range(tree.MAX_DEPTH + 2):
            env.step(f"[{'1234567'[move % 4]}]")
            found += [type(message) for message in env.last()[0]["messages"]]
    assert kinds[0] == kinds[1]


def test_options_that_are_no_deal_are_refused_as_ever():
    env = known_kuhn()
    with pytest.raises(ValueError, match="two different letters") as caught:
        env.reset(seed=0, options={"cards": "QQ"})
    assert "raised by the rules of KuhnPoker-v0" in caught.value.__notes__[0]


def test_every_replayable_game_is_compared_here():
    kinds = {type(legos_envs.make(env_id).unwrapped) for env_id, _ in GAMES}
    others = {type(legos_envs.make(env_id).unwrapped) for env_id in legos_envs.registered()}
    assert {kind for kind in others if vars(kind).get("replayable")} == kinds
