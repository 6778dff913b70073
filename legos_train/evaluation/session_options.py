"""The options of an evaluation: name, default and help text of each, for Python and for the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from legos_train.players.words import PlayerOptions

Assignments = Sequence[str] | Mapping[str, Any]
"""Values by name, or texts `NAME=VALUE` as on the command line."""


@dataclass(frozen=True, kw_only=True)
class SessionOptions(PlayerOptions):
    """What an evaluation plays, and how. Required is only `env`: ids, or `NAME=ENV` to name one in results.

    Values by name may be given as a mapping: `seat={"judge": "tiny"}`.
    """

    env: Sequence[str]
    games: int = field(default=256, metadata={"help": "games per policy and opponent", "least": 1})
    samples: int = field(
        default=1, metadata={"help": "games per seed, for mean@K and pass@k", "least": 1, "metavar": "K"}
    )
    seed: int = field(
        default=0,
        metadata={"help": "first seed; the same seed deals the same games", "least": 0, "metavar": "S"},
    )
    system: Sequence[str] = field(
        default=(),
        metadata={
            "help": "system prompt for models and endpoints; with NAME, only for that agent or role",
            "metavar": "[NAME=]TEXT",
        },
    )
    judge_temperature: float = field(
        default=0.0,
        metadata={
            "help": "temperature of --seat policies in seats that the env does not train",
            "type": float,
            "metavar": "T",
            "least": 0,
        },
    )
    arg: Assignments = field(
        default=(),
        metadata={
            "help": "constructor argument of every env, or of the one named ENV",
            "metavar": "[ENV:]NAME=VALUE",
        },
    )
    seat: Assignments = field(
        default=(),
        metadata={
            "help": "who plays an agent or role in every game, such as judge=tiny (repeatable; default: random for "
            "seats that the env does not train)",
            "metavar": "NAME=POLICY",
        },
    )
    out: Path | None = field(
        default=None,
        metadata={
            "help": "save every game and the results in DIR; rerun the command to resume",
            "type": Path,
            "metavar": "DIR",
        },
    )
    concurrency: int = field(default=256, metadata={"help": "games at a time", "least": 1})
    body: Assignments = field(
        default=(),
        metadata={
            "help": "extra field in requests to endpoints, such as top_p=0.9 or reasoning_effort=low",
            "metavar": "NAME=VALUE",
        },
    )
    retries: int = field(
        default=1, metadata={"help": "how many times to retry games lost to a server error", "least": 0}
    )
    json: bool = field(default=False, metadata={"help": "print one JSON object instead of text"})
