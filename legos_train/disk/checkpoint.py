"""Checkpoints: the full state of a run, written so that a crash at any point leaves the last one whole.

A checkpoint is a flat directory of safetensors, JSON and plain files (no pickle) with a manifest of sizes and sha256,
which also includes its own checksum. It is written under a temporary name, made durable, and renamed: the name `step_N`
is the commit, so no second record could disagree with it. Loading takes the latest with a valid manifest; a broken
one is set aside as `.corrupt`, never deleted.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from inference.files import tensors
from legos_train.disk import checkpoint_files, fsops
from legos_train.disk.checkpoint_files import MANIFEST, CorruptCheckpoint, set_aside, steps, sweep
from legos_train.disk.crash import crashpoint
from legos_train.errors import RunError

SCHEMA = 3
"""The format of a run's state; it counts up with every change that an earlier checkpoint lacks."""
STATE = "state.json"
Group = Mapping[str, Any] | Callable[[], bytes]
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


class LoadedCheckpoint(NamedTuple):
    """The contents of a checkpoint."""

    groups: dict[str, bytes]
    """By name, the content of a safetensors file."""
    state: dict[str, Any]
    files: dict[str, bytes]
    run: str | None = None
    """The id of its run, if it was saved with one."""


def save(
    root: Path,
    step: int,
    groups: Mapping[str, Group],
    state: Mapping[str, Any],
    keep: int,
    *,
    files: Mapping[str, bytes] | None = None,
    run: str | None = None,
) -> Path:
    """Writes `root/step_N` and then prunes all but the newest `keep` complete ones.

    Args:
        root: the folder of the checkpoints.
        step: optimiser steps done; the checkpoint is `root/step_N`.
        keep: number of checkpoints to keep.
        groups: by name (`adapter`, `optimizer`, `league_step_40`, ...), named arrays, or what makes the content of
            their safetensors file.
        state: JSON values; dictionary keys must be strings, as JSON requires.
        files: anything else, such as a database dump, by file name.
        run: the id of the run; see `RunDirectory`.

    Raises:
        OSError: writing failed. Either nothing has changed, or, if only the last sync failed, the new
            checkpoint exists and is complete; in both cases `save` may be retried.
        ValueError, TypeError: something cannot be stored that way; nothing has changed.
    """
    contents = _contents(groups, state, files or {})
    fsops.make_directory(root)
    sweep(root)
    final, temporary = root / f"step_{step}", root / f".tmp-step_{step}-{os.getpid()}"
    crashpoint("checkpoint.begun")
    try:
        fsops.make_directory(temporary)
        entries = {}
        for name, data, point in contents:
            fsops.write_file(temporary / name, data, torn="checkpoint.torn")
            entries[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            crashpoint(point)
        fsops.write_file(temporary / MANIFEST, _manifest(step, run, entries), torn="checkpoint.torn")
        crashpoint("checkpoint.manifest_written")
        fsops.sync_directory(temporary)
        crashpoint("checkpoint.directory_synced")
        _commit(root, temporary, final, step)
    except BaseException:
        with suppress(OSError):  # leftovers are removed by the next save or load; the first error is more informative
            fsops.remove_own(temporary)
        raise
    crashpoint("checkpoint.renamed")
    fsops.sync_directory(root)
    crashpoint("checkpoint.committed")
    checkpoint_files.prune(root, keep, step)
    return final


def _contents(
    groups: Mapping[str, Group], state: Mapping[str, Any], files: Mapping[str, bytes]
) -> Iterator[tuple[str, bytes, str]]:
    """File name, content and crash point. Names and state are checked before the first is created."""
    for name in [*groups, *files]:
        if not _NAME.fullmatch(name) or name in (STATE, MANIFEST) or (name in files and name.endswith(".safetensors")):
            raise ValueError(
                f"{name!r} cannot be kept in a checkpoint: names are letters, digits, '.', '_' and '-'; "
                f"{STATE}, {MANIFEST} and files that end in .safetensors are its own"
            )
    _check_keys(state, "state")
    text = json.dumps(state, indent=1).encode()

    def make() -> Iterator[tuple[str, bytes, str]]:
        for name, group in groups.items():  # one at a time: only one is in memory twice
            data = group() if callable(group) else tensors.to_bytes(group)
            yield f"{name}.safetensors", data, "checkpoint.arrays_written"
        for name, data in files.items():
            yield name, data, "checkpoint.file_written"
        yield STATE, text, "checkpoint.state_written"

    return make()


def _check_keys(value: Any, where: str) -> None:
    """JSON silently turns the key 1 into "1", which the resumed run would not find."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise TypeError(
                    f"{where} has the key {key!r}; JSON keys are strings, so a resume would not find it again"
                )
            _check_keys(inner, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for inner in value:
            _check_keys(inner, f"{where}[]")


def _manifest(step: int, run: str | None, entries: Mapping[str, Any]) -> bytes:
    content = {"schema": SCHEMA, "step": step, "run": run, "files": dict(sorted(entries.items()))}
    return _render({**content, "sha256": _seal(content)})


def _render(manifest: Mapping[str, Any]) -> bytes:
    return (json.dumps(manifest, indent=1) + "\n").encode()


def _seal(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(_render(content)).hexdigest()


def _commit(root: Path, temporary: Path, final: Path, step: int) -> None:
    if not os.path.lexists(final):
        fsops.rename(temporary, final)
        return
    try:  # a run that went back to an earlier step gets here again
        read(final)
    except (CorruptCheckpoint, RunError):
        set_aside(final, fsops.free(root / f"step_{step}.corrupt"))
        fsops.rename(temporary, final)
        return
    old = root / f".old-step_{step}-{os.getpid()}"  # which `sweep` restores after a crash here
    fsops.put_in_place(temporary, final, old, "checkpoint.old_moved")


def load_newest(root: Path, run: str | None = None, keep: int | None = None) -> LoadedCheckpoint | None:
    """The latest complete checkpoint, or None if there is none. Broken ones are set aside with a message.

    The caller holds the lock of the run directory: leftovers of a killed writer are removed here.

    Args:
        root: the folder of the checkpoints.
        run: the id of the resumed run; None accepts any run.
        keep: number of checkpoints to keep, as in `save`, which a kill may have kept from pruning; None keeps all.

    Raises:
        RunError: the latest one is from another run, or was written by a version with another format.
        OSError: the disk could not be read for a reason that is not damage (permissions, too many open files).
    """
    if not root.is_dir():
        return None
    sweep(root)
    for step in reversed(steps(root)):
        directory = root / f"step_{step}"
        crashpoint("load.begun")
        try:
            found = read(directory)
        except CorruptCheckpoint as error:
            aside = fsops.free(root / f"step_{step}.corrupt")
            set_aside(directory, aside)
            print(f"checkpoint {directory} is damaged ({error}); set aside as {aside.name}", file=sys.stderr)
            continue
        if run is not None and found.run != run:
            raise RunError(
                f"checkpoint {str(directory)!r} is from another run ({found.run}; this one is {run}): remove it and "
                "resume, or start a run from it with --init-adapter and a new --run-dir"
            )
        crashpoint("load.read")
        if keep is not None:
            checkpoint_files.prune(root, keep, step)
        return found
    return None


def read(directory: Path) -> LoadedCheckpoint:
    """One checkpoint, verified; nothing is changed, so it also works for checkpoints of other runs.

    Raises:
        CorruptCheckpoint: a file is missing or does not match the manifest.
        RunError: it has a different format.
        OSError: it could not be read for a reason other than damage.
    """
    try:
        manifest = _read_manifest(directory)
        contents = {name: _checked(directory / name, entry) for name, entry in manifest["files"].items()}
        state = json.loads(contents.pop(STATE))
        groups = {name: data for name, data in contents.items() if name.endswith(".safetensors")}
        for data in groups.values():
            tensors.parse(data)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EIO, errno.EISDIR, errno.ENOTDIR):
            raise CorruptCheckpoint(f"{Path(str(error.filename)).name}: {error.strerror}") from None
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptCheckpoint(f"{type(error).__name__}: {error}") from None
    files = {name: data for name, data in contents.items() if name not in groups}
    named = {name.removesuffix(".safetensors"): data for name, data in groups.items()}
    return LoadedCheckpoint(named, state, files, manifest["run"])


def _read_manifest(directory: Path) -> dict[str, Any]:
    data = fsops.read_file(directory / MANIFEST)
    manifest: dict[str, Any] = json.loads(data)
    content = {key: value for key, value in manifest.items() if key != "sha256"}
    sealed = manifest.get("sha256") == _seal(content) and data == _render(manifest)
    if not sealed and manifest["schema"] != 1:  # which had no seal
        raise CorruptCheckpoint(f"{MANIFEST} is changed")
    if manifest["schema"] != SCHEMA:
        raise RunError(
            f"checkpoint {str(directory)!r} has format {manifest['schema']}, this version of legos reads {SCHEMA}; "
            "use the version that wrote it, or start a new --run-dir (--init-adapter RUN keeps its weights)"
        )
    if directory.name != f"step_{manifest['step']}":
        raise CorruptCheckpoint(f"{MANIFEST} says step {manifest['step']}")
    return manifest


def _checked(file: Path, entry: Mapping[str, Any]) -> bytes:
    data = fsops.read_file(file)
    if len(data) != entry["bytes"] or hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise CorruptCheckpoint(f"{file.name} is changed")
    return data


def damage(directory: Path) -> str | None:
    """What is wrong with a checkpoint, as a sentence, or None if every file matches the manifest."""
    try:
        read(directory)
    except (CorruptCheckpoint, RunError) as error:
        return str(error)
    return None
