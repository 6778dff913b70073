"""Weights at a service: a path to sample from, and their matrices, fetched on demand."""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import mlx.core as mx

from inference import AdapterError
from inference.files import adapter_folder, peft_files, tensors
from legos_train.errors import TrainingError
from legos_train.model.lora import Weights
from legos_train.model.other_run import rescaled

_MATRIX = re.compile(r"(?:base_model\.model\.)?(.+)\.lora_(A|B)(?:\.default)?\.weight")


class RemoteWeights(Mapping[str, mx.array]):
    """LoRA weights by mlx-lm's names, fetched on access.

    Args:
        path: where to sample from; valid while training continues only if the service freezes what it saves.
        fetch: path -> the tar file.
        scale: the LoRA scale of the returned weights.
        freeze: creates a fixed copy and returns its path; None: `path` stays fixed.
        state: where weights and optimiser are saved for such a copy.
    """

    def __init__(
        self,
        path: str,
        fetch: Callable[[str], bytes],
        scale: float,
        freeze: Callable[[RemoteWeights], str] | None = None,
        state: str | None = None,
    ):
        self.path, self.state, self._fetch, self._scale, self._freeze = path, state, fetch, scale, freeze
        self._frozen: str | None = None
        self._matrices: Weights | None = None

    @property
    def here(self) -> bool:
        """Whether the matrices have been fetched."""
        return self._matrices is not None

    @property
    def matrices(self) -> Weights:
        """The matrices.

        Raises:
            TrainingError: they cannot be fetched, or are not a plain LoRA.
        """
        if self._matrices is None:
            self._matrices = from_peft(self._fetch(self.path), self._scale)
        return self._matrices

    def playable(self, *, live: bool) -> str:
        """The path to sample from.

        Args:
            live: needed only until the next step.
        """
        if live or self._freeze is None:
            return self.path
        if self._frozen is None:
            self._frozen = self._freeze(self)
        return self._frozen

    def __getitem__(self, name: str) -> mx.array:
        return self.matrices[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.matrices)

    def __len__(self) -> int:
        return len(self.matrices)

    def __bool__(self) -> bool:
        return True


def from_peft(archive: bytes, scale: float) -> Weights:
    """The adapter in a tar file with PEFT's two files, under mlx-lm's names and for another scale.

    Raises:
        TrainingError: it is damaged, or more than LoRA on linear layers.
    """
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                if member.isfile() and (file := tar.extractfile(member)) is not None:
                    files[member.name.rpartition("/")[2]] = file.read()
        _, own = peft_files.rank_and_scale(json.loads(files[adapter_folder.CONFIG]))
        loaded: Mapping[str, Any] = tensors.from_bytes(files[adapter_folder.PEFT_WEIGHTS])
    except (tarfile.TarError, KeyError, ValueError, TypeError, AttributeError, AdapterError) as error:
        raise TrainingError(f"the service's copy of the adapter is damaged: {error!r}") from None
    weights: Weights = {}
    for name, matrix in loaded.items():
        match = _MATRIX.fullmatch(name)
        if match is None or matrix.ndim != 2:
            raise TrainingError(
                f"the service trains {name} {tuple(matrix.shape)}, which is not a LoRA matrix of a linear layer; "
                "--tinker.no-mirror works without a local copy"
            )
        weights[f"{match[1]}.lora_{match[2].lower()}"] = mx.contiguous(matrix.astype(mx.float32).T)
    return rescaled(weights, own / scale)
