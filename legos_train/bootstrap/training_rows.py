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
Site = tuple[int, Target, int]
"""The position whose hidden state predicts, the probabilities of the next token, and the kind."""
REPLY, RESULT, PROMPT, RECALL = 0, 1, 2, 3
"""RECALL + k: which token stood k places before the end of the prompt, read off the hidden state where the reply is
chosen by a matrix of its own for each k (`pretrain.Readers`). Legal moves can be copied without knowing where each mark
stands; a policy that is to learn from the position needs it there."""
KIND_WEIGHTS = (1.0, 0.3, 0.1, 1.0)
"""Weights of the mean loss over reply tokens, result tokens, prompt tokens and recalled tokens."""
RECALLS = 8  # tokens asked for at a choice
ALIKE = 16  # rows whose first tokens are the same share what they can


class Row(NamedTuple):
    """One dialogue as token ids, and its sites."""

    tokens: list[int]
    sites: list[Site]


class Part(NamedTuple):
    """Rows that begin alike: tokens (U, T) right padded with 0, of which the first `prefix` are the same in all rows.

    rows, cols (K,): where the sites are; none lies in the prefix. `legos_train.model` reads these fields.
    """

    tokens: NDArray[np.int32]
    prefix: int
    rows: NDArray[np.int32]
    cols: NDArray[np.int32]

    @property
    def distinct_rows(self) -> int:
        return len(self.tokens)


class PretrainingBatch(NamedTuple):
    """Parts, and the N sites of all of them in order.

    targets (N, K) token ids and probs (N, K) their probabilities, padded with 0; weights (N,); kinds (N,).
    """

    parts: list[Part]
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
    sites: list[Site] = []
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
        answer = encoder.reply(reply)
        if legal:
            targets = uniform_targets([encoder.reply(one) for one in legal], answer)
            sites += [(len(tokens) - 1 + i, target, REPLY) for i, target in enumerate(targets)]
            if dialogue.recall:
                end = len(tokens) - len(encoder.header("assistant")) - 2  # after the content: its end mark, a newline
                choice = next((i for i, target in enumerate(targets) if len(target) > 1), len(targets) - 3)
                for back in sorted(rng.sample(range(1, dialogue.recall + 1), min(RECALLS, dialogue.recall))):
                    sites.append((len(tokens) - 1 + choice, {tokens[end - back]: 1.0}, RECALL + back))
        elif legal is None:
            reading.extend(range(len(tokens), len(tokens) + len(answer)))
        tokens += [*answer, *encoder.text("\n")]
    if dialogue.result is not None:
        tokens += encoder.header("user")
        outcome = encoder.reply(dialogue.result)
        sites += [(len(tokens) - 1 + i, {token: 1.0}, RESULT) for i, token in enumerate(outcome)]
        tokens += outcome
    reading = [at for at in reading if at <= limit]
    prompt_sites = prompt_sites // 4 if dialogue.recall else prompt_sites
    reading = sorted(rng.sample(reading, min(prompt_sites, len(reading))))
    sites += [(at - 1, {tokens[at]: 1.0}, PROMPT) for at in reading]
    return Row(tokens[:limit], [site for site in sites if site[0] < limit])


def collate(rows: Sequence[Row]) -> PretrainingBatch:
    """Rows to arrays, in parts of rows that begin alike (games begin with their rules), which then run once.

    Prompt sites in the common beginning are left out. Rows that begin like few others, or are much longer than those,
    are put together by length.
    """
    groups: dict[tuple[int, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.tokens[:ALIKE]), []).append(row)
    together: list[list[Row]] = []
    rest: list[Row] = []
    for group in groups.values():
        shortest = min(len(row.tokens) for row in group)
        near = [row for row in group if len(row.tokens) <= 1.5 * shortest]
        if len(near) > 2:
            together.append(near)
            rest += [row for row in group if len(row.tokens) > 1.5 * shortest]
        else:
            rest += group
    rest.sort(key=lambda row: len(row.tokens))
    half = (len(rest) + 1) // 2
    parts: list[Part] = []
    sites: list[Site] = []
    for group in (*together, rest[:half], rest[half:]):
        if group:
            part, group_sites = _part(group)
            parts.append(part)
            sites += group_sites
    most = max(len(target) for _, target, _ in sites)
    targets = np.zeros((len(sites), most), np.int32)
    probs = np.zeros((len(sites), most), np.float32)
    for i, (_, target, _) in enumerate(sites):
        targets[i, : len(target)] = list(target)
        probs[i, : len(target)] = list(target.values())
    kinds = np.array([kind for _, _, kind in sites], np.int32)
    basic = np.minimum(kinds, RECALL)
    share = np.array(KIND_WEIGHTS) / np.maximum(np.bincount(basic, minlength=len(KIND_WEIGHTS)), 1)
    return PretrainingBatch(parts, targets, probs, share[basic].astype(np.float32), kinds)


def _part(group: Sequence[Row]) -> tuple[Part, list[Site]]:
    prefix = 0
    if len(group) > 1:
        first = min(min((at for at, _, kind in r.sites if kind != PROMPT), default=r.sites[-1][0]) for r in group)
        low, high = min(row.tokens for row in group), max(row.tokens for row in group)
        while prefix < first and low[prefix] == high[prefix]:
            prefix += 1
    tokens = np.zeros((len(group), max(len(row.tokens) for row in group)), np.int32)
    places: list[tuple[int, int]] = []
    sites: list[Site] = []
    for i, row in enumerate(group):
        tokens[i, : len(row.tokens)] = row.tokens
        kept = [site for site in row.sites if site[0] >= prefix]
        places += [(i, at) for at, _, _ in kept]
        sites += kept
    where = np.array(places, np.int32)
    return Part(tokens, prefix, where[:, 0], where[:, 1]), sites
