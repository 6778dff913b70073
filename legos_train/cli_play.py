"""`legos play ENV`: a person in the terminal against any policy."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any

import legos_envs
from legos_train.cli import parse_assignments, parser
from legos_train.policies import Cast


def run(arguments: Sequence[str]) -> int:
    p = parser("play", "Play in the terminal. Answer with an action such as [bet]; Ctrl-C leaves.")
    p.add_argument("env", nargs="?", default="KuhnPoker-v0")
    p.add_argument("--seat", action="append", default=[], metavar="AGENT=POLICY", help="default: you take the first")
    p.add_argument("--opponent", default="random", help="who takes the other seats (default: random)")
    p.add_argument("--seed", type=int, help="deal this episode")
    p.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE", help="constructor argument of the env")
    options = p.parse_args(arguments)
    env: Any = legos_envs.make(options.env, **parse_assignments(options.arg, "--arg"))
    env.reset(seed=0)
    chosen = {str(k): str(v) for k, v in parse_assignments(options.seat, "--seat").items()}
    if unknown := set(chosen) - set(env.possible_agents):
        p.error(f"no seat {sorted(unknown)}; {options.env} has {', '.join(env.possible_agents)}")
    if "human" not in chosen.values():
        chosen.setdefault(next(a for a in env.possible_agents if a not in chosen), "human")
    cast = Cast(env)
    try:
        players = {agent: cast.player(chosen.get(agent, options.opponent)) for agent in env.possible_agents}
        seed = secrets.randbits(31) if options.seed is None else options.seed
        try:
            episode = _play(env, players, seed, options.env)
        except EOFError:
            print("\nno more input: game left")
            return 1
    finally:
        cast.close()
    print()
    for agent, who in ((a, chosen.get(a, options.opponent)) for a in env.possible_agents):
        print(f"{agent} ({who}): {episode.returns[agent]:+g}")
    print(f"outcome: {episode.outcome or 'ended'} (seed {seed})")
    return 0


def _play(env: Any, players: dict[str, Any], seed: int, name: str) -> legos_envs.Episode:
    if all(callable(player) for player in players.values()):
        return asyncio.run(legos_envs.play(env, players, seed))
    from legos_train.rollout import EpisodeRequest, Rollouts

    (episode,) = Rollouts(lambda _: env).run([EpisodeRequest(name, seed, players)])
    return episode
