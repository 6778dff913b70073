"""Where the episodes of asynchronous training are generated: in a separate process, or in a thread.

On the CPU generation runs in a separate process: two threads of one process would share one interpreter. On Metal it is
a thread: two processes on one GPU have crashed whole machines. With servers it is also a thread, which only sends
requests; publishing does not wait for them, since an adapter's name there stands for one version.
"""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from inference import loading
from inference.files import tensors
from legos_envs.records import episode_from_json
from legos_train.arena import Arena
from legos_train.config import TrainConfig
from legos_train.errors import ConfigError, GenerationError
from legos_train.rollout import Job, LocalGenerator, serving_jobs
from legos_train.run.parts.parts import Parts

START_SECONDS = 120.0


class ThreadGenerator:
    """Plays in a thread of this process, on servers or on its own engine over the same base weights.

    Args:
        parts: parts of the run.
        servers: plays on servers; it belongs to the thread from now on.
    """

    def __init__(self, parts: Parts, servers: LocalGenerator | None = None):
        self._servers = servers
        self._inbox: queue.Queue[serving_jobs.InboxItem] = queue.Queue()
        self._out: queue.Queue[serving_jobs.BatchResult] = queue.Queue()
        self._parts = parts
        self._thread = threading.Thread(target=self._work, name="legos-generator", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        generator = None
        try:
            generator = self._servers or self._generator()
            serving_jobs.serve_jobs(generator, self._inbox, self._out.put, time.perf_counter)
        except Exception as error:  # nothing joins the thread; `collect` reports it to the learner
            self._out.put(serving_jobs.BatchResult(-1, error=error))
        finally:
            if generator is not None:
                generator.close()
            loading.release_streams()

    def _generator(self) -> LocalGenerator:
        parts, config = self._parts, self._parts.config
        assert parts.place.second is not None  # `place_of` has checked it
        return LocalGenerator(
            parts.place.second(),
            config.make_renderer(parts.renderer.tokenizer),
            {name: slot.make for name, slot in parts.arena.envs.items()},
            scale=config.lora.scale,
            context=config.context,
            concurrency=config.batch_size,
            mode=config.asynchronous.in_flight,
        )

    def submit(self, number: int, jobs: Sequence[Job]) -> None:
        self._inbox.put(serving_jobs.JobBatch(number, list(jobs), self._parts.config.filter.draw_retries))

    def collect(self, timeout: float) -> serving_jobs.BatchResult | None:
        try:
            return self._out.get(timeout=timeout)
        except queue.Empty:
            return None

    def publish(self, name: str, weights: Any, version: int) -> None:
        self._inbox.put(serving_jobs.Publish(name, weights, version))

    def unpublish(self, name: str) -> None:
        self._inbox.put(serving_jobs.Publish(name, None))

    def drop_caches(self) -> None:
        """Does nothing: an asynchronous run is not reproducible bit for bit."""

    def close(self) -> None:
        self._inbox.put(None)
        self._thread.join(timeout=30)


class ProcessGenerator:
    """Plays in a separate process, `legos_train.run.generation.worker`."""

    def __init__(self, config: TrainConfig):
        self._folder = Path(tempfile.mkdtemp(prefix="legos-weights-"))
        self._count = 0
        self._retries = config.filter.draw_retries
        self._out: queue.Queue[serving_jobs.BatchResult | None] = queue.Queue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "legos_train.run.generation.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        envs = {entry.label: {"id": entry.id, "args": entry.args} for entry in config.envs}
        plain = config.model_copy(update={"run_dir": None}).plain()
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self._send({"config": plain, "envs": envs, "folder": str(self._folder)})
            ready = self._ready.wait(START_SECONDS)
        except BaseException:
            self.close()
            raise
        if not ready or self._process.poll() is not None:
            code = self._process.poll()
            self.close()
            why = f"did not start within {START_SECONDS:.0f} s" if code is None else f"ended at its start ({code})"
            raise GenerationError(f"the generating process {why}; see its messages")

    def _send(self, data: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(data) + "\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError) as error:
            raise GenerationError(f"the generating process has ended ({self._process.poll()})") from error

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                self._take(json.loads(line))
        except ValueError as error:  # half a line: the process was killed while writing
            print(f"the generating process wrote an incomplete answer: {error}", file=sys.stderr)
        finally:  # whatever happens, nothing waits forever
            self._out.put(None)
            self._ready.set()

    def _take(self, data: dict[str, Any]) -> None:
        if "ready" in data:
            self._ready.set()
        elif "error" in data:
            self._out.put(serving_jobs.BatchResult(data["number"], error=data["error"]))
        else:
            episodes = [episode_from_json(episode) for episode in data["episodes"]]
            self._out.put(serving_jobs.BatchResult(data["number"], episodes, data["seconds"], redrawn=data["redrawn"]))

    def submit(self, number: int, jobs: Sequence[Job]) -> None:
        self._send({"number": number, "jobs": [job.to_json() for job in jobs], "retries": self._retries})

    def collect(self, timeout: float) -> serving_jobs.BatchResult | None:
        try:
            played = self._out.get(timeout=timeout)
        except queue.Empty:
            return None
        if played is None:
            code = self._process.wait()
            raise GenerationError(f"the generating process has ended with code {code}")
        return played

    def publish(self, name: str, weights: Mapping[str, Any], version: int) -> None:
        self._count += 1
        path = self._folder / f"{self._count}.safetensors"
        path.write_bytes(tensors.to_bytes(weights))
        self._send({"name": name, "path": str(path), "version": version})

    def unpublish(self, name: str) -> None:
        self._send({"name": name, "path": None})

    def drop_caches(self) -> None:
        """Does nothing: an asynchronous run is not reproducible bit for bit."""

    def close(self) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            try:
                self._process.stdin.close()
            except BrokenPipeError:
                print("the generating process ended early", file=sys.stderr)
        try:
            self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(timeout=5)
        if self._process.stdout is not None:
            self._process.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def make_batch_generator(parts: Parts) -> ThreadGenerator | ProcessGenerator:
    """Follows `asynchronous.backend`; auto: a process on CPU and CUDA, a thread on Metal and with servers.

    Raises:
        ConfigError: the run's episodes cannot be generated elsewhere.
    """
    arena, config = parts.arena, parts.config
    kind = type(arena)
    if kind.generate_rollouts is not Arena.generate_rollouts:
        raise ConfigError(f"{kind.__name__}.generate_rollouts is overridden: asynchronous.enabled must be off")
    if config.server.urls:
        assert isinstance(parts.sync.generator, LocalGenerator)
        arena.generator = parts.sync.local
        return ThreadGenerator(parts, parts.sync.generator)
    chosen = config.asynchronous.backend if parts.place.by_config else "thread"
    if chosen == "auto":
        metal = mx.default_device().type == mx.DeviceType.gpu and mx.metal.is_available()
        chosen = "thread" if metal or not _by_name(parts) else "process"
    if chosen == "process" and not _by_name(parts):
        raise ConfigError(
            "asynchronous.backend = 'process' needs envs and actors that another process can create by name; "
            "this arena holds Python objects: use 'thread'"
        )
    return ThreadGenerator(parts) if chosen == "thread" else ProcessGenerator(config)


def _by_name(parts: Parts) -> bool:
    named = {entry.label for entry in parts.config.envs} == set(parts.arena.envs)
    return named and parts.arena.from_config and all(isinstance(a.model, str) for a in parts.arena.actors.values())
