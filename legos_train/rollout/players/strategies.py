"""Strategies in files: a move, or probabilities of moves, for every information set of a game.

`legos exploit` writes the strategy that earns most against a policy; its folder is a policy for every `legos`
verb that takes one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from legos_envs import InfoSet, exact, policies
from legos_train.disk import fsops
from legos_train.errors import PolicyError

FILE = "strategy.json"


def is_strategy(word: str) -> bool:
    """Whether a name is a folder with a strategy in it."""
    return "://" not in word and (Path(word) / FILE).is_file()


def strategy_text(
    env: str, args: Mapping[str, Any], table: Mapping[InfoSet, Mapping[str, float]], about: str = ""
) -> str:
    """The content of `strategy.json`.

    Args:
        env: id of its env.
        args: its constructor arguments.
        table: probabilities of moves; missing ones are 0.
        about: a readable description.
    """
    rows = [{"player": info.player, "view": info.view, "moves": dict(moves)} for info, moves in table.items()]
    return json.dumps({"env": env, "args": dict(args), "about": about, "infosets": rows}, indent=1) + "\n"


def write_strategy(
    folder: Path, env: str, args: Mapping[str, Any], table: Mapping[InfoSet, Mapping[str, float]], about: str = ""
) -> None:
    """Writes a strategy into a folder, which it creates; the arguments are those of `strategy_text`."""
    folder.mkdir(exist_ok=True)
    fsops.write_text(folder / FILE, strategy_text(env, args, table, about))


def read_strategy(folder: str | Path) -> dict[tuple[int, str], dict[str, float]]:
    """Probabilities of moves by player and view.

    Raises:
        ValueError: the file is not a strategy.
    """
    path = Path(folder) / FILE
    try:
        rows = json.loads(path.read_bytes())["infosets"]
        return {
            (int(row["player"]), str(row["view"])): {str(move): float(p) for move, p in row["moves"].items()}
            for row in rows
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a strategy ({type(error).__name__}: {error}); write it again") from None


def strategy_table(folder: str | Path, infosets: Sequence[InfoSet]) -> dict[InfoSet, dict[str, float]]:
    """The strategy of a folder for the information sets of a game.

    Raises:
        ValueError: it is for another game.
    """
    found = read_strategy(folder)
    missing = next((info for info in infosets if (info.player, info.view) not in found), None)
    if missing is not None:
        raise ValueError(
            f"the strategy in {str(folder)!r} says nothing about player {missing.player} at {missing.view!r}: it is "
            f"for another game or other arguments ({FILE} says which)"
        )
    return {info: found[info.player, info.view] for info in infosets}


def strategy_player(spec: str, env: Any) -> policies.TabularPolicy:
    """The player of a strategy directory, for an env.

    Raises:
        PolicyError: the env has no solvable game, or the strategy is for another.
    """
    try:
        infosets = exact.info_sets(policies.game_env(env).game)
        return policies.TabularPolicy(env, strategy_table(spec, infosets).__getitem__)
    except (TypeError, ValueError) as error:
        raise PolicyError(f"{spec} cannot play here: {error}") from None
