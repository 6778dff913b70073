"""The options of an evaluation: name, default and help text of each, for Python and for the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from legos_train.rollout.players.words import Flag, PlayerOptions

Assignments = Sequence[str] | Mapping[str, Any]
"""Values by name, or texts `NAME=VALUE` as on the command line."""


@dataclass(frozen=True, kw_only=True)
class SessionOptions(PlayerOptions):
    """What an evaluation plays, and how. Required is only `env`: ids, or `NAME=ENV` to name one in results.

    Values by name may be given as a mapping: `seat={"judge": "tiny"}`.
    """

    env: Sequence[str]
    games: Annotated[int, Flag("games per policy and opponent", least=1)] = 256
    samples: Annotated[int, Flag("games per seed, for mean@K and pass@k", "K", least=1)] = 1
    seed: Annotated[int, Flag("first seed; the same seed deals the same games", "S", least=0)] = 0
    system: Annotated[
        Sequence[str],
        Flag("system prompt for models and endpoints; with NAME, only for that agent or role", "[NAME=]TEXT"),
    ] = ()
    judge_temperature: Annotated[
        float, Flag("temperature of --seat policies in seats that the env does not train", "T", float, 0)
    ] = 0.0
    arg: Annotated[
        Assignments,
        Flag("constructor argument of every env, or of the one named ENV", "[ENV:]NAME=VALUE"),
    ] = ()
    seat: Annotated[
        Assignments,
        Flag(
            "who plays an agent or role in every game, such as judge=tiny (repeatable; default: random for seats that "
            "the env does not train)",
            "NAME=POLICY",
        ),
    ] = ()
    out: Annotated[
        Path | None, Flag("save every game and the results in DIR; rerun the command to resume", "DIR", Path)
    ] = None
    concurrency: Annotated[int, Flag("games at a time", least=1)] = 256
    body: Annotated[
        Assignments,
        Flag("extra field in requests to endpoints, such as top_p=0.9 or reasoning_effort=low", "NAME=VALUE"),
    ] = ()
    retries: Annotated[int, Flag("how many times to retry games lost to a server error", least=0)] = 1
    json: Annotated[bool, Flag("print one JSON object instead of text")] = False
