"""Speculation without a draft model against plain decoding: how many guesses are right, and the gain.

    python -m benchmarks.speculation [--cases kuhn1,gsm8k32,...] [--rounds 5]

The bundled models answer prompts of real environments at temperature 1, `tiny` at Kuhn poker and `small` elsewhere, and
a random model of 89 million parameters, which is memory-bound, answers Kuhn's prompts greedily: the best case. Each
round has new seeds, like an epoch of self-play, so drafts come from earlier rounds; the first is not measured. Both
sides use the same seeds, produce the same tokens and take turns; the ratio is of CPU time.
"""

from __future__ import annotations

import os
import sys
from functools import cache, partial
from statistics import median
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import legos_envs
from benchmarks.measuring import Case, Found, options, report, rounds
from benchmarks.models import SIZES, random_model
from inference import Engine, Request, SamplingParams, load
from inference.text import Conversation, Renderer

NEW, AHEAD = 32, 4
ENVS = {"kuhn": ("KuhnPoker-v0", "tiny"), "trade": ("Negotiation-v0", "small"), "gsm8k": ("GSM8K-v0", "small")}


@cache
def model(name: str) -> Any:
    """A bundled model with its tokenizer, or a random one without."""
    return (random_model(*SIZES[name]), None) if name in SIZES else load(name)[:2]


@cache
def prompts(env_id: str, name: str) -> list[tuple[int, ...]]:
    """What the seats of 48 episodes of random moves are asked, in the tokens of a model."""
    renderer, rng, found = Renderer(model(name)[1]), np.random.default_rng(0), []
    for seed in range(48):
        env = legos_envs.make(env_id, memory="chat")
        env.reset(seed=seed)
        for _ in range(3):
            observation, _, terminated, truncated, info = env.last()
            if terminated or truncated:
                break
            found.append(Conversation(renderer).prompt(observation["messages"]))
            legal = info.get("legal_actions")
            if not legal:
                break
            env.step(f"[{legal[rng.integers(len(legal))]}]")
    return found[:48]


@cache
def engine(name: str, rows: int, side: str) -> Engine:
    """An engine for each side, since one learns what it may draft."""
    return Engine(*model(name), max_rows=rows)


def compared(kind: str, name: str, greedy: bool, rows: int, repeats: int) -> Found:
    """Tokens per CPU second with drafts and without, the share of drafted tokens that counted, and steps saved."""
    env_id, speaker = ENVS[kind]
    asked = prompts(env_id, speaker)
    count = max(rows, 4) if name in SIZES else 48
    epochs = {"drafts": 0, "plain": 0}
    steps: dict[str, list[int]] = {"drafts": [], "plain": []}
    said: dict[str, list[list[int]]] = {"drafts": [], "plain": []}

    def epoch(side: str) -> None:
        epochs[side] += 1
        running, done, passes = engine(name, rows, side), [], 0
        work = [
            Request(
                asked[i % len(asked)],
                SamplingParams(
                    max_tokens=NEW,
                    temperature=0.0 if greedy else 1.0,
                    seed=epochs[side] * 1000 + i,
                    speculate=AHEAD if side == "drafts" else 0,
                ),
            )
            for i in range(count)
        ]
        for start in range(0, count, rows):
            for request in work[start : start + rows]:
                running.submit(request)
            while running.busy:
                done += running.step()
                passes += 1
        steps[side].append(passes)
        said[side].append([c.tokens for c in sorted(done, key=lambda c: c.request_id)])

    spent = rounds({side: partial(epoch, side) for side in epochs}, repeats)
    tokens = sum(map(len, said["plain"][-1]))
    drafts = engine(name, rows, "drafts").drafts
    return {
        "ours": tokens / median(spent["drafts"]),
        "baseline": tokens / median(spent["plain"]),
        "ratio": median(b / a for a, b in zip(spent["drafts"], spent["plain"], strict=True)),
        "accepted": drafts.taken / max(drafts.fed, 1),
        "steps": median(a / b for a, b in zip(steps["drafts"][1:], steps["plain"][1:], strict=True)),
        "must": {"the same tokens": said["drafts"] == said["plain"]},
    }


CASES = {
    f"{label}{rows}": Case(f"{label}, {rows} rows", 1.0, partial(compared, kind, name, greedy, rows))
    for label, kind, name, greedy in (
        ("kuhn", "kuhn", "tiny", False),
        ("trade", "trade", "small", False),
        ("gsm8k", "gsm8k", "small", False),
        ("large", "kuhn", "100m", True),
    )
    for rows in (1, 8, 32)
    if label != "large" or rows < 32
}

if __name__ == "__main__":
    sys.exit(report(CASES, options(__doc__ or "", CASES)))
