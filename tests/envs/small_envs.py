"""Envs of a few lines for the tests of `TextEnv`."""

from legos_envs import Seat, TextEnv

PAIR = {"a_0": Seat("a"), "b_0": Seat("b")}


def env_of(play, seats=PAIR, **attributes):
    """An instance maker for rules written as a plain generator function of (env, table)."""
    return type("Made", (TextEnv,), {"seats": seats, "play": play, "zero_sum": True, **attributes})


def started(cls, seed=0, **kwargs):
    env = cls(**kwargs)
    env.reset(seed=seed)
    return env


def contents(env, agent):
    return [m["content"] for m in env.observe(agent)["messages"]]


def judge_says(decision):
    """Debaters number their words; the judge picks by its seed."""
    return decision.legal_actions[decision.seed % 2] if decision.legal_actions else f"word {decision.turn}"


def choosing(self, table):
    for agent in self.seats:
        yield from table.ask(agent, "Choose.", legal=("x", "y"))


def paying_early(self, table):
    """`b_0` antes 1, gets 5 for what `a_0` does, and 10 for its own action."""
    table.reward("b_0", -1.0)
    yield from table.ask("a_0")
    table.reward("b_0", 5.0)
    yield from table.ask("b_0")
    table.reward("b_0", 10.0)
