"""Which schedules of a moving KL reference get stuck? Kuhn poker by sampled self-play, in numpy, many seeds at once.

    python -m benchmarks.magnets
    python -m benchmarks.magnets --seeds 400 --every 10 50 --kl-end 0.2 0.4 --base 0 0.1

A stand-in for `legos train` on Kuhn poker: the same loss (returns minus the mean of the same prompt, KL to a reference
that is reset to the weight average every so many steps, mixed with a share of the first policy), batch, steps and
learning rate schedule, with one number per information set in place of a language model. The numbers move together, as
a model's answers to similar prompts do: an update at one information set moves the others by a share of it, more if the
card or the history is the same. `shared` and `rate` set how much and how fast; their three settings are at least as
quick as runs of the model. So the rows compare schedules; they do not predict a run's NashConv.
"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

HISTORY = {"": 0, "p": 1, "b": 2, "pb": 3}
ENDS = ("pp", "bp", "bb", "pbp", "pbb")
MODELS = (((0.5, 0.2, 0.2), 0.8), ((0.7, 0.1, 0.1), 0.6), ((0.3, 0.2, 0.2), 0.4))
"""What an update shares with (all, the same card, the same history), and the size of the first step at 6e-4."""
STUCK = 0.15


@dataclass(frozen=True)
class Schedule:
    """What is compared; the rest is as in the preset `kuhn`."""

    every: int = 25
    kl: float = 0.2
    kl_end: float = 0.3
    base: float = 0.07
    degree: float = 4.0
    steps: int = 650
    batch: int = 768
    lr: float = 4.5e-4
    lr_end: float = 0.05


def _worth(card: int, other: int, history: str) -> int:
    """What the first player, who holds `card`, gets in the end."""
    sign = 1 if card > other else -1
    return {"pp": sign, "bp": 1, "bb": 2 * sign, "pbp": -1, "pbb": 2 * sign}[history]


def _place(card: int, history: str) -> int:
    return 4 * card + HISTORY[history]


def _courses() -> tuple[Floats, Floats]:
    """Which information sets (12) and moves (2) each of the 30 courses of play goes through, and its return."""
    deals = list(itertools.permutations(range(3), 2))
    through, worth = np.zeros((len(deals) * len(ENDS), 12, 2)), np.zeros(len(deals) * len(ENDS))
    for row, ((first, second), end) in enumerate(itertools.product(deals, ENDS)):
        worth[row] = _worth(first, second, end)
        for turn, move in enumerate(end):
            through[row, _place((first, second)[turn % 2], end[:turn]), int(move == "b")] = 1
    return through, worth


THROUGH, WORTH = _courses()
SIGN = np.array([1.0 if place % 4 in (0, 3) else -1.0 for place in range(12)])[:, None]


def nash_conv(bets: Floats) -> Floats:
    """Of probabilities (N, 12) of a bet: the best pure responses against them, summed over both players, (N,)."""
    moves = np.stack([1 - bets, bets], -1)
    total = np.zeros(len(bets))
    for seat in (0, 1):
        spots = ("", "pb") if seat == 0 else ("p", "b")
        for card in range(3):
            values = []
            for chosen in itertools.product((0, 1), repeat=2):
                own = moves.copy()
                for spot, move in zip(spots, chosen):
                    own[:, _place(card, spot)] = np.eye(2)[move]
                held = _holds(card, seat)
                reach = np.prod(np.where(THROUGH[held].astype(bool), own[:, None], 1.0), axis=(2, 3))
                values.append(reach @ WORTH[held] * (1 if seat == 0 else -1) / 6)
            total += np.max(values, axis=0)
    return total


def _holds(card: int, seat: int) -> NDArray[np.bool_]:
    """The courses of play in which a seat holds a card."""
    deals = [deal[seat] == card for deal in itertools.permutations(range(3), 2)]
    return np.repeat(np.array(deals), len(ENDS))


def _sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


def _logit(p: Floats) -> Floats:
    return np.log(p / (1 - p))


def kernel(whole: float, card: float, history: float) -> Floats:
    """(12, 12): how far an update at one information set moves the others."""
    place = np.arange(12)
    same_card, same_history = place[:, None] // 4 == place // 4, place[:, None] % 4 == place % 4
    return (1 - whole - card - history) * np.eye(12) + whole + card * same_card + history * same_history


def run(schedule: Schedule, shared: Floats, rate: float, seeds: int) -> tuple[Floats, Floats]:
    """NashConv of the last policies and of the weight averages of `seeds` runs, (seeds,) each."""
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 0.2, (seeds, 12))
    average, reference, square = np.zeros_like(logits), logits.copy(), np.zeros((seeds, 1))
    for step in range(1, schedule.steps + 1):
        done = (step - 1) / (schedule.steps - 1)
        bets = _sigmoid(logits)
        moves = np.stack([1 - bets, bets], -1)
        chances = np.prod(np.where(THROUGH.astype(bool), moves[:, None], 1.0), axis=(2, 3))
        played = np.stack([rng.multinomial(schedule.batch, row / row.sum()) for row in chances]).astype(float)
        counts, returns = np.tensordot(played, THROUGH, 1), np.tensordot(played * WORTH, THROUGH, 1) * SIGN
        visits = counts.sum(-1)
        credited = returns - (returns.sum(-1) / np.maximum(visits, 1))[..., None] * counts
        gradient = credited[..., 1] * (1 - bets) - credited[..., 0] * bets
        weight = schedule.kl * (schedule.kl_end / schedule.kl) ** done
        gradient -= weight * visits * bets * (1 - bets) * (logits - reference)
        gradient /= visits.sum(1, keepdims=True)
        gradient *= np.minimum(1, 0.1 / np.maximum(np.sqrt((gradient**2).sum(1, keepdims=True)), 1e-12))
        square = 0.999 * square + 0.001 * (gradient**2).mean(1, keepdims=True)
        size = rate * schedule.lr / 6e-4 * (1 + (schedule.lr_end - 1) * done)
        logits = logits + size * (gradient / np.sqrt(square / (1 - 0.999**step))) @ shared
        keep = (step - 1) / (step + schedule.degree)
        average = keep * average + (1 - keep) * logits
        if step % schedule.every == 0:
            reference = _logit((1 - schedule.base) * _sigmoid(average) + schedule.base / 2)
    return nash_conv(bets), nash_conv(_sigmoid(average))


def main() -> None:
    """Prints a row for each schedule and setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--every", type=int, nargs="+", default=[10, 25, 50], help="steps between references")
    parser.add_argument("--kl-end", type=float, nargs="+", default=[0.3], help="final KL weight, starting from 0.2")
    parser.add_argument(
        "--base", type=float, nargs="+", default=[0.0, 0.07], help="share of the first policy, which is uniform"
    )
    parser.add_argument("--steps", type=int, default=Schedule.steps)
    parser.add_argument("--games", type=int, default=Schedule.batch, help="games per step")
    parser.add_argument("--lr", type=float, default=Schedule.lr, help="learning rate of the first step")
    args = parser.parse_args()
    print(
        "every  kl_end  base  shared           rate   average: median, 95 %, largest   last: 95 %   stuck (above 0.15)"
    )
    settings = itertools.product(args.every, args.kl_end, args.base, MODELS)
    for every, kl_end, base, (shared, rate) in settings:
        schedule = Schedule(every, kl_end=kl_end, base=base, steps=args.steps, batch=args.games, lr=args.lr)
        last, average = run(schedule, kernel(*shared), rate, args.seeds)
        numbers = f"{np.median(average):.3f}   {np.quantile(average, 0.95):.3f}   {average.max():.3f}"
        print(
            f"{every:5}  {kl_end:6}  {base:4}  {shared!s:15}  {rate:4}   {numbers:30}  {np.quantile(last, 0.95):.3f}"
            f"        {np.mean(average > STUCK):.1%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
