"""The generating process of asynchronous training, started by `ProcessGenerator`.

`python -m legos_train.run.generation.worker` speaks JSON lines: jobs and paths of new weights come in, episodes go
out. All other output goes to stderr.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from inference import Engine
from inference.files import tensors
from legos_envs.records import episode_to_json
from legos_train.config import from_dict
from legos_train.rollout import Job, LocalGenerator, env_maker, serving_jobs


def generator_of(start: Mapping[str, Any]) -> LocalGenerator:
    """Builds the generator from the first line: the run's config and its envs by label."""
    config = from_dict(start["config"], "the trainer's config")
    engine = Engine.load(config.model, dequantize=config.dequantize, threads=config.threads, max_rows=config.max_rows)
    envs = {label: env_maker(env["id"], env["args"]) for label, env in start["envs"].items()}
    return LocalGenerator(
        engine,
        config.make_renderer(engine.tokenizer),
        envs,
        scale=config.lora.scale,
        context=config.context,
        concurrency=config.batch_size,
        mode=config.asynchronous.in_flight,
    )


def read(lines: TextIO, inbox: queue.Queue[serving_jobs.InboxItem]) -> None:
    """Puts every line into the inbox; the end of input ends the work."""
    try:
        for line in lines:
            data = json.loads(line)
            if "jobs" in data:
                inbox.put(
                    serving_jobs.JobBatch(data["number"], [Job.from_json(job) for job in data["jobs"]], data["retries"])
                )
            elif data.get("path") is None:
                inbox.put(serving_jobs.Publish(data["name"], None))
            else:
                path = Path(data["path"])
                weights = tensors.from_bytes(path.read_bytes())
                path.unlink()
                inbox.put(serving_jobs.Publish(data["name"], weights, data["version"]))
    finally:
        inbox.put(None)


def main() -> int:
    """Serves until stdin ends."""
    for number in (signal.SIGINT, signal.SIGTERM):  # they reach the whole group; the trainer decides when to end
        signal.signal(number, signal.SIG_IGN)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    start = json.loads(sys.stdin.readline() or "null")
    if start is None:  # the trainer ended at once
        return 0
    try:
        with suppress(BrokenPipeError):  # it has ended meanwhile
            work(start, out)
    finally:
        shutil.rmtree(start["folder"], ignore_errors=True)  # the trainer may have been killed
    return 0


def work(start: Mapping[str, Any], out: TextIO) -> None:
    """Plays the jobs that arrive on stdin until it ends."""
    generator = generator_of(start)

    def send(played: serving_jobs.BatchResult) -> None:
        answer: dict[str, Any] = {"number": played.number, "seconds": played.seconds, "redrawn": played.redrawn}
        if played.error is not None:
            answer["error"] = f"{type(played.error).__name__}: {played.error}"
        else:
            answer["episodes"] = [episode_to_json(episode) for episode in played.episodes]
        out.write(json.dumps(answer) + "\n")
        out.flush()

    out.write(json.dumps({"ready": os.getpid()}) + "\n")
    out.flush()
    inbox: queue.Queue[serving_jobs.InboxItem] = queue.Queue()
    threading.Thread(target=read, args=(sys.stdin, inbox), daemon=True).start()
    try:
        serving_jobs.serve_jobs(generator, inbox, send, time.perf_counter)
    finally:
        generator.close()


if __name__ == "__main__":
    sys.exit(main())
