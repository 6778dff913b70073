"""Dialogues to training rows: token ids, and what is to be predicted where.

At each token of a reply that comes with its legal list, the target is a distribution. All legal replies are
paths of a tree of tokens, equally likely: the target is how the paths that begin like the reply so far go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from legos_train.bootstrap.texts import Dialogue
from legos_train.bootstrap.tokenizer import ChatEncoder

Target = dict[int, float]
REPLY, RESULT, PROMPT = 0, 1, 2
KIND_WEIGHTS = (1.0, 0.3, 0.1)
"""Weights of the mean loss over reply tokens, result tokens and prompt tokens."""


class Row(NamedTuple):
    """Token ids, and sites: (position whose hidden state predicts, probabilities of the next token, kind)."""

    tokens: list[int]
    sites: list[tuple[int, Target, int]]


class Batch(NamedTuple):
    """Parts of rows of like length, each (rows, columns) right padded with 0, and N sites in them.

    where: per part, the flat indices of its sites, in the order of the sites; targets (N, K) token ids and
    probs (N, K) their probabilities, padded with 0; weights (N,); kinds (N,).
    """

    parts: list[NDArray[np.int32]]
    where: list[NDArray[np.int32]]
    targets: NDArray[np.int32]
    probs: NDArray[np.float32]
    weights: NDArray[np.float32]
    kinds: NDArray[np.int32]


def uniform_targets(replies: Sequence[Sequence[int]], chosen: Sequence[int]) -> list[Target]:
    """For each token of `chosen`, how the replies that agree with it up to there go on, all replies equally likely.

    Raises ValueError when `chosen` is not among `replies`.
    """
    alive = [list(reply) for reply in replies]
    if list(chosen) not in alive:
        raise ValueError(f"the chosen reply {list(chosen)} is not among the {len(alive)} legal ones")
    targets: list[Target] = []
    for depth, token in enumerate(chosen):
        counts = Counter(reply[depth] for reply in alive)
        targets.append({candidate: n / len(alive) for candidate, n in counts.items()})
        alive = [reply for reply in alive if reply[depth] == token]
    return targets


def make_row(dialogue: Dialogue, encoder: ChatEncoder, rng: Random, prompt_sites: int = 16, limit: int = 640) -> Row:
    """A dialogue as a row of at most `limit` tokens (the rest is cut), with some random prompt tokens as sites."""
    tokens: list[int] = []
    sites: list[tuple[int, Target, int]] = []
    reading: list[int] = []

    def read(role: str, content: str) -> None:
        begin = len(tokens) + len(encoder.header(role))
        tokens.extend(encoder.message(role, content))
        reading.extend(range(begin, len(tokens) - 1))

    if dialogue.system is not None:
        read("system", dialogue.system)
    for prompt, reply, legal in dialogue.exchanges:
        read("user", prompt)
        tokens += encoder.header("assistant")
        said = encoder.reply(reply)
        if legal:
            targets = uniform_targets([encoder.reply(one) for one in legal], said)
            sites += [(len(tokens) - 1 + i, target, REPLY) for i, target in enumerate(targets)]
        elif legal is None:
            reading.extend(range(len(tokens), len(tokens) + len(said)))
        tokens += [*said, *encoder.text("\n")]
    if dialogue.result is not None:
        tokens += encoder.header("user")
        told = encoder.reply(dialogue.result)
        sites += [(len(tokens) - 1 + i, {token: 1.0}, RESULT) for i, token in enumerate(told)]
        tokens += told
    reading = sorted(rng.sample(reading, min(prompt_sites, len(reading))))
    sites += [(at - 1, {tokens[at]: 1.0}, PROMPT) for at in reading]
    return Row(tokens[:limit], [site for site in sites if site[0] < limit])


def collate(rows: Sequence[Row], pad_cost: int = 256) -> Batch:
    """Rows to arrays. Rows are sorted by length and cut into up to three parts where that saves most padding.

    `pad_cost`: a further part is worth it when it saves that many padded positions.
    """
    rows = sorted(rows, key=lambda row: len(row.tokens))
    parts, where = [], []
    sites: list[tuple[int, Target, int]] = []
    for part in _cut(rows, pad_cost):
        width = len(part[-1].tokens)
        array = np.zeros((len(part), width), np.int32)
        flat: list[int] = []
        for i, row in enumerate(part):
            array[i, : len(row.tokens)] = row.tokens
            flat += [i * width + site[0] for site in row.sites]
            sites += row.sites
        parts.append(array)
        where.append(np.array(flat, np.int32))
    most = max(len(target) for _, target, _ in sites)
    targets = np.zeros((len(sites), most), np.int32)
    probs = np.zeros((len(sites), most), np.float32)
    for i, (_, target, _) in enumerate(sites):
        targets[i, : len(target)] = list(target)
        probs[i, : len(target)] = list(target.values())
    kinds = np.array([kind for _, _, kind in sites], np.int32)
    share = np.array(KIND_WEIGHTS) / np.maximum(np.bincount(kinds, minlength=len(KIND_WEIGHTS)), 1)
    return Batch(parts, where, targets, probs, share[kinds].astype(np.float32), kinds)


def _cut(rows: list[Row], pad_cost: int, more: int = 2) -> list[list[Row]]:
    lengths = [len(row.tokens) for row in rows]
    saved = [(i * (lengths[-1] - lengths[i - 1]), i) for i in range(1, len(rows))]
    best, at = max(saved, default=(0, 0))
    if more == 0 or best < pad_cost:
        return [rows]
    return [*_cut(rows[:at], pad_cost, more - 1), *_cut(rows[at:], pad_cost, 0)]
