"""Episodes and advantages -> a batch: the prefix rule, the checks, and what to leave out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from legos_envs.records import Episode, Turn
from legos_train.loss.batch.arrays import Batch, Counters, arrange
from legos_train.loss.batch.legal import Encode, LegalTokens


def pack(
    episodes: Sequence[Episode],
    advantages: Sequence[Mapping[str, NDArray[np.float64]]],
    *,
    max_tokens: int | None = None,
    policy_version: int | None = None,
    max_staleness: int | None = None,
    mask_truncated: bool = False,
    skip_zero: bool = False,
    skip_forced: float = 0.0,
    keep_forks: bool = False,
    legal: Encode | None = None,
    weights: Sequence[Mapping[str, NDArray[np.float64]]] | None = None,
) -> Batch:
    """Lays out the turns of all trainable agents. `advantages`: per episode, agent -> (turns,), from credit assignment.

    `weights`, of the same form: how many turns each turn counts for; None: one.

    Left out and counted: turns of untrained agents, turns of more than `max_tokens` tokens (prompt and action; never
    cut, since a cut turn is another turn), turns sampled more than `max_staleness` versions before `policy_version`,
    turns without action tokens, with `mask_truncated` turns that the token limit ended ("cut"), and with `skip_zero`
    turns whose advantage is 0 ("zero"), unless all are 0: dynamic sampling, arXiv 2503.14476, except that no further
    episodes are played in their place.

    Tokens written by a rule instead of the policy (`Turn.written`) are also left out and count as forced.

    skip_forced: the tokens at the end of an action that the sampler gave a probability above 1 minus this are left out,
        and with them what no other token needs of the rows: after the one digit of a move only the closing bracket and
        the end token follow, and prompts with different digits become one row. Earlier forced tokens stay: their row is
        needed anyway, and without the KL on them a policy was seen to drift away from "[". Every other token keeps the
        weight it would have otherwise. An omitted token has a policy gradient of at most `skip_forced` times its
        advantage per logit.
    keep_forks: a token is not forced if another action of the batch continues differently. A loss whose token has a
        gradient without an advantage, balanced by those of the other actions, would otherwise lose one side.
    legal: text of an action -> its token ids as the sampler would write it; fills `Batch.legal` from the turns' lists
        of legal actions. A turn without a list may sample anything.

    Raises ValueError if a trainable agent's turn has no tokens or log-probabilities, if they
    disagree in length or are not finite, or if its advantages are missing; the message names the turn.
    """
    if len(episodes) != len(advantages):
        raise ValueError(f"{len(episodes)} episodes but advantages for {len(advantages)}")
    if not 0.0 <= skip_forced < 1.0:
        raise ValueError(f"skip_forced must be at least 0 and below 1, got {skip_forced!r}")
    if max_staleness is not None and policy_version is None:
        raise ValueError("max_staleness needs policy_version, the version staleness is counted from")
    counters = Counters()
    known = LegalTokens(legal) if legal else None
    contexts: dict[tuple[int, ...], int] = {}
    same: dict[tuple[int, tuple[int, ...]], int] = {}  # the same by the ids of prompts, which many turns share
    sampled: list[_Sampled] = []
    skip_zero = skip_zero and any(
        trajectory.trainable and np.any(given.get(agent, 0.0))
        for episode, given in zip(episodes, advantages, strict=True)
        for agent, trajectory in episode.trajectories.items()
    )
    weighing = [None] * len(episodes) if weights is None else weights
    for index, (episode, given, counted) in enumerate(zip(episodes, advantages, weighing, strict=True)):
        for number, (agent, trajectory) in enumerate(episode.trajectories.items()):
            if not trajectory.trainable:
                continue
            if not trajectory.turns:
                continue
            given_values = _advantages_of(given, agent, episode, len(trajectory.turns))
            rows: list[list[_Sampled]] = []
            for place, (turn, value) in enumerate(zip(trajectory.turns, given_values, strict=True)):
                new = _sample(turn, value, (index, number), partial(_where, place, agent, episode))
                if counted is not None:
                    new.weight = float(counted[agent][place])
                size = len(new.prompt) + len(new.action)
                reason = _dropped(turn, size, max_tokens, policy_version, max_staleness) if new.action else "empty"
                if reason is None and mask_truncated and turn.finish_reason == "length":
                    reason = "cut"
                if reason is None and skip_zero and value == 0.0:
                    reason = "zero"
                if reason:
                    counters.dropped[reason] += 1
                    continue
                if known:
                    new.legal = known.along(turn.legal_actions or (), new.action)
                if rows and new.continues(rows[-1][-1]):
                    rows[-1].append(new)
                else:
                    rows.append([new])
            for row in rows:
                last = row[-1]
                key = id(last.prompt), last.action
                if key not in same:
                    same[key] = contexts.setdefault((last.prompt + last.action)[:-1], len(contexts))
                for new in row:
                    new.row = same[key]
                sampled += row
            counters.rows += len(rows)
    counters.turns = len(sampled)
    counters.zero_advantages = sum(new.advantage == 0.0 for new in sampled)
    sizes = np.array([len(new.action) for new in sampled], dtype=np.int32)
    counters.action_tokens = int(sizes.sum())
    within = np.arange(counters.action_tokens) - np.repeat(np.cumsum(sizes) - sizes, sizes)

    def per_token(values: Iterable[float], kind: type[np.generic] = np.int32) -> NDArray:
        return np.repeat(np.array(list(values), dtype=kind), sizes)

    values = {
        "target": np.array([token for new in sampled for token in new.action], dtype=np.int32),
        "old_logprobs": np.array([value for new in sampled for value in new.logprobs], dtype=np.float32),
        "advantages": per_token((new.advantage for new in sampled), np.float32),
        "sequence": per_token(range(len(sampled))),
        "sequence_length": per_token(sizes),
        "trajectory": per_token(_dense([new.trajectory for new in sampled])),
        "version": np.array([version for new in sampled for version in new.versions], dtype=np.int32),
        "legal": np.array([index for new in sampled for index in new.legal], dtype=np.int32)
        if known
        else np.full(counters.action_tokens, -1, dtype=np.int32),
        "weight": per_token((new.weight for new in sampled), np.float32),
    }
    rows_of = per_token(new.row for new in sampled)
    cols = (per_token(len(new.prompt) - 1 for new in sampled) + within).astype(np.int32)
    texts = list(contexts)
    own = np.ones(counters.action_tokens, dtype=bool)
    own[[begin + place for begin, new in zip(np.cumsum(sizes) - sizes, sampled) for place in new.written]] = False
    if skip_forced or not own.all():
        free = own & (values["old_logprobs"].astype(np.float64) <= math.log1p(-skip_forced))
        if keep_forks:
            free |= own & _forks(sampled)
        ends = np.full(len(sampled), -1)
        np.maximum.at(ends, values["sequence"][free], within[free])
        keep = own & (within <= ends[values["sequence"]])
        counters.forced_tokens = int((~keep).sum())
        values = {name: array[keep] for name, array in values.items()}
        used, rows_of = np.unique(rows_of[keep], return_inverse=True)
        texts, rows_of, cols = [texts[row] for row in used], rows_of.astype(np.int32), cols[keep]
    batch = replace(
        arrange(texts, rows_of, cols, values, counters),
        total_tokens=sum(new.weight * len(new.action) for new in sampled),
        total_sequences=sum(new.weight for new in sampled),
        legal_sets=known.sets if known else (),
    )
    counters.distinct_rows = batch.distinct_rows
    return batch


@dataclass(slots=True)
class _Sampled:
    """One turn being packed; `row` is its context once known."""

    prompt: tuple[int, ...]
    action: tuple[int, ...]
    logprobs: Sequence[float]
    advantage: float
    versions: Sequence[int]
    trajectory: tuple[int, int]
    legal: Sequence[int] = ()
    row: int = -1
    written: Sequence[int] = ()
    weight: float = 1.0

    def continues(self, earlier: _Sampled) -> bool:
        """The prefix rule: this prompt starts with everything the earlier turn read and wrote."""
        size = len(earlier.prompt)
        end = size + len(earlier.action)
        return self.prompt[:size] == earlier.prompt and self.prompt[size:end] == earlier.action


def _forks(sampled: Sequence[_Sampled]) -> NDArray[np.bool_]:
    """For each token of each action, whether another action with the same prompt and prefix differs, (M,)."""
    prompts: dict[tuple[int, ...], int] = {}
    places = [
        (prompts.setdefault(new.prompt, len(prompts)), new.action[:place])
        for new in sampled
        for place in range(len(new.action))
    ]
    tokens = [token for new in sampled for token in new.action]
    distinct = Counter(place for place, _ in set(zip(places, tokens)))
    return np.array([distinct[place] > 1 for place in places], dtype=bool)


def _dense(labels: Sequence[tuple[int, int]]) -> list[int]:
    """Labels numbered from 0 in the order of their first appearance."""
    numbers: dict[tuple[int, int], int] = {}
    return [numbers.setdefault(label, len(numbers)) for label in labels]


def _name(episode: Episode) -> str:
    return f"an episode of {episode.env_id} (seed {episode.seed}, group {episode.group})"


def _where(place: int, agent: str, episode: Episode) -> str:
    return f"turn {place} of agent {agent!r} in {_name(episode)}"


def _advantages_of(given: Mapping[str, NDArray], agent: str, episode: Episode, turns: int) -> list[float]:
    if agent not in given:
        raise ValueError(f"no advantages for the trainable agent {agent!r} in {_name(episode)}; got {sorted(given)}")
    array = np.asarray(given[agent], dtype=np.float64)
    if array.shape != (turns,):
        raise ValueError(f"agent {agent!r} in {_name(episode)} has {turns} turns but advantages of shape {array.shape}")
    values: list[float] = array.tolist()
    if not all(map(math.isfinite, values)):
        raise ValueError(f"agent {agent!r} in {_name(episode)} has an advantage that is not finite: {values}")
    return values


def _sample(turn: Turn, advantage: float, trajectory: tuple[int, int], where: Callable[[], str]) -> _Sampled:
    """The tokens of a turn to train on, checked. `where` names the turn in errors."""
    if turn.prompt_tokens is None or turn.action_tokens is None or turn.logprobs is None:
        name = next(name for name in ("prompt_tokens", "action_tokens", "logprobs") if getattr(turn, name) is None)
        raise ValueError(
            f"{where()} has no {name}; a trainable agent must be played by a policy that returns the tokens it "
            "sampled, or its trajectory marked trainable=False"
        )
    prompt, action, logprobs = tuple(turn.prompt_tokens), tuple(turn.action_tokens), turn.logprobs
    if not prompt:
        raise ValueError(f"{where()} has an empty prompt; the first action token needs at least one token before it")
    if len(logprobs) != len(action):
        raise ValueError(f"{where()} has {len(action)} action tokens but {len(logprobs)} log-probabilities")
    if not all(map(math.isfinite, logprobs)):
        raise ValueError(f"{where()} has a log-probability that is not finite: {list(logprobs)}")
    version = -1 if turn.policy_version is None else turn.policy_version
    versions = [version] * len(action) if turn.token_versions is None else turn.token_versions
    if len(versions) != len(action):
        raise ValueError(f"{where()} has {len(action)} action tokens but {len(versions)} token versions")
    return _Sampled(prompt, action, logprobs, advantage, versions, trajectory, written=turn.written or ())


def _dropped(turn: Turn, size: int, limit: int | None, version: int | None, staleness: int | None) -> str | None:
    """Why a turn is left out, or None."""
    if limit is not None and size > limit:
        return "too_long"
    if staleness is None or version is None or turn.policy_version is None:
        return None
    return "stale" if version - turn.policy_version > staleness else None
