"""What a policy is worth: exactly where the game can be solved, else by games with paired seeds.

Used alike by `legos eval` and, every few steps, by training. The parts are in `legos_train.evaluation`.
"""

from legos_train.evaluation.duel import NothingScored, head_to_head
from legos_train.evaluation.exactly import (
    action_probabilities,
    exact_metrics,
    policy_metrics,
    regrets,
    solvable,
    value_against,
)
from legos_train.evaluation.intervals import bootstrap_interval, pass_at_k
from legos_train.evaluation.outcomes import OUTCOMES, outcome_of

__all__ = [
    "OUTCOMES",
    "NothingScored",
    "action_probabilities",
    "bootstrap_interval",
    "exact_metrics",
    "head_to_head",
    "outcome_of",
    "pass_at_k",
    "policy_metrics",
    "regrets",
    "solvable",
    "value_against",
]
