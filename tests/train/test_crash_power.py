"""Power loss: whatever the disk had not been told to keep may be gone. Every prefix of a save's calls, cut off there.

The calls of a save are recorded and replayed on a model of a disk that keeps, of what was not synced, nothing, half, or
all of the contents, and none or all of the names. What such a disk holds after the restart must load as the checkpoint
before or the new one, and as the new one once `save` has returned.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from inference.files import tensors
from legos_train.disk import checkpoint, fsops, save_adapter

Node = dict[str, Any]
Call = tuple[str, tuple[Any, ...], Any]


def record(act: Callable[[], None]) -> list[Call]:
    calls: list[Call] = []

    def gate(function: Callable[..., Any], *arguments: Any) -> Any:
        kept = tuple(bytes(a) if isinstance(a, memoryview) else a for a in arguments)
        result = None if function is os.fsync else function(*arguments)
        calls.append((function.__name__, kept, result))
        return result

    before, fsops.gate = fsops.gate, gate
    try:
        act()
    finally:
        fsops.gate = before
    return calls


class Disk:
    """Directories are dicts name -> node; every node has what is on the disk (`safe`) and what programs see (`now`)."""

    def __init__(self, root: Path):
        self.path = str(root)
        self.root = self._take(root)
        self.open: dict[int, Node] = {}

    def _take(self, path: Path) -> Node:
        value: Any = {p.name: self._take(p) for p in path.iterdir()} if path.is_dir() else path.read_bytes()
        return {"safe": dict(value) if path.is_dir() else value, "now": value}

    def find(self, path: str) -> tuple[Node, str]:
        *above, name = os.path.relpath(path, self.path).split(os.sep)
        node = self.root
        for part in above:
            node = node["now"][part]
        return node, name

    def apply(self, call: Call) -> None:
        name, arguments, result = call
        if name == "open":
            if arguments[0] == self.path:
                self.open[result] = self.root
                return
            parent, file = self.find(arguments[0])
            if arguments[1] & os.O_CREAT and file not in parent["now"]:
                parent["now"][file] = {"safe": b"", "now": b""}
            node = self.open[result] = parent["now"][file]
            if arguments[1] & os.O_TRUNC:
                node["now"] = b""
        elif name == "write":
            self.open[arguments[0]]["now"] += arguments[1]
        elif name == "fsync":
            node = self.open[arguments[0]]
            node["safe"] = dict(node["now"]) if isinstance(node["now"], dict) else node["now"]
        elif name == "mkdir":
            parent, file = self.find(arguments[0])
            parent["now"][file] = {"safe": {}, "now": {}}
        elif name == "rename":
            (source, old), (target, new) = self.find(arguments[0]), self.find(arguments[1])
            target["now"][new] = source["now"].pop(old)
        elif name == "_exchange":
            (one, a), (other, b) = self.find(arguments[0]), self.find(arguments[1])
            one["now"][a], other["now"][b] = other["now"][b], one["now"][a]
        elif name in ("unlink", "rmdir"):
            parent, file = self.find(arguments[0])
            del parent["now"][file]
        else:
            assert name in ("close", "listdir", "read"), f"the model does not know {name}"

    def restart(self, path: Path, names: str, contents: str) -> None:
        """Writes what is left after the power came back."""
        self._write(self.root, path, names, contents)

    def _write(self, node: Node, path: Path, names: str, contents: str) -> None:
        if isinstance(node["now"], dict):
            path.mkdir()
            for name, inner in node["now" if names == "all" else "safe"].items():
                self._write(inner, path / name, names, contents)
            return
        safe, now = node["safe"], node["now"]
        lost = {"none": safe, "half": now[: (len(safe) + len(now)) // 2], "all": now}
        path.write_bytes(lost[contents])


@pytest.fixture(autouse=True)
def _gate() -> Iterator[None]:
    before = fsops.gate
    fsops.gate = lambda function, *a: None if function is os.fsync else function(*a)
    yield
    fsops.gate = before


def keep(root: Path, step: int) -> None:
    checkpoint.save(root, step, {"adapter": {"a": mx.full((8,), step)}}, {"step": step}, 1, files={"f": bytes(step)})


def loaded(root: Path) -> Any:
    found = checkpoint.load_newest(root)
    return found and found.state["step"]


def keep_adapter(root: Path, step: int) -> None:
    save_adapter(root / "adapter", {"a": mx.full((8,), step)}, {"step": step})


def loaded_adapter(root: Path) -> Any:
    """As another program reads it; None when there is no whole pair of one version."""
    try:
        step = json.loads((root / "adapter" / "adapter_config.json").read_bytes())["step"]
        weights = tensors.from_bytes((root / "adapter" / "adapters.safetensors").read_bytes())["a"].tolist()
    except (OSError, ValueError):
        return None
    return step if weights == [step] * 8 else "mixed"


def outcomes(
    tmp_path: Path, keep: Callable[[Path, int], None], load: Callable[[Path], Any], skip: str | None = None
) -> set[Any]:
    """What loads after each possible loss in the save of 9 over 4: (whether all calls were done, what is loaded)."""
    root = tmp_path / "live"
    root.mkdir()
    keep(root, 4)
    disk_before = Disk(root)
    calls = [call for call in record(lambda: keep(root, 9)) if call[0] != skip]
    assert len(calls) > 15
    found = set()
    for k in range(len(calls) + 1):
        for names in ("safe", "all"):
            for contents in ("none", "half", "all"):
                disk = Disk.__new__(Disk)
                disk.path, disk.open, disk.root = disk_before.path, {}, _copy(disk_before.root)
                for call in calls[:k]:
                    disk.apply(call)
                after = tmp_path / f"{k}-{names}-{contents}"
                disk.restart(after, names, contents)
                found.add((k == len(calls), load(after)))
    return found


def _copy(node: Node) -> Node:
    if isinstance(node["now"], dict):
        inner = {name: _copy(child) for name, child in node["now"].items()}
        return {"safe": dict(inner), "now": inner}
    return dict(node)


def test_after_a_power_loss_the_one_before_or_the_new_one_is_whole(tmp_path: Path) -> None:
    assert outcomes(tmp_path, keep, loaded) == {(False, 4), (False, 9), (True, 9)}


@pytest.mark.slow
def test_after_a_power_loss_the_adapter_is_the_old_or_the_new_pair(tmp_path: Path) -> None:
    assert outcomes(tmp_path, keep_adapter, loaded_adapter) == {(False, 4), (False, 9), (True, 9)}


@pytest.mark.slow
def test_the_model_notices_a_missing_sync(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = outcomes(tmp_path, keep, loaded, skip="fsync")
    assert (True, None) in found, "without any sync a save that returned can be lost, and the model sees it"
    capsys.readouterr()
