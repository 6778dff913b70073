"""Dialogues to training rows: token ids, and the prediction targets.

At each token of a reply with a list of legal replies, the target is a distribution. The listed replies are paths of a
tree of tokens, equally likely: the target is how the paths that start like the reply so far continue.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from legos_train.bootstrap.texts import Dialogue
from legos_train.bootstrap.tokenizer import ChatEncoder

TokenTarget = dict[int, float]
KINDS = ("reply", "result", "prompt", "recall", "said", "best")
"""What a site predicts, by number: a token of a reply with its legal list, of a result, of a prompt; a recalled token
of the prompt; a token of a free reply; a token of the best reply."""
REPLY, RESULT, PROMPT, RECALL, SAID, BEST = range(6)
KIND_WEIGHTS = (1.0, 0.3, 0.1, 1.0, 1.0, 1.0)
"""Weights of the mean loss over the sites of each kind."""
READ_BEST = 0
"""The reader of the best reply; reader k > 0 recalls the token k positions before the end of the prompt.

The hidden state at the choice must contain what a reader (`pretraining_loss.Readers`) can read. Legal moves can be
copied without knowing where each mark is; a policy that should learn from the position needs it there."""
RECALLS = 8  # tokens recalled at a choice
SPOKEN = 24  # maximum tokens of a free reply that are predicted
AGREED = 0.1  # weight of a token on which all replies drawn from a mixture agree
LIMIT = 640  # maximum tokens of a row
ALIKE = 16  # rows with this many equal first tokens share their prefix


class Site(NamedTuple):
    """A position whose hidden state predicts.

    Attributes:
        at: the position.
        target: the probabilities of the next token.
        kind: one of `KINDS`, by number.
        reader: which reader predicts; -1 for the model itself.
        weight: within its kind.
    """

    at: int
    target: TokenTarget
    kind: int
    reader: int = -1
    weight: float = 1.0


class DialogueRow(NamedTuple):
    """One dialogue as token ids, and its sites."""

    tokens: list[int]
    sites: list[Site]


class RowGroup(NamedTuple):
    """Rows of token ids, the first `prefix` of which are equal.

    rows, cols (K,): positions of the sites; none lies in the prefix.
    """

    tokens: list[NDArray[np.int32]]
    prefix: int
    rows: NDArray[np.int32]
    cols: NDArray[np.int32]

    @property
    def size(self) -> int:
        """The number of tokens, the prefix counted once."""
        return sum(map(len, self.tokens)) - self.prefix * (len(self.tokens) - 1)


class PretrainingBatch(NamedTuple):
    """Parts, and the N sites of all of them in order.

    targets (N, K) token ids and probs (N, K) their probabilities, padded with 0; weights, kinds and readers (N,).
    """

    parts: list[RowGroup]
    targets: NDArray[np.int32]
    probs: NDArray[np.float32]
    weights: NDArray[np.float32]
    kinds: NDArray[np.int32]
    readers: NDArray[np.int32]


def uniform_targets(replies: Sequence[Sequence[int]], chosen: Sequence[int]) -> list[TokenTarget]:
    """For each token of `chosen`, how the replies that agree with it so far continue, all replies equally likely.

    Raises ValueError if `chosen` is not among `replies`.
    """
    alive = list(replies)
    if list(chosen) not in map(list, alive):
        raise ValueError(f"the chosen reply {list(chosen)} is not among the {len(alive)} legal ones")
    targets: list[TokenTarget] = []
    for depth, token in enumerate(chosen):
        counts = Counter(reply[depth] for reply in alive)
        targets.append({candidate: n / len(alive) for candidate, n in counts.items()})
        alive = [reply for reply in alive if reply[depth] == token]
    return targets


def make_row(
    dialogue: Dialogue, encoder: ChatEncoder, rng: Random, prompt_sites: int = 16, limit: int = LIMIT
) -> DialogueRow:
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
    for exchange in dialogue.exchanges:
        prompt, reply, legal = exchange[:3]
        read("user", prompt)
        tokens += encoder.header("assistant")
        answer = encoder.reply(reply)
        if legal:
            ids = {one: encoder.reply(one) for one in dict.fromkeys(legal)}
            targets = uniform_targets([ids[one] for one in legal], answer)
            agreed = AGREED if len(ids) < len(legal) else 1.0
            weights = [1.0 if len(target) > 1 else agreed for target in targets]
            sites += [Site(len(tokens) - 1 + i, t, REPLY, weight=w) for i, (t, w) in enumerate(zip(targets, weights))]
            if dialogue.recall:
                end = len(tokens) - len(encoder.header("assistant")) - 2  # after the content: its end mark, a newline
                choice = next((i for i, target in enumerate(targets) if len(target) > 1), len(targets) - 3)
                for back in sorted(rng.sample(range(1, dialogue.recall + 1), min(RECALLS, dialogue.recall))):
                    sites.append(Site(len(tokens) - 1 + choice, {tokens[end - back]: 1.0}, RECALL, back))
        elif exchange.share:
            spots: Sequence[int] = range(len(answer))
            spots = spots if len(spots) <= SPOKEN else sorted(rng.sample(spots, SPOKEN))
            weight = exchange.share / math.sqrt(len(spots))
            sites += [Site(len(tokens) - 1 + i, {answer[i]: 1.0}, SAID, weight=weight) for i in spots]
        elif legal is None:
            reading.extend(range(len(tokens), len(tokens) + len(answer)))
        if exchange.best is not None:
            sites += _best_sites(encoder.reply(exchange.best), answer, len(tokens) - 1, rng)
        tokens += [*answer, *encoder.text("\n")]
    if dialogue.result is not None:
        tokens += encoder.header("user")
        outcome = encoder.reply(dialogue.result)
        sites += [Site(len(tokens) - 1 + i, {token: 1.0}, RESULT) for i, token in enumerate(outcome)]
        tokens += outcome
    reading = [at for at in reading if at <= limit]
    if dialogue.recall or dialogue.exchanges[0].best is not None:
        prompt_sites //= 4 if dialogue.recall else 2
    reading = sorted(rng.sample(reading, min(prompt_sites, len(reading))))
    sites += [Site(at - 1, {tokens[at]: 1.0}, PROMPT) for at in reading]
    return DialogueRow(tokens[:limit], [site for site in sites if site.at < limit])


def _best_sites(best: Sequence[int], said: Sequence[int], before: int, rng: Random) -> list[Site]:
    """Where the best reply can be read off: as far as it agrees with the given reply, and one token further."""
    same = next((i for i, (a, b) in enumerate(zip(best, said)) if a != b), min(len(best), len(said)) - 1)
    spots = sorted(rng.sample(range(same + 1), min(SPOKEN, same + 1)))
    weight = 1.0 / math.sqrt(len(spots))
    return [Site(before + i, {best[i]: 1.0}, BEST, READ_BEST, weight) for i in spots]


def collate(rows: Sequence[DialogueRow]) -> PretrainingBatch:
    """Rows to arrays. Three or more rows with a common prefix (games start with their rules) are a part, and prompt
    sites in the prefix are left out; any other row is a part by itself.
    """
    groups: dict[tuple[int, ...], list[DialogueRow]] = {}
    for row in rows:
        if row.sites:
            groups.setdefault(tuple(row.tokens[:ALIKE]), []).append(row)
    parts: list[RowGroup] = []
    sites: list[Site] = []
    for group in groups.values():
        for some in [group] if len(group) > 2 else [[row] for row in group]:
            part, part_sites = _part(some)
            parts.append(part)
            sites += part_sites
    most = max(len(site.target) for site in sites)
    targets = np.zeros((len(sites), most), np.int32)
    probs = np.zeros((len(sites), most), np.float32)
    for i, site in enumerate(sites):
        targets[i, : len(site.target)] = list(site.target)
        probs[i, : len(site.target)] = list(site.target.values())
    kinds = np.array([site.kind for site in sites], np.int32)
    weights = np.array([site.weight for site in sites])
    share = np.array(KIND_WEIGHTS) / np.maximum(np.bincount(kinds, weights, minlength=len(KINDS)), 1e-9)
    readers = np.array([site.reader for site in sites], np.int32)
    return PretrainingBatch(parts, targets, probs, (weights * share[kinds]).astype(np.float32), kinds, readers)


def _part(group: Sequence[DialogueRow]) -> tuple[RowGroup, list[Site]]:
    prefix = 0
    if len(group) > 1:
        first = min(min((one.at for one in r.sites if one.kind != PROMPT), default=r.sites[-1].at) for r in group)
        low, high = min(row.tokens for row in group), max(row.tokens for row in group)
        while prefix < first and low[prefix] == high[prefix]:
            prefix += 1
    places: list[tuple[int, int]] = []
    sites: list[Site] = []
    for i, row in enumerate(group):
        kept = [site for site in row.sites if site.at >= prefix]
        places += [(i, site.at) for site in kept]
        sites += kept
    where = np.array(places, np.int32).reshape(-1, 2)
    tokens = [np.array(row.tokens, np.int32) for row in group]
    return RowGroup(tokens, prefix, where[:, 0], where[:, 1]), sites
