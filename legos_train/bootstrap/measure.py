"""What the model does before any training: the chance of an illegal reply, and how even it is among the legal ones.

Exact, not sampled: the probability of every legal reply (end mark included) is computed in every information set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import mlx.core as mx
import mlx_lm
import numpy as np
from mlx_lm.models import qwen3
from mlx_lm.models.cache import KVCache
from numpy.typing import NDArray
from tokenizers import Tokenizer

import legos_envs
from inference.forward import fastblas, fastmath
from legos_envs.exact import info_sets, nash_conv
from legos_envs.game import GameEnv, InfoSet, info_set
from legos_envs.games import MATRIX_GAMES
from legos_envs.parsing import write_action
from legos_train.bootstrap import texts
from legos_train.bootstrap.tokenizer import ChatEncoder
from legos_train.model import causal


class Evenness(NamedTuple):
    """Over the information sets of one env, each counted once, at temperature 1.

    illegal_mean, illegal_max: probability of a reply that is not exactly one of the legal ones. kl_mean, kl_max: nats,
    KL(policy given a legal reply || uniform over the legal replies).
    """

    info_sets: int
    illegal_mean: float
    illegal_max: float
    kl_mean: float
    kl_max: float


def evenness(model: Any, encoder: ChatEncoder, env: GameEnv, sets: Sequence[InfoSet] | None = None) -> Evenness:
    """Measure the model in all information sets of an env's game, or in those given."""
    sets = sets_of(env) if sets is None else sets
    illegal, gaps = [], []
    for logs in _in_sets(model, encoder, env, sets):
        mass = float(np.exp(logs).sum())
        given_legal = logs - np.log(mass)
        illegal.append(max(0.0, 1.0 - mass))
        gaps.append(float(np.sum(np.exp(given_legal) * given_legal) + np.log(len(logs))))
    return Evenness(len(sets), float(np.mean(illegal)), max(illegal), float(np.mean(gaps)), max(gaps))


def policy_table(model: Any, encoder: ChatEncoder, env: GameEnv) -> dict[InfoSet, dict[str, float]]:
    """The model's probability of each legal move, given that it plays one, in every information set."""
    sets = sets_of(env)
    table = {}
    for one, logs in zip(sets, _in_sets(model, encoder, env, sets), strict=True):
        probs = np.exp(logs) / np.exp(logs).sum()
        table[one] = dict(zip(one.legal, map(float, probs), strict=True))
    return table


def _in_sets(model: Any, encoder: ChatEncoder, env: GameEnv, sets: Sequence[InfoSet]) -> list[NDArray[np.float64]]:
    prompts = [encoder.prompt(env.observation_in(one)["messages"]) for one in sets]
    replies = [[encoder.reply(write_action(move, env.action_format)) for move in one.legal] for one in sets]
    return reply_logprobs(model, prompts, replies)


def sets_of(env: GameEnv, sample: int = 300) -> list[InfoSet]:
    """All information sets, or some met in random play where the game is too large to list them."""
    try:
        return info_sets(env.game)
    except ValueError:
        rng = Random(0)
    found: dict[InfoSet, None] = {}
    while len(found) < sample:
        state = rng.choice(env.game.initial())[1]
        while env.game.player(state) is not None:
            here = info_set(env.game, state)
            found[here] = None
            state = env.game.next(state, rng.choice(here.legal))
    return list(found)[:sample]


def reply_logprobs(
    model: Any, prompts: Sequence[list[int]], replies: Sequence[list[list[int]]], chunk: int = 128
) -> list[NDArray[np.float64]]:
    """For each prompt, the log-probability of each of its replies.

    What all prompts begin with is computed once; prompts of one length go together, `chunk` at a time, and their keys
    and values serve all their replies.
    """
    with _fast_exponentials():
        return _reply_logprobs(model, prompts, replies, chunk)


def _reply_logprobs(
    model: Any, prompts: Sequence[list[int]], replies: Sequence[list[list[int]]], chunk: int
) -> list[NDArray[np.float64]]:
    shared = _shared_prefix(prompts)
    trunk = [KVCache() for _ in model.layers]
    if shared:
        mx.eval(model(mx.array([prompts[0][:shared]]), cache=trunk))
    by_length: dict[int, list[int]] = {}
    for i, prompt in enumerate(prompts):
        by_length.setdefault(len(prompt), []).append(i)
    found: list[NDArray[np.float64]] = [np.zeros(0)] * len(prompts)
    for group in by_length.values():
        for at in range(0, len(group), chunk):
            some = group[at : at + chunk]
            rows = mx.array([prompts[i][shared:] for i in some])
            caches = _copies(trunk, mx.zeros((len(some),), dtype=mx.int32)) if shared else [KVCache() for _ in trunk]
            first = _log_softmax(model(rows, cache=caches)[:, -1])
            owner = [j for j, i in enumerate(some) for _ in replies[i]]
            said = [reply for i in some for reply in replies[i]]
            width = max(len(reply) for reply in said)
            padded = np.array([reply + [0] * (width - len(reply)) for reply in said])
            logs = first[np.array(owner), padded[:, 0]]
            if width > 1:
                rest = _log_softmax(model(mx.array(padded[:, :-1]), cache=_copies(caches, mx.array(owner))))
                picked = np.take_along_axis(rest, padded[:, 1:, None], axis=2)[:, :, 0]
                inside = np.arange(1, width)[None] < np.array([len(reply) for reply in said])[:, None]
                logs = logs + np.where(inside, picked, 0.0).sum(1)
            for j, i in enumerate(some):
                found[i] = logs[np.array(owner) == j]
    return found


def _shared_prefix(prompts: Sequence[list[int]]) -> int:
    """How many first tokens all prompts have in common, the last token of a prompt never among them."""
    low, high = min(prompts), max(prompts)
    limit = min(len(prompt) for prompt in prompts) - 1
    return next((i for i in range(limit) if low[i] != high[i]), limit)


def _copies(caches: Sequence[KVCache], rows: mx.array) -> list[KVCache]:
    """New caches whose row i is row `rows[i]` of the old."""
    copies = []
    for cache in caches:
        copy = KVCache()
        copy.keys, copy.values = (
            mx.take(part[:, :, : cache.offset], rows, axis=0) for part in (cache.keys, cache.values)
        )
        copy.offset = cache.offset
        copies.append(copy)
    return copies


@contextmanager
def _fast_exponentials() -> Iterator[None]:
    """Give mlx_lm's Qwen3 the softmax and SwiGLU of inference.forward.fastmath for the length of the block."""
    before = qwen3.swiglu, qwen3.scaled_dot_product_attention
    qwen3.swiglu, qwen3.scaled_dot_product_attention = fastmath.swiglu, _attention  # type: ignore[assignment]
    try:
        yield
    finally:
        qwen3.swiglu, qwen3.scaled_dot_product_attention = before


def _attention(queries: mx.array, keys: mx.array, values: mx.array, cache: Any, scale: float, mask: Any) -> mx.array:
    """Causal attention of the last positions, (B, Hq, L, D), over all, (B, Hkv, S, D)."""
    batch, heads, length, width = queries.shape
    groups = keys.shape[1]
    grouped = (queries * scale).reshape(batch, groups, heads // groups * length, width)
    scores = (grouped @ keys.swapaxes(2, 3)).reshape(batch, groups, heads // groups, length, -1)
    weights = fastmath.softmax(mx.where(causal(length, keys.shape[2]), scores, -mx.inf))
    return (weights.reshape(batch, groups, heads // groups * length, -1) @ values).reshape(queries.shape)


def _log_softmax(logits: mx.array) -> NDArray[np.float64]:
    x = np.array(logits)
    x -= x.max(-1, keepdims=True)
    return (x - np.log(np.exp(x).sum(-1, keepdims=True, dtype=np.float64))).astype(np.float64)


def load(folder: str | Path) -> tuple[Any, ChatEncoder]:
    """A model folder's model and the encoder of its tokenizer.

    On the CPU `mx.compile` is switched off for the process: there it compiles C++ for every new shape.
    """
    fastblas.enable()
    if mx.default_device().type == mx.DeviceType.cpu:
        mx.disable_compile()
    model, _ = mlx_lm.load(str(folder))[:2]
    return model, ChatEncoder(Tokenizer.from_file(str(Path(folder) / "tokenizer.json")))


def solvable() -> Iterator[tuple[str, GameEnv]]:
    """A label and an env for every environment of `texts.GAMES`; for matrix games, every named one."""
    for env_id in texts.GAMES:
        names = MATRIX_GAMES if env_id == "MatrixGame-v0" else (None,)
        for name in names:
            env = legos_envs.make(env_id, **({} if name is None else {"game": name})).unwrapped
            if isinstance(env, GameEnv):
                yield f"{env_id} {name or ''}".strip(), env


def illegal_in_made_up_choices(model: Any, encoder: ChatEncoder, count: int = 300) -> float:
    """Mean illegal mass over lists of random words and numbers that belong to no registered environment."""
    rng = Random("measure")
    asked = [texts.made_up_choice(rng).exchanges[0] for _ in range(count)]
    prompts = [encoder.prompt([{"role": "user", "content": one.prompt}]) for one in asked]
    replies = [[encoder.reply(reply) for reply in one.legal or ()] for one in asked]
    return float(np.mean([1.0 - np.exp(logs).sum() for logs in reply_logprobs(model, prompts, replies)]))


def report_evenness(folder: str | Path) -> str:
    """Markdown: a table of `evenness` for all of `solvable()`, Kuhn poker's NashConv, and unknown lists."""
    model, encoder = load(folder)
    lines = [
        "| environment | information sets | illegal, mean | illegal, max | KL to uniform, mean | KL, max |",
        "|---|---|---|---|---|---|",
    ]
    for label, env in solvable():
        got = evenness(model, encoder, env)
        rates = f"{got.illegal_mean:.2%} | {got.illegal_max:.2%} | {got.kl_mean:.4f} | {got.kl_max:.4f}"
        lines.append(f"| {label} | {got.info_sets} | {rates} |")
    kuhn = legos_envs.make("KuhnPoker-v0").unwrapped
    table = policy_table(model, encoder, kuhn)
    lines += [
        "",
        f"NashConv in KuhnPoker-v0: {nash_conv(kuhn.game, table.__getitem__):.4f} (uniform play: 0.9167).",
        f"Illegal in made-up choices, mean: {illegal_in_made_up_choices(model, encoder):.1%}.",
    ]
    return "\n".join(lines)
