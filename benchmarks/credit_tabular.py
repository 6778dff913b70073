"""One tabular run of `benchmarks.credit`: softmax policies in self-play, credit by the trainer's own classes.

Each update samples `BATCH` games, asks the credit method for advantages, and takes one step of Adam (beta1 = 0, as in
the trainer) on

    sum over turns of A * log pi(move)  -  weight * sum over visited turns of KL(pi || uniform)

divided by the number of games. Adam makes the step independent of the advantages' overall scale, so methods with and
without division by a standard deviation run at the same learning rate.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.credit_games import Arrays
from legos_envs.table import keyed_generator
from legos_train import CreditAssigner, make_credit

BATCH, UPDATES, GROUP = 64, 600, 8
RATE, RATE_END = 0.05, 0.1
"""The learning rate and the share of it that is left at the end."""
KL, KL_END = 0.2, 0.02
"""The KL weight at the first and the last update (geometric), to the fixed uniform policy; the other arm has 0."""
BETA2, EPSILON = 0.999, 1e-8
METHODS: dict[str, tuple[str, dict[str, Any], int]] = {
    "constant": ("constant", {}, 1),
    "none": ("reinforce", {}, 1),
    "joint GRPO": ("grpo", {"per_role": False}, GROUP),
    "GRPO": ("grpo", {}, GROUP),
    "RAE": ("rae", {}, 1),
    "per-role": ("per_role_norm", {}, 1),
    "turn-level": ("turn_level", {}, 1),
    "(agent, turn)": ("agent_turn", {"singleton": "rae"}, GROUP),
    "same prompt": ("same_prompt", {"k": 2.0}, 1),
}
"""What a row of the tables is called: the credit method, its options, and how many games share a deal."""


def softmax(logits: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """(S, M) probabilities of the moves that `mask` allows."""
    weights = np.where(mask, np.exp(logits - np.where(mask, logits, -np.inf).max(1, keepdims=True)), 0.0)
    return weights / weights.sum(1, keepdims=True)


def run(arrays: Arrays, method: str, kl: bool, seed: int, updates: int = UPDATES, rate: float = RATE) -> dict[str, Any]:
    """Trains one cell of the grid.

    Returns:
        `last` and `average` (`Arrays.measure` of the last policy and of the average one), and `start`. The average
        weighs the policy in an information set with its owner's probability of getting there (Nim: all alike).
    """
    name, options, group = METHODS[method]
    credit: CreditAssigner = make_credit(name, **options)
    rng = keyed_generator(seed, f"credit/{arrays.name}/{method}/{kl}")
    mask, logits = arrays.mask, np.zeros(arrays.mask.shape)
    square, total = np.zeros_like(logits), np.zeros_like(logits)
    log_uniform = np.log(arrays.uniform, out=np.zeros_like(logits), where=mask)
    policy = softmax(logits, mask)
    for update in range(updates):
        done = update / max(1, updates - 1)
        total += arrays.own_reach(policy)[:, None] * policy
        played = arrays.sample(policy, BATCH, group, rng)
        episodes = arrays.episodes(played, group)
        assigned = credit.assign(episodes)
        values = np.concatenate([assigned[i][agent] for i, e in enumerate(episodes) for agent in assigned[i]])
        cells = np.fromiter((cell for p in played for cell in p.cells), int, len(values))
        size = logits.size
        credited = np.bincount(cells, values, size).reshape(logits.shape)
        gradient = credited - policy * credited.sum(1, keepdims=True)
        if kl:
            visits = np.bincount(cells, minlength=size).reshape(logits.shape).sum(1, keepdims=True)
            ratio = np.log(policy, out=np.zeros_like(logits), where=policy > 0) - log_uniform
            divergence = (policy * ratio).sum(1, keepdims=True)
            gradient -= KL * (KL_END / KL) ** done * visits * policy * (ratio - divergence)
        gradient /= BATCH
        square = BETA2 * square + (1 - BETA2) * gradient**2
        step = gradient / (np.sqrt(square / (1 - BETA2 ** (update + 1))) + EPSILON)
        logits += rate * (1 - (1 - RATE_END) * done) * step
        policy = softmax(logits, mask)
    average = total / total.sum(1, keepdims=True)
    return {
        "start": arrays.measure(arrays.uniform),
        "last": arrays.measure(policy),
        "average": arrays.measure(average),
    }
