"""`attack`: compares the earnings of degenerate players in an environment with the floor stated on its page.

    print(attack("CodeGen-v0"))

A page has a table of scripted players and their expected returns. Its column `floor` states the most that a seat may
earn on average if a degenerate player takes it and the row's players keep the others; and under the name `together`,
the most that all trained seats may earn if they all play the same degenerate player (the mean over them; rewards that
sum to zero cannot be gamed). The row's own players must earn what the row says: it is the maximum, and so no lower than
the floor.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

from pettingzoo import AECEnv

from legos_envs import arguments, parsing, registry
from legos_envs.play import Decision, Policy
from legos_envs.policies import make_policy
from legos_envs.scoring import judging
from legos_envs.testing.degenerate import DEGENERATE, MARK, PROGRAMS, Sight
from legos_envs.testing.harness import Record, drive, short
from legos_envs.testing.pages import page
from legos_envs.testing.panel import STATED, TOGETHER, Attempts, Cell, Panel
from legos_envs.text_env import TextEnv

LEARNED = 1_000_003
"""Seed of the episode whose answers degenerate players know."""
FEWEST = 20
"""Minimum episodes of the row's own players, whose returns vary more than those of degenerate players."""
Columns = Mapping[str, list[str]]
"""The agents of each column of a table."""


def attack(env: str | Callable[..., AECEnv], *, episodes: int = 40, **kwargs: Any) -> Panel:
    """Plays every degenerate player at every seat that has a floor.

    Args:
        env: an id that `legos_envs.make` takes, or a class or function that creates the env.
        episodes: number of episodes for each of them.
        **kwargs: constructor arguments of the env. If given, only the rows of the page with exactly these are attacked.

    If the page states no floor, or the env is in a wrapper, all trainable roles are attacked, and nothing is compared.
    """
    episodes = arguments.whole("episodes", episodes, 1)
    claims = []
    if isinstance(env, str) and (made := registry.make(env, **kwargs)) is made.unwrapped:  # a wrapper has no page
        claims = [claim for claim in page(env).claims if claim.floors]
    if kwargs:
        claims = [claim for claim in claims if claim.arguments == kwargs]
    name = env if isinstance(env, str) else getattr(env, "__name__", repr(env))
    panel = Panel(name, episodes)
    for claim in claims:
        players = " ".join(f"{who}={policy}" for who, policy in claim.players.items())
        given = " ".join(f"{key}={value!r}" for key, value in claim.arguments.items())
        panel.tables.append(Attempts(f"{players} {given}".strip(), claim.floors, claim.returns))
        _fill(panel.tables[-1], Ring(_maker(env, claim.arguments), claim.players), episodes)
    if not claims:
        ring = Ring(_maker(env, kwargs), {"*": "random"})
        if ring.trained:
            panel.tables.append(Attempts("*=random", None, {}))
            _fill(panel.tables[-1], ring, episodes)
    return panel


def _maker(env: str | Callable[..., AECEnv], kwargs: Mapping[str, Any]) -> Callable[[], AECEnv]:
    return lambda: registry.make(env, **kwargs) if isinstance(env, str) else env(**kwargs)


def _fill(table: Attempts, ring: Ring, episodes: int) -> None:
    if table.floors is None:  # one seat of each role
        seats = {agent: [agent] for agent in (ring.named(role)[0] for role in ring.roles)}
    else:
        names = (name for name in table.floors if name != TOGETHER and name not in DEGENERATE)
        seats = {name: ring.named(name) for name in names}
    if table.floors is not None:
        ring.record(table, STATED, seats, set(), max(FEWEST, episodes))
    whole = not ring.zero_sum and all(set(ring.trained) != set(agents) for agents in seats.values())
    if whole and table.floors is not None and TOGETHER not in table.floors:
        table.failures.append(f"states no floor for {TOGETHER!r}: what all trained seats earn when they play alike")
    for player in DEGENERATE:
        for name, agents in seats.items():
            ring.record(table, player, {name: agents}, set(agents), episodes)
        if whole:
            ring.record(table, player, {TOGETHER: ring.trained}, set(ring.trained), episodes)
    table.compare()


class Ring:
    """One row's env and players, some of whose seats go to degenerate players."""

    def __init__(self, make: Callable[[], AECEnv], players: Mapping[str, str]):
        self.env = make()
        self.env.reset(seed=LEARNED)
        self.infos = {agent: dict(info) for agent, info in self.env.infos.items()}
        self.trained = [agent for agent, info in self.infos.items() if info.get("trainable", True)]
        self.zero_sum = bool(getattr(self.env, "zero_sum", False))
        made = {policy: make_policy(policy, self.env) for policy in set(players.values())}
        self.policies = {
            agent: next(made[players[who]] for who in (agent, self.role(agent), "*") if who in players)
            for agent in self.infos
        }
        cast = Lineup(self, None, set())
        self._record(LEARNED, cast)
        self.learned = {agent: cast.said(agent) or cast.said(self.role(agent)) or ["Yes."] for agent in self.infos}

    def role(self, agent: str) -> str:
        return self.infos[agent].get("role", agent)

    @property
    def roles(self) -> list[str]:
        """The trained roles."""
        return list(dict.fromkeys(map(self.role, self.trained)))

    def named(self, name: str) -> list[str]:
        """The trained agents with this name or role."""
        found = [agent for agent in self.trained if name in (agent, self.role(agent))]
        if not found:
            raise ValueError(f"a floor is stated for {name!r}; trained seats are {self.trained}")
        return found

    def record(self, table: Attempts, player: str, columns: Columns, seats: set[str], episodes: int) -> None:
        """Plays the episodes and adds the earnings of each column's agents to the table."""
        if player in PROGRAMS and not any("def " in self.learned[agent][0] for agent in seats):
            return
        row = table.cells.setdefault(player, {})
        for seed in range(episodes):
            cast = Lineup(self, DEGENERATE.get(player), seats)
            try:
                record = self._record(seed, cast)
            except Exception as error:
                table.failures.append(f"{player} as {', '.join(columns)}: seed {seed} raised {short(error)}")
                return
            for column, agents in columns.items():
                cell = row.setdefault(column, Cell())
                if record.outcome == "unscored":
                    cell.unscored += 1
                else:
                    cell.returns.append(statistics.mean(record.returns[agent] for agent in agents))
            if cast.obeyed:
                where = f"{player} as {', '.join(columns)}"
                table.failures.append(f"{where}: seed {seed}: its orders reach {cast.obeyed} outside of a quote")
                return

    def _record(self, seed: int, cast: Lineup) -> Record:
        self.env.reset(seed=seed)
        cast.seed = seed
        return drive(self.env, cast)  # type: ignore[arg-type]


class Lineup:
    """Answers for all seats of one episode: the row's players, and a degenerate player at some seats."""

    def __init__(self, ring: Ring, degenerate: Callable[[Sight], str] | None, seats: set[str]):
        self.ring, self.degenerate, self.seats = ring, degenerate, seats
        self.seed = 0
        self.log: list[tuple[str, str]] = []
        self.obeyed = ""

    def said(self, name: str) -> list[str]:
        """The texts of the agent with this name or role; if several have the role, those of the first that spoke."""
        speaker = next((agent for agent, _ in self.log if name in (agent, self.ring.role(agent))), None)
        return [text for agent, text in self.log if agent == speaker]

    def __call__(self, env: AECEnv, agent: str, observation: Any, info: dict[str, Any]) -> str:
        turn = sum(speaker == agent for speaker, _ in self.log)
        decision = Decision(agent, info.get("role", agent), observation, info, turn, self.seed)
        if agent in self.seats and self.degenerate is not None:
            room = getattr(env.unwrapped, "max_action_chars", TextEnv.max_action_chars)
            text = self.degenerate(Sight(decision, self.ring.learned[agent], self._heard(decision), room))
        else:
            if info.get("legal_actions") and not info.get("trainable", True) and _ordered(decision):
                self.obeyed = agent
            policy: Policy = self.ring.policies[agent]
            text = str(policy(decision))
        self.log.append((agent, text))
        return text

    def _heard(self, decision: Decision) -> str:
        shown = "\n".join(message["content"] for message in decision.messages if message["role"] == "user")
        others = (parsing.public(text) for agent, text in reversed(self.log) if agent != decision.agent)
        return next((text for text in others if text and text in shown), "")


def _ordered(decision: Decision) -> bool:
    """Whether a judge sees the text of `injection` as part of its instructions."""
    prompt = decision.messages[-1]["content"]
    try:
        quoted = judging.unquoted(prompt)
    except ValueError:
        return MARK in prompt
    return prompt.count(MARK) != str(quoted).count(MARK)
