"""A finished game in a few lines, for people."""

from __future__ import annotations

from collections.abc import Mapping

from legos_envs.records import Episode
from legos_train.evaluation.games import PlannedGame
from legos_train.evaluation.outcomes import in_words

TURNS, CHARACTERS = 12, 160


def transcript(
    game: PlannedGame, episode: Episode, seated: Mapping[str, str], outcomes: Mapping[str, str]
) -> list[str]:
    """Who won and what was said, by seat; long games and long answers are cut.

    Args:
        game: what was scheduled.
        episode: how it was played.
        seated: who played, by agent.
        outcomes: how it ended, by agent.
    """
    rivals = game.pairing.competitive and len(game.pairing.sides) > 1
    words = {agent: in_words(outcome, rivals) for agent, outcome in outcomes.items()}
    ends = ", ".join(
        f"{agent} ({seated[agent]}) {trajectory.total:+g} {words.get(agent) or ''}".rstrip()
        for agent, trajectory in episode.trajectories.items()
    )
    said = [
        (number, agent, _line(turn.action))
        for agent, trajectory in episode.trajectories.items()
        for number, turn in enumerate(trajectory.turns)
    ]
    said.sort(key=lambda one: one[0])
    lines = [f"  {agent}: {text}" for _, agent, text in said[:TURNS]]
    more = [f"  and {len(said) - TURNS} more turns"] if len(said) > TURNS else []
    return [f"{game.pairing.title}, seed {game.seed}: {ends}", *lines, *more]


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= CHARACTERS else f"{line[:CHARACTERS]} …"
