"""The adapters of one model: versions in slots, names that point to versions, and use counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_unflatten

from inference.adapters.layers import linear_shapes, narrowest, other_layers
from inference.adapters.slots import AdaptedLinear, Selection
from inference.adapters.validation import Pairs, adapter_digest, check_adapter
from inference.types import MAX_LORA_RANK, AdapterInfo, UnknownAdapter


@dataclass(frozen=True, slots=True)
class PreparedAdapter:
    """Adapter weights, checked against a model's layers, evaluated and hashed."""

    pairs: Pairs
    digest: str


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
    after: tuple[AdapterVersion, ...] = ()

    @property
    def blocked(self) -> bool:
        """Whether requests still run under the versions that this one waits for."""
        self.after = tuple(version for version in self.after if version.running)
        return bool(self.after)


class AdapterBank:
    """The adapters of one model: wraps its linear layers, checks and installs weights, and counts uses."""

    def __init__(self, model: nn.Module, *, slots: int = 4, max_rank: int = MAX_LORA_RANK) -> None:
        self.max_rank = max_rank
        self.base = AdapterVersion(None, 0, "base", 0)
        self.shapes = linear_shapes(model)
        self.dtype = narrowest(model)
        self.other = other_layers(model)
        self._selection = Selection(capacity=max(slots, 1))
        self._layers = {
            path: AdaptedLinear(module, self._selection)
            for path, module in model.named_modules()
            if path in self.shapes
        }
        model.update_modules(tree_unflatten(list(self._layers.items())))
        self._current: dict[str, AdapterVersion] = {}
        self._used: dict[int, AdapterVersion] = {0: self.base}

    def prepare(self, weights: Mapping[str, mx.array], *, scale: float) -> PreparedAdapter:
        """Checks and evaluates the weights: most of the work of publishing. Any thread may do it.

        Raises AdapterError when they do not fit or are not finite.
        """
        pairs = check_adapter(
            self.shapes, weights, scale=scale, max_rank=self.max_rank, other=self.other, dtype=self.dtype
        )
        return PreparedAdapter(pairs, adapter_digest(weights, scale))

    def install(self, name: str, prepared: PreparedAdapter, *, version: int) -> AdapterVersion:
        """Puts the weights in a free slot, makes them the current version of the name, and returns that version."""
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
        """Removes a name; requests running under it finish. KeyError if there is no such name."""
        self._retire(self._current.pop(name))

    def find(self, name: str | None) -> AdapterVersion:
        """The current version of a name; None is the base model. UnknownAdapter if it is not published."""
        if name is None:
            return self.base
        adapter = self._current.get(name)
        if adapter is None:
            known = ", ".join(repr(n) for n in sorted(self._current)) or "none"
            raise UnknownAdapter(f"no adapter {name!r} is published (published: {known}); publish it first or use None")
        return adapter

    def earlier(self, adapter: AdapterVersion) -> list[AdapterVersion]:
        """The versions of the same name that unfinished requests still use, in the order of their numbers."""
        used = [one for one in self._used.values() if one.name == adapter.name and one is not adapter and one.running]
        return sorted(used, key=lambda one: one.version)

    def release(self, adapter: AdapterVersion) -> None:
        """Releases one use of the adapter."""
        adapter.running -= 1
        self._free(adapter)

    def select(self, adapters: Sequence[AdapterVersion], fed: int) -> None:
        """Sets the adapters of the rows in the next forward pass, in order, and how many tokens each row is fed."""
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
