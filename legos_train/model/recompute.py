"""Gradient checkpointing (Chen et al. 2016, arXiv 1604.06174), block by block, for the forward pass of decoder.py.

Forward, only the states between blocks are kept; backward, each block runs again, and its gradient is taken separately.
That trades one more forward pass for the memory of one block instead of all. Every block is its own graph: MLX's
`checkpoint` inside one graph saves nothing if parts of it are evaluated eagerly, as in fastmath.py.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_unflatten

from inference.forward import fastmath
from legos_train.loss.batch import Batch
from legos_train.model.decoder import State, at_sites, embedded, through

Outcome = tuple[mx.array, dict[str, mx.array]]


def value_and_grad(
    model: Any, batch: Batch, prefix: int, finish: Callable[[mx.array], Outcome], lazily: bool
) -> tuple[Outcome, dict[str, mx.array]]:
    """The loss, the other outputs of `finish`, and the gradient by weight name.

    With `lazily` nothing is evaluated while the last block's graph and that of `finish` are built: it would be kept.

    `finish` maps hidden states (K, H) at the sites to a scalar and a dict of arrays. Only weights inside blocks may
    be trainable, as with LoRA; the order of names is that of `model.trainable_parameters()`.
    """
    blocks = model.model.layers
    trainable = [dict(tree_flatten(block.trainable_parameters())) for block in blocks]
    lowest = min((i for i, weights in enumerate(trainable) if weights), default=len(blocks))
    states: list[State] = [embedded(model, batch, prefix)]
    for block in blocks[:-1]:
        states.append(through(block, states[-1], prefix))
        mx.eval(states[-1])
    seen: dict[str, mx.array] = {}

    def end(state: State) -> State:
        loss, more = finish(at_sites(model, state, batch, prefix))
        seen.update(more)
        return (loss,)

    found: dict[int, dict[str, mx.array]] = {}
    slope: list[mx.array] = [mx.array(1.0)]
    loss = mx.array(0.0)
    for index in reversed(range(min(lowest, len(blocks) - 1), len(blocks))):
        block, last = blocks[index], index == len(blocks) - 1
        step = end if last else lambda state, block=block: through(block, state, prefix)
        with fastmath.lazily() if last and lazily else nullcontext():
            value, found[index], slope = _back(block, trainable[index], step, states.pop(), slope)
        if last:
            loss = value[0]
    grads = {f"model.layers.{index}.{name}": grad for index in sorted(found) for name, grad in found[index].items()}
    return (loss, seen), grads


def _back(
    block: Any, weights: dict[str, mx.array], step: Callable[[State], State], state: State, slope: list[mx.array]
) -> tuple[list[mx.array], dict[str, mx.array], list[mx.array]]:
    """Reruns one block with its gradient: its outputs, and gradients of its weights and of the state before it."""
    names = list(weights)

    def run(*arrays: mx.array) -> list[mx.array]:
        block.update(tree_unflatten(list(zip(names, arrays, strict=False))))
        return list(step(arrays[len(names) :]))

    try:
        values, slopes = mx.vjp(run, [*weights.values(), *state], slope)
    finally:
        block.update(tree_unflatten(list(weights.items())))
    mx.eval(values, slopes)
    return values, dict(zip(names, slopes, strict=False)), slopes[len(names) :]
