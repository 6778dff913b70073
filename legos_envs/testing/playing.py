"""Whole episodes: endings, rewards, observations and legal actions."""

from __future__ import annotations

import math
from typing import Any

from pettingzoo import AECEnv

from legos_envs import parsing
from legos_envs.play import play, wait_for
from legos_envs.testing.harness import Skipped, Step, Subject, check, drive, rejected, require, same, short

PLAIN = (str, int, float, bool, type(None))
BRANCHES = 300
MOST_NAMED = 60
"""With more legal actions than this, a prompt may state their range instead."""


@check("play.ends")
def ends(s: Subject) -> None:
    """Self-play with legal actions always comes to an end, and every agent is informed of it."""
    agents = set(s.make().possible_agents)
    for seed, record in enumerate(s.records):
        missing = agents - set(record.endings)
        require(not missing, f"seed {seed}: no end was shown to {sorted(missing)}")


@check("play.one_ending")
def one_ending(s: Subject) -> None:
    """All agents end in the same way: all terminated, or all truncated, never both."""
    for seed, record in enumerate(s.records):
        kinds = set(record.endings.values())
        require(
            kinds in ({(True, False)}, {(False, True)}),
            f"seed {seed}: (terminated, truncated) is {record.endings}; give all agents one and the same ending",
        )


@check("play.outcomes")
def outcomes(s: Subject) -> None:
    """Self-play has at least two different results."""
    if len(s.records) < 2:
        raise Skipped("needs two episodes or more")
    results = {tuple(sorted(record.returns.items())) for record in s.records}
    require(len(results) > 1, f"all {len(s.records)} episodes ended with {short(results)}; nothing can be learned")


@check("play.legal")
def legal(s: Subject) -> None:
    """Every listed legal action is accepted."""
    env = s.patient()
    branches = 0
    for seed, record in enumerate(s.records[:4]):
        for k, step in enumerate(record.steps):
            for action in step.info.get("legal_actions") or ():
                if branches == BRANCHES:
                    return
                branches += 1
                s.begin(seed, env)
                for before in record.steps[:k]:
                    env.step(before.action)
                env.step(action)
                refused = rejected(env, step.agent) if s.native else False
                require(not refused, f"seed {seed}, action {k}: {action!r} of {step.agent!r} is listed but refused")
    require(
        branches == 0 or all(record.outcome != "invalid" for record in s.records),
        "an episode of legal actions ended with outcome 'invalid'",
    )


@check("play.turn_limit")
def turn_limit(s: Subject) -> None:
    """Episodes keep to `max_turns`; reaching it truncates every agent and terminates none."""
    limit = getattr(s.make(), "max_turns", None)
    if not isinstance(limit, int):
        raise AssertionError(f"the env has no `max_turns` (found {limit!r})")
    longest = max(len(record.steps) for record in s.records)
    require(longest <= limit, f"an episode took {longest} actions; max_turns is {limit}")
    seed, record = max(enumerate(s.records), key=lambda pair: len(pair[1].steps))
    for allowed in {1, len(record.steps) - 1} - {0}:
        if allowed >= len(record.steps):
            continue
        env = s.variant(max_turns=allowed)
        if env is None:
            raise AssertionError("the constructor must take max_turns")
        cut = s.play(seed, env)
        hidden = env is not env.unwrapped  # a wrapper may play some of the turns itself
        require(
            (len(cut.steps) == allowed or (hidden and len(cut.steps) < allowed))
            and set(cut.endings.values()) == {(False, True)},
            f"with max_turns={allowed}, seed {seed} took {len(cut.steps)} actions and ended as {cut.endings}",
        )


@check("play.zero_sum")
def zero_sum(s: Subject) -> None:
    """Returns add up to zero, invalid moves included, where the env declares `zero_sum`."""
    if not getattr(s.make(), "zero_sum", False):
        raise Skipped("not declared zero-sum")
    for seed, record in enumerate(s.records):
        total = math.fsum(record.returns.values())
        require(abs(total) < 1e-6, f"seed {seed}: the returns {record.returns} add up to {total}")
    if getattr(s.make(), "invalid_opponent_reward", 0) is None:
        env = s.begin(0)
        offender = env.agent_selection
        player = s.player(0)
        policy = player.policy
        player.policy = lambda decision: "" if decision.agent == offender else policy(decision)
        returns = drive(env, player).returns
        require(abs(math.fsum(returns.values())) < 1e-6, f"after an invalid move the returns are {returns}")


@check("rewards.finite")
def finite(s: Subject) -> None:
    """Every reward is a finite float."""
    for seed, record in enumerate(s.records):
        for agent, reward in record.rewards:
            require(
                type(reward) in (float, int) and math.isfinite(reward),
                f"seed {seed}: the reward of {agent!r} is {reward!r} ({type(reward).__name__})",
            )


@check("rewards.play")
def rewards_play(s: Subject) -> None:
    """`legos_envs.play` finds the same returns as a plain AEC loop."""
    for seed, record in enumerate(s.records[:5]):
        player, env = s.player(seed), s.make()

        def policy(decision: Any, player: Any = player, env: Any = env) -> Any:
            return player(env, decision.agent, decision.observation, decision.info)

        episode = wait_for(play(env, policy, seed))
        wrong = {a: (episode.returns[a], r) for a, r in record.returns.items() if abs(episode.returns[a] - r) > 1e-9}
        require(not wrong, f"seed {seed}: (play, AEC loop) returns differ: {wrong}")


@check("infos.plain")
def plain(s: Subject) -> None:
    """Infos are plain JSON values and name role (str) and trainable (bool)."""
    for record in s.records[:20]:
        for agent, info in [(x.agent, x.info) for x in record.steps] + [(a, i) for a, (_, i) in record.last.items()]:
            require(_is_plain(info), f"the info of {agent!r} is not plain JSON: {short(info)}")
            require(
                isinstance(info.get("role"), str) and isinstance(info.get("trainable"), bool),
                f"the info of {agent!r} must have role (str) and trainable (bool): {short(info)}",
            )


def _is_plain(value: Any) -> bool:
    if type(value) is dict:
        return all(type(key) is str and _is_plain(item) for key, item in value.items())
    if type(value) in (list, tuple):
        return all(map(_is_plain, value))
    return type(value) in PLAIN and not (isinstance(value, float) and not math.isfinite(value))


@check("infos.fresh")
def fresh(s: Subject) -> None:
    """Infos are fresh objects: changing an old one has no effect."""
    for seed in range(3):
        env = s.begin(seed)

        def vandalise(step: Step, env: AECEnv = env) -> None:
            info = env.infos[step.agent]
            info.clear()
            info["vandal"] = True

        record = drive(env, s.player(seed), each=vandalise)
        same(record, s.play(seed), "after the caller emptied an info it had read")


@check("infos.legal")
def legal_listed(s: Subject) -> None:
    """Legal actions are listed as strings, and the text names them: all, or the first and last of more than 60."""
    listed = 0
    for record in s.records[:20]:
        for step in record.steps:
            actions = step.info.get("legal_actions")
            if actions is None:
                continue
            listed += 1
            require(
                actions and all(isinstance(a, str) for a in actions) and len(set(actions)) == len(actions),
                f"legal_actions of {step.agent!r} must be different strings: {short(actions)}",
            )
            text = step.observation["messages"][-1]["content"]
            names = {a: parsing.bracketed(a) or parsing.boxed(a) or a for a in actions}
            named = actions if len(actions) <= MOST_NAMED else (actions[0], actions[-1])
            absent = [a for a in named if a not in text and names[a] not in text]
            require(not absent, f"{absent[:3]} are legal for {step.agent!r} but not named in the text: {short(text)}")
    if not listed:
        raise Skipped("lists no legal actions")


@check("spaces.same")
def spaces(s: Subject) -> None:
    """Spaces are the same objects at every call, take any text, and contain every observation and legal action."""
    env = s.begin(0)
    for agent in env.possible_agents:
        for space in (env.observation_space, env.action_space):
            require(space(agent) is space(agent), f"{space.__name__}({agent!r}) gives a new object at each call")
        for text in ("", "a b", "語 🎲 \u202e \x00"):
            require(env.action_space(agent).contains(text), f"the action space of {agent!r} refuses the text {text!r}")
    for record in s.records[:5]:
        for step in record.steps:
            require(
                env.observation_space(step.agent).contains(step.observation),
                f"the observation space of {step.agent!r} does not contain {short(step.observation)}",
            )
            require(env.action_space(step.agent).contains(step.action), f"{step.action!r} is outside the action space")


@check("observation.chat")
def chat(s: Subject) -> None:
    """Observations are `{"messages": ...}` that alternate user and assistant; before an action the user is last."""
    for record in s.records[:20]:
        for step in record.steps:
            roles = _roles(step.agent, step.observation)
            require(roles and roles[-1] == "user", f"{step.agent!r} is to act, but the roles it sees are {roles}")
        for agent, (observation, _) in record.last.items():
            _roles(agent, observation)


def _roles(agent: str, observation: Any) -> list[str]:
    good = isinstance(observation, dict) and isinstance(observation.get("messages"), tuple)
    require(good, f"{agent!r} observes {short(observation)}; give {{'messages': (...)}}")
    require(
        all(set(m) == {"role", "content"} and isinstance(m["content"], str) for m in observation["messages"]),
        f"{agent!r}: every message needs exactly role and content: {short(observation)}",
    )
    roles = [m["role"] for m in observation["messages"]]
    spoken = roles[1:] if roles[:1] == ["system"] else roles
    require(
        spoken == [("user", "assistant")[i % 2] for i in range(len(spoken))],
        f"{agent!r}: roles must alternate user, assistant; they are {roles}",
    )
    return spoken
