"""Wrappers. They compose: each takes an AEC text env, wrapped or not. The last two are views, which are no longer AEC
envs. `TextObservation` must be outside all wrappers that read messages, since it removes them.

| wrapper | effect |
|---|---|
| `FillSeats` | policies play some seats |
| `TurnLimit` | truncates after a number of turns by all agents, or by one |
| `ContextLimit` | shows the first message and the newest ones |
| `FirstAndLast` | shows the first message and the last, as one |
| `BoardOnly` | shows the last user message |
| `TextObservation` | shows one string |
| `numeric.Numeric` | actions and observations are numbers |
| `RubricReward` | adds your own rewards, or replaces the env's |
| `RecordTranscript` | keeps a transcript of the episode |
| `ParallelView` | all ready agents at once: a PettingZoo `ParallelEnv` |
| `SingleAgent` | one seat: a Gymnasium `Env` |
"""

from legos_envs.wrappers.context_limit import ContextLimit, FirstAndLast
from legos_envs.wrappers.fill_seats import FillSeats
from legos_envs.wrappers.observations import BoardOnly, TextObservation
from legos_envs.wrappers.parallel import ParallelView
from legos_envs.wrappers.record import RecordTranscript
from legos_envs.wrappers.rubric_reward import RubricReward
from legos_envs.wrappers.single_agent import SingleAgent
from legos_envs.wrappers.turn_limit import TurnLimit

__all__ = [
    "BoardOnly",
    "ContextLimit",
    "FillSeats",
    "FirstAndLast",
    "ParallelView",
    "RecordTranscript",
    "RubricReward",
    "SingleAgent",
    "TextObservation",
    "TurnLimit",
]
