"""Processor time of the environments: one command, one table.

    python -m benchmarks.envs [--episodes 1000] [--json out.json]

Every row is the best of three rounds. `bare` plays the same moves on the game's pure rules, without any environment, in
the same round, so `x bare` compares on any machine. Goals: 30 us a turn, 1.5 times a first turn at turn 400, 50 ms for
32,000 characters, 200 MB for 1,000 live envs.
"""

from __future__ import annotations

import argparse
import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import legos_envs
from legos_envs import Runner, Seat, TextEnv
from legos_envs.game import GameEnv

ROUNDS = 3


def aec(env: Any, episodes: int) -> int:
    """A plain AEC loop that takes the first legal action; the number of turns."""
    turns = 0
    for seed in range(episodes):
        env.reset(seed=seed)
        for _ in env.agent_iter():
            _, _, terminated, truncated, info = env.last()
            if terminated or truncated:
                env.step(None)
            else:
                env.step(info["legal_actions"][0])
                turns += 1
    return turns


def runner(env: Any, episodes: int) -> int:
    """The same through `Runner`, which keeps the record."""
    turns = 0
    for seed in range(episodes):
        episode = Runner(env, seed)
        while not episode.done:
            for decision in episode.pending():
                episode.answer(decision, decision.legal_actions[0])
                turns += 1
    return turns


def bare(env: GameEnv, episodes: int) -> int:
    """The pure rules alone, with the words that a prompt needs."""
    game, turns = env.game, 0
    deals = game.initial()
    for seed in range(episodes):
        state = deals[seed % len(deals)][1]
        while (player := game.player(state)) is not None:
            game.view(state, player)
            state = game.next(state, game.legal(state)[0])
            turns += 1
        game.returns(state)
    return turns


def us_per_turn(play: Any, env: Any, episodes: int) -> float:
    start = time.process_time()
    turns = play(env, episodes)
    return (time.process_time() - start) * 1e6 / turns


class Endless(TextEnv):
    """Two seats that tell each other what they said, for 400 turns."""

    name = "Endless-v0"
    seats = {"a_0": Seat("a"), "b_0": Seat("b")}
    default_max_turns = 401

    def play(self, table: Any) -> Any:
        while True:
            for me, other in (("a_0", "b_0"), ("b_0", "a_0")):
                table.tell(other, (yield from table.ask(me, "Go on.", parse=str)))


def late_over_early() -> float:
    """Time of turns 380 to 400 over that of turns 10 to 30, in one chat."""
    early, late = [], []
    for seed in range(20):
        env = Endless()
        env.reset(seed=seed)
        for turn in range(400):
            start = time.perf_counter()
            env.last()
            env.step("Some words that are said.")
            spent = time.perf_counter() - start
            (early if 10 <= turn < 30 else late if turn >= 380 else []).append(spent)
    return sorted(late)[len(late) // 2] / sorted(early)[len(early) // 2]


def long_action_ms(env: Any) -> float:
    """The slowest of a few long actions."""
    worst = 0.0
    for text in ("[" * 32000, "x" * 32000, "\\boxed{" * 4500, "<think>" * 4500):
        env.reset(seed=0)
        start = time.process_time()
        env.step(text)
        worst = max(worst, (time.process_time() - start) * 1e3)
    return worst


def live_mb(id: str, count: int = 1000) -> float:
    tracemalloc.start()
    envs = [legos_envs.make(id) for _ in range(count)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    used = tracemalloc.get_traced_memory()[0] / 1e6
    tracemalloc.stop()
    return used


def measure(episodes: int) -> dict[str, Any]:
    rows = []
    for id in legos_envs.registered():
        env = legos_envs.make(id)
        plays = {"aec": aec, "runner": runner} | ({"bare": bare} if isinstance(env, GameEnv) else {})
        best = dict.fromkeys(plays, float("inf"))
        for _ in range(ROUNDS):
            for name, play in plays.items():
                best[name] = min(best[name], us_per_turn(play, env, episodes))
        row = {"env": id, "aec_us": best["aec"], "runner_us": best["runner"]}
        if "bare" in best:
            row |= {"bare_us": best["bare"], "x_bare": best["aec"] / best["bare"]}
        rows.append(row | {"long_action_ms": long_action_ms(env), "live_1000_mb": live_mb(id)})
    return {"episodes": episodes, "rows": rows, "turn_400_over_10": late_over_early()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--episodes", type=int, default=1000, help="episodes a round (default 1000)")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args()
    found = measure(options.episodes)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    columns = ["env", "aec_us", "runner_us", "bare_us", "x_bare", "long_action_ms", "live_1000_mb"]
    print("".join(f"{column:>16}" for column in columns))
    for row in found["rows"]:
        print("".join(f"{_shown(row.get(column)):>16}" for column in columns))
    print(f"a turn of a chat at turn 400, over turn 10: {found['turn_400_over_10']:.2f} x")


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else "-" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    main()
