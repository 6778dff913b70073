"""What this package raises on purpose, with a message for whoever started it."""

from __future__ import annotations

import signal


class ConfigError(ValueError):
    """A setting is unknown, of the wrong type or out of range; the message names it."""


class PolicyError(ValueError):
    """A policy's name that means nothing, or nothing here; the message says what is accepted."""


class RunError(RuntimeError):
    """A run directory that cannot be used, or a run's file that cannot be made; the message says why."""


class TrainingError(RuntimeError):
    """Training cannot go on in a way that means anything; the message says why."""


class NothingToLearn(TrainingError):
    """No step of a run has made an update; the message says what to change. `exit_code` is that of `legos train`."""

    exit_code = 3


class Stopped(BaseException):
    """The user asked the run to end. `exit_code` is what a shell expects: 130 for Ctrl-C, 143 for SIGTERM.

    Like KeyboardInterrupt it is no `Exception`: it may come at any line, and nobody who handles errors there may take
    it for one.
    """

    def __init__(self, number: int):
        self.signal = signal.Signals(number)
        self.exit_code = 128 + number
        super().__init__(f"stopped by {self.signal.name}")


class ExportError(ValueError):
    """It cannot be exported as asked; the message says why and what to do."""
