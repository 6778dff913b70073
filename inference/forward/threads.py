"""How many threads the matrix library uses on a CPU: the requested number, or one per idle CPU."""

from __future__ import annotations

import logging
import math
import os
from pathlib import Path

from mlx import nn

from inference.forward import fastblas
from inference.types import Threads
from inference.unpacking import on_cpu

LARGE = 50_000_000
"""Number of weights from which `auto` takes more than one thread; a smaller model's products are too short."""
_QUOTA = Path("/sys/fs/cgroup/cpu.max")
logger = logging.getLogger(__name__)


def use_threads(threads: Threads, model: nn.Module) -> int:
    """Sets the matrix library's threads for a model and returns their number; the choice of `auto` is logged with its
    reason.

    Args:
        threads: their number; `auto`: one for each idle CPU if the model is `LARGE`, otherwise one.
        model: the loaded model.
    """
    if threads != "auto":
        fastblas.set_threads(threads)
        return threads
    from mlx_lm.utils import get_total_parameters

    large = get_total_parameters(model) >= LARGE and on_cpu()
    count = idle_cpus() if large else 1
    why = "CPUs that are idle now" if large else "the model is small" if on_cpu() else "the model is not on the CPU"
    logger.log(logging.WARNING if large else logging.INFO, "threads=auto: %d (%s)", count, why)
    fastblas.set_threads(count)
    return count


def idle_cpus() -> int:
    """CPUs that this process may use, by its affinity and its container's quota, less the load average; at least 1."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share, _, period = _QUOTA.read_text().partition(" ") if _QUOTA.is_file() else ("max", "", "")
    most = min(allowed, int(share) / int(period)) if share.isdigit() else allowed
    return max(1, math.floor(most - os.getloadavg()[0] + 0.5))
