"""Episodes and advantages -> arrays to train on. Tokens were sampled once; here they are only arranged.

**Rows.** The turns of one trajectory are laid end to end: a turn whose prompt begins with everything the previous turn
read and said continues that turn's row, any other opens a new row. Only the action tokens of trainable agents are
sampled tokens with an advantage; everything else is context.

**Each context is computed once.** In self-play on a small game a thousand turns are a few dozen distinct rows. What a
model computes for a sampled token depends on the tokens before it only, so equal rows are stored once, a row that is
the beginning of another is left out, and the last token of a row, which predicts nothing, is dropped. A *site* is one
distinct context in which something was sampled, the pair (row, column) whose hidden state predicts the next token.
Every sampled token points at its site. With K sites and M sampled tokens, K is often a hundredth of M, and the loss at
the M tokens is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from legos_envs.records import Episode, Turn

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]


@dataclass(slots=True)
class Counters:
    """What went into a batch, for logs. `dropped` says why turns of trainable agents are not in it."""

    turns: int = 0
    untrained_turns: int = 0
    rows: int = 0
    distinct_rows: int = 0
    distinct_prompts: int = 0
    action_tokens: int = 0
    zero_advantages: int = 0
    dropped: dict[str, int] = field(default_factory=lambda: {"too_long": 0, "stale": 0, "empty": 0})

    @property
    def zero_advantage_share(self) -> float:
        """Share of the packed turns whose advantage is exactly 0; 0 for an empty batch."""
        return self.zero_advantages / self.turns if self.turns else 0.0


@dataclass(slots=True)
class Batch:
    """U distinct rows of at most T tokens, K sites in them, M sampled tokens.

    tokens (U, T) right padded with 0; lengths (U,); `prefix`: all rows share their first `prefix` tokens and no site
    lies among them. rows, cols (K,): where the hidden state of a site is; `keys` (K): the bytes of the tokens up to and
    with that column, equal for equal contexts in any batch. Per sampled token: position (M,) its site; row (M,) the row
    its turn is in (the site may be in another row that begins alike); target (M,) its token id; old_logprobs (M,);
    advantages (M,); sequence (M,) the turn it belongs to; sequence_length (M,) how many tokens that turn has;
    trajectory (M,); version (M,) the policy version that sampled it (-1: unknown).
    `total_tokens`, `total_sequences` are what losses are divided by: those of the whole batch in a part from `micro`.
    """

    tokens: Ints
    lengths: Ints
    prefix: int
    rows: Ints
    cols: Ints
    keys: list[bytes]
    position: Ints
    row: Ints
    target: Ints
    old_logprobs: Floats
    advantages: Floats
    sequence: Ints
    sequence_length: Ints
    trajectory: Ints
    version: Ints
    total_tokens: int
    total_sequences: int
    counters: Counters

    def __len__(self) -> int:
        """M, the number of sampled tokens."""
        return len(self.target)

    def context(self, site: int) -> list[int]:
        """The tokens before which something was sampled at a site."""
        row: list[int] = self.tokens[self.rows[site], : self.cols[site] + 1].tolist()
        return row

    @property
    def distinct_rows(self) -> int:
        return len(self.lengths)

    @property
    def site_counts(self) -> Ints:
        """How many sampled tokens each site has, shape (K,)."""
        return np.bincount(self.position, minlength=len(self.rows)).astype(np.int32)

    def token_weights(self, aggregation: str, constant: float = 1.0) -> Floats:
        """Weights w (M,) such that the loss of the batch is `sum(w * loss per token)`.

        `"token"`: mean over tokens. `"sequence"`: mean over turns of the mean over the turn's tokens. `"constant"`: sum
        over the turn's tokens divided by `constant`, mean over turns (Dr. GRPO, arXiv 2503.20783). Parts from `micro`
        carry the weights they have in the whole batch. Raises ValueError for any other name.
        """
        if aggregation == "token":
            return np.full(len(self), 1.0 / max(self.total_tokens, 1), dtype=np.float32)
        if aggregation == "sequence":
            return (1.0 / (self.sequence_length * float(max(self.total_sequences, 1)))).astype(np.float32)
        if aggregation == "constant":
            if not constant > 0:
                raise ValueError(f"the constant losses are divided by must be positive, got {constant!r}")
            return np.full(len(self), 1.0 / (constant * max(self.total_sequences, 1)), dtype=np.float32)
        raise ValueError(f"aggregation must be 'token', 'sequence' or 'constant', got {aggregation!r}")

    def select(self, keep: NDArray[np.bool_]) -> Batch:
        """The batch of the sampled tokens where `keep` (M,) is true, with only the rows they need; same totals."""
        used, local = np.unique(self.row[keep], return_inverse=True)
        cols = self.cols[self.position[keep]]
        per_token = {name: getattr(self, name)[keep] for name in _PER_TOKEN}
        contexts = [tuple(self.tokens[row, : self.lengths[row]].tolist()) for row in used]
        part = _arrange(contexts, local.astype(np.int32), cols, per_token, self.counters)
        return replace(part, total_tokens=self.total_tokens, total_sequences=self.total_sequences)

    def micro(self, max_tokens: int | None = None) -> Iterator[Batch]:
        """Parts that together hold every sampled token once, each of rows of like length.

        `max_tokens` bounds the tokens a part computes: its shared prefix once plus the padded rest of its rows. A row
        longer than that is a part of its own. Gradients of the parts add up to the gradient of the whole batch. None
        gives the batch itself. Raises ValueError if `max_tokens` is less than 1.
        """
        return (part for part, _ in self.parts(max_tokens))

    def parts(self, max_tokens: int | None = None) -> Iterator[tuple[Batch, NDArray[np.int64]]]:
        """As `micro`, each part with the places of its sampled tokens among the M of this batch."""
        if max_tokens is not None and max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {max_tokens!r}")
        if max_tokens is None or self.prefix + self.distinct_rows * (self.tokens.shape[1] - self.prefix) <= max_tokens:
            yield self, np.arange(len(self))
            return
        chunks: list[list[int]] = [[]]
        for row in np.argsort(self.lengths, kind="stable"):
            width = int(self.lengths[row]) - self.prefix  # rows come in ascending length: this one is the widest so far
            if chunks[-1] and self.prefix + (len(chunks[-1]) + 1) * width > max_tokens:
                chunks.append([])
            chunks[-1].append(int(row))
        for chunk in chunks:
            keep = np.isin(self.row, chunk)
            yield self.select(keep), np.flatnonzero(keep)

    def minibatches(self, count: int, seed: int) -> Iterator[Batch]:
        """`count` batches of whole turns drawn at random without replacement, each with totals of its own.

        For several optimiser steps on one batch. Fewer come out when there are fewer turns than `count`.
        """
        if count < 1:
            raise ValueError(f"count must be at least 1, got {count!r}")
        turns = np.unique(self.sequence)
        if count == 1 or len(turns) < 2:
            yield self
            return
        for part in np.array_split(np.random.default_rng(seed).permutation(turns), min(count, len(turns))):
            chosen = self.select(np.isin(self.sequence, part))
            yield replace(chosen, total_tokens=len(chosen), total_sequences=len(part))


_PER_TOKEN = ("target", "old_logprobs", "advantages", "sequence", "sequence_length", "trajectory", "version")


def pack(
    episodes: Sequence[Episode],
    advantages: Sequence[Mapping[str, NDArray[np.float64]]],
    *,
    max_tokens: int | None = None,
    policy_version: int | None = None,
    max_staleness: int | None = None,
) -> Batch:
    """Lay out the turns of all trainable agents. `advantages`: per episode, agent -> (turns,), as credit gives them.

    Left out and counted: turns of untrained agents, turns of more than `max_tokens` tokens (prompt and action; never
    cut, a cut turn is another turn), turns sampled more than `max_staleness` versions before `policy_version`, turns
    without action tokens. Raises ValueError when a trainable agent's turn has no tokens or log-probabilities, when they
    disagree in length or are not finite, or when its advantages are missing; the message names the turn.
    """
    if len(episodes) != len(advantages):
        raise ValueError(f"{len(episodes)} episodes but advantages for {len(advantages)}")
    if max_staleness is not None and policy_version is None:
        raise ValueError("max_staleness needs policy_version, the version staleness is counted from")
    counters = Counters()
    contexts: dict[tuple[int, ...], int] = {}
    prompts: set[tuple[int, ...]] = set()
    sampled: list[_Sampled] = []
    for index, (episode, given) in enumerate(zip(episodes, advantages, strict=True)):
        for number, (agent, trajectory) in enumerate(episode.trajectories.items()):
            if not trajectory.trainable:
                counters.untrained_turns += len(trajectory.turns)
                continue
            if not trajectory.turns:
                continue
            values = _advantages_of(given, agent, episode, len(trajectory.turns))
            rows: list[list[_Sampled]] = []
            for place, (turn, value) in enumerate(zip(trajectory.turns, values, strict=True)):
                new = _sample(turn, value, (index, number), partial(_where, place, agent, episode))
                size = len(new.prompt) + len(new.action)
                reason = _dropped(turn, size, max_tokens, policy_version, max_staleness) if new.action else "empty"
                if reason:
                    counters.dropped[reason] += 1
                elif rows and new.continues(rows[-1][-1]):
                    rows[-1].append(new)
                else:
                    rows.append([new])
            for row in rows:
                context = (row[-1].prompt + row[-1].action)[:-1]
                for new in row:
                    new.row = contexts.setdefault(context, len(contexts))
                    prompts.add(new.prompt)
                sampled += row
            counters.rows += len(rows)
    counters.turns = len(sampled)
    counters.zero_advantages = sum(new.advantage == 0.0 for new in sampled)
    counters.distinct_prompts = len(prompts)
    sizes = np.array([len(new.action) for new in sampled], dtype=np.int32)
    counters.action_tokens = int(sizes.sum())
    within = np.arange(counters.action_tokens) - np.repeat(np.cumsum(sizes) - sizes, sizes)

    def per_token(values: Iterable[float], kind: type[np.generic] = np.int32) -> NDArray:
        return np.repeat(np.array(list(values), dtype=kind), sizes)

    batch = _arrange(
        list(contexts),
        per_token(new.row for new in sampled),
        (per_token(len(new.prompt) - 1 for new in sampled) + within).astype(np.int32),
        {
            "target": np.array([token for new in sampled for token in new.action], dtype=np.int32),
            "old_logprobs": np.array([value for new in sampled for value in new.logprobs], dtype=np.float32),
            "advantages": per_token((new.advantage for new in sampled), np.float32),
            "sequence": per_token(range(len(sampled))),
            "sequence_length": per_token(sizes),
            "trajectory": per_token(_dense([new.trajectory for new in sampled])),
            "version": per_token(new.version for new in sampled),
        },
        counters,
    )
    counters.distinct_rows = batch.distinct_rows
    return batch


@dataclass(slots=True)
class _Sampled:
    """One turn on its way into a batch; `row` is its context once that is known."""

    prompt: tuple[int, ...]
    action: tuple[int, ...]
    logprobs: Sequence[float]
    advantage: float
    version: int
    trajectory: tuple[int, int]
    row: int = -1

    def continues(self, earlier: _Sampled) -> bool:
        """The prefix rule: this prompt begins with everything the earlier turn read and said."""
        size = len(earlier.prompt)
        end = size + len(earlier.action)
        return self.prompt[:size] == earlier.prompt and self.prompt[size:end] == earlier.action


def _dense(labels: Sequence[tuple[int, int]]) -> list[int]:
    """Labels numbered from 0 in the order of their first appearance."""
    numbers: dict[tuple[int, int], int] = {}
    return [numbers.setdefault(label, len(numbers)) for label in labels]


def _name(episode: Episode) -> str:
    return f"an episode of {episode.env_id} (seed {episode.seed}, group {episode.group})"


def _where(place: int, agent: str, episode: Episode) -> str:
    return f"turn {place} of agent {agent!r} in {_name(episode)}"


def _advantages_of(given: Mapping[str, NDArray], agent: str, episode: Episode, turns: int) -> NDArray:
    if agent not in given:
        raise ValueError(f"no advantages for the trainable agent {agent!r} in {_name(episode)}; got {sorted(given)}")
    values = np.asarray(given[agent], dtype=np.float64)
    if values.shape != (turns,):
        raise ValueError(
            f"agent {agent!r} in {_name(episode)} has {turns} turns but advantages of shape {values.shape}"
        )
    if not np.isfinite(values).all():
        raise ValueError(f"agent {agent!r} in {_name(episode)} has an advantage that is not finite: {values.tolist()}")
    return values


def _sample(turn: Turn, advantage: float, trajectory: tuple[int, int], where: Callable[[], str]) -> _Sampled:
    """The tokens of a turn to be trained on, checked. `where` names the turn in errors."""
    for name in ("prompt_tokens", "action_tokens", "logprobs"):
        if getattr(turn, name) is None:
            raise ValueError(
                f"{where()} has no {name}; a trainable agent must be played by a policy that returns the tokens it "
                "sampled, or its trajectory be marked trainable=False"
            )
    assert turn.prompt_tokens is not None and turn.action_tokens is not None and turn.logprobs is not None
    prompt, action, logprobs = tuple(turn.prompt_tokens), tuple(turn.action_tokens), turn.logprobs
    if not prompt:
        raise ValueError(f"{where()} has an empty prompt; the first action token needs at least one token before it")
    if len(logprobs) != len(action):
        raise ValueError(f"{where()} has {len(action)} action tokens but {len(logprobs)} log-probabilities")
    if not all(map(math.isfinite, logprobs)):
        raise ValueError(f"{where()} has a log-probability that is not finite: {list(logprobs)}")
    version = -1 if turn.policy_version is None else turn.policy_version
    return _Sampled(prompt, action, logprobs, float(advantage), version, trajectory)


def _dropped(turn: Turn, size: int, limit: int | None, version: int | None, staleness: int | None) -> str | None:
    """Why a turn is left out, or None."""
    if limit is not None and size > limit:
        return "too_long"
    if staleness is None or version is None or turn.policy_version is None:
        return None
    return "stale" if version - turn.policy_version > staleness else None


def _arrange(
    contexts: Sequence[tuple[int, ...]], rows: Ints, cols: Ints, per_token: Mapping[str, NDArray], counters: Counters
) -> Batch:
    """Build a batch from row tokens and, per sampled token, the row and column of the hidden state predicting it.

    Rows are cut after the last column needed, sorted, and merged into a longer row that begins with them, so the result
    does not depend on the order of the episodes except for the order of the sampled tokens.
    """
    needed = np.zeros(len(contexts), dtype=np.int64)
    np.maximum.at(needed, rows, cols + 1)
    cut = [context[:size] for context, size in zip(contexts, needed, strict=True)]
    kept: list[tuple[int, ...]] = []
    merged: dict[tuple[int, ...], int] = {}
    for row in sorted(set(cut), reverse=True):  # in this order a row stands right after the rows that begin with it
        if not kept or kept[-1][: len(row)] != row:
            kept.append(row)
        merged[row] = len(kept) - 1
    lengths = np.array([len(row) for row in kept], dtype=np.int32)
    tokens = np.zeros((len(kept), int(lengths.max(initial=0))), dtype=np.int32)
    for index, row in enumerate(kept):
        tokens[index, : len(row)] = row
    new_rows = np.array([merged[row] for row in cut], dtype=np.int64)[rows] if cut else np.zeros(0, dtype=np.int64)
    places, inverse = np.unique(new_rows * max(tokens.shape[1], 1) + cols, return_inverse=True)
    site_of: dict[bytes, int] = {}
    site_rows, site_cols, remap = [], [], np.zeros(len(places), dtype=np.int32)
    for index, place in enumerate(places):
        row_, col = divmod(int(place), tokens.shape[1])
        key = tokens[row_, : col + 1].tobytes()
        if key not in site_of:
            site_of[key] = len(site_of)
            site_rows.append(row_)
            site_cols.append(col)
        remap[index] = site_of[key]
    sequences = len(np.unique(per_token["sequence"]))
    return Batch(
        tokens=tokens,
        lengths=lengths,
        prefix=_common_prefix(tokens, min(site_cols, default=0)),
        rows=np.array(site_rows, dtype=np.int32),
        cols=np.array(site_cols, dtype=np.int32),
        keys=list(site_of),
        position=remap[inverse].astype(np.int32) if len(places) else np.zeros(0, dtype=np.int32),
        row=new_rows.astype(np.int32),
        total_tokens=len(per_token["target"]),
        total_sequences=sequences,
        counters=counters,
        **per_token,
    )


def _common_prefix(tokens: Ints, limit: int) -> int:
    """How many leading tokens all rows share, at most `limit` (the first column with a site: no row is shorter)."""
    differ = np.flatnonzero((tokens[:, :limit] != tokens[:1, :limit]).any(axis=0))
    return int(differ[0]) if len(differ) else limit
