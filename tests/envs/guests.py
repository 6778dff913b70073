"""TextArena's games, begun and played, for their tests."""

import asyncio

import legos_envs
from legos_envs.policies import make_policy
from legos_envs.textarena.env import TextArena

REPRESENTATIVE = {
    "KuhnPoker-v0": {},
    "TicTacToe-v0": {"memory": "state"},
    "LiarsDice-v0-small": {"num_players": 3},
    "SimpleNegotiation-v0-short": {},
    "IteratedPrisonersDilemma-v0": {"max_turns": 12},
    "GuessTheNumber-v0": {"action_format": "boxed"},
    "Countdown-v0": {},
    "SecretMafia-v0": {"max_turns": 12},
}


def begun(game, seed=0, **kwargs):
    env = TextArena(game, **kwargs)
    env.reset(seed=seed)
    return env


def play(env, *said):
    for action in said:
        env.step(action)
    return env


def last(env, agent):
    return env.observe(agent)["messages"][-1]["content"]


def everything(env, agent):
    return "\n".join(message["content"] for message in env.observe(agent)["messages"])


def to_the_end(env, seed, policy="random"):
    return asyncio.run(legos_envs.play(env, make_policy(policy, env), seed))
