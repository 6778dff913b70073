"""Tests an environment: `check_env` runs every conformance check on it, `fuzz` throws hostile actions at it."""

from legos_envs.testing.conformance import Report, check_env
from legos_envs.testing.fuzzing import FuzzReport, fuzz
from legos_envs.testing.harness import CHECKS

__all__ = ["CHECKS", "FuzzReport", "Report", "check_env", "fuzz"]
