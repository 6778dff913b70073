"""PettingZoo's own tests, which text envs must pass too, weak as these tests are for text."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator

from legos_envs.testing.harness import Skipped, Subject, check

UNAVOIDABLE = (
    "Observation is not a NumPy array",
    "Observation space for each agent probably should be",
    "Action space for each agent probably should be",
    "State space for each environment probably should be",
    "State is not NumPy array",
)
"""Warnings that merely say that this is a text env. Every other warning is a failure."""


@contextlib.contextmanager
def _strict() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("error")
        for message in UNAVOIDABLE:
            warnings.filterwarnings("ignore", message)
        yield


@check("pettingzoo.api")
def api(s: Subject) -> None:
    """PettingZoo's api_test passes, without avoidable warnings."""
    with _strict():
        from pettingzoo.test import api_test

        api_test(s.make())


@check("pettingzoo.seed")
def seed(s: Subject) -> None:
    """PettingZoo's seed_test passes."""
    with _strict():
        from pettingzoo.test import seed_test

        seed_test(s.make, num_cycles=50)


@check("pettingzoo.render")
def render(s: Subject) -> None:
    """PettingZoo's render_test passes in every declared render mode."""
    if not s.make().metadata.get("render_modes"):
        raise Skipped("declares no render modes")
    with _strict():
        from pettingzoo.test import render_test

        render_test(s.make)


@check("pettingzoo.parallel")
def parallel(s: Subject) -> None:
    """PettingZoo's parallel_api_test passes after turn_based_aec_to_parallel."""
    with _strict():
        from pettingzoo.test import parallel_api_test
        from pettingzoo.utils import turn_based_aec_to_parallel

        parallel_api_test(turn_based_aec_to_parallel(s.make()), num_cycles=50)


@check("pettingzoo.state")
def state(s: Subject) -> None:
    """PettingZoo's state_test passes, where the env has a state space."""
    if not hasattr(s.make(), "state_space"):
        raise Skipped("declares no state space")
    with _strict():
        from pettingzoo.test import state_test
        from pettingzoo.utils import turn_based_aec_to_parallel

        state_test(s.make(), turn_based_aec_to_parallel(s.make()))
