r"""Several solvers answer one problem, and the majority's answer is the label. If the true answer is known, solvers are
paid for giving it, and the label is a metric: how much better is the vote than one solver? If it is not known, they are
paid for agreeing with the label, so a model can learn from problems that nobody has solved.

| | |
|---|---|
| seats | `solver_0` to `solver_4` |
| horizon | 5 turns, all at once |
| sum of rewards | general-sum, from -5 to 5 |
| sample action | `"Answer: 12" if agent != "solver_3" else "Answer: 13"` |

## What each seat is told

All solvers get the same question. None sees another's answer or the true one.

## Actions

Any text. The answer is read as in `Dataset-v0`: the last `\boxed{}`, else after `####`, else after `Answer:`, else the
last number.

## Rewards

Equal answers (`0.5` and `1/2`) form one camp. The largest camp is the label, provided it is the only one of its size
and has at least two members.

- `paid_by="truth"`, the default if the truth is known: 1 for each solver with the true answer, `-penalty` (-1 by
  default) for every other one.
- `paid_by="majority"`, the only option if it is not: 1 for each solver of that camp, `-penalty` for every other one,
  including those whose text has no answer, and 0 for all if there is no label. **This can be gamed**: solvers that all
  say 0 get 1 each. Watch `votes` and `agreement`, and `label_correct` on problems whose answer you know.
- A solver that says nothing gets `invalid_reward` (-1 by default) and has no vote.

Rewards range from -1 to 1. `info["paid_by"]` names the rule.

## End

When all have answered. `info` has `label` (None if there is none), `votes` (the size of each camp, largest first),
`agreement` (the largest camp's share), `truth` and `label_correct` if the truth is known, and for each solver `answer`
and `correct`. The outcome is `"label"` or `"no_label"`; `index` is available from the start.

## Scripted players

They know the generated problems: `oracle` is always right, `wrong` always off by one, `coin` one or the other.

| players | expected return | arguments | floor |
|---|---|---|---|
| `*=scripted:oracle` | `solver 1` | | `-0.85` |
| `*=scripted:oracle solver_0=scripted:wrong` | `solver_0 -0.5, solver_1 1` | `penalty=0.5` |
| `*=scripted:wrong` | `solver -1` | |
| `*=scripted:coin` | `solver 0` | |
| `*=scripted:wrong` | `solver 1` | `paid_by="majority"` | `+1` |
| `*=scripted:coin` | `solver 0.375` | `paid_by="majority"` |
| `*=scripted:coin` | `solver 0.375` | `paid_by="majority", num_solvers=4` |

With pay by the majority and k of 5 right by chance, a solver gets on average 1 for k = 0 or 5, 3/5 for 1 or 4 and 1/5
for 2 or 3: (2 * 1 + 10 * 0.6 + 20 * 0.2) / 32. With 4 solvers k = 2 is a tie: (2 * 1 + 8 * 0.5) / 16.

## Source

Zuo et al. 2025, "TTRL: Test-Time Reinforcement Learning", arXiv 2504.16084, which rewards agreement with the majority
without a penalty; that is `paid_by="majority", penalty=0`.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from legos_envs import arguments
from legos_envs.play import Decision
from legos_envs.scoring import answers
from legos_envs.table import Rules, Seat, Table
from legos_envs.tasks.problems import dataset, sources

PAID_BY = ("truth", "majority")


def camps(
    given: Sequence[str | None], right: Sequence[bool] | None = None, budget: answers.Budget | None = None
) -> list[list[int]]:
    """The indices of equal answers, largest camp first; an answer of None is in no camp. Each camp is represented by
    its first answer.

    Args:
        given: the answers.
        right: whether each is right, if known: the right ones form one camp.
        budget: time budget for comparing formulas.
    """
    budget = budget or answers.Budget(len(given))
    result: list[list[int]] = []
    for i, answer in enumerate(given):
        if answer is None:
            continue
        first = {camp[0]: camp for camp in result if right is None or right[camp[0]] is right[i]}
        if right is not None and right[i]:
            found = next(iter(first), None)
        else:
            told = {j: answers.agree(answer, given[j] or "", None) for j in first}
            found = next((j for j in first if told[j]), None)
            if found is None:
                asked = (j for j in first if told[j] is None)
                found = next((j for j in asked if answers.agree(answer, given[j] or "", budget)), None)
        if found is None:
            result.append([i])
        else:
            first[found].append(i)
    return sorted(result, key=len, reverse=True)


def coin(decision: Decision) -> str:
    """The true answer to a generated problem, or one more, with equal odds."""
    return dataset.oracle(decision) if Random(decision.seed).random() < 0.5 else dataset.wrong(decision)


def varied(decision: Decision) -> str:
    """Usually the true answer to a generated problem, otherwise a guess."""
    return dataset.guess(decision) if decision.seed % 3 == 0 else coin(decision)


class EnsembleVote(dataset.ProblemEnv):
    """Several solvers, with the majority's answer as the label; paid by the truth if known, else by the label.

    Args:
        source: source of the problems, as for `Dataset`.
        num_solvers: number of solvers, who answer concurrently; at least 2.
        penalty: loss of a solver that is wrong, or outside the largest camp; at least 0.
        paid_by: `"truth"` or `"majority"`; None means the truth if known (`answer` is not None).
        **kwargs: the other arguments of `Dataset`, except its rubric; `answer` may be None, for problems without a
            known answer.
    """

    name = "EnsembleVote-v0"
    default_memory = "state"
    scripted_players = {"random": varied, "oracle": dataset.oracle, "wrong": dataset.wrong, "coin": coin}

    def __init__(
        self,
        source: Any = sources.WORDS,
        *,
        num_solvers: int = 5,
        penalty: float = 1.0,
        paid_by: str | None = None,
        **kwargs: Any,
    ):
        self.penalty = arguments.real("penalty", penalty, 0)
        self.seats = {f"solver_{i}": Seat("solver") for i in range(arguments.whole("num_solvers", num_solvers, 2, 64))}
        self.max_asks = len(self.seats)
        super().__init__(source, **kwargs)
        self.paid_by = PAID_BY[not self.knows_truth]
        if paid_by is not None:
            self.paid_by = arguments.one_of("paid_by", paid_by, PAID_BY)
            if paid_by == "truth" and not self.knows_truth:
                raise ValueError("paid_by 'truth' needs true answers, but answer is None; use paid_by 'majority'")

    def play(self, table: Table) -> Rules[str | None]:
        _, truth, asked = self.problem(table)
        if truth is None:  # only the solvers' answers can be compared
            answers.prepare()
        texts = yield from table.gather(table.attempt(table.ask(agent, asked)) for agent in self.seats)
        given = [None if text is None else answers.final_answer(text) for text in texts]
        budget = answers.Budget(len(given))
        right = None if truth is None else [answers.same_answer(answer, truth, budget) for answer in given]
        voted = camps(given, right, budget)
        sizes = [len(camp) for camp in voted]
        clear = bool(sizes) and sizes[0] >= 2 and sizes[:2] != [sizes[0]] * 2
        label = given[voted[0][0]] if clear else None
        for i, (agent, text, answer) in enumerate(zip(self.seats, texts, given)):
            if text is not None and (clear or self.paid_by == "truth"):
                paid = right[i] if right and self.paid_by == "truth" else i in voted[0]
                table.reward(agent, 1.0 if paid else -self.penalty)
            table.note(agent, answer=answer and answer[: answers.MAX_CHARS])
            if right is not None:
                table.note(agent, correct=right[i])
        table.note(
            paid_by=self.paid_by,
            label=label and label[: answers.MAX_CHARS],
            votes=sizes,
            agreement=(sizes[0] if sizes else 0) / len(given),
            outcome="label" if clear else "no_label",
        )
        if right is not None:
            table.note(truth=truth, label_correct=clear and right[voted[0][0]])
        return label
