"""Tests for environments.

`check_env` runs every conformance check, `fuzz` throws hostile actions at an env, and `attack` tries to earn its
rewards without understanding it. `page` reads the page of an environment, which states the floors that `attack`
compares with.
"""

from legos_envs.testing.conformance import Report, check_env
from legos_envs.testing.fuzzing import FuzzReport, fuzz
from legos_envs.testing.gameability import attack
from legos_envs.testing.harness import CHECKS
from legos_envs.testing.pages import constructor_arguments, page
from legos_envs.testing.panel import Panel

__all__ = ["CHECKS", "FuzzReport", "Panel", "Report", "attack", "check_env", "constructor_arguments", "fuzz", "page"]
