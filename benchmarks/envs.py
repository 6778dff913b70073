"""CPU time of the environments: one table for the native games and one for TextArena's.

    python -m benchmarks.envs [--episodes 1000] [--only KuhnPoker-v0 ...] [--json out.json]

Every row is the best of three rounds. `bare` plays the same moves without any environment, in the same round, so
`x bare` compares on any machine: on a native game's pure rules, or on TextArena's raw game with its observations.
Goals: 30 us a turn (100 for TextArena's games, where the game allows), 1.5 times a first turn at turn 400, 50 ms for
32,000 characters, 200 MB for 1,000 live envs, half a second to import `legos_envs`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import legos_envs
from legos_envs import Decision, Runner, Seat, TextEnv
from legos_envs.game import GameEnv
from legos_envs.policies import make_policy
from legos_envs.textarena.ids import env_id

ROUNDS = 3
LONG = ("[" * 32000, "x" * 32000, "\\boxed{" * 4500, "<think>" * 4500, " " * 31999 + "]", "[" + "9" * 5000 + "]")
GUESTS = (
    "KuhnPoker-v0",
    "TicTacToe-v0",
    "ConnectFour-v0",
    "Nim-v0",
    "PigDice-v0",
    "LiarsDice-v0",
    "SimpleNegotiation-v0",
    "SecretMafia-v0",
    "2048-v0-3x3",
)
"""Of TextArena's games, those that a table of a screen has room for."""


def native() -> list[str]:
    """The ids of all native games."""
    return [
        id for id in legos_envs.registered() if str(legos_envs.spec(id).entry_point).startswith("legos_envs.games.")
    ]


def actions_of(env: Any, seeds: range) -> list[list[tuple[str, str]]]:
    """What is said in one episode a seed: the first legal action, or what the random player says where none is."""
    policy = make_policy("random", env)

    def say(decision: Decision) -> Any:
        return decision.legal_actions[0] if decision.legal_actions else policy(decision)

    said = []
    for seed in seeds:
        run = Runner(env, seed)
        while not run.done:
            for decision in run.pending():
                run.answer(decision, say(decision))
        said.append([(agent, text) for agent, text in env.unwrapped.log])
    return said


def aec(env: Any, episodes: int, said: list[list[tuple[str, str]]]) -> int:
    """A plain AEC loop; the number of turns."""
    turns = 0
    for k in range(episodes):
        seed = k % len(said)
        env.reset(seed=seed)
        texts = iter(said[seed])
        for _ in env.agent_iter():
            _, _, terminated, truncated, _ = env.last()
            if terminated or truncated:
                env.step(None)
            else:
                env.step(next(texts)[1])
                turns += 1
    return turns


def runner(env: Any, episodes: int, said: list[list[tuple[str, str]]]) -> int:
    """The same through `Runner`, which keeps the record."""
    turns = 0
    for k in range(episodes):
        seed = k % len(said)
        texts = iter(said[seed])
        episode = Runner(env, seed)
        while not episode.done:
            for decision in episode.pending():
                episode.answer(decision, next(texts)[1])
                turns += 1
    return turns


def pure_rules(env: GameEnv, episodes: int, said: Any) -> int:
    """The pure rules alone, with the words that a prompt needs, taking the first legal move."""
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


def raw_textarena(env: Any, episodes: int, said: list[list[tuple[str, str]]]) -> int:
    """TextArena's raw game with the same actions: made, reset, observed and stepped as its users do."""
    import textarena

    turns = 0
    for k in range(episodes):
        game = textarena.make(f"{env.game}-raw")
        game.reset(num_players=env.num_players, seed=k)
        for _, text in said[k % len(said)]:
            game.get_observation()
            done, _ = game.step(text)
            turns += 1
            if done:
                break
        game.close()
    return turns


def us_per_turn(play: Callable[..., int], env: Any, episodes: int, said: Any) -> float:
    start = time.process_time()
    turns = play(env, episodes, said)
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
    """The slowest of a few long actions, the better of two tries each."""
    worst = 0.0
    for text in LONG:
        spent = []
        for _ in range(2):
            env.reset(seed=0)
            start = time.process_time()
            env.step(text)
            spent.append((time.process_time() - start) * 1e3)
        worst = max(worst, min(spent))
    return worst


def live_mb(id: str, count: int = 1000) -> float:
    """The memory of so many envs with an episode begun in each."""
    legos_envs.make(id).reset(seed=0)  # what is loaded once is not counted
    tracemalloc.start()
    envs = [legos_envs.make(id) for _ in range(count)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    used = tracemalloc.get_traced_memory()[0] / 1e6
    tracemalloc.stop()
    return used


def import_s(module: str = "legos_envs") -> float:
    """The processor time of importing a module in a new process, the best of three."""
    code = f"import time; start = time.process_time(); import {module}; print(time.process_time() - start)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(3)]
    return min(float(run.stdout) for run in runs)


def row(id: str, bare: Callable[..., int] | None, episodes: int) -> dict[str, Any]:
    env = legos_envs.make(id).unwrapped
    said = actions_of(env, range(20))
    plays = {"aec": aec, "runner": runner} | ({} if bare is None else {"bare": bare})
    turns = sum(map(len, said)) / len(said)
    count = max(20, min(episodes, int(episodes * 10 / turns)))  # long games need fewer
    best = dict.fromkeys(plays, float("inf"))
    for _ in range(ROUNDS):
        for name, play in plays.items():
            best[name] = min(best[name], us_per_turn(play, env, count, said))
    found = {"env": id, **{f"{name}_us": value for name, value in best.items()}}
    if bare is not None:
        found["x_bare"] = best["aec"] / best["bare"]
    return found | {"long_action_ms": long_action_ms(env), "live_1000_mb": live_mb(id)}


def _small(env: Any) -> bool:
    """Whether the env's rules are a game of which all deals can be listed."""
    try:
        return isinstance(env, GameEnv) and bool(env.game.initial())
    except ValueError:
        return False


def measure(episodes: int, only: list[str] | None = None) -> dict[str, Any]:
    chosen = [id for id in native() if only is None or id in only]
    rows = []
    for id in chosen:
        rows.append(row(id, pure_rules if _small(legos_envs.make(id).unwrapped) else None, episodes))
    guests = []
    if importlib.util.find_spec("textarena") is not None:
        ids = [env_id(game) for game in GUESTS if only is None or env_id(game) in only]
        guests = [row(id, raw_textarena, max(1, episodes // 4)) for id in ids]
    return {
        "episodes": episodes,
        "rows": rows,
        "textarena": guests,
        "turn_400_over_10": late_over_early(),
        "import_s": import_s(),
    }


COLUMNS = ("aec_us", "runner_us", "bare_us", "x_bare", "long_action_ms", "live_1000_mb")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--episodes", type=int, default=1000, help="episodes per round (default 1000)")
    parser.add_argument("--only", nargs="*", help="only these ids")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args()
    found = measure(options.episodes, options.only)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    for title, rows in (("native games", found["rows"]), ("TextArena's games", found["textarena"])):
        print(f"{title:32}" + "".join(f"{column:>16}" for column in COLUMNS))
        for one in rows:
            print(f"{one['env']:32}" + "".join(f"{_shown(one.get(column)):>16}" for column in COLUMNS))
    print(f"a turn of a chat at turn 400, over turn 10: {found['turn_400_over_10']:.2f} x")
    print(f"import legos_envs in a new process: {found['import_s']:.2f} s")


def _shown(value: Any) -> str:
    return "-" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    main()
