"""Gradient checkpointing (Chen et al. 2016, arXiv 1604.06174) for any of mlx-lm's models, within one graph.

A layer is called as before, but the backward pass computes its intermediate results again. What it reads from its
cache and writes there (the prefix that rows share, shared_prefix.py) counts as input and output, so that gradients
through the prefix stay whole. recompute.py does the same for decoder.py, whose graph may be evaluated as it is built.
"""

from __future__ import annotations

import contextvars
import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.models import cache as mlx_lm_cache

from legos_train.model.lora import Weights, grad_norm
from legos_train.model.shared_prefix import PrefixKV


def recompute_layers(model: Any, gradient: Callable[[], Weights], tolerance: float) -> str:
    """From now on the layers of a model keep nothing for the backward pass; the last does, which needs it at once.

    Args:
        model: with its trainable weights.
        gradient: computes one, of a few tokens.
        tolerance: by how much of its norm it may change.

    Returns:
        Empty, or why the layers do not allow it; then they are as before.
    """
    before = gradient()
    try:
        for layer in model.layers[:-1]:
            kind: Any = type(layer)
            if not issubclass(kind, _Recomputed):
                layer.__class__ = _recomputed(kind)
        after = gradient()
        off, norm = grad_norm({name: after[name] - array for name, array in before.items()}), grad_norm(before)
        why = "" if off <= tolerance * norm else f"changes the gradient, of norm {norm:.2g}, by {off:.2g}"
        if uncalled := sum(isinstance(layer, _Recomputed) and not layer.called for layer in model.layers):
            why = why or f"does not fit this model, which never calls {uncalled} of its layers"
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        why = f"does not fit this model: {type(error).__name__}: {error}"
    if why:
        for layer in model.layers:
            layer.__class__ = getattr(type(layer), "kept", type(layer))
    return why


class _Recomputed:
    """Comes before a layer's own class, `kept`, of which it changes only the call."""

    kept: type[nn.Module]
    called = False


@functools.cache
def _recomputed(kind: Any) -> Any:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.called = True
        context = contextvars.copy_context()  # the backward pass runs outside of it
        inputs: list[mx.array] = []
        frame = _take_arrays((args, kwargs, self.trainable_parameters()), inputs)
        after: list[Any] = []  # the result and the caches as the layer left them, without their arrays

        def run(*arrays: mx.array) -> list[mx.array]:
            caches: list[tuple[Any, Any]] = []
            again, named, weights = _put_arrays(frame, arrays, caches)
            before = self.trainable_parameters()
            self.update(weights)
            try:
                out = context.run(kind.__call__, self, *again, **named)
            finally:
                self.update(before)
            outputs: list[mx.array] = []
            after[:] = [_take_arrays(out, outputs), *((own, _take_arrays(vars(made), outputs)) for own, made in caches)]
            return outputs

        outputs = mx.checkpoint(run)(*inputs)
        out, *caches = after
        result = _put_arrays(out, outputs, [])
        for cache, state in caches:
            vars(cache).update(_put_arrays(state, outputs, []))
        return result

    return type(kind.__name__, (_Recomputed, kind), {"__call__": call, "__module__": kind.__module__, "kept": kind})


@dataclass(frozen=True, slots=True)
class _Slot:
    """Where an array was, and its place among those taken out."""

    place: int


@dataclass(slots=True)
class _Cache:
    """A cache, and its attributes without their arrays."""

    cache: Any
    state: Any


def _take_arrays(value: Any, arrays: list[mx.array]) -> Any:
    """A value without the arrays that may have a gradient, which `arrays` gets, each once.

    MLX would drop one of two gradients of an output given twice.
    """
    if isinstance(value, mx.array) and mx.issubdtype(value.dtype, mx.floating):
        place = next((i for i, array in enumerate(arrays) if array is value), len(arrays))
        arrays[place:] = arrays[place:] or [value]
        return _Slot(place)
    if isinstance(value, mlx_lm_cache.CacheList):
        return _Cache(value, _take_arrays(value.caches, arrays))
    if isinstance(value, mlx_lm_cache._BaseCache | PrefixKV):
        return _Cache(value, _take_arrays(vars(value), arrays))
    if isinstance(value, dict):
        return {key: _take_arrays(inner, arrays) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return _like(value, [_take_arrays(inner, arrays) for inner in value])
    return value


def _put_arrays(value: Any, arrays: Sequence[mx.array], caches: list[tuple[Any, Any]]) -> Any:
    """The inverse. Caches are copied; `caches` gets each with its copy."""
    if isinstance(value, _Slot):
        return arrays[value.place]
    if isinstance(value, _Cache):
        state = _put_arrays(value.state, arrays, caches)
        if isinstance(value.cache, mlx_lm_cache.CacheList):
            return mlx_lm_cache.CacheList(*state)
        made = copy.copy(value.cache)
        vars(made).update(state)
        caches.append((value.cache, made))
        return made
    if isinstance(value, dict):
        return {key: _put_arrays(inner, arrays, caches) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return _like(value, [_put_arrays(inner, arrays, caches) for inner in value])
    return value


def _like(value: Any, items: list[Any]) -> Any:
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
