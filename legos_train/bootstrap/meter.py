"""Progress of pretraining on stderr: a live bar on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[int, int, dict[str, float]], None]
"""Called with the step, the number of steps, and the loss by kind of token."""


@contextmanager
def progress_report(every: int = 50) -> Iterator[Report]:
    """A reporter of the training steps: a live bar on a terminal, else one line each `every` steps.

    The losses shown are averages over the last steps, about `every` of them.
    """
    started = time.monotonic()
    means: dict[str, float] = {}

    def words(step: int, steps: int) -> str:
        left = (time.monotonic() - started) / step * (steps - step)
        return " ".join(f"{name} {loss:.3f}" for name, loss in means.items()) + f"  {left:.0f} s left"

    def follow(losses: dict[str, float]) -> None:
        for name, loss in losses.items():
            means[name] = loss if name not in means else means[name] + (loss - means[name]) * 2 / every

    if not sys.stderr.isatty():

        def line(step: int, steps: int, losses: dict[str, float]) -> None:
            follow(losses)
            if step % every == 0 or step == steps:
                print(f"step {step}/{steps}  {words(step, steps)}", file=sys.stderr, flush=True)

        yield line
        return

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = TextColumn("pretraining"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}")
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=None)

        def draw(step: int, steps: int, losses: dict[str, float]) -> None:
            follow(losses)
            bar.update(task, completed=step, total=steps, description=words(step, steps))

        yield draw
