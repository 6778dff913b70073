"""Copies of the repository, and pytest in them.

Importing MLX and transformers takes longer than most of the tests here, so this process imports them once and every
run of pytest is a fork of it. What is the repository's own is imported in the fork, from the copy.
"""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from tests.mutants.mutant import ROOT, Mutant

KILLED, SURVIVED, EQUIVALENT, STALE, BROKEN = "killed", "survived", "equivalent", "stale", "broken"
LATE = "late"
"""The tests did not end in time: a mutant that hangs, or a busy machine."""
OWN = ("legos_envs", "inference", "legos_train", "tests")
PRELOADED = ("pytest", "mlx.core", "mlx.nn", "mlx_lm.models.qwen3", "pettingzoo", "gymnasium", "pydantic")


class Trees:
    """Runs mutants, `jobs` of them at a time, each in a copy of the working tree below `folder`."""

    def __init__(self, folder: Path, jobs: int, timeout: float):
        self.folder, self.timeout = folder, timeout
        for name in PRELOADED:
            importlib.import_module(name)
        listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        out = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout.decode()
        names = [name for name in out.split("\0") if name and (ROOT / name).is_file()]
        self.pristine = self._copy(names, "pristine")  # whoever goes on editing meanwhile disturbs nothing
        self.free = [self._copy(names, str(number)) for number in range(jobs)]
        self._applied = 0

    def _copy(self, names: Sequence[str], name: str) -> Path:
        tree = self.folder / name
        for path in names:
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, tree / path)
        return tree

    def baseline(self, tests: Sequence[str]) -> str | None:
        """Runs tests without any mutant; returns the end of what pytest said where some failed."""
        log = self.folder / "baseline.log"
        pid = fork(self.free[0], [*tests, "--maxfail=1000"], log)
        try:
            _, status = os.waitpid(pid, 0)
        except BaseException:
            kill(pid)
            raise
        return None if os.waitstatus_to_exitcode(status) == 0 else log.read_text()[-4000:]

    def tried(self, chosen: Sequence[Mutant]) -> Iterator[tuple[Mutant, str, float]]:
        """Each mutant with its fate and the seconds that it took, as they are known."""
        running: dict[int, tuple[Mutant, Path, float]] = {}
        try:
            yield from self._tried(list(chosen)[::-1], running)
        finally:  # of a command that was interrupted
            for pid in running:
                kill(pid)

    def _tried(
        self, queue: list[Mutant], running: dict[int, tuple[Mutant, Path, float]]
    ) -> Iterator[tuple[Mutant, str, float]]:
        while queue or running:
            while queue and self.free:
                mutant = queue.pop()
                tree = self.free.pop()
                if (early := self._put(mutant, tree)) is not None:
                    self.free.append(tree)
                    yield mutant, early, 0.0
                    continue
                log = self.folder / f"{mutant.name}.log"
                running[fork(tree, ["-x", *mutant.tests.split()], log)] = mutant, tree, time.monotonic()
            for pid, (mutant, tree, began) in list(running.items()):
                done, status = os.waitpid(pid, os.WNOHANG)
                seconds = time.monotonic() - began
                if not done and seconds < self.timeout:
                    continue
                if not done:
                    kill(pid)
                del running[pid]
                shutil.copy2(self.pristine / mutant.file, tree / mutant.file)
                self.free.append(tree)
                yield mutant, fate_of(os.waitstatus_to_exitcode(status)) if done else LATE, seconds
            time.sleep(0.05)

    def _put(self, mutant: Mutant, tree: Path) -> str | None:
        """Writes the mistake; returns the fate of a mutant that needs no run."""
        if (source := mutant.applied((self.pristine / mutant.file).read_text())) is None:
            return STALE
        if mutant.equivalent:
            return EQUIVALENT
        (tree / mutant.file).write_text(source)
        self._applied += 1  # byte code is kept by the second and the size of its source
        os.utime(tree / mutant.file, (self._applied, self._applied))
        return None


def fate_of(code: int) -> str:
    """What an exit code of pytest means: 1 is a test that failed; more is not a test that could be run."""
    return {0: SURVIVED, 1: KILLED}.get(code, BROKEN)


def kill(pid: int) -> None:
    """Ends a fork with all that it has started."""
    with suppress(ProcessLookupError, PermissionError):  # it has no group of its own yet
        os.killpg(pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


def fork(tree: Path, arguments: Sequence[str], log: Path) -> int:
    """Starts pytest in a copy of the tree, in a process group of its own; returns its id."""
    sys.stdout.flush()
    if pid := os.fork():
        return pid
    code = 3
    try:
        os.setpgid(0, 0)
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__  # not what a test captures
        os.chdir(tree)
        sys.path[:] = [str(tree), *(entry for entry in sys.path if entry not in ("", str(ROOT)))]
        os.environ["PYTHONPATH"] = str(tree)
        sys.dont_write_bytecode = False
        for name in [name for name in sys.modules if name.partition(".")[0] in OWN]:
            del sys.modules[name]
        import gymnasium
        import pettingzoo
        import pytest

        pettingzoo.aec_registry.clear()  # the copy registers its own
        for name in [name for name in gymnasium.registry if name.startswith("legos/")]:
            del gymnasium.registry[name]

        early = "ignore::pytest.PytestAssertRewriteWarning"  # of plugins that MLX has brought along
        code = int(pytest.main(["-n", "0", "-m", "", "-p", "no:cacheprovider", "-W", early, *arguments]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)
