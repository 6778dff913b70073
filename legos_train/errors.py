"""The errors that this package raises deliberately, with messages for the user."""

from __future__ import annotations

import importlib.util
import signal
from pathlib import Path
from typing import Any


class ConfigError(ValueError):
    """A setting is unknown, of the wrong type or out of range; the message names it."""


class PolicyError(ValueError):
    """A policy's name is unknown, or does not apply here; the message says what is accepted."""


class RunError(RuntimeError):
    """A run directory cannot be used, or a run's file cannot be created; the message says why."""


class TrainingError(RuntimeError):
    """Training cannot continue meaningfully; the message says why."""


class GenerationError(TrainingError):
    """No more episodes can be played; the weights are unaffected."""


class RankLost(TrainingError):
    """Another rank of a data-parallel run has exited or cannot be reached."""

    def __init__(self, what: str):
        self.what = what
        super().__init__(f"{what}; its own messages say why. Start all ranks again with --resume")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what,)


class NothingToLearn(TrainingError):
    """No step of a run made an update; the message says what to change. `exit_code` is that of `legos train`."""

    exit_code = 3


class Stopped(BaseException):
    """The user asked the run to stop. `exit_code` is what a shell expects: 130 for Ctrl-C, 143 for SIGTERM.

    Like KeyboardInterrupt it is not an `Exception`: it may be raised at any line, and error handlers must not catch it.
    """

    def __init__(self, number: int):
        self.signal = signal.Signals(number)
        self.exit_code = 128 + number
        super().__init__(f"stopped by {self.signal.name}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (int(self.signal),)


class ExportError(ValueError):
    """The requested export is not possible; the message says why and what to do."""


# --- `inference` is a common name: does Python find this project's package under it? ----------------------------

OURS = "attach_stub(__name__, __file__)"
"""A line in our `inference/__init__.py` that other packages of that name lack."""
DISTRIBUTION = "legos-selfplay"


def foreign_inference() -> str | None:
    """What is wrong with the `inference` that Python finds, and what to do; None if it is our own."""
    spec = importlib.util.find_spec("inference")
    home = Path(__file__).resolve().parents[1]
    first = None if spec is None or spec.origin is None else Path(spec.origin).resolve()
    if first is None:
        return f"the package `inference` of this project is missing next to {home / 'legos_train'}: {_again()}"
    if first.parent.parent != home:
        return (
            f"`import inference` finds another project's package, {first}, instead of the one next to "
            f"{home / 'legos_train'}. If that is a file or folder where you started Python, start somewhere else or "
            "rename it; if it comes from PYTHONPATH or another installed package, use a virtual environment without it"
        )
    if OURS not in first.read_text(encoding="utf-8", errors="replace"):
        return f"another package named `inference` was installed over this project's in {home}: {_again()}"
    return None


def other_inferences() -> list[str]:
    """Other installed distributions with a package `inference`: the one installed last overwrites the others."""
    import importlib.metadata

    holders = importlib.metadata.packages_distributions().get("inference", [])
    return sorted({name for name in holders if name != DISTRIBUTION})


def require_own_inference() -> None:
    """Raises ImportError unless `inference` is this project's."""
    if said := foreign_inference():
        raise ImportError(f"{said}. docs/installing.md has more")


def _again() -> str:
    return (
        f"uninstall the other one (`pip uninstall inference`), then `pip install --force-reinstall "
        f"--no-deps {DISTRIBUTION}`; or use a separate virtual environment"
    )
