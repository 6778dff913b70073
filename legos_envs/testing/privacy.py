"""Who may see what: observing without side effects, private thoughts, hidden information, which text is the action."""

from __future__ import annotations

import copy
import json
from collections import defaultdict
from itertools import permutations
from random import Random
from typing import Any

from pettingzoo import AECEnv

from legos_envs.testing.harness import (
    Player,
    Skipped,
    Step,
    Subject,
    check,
    drive,
    rejected,
    require,
    same,
    short,
    texts,
)

STYLES = ("<think>{mark}</think> {action}", "{mark}</think>{action}", "{action} <think>{mark}")
HIDDEN_SEEDS = 60


@check("observe.pure")
def pure(s: Subject) -> None:
    """Observing changes nothing: repeated calls return the same, for every agent, in any order, and so does last()."""
    for seed in range(3):
        env, order = s.begin(seed), Random(seed)

        def look(step: Step, env: AECEnv = env, order: Random = order) -> None:
            before = {agent: copy.deepcopy(env.observe(agent)) for agent in env.agents}
            for agent in order.sample(env.agents, len(env.agents)) * 2:
                seen = env.observe(agent)
                require(
                    seen == before[agent],
                    f"{agent!r} observes {short(seen)} after others did, and {short(before[agent])} before",
                )
            require(env.last()[0] == step.observation, "last() gives another observation when called again")

        same(drive(env, s.player(seed), each=look), s.plain(seed), "with many more observations made")


@check("think.private")
def think_private(s: Subject) -> None:
    """A seat's thought (all up to the last `</think>`, or after an unclosed `<think>`) never reaches another seat."""
    for seed in range(2):
        for style in STYLES:
            _taint(s, seed, style)


def _taint(s: Subject, seed: int, style: str) -> None:
    env = s.begin(seed)
    mark_of = {agent: f"SECRET{number}X" for number, agent in enumerate(env.possible_agents)}

    def seek(reader: str, *shown: Any) -> None:
        result = [thinker for thinker, mark in mark_of.items() if thinker != reader and mark in texts(shown)]
        thought = style.format(mark="...", action="ACTION")
        require(not result, f"{reader!r} can read a thought of {result}, said as {thought!r}")

    def think(step: Step) -> None:
        for agent in env.agents:
            seek(agent, env.observe(agent), env.infos[agent])
        step.action = style.format(mark=mark_of[step.agent], action=step.action)

    record = drive(env, s.player(seed), each=think)
    for agent, shown in record.last.items():
        seek(agent, *shown)


@check("think.unclosed")
def think_unclosed(s: Subject) -> None:
    """An action inside a thought, closed or not, is not an action."""
    tried = 0
    for agent in s.one_seat_a_role:
        for text in ("<think>{}", "<think>{}</think>", "{}</think>"):
            env, player = _at_turn_of(s, agent)
            if env is None or not (legal := env.infos[agent].get("legal_actions")):
                continue
            tried += 1
            reply = text.format(legal[0])
            plain = [_behaviour(s, agent, action) for action in legal] if not s.native else []
            env.step(reply)
            accepted = not rejected(env, agent) if s.native else _aftermath(env, player) in plain
            require(not accepted, f"{reply!r} of {agent!r} was taken as an action")
    if not tried:
        raise Skipped("lists no legal actions")


@check("action.last")
def last_action(s: Subject) -> None:
    """Of several actions outside the thought, the last one counts."""
    told_apart = listed = 0
    for agent in s.one_seat_a_role:
        env, _ = _at_turn_of(s, agent)
        legal = (env.infos[agent].get("legal_actions") or ()) if env is not None else ()
        listed += len(legal) > 1
        after = {action: _behaviour(s, agent, action) for action in legal[:4]}
        for a, b in permutations(after, 2):
            if after[a] == after[b]:
                continue
            told_apart += 1
            for reply in (f"{a} no, {b}", f"<think>{a}</think> {b}", f"{b} <think>{a}"):
                got = _behaviour(s, agent, reply)
                require(got == after[b], f"{reply!r} of {agent!r} does not play {b!r}")
    if not told_apart:
        raise Skipped("actions cannot be told apart by their effect" if listed else "never lists two legal actions")


def _at_turn_of(s: Subject, agent: str) -> tuple[AECEnv | None, Player]:
    env, player = s.patient(), s.player(0)
    return (env if s.until(agent, s.begin(0, env), player) else None), player


def _behaviour(s: Subject, agent: str, reply: str) -> Any:
    env, player = _at_turn_of(s, agent)
    assert env is not None
    env.step(reply)
    return _aftermath(env, player)


def _aftermath(env: AECEnv, player: Player) -> Any:
    """The rest of the episode, apart from quotes of what was said."""
    record = drive(env, player)
    return [(x.agent, x.info.get("legal_actions")) for x in record.steps], record.returns, record.outcome


@check("hidden.private")
def hidden(s: Subject) -> None:
    """Where the env declares hidden information, no seat can read what only another seat may know."""
    probe = s.make()
    hook = getattr(probe, "private_texts", None)
    if not getattr(probe, "hidden_information", False) and hook is None:
        raise Skipped("declares no hidden information")
    strangers = getattr(probe, "strangers", _never)
    views: dict[Any, Any] = defaultdict(lambda: defaultdict(set))
    keeping: set[str] = set()
    for seed in range(HIDDEN_SEEDS):
        first = _first_views(s, seed, keeping)
        for reader, owner in permutations(first, 2):
            if not strangers(reader, owner):
                views[reader, owner][first[reader]].add(first[owner])
    told_apart = 0
    for (reader, owner), seen in views.items():
        if len(set().union(*seen.values())) == 1:
            continue  # the owner's view never varies, so it has no hidden information
        if hook is not None and owner not in keeping:
            continue  # the env declares nothing private to the owner, as for a question that the reader wrote
        told_apart += 1
        repeated = [owners for owners in seen.values() if len(owners) > 1]
        require(
            repeated or len(seen) >= HIDDEN_SEEDS,
            f"what {reader!r} sees always determines what {owner!r} sees: nothing is hidden",
        )
    require(told_apart or hook is not None, "hidden information is declared, but first views are equal for all seeds")


def _shown(text: str, observed: str) -> bool:
    """Whether an agent's observation, as JSON, contains a text, verbatim or quoted in JSON for a judge."""
    once = json.dumps(text, ensure_ascii=False)[1:-1]
    return text in observed or once in observed or json.dumps(once, ensure_ascii=False)[1:-1] in observed


def _never(reader: str, owner: str) -> bool:
    """For envs that do not declare (with `strangers`) which agents play apart: equal deals are then no leak."""
    return False


def _first_views(s: Subject, seed: int, keeping: set[str]) -> dict[str, str]:
    """What each trainable seat sees at its first turn if everybody always takes the first legal action.

    Agents with private texts are added to `keeping`.
    """
    views: dict[str, str] = {}
    env = s.begin(seed)
    hook, strangers = getattr(env, "private_texts", None), getattr(env, "strangers", _never)

    def look(step: Step) -> None:
        if step.info.get("trainable", True):
            views.setdefault(step.agent, texts([step.observation]))
        if hook is None:
            return
        for owner, reader in permutations(env.agents, 2):
            if strangers(reader, owner):
                continue
            private = hook(owner)
            keeping.update([owner] * bool(private))
            leaked = [text for text in private if _shown(text, texts([env.observe(reader)]))]
            require(not leaked, f"{reader!r} can read {leaked[:1]}, which only {owner!r} may know")

    player = s.player(0)
    talk = s.policy or (lambda decision: "I pass.")
    player.policy = lambda decision: (decision.legal_actions or (talk(decision),))[0]
    drive(env, player, each=look)
    return views
