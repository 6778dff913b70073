"""LoRA adapters that live beside each other over one base model, each published version in a slot of its own.

LoRA (Hu et al. 2021): y = W x + scale * B A x. Every linear layer is wrapped; a batch whose rows all use one slot pays
two small products and no gather, a mixed batch uses `mx.gather_mm` with a slot number per row, and a layer that no slot
has weights for pays nothing. Slot 0 is the base model.

Publishing never touches a slot that requests are using: a new version takes a free slot, then the name is pointed at
it. Requests keep the version they were submitted under; a version that is neither current nor in use gives its slot
back. There are as many slots as that takes.

Weight names are mlx-lm's: `model.layers.0.self_attn.q_proj.lora_a` (in, rank) and `.lora_b` (rank, out).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_unflatten
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear

from inference.types import AdapterError, AdapterInfo, UnknownAdapter

Pairs = dict[str, tuple[mx.array, mx.array]]
"""Layer path -> A (in, rank), B (rank, out) with the scale folded in."""


@dataclass(frozen=True, slots=True)
class PreparedAdapter:
    """Adapter weights that were checked against a model's layers, evaluated and identified."""

    pairs: Pairs
    digest: str


Ranks = tuple[tuple[str, int], ...]
Joint = tuple[np.ndarray, np.ndarray, Ranks]
"""Several adapters side by side: A (in, R), B (R, out), and their digests with how many of the R ranks each."""


@dataclass(slots=True, eq=False)
class AdapterVersion:
    """One version of one adapter (or the base model, slot 0). `running` counts the requests pinned to it."""

    name: str | None
    version: int
    digest: str
    slot: int
    rank: int = 0
    running: int = 0
    current: bool = True
    after: AdapterVersion | None = None

    @property
    def blocked(self) -> bool:
        """Waits until no request runs under the version before it."""
        if self.after is not None and self.after.running == 0:
            self.after = None
        return self.after is not None


@dataclass(slots=True)
class _Selection:
    """Which slot the rows of the running forward pass use: one for all, or an index (n,) when they differ."""

    uniform: int = 0
    index: mx.array | None = None
    capacity: int = 1
    rows: int = 0
    fed: int = 0  # tokens of each row

    def split(self, shape: tuple[int, ...]) -> int:
        """The number of rows along the first axis of a layer's input, which may be flattened rows of `fed` tokens.

        RuntimeError for any other input: which of it is whose adapter's cannot be known.
        """
        if len(shape) > 1 and shape[0] in (self.rows, self.rows * self.fed):
            return self.rows
        raise RuntimeError(
            f"this architecture gives a linear layer input of shape {shape} for {self.rows} rows of {self.fed} tokens, "
            "so requests with different adapters cannot be told apart; serve one adapter at a time"
        )


@dataclass(slots=True)
class _LayerSlots:
    """A layer's weights by slot. A plain object, so that the module tree does not take it for parameters."""

    selection: _Selection
    weights: dict[int, tuple[mx.array, mx.array]] = field(default_factory=dict)
    stack: tuple[mx.array, mx.array] | None = None
    views: dict[int, tuple[Any, np.ndarray, np.ndarray]] = field(default_factory=dict)
    joint: tuple[frozenset[str], Joint | None] | None = None

    def host(self, slot: int) -> tuple[np.ndarray, np.ndarray] | None:
        """A slot's A (in, r) and B (r, out) as float32 numpy arrays over the same memory; None when it has none."""
        pair = self.weights.get(slot)
        if pair is None:
            return None
        view = self.views.get(slot)
        if view is None or view[0] is not pair:
            a, b = (np.asarray(w.astype(mx.float32)) for w in pair)
            view = self.views[slot] = (pair, a, b)
        return view[1:]

    def joined(self, slot_of: Mapping[str, int]) -> Joint | None:
        """The weights of several adapters, and maybe of more than were asked for; None when they have none here.

        They stand in the order of their digests: places decide last bits, and slots depend on what was published when.
        """
        if self.joint is None or not slot_of.keys() <= self.joint[0]:
            pairs = {digest: pair for digest in sorted(slot_of) if (pair := self.host(slot_of[digest])) is not None}
            joint = None
            if pairs:
                a, b = (np.concatenate([pair[i] for pair in pairs.values()], axis=1 - i) for i in (0, 1))
                joint = (a, b, tuple((digest, pair[0].shape[1]) for digest, pair in pairs.items()))
            self.joint = (frozenset(slot_of), joint)
        return self.joint[1]

    def stacked(self) -> tuple[mx.array, mx.array]:
        """All slots as A (S, in, r) and B (S, r, out), ranks padded with zeros; built when a mixed batch needs it."""
        if self.stack is None or self.stack[0].shape[0] < self.selection.capacity:
            rank = max(a.shape[1] for a, _ in self.weights.values())
            first_a, first_b = next(iter(self.weights.values()))
            a = mx.zeros((self.selection.capacity, first_a.shape[0], rank), first_a.dtype)
            b = mx.zeros((self.selection.capacity, rank, first_b.shape[1]), first_b.dtype)
            for slot, (wa, wb) in self.weights.items():
                a[slot, :, : wa.shape[1]] = wa
                b[slot, : wb.shape[0]] = wb
            self.stack = (a, b)
        return self.stack


class AdaptedLinear(nn.Module):
    """A linear layer (plain or quantized) plus the low-rank term of each row's adapter."""

    def __init__(self, linear: nn.Module, selection: _Selection) -> None:
        super().__init__()
        self.linear = linear
        self.slots = _LayerSlots(selection)

    def __call__(self, x: mx.array) -> mx.array:
        """x (n, ..., in) -> (n, ..., out); also (n * L, ..., in), as layers with experts see a batch."""
        y = self.linear(x)
        slots = self.slots
        if not slots.weights:
            return y
        index = slots.selection.index
        if index is None:
            pair = slots.weights.get(slots.selection.uniform)
            return y if pair is None else y + ((x @ pair[0]) @ pair[1]).astype(y.dtype)
        a, b = slots.stacked()
        by_row = x.reshape(slots.selection.split(x.shape), -1, x.shape[-1])
        low = mx.gather_mm(by_row, a, rhs_indices=index)
        return y + mx.gather_mm(low, b, rhs_indices=index).astype(y.dtype).reshape(y.shape)


class AdapterBank:
    """The adapters of one model: wraps its linear layers, checks and installs weights, and counts who uses what."""

    def __init__(self, model: nn.Module, *, slots: int = 4, max_rank: int = 64) -> None:
        self.max_rank = max_rank
        self.base = AdapterVersion(None, 0, "base", 0)
        self.shapes = linear_shapes(model)
        self.dtype = narrowest(model)
        self.other = _other_layers(model)
        self._selection = _Selection(capacity=max(slots, 1))
        self._layers = {
            path: AdaptedLinear(module, self._selection)
            for path, module in model.named_modules()
            if path in self.shapes
        }
        model.update_modules(tree_unflatten(list(self._layers.items())))
        self._current: dict[str, AdapterVersion] = {}
        self._used: dict[int, AdapterVersion] = {0: self.base}

    def prepare(self, weights: Mapping[str, mx.array], *, scale: float) -> PreparedAdapter:
        """Check and evaluate the weights: most of the work of publishing. Any thread may do it.

        Raises AdapterError when they do not fit or are not finite.
        """
        pairs = check_adapter(
            self.shapes, weights, scale=scale, max_rank=self.max_rank, other=self.other, dtype=self.dtype
        )
        return PreparedAdapter(pairs, adapter_digest(weights, scale))

    def install(self, name: str, prepared: PreparedAdapter, *, version: int) -> AdapterVersion:
        """Put the weights in a free slot, make them the current version of the name, and return that version."""
        pairs = prepared.pairs
        slot = next(i for i in range(1, len(self._used) + 1) if i not in self._used)
        adapter = AdapterVersion(name, version, prepared.digest, slot, rank=max(a.shape[1] for a, _ in pairs.values()))
        for path, pair in pairs.items():
            self._layers[path].slots.weights[slot] = pair
        self._changed(slot)
        self._used[slot] = adapter
        old = self._current.get(name)
        self._current[name] = adapter
        if old is not None:
            self._retire(old)
        return adapter

    def unpublish(self, name: str) -> None:
        """Take a name away; requests that run under it finish. KeyError when there is no such name."""
        self._retire(self._current.pop(name))

    def find(self, name: str | None) -> AdapterVersion:
        """The current version of a name; None is the base model. UnknownAdapter when it is not published."""
        if name is None:
            return self.base
        adapter = self._current.get(name)
        if adapter is None:
            known = ", ".join(repr(n) for n in sorted(self._current)) or "none"
            raise UnknownAdapter(f"no adapter {name!r} is published (published: {known}); publish it first or use None")
        return adapter

    def release(self, adapter: AdapterVersion, count: int = 1) -> None:
        """`count` requests no longer use the adapter."""
        adapter.running -= count
        self._free(adapter)

    def select(self, adapters: Sequence[AdapterVersion], fed: int) -> None:
        """The adapters of the rows of the next forward pass, in order, and how many tokens each is fed."""
        self._selection.rows, self._selection.fed = len(adapters), fed
        slots = [adapter.slot for adapter in adapters]
        if len(set(slots)) == 1:
            self._selection.uniform, self._selection.index = slots[0], None
        else:
            self._selection.index = mx.array(slots, dtype=mx.uint32)

    def published(self) -> dict[str, AdapterInfo]:
        """The current version of each name."""
        return {
            name: AdapterInfo(name, p.version, p.digest, p.rank, p.running) for name, p in sorted(self._current.items())
        }

    def _retire(self, adapter: AdapterVersion) -> None:
        adapter.current = False
        self._free(adapter)

    def _free(self, adapter: AdapterVersion) -> None:
        if adapter.slot == 0 or adapter.current or adapter.running > 0 or self._used.get(adapter.slot) is not adapter:
            return
        del self._used[adapter.slot]
        for layer in self._layers.values():
            layer.slots.weights.pop(adapter.slot, None)
        self._changed(adapter.slot)

    def drop_caches(self) -> None:
        """Forgets which adapters were used together."""
        for layer in self._layers.values():
            layer.slots.joint = None

    def _changed(self, slot: int) -> None:
        while self._selection.capacity <= slot:
            self._selection.capacity *= 2
        for layer in self._layers.values():
            layer.slots.stack = layer.slots.joint = None
            layer.slots.views.pop(slot, None)


LORA, DORA = "mlx_lm.tuner.lora", "mlx_lm.tuner.dora"
"""The modules of mlx-lm's adapter layers. Importing their classes would load mlx-lm's trainer and, where
it is installed, wandb: most of a second for every process."""


def base_layer(module: object, *, by: tuple[str, ...] = (LORA, DORA)) -> nn.Module | None:
    """The layer that an adapter layer of mlx-lm wraps, or None for any other module.

    Args:
        module: any module.
        by: the modules of mlx-lm whose classes count.
    """
    if not isinstance(module, nn.Module) or not any(kind.__module__ in by for kind in type(module).__mro__):
        return None
    inner = module.get("linear", module.get("embedding"))
    return inner if isinstance(inner, nn.Module) else None


def linear_shapes(model: nn.Module) -> dict[str, tuple[int, int]]:
    """Path -> (in, out) of every linear layer that an adapter may change, LoRA wrappers seen through.

    Layers with a call of their own are left out: some split their result, and a product cannot be added to that.
    """
    shapes = {}
    for path, module in model.named_modules():
        inner = base_layer(module, by=(LORA,))
        if inner is not None and _is_linear(inner):
            shapes[path] = _linear_shape(inner)
        elif _is_linear(module) and not path.endswith(".linear"):
            shapes[path] = _linear_shape(module)
    return shapes


def _is_linear(module: Any) -> bool:
    kinds = (nn.Linear, nn.QuantizedLinear)
    return isinstance(module, kinds) and type(module).__call__ in {kind.__call__ for kind in kinds}


def narrowest(model: nn.Module) -> mx.Dtype:
    """float16 where some linear layer has it, else bfloat16, else float32: what an adapter must be finite in."""
    layers = [m for m in model.modules() if isinstance(m, (nn.Linear, nn.QuantizedLinear))]
    kinds = {(m.scales if isinstance(m, nn.QuantizedLinear) else m.weight).dtype for m in layers}
    return next((kind for kind in (mx.float16, mx.bfloat16) if kind in kinds), mx.float32)


def _other_layers(model: nn.Module) -> dict[str, str]:
    """Path -> what it is, for layers that mlx-lm can put LoRA on and the engine cannot."""
    kinds = {
        "expert": (SwitchLinear, QuantizedSwitchLinear),
        "embedding": (nn.Embedding, nn.QuantizedEmbedding),
    }
    modules = [(path.removesuffix(".linear").removesuffix(".embedding"), m) for path, m in model.named_modules()]
    return {path: kind for path, m in modules for kind, types in kinds.items() if isinstance(m, types)}


def _linear_shape(linear: nn.Module) -> tuple[int, int]:
    out, width = linear.weight.shape
    if isinstance(linear, nn.QuantizedLinear):
        width = width * 32 // linear.bits
    return width, out


def check_adapter(
    shapes: Mapping[str, tuple[int, int]],
    weights: Mapping[str, mx.array],
    *,
    scale: float,
    max_rank: int,
    other: Mapping[str, str] | None = None,
    dtype: mx.Dtype = mx.float32,
) -> Pairs:
    """Pair up A and B per layer, check names, shapes and ranks, fold the scale into B, evaluate, check that all is
    finite, before and after.

    Args:
        shapes: what `linear_shapes` says of the model.
        weights: mlx-lm's names and arrays.
        scale: what the product of A and B is multiplied with.
        max_rank: highest rank accepted.
        other: layers of another kind, for the message.
        dtype: the model's; what is finite in it is served.

    Raises:
        AdapterError: it names the first offending tensor.
    """
    if not weights:
        raise AdapterError("the adapter holds no tensors; expected pairs named <layer>.lora_a and <layer>.lora_b")
    if not math.isfinite(scale):
        raise AdapterError(f"the adapter's scale is {scale}; a finite number is needed")
    for name in sorted(weights):
        _check_tensor(shapes, weights, name, max_rank, other or {})
    mx.eval(dict(weights))
    for name in sorted(weights):
        if not _finite(weights[name]):
            raise AdapterError(f"{name} holds NaN or infinity; the adapter is not published")
    paths = sorted({name.rpartition(".")[0] for name in weights})
    # New array objects: in-place changes to the caller's arrays must not reach what is being served.
    pairs = {p: (_served(weights[f"{p}.lora_a"], 1.0), _served(weights[f"{p}.lora_b"], scale)) for p in paths}
    mx.eval(pairs)
    for path, (_, b) in pairs.items():
        if not (_finite(b) and (dtype == mx.float32 or _finite(b.astype(dtype)))):
            raise AdapterError(
                f"{path}.lora_b times the scale {scale:g} has values too large for {dtype}; it is not published"
            )
    return pairs


def _finite(weight: mx.array) -> bool:
    """In numpy where it knows the type, which on a CPU is ten times faster, and leaves no stream in the thread."""
    if weight.dtype == mx.float32:
        return bool(np.isfinite(np.asarray(weight)).all())
    return bool(mx.isfinite(weight).all().item())


def _served(weight: mx.array, scale: float) -> mx.array:
    """A scaled copy; on a CPU in float32, since MLX's `gather_mm` has no other type there."""
    if weight.dtype == mx.float32:
        with np.errstate(over="ignore", invalid="ignore"):  # the caller looks at what came of it
            return mx.array(np.asarray(weight) * np.float32(scale))
    return (weight.astype(mx.float32) if mx.default_device().type == mx.DeviceType.cpu else mx.array(weight)) * scale


def _check_tensor(
    shapes: Mapping[str, tuple[int, int]],
    weights: Mapping[str, mx.array],
    name: str,
    max_rank: int,
    other: Mapping[str, str],
) -> None:
    path, _, leaf = name.rpartition(".")
    if leaf not in ("lora_a", "lora_b"):
        raise AdapterError(f"{name}: only lora_a and lora_b tensors can be served, got a {leaf!r}")
    if path in other:
        raise AdapterError(
            f"{name}: {path!r} is an {other[path]} layer; adapters on {other[path]} layers are not served, only on "
            "linear layers (train with lora_parameters.keys that leave it out)"
        )
    if path not in shapes:
        block = path.rpartition(".")[0]
        close = ", ".join([p for p in sorted(shapes) if p.rpartition(".")[0] == block] or sorted(shapes)[:3])
        raise AdapterError(f"{name}: the model has no linear layer {path!r} (it has {close}, ...)")
    partner = f"{path}.{'lora_b' if leaf == 'lora_a' else 'lora_a'}"
    if partner not in weights:
        raise AdapterError(f"{name} has no partner {partner}")
    shape, (width, out) = tuple(weights[name].shape), shapes[path]
    expected = (width, "rank") if leaf == "lora_a" else ("rank", out)
    if len(shape) != 2 or shape[0 if leaf == "lora_a" else 1] != (width if leaf == "lora_a" else out):
        raise AdapterError(f"{name} has shape {shape}, expected ({expected[0]}, {expected[1]})")
    rank = shape[1 if leaf == "lora_a" else 0]
    if not 1 <= rank <= max_rank:
        raise AdapterError(f"{name} has rank {rank}; 1 to {max_rank} are accepted (max_lora_rank)")
    if leaf == "lora_b" and weights[partner].ndim == 2 and weights[partner].shape[1] != rank:
        raise AdapterError(f"{name} has rank {rank}, but {partner} has rank {weights[partner].shape[1]}")


def adapter_digest(weights: Mapping[str, mx.array], scale: float) -> str:
    """SHA-256 over names, types, shapes, bytes and scale: equal digests mean equal behaviour on the same base."""
    digest = hashlib.sha256(repr(float(scale)).encode())
    for name in sorted(weights):
        w = weights[name]
        digest.update(f"{name} {w.dtype} {tuple(w.shape)}".encode())
        digest.update(np.asarray(mx.contiguous(w).view(mx.uint8)).tobytes())
    return digest.hexdigest()
