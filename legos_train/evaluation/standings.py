"""Payoff matrix, meta-Nash and ratings of policies, from the results of games in several envs.

Each env counts the same, however many games it has, and so does each game within it. Ratings are one Bradley-Terry fit
to all results, with intervals from resampling seeds; OpenSkill is updated game by game, in the order of the schedule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from legos_envs import arguments
from legos_envs.scoring import bradley_terry, openskill_ratings
from legos_train.evaluation.intervals import expanded_levels
from legos_train.evaluation.leaderboard import Meeting

RESAMPLES = 200


def standings(games: Sequence[Meeting], names: Sequence[str], seed: int) -> dict[str, Any]:
    """The results of a list of games: `ratings`, `payoffs`, `meta_nash`, `openskill`, and `notes` on gaps."""
    present = [name for name in names if any(name in (one.first, one.second) for one in games)]
    notes = [f"{name} has no counted game" for name in names if name not in present]
    matrix = payoffs(games, present)
    mixture, no_mixture = equilibrium(matrix, present) if present else (None, None)
    skills, no_skills = online(games)
    notes += [note for note in (no_mixture, no_skills) if note]
    rated = ratings(games, seed)
    if sure := [name for name, one in rated.items() if np.ptp(one["ci95"]) < 0.5]:
        notes.append(
            f"no interval for the ratings of {', '.join(sure)}: they are based on one seed, or all seeds gave the same "
            "results; play more games (-n)"
        )
    return {
        "ratings": rated,
        "payoffs": {"names": present, "matrix": [[None if np.isnan(v) else float(v) for v in line] for line in matrix]},
        "meta_nash": mixture,
        "openskill": skills,
        "envs": sorted({one.env for one in games}),
        "notes": notes,
    }


def payoffs(games: Sequence[Meeting], names: Sequence[str]) -> np.ndarray:
    """(N, N) the payoff of each row entrant against each column entrant, from -1 to 1: wins minus losses, each env
    counting the same. NaN if two never met; 0 on the diagonal.
    """
    where = {name: i for i, name in enumerate(names)}
    by_env: dict[tuple[int, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in games:
        by_env[where[one.first], where[one.second]][one.env].append(2 * one.score - 1)
        by_env[where[one.second], where[one.first]][one.env].append(1 - 2 * one.score)
    table = np.full((len(names), len(names)), np.nan)
    np.fill_diagonal(table, 0.0)
    for (i, j), envs in by_env.items():
        table[i, j] = np.mean([np.mean(values) for values in envs.values()])
    return table


def ratings(
    games: Sequence[Meeting], seed: int, resamples: int = RESAMPLES
) -> dict[str, dict[str, float | list[float]]]:
    """Bradley-Terry ratings on Elo's scale around 1500, best first.

    Results are weighted so that all envs have equal total weight. `ci95` are percentiles over fits to resampled seeds,
    env by env: games on one seed are drawn together. As in `bootstrap_interval` they are expanded, here by the factor
    of the env with the fewest seeds.

    Args:
        games: all results.
        seed: seed of the resamples.
        resamples: number of fits behind the intervals.

    Returns:
        By name: `elo`, `ci95`, `games`, `score` (share of games won, draws half).
    """
    if not games:
        return {}
    names = list(dict.fromkeys(name for one in games for name in (one.first, one.second)))
    pairs = sorted({(one.first, one.second) for one in games})
    sums, counts = _clusters(games, pairs)
    per_env = {env: len(games) / len(counts) / float(table.sum()) for env, table in counts.items()}

    def fit(draw: dict[str, np.ndarray]) -> dict[str, float]:
        won = sum(per_env[env] * (draw[env] @ sums[env]) for env in sums)
        all_ = sum(per_env[env] * (draw[env] @ counts[env]) for env in counts)
        have = [k for k in range(len(pairs)) if all_[k] > 0]
        results = [(*pairs[k], min(1.0, float(won[k] / all_[k]))) for k in have]
        return {name: s.elo() for name, s in bradley_terry(results, weights=[float(all_[k]) for k in have]).items()}

    best = fit({env: np.ones(len(table)) for env, table in counts.items()})
    rng = np.random.default_rng(seed)
    resampled: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(resamples):
        again = fit({env: rng.multinomial(len(t), np.full(len(t), 1 / len(t))) for env, t in counts.items()})
        for name, value in again.items():
            resampled[name].append(value)
    levels = expanded_levels(min(map(len, counts.values())))
    scores = {
        name: [o.score if o.first == name else 1 - o.score for o in games if name in (o.first, o.second)]
        for name in names
    }
    return {
        name: {
            "elo": best[name],
            "ci95": [float(end) for end in np.quantile(resampled[name] or [best[name]], levels)],
            "games": len(scores[name]),
            "score": float(np.mean(scores[name])),
        }
        for name in sorted(names, key=lambda name: -best[name])
    }


def _clusters(
    games: Sequence[Meeting], pairs: Sequence[tuple[str, str]]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """For each env, (seeds, pairs) sums of scores and numbers of games."""
    column = {pair: k for k, pair in enumerate(pairs)}
    sums: dict[str, np.ndarray] = {}
    counts: dict[str, np.ndarray] = {}
    for env in dict.fromkeys(one.env for one in games):
        here = [one for one in games if one.env == env]
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
        return None, f"no meta-Nash: it needs scipy: {arguments.install('tasks')}"


def online(games: Sequence[Meeting]) -> tuple[dict[str, dict[str, float]] | None, str | None]:
    """OpenSkill ratings, updated game by game in the given order, or why there are none."""
    try:
        skills = openskill_ratings({one.first: one.score, one.second: 1 - one.score} for one in games)
    except ImportError as error:
        return None, str(error)
    return {name: {"mu": s.mu, "sigma": s.sigma, "ordinal": s.ordinal} for name, s in skills.items()}, None
