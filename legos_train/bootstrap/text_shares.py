"""Shares of the sources in the rows that `small` reads; an unnamed source has share 1."""

FIRST = {
    "TicTacToe-v0": 2.0,
    "LiarsDice-v0": 1.5,
    "SimpleNegotiation-v0": 1.5,
    "Negotiation-v0": 1.5,
    "GSM8K-v0": 2.0,
    "Dataset-v0": 0.5,
    "Tournament-v0": 0.3,
    "EloArena-v0": 0.3,
    "made-up choices": 0.5,
    "sentences": 0.4,
}
"""Shares of the first stage: every registered environment."""


DRILL = {**FIRST, "sums": 110.0}
"""Shares of the second stage: four in five rows are sums.

A model of this size does not learn to add from word problems, since most answers are wrong, nor from a few sums among
other texts. From sums alone it learns the tables of one-digit numbers within a hundred steps.
"""

WITH_SUMS = {
    **FIRST,
    "sums": 10.0,
    "Amplification-v0": 1.5,
    "CodeGen-v0": 2.0,
    "EnsembleVote-v0": 1.5,
    "GSM8K-v0": 3.0,
    "LiarsDice-v0": 2.5,
    "Negotiation-v0": 3.0,
    "PlanExecute-v0": 2.5,
    "ProposerSolver-v0": 2.5,
    "SPICE-v0": 2.5,
    "SelfDistillation-v0": 1.5,
    "SimpleNegotiation-v0": 2.5,
}
"""Shares of the third stage: one row in five is sums, and hard environments come more often."""

WORKED_OUT = {
    **dict.fromkeys((*FIRST, "ConnectFour-v0", "KuhnPoker-v0", "LeducPoker-v0", "MatrixGame-v0", "Nim-v0"), 0.5),
    "sums": 5.0,
    "CodeGen-v0": 3.0,
    "Dataset-v0": 2.0,
    "EnsembleVote-v0": 6.0,
    "GSM8K-v0": 10.0,
    "LiarsDice-v0": 1.5,
    "Negotiation-v0": 3.0,
    "PlanExecute-v0": 3.0,
    "ProposerSolver-v0": 6.0,
    "RedBlue-v0": 6.0,
    "SPICE-v0": 2.0,
    "SelfDistillation-v0": 6.0,
    "SimpleNegotiation-v0": 1.5,
}
"""Shares of the fourth stage: mostly tasks with answers that must be worked out."""

LONG_TALKS = {
    **FIRST,
    "sums": 8.0,
    "Amplification-v0": 6.0,
    "CodeGen-v0": 3.0,
    "ConnectFour-v0": 3.0,
    "EnsembleVote-v0": 3.0,
    "GSM8K-v0": 4.0,
    "LiarsDice-v0": 8.0,
    "Negotiation-v0": 8.0,
    "Nim-v0": 3.0,
    "PlanExecute-v0": 4.0,
    "ProposerSolver-v0": 6.0,
    "RedBlue-v0": 3.0,
    "SPICE-v0": 3.0,
    "SelfDistillation-v0": 3.0,
    "SimpleNegotiation-v0": 7.0,
    "TicTacToe-v0": 4.0,
}
"""Shares of the fifth stage: mostly environments whose legal answers depend on all of them."""

CAREFUL = {
    **LONG_TALKS,
    "Amplification-v0": 20.0,
    "CodeGen-v0": 8.0,
    "ConnectFour-v0": 12.0,
    "Negotiation-v0": 30.0,
    "ProposerSolver-v0": 15.0,
    "RedBlue-v0": 6.0,
    "SPICE-v0": 10.0,
    "SimpleNegotiation-v0": 10.0,
}
"""Shares of the sixth stage: mostly environments whose replies must copy numbers or words exactly."""

LONGEST = {**CAREFUL, "LiarsDice-v0": 80.0, "ConnectFour-v0": 20.0, "PigDice-v0": 5.0}
"""Shares of the seventh stage: a third of the rows are Liar's dice, whose chats are the longest, up to 3,200 tokens."""

TRADES = {
    **CAREFUL,
    "LiarsDice-v0": 20.0,
    "Negotiation-v0": 130.0,
    "Nim-v0": 6.0,
    "ProposerSolver-v0": 35.0,
    "SPICE-v0": 14.0,
    "TicTacToe-v0": 14.0,
}
"""Shares of the eighth stage: two in five rows are Negotiation, where a legal offer depends on all trades so far."""

HOLDINGS = {"Negotiation-v0": 5000.0}
"""Shares of the ninth stage: almost only Negotiation, from which the model learns to compare an offer with what it has.

As with sums, a small share of the rows does not begin to teach this.
"""

EVERYTHING = {
    **CAREFUL,
    "CodeGen-v0": 9.0,
    "Debate-v0": 14.0,
    "EloArena-v0": 5.0,
    "EnsembleVote-v0": 5.0,
    "GSM8K-v0": 8.0,
    "HeadToHead-v0": 22.0,
    "KuhnPoker-v0": 2.0,
    "LeducPoker-v0": 2.0,
    "LiarsDice-v0": 20.0,
    "MatrixGame-v0": 3.0,
    "Negotiation-v0": 70.0,
    "Nim-v0": 6.0,
    "PigDice-v0": 3.0,
    "PlanExecute-v0": 18.0,
    "ProofVerification-v0": 6.0,
    "RefineLoop-v0": 12.0,
    "SelfDistillation-v0": 5.0,
    "SimpleNegotiation-v0": 12.0,
    "TicTacToe-v0": 14.0,
    "Tournament-v0": 5.0,
    "sums": 14.0,
}
"""Shares of the tenth stage, which restores what the ninth has worn away: every environment.

With share 1, one row in 250, an environment is not restored: RefineLoop and HeadToHead then learned less from the
finished model.
"""

EXACT = {
    **EVERYTHING,
    "Debate-v0": 20.0,
    "HeadToHead-v0": 40.0,
    "Negotiation-v0": 78.0,
    "PlanExecute-v0": 24.0,
    "ProposerSolver-v0": 60.0,
    "SPICE-v0": 16.0,
    "TicTacToe-v0": 60.0,
}
"""Shares of the eleventh stage: the environments where the tenth leaves most illegal replies or misspelt words."""
