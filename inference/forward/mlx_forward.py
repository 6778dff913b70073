"""Forward passes in MLX, over the KV cache of `kv.py`: the model's own call, or decoder.py if that is cheaper.

`Forward` is the interface that the runner needs. Everything is evaluated before it returns, so that an exception
belongs to one batch.

Logits are needed at one position of a prompt, so body and head run separately if the model has that seam: the head is
the model's own code with its body replaced by one that returns given hidden states (`Head`), which keeps any caps and
scales on the logits.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, cast

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx import nn
from mlx_lm.models.cache import make_prompt_cache

from inference.adapters import AdapterBank, AdapterVersion
from inference.forward import decoder
from inference.forward.kv import SlotKVCache

logger = logging.getLogger(__name__)

Logits = npt.NDArray[np.float32]
ModelBody = Callable[..., mx.array]
Agrees = Callable[[str, Callable[[], bool]], bool]
_HALF = 5e-2  # tolerance between two ways of computing in float16 or bfloat16, relative to the largest logit


class Fed(NamedTuple):
    """What one forward pass reads.

    Attributes:
        low: the first slot; rows take consecutive ones.
        offsets: how many entries of each slot are valid, (n,).
        tokens: (n, L), fed behind these.
        adapters: one for each row.
        last: the position in each row whose logits are wanted, (n,); without padding -1 wants none. None: all of them.
        head: whether logits are wanted.
    """

    low: int
    offsets: Sequence[int]
    tokens: npt.NDArray[np.int32] | mx.array
    adapters: Sequence[AdapterVersion]
    last: Sequence[int] | None = None
    head: bool = True


class Forward(Protocol):
    """A way to run a model: float32 logits (n, V) at `Fed.last`, or (n, L, V) when that is None.

    A row that wants none is missing, and without a head there is nothing to use.

    Attributes:
        name: as in docs/engine.md.
        batches: several rows in one call pay off, and slots can share prefixes.
        pads: rows with fewer tokens than others in a call may be padded; otherwise all must be fed equally many.
        stateful: some layers have recurrent states, which cannot be truncated.
        ahead: `submit` returns before the device is done.
        bytes_per_entry: memory per token of a row.
        bytes_per_row: memory per row whatever its length.
    """

    name: str
    vocab: int
    bytes_per_entry: int
    bytes_per_row: int
    batches: bool
    pads: bool
    stateful: bool

    @property
    def ahead(self) -> bool: ...

    def new_kv(self) -> Any: ...

    def submit(self, kv: Any, fed: Fed) -> mx.array: ...

    def __call__(self, kv: Any, fed: Fed) -> Logits: ...


class MlxForward:
    """Models whose kinds of caches `SlotKVCache` supports.

    Args:
        model: the model; its linear layers are the bank's.
        bank: its adapters.
        mask_axes: see `SlotKVCache`.
        agrees: runs a named comparison, or recalls that it agreed.

    Raises:
        TypeError: there are no slots for one of its caches.
    """

    name = "mlx"
    batches = True

    def __init__(
        self, model: nn.Module, bank: AdapterBank, *, mask_axes: int = 1, agrees: Agrees = lambda _, compare: compare()
    ) -> None:
        self.model, self.bank = model, bank
        self.templates = make_prompt_cache(model)
        self._mask_axes = mask_axes
        self._body: ModelBody | None = None
        self.head: Head | None = None
        self.own_decoder = False
        kv = self.new_kv()
        self.stateful, self.pads, self.plain = kv.stateful, not kv.stateful, kv.plain
        self.vocab, self.bytes_per_entry, self.bytes_per_row = self._probe(agrees)
        # Half precision gains nothing from vectorised exponentials, and a different order of operations shows in it.
        whole = rounding(model) < _HALF
        fits = self.plain and self.head is not None and whole and decoder.fits(model)
        self.own_decoder = fits and agrees(f"decoder, {mask_axes}", self._decoder_agrees)
        if fits and not self.own_decoder:
            logger.info("%s runs its own code: the faster pass gives different results", type(model).__module__)

    def over(self, model: nn.Module, vocab: int) -> MlxForward:
        """This forward pass for a model with more blocks of the same kind, and logits for `vocab` tokens."""
        other, count = copy.copy(self), len(self.templates)
        other.vocab = vocab
        other.model, other.templates = model, make_prompt_cache(model)
        other.bytes_per_entry = self.bytes_per_entry // count * len(other.templates)
        if self.head is not None and (found := seam(model)) is not None:
            other._body, other.head = found
        return other

    def new_kv(self) -> SlotKVCache:
        """An empty KV cache."""
        return SlotKVCache(self.templates, mask_axes=self._mask_axes)

    def __call__(self, kv: SlotKVCache, fed: Fed) -> Logits:
        out = self._compute(kv, fed)
        mx.eval(out, kv.arrays())
        kv.close()
        return np.asarray(out)

    def submit(self, kv: SlotKVCache, fed: Fed) -> mx.array:
        """Like a call, without waiting: the logits, and possibly the tokens, are still being computed."""
        out = self._compute(kv, fed)
        mx.async_eval(out, kv.arrays())
        kv.close()
        return out

    @property
    def ahead(self) -> bool:
        """Whether `submit` returns early; not with decoder.py, which computes exponentials while the graph is built."""
        return not self.own_decoder

    def _compute(self, kv: SlotKVCache, fed: Fed) -> mx.array:
        low, offsets, tokens, adapters, last, head = fed
        self.bank.select(adapters, tokens.shape[1])
        cache = kv.open(low, offsets, tokens.shape[1])
        inputs = tokens if isinstance(tokens, mx.array) else mx.array(tokens)
        if self.own_decoder:
            out = decoder.hidden_states(self.model.model, inputs, kv, last)
        else:
            out = (self._body or self.model)(inputs, cache=cache)
            out = _chosen(out, last) if head else out
        if not head:
            return mx.zeros(0)  # parts that only the logits need are never computed
        if self.head is not None:
            out = self.head(out)
        return (out[:, 0] if last is not None else out).astype(mx.float32)

    def _probe(self, agrees: Agrees) -> tuple[int, int, int]:
        """Vocabulary size, bytes of an entry and of a row; also finds the seam between body and head, if any."""
        kv = self.new_kv()
        full = self._two_tokens(kv)
        found = seam(self.model)
        if found is not None:
            self._body, self.head = found
            if not agrees(f"head, {self._mask_axes}", lambda: self._head_agrees(full)):
                self._body = self.head = None
        return full.shape[-1], max(kv.bytes_per_entry, 1), kv.bytes_per_row

    def _two_tokens(self, kv: SlotKVCache) -> Logits:
        return self(kv, Fed(0, [0], np.zeros((1, 2), dtype=np.int32), [self.bank.base]))

    def _head_agrees(self, full: Logits) -> bool:
        try:
            apart = self._two_tokens(self.new_kv())
        except (AttributeError, KeyError, TypeError, ValueError):
            return False  # a body with another calling convention
        return apart.shape == full.shape and alike([apart], [full], rounding(self.model))

    def _decoder_agrees(self) -> bool:
        expected = trial(self, self.bank.base)
        self.own_decoder = True
        try:
            return alike(trial(self, self.bank.base), expected)
        except (AttributeError, KeyError, TypeError, ValueError):
            return False  # parts with the same names, combined differently


def _chosen(hidden: mx.array, last: Sequence[int] | None) -> mx.array:
    """Hidden states (n, L, H) at one position a row, (n, 1, H); rows whose position is -1 are left out."""
    if last is None or (hidden.shape[1] == 1 and min(last) == 0):
        return hidden
    rows = [i for i, at in enumerate(last) if at >= 0]
    return hidden[mx.array(rows), mx.array([last[i] for i in rows])][:, None]


def shallow(module: nn.Module) -> nn.Module:
    """A shallow copy of a module."""
    copied = type(module).__new__(type(module))
    copied.__dict__.update(module.__dict__)
    for key, part in module.items():
        dict.__setitem__(copied, key, part)
    return copied


class _FixedBody(nn.Module):
    """Replaces a model's body and returns given hidden states; otherwise behaves like the body."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        object.__setattr__(self, "body", body)
        object.__setattr__(self, "hidden", None)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "body"), name)

    def __call__(self, *args: Any, **kwargs: Any) -> mx.array:
        return object.__getattribute__(self, "hidden")


class Head:
    """A model's own computation from the hidden states on."""

    def __init__(self, model: nn.Module, name: str) -> None:
        self._stub = _FixedBody(model[name])
        self._model: Any = shallow(model)
        dict.__setitem__(self._model, name, self._stub)

    def __call__(self, hidden: mx.array) -> mx.array:
        """Hidden states (n, L, H) -> logits (n, L, V)."""
        object.__setattr__(self._stub, "hidden", hidden)
        try:
            return cast(mx.array, self._model(mx.zeros(hidden.shape[:2], mx.int32)))
        finally:
            object.__setattr__(self._stub, "hidden", None)


_BODIES = ("model", "backbone", "transformer")
"""What mlx-lm's models call their body."""


def seam(model: nn.Module) -> tuple[ModelBody, Head] | None:
    """The body that turns tokens into hidden states, and the head that follows; None for other designs."""
    while not any(name in model for name in _BODIES) and isinstance(model.get("language_model"), nn.Module):
        model = model["language_model"]
    name = next((name for name in _BODIES if isinstance(model.get(name), nn.Module)), None)
    return None if name is None else (cast(ModelBody, model[name]), Head(model, name))


Call = tuple[int, list[int], slice, Sequence[int] | None]
"""The first slot, offsets, the slice of the trial's tokens, and the positions whose logits are wanted."""

_PADDED: list[Call] = [(0, [0, 0], slice(6), [5, 3]), (0, [6, 4], slice(6, 8), None), (0, [8, 6], slice(8, 9), [0, 0])]
_EVEN: list[Call] = [
    (4, [0], slice(1), [0]),  # a state that grows with the first tokens has no slot
    (4, [1], slice(1, 2), [0]),
    (0, [0], slice(6), [5]),
    (1, [0], slice(4), [3]),
    (0, [6, 4], slice(6, 8), None),
    (2, [0, 0], slice(5), [4, 4]),
    (0, [8, 6, 5, 5], slice(8, 9), [0, 0, 0, 0]),
]


def trial(forward: Forward, base: AdapterVersion, *, pads: bool = True) -> list[Logits]:
    """Logits for rows of different lengths, in prefill and decode; without padding unless `pads`."""
    tokens = np.random.default_rng(0).integers(0, min(forward.vocab, 1000), (5, 9), dtype=np.int32)
    kv, results = forward.new_kv(), []
    for low, offsets, fed, last in _PADDED if pads else _EVEN:
        rows = range(low, low + len(offsets))
        results.append(forward(kv, Fed(low, offsets, tokens[rows, fed], [base] * len(offsets), last)))
    return results


def alike(a: Sequence[Logits], b: Sequence[Logits], tolerance: float = 1e-4) -> bool:
    """Whether two trials are equal up to rounding, by default float32's."""
    allowed = tolerance * (1.0 + max(float(np.abs(x).max()) for x in (*a, *b)))
    return all(bool(np.abs(x - y).max() <= allowed) for x, y in zip(a, b, strict=True))


def rounding(model: nn.Module) -> float:
    """The tolerance for `alike` between two ways of computing a model in its own type."""
    halves = {
        module[name].dtype
        for module in model.modules()
        for name in ("weight", "scales")
        if isinstance(module, nn.Module) and name in module
    } & {mx.float16, mx.bfloat16}
    return _HALF if halves else 1e-4
