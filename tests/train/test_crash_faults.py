"""Every system call that keeps a run fails in turn: what is on disk is the old or the new, and work goes on."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from inference.files import tensors
from legos_train.disk import MetricsFile, RunDirectory, checkpoint, fsops, save_adapter
from legos_train.disk.fsops import explain_os_error, write_text

ERRORS = (errno.ENOSPC, errno.EIO, errno.EMFILE, errno.EINTR)
ALL, SHORT = "every call from here on", "a short write"


def arrays(step: int) -> dict[str, dict[str, mx.array]]:
    return {"adapter": {"a": mx.full((4,), step)}, "optimizer": {"m": mx.full((4,), step), "v": mx.array(step)}}


def keep(root: Path, step: int, value: int | None = None) -> None:
    value = step if value is None else value
    checkpoint.save(root / "checkpoints", step, arrays(value), {"value": value}, 2, files={"store": bytes(value)})


def kept(root: Path) -> Any:
    found = checkpoint.load_newest(root / "checkpoints")
    if found is None:
        return None
    value = found.state["value"]
    assert found.files == {"store": bytes(value)}
    read = {group: tensors.from_bytes(data) for group, data in found.groups.items()}
    assert {g: {n: a.tolist() for n, a in named.items()} for g, named in read.items()} == {
        g: {n: a.tolist() for n, a in named.items()} for g, named in arrays(value).items()
    }
    return value


def adapter(root: Path, value: int) -> None:
    save_adapter(root / "adapter", {"a": mx.full((3,), value)}, {"value": value})


def adapted(root: Path) -> Any:
    import json

    if not (root / "adapter").exists():
        return None
    weights = mx.load(str(root / "adapter" / "adapters.safetensors"))["a"].tolist()
    config = json.loads((root / "adapter" / "adapter_config.json").read_text())
    assert weights == [config["value"]] * 3, "the adapter mixes two versions"
    return config["value"]


def rows(root: Path) -> Any:
    return tuple(row["step"] for row in MetricsFile.read(root / "metrics.jsonl"))


def add_rows(root: Path, *steps: int, start: int | None = None) -> None:
    file = MetricsFile(root / "metrics.jsonl", start)
    try:
        for step in steps:
            file.write({"step": step})
        file.sync()
    finally:
        file.close()


def text(root: Path) -> Any:
    return (root / "config.toml").read_text() if (root / "config.toml").exists() else None


def enter(root: Path) -> None:
    with RunDirectory(root):
        write_text(root / "config.toml", "new")


def leftover(root: Path) -> None:
    (root / ".tmp-1-config.toml").write_text("half")
    write_text(root / "config.toml", "old")


Case = tuple[Callable[[Path], None], Callable[[Path], None], Callable[[Path], Any], set[Any]]
CASES: dict[str, Case] = {
    "first checkpoint": (lambda r: None, lambda r: keep(r, 1), kept, {None, 1}),
    "next checkpoint, one pruned": (lambda r: (keep(r, 1), keep(r, 2)), lambda r: keep(r, 3), kept, {2, 3}),
    "checkpoint of the same step": (lambda r: keep(r, 1), lambda r: keep(r, 1, 7), kept, {1, 7}),
    "first adapter": (lambda r: None, lambda r: adapter(r, 1), adapted, {None, 1}),
    "next adapter": (lambda r: adapter(r, 1), lambda r: adapter(r, 2), adapted, {1, 2}),
    "rows": (
        lambda r: add_rows(r, 1, 2),
        lambda r: add_rows(r, 3, 4, start=2),
        rows,
        {(1, 2), (1, 2, 3), (1, 2, 3, 4)},
    ),
    "cut back": (lambda r: add_rows(r, 1, 2, 3), lambda r: add_rows(r, 2, start=1), rows, {(1, 2, 3), (1,), (1, 2)}),
    "run directory": (leftover, enter, text, {"old", "new"}),
}  # type: ignore[dict-item]


class Faults:
    """Stands at the gate: counts calls and fails the n-th."""

    def __init__(self, at: int = 0, how: int | str = errno.EIO):
        self.at, self.how, self.count, self.fired = at, how, 0, False

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self.count += 1
        hit = self.count == self.at or (self.how == ALL and 0 < self.at <= self.count)
        if function is os.fsync and not hit:
            return None
        if not hit:
            return function(*arguments)
        self.fired = True
        if self.how == SHORT:
            return function(arguments[0], arguments[1][:3]) if function is os.write else function(*arguments)
        if function is os.close:
            function(*arguments)  # Linux closes it even when it reports an error
        code = errno.EIO if self.how == ALL else int(self.how)
        path = next((a for a in arguments if isinstance(a, str)), None)
        raise OSError(code, os.strerror(code), path)


@pytest.fixture(autouse=True)
def _gate() -> Iterator[None]:
    before = fsops.gate
    yield
    fsops.gate = before


HOW: tuple[int | str, ...] = (*ERRORS, ALL, SHORT)


@pytest.mark.quick("checkpoint of the same step", "rows")
@pytest.mark.parametrize("name", CASES)
def test_each_call_fails_in_two_ways(tmp_path: Path, name: str) -> None:
    """The ways take turns, so that each call meets two of the six here; all of them in the slow test."""
    fail_each_call(tmp_path, name, lambda k: (HOW[k % 6], HOW[(k + 3) % 6]))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_each_call_fails_in_every_way(tmp_path: Path, name: str) -> None:
    fail_each_call(tmp_path, name, lambda k: HOW)


def fail_each_call(tmp_path: Path, name: str, ways: Callable[[int], tuple[int | str, ...]]) -> None:
    prepare, act, look, allowed = CASES[name]
    fsops.gate = Faults()
    (tmp_path / "before").mkdir()
    prepare(tmp_path / "before")
    shutil.copytree(tmp_path / "before", tmp_path / "counted")
    fsops.gate = counted = Faults()
    act(tmp_path / "counted")
    total = counted.count
    final = look(tmp_path / "counted")
    assert final in allowed and total >= 6

    seen = set()
    for k in range(1, total + 1):
        for how in ways(k):
            root = tmp_path / f"{how}-{k}"
            shutil.copytree(tmp_path / "before", root)
            fsops.gate = faults = Faults(k, how)
            failed = None
            try:
                act(root)
            except OSError as error:
                failed = error
            assert faults.fired or how in (errno.EINTR, ALL), f"call {k} was not made"
            fsops.gate = Faults()
            if how in (errno.EINTR, SHORT):
                assert failed is None, f"{how} at call {k} is no reason to fail: {failed!r}"
            if failed is not None:
                assert failed.filename, f"call {k}: the error names no file: {failed!r}"
                named = str(failed.filename).replace(f".tmp-{os.getpid()}-", "")  # the file, not its draft
                assert named in explain_os_error(failed, "saving")
            state = look(root)
            assert state in allowed, f"call {k} failing with {how} left {state!r}"
            assert failed is not None or state == final, f"call {k} failed without a word and left {state!r}"
            seen.add(state)
            act(root)  # the process goes on
            assert look(root) == final
            hidden = [path.name for path in root.rglob(".tmp-*")] + [path.name for path in root.rglob(".gone-*")]
            assert not hidden, f"the next save left {hidden} behind"
            shutil.rmtree(root)
    assert final in seen and len(seen) > 1


def test_half_a_row_is_taken_back_at_once(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.jsonl", None)
    file.write({"step": 1})
    fsops.gate = Faults(2, errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        file.write({"step": 2})
    file.close()
    assert (tmp_path / "metrics.jsonl").read_bytes() == b'{"step": 1}\n'


def test_a_row_that_could_not_be_taken_back_is_taken_back_before_the_next(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.jsonl", None)
    file.write({"step": 1})
    calls = []

    def gate(function: Callable[..., Any], *arguments: Any) -> Any:
        calls.append(function)
        if len(calls) > 1:  # the first half is on disk, the second and the way back fail
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return function(*arguments)

    fsops.gate = gate
    with pytest.raises(OSError, match="No space left"):
        file.write({"step": 2})
    fsops.gate = Faults()
    assert (tmp_path / "metrics.jsonl").read_bytes() == b'{"step": 1}\n{"step'
    file.write({"step": 2})
    file.close()
    assert (tmp_path / "metrics.jsonl").read_bytes() == b'{"step": 1}\n{"step": 2}\n'


def test_a_prune_that_fails_does_not_fail_the_save(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(tmp_path, 1)
    keep(tmp_path, 2)

    def gate(function: Callable[..., Any], *arguments: Any) -> Any:
        if function is os.unlink:
            raise OSError(errno.EIO, os.strerror(errno.EIO), arguments[0])
        return function(*arguments)

    fsops.gate = gate
    keep(tmp_path, 3)
    assert "could not be removed" in capsys.readouterr().err
    fsops.gate = Faults()
    assert kept(tmp_path) == 3
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["step_2", "step_3"]


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EACCES])
def test_not_being_able_to_read_is_no_damage(tmp_path: Path, code: int) -> None:
    keep(tmp_path, 1)

    def gate(function: Callable[..., Any], *arguments: Any) -> Any:
        if function is os.open:
            raise OSError(code, os.strerror(code), arguments[0])
        return function(*arguments)

    fsops.gate = gate
    with pytest.raises(OSError, match=os.strerror(code)):
        checkpoint.load_newest(tmp_path / "checkpoints")
    fsops.gate = Faults()
    assert kept(tmp_path) == 1


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (errno.ENOSPC, "the disk is full; free space"),
        (errno.EMFILE, "ulimit -n"),
        (errno.EIO, "the disk reported an error"),
    ],
)
def test_the_error_says_what_to_do(code: int, said: str, tmp_path: Path) -> None:
    file = str(tmp_path / "run" / "checkpoints" / "x")
    message = explain_os_error(OSError(code, os.strerror(code), file), "saving")
    assert said in message and file in message and "--resume" not in message, "there is no run yet"
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").touch()
    assert "continue with --resume" in explain_os_error(OSError(code, os.strerror(code), file), "saving")


def test_an_error_names_the_file_and_not_its_draft(tmp_path: Path) -> None:
    draft = str(tmp_path / f".tmp-{os.getpid()}-view.html")
    said = explain_os_error(PermissionError(errno.EACCES, "Permission denied", draft), "working", of_run=False)
    assert str(tmp_path / "view.html") in said and ".tmp" not in said
    nowhere = FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")
    assert explain_os_error(nowhere, "working").endswith("while working; set TMPDIR to one")


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP])
def test_without_locks_a_run_says_so_and_goes_on(tmp_path, monkeypatch, caplog, code: int) -> None:
    """As on Lustre mounted without `flock`, and on NFS without its lock service."""

    def flock(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
    with RunDirectory(tmp_path / "run"):
        pass
    assert "nothing keeps another process from using it" in caplog.text and str(tmp_path / "run") in caplog.text


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP, errno.EIO])
def test_a_file_system_that_cannot_synchronise_directories_will_do(tmp_path, code: int) -> None:
    """As over FUSE, 9p and SMB; a disk that fails is an error all the same."""

    def refuse(function: Callable[..., Any], *arguments: Any) -> Any:
        if function is os.fsync and stat.S_ISDIR(os.fstat(arguments[0]).st_mode):
            raise OSError(code, os.strerror(code))
        return function(*arguments)

    fsops.gate = refuse
    if code == errno.EIO:
        with pytest.raises(OSError, match="Input/output error"):
            fsops.write_text(tmp_path / "a.txt", "new")
    else:
        fsops.write_text(tmp_path / "a.txt", "new")
        assert (tmp_path / "a.txt").read_text() == "new"


def test_a_run_that_never_started_leaves_nothing_over_nfs_either(tmp_path, monkeypatch) -> None:
    """NFS and FUSE keep a file that is removed while it is open, under another name, until it is closed."""
    closed = []
    rmdir = Path.rmdir
    monkeypatch.setattr(Path, "rmdir", lambda folder: closed.append(directory._lock.closed) or rmdir(folder))
    with pytest.raises(ValueError, match="no such model"), RunDirectory(tmp_path / "runs" / "a") as directory:
        raise ValueError("no such model")
    assert closed == [True, True] and not list(tmp_path.iterdir())
