"""All against all: payoff matrix, meta-Nash and ratings of policies that met in several envs.

Every env counts the same, however many games it has, and in it every game. Ratings are one Bradley-Terry fit over all
results, with intervals from resampling seeds; OpenSkill is rated game by game, in the order of the schedule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from legos_envs.scoring import bradley_terry, openskill_ratings
from legos_train.evaluation.games import Pairing, Record
from legos_train.evaluation.outcomes import TIE

RESAMPLES = 200


class Met(NamedTuple):
    """A game between two entrants: `score` is what the first got, 1 for a win, 0.5 for a draw, 0 for a loss."""

    key: str
    env: str
    first: str
    second: str
    score: float
    seed: int


def meetings(played: Iterable[tuple[Pairing, Sequence[Record]]], label: Any) -> list[Met]:
    """The results of pairings; where a policy plays alone, those of comparing returns on the same seed.

    Args:
        played: pairings with their records.
        label: its `name(word)` makes an entrant's name, its `env(pairing)` an env's.
    """
    found: list[Met] = []
    alone: dict[str, list[tuple[str, dict[Any, Record]]]] = defaultdict(list)
    for pairing, records in played:
        env = label.env(pairing)
        if len(pairing.sides) > 1:
            first, second = label.name(pairing.policy), label.name(pairing.opponent)
            found += [
                Met(r["key"], env, first, second, r["score"], r["seed"]) for r in records if r["score"] is not None
            ]
        else:
            scored = {(r["seed"], r["sample"]): r for r in records if "unscored" not in r["outcomes"].values()}
            alone[env].append((label.name(pairing.policy), scored))
    for env, entrants in alone.items():
        for i, (first, one) in enumerate(entrants):
            for second, other in entrants[i + 1 :]:
                for where in [where for where in one if where in other]:
                    margin = sum(one[where]["returns"].values()) - sum(other[where]["returns"].values())
                    score = 0.5 if abs(margin) <= TIE else float(margin > 0)
                    found.append(Met(f"{one[where]['key']}|{other[where]['key']}", env, first, second, score, where[0]))
    return sorted(found, key=lambda one: one.seed)  # pairs take turns, as online ratings want it


def payoffs(met: Sequence[Met], names: Sequence[str]) -> np.ndarray:
    """(N, N) what each row entrant gets from each column entrant, from -1 to 1: wins minus losses, each env counting
    the same. NaN where two never met; 0 on the diagonal."""
    where = {name: i for i, name in enumerate(names)}
    by_env: dict[tuple[int, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in met:
        by_env[where[one.first], where[one.second]][one.env].append(2 * one.score - 1)
        by_env[where[one.second], where[one.first]][one.env].append(1 - 2 * one.score)
    table = np.full((len(names), len(names)), np.nan)
    np.fill_diagonal(table, 0.0)
    for (i, j), envs in by_env.items():
        table[i, j] = np.mean([np.mean(values) for values in envs.values()])
    return table


def ratings(met: Sequence[Met], seed: int, resamples: int = RESAMPLES) -> dict[str, dict[str, float | list[float]]]:
    """Bradley-Terry ratings on Elo's scale around 1500, best first.

    Results are weighted so that all envs have as many games in sum. `ci95` are percentiles over fits to resampled
    seeds, env by env: games on one seed are drawn together.

    Args:
        met: all results.
        seed: of the resamples.

    Returns:
        By name: `elo`, `ci95`, `games`, `score` (the share of its games won, draws half).
    """
    if not met:
        return {}
    names = list(dict.fromkeys(name for one in met for name in (one.first, one.second)))
    pairs = sorted({(one.first, one.second) for one in met})
    sums, counts = _clusters(met, pairs)
    per_env = {env: len(met) / len(counts) / float(table.sum()) for env, table in counts.items()}

    def fit(draw: dict[str, np.ndarray]) -> dict[str, float]:
        won = sum(per_env[env] * (draw[env] @ sums[env]) for env in sums)
        all_ = sum(per_env[env] * (draw[env] @ counts[env]) for env in counts)
        have = [k for k in range(len(pairs)) if all_[k] > 0]
        results = [(*pairs[k], min(1.0, float(won[k] / all_[k]))) for k in have]
        return {name: s.elo() for name, s in bradley_terry(results, weights=[float(all_[k]) for k in have]).items()}

    best = fit({env: np.ones(len(table)) for env, table in counts.items()})
    rng = np.random.default_rng(seed)
    drawn: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(resamples):
        again = fit({env: rng.multinomial(len(t), np.full(len(t), 1 / len(t))) for env, t in counts.items()})
        for name, value in again.items():
            drawn[name].append(value)
    games = {
        name: [o.score if o.first == name else 1 - o.score for o in met if name in (o.first, o.second)]
        for name in names
    }
    return {
        name: {
            "elo": best[name],
            "ci95": [float(end) for end in np.quantile(drawn[name] or [best[name]], [0.025, 0.975])],
            "games": len(games[name]),
            "score": float(np.mean(games[name])),
        }
        for name in sorted(names, key=lambda name: -best[name])
    }


def _clusters(
    met: Sequence[Met], pairs: Sequence[tuple[str, str]]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """By env, (seeds, pairs) sums of scores and numbers of games."""
    column = {pair: k for k, pair in enumerate(pairs)}
    sums: dict[str, np.ndarray] = {}
    counts: dict[str, np.ndarray] = {}
    for env in dict.fromkeys(one.env for one in met):
        here = [one for one in met if one.env == env]
        lines = {number: i for i, number in enumerate(dict.fromkeys(one.seed for one in here))}
        sums[env], counts[env] = np.zeros((2, len(lines), len(pairs)))
        for one in here:
            at = lines[one.seed], column[one.first, one.second]
            sums[env][at] += one.score
            counts[env][at] += 1
    return sums, counts


def equilibrium(table: np.ndarray, names: Sequence[str]) -> tuple[dict[str, float] | None, str | None]:
    """The meta-Nash mixture over entrants, or why there is none."""
    from legos_train.league import meta_nash

    if np.isnan(table).any():
        return None, "no meta-Nash: some pairs have not met"
    try:
        return dict(zip(names, (float(p) for p in meta_nash(table)))), None
    except ImportError:
        return None, 'no meta-Nash: it needs scipy: pip install "legos[tasks]"'


def online(met: Sequence[Met]) -> tuple[dict[str, dict[str, float]] | None, str | None]:
    """OpenSkill ratings, game by game in the order given, or why there are none."""
    try:
        found = openskill_ratings({one.first: one.score, one.second: 1 - one.score} for one in met)
    except ImportError as error:
        return None, str(error)
    return {name: {"mu": s.mu, "sigma": s.sigma, "ordinal": s.ordinal} for name, s in found.items()}, None
