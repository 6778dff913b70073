"""What the numbers of an evaluation are called, and in which units they are."""

from __future__ import annotations

NAMES = {
    "nash_conv": "NashConv (0 is an equilibrium)",
    "optimal_move": "probability of an optimal move",
    "no_loss": "no-loss rate against random play",
    "no_loss_optimal": "no-loss rate against optimal play",
    "illegal": "probability of an illegal answer",
    "vs_random": "mean return against random play",
    "accuracy": "share of right answers",
    "win": "share of games won",
    "draw": "share of games drawn",
    "loss": "share of games lost",
    "invalid": "share of games ended by an invalid move",
    "opponent_invalid": "share of games ended by another's invalid move",
    "truncated": "share of games ended by the turn limit",
    "unscored": "share of games that were not judged",
    "return": "mean return in self-play",
}
UNITS = {
    "nash_conv": "what both players could gain by deviating, in units of return",
    "vs_random": "return per game",
    "return": "return per game",
}
ENDINGS = {
    "win": "won",
    "draw": "drawn",
    "loss": "lost",
    "invalid": "own invalid move",
    "opponent_invalid": "other's invalid move",
    "truncated": "turn limit",
    "unscored": "not judged",
}
EXACT = ("nash_conv", "optimal_move", "no_loss", "no_loss_optimal", "illegal")


def metric_name(key: str) -> str:
    """A measured number for people; those of several envs are `ENV/NUMBER`."""
    env, slash, kind = key.rpartition("/")
    name = NAMES.get(kind) or (f"mean return of {kind[7:]}" if kind.startswith("return_") else kind.replace("_", " "))
    return f"{env}: {name}" if slash else name
