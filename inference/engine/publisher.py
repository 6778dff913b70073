"""Makes weights the current version of a name: checks them, tries them out, numbers and installs them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import mlx.core as mx

from inference.adapters import AdapterBank, AdapterVersion, PreparedAdapter
from inference.engine.probe import Probe
from inference.engine.version_ledger import VersionLedger


class Publisher:
    """The names of an adapter bank.

    Args:
        bank: the adapters of the model.
        probe: tries weights out.
        vocab: how many tokens there are.
    """

    def __init__(self, bank: AdapterBank, probe: Probe, vocab: int) -> None:
        self._bank, self.probe, self._vocab = bank, probe, vocab
        self.ledger = VersionLedger()

    def prepare(self, weights: Mapping[str, mx.array], scale: float) -> PreparedAdapter:
        prepared = self._bank.prepare(weights, scale=scale)
        self.probe(prepared, self._vocab)
        return prepared

    def publish(
        self,
        name: str,
        weights: Mapping[str, mx.array] | PreparedAdapter,
        scale: float | None,
        version: int | None,
        *,
        monotone: bool,
    ) -> tuple[AdapterVersion, AdapterVersion | None]:
        """The name's new version, and the one it replaces; the latter is None if there was none, or nothing changed.

        Arguments and errors as for `Engine.publish`.
        """
        if isinstance(weights, PreparedAdapter) == (scale is not None):
            raise ValueError(f"weights need a scale, and prepared weights have one; got {type(weights)}, scale={scale}")
        prepared = weights if isinstance(weights, PreparedAdapter) else self.prepare(weights, cast(float, scale))
        version = self.ledger.next(name) if version is None else version
        old = self._bank.find(name) if name in self._bank.published() else None
        if monotone:
            self.ledger.check(name, version, prepared.digest)
            if old is not None and (old.version, old.digest) == (version, prepared.digest):
                return old, None
        new = self._bank.install(name, prepared, version=version)
        self.ledger.put(name, version, prepared.digest)
        return new, old

    def unpublish(self, name: str, *, for_good: bool) -> None:
        self._bank.find(name)
        self._bank.unpublish(name)
        self.ledger.drop(name, for_good=for_good)
