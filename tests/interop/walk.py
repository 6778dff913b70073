"""What the tests of other libraries share: the envs they step, and a player that reads the prompt alone."""

import asyncio
import re
import warnings
from types import ModuleType

import pytest

import legos_envs

IDS = ["KuhnPoker-v0", "TicTacToe-v0", "MatrixGame-v0"]
# Those libraries warn about themselves; only what they find wrong with our envs counts here.
LENIENT = pytest.mark.filterwarnings("default")


def library(module: str) -> ModuleType:
    """A module of another library; the tests are skipped where it is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(module, exc_type=ImportError)


def answer(text: str, turn: int) -> str:
    """A legal action, chosen by what the prompt says: some wrappers drop the infos that list legal actions."""
    _, listed, actions = text.rpartition("Reply with one legal action: ")
    legal = actions.split() if listed else [f"[{cell}]" for cell in re.findall(r"\d", text.rpartition("Board:")[2])]
    return legal[(3 * turn + len(text)) % len(legal)]


def expected(env_id: str, seed: int) -> dict[str, float]:
    """The returns of the episode when `legos_envs.play` plays it."""

    def policy(decision: legos_envs.Decision) -> str:
        return answer(decision.messages[-1]["content"], decision.turn)

    episode = asyncio.run(legos_envs.play(legos_envs.make(env_id), policy, seed))
    assert episode.outcome != "invalid"
    return episode.returns
