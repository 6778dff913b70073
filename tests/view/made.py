"""Logs to look at: real games by random policies, with tokens, credit and versions made up."""

from __future__ import annotations

import json
import math
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import legos_envs
from legos_envs.play import Decision, Runner
from legos_envs.records import Episode
from legos_train.observe.viewer import LOG, rollout_line, serve

SAID = ("I think so.\nMy number: 42", "[0.5]", "Problem: 3 * (2 + 7)\nAnswer: 27", "27", "No.", "[pro]")
VOCABULARY: list[str] = []
ENVS = ("KuhnPoker-v0", "TicTacToe-v0", "ProposerSolver-v0", "Debate-v0", "Tournament-v0")


def said(decision: Decision) -> str:
    rng = random.Random(decision.seed)
    if decision.role == "proposer":
        return SAID[2]
    return rng.choice(decision.legal_actions or SAID)


def played(env_id: str, seeds: Iterable[int]) -> list[Episode]:
    """Without an event loop: a browser driven from the same process has its own."""
    episodes = []
    for seed in seeds:
        runner = Runner(legos_envs.make(env_id), seed)
        while not runner.done:
            for decision in runner.pending():
                if not runner.done:
                    runner.answer(decision, said(decision))
        episodes.append(runner.episode)
    return episodes


def with_tokens(episode: Episode, step: int) -> Episode:
    """Splits every action into pieces of up to three characters and an end token; numbers depend on the seed only."""
    rng = random.Random(episode.seed)
    for trajectory in episode.trajectories.values():
        for turn in trajectory.turns:
            pieces = [turn.action[at : at + 3] for at in range(0, len(turn.action), 3)] + ["<|end|>"]
            turn.action_tokens = [token(piece) for piece in pieces]
            turn.logprobs = [-rng.expovariate(1.5) for _ in pieces]
            turn.prompt_tokens = list(range(sum(len(message["content"]) for message in turn.observation) // 4))
            turn.policy_version = max(0, step - rng.choice([0, 0, 0, 1, 3]))
            turn.finish_reason = "stop"
    return episode


def token(piece: str) -> int:
    if piece not in VOCABULARY:
        VOCABULARY.append(piece)
    return VOCABULARY.index(piece)


def line_of(episode: Episode, step: int) -> dict[str, Any]:
    """A line as training writes it: player_1 is a league opponent in every third game, judges are never trained."""
    rng = random.Random(episode.seed + 1)
    agents = episode.trajectories
    league = "player_1" if episode.seed % 3 == 0 and "player_1" in agents else None
    why = {agent: "judge" for agent, t in agents.items() if not t.trainable}
    if league:
        why[league] = "opponent: step_10"
    exact = None
    if episode.env_id.lower().startswith(("kuhn", "tictactoe")):
        exact = {
            agent: [(round(rng.uniform(-1, 1), 3), round(rng.uniform(-1, 1), 3)) for _ in t.turns]
            for agent, t in agents.items()
        }
    return rollout_line(
        with_tokens(episode, step),
        step=step,
        policy_version=step,
        env={"kuhn": "KuhnPoker-v0"}.get(episode.env_id, ""),
        advantages={agent: [rng.gauss(0, 1) for _ in t.turns] for agent, t in agents.items() if agent not in why},
        trained={agent: agent not in why for agent in agents},
        why_not=why,
        players={
            agent: "league:step_10" if agent == league else "policy" if agent not in why else "base" for agent in agents
        },
        exact=exact,
        decode=VOCABULARY.__getitem__,
    )


def some_lines(count: int, envs: tuple[str, ...] = ENVS) -> list[dict[str, Any]]:
    per = math.ceil(count / len(envs))
    lines = [line_of(e, 10 * (n % 5)) for env in envs for n, e in enumerate(played(env, range(per)))]
    random.Random(0).shuffle(lines)
    return lines[:count]


def write_log(folder: Path, lines: Iterable[dict[str, Any]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / f"{LOG}.new"  # put in place at once: a page that polls meanwhile must not find an empty log
    written.write_text("".join(json.dumps(line) + "\n" for line in lines))
    written.replace(folder / LOG)
    return folder


def append(folder: Path, line: dict[str, Any]) -> None:
    with (folder / LOG).open("a") as log:
        log.write(json.dumps(line) + "\n")


@contextmanager
def serving(folder: Path, serve: Callable[..., Any] = serve, every: float = 0.2) -> Iterator[int]:
    with serve(folder, every=every) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
