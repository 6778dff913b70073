"""The adapters of a fleet: published to every server, and forgotten once no request needs them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from inference.client.endpoint import Endpoint, Publication
from inference.client.packing import pack
from inference.client.shelf import Shelf
from inference.types import InferenceError


class Publications:
    """The adapters that were published to the servers and are not forgotten yet.

    Args:
        endpoints: the servers; one that is usable gets a new adapter at once, any other with the first request that
            needs it.
        shelf: see `Fleet`.
        spawn: runs a coroutine in the background.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        shelf: Shelf | None,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self.endpoints, self.shelf, self._spawn = endpoints, shelf, spawn
        self._by_name: dict[str, Publication] = {}
        self.base: Publication | None = None

    def prepare(self, prefix: str, weights: Mapping[str, Any], scale: float, version: int) -> Publication:
        """An adapter ready to be published, placed on the shelf if there is one.

        Called in the thread that made the weights, which may be lazy.

        Args:
            prefix: start of its name; version and weights follow, so a name never means other weights.
            weights: MLX or numpy arrays under mlx-lm's names.
            scale: factor on the product of A and B.
            version: the version that completions report.

        Raises:
            RequestRefused: 400 if it is not an adapter.
            OSError: the shelf cannot be written.
        """
        packed = pack(weights, scale)
        name = f"{prefix}-v{version}-{packed.digest[:12]}"
        if self.shelf is not None:
            self.shelf.put(name, packed, self.endpoints[0].root)
        return Publication(name, packed, version)

    def publish(self, publication: Publication) -> None:
        """Announces an adapter; every server gets it at once, without waiting for all of them."""
        self._by_name[publication.name] = publication
        for endpoint in self.endpoints:
            if endpoint.usable:
                self._spawn(self._bring(endpoint, publication))

    async def _bring(self, endpoint: Endpoint, publication: Publication) -> None:
        with suppress(InferenceError):  # the first request that needs it reports the fault
            await endpoint.ensure(publication)

    def use_base(self, publication: Publication) -> None:
        """From now on, requests the base model under the name of an adapter that changes nothing.

        vLLM 0.32 on a CPU computes base requests wrongly (by 9 nats) when batched with adapter requests.
        """
        self.base = publication
        self.publish(publication)

    def __getitem__(self, name: str) -> Publication:
        return self._by_name[name]

    def retire(self, name: str) -> None:
        """Makes the servers forget an adapter as soon as no request needs it."""
        publication = self._by_name.get(name)
        if publication is not None:
            publication.retired = True
            self._forget(publication)

    def release(self, publication: Publication) -> None:
        """A request that needed it is done."""
        publication.outstanding -= 1
        self._forget(publication)

    def _forget(self, publication: Publication) -> None:
        done = publication.retired and not publication.outstanding
        if done and self._by_name.pop(publication.name, None) is not None:
            self._spawn(self._drop(publication.name))

    async def _drop(self, name: str) -> None:
        await asyncio.gather(*(endpoint.drop(name) for endpoint in self.endpoints))
        if self.shelf is not None:
            await asyncio.to_thread(self.shelf.remove, name)

    async def clear(self, prefix: str) -> None:
        """Removes every adapter whose name begins with the prefix, if that is possible now."""
        for name in [name for name in self._by_name if name.startswith(prefix)]:
            del self._by_name[name]
        await asyncio.gather(*(endpoint.clear(prefix) for endpoint in self.endpoints))
        if self.shelf is not None:
            for name in self.shelf.names(prefix):
                await asyncio.to_thread(self.shelf.remove, name)
