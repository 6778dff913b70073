"""Small worked examples for the pages of losses, penalties and corrections: numbers in, and what the code says."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray
from page_parts import table

from legos_train.loss import LOSSES, distribution
from legos_train.loss.corrections import inside, truncated_weights, turn_means
from legos_train.loss.penalties import entropy, entropy_top, entropy_within, kl_exact, kl_k3, legality
from legos_train.loss.token_loss import Samples

RATIOS = (0.5, 0.9, 1.0, 1.1, 2.0)


def loss_example(name: str) -> str:
    """The loss of a few tokens and its gradient by log p, for both signs of the advantage."""
    row = LOSSES[name]
    if row.by_turn:
        return _by_turn(name)
    old = mx.full((len(RATIOS),), float(np.log(0.2)))
    new = old + mx.log(mx.array(RATIOS))
    turns = np.arange(len(RATIOS), dtype=np.int32)
    columns = []
    for sign in (1.0, -1.0):
        columns += loss_and_slope(name, new, old, mx.full(old.shape, sign), turns)
    rows = [[f"{r:g}", *(number(column[i]) for column in columns)] for i, r in enumerate(RATIOS)]
    head = ["ratio", "A = +1: loss", "gradient", "A = -1: loss", "gradient"]
    said = " Options have their defaults." if row.options else ""
    said += " A stands for log(q / p_0)." if row.mirror else ""
    text = f"A token that was sampled with probability 0.2; the gradient is that by log p.{said}\n\n"
    return text + table(head, rows)


def loss_and_slope(
    name: str, new: mx.array, old: mx.array, advantages: mx.array, sequence: NDArray[np.int32]
) -> tuple[mx.array, mx.array]:
    """The loss of each token under a row of `LOSSES`, and the gradient of their sum by `new`."""
    _, index, sizes = np.unique(sequence, return_inverse=True, return_counts=True)
    lengths = sizes[index].astype(np.int32)

    def loss(x: mx.array) -> mx.array:
        return LOSSES[name](Samples(x, old, advantages, sequence, lengths))

    return loss(new), mx.grad(lambda x: loss(x).sum())(new)


def _by_turn(name: str) -> str:
    ratios, sequence = np.array([1.5, 1.0, 0.9, 1.5, 1.6, 1.4]), np.array([0, 0, 0, 1, 1, 1], dtype=np.int32)
    given = mx.log(mx.array(ratios, dtype=mx.float32)), mx.zeros(6), mx.ones(6), sequence
    means = np.exp(turn_means(np.log(ratios), sequence))
    (_, slope), (_, by_token) = loss_and_slope(name, *given), loss_and_slope("ppo", *given)
    rows = [
        [str(turn + 1), f"{ratio:g}", f"{mean:.2f}", number(mine), number(other)]
        for turn, ratio, mean, mine, other in zip(sequence, ratios, means, slope, by_token)
    ]
    text = "Two turns with the advantage +1; options have their defaults. The second is clipped as a whole.\n\n"
    return text + table(["turn", "ratio of the token", "of the turn", "gradient", "with `ppo`"], rows)


def truncation_example() -> str:
    p_0, p_1 = np.array([0.5, 0.5, 0.2, 0.05]), np.array([0.1, 0.5, 0.4, 0.5])
    weights = truncated_weights(np.log(p_1 / p_0), 2.0)
    rows = [[f"{a:g}", f"{b:g}", f"{b / a:.2f}", f"{w:.2f}"] for a, b, w in zip(p_0, p_1, weights)]
    head = ["probability when sampled", "at the start of the step", "ratio", "weight of the token"]
    return "With `truncate_ratio = 2`:\n\n" + table(head, rows)


def mask_example() -> str:
    turns = ([1.0, 1.1, 0.9], [1.0, 1.0, 4.0], [3.0, 3.0, 2.0], [0.2, 0.5, 0.9])
    sequence = np.repeat(np.arange(len(turns), dtype=np.int32), 3)
    gaps = turn_means(np.log(np.concatenate(turns)), sequence)[::3]
    kept = inside(gaps, 0.5, 2.0)
    rows = [
        [", ".join(f"{q:g}" for q in turn), f"{np.exp(gap):.2f}", "kept" if stays else "left out"]
        for turn, gap, stays in zip(turns, gaps, kept)
    ]
    return "With `mask_ratio = [0.5, 2.0]`:\n\n" + table(["ratios of the turn's tokens", "geometric mean", ""], rows)


def kl_example() -> str:
    reference = mx.log(mx.array([[0.25, 0.25, 0.25, 0.25]]))
    rows = []
    for shares in ([0.25, 0.25, 0.25, 0.25], [0.4, 0.3, 0.2, 0.1], [0.97, 0.01, 0.01, 0.01]):
        probs = mx.array([shares])
        exact = kl_exact(mx.log(probs), probs, reference)
        estimates = kl_k3(mx.log(probs), reference)
        policy, each = ", ".join(f"{p:g}" for p in shares), ", ".join(number(value, "") for value in estimates[0])
        rows.append([policy, number(exact[0], ""), each, number((probs * estimates).sum(), "")])
    head = ["policy over four tokens", "KL, exact", "k3 of each token", "mean of k3 under the policy"]
    return "The reference has 0.25 for each of four tokens; in nats, for a weight of 1.\n\n" + table(head, rows)


def entropy_example() -> str:
    logits = mx.log(mx.array([[0.6, 0.25, 0.1, 0.05]]))
    kinds: dict[str, Callable[[mx.array], mx.array]] = {
        "`all`": lambda x: entropy(*distribution(x)),
        "`legal`": lambda x: entropy_within(distribution(x)[0], [(0, 1)]),
        "`top`": lambda x: entropy_top(distribution(x)[0], 3),
    }
    rows = []
    for name, value in kinds.items():
        slope = mx.grad(lambda x, value=value: value(x).sum())(logits)
        rows.append([name, number(value(logits)[0], ""), *(number(part) for part in slope[0])])
    text = (
        "Four tokens with shares of 0.6, 0.25, 0.1 and 0.05. The first two begin legal actions; `entropy_top` is 3.\n"
        "The bonus pushes the logits along the gradient: with `legal`, only those of legal tokens.\n\n"
    )
    return text + table(["`entropy_over`", "entropy", *(f"gradient, token {i}" for i in range(1, 5))], rows)


def legality_example() -> str:
    rows = []
    for shares in ([0.5, 0.3, 0.15, 0.05], [0.5, 0.495, 0.004, 0.001], [0.1, 0.1, 0.4, 0.4]):
        logits = mx.log(mx.array([shares]))

        def cost(x: mx.array) -> mx.array:
            return legality(distribution(x)[0], [(0, 1)]).sum()

        down = -mx.grad(cost)(logits)[0]
        each = ", ".join(f"{p:g}" for p in shares)
        rows.append([each, f"{cost(logits).item():.3f}", *(f"{part:+.3f}" for part in down.tolist())])
    text = "Four tokens, of which the first two begin legal actions. A step moves the logits like this:\n\n"
    return text + table(["policy", "cost", *(f"token {i}" for i in range(1, 5))], rows)


def number(value: mx.array, sign: str = "+") -> str:
    """Two decimals, without what rounding leaves of a minus."""
    return format(round(float(np.array(value)), 2) + 0.0, f"{sign}.2f")
