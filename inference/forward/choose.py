"""Chooses how a model runs: the cheapest forward pass that reproduces the model's own numbers.

Each pass is compared with the next slower one before it is used:

* in numpy (host_forward.py): on a CPU, float32 weights, blocks built like Llama's and Qwen's, ordinary rotary
  embeddings: qwen2, qwen3, llama, mistral;
* in MLX over the slots of `kv.py` (mlx_forward.py): keys and values, sliding windows, recurrent states and convolution
  tails, in any type, quantised or not, experts included. On a CPU, blocks built like Llama's get decoder.py's cheaper
  pass if they compute in float32 (including quantised with float32 scales); bfloat16 and float16 get the model's own
  call;
* row by row (solo_forward.py), with mlx-lm's own caches: other kinds of caches, and models that turn out not to support
  batches of rows of different lengths. Slower, no shared prefixes, the same numbers.

A model that none of them can run is refused with UnsupportedModel. docs/engine.md has a table by architecture.

The comparisons cost a dozen passes over the weights. They use the first blocks, at least two and one of each kind, and
the first tokens of the vocabulary; if the kinds of caches differ, two tokens are also compared over all blocks. For
large models verdicts.py keeps the results.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache, partial
from typing import Any, cast

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm.models.cache import KVCache, make_prompt_cache

from inference.adapters import AdaptedLinear, AdapterBank, AdapterVersion
from inference.forward import host_forward, narrow
from inference.forward.mlx_forward import Fed, Forward, Logits, MlxForward, alike, rounding, shallow, trial
from inference.forward.solo_forward import SoloForward
from inference.forward.verdicts import Verdicts, built
from inference.types import UnsupportedModel

logger = logging.getLogger(__name__)

_MISFITS = (AttributeError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError)
"""Exceptions from a model's code when it does not support its input."""

_FEW_TOKENS = 1024
_TABLES = (nn.Embedding, nn.QuantizedEmbedding, nn.Linear, nn.QuantizedLinear)


def choose_forward(model: nn.Module, bank: AdapterBank) -> Forward:
    """The cheapest forward pass that gives the model's own numbers. UnsupportedModel when there is none."""
    short = _few_blocks(model)
    if short is None:
        return _choose(model, bank)
    few = _few_tokens(short, bank)
    try:
        chosen = _choose(few or short, bank)
    except UnsupportedModel:  # with so few blocks
        return _choose(model, bank)
    vocab = _vocabulary(model, bank) if few else chosen.vocab
    if isinstance(chosen, host_forward.HostForward):
        host = host_forward.HostForward(model, vocab)
        return host if not host.stateful or _two_agree(host, SoloForward(model, bank)) else _choose(model, bank)
    whole = chosen.over(model, vocab) if isinstance(chosen, MlxForward) else SoloForward(model, bank)
    if _plain(make_prompt_cache(model)):
        return whole
    return whole if isinstance(whole, MlxForward) and _weighed(whole) else _choose(model, bank)


def _few_blocks(model: nn.Module) -> nn.Module | None:
    """The model with its first blocks, at least two and one of each kind, over the same modules.

    None if those are all blocks, if blocks with plain keys and values differ anyway, or if the blocks are not where
    Llama and Qwen have them.
    """
    chain = _chain(model)
    layers: Any = getattr(chain[-1], "layers", None) if chain else None
    shown: Any = getattr(model, "layers", None)
    if not (isinstance(layers, list) and isinstance(shown, list) and [*map(id, shown)] == [*map(id, layers)]):
        return None
    templates = make_prompt_cache(model)
    caches = [_kind(cache) for cache in templates]
    if len(caches) != len(layers):
        return None
    kinds = [(built(block), cache) for block, cache in zip(layers, caches, strict=True)]
    count = max(2, 1 + max(kinds.index(kind) for kind in set(kinds)))
    if count >= len(layers) or (_plain(templates) and len(set(kinds)) > 1):
        return None
    copies: list[Any] = _copied(chain)
    dict.__setitem__(copies[-1], "layers", layers[:count])
    # Some models count caches by their arguments, not by their blocks.
    object.__setattr__(copies[0], "make_cache", lambda: make_prompt_cache(model)[:count])
    return cast(nn.Module, copies[0])


def _chain(model: nn.Module) -> list[nn.Module]:
    """The model, the text model within it if it has one, and the body that turns tokens into hidden states."""
    chain = [model]
    while "model" not in chain[-1] and isinstance(chain[-1].get("language_model"), nn.Module):
        chain.append(chain[-1]["language_model"])
    return [*chain, chain[-1]["model"]] if isinstance(chain[-1].get("model"), nn.Module) else []


def _copied(chain: list[nn.Module]) -> list[nn.Module]:
    copies = [shallow(module) for module in chain]
    for outer, inner, original in zip(copies, copies[1:], chain[1:], strict=False):
        name = next(name for name, part in outer.items() if part is original)
        dict.__setitem__(outer, name, inner)
    return copies


def _plain(caches: list[Any]) -> bool:
    return all(type(cache) is KVCache for cache in caches)


def _kind(cache: Any) -> tuple[Any, ...]:
    """The properties that distinguish a cache before it is used."""
    parts = getattr(cache, "caches", ())
    sizes = [getattr(cache, name, None) for name in ("max_size", "keep", "chunk_size")]
    return (type(cache), *sizes, len(getattr(cache, "cache", ())), *(_kind(part) for part in parts))


def _weighed(whole: MlxForward) -> bool:
    """Measures the bytes of all blocks, whose caches differ, and compares two tokens."""
    solo, kv = SoloForward(whole.model, whole.bank), whole.new_kv()
    try:
        found = whole(kv, Fed(0, [0], np.zeros((1, 2), np.int32), [whole.bank.base]))
    except _MISFITS:
        return False
    whole.bytes_per_entry, whole.bytes_per_row = max(kv.bytes_per_entry, 1), kv.bytes_per_row
    return alike([found], [solo.first], rounding(whole.model))


def _few_tokens(short: Any, bank: AdapterBank) -> nn.Module | None:
    """The model with the first tokens of its vocabulary; None if that saves little or the vocabulary is not where Llama
    has it.
    """
    few: list[Any] = _copied(_chain(short))
    for parent, name in ((few[-1], "embed_tokens"), (few[-2], "lm_head")):
        table = parent.get(name)
        if not isinstance(table, nn.Module) and name == "lm_head":
            continue
        plain = table.linear if isinstance(table, AdaptedLinear) else table
        if not isinstance(plain, _TABLES) or plain.weight.shape[0] < 4 * _FEW_TOKENS:
            return None
        dict.__setitem__(parent, name, _first_rows(table))
    try:
        return few[0] if _vocabulary(few[0], bank) == _FEW_TOKENS else None
    except _MISFITS:
        return None


def _first_rows(table: Any) -> nn.Module:
    copied: Any = shallow(table)
    if isinstance(table, AdaptedLinear):
        dict.__setitem__(copied, "linear", _first_rows(table.linear))
        return copied
    for name, array in table.items():
        if isinstance(array, mx.array):
            dict.__setitem__(copied, name, array[:_FEW_TOKENS])
    return cast(nn.Module, copied)


def _vocabulary(model: Any, bank: AdapterBank) -> int:
    """The width of the logits, without computing anything."""
    bank.select([bank.base], 1)
    return int(model(mx.zeros((1, 1), mx.int32)).shape[-1])


def _choose(model: nn.Module, bank: AdapterBank) -> Forward:
    verdicts = Verdicts(model)
    try:
        solo = SoloForward(model, bank)
    except _MISFITS as error:
        raise UnsupportedModel(
            f"the engine cannot run {type(model).__module__}: {type(error).__name__}: {error}"
        ) from error
    chosen = _cheapest(model, bank, solo, verdicts)
    if verdicts.relied and not _two_agree(chosen, solo):
        verdicts.forget()
        chosen = _cheapest(model, bank, solo, verdicts)
    verdicts.keep()
    return chosen


def _cheapest(model: nn.Module, bank: AdapterBank, solo: SoloForward, verdicts: Verdicts) -> Forward:
    batched = _batched(model, bank, solo, verdicts)
    if isinstance(batched, str):
        logger.warning("%s runs row by row, without batches or cached prefixes: %s", type(model).__module__, batched)
        return solo
    own, found = batched
    if (own.own_decoder or own.stateful) and host_forward.fits(model):
        host = host_forward.HostForward(model, own.vocab)
        if verdicts.agrees("numpy", partial(_host_agrees, host, own, solo, found)):
            return host
        logger.info("%s runs in MLX: the faster numpy pass gives different results", type(model).__module__)
    return own


def _two_agree(chosen: Forward, solo: SoloForward) -> bool:
    """Compares two tokens: for comparisons made in another process, or on fewer blocks."""
    try:
        found = chosen(chosen.new_kv(), Fed(0, [0], np.zeros((1, 2), np.int32), [solo.bank.base]))
    except _MISFITS:
        return False
    return alike([found], [solo.first], rounding(solo.model))


def _batched(
    model: nn.Module, bank: AdapterBank, solo: SoloForward, verdicts: Verdicts
) -> tuple[MlxForward, Callable[[], list[Logits]]] | str:
    """The model's own call over slots, and a function that runs its trial; or why none gives the same numbers."""
    reason = "rows of different lengths give different results in a batch than on their own"
    for mask_axes in (1, 2):  # some designs have a separate axis for the heads of a group
        try:
            own = MlxForward(model, bank, mask_axes=mask_axes, agrees=verdicts.agrees)
            found = cache(partial(trial, own, bank.base, pads=own.pads))
            if verdicts.agrees(f"slots, {mask_axes}", partial(_slots_agree, own, solo, found)):
                return own, found
        except _MISFITS as error:  # no slots, or code that does not support rows of different lengths
            reason = f"{type(error).__name__}: {error}"
    return reason


def _slots_agree(own: MlxForward, solo: SoloForward, found: Callable[[], list[Logits]]) -> bool:
    ours = found()
    narrowed = narrow.trials(own, solo)
    return alike(*(narrowed or (ours, trial(solo, solo.bank.base, pads=own.pads))), rounding(own.model))


def _host_agrees(
    host: host_forward.HostForward, own: MlxForward, solo: SoloForward, found: Callable[[], list[Logits]]
) -> bool:
    base = own.bank.base
    same = alike(trial(host, base, pads=own.pads), found()) and _same_head(host, own, base)
    # It may pad where the model's own call over slots does not.
    return same and (own.pads or alike(trial(host, base), trial(solo, base)))


def _same_head(host: host_forward.HostForward, own: MlxForward, base: AdapterVersion) -> bool:
    """Compares heads, including on hidden states so large that a cap on the logits would show."""
    if own.head is None:
        return False
    hidden = np.random.default_rng(0).normal(size=(4, host.hidden)).astype(np.float32)
    hidden[2:] *= 1000.0
    expected = np.asarray(own.head(mx.array(hidden[:, None])))[:, 0]
    return all(alike([host.logits(hidden[i], base)], [expected[i]]) for i in (slice(0, 2), slice(2, 4)))
