"""Find and load models without ever running code that ships with them."""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
import json
import os
import re
import socket
import sys
import threading
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten, tree_unflatten

from inference import recurrence
from inference.adapters import base_layer
from inference.files import read_adapter
from inference.forward import fastblas, heap
from inference.types import BUNDLED, Dequantize, InferenceError, ModelNotFound, UnsafeModel
from inference.unpacking import unpack

_HUB_NAME = re.compile(r"([\w.-]+/[\w.-]+)(?:@([\w.-]+))?")
"""A repository, and its revision if one is named: a commit, a tag or a branch."""
_HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model", "*.tiktoken"]
_HALVES = (mx.bfloat16, mx.float16)


@dataclass(frozen=True)
class ModelInfo:
    """Where a model came from and what its config says."""

    name: str
    path: Path
    config: dict[str, Any]

    @functools.cached_property
    def digest(self) -> str:
        """`base_digest` of the directory; computed on first use, since it reads every weight file."""
        return base_digest(self.path)


def load(
    name_or_path: str | Path, adapter_path: str | Path | None = None, *, dequantize: Dequantize = "auto"
) -> tuple[nn.Module, Any, ModelInfo]:
    """Loads a model, its mlx-lm tokenizer wrapper, and where it came from.

    Also prepares MLX for this machine: a fast BLAS, and no run-time C++ compiler on Linux CPUs. On a CPU the model
    computes in float32, see `widen`.

    Args:
        name_or_path: one of `BUNDLED`, a directory with config.json, or a hub name such as "Qwen/Qwen3-0.6B",
            optionally followed by "@REVISION" to pin the files.
        adapter_path: a LoRA directory in mlx-lm's layout, added to the model as LoRA layers.
        dequantize: whether quantised weights become plain ones; see `inference.unpacking`.

    Raises:
        ModelNotFound: nothing of that name.
        UnsafeModel: the directory requires running its own code.
        AdapterError: the adapter does not fit.
        InferenceError: this process was forked from one that has loaded a model.
    """
    import mlx_lm
    import mlx_lm.utils

    prepare_mlx()
    path = find_model(name_or_path)
    config = _safe_config(path)
    model, tokenizer = mlx_lm.load(str(path), lazy=True)[:2]
    unpack(model, dequantize, heap.in_huge_pages)
    if adapter_path is not None:
        read_adapter(adapter_path, model)
        model = mlx_lm.utils.load_adapters(model, str(adapter_path))
    widen(model)
    mx.eval(model.parameters())
    model.eval()
    return model, tokenizer, ModelInfo(str(name_or_path), path, config)


def load_tokenizer(name_or_path: str | Path) -> Any:
    """Loads only the tokenizer of a model; its weights need not be downloaded. See `load`.

    Raises:
        ModelNotFound: nothing of that name.
        UnsafeModel: the directory requires running its own code.
    """
    import mlx_lm.utils

    path = find_model(name_or_path)
    return mlx_lm.utils.load_tokenizer(path, eos_token_ids=_safe_config(path).get("eos_token_id"))


def widen(model: nn.Module) -> None:
    """On a CPU, turn bfloat16 and float16 parameters into float32; their values do not change.

    MLX's CPU backend has no fast products in half precision: quantised ones are 8 times slower than with float32
    scales, plain ones do not use the BLAS. Weights that are still packed only widen their scales; others take twice the
    memory.
    """
    if mx.default_device().type != mx.DeviceType.cpu:
        return
    flat: list[tuple[str, mx.array]] = [*tree_flatten(model.parameters())]
    halves = sorted((pair for pair in flat if pair[1].dtype in _HALVES), key=lambda pair: pair[1].size)
    del flat
    with heap.in_huge_pages(sum(4 * array.size for _, array in halves)):
        while halves:  # one at a time: each narrow one is freed as its wide copy appears, and the next take its place
            name, array = halves.pop()
            array = array.astype(mx.float32)
            model.update(tree_unflatten([(name, array)]))
            mx.eval(array)


_streams = threading.local()
_users: list[int] = []
"""The process in which MLX was prepared: in a fork of it, MLX would wait for threads that do not exist."""


def release_streams() -> None:
    """Finishes this thread's work and releases its MLX streams; nothing else in it may be using MLX.

    Streams belong to threads; one that outlives its thread aborts the process at exit on Linux. `load` gives the thread
    a new one.
    """
    mx.synchronize()
    mx.clear_streams()
    _streams.released = True


def prepare_mlx() -> None:
    """A stream for this thread, fast BLAS, recurrences in chunks, and no `mx.compile` on Linux CPUs.

    There each fused kernel costs 0.6 s of g++ and gains nothing.

    Raises:
        InferenceError: this process was forked from one that has loaded a model.
    """
    if _users and os.getpid() not in _users:
        raise InferenceError(
            f"this process is a fork of {_users[0]}, which has loaded a model; MLX would hang here. Start "
            "processes with multiprocessing.get_context('spawn'), or load models only in the children"
        )
    _users[:] = [os.getpid()]
    if getattr(_streams, "released", False):
        mx.set_default_stream(mx.new_stream(mx.default_device()))
        _streams.released = False
    if sys.platform == "linux" and mx.default_device() == mx.cpu:
        mx.disable_compile()
        heap.keep_freed_memory()
    fastblas.enable()
    recurrence.install()


def find_model(name_or_path: str | Path) -> Path:
    """The directory of a model; hub names are downloaded (weights, config and tokenizer files only, never code)."""
    name = str(name_or_path)
    if name in BUNDLED:
        path = Path(str(importlib.resources.files("inference") / "models" / name))
    else:
        path = Path(os.path.expanduser(name))  # leaves `~` where there is no home
    if (path / "config.json").is_file():
        return path
    on_hub = _HUB_NAME.fullmatch(name)
    if path.exists() or on_hub is None or name.startswith("."):
        why = "that directory has no config.json" if path.is_dir() else "no directory has that name"
        raise ModelNotFound(_no_such_model(name, why))
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    offline = _hub_is_unknown()
    try:
        repository, revision = on_hub.groups()
        found = snapshot_download(repository, revision=revision, allow_patterns=_HUB_FILES, local_files_only=offline)
        return Path(found)
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        why = f"the hub said: {type(error).__name__}: {str(error).rstrip('.')}"
        if offline:
            why = "it is not a directory, it is not in the hub's cache, and the hub cannot be reached (no network?)"
        raise ModelNotFound(_no_such_model(name, why)) from error


def is_here(name_or_path: str | Path) -> bool:
    """Whether `find_model` can answer without a download."""
    name = str(name_or_path)
    on_hub = _HUB_NAME.fullmatch(name)
    if name in BUNDLED or os.path.exists(os.path.expanduser(name)) or on_hub is None:
        return True
    from huggingface_hub import try_to_load_from_cache

    repository, revision = on_hub.groups()
    return isinstance(try_to_load_from_cache(repository, "config.json", revision=revision), str)


def _hub_is_unknown() -> bool:
    """Whether the hub's host name fails to resolve: without a network its client gives up only after 20 seconds."""
    from huggingface_hub import constants

    if urllib.request.getproxies():  # proxies may resolve names that this machine cannot
        return False
    try:
        socket.getaddrinfo(urllib.parse.urlsplit(constants.ENDPOINT).hostname, None)
    except OSError:
        return True
    return False


def _no_such_model(name: str, why: str) -> str:
    accepted = "a directory with config.json, or a hub name 'owner/name' or 'owner/name@revision'"
    return f"no such model {name!r}: {why}. Accepted: {', '.join(map(repr, BUNDLED))}, {accepted}"


def _safe_config(path: Path) -> dict[str, Any]:
    """The parsed config.json; rejects directories that require running their own code."""
    configs = {}
    for file in ("config.json", "tokenizer_config.json"):
        if (path / file).is_file():
            configs[file] = _read_json(path / file)
            for key in ("model_file", "auto_map"):
                if configs[file].get(key):
                    raise UnsafeModel(
                        f"{path / file} sets {key!r}, which asks to run Python code from the model's directory; "
                        f"such models are refused. If mlx-lm supports the architecture itself, delete {key!r}"
                    )
    return configs["config.json"]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelNotFound(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelNotFound(f"{path} holds a {type(content).__name__}, expected an object")
    return content


def base_digest(model_dir: str | Path) -> str:
    """SHA-256 over config.json and the weight files (names and bytes): the identity of a base model."""
    path = Path(model_dir)
    files = [path / "config.json", *sorted(path.glob("model*.safetensors"))]
    if len(files) == 1 or not files[0].is_file():
        raise ModelNotFound(f"{path} has no config.json with model*.safetensors to take a digest of")
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name} {file.stat().st_size}\n".encode())
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


@functools.cache
def bundled_digest(name: str) -> str | None:
    """The start of the `base_digest` of a model that ships with Legos and so may change with it; None for others."""
    return base_digest(find_model(name))[:12] if name in BUNDLED else None


def context_length(model: nn.Module, config: dict[str, Any] | None = None) -> int:
    """Most tokens of prompt and completion together, from the model's arguments or its config.json; otherwise no limit.

    Wrappers of a text model keep its arguments in `text_config`; GPT-2 uses other names.
    """
    args = getattr(model, "args", None)
    own = dict(vars(args)) if hasattr(args, "__dict__") else {}
    for source in (own, own.get("text_config"), config, (config or {}).get("text_config")):
        for name in ("max_position_embeddings", "n_positions"):
            value = source.get(name) if isinstance(source, dict) else None
            if isinstance(value, int) and value > 0:
                return value
    return 1 << 30


def clone_structure(model: nn.Module) -> nn.Module:
    """A second module tree over the same arrays, without the first one's LoRA layers.

    Modules, lists and dicts are new objects; arrays and everything else are shared, so it costs no memory, and wrapping
    or replacing layers of the copy leaves the original (the trainer's) unchanged. A LoRA layer is copied as its base
    layer. If the original's owner later replaces parameters, as an optimizer does, the copy does not see it: this is
    meant for a frozen base.
    """
    copies: dict[int, Any] = {}

    def clone(value: Any) -> Any:
        if id(value) in copies:  # tied modules stay tied
            return copies[id(value)]
        if (inner := base_layer(value)) is not None:
            result = clone(inner)
        elif isinstance(value, nn.Module):
            result = type(value).__new__(type(value))
            result.__dict__.update(value.__dict__)
            copies[id(value)] = result
            for key, child in value.items():
                dict.__setitem__(result, key, clone(child))
        elif isinstance(value, dict):
            result = {key: clone(child) for key, child in value.items()}
        elif isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
            result = type(value)(clone(child) for child in value)
        else:
            return value
        copies[id(value)] = result
        return result

    copy: nn.Module = clone(model)
    copy.eval()
    return copy
