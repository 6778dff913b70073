"""How an episode ended for a seat, and which seats a policy takes together."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pettingzoo import AECEnv

from legos_envs.records import Episode
from legos_envs.wrappers import RubricReward
from legos_train.observe import eval_numbers

OUTCOMES = tuple(eval_numbers.ENDINGS)
TIE = 1e-9


def outcome_of(episode: Episode, agent: str, seats: Collection[str] | None = None) -> str:
    """One of `OUTCOMES`, for one agent.

    `invalid`: this agent's invalid action ended the episode, or its match within it; `opponent_invalid`: another's did.
    `unscored`: a judge failed, so the episode or the agent's match is void. Otherwise by return, against the best of
    the rivals: the seats at the same table, or all others if it is alone there. An agent without rivals wins with a
    right answer (`info["correct"]`), else with a return above 0.

    Args:
        episode: a finished episode.
        agent: the agent.
        seats: the competing seats; by default all that the record marks trainable, which a void match no longer is.
            With only the agent, it is judged by itself.
    """
    if early := ended_early(episode, agent):
        return early
    own = episode.trajectories[agent]
    rivals = [
        t for a, t in episode.trajectories.items() if a != agent and (t.trainable if seats is None else a in seats)
    ]
    if not rivals and isinstance(own.info.get("correct"), bool):
        return "win" if own.info["correct"] else "loss"
    here = [t for t in rivals if t.parent == own.parent]
    best = max((t.total for t in here or rivals), default=0.0)
    return "draw" if abs(own.total - best) <= TIE else "win" if own.total > best else "loss"


def ended_early(episode: Episode, agent: str) -> str | None:
    """`outcome_of` where the return does not matter: `"invalid"`, `"unscored"` and so on; else None."""
    info, outcome = episode.trajectories[agent].info, episode.info.get("outcome")
    ending = info.get("ending")  # of a match inside the episode
    if outcome == "unscored" or ending == "unscored":
        return "unscored"
    if episode.truncated:
        return "truncated"
    if outcome == "invalid":
        return "invalid" if agent in episode.info.get("offenders", ()) else "opponent_invalid"
    if ending == "forfeit":
        return "invalid" if "reason" in info else "opponent_invalid"
    return "invalid" if "invalid" in info else None  # rules that continued without it


def in_words(outcome: str, rivals: bool) -> str | None:
    """A readable outcome: for a seat without rivals a win is a success, and nothing is won, drawn or lost."""
    return outcome if rivals else {"win": "success", "draw": None, "loss": None}.get(outcome, outcome)


def seated(policies: Mapping[str, str]) -> str:
    """Who has the seats of `--seat`, in words."""
    return ", ".join(f"{seat}={policy}" for seat, policy in policies.items())


def competitive(env: AECEnv) -> bool:
    """Whether the returns of an env's seats can be compared: one's gain is another's loss. Otherwise seats have returns
    on different scales (a coder by calls, a tester by faults found), and each succeeds or fails by itself. An env that
    does not declare the sum of its rewards counts as a competition, one with other rewards than its own does not.
    """
    layer: Any = env
    while layer is not env.unwrapped:
        if isinstance(layer, RubricReward):
            return False
        layer = layer.env
    return bool(getattr(env.unwrapped, "zero_sum", True))


def sides_by_info(infos: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """The groups of seats that one policy takes together: those of one entrant, if the env names entrants, else single
    seats. Seats that the env does not train, such as judges, are in no group.

    Args:
        infos: infos of an env after its reset.
    """
    sides: dict[str, list[str]] = {}
    for agent, info in infos.items():
        if info.get("trainable", True):
            entrant = info.get("entrant")
            sides.setdefault(f"seat {agent}" if entrant is None else f"entrant {entrant}", []).append(agent)
    return [tuple(seats) for seats in sides.values()]
