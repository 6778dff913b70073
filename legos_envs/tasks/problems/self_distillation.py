r"""A model writes several solutions to a problem, a verifier accepts or rejects each, and the accepted ones become
training data for the model itself. Code knows the true answer and pays both accordingly; `write_dataset` writes the
accepted solutions as chat examples for supervised fine-tuning.

| | |
|---|---|
| seats | `generator_0` to `generator_3` (role `generator`), `verifier_0` to `verifier_3` (role `verifier`) |
| horizon | 8 turns: four solutions at once, and a verdict on each |
| sum of rewards | not constant: 0 to 8 |
| sample action | `"Answer: 12" if info["role"] == "generator" else "[accept]"` |

## What each seat is told

All generators: the same problem, and how to mark the answer. Verifier i: the problem and the solution of generator i,
quoted, in a separate conversation. Nobody is told the true answer, another's solution or another's verdict.

## Actions

Generators: any text. The answer is read as in `Dataset-v0`: the last `\boxed{}`, else after `####`, else after
`Answer:`, else the last number. Verifiers: `[accept]` or `[reject]`.

## Rewards

Each from 0 to 1, as soon as a solution has its verdict.

- Generator: 1 if its solution is right and passes the filter, else 0: with `filter="truth"` the verdict does not
  matter, so that a verifier that rejects everything does not stop generators from learning.
- Verifier: 1 if it accepts a right solution or rejects a wrong one, else 0.
- If no true answer is known, generators get 1 if accepted, verifiers 0.
- An invalid move gets `invalid_reward`; its partner then gets 0, and the solution is left out of the data. A generator
  whose verifier gives no valid verdict ends with `info["trainable"]` False, so that nothing is learned from its 0.

## End

After the last verdict. `info["accepted"]` is a list of `{"prompt", "completion"}`, one for each solution that passes
the filter, without repetitions, in sample order; the completion excludes thoughts. `info` also has `index` and `truth`,
generators have `correct` (None if the truth is unknown) and `accepted_by_verifier`. The outcome is `"kept"` if
something was accepted, else `"nothing"`.

The env writes no files. To collect the data of many episodes:

    write_dataset(episodes, "data.jsonl")   # returns how many examples were written

Each line is `{"messages": [{"role": "user", ...}, {"role": "assistant", ...}]}`.

## Scripted players

They know the generated problems. Generators: `oracle` is right, `wrong` off by one, `coin` one or the other.
Verifiers: `oracle` is right, `trusting` accepts and `strict` rejects everything.

| players | expected return | arguments | floor |
|---|---|---|---|
| `*=scripted:oracle` | `generator +1, verifier +1` | |
| `generator=scripted:wrong verifier=scripted:oracle` | `generator 0, verifier +1` | `num_samples=2` |
| `generator=scripted:coin verifier=scripted:oracle` | `generator +0.5, verifier +1` | | `+0.5, generator +0.01` |
| `generator=scripted:coin verifier=scripted:trusting` | `generator +0.5, verifier +0.5` | |
| `generator=scripted:coin verifier=scripted:strict` | `generator 0, verifier +0.5` | |

## Source

Zelikman et al., 2022, "STaR: Bootstrapping reasoning with reasoning" (arXiv:2203.14465); Gulcehre et al., 2023,
"Reinforced self-training (ReST)" (arXiv:2308.08998); Hosseini et al., 2024, "V-STaR: Training verifiers for
self-taught reasoners" (arXiv:2402.06457).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from legos_envs import arguments
from legos_envs.play import Decision
from legos_envs.records import Episode
from legos_envs.scoring import answers, judging
from legos_envs.table import Forfeit, Rules, Seat, Table
from legos_envs.tasks.problems import dataset, sources

FILTERS = ("verifier", "truth", "both")
VERDICTS = ("accept", "reject")
Demonstration = dict[str, str]


class SelfDistillation(dataset.ProblemEnv):
    """Several samples of one problem, each with its own verifier.

    Args:
        source: source of the problems, as for `Dataset`.
        num_samples: number of solutions, written concurrently, 1 to 64.
        filter: criterion for acceptance: the verifier accepts (`"verifier"`), the answer is right (`"truth"`), or
            `"both"`.
        **kwargs: the other arguments of `Dataset`, except its rubric; `answer` may be None, for problems without a
            known answer, with `filter="verifier"`.
    """

    name = "SelfDistillation-v0"
    default_memory = "chat"

    def __init__(
        self,
        source: Any = sources.WORDS,
        *,
        num_samples: int = 4,
        filter: str = "verifier",
        **kwargs: Any,
    ):
        self.filter = arguments.one_of("filter", filter, FILTERS)
        if kwargs.get("answer", "answer") is None and filter != "verifier":
            raise ValueError(f"filter {filter!r} needs true answers, but answer is None; use filter 'verifier'")
        numbers = range(arguments.whole("num_samples", num_samples, 1, 64))
        self.seats = {f"generator_{i}": Seat("generator") for i in numbers}
        self.seats |= {f"verifier_{i}": Seat("verifier") for i in numbers}
        self.max_asks = len(self.seats)
        super().__init__(source, **kwargs)
        self.num_samples = len(numbers)

    def play(self, table: Table) -> Rules[list[Demonstration]]:
        """Returns the accepted examples."""
        problem = self.problem(table)
        budget = answers.Budget(self.num_samples)
        kept = yield from table.gather(self._sample(table, i, *problem, budget) for i in range(self.num_samples))
        _, truth, asked = problem
        texts = dict.fromkeys(text for text in kept if text is not None)
        accepted = [{"prompt": asked, "completion": text} for text in texts]
        table.note(accepted=accepted, truth=truth, outcome="kept" if accepted else "nothing")
        return accepted

    def _sample(
        self, table: Table, number: int, question: str, truth: str | None, asked: str, budget: answers.Budget
    ) -> Rules[str | None]:
        """One solution and its verdict; the text if it passes the filter."""
        generator, verifier = f"generator_{number}", f"verifier_{number}"
        text = None
        try:
            text = yield from table.ask(generator, asked)
            quote = judging.quoted(table.sub(generator), {"solution": text})
            verdict = yield from table.ask(
                verifier, f"A problem:\n{question}\n{quote}\nIs the final answer of the solution right?", legal=VERDICTS
            )
        except Forfeit as forfeit:
            table.penalize(forfeit)
            if text is not None:  # nothing may be learned from a zero without a verdict
                table.note(generator, trainable=False)
            return None
        accepted = verdict == "accept"
        right = None if truth is None else answers.same_answer(answers.final_answer(text), truth, budget)
        kept = {"verifier": accepted, "truth": right, "both": accepted and right}[self.filter]
        table.reward(generator, float(bool(kept) and right is not False))
        table.reward(verifier, float(right is not None and accepted == right))
        table.note(generator, correct=right, accepted_by_verifier=accepted)
        return text if kept else None


def write_dataset(episodes: Iterable[Episode], path: str | Path) -> int:
    """Writes the accepted solutions of episodes as chat examples, one JSON object a line, without repetitions.

    The file is written atomically and replaces an existing one. Episodes without accepted solutions (of another env, or
    truncated) add nothing.

    Returns:
        The number of examples written.

    Raises:
        OSError: the file cannot be written.
    """
    path = Path(path)
    examples = dict.fromkeys(
        (example["prompt"], example["completion"])
        for episode in episodes
        for example in episode.info.get("accepted", ())
    )
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            for prompt, completion in examples:
                messages = [{"role": "user", "content": prompt}, {"role": "assistant", "content": completion}]
                file.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return len(examples)


# --- scripted players ------------------------------------------------------------------------------------------------


def _coin(decision: Decision) -> str:
    return (dataset.oracle if decision.seed % 2 else dataset.wrong)(decision)


def _oracle(decision: Decision) -> str:
    if decision.role == "generator":
        return dataset.oracle(decision)
    reply = judging.unquoted(decision.messages[0]["content"])["solution"]
    right = answers.same_answer(answers.final_answer(reply), str(dataset.known_answer(decision)))
    return VERDICTS[not right]


def _random(decision: Decision) -> str:
    if decision.role == "verifier":
        return VERDICTS[decision.seed % 2]
    return (dataset.oracle, dataset.wrong, dataset.guess)[decision.seed % 3](decision)


SelfDistillation.scripted_players = {
    "random": _random,
    "oracle": _oracle,
    "wrong": lambda decision: dataset.wrong(decision) if decision.role == "generator" else "reject",
    "coin": lambda decision: _coin(decision) if decision.role == "generator" else VERDICTS[decision.seed % 2],
    "trusting": lambda decision: dataset.oracle(decision) if decision.role == "generator" else "accept",
    "strict": lambda decision: dataset.oracle(decision) if decision.role == "generator" else "reject",
}
