"""How a model plays before any training: how often it answers illegally, and how evenly it plays legal moves.

Exact, not sampled: the probability of every legal reply (end mark included) is computed in every information set.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

import legos_envs
from legos_envs.exact import info_sets, nash_conv
from legos_envs.game import GameEnv, InfoSet
from legos_envs.games import MATRIX_GAMES
from legos_train.bootstrap import texts
from legos_train.evaluation import exact_values
from legos_train.rollout.players import ModelPlayer, words


class Evenness(NamedTuple):
    """Over the information sets of one env, each counted once, at temperature 1.

    Attributes:
        info_sets: their number.
        illegal_mean: mean probability of a reply that is not exactly one of the legal ones.
        illegal_max: the largest such probability.
        kl_mean: mean of KL(policy given a legal reply || uniform over the legal replies), in nats.
        kl_max: the largest such divergence.
    """

    info_sets: int
    illegal_mean: float
    illegal_max: float
    kl_mean: float
    kl_max: float


def load(folder: str | Path) -> ModelPlayer:
    """The model in a folder, as a player."""
    player = words.Cast().player(str(folder))
    assert isinstance(player, ModelPlayer)
    return player


def evenness(player: ModelPlayer, env: GameEnv, sets: Sequence[InfoSet] | None = None) -> Evenness:
    """Measures a model in all information sets of an env's game, or in some of them."""
    sets = info_sets(env.game) if sets is None else sets
    policy, leftover = exact_values.action_probabilities(env, [player] * env.game.num_players, sets)
    illegal = list(leftover.values())
    gaps = [sum(p * math.log(p) for p in moves.values() if p > 0) + math.log(len(moves)) for moves in policy.values()]
    return Evenness(len(sets), float(np.mean(illegal)), max(illegal), float(np.mean(gaps)), max(gaps))


def solvable() -> Iterator[tuple[str, GameEnv]]:
    """A label and an env for every environment of `texts.GAMES`; for matrix games, every named one."""
    for env_id in texts.GAMES:
        names = MATRIX_GAMES if env_id == "MatrixGame-v0" else (None,)
        for name in names:
            env = legos_envs.make(env_id, **({} if name is None else {"game": name})).unwrapped
            if isinstance(env, GameEnv):
                yield f"{env_id} {name or ''}".strip(), env


def illegal_in_made_up_choices(player: ModelPlayer, count: int = 300) -> float:
    """Mean illegal mass over lists of random words and numbers that belong to no registered environment."""
    rng, renderer = Random("measure"), player.renderer
    prompts, replies, owners = [], [], []
    for number in range(count):
        exchange = texts.made_up_choice(rng).exchanges[0]
        prompt = renderer.start([{"role": "user", "content": exchange.prompt}], None)
        for reply in exchange.legal or ():
            prompts.append(prompt)
            replies.append([*renderer.encode(reply), renderer.end_id])
            owners.append(number)
    engine: Any = player.engine
    masses = np.exp([float(np.sum(logs)) for logs in engine.score(prompts, replies)])
    return float(np.mean(1.0 - np.bincount(owners, masses, minlength=count)))


def report_evenness(folder: str | Path) -> str:
    """Markdown: a table of `evenness` for all of `solvable()`, Kuhn poker's NashConv, and unknown lists."""
    player = load(folder)
    lines = [
        "| environment | information sets | illegal, mean | illegal, max | KL to uniform, mean | KL, max |",
        "|---|---|---|---|---|---|",
    ]
    for label, env in solvable():
        one = evenness(player, env)
        rates = f"{one.illegal_mean:.2%} | {one.illegal_max:.2%} | {one.kl_mean:.4f} | {one.kl_max:.4f}"
        lines.append(f"| {label} | {one.info_sets} | {rates} |")
    kuhn = legos_envs.make("KuhnPoker-v0").unwrapped
    table, _ = exact_values.action_probabilities(kuhn, [player] * 2, info_sets(kuhn.game))
    lines += [
        "",
        f"NashConv in KuhnPoker-v0: {nash_conv(kuhn.game, table.__getitem__):.4f} (uniform play: 0.9167).",
        f"Illegal in made-up choices, mean: {illegal_in_made_up_choices(player):.1%}.",
    ]
    return "\n".join(lines)
