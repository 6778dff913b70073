"""Adapters in a folder shared by trainer and servers: servers load from it on request.

A name always means the same weights, so a folder is written once, under a temporary name first, and never changed.
"""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

from inference.client.packing import PackedAdapter, check_name
from inference.files import peft_files


class Shelf:
    """A directory with a folder in PEFT's layout for each adapter, as vLLM's `lora_filesystem_resolver` reads it.

    Args:
        root: the directory; created if missing.

    Raises:
        OSError: it cannot be created.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.root.mkdir(parents=True, exist_ok=True)

    def path(self, name: str) -> Path:
        """The folder of an adapter."""
        return self.root / check_name(name)

    def put(self, name: str, packed: PackedAdapter, base_model: str) -> None:
        """Writes an adapter atomically; does nothing if it exists.

        Args:
            name: never used for other weights.
            packed: the weights.
            base_model: see `peft_files.peft_config`.
        """
        folder = self.path(name)
        if folder.exists():
            return
        parts = self.root / f".{name}.{secrets.token_hex(4)}"
        parts.mkdir()
        try:
            for file, content in peft_files.peft_files(packed.body, packed.scale, base_model).items():
                (parts / file).write_bytes(content)
            os.rename(parts, folder)
        except OSError:
            shutil.rmtree(parts, ignore_errors=True)
            if not folder.exists():  # else another rank was faster
                raise

    def remove(self, name: str) -> None:
        """Removes an adapter, if it exists."""
        shutil.rmtree(self.path(name), ignore_errors=True)

    def names(self, prefix: str) -> list[str]:
        """The adapters whose name begins with the prefix, including leftovers of interrupted writes."""
        return [folder.name for folder in self.root.iterdir() if folder.name.lstrip(".").startswith(prefix)]
