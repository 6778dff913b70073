r"""A proposer writes a problem, several solvers try it at once, and the proposer is paid most if half of them succeed.
So both learn: solvers to solve, the proposer to stay at the edge of their abilities. In the domain `"arithmetic"` code
evaluates every problem; in `"free"` the proposer's answer is the key, provided the answers of other seats confirm it.

| | |
|---|---|
| seats | `proposer_0`; `problem_0/solver_0` to `problem_0/solver_3` |
| horizon | 5 turns: the proposer, then four solvers at once; in `"free"` two more |
| sum of rewards | general-sum, from -4 to 4 |
| sample action | `"Problem: 3 * (2 + 7)\nAnswer: 27" if agent == "proposer_0" else "Answer: 27"` |

## What each seat is told

The proposer: what to write, and that it is paid for problems that about half of the solvers get right. Each solver: the
problem, and nothing else that the proposer wrote, neither its answer nor its reasoning. Solvers do not see one another.

With `num_problems=M` there are `proposer_0` to `proposer_{M-1}`, who write concurrently, and the solvers of problem m
are `problem_m/solver_0` and so on. In `"free"` each problem also has `problem_m/checker_0` and `problem_m/checker_1`,
who see the same as solvers. Credit methods that group by path (hierarchical GRPO) compare the solvers of one problem
with one another, and proposers with proposers.

## Actions

The proposer writes two lines; any text before them is ignored.

    Problem: 3 * (4 + 5)
    Answer: 27

- `"arithmetic"`: the problem is one line of whole numbers with at most 6 digits, `+ - * /` and parentheses, at most 200
  characters. It is evaluated exactly, by a dedicated parser; fractions are fine as answers (`3/4`).
- `"free"`: the problem is everything from `Problem:` to `Answer:`, in words.

A solver writes any text; its answer is read as in `Dataset-v0` (`\boxed{}`, `####`, `Answer:`, the last number). In
`"arithmetic"` it must be a number: the expression itself is not an answer.

## Rewards

- A solver: 1 if its answer is right, else 0.
- A proposer, where p is the share of solvers that are right: `1 - 2|p - 1/2|` (`"goldilocks"`), or `4p(1 - p)`
  (`"variance"`). Between 0 and 1.
- A problem earns its proposer 0, and no solver is asked, if its stated answer is wrong (`"wrong_answer"`, arithmetic),
  if it has no operation (`"trivial"`, arithmetic), if it contains its answer, even in another spelling of the number
  (`"leaked"`, free), if it is in `seen`, is the example in the proposer's prompt, or another proposer of the episode
  wrote it too (`"duplicate"`), or if it is not in the split (`"off_split"`).
- In `"free"` nobody knows whether a key is right. So a problem counts only if every checker also gives the key, and no
  other answer of the solvers is as frequent as the key. Otherwise (`"disputed"`) its proposer earns 0, and so does
  everybody who answered, with `info["trainable"]` False. A wrong key, or a question that can only be guessed ("Did its
  face point up?"), seldom gets through; a checker is paid like a solver.
- A proposer that writes no valid problem (`"invalid"`, after the retries) gets `invalid_reward`, -1 by default; so does
  a solver that says nothing. Nobody else is penalised.

## End

When all have answered. `info["verdicts"]` has the verdict on each problem: `"played"` or one of the values above.
`info["outcome"]` is that verdict if all problems share it (`"invalid_problem"` for `"invalid"`), else `"mixed"`. Agents
at a problem have `problem`, `truth` and `solve_rate`, solvers also `correct`.

## Arguments

Problems count as equal if they differ only in spaces, redundant parentheses and the order of summands and factors
(arithmetic), or in punctuation and case (free). An env keeps no memory of earlier episodes: a caller that wants new
problems throughout a training run collects them and passes them as `seen`.

`split="train"` and `split="test"` keep training and test apart: a fifth of all problems, by a hash that is the same for
all their spellings, is for testing, and only problems of the split are played. Proposers are not told which problems
those are. To measure solvers on problems that were never trained on, let `scripted:optimal` propose with
`split="test"`: the scripted proposers write problems of the split only.

## Scripted players

Proposers: `optimal` writes a problem with its right answer, `liar` one with a wrong answer. Solvers: `optimal`
evaluates the expression, `coin` is right half of the time, `liar` never.

| players | expected return | arguments | floor |
|---|---|---|---|
| `*=scripted:coin proposer=scripted:optimal` | `proposer 0.625, solver 0.5` | | `0, learned 1, again 1, longest 1` |
| `proposer=scripted:optimal solver=scripted:coin` | `proposer 0.75, solver 0.5` | `proposer_reward="variance"` |
| `*=scripted:optimal` | `proposer 0, solver 1` | `domain="free"` | `proposer 0, solver 0, together 0.86` |
| `proposer=scripted:liar solver=scripted:optimal` | `proposer 0, solver 0` | |

With k of 4 solvers right by chance, the first row is (4 * 0.5 + 6 * 1 + 4 * 0.5) / 16, the second (4 * 0.75 + 6 * 1 + 4
* 0.75) / 16. A proposer that keeps writing one good problem is paid each time unless the problem is in `seen`; hence
the floors of 1.

A known limit: in the free domain only the seats themselves know the answer. If all seats give the same answer, right or
wrong, the solvers and checkers earn 1 each and the proposer nothing: a total of 6 over 7 seats. If you have true
answers, use `domain="arithmetic"`, or `Dataset-v0` with your own rows.

## Source

Zhao et al. 2025, "Absolute Zero: Reinforced Self-play Reasoning with Zero Data", arXiv 2505.03335; Huang et al. 2025,
"R-Zero: Self-Evolving Reasoning LLM from Zero Data", arXiv 2508.05004 (the reward `1 - 2|p - 1/2|`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import partial
from random import Random
from typing import Any

from legos_envs import arguments
from legos_envs.play import Decision
from legos_envs.scoring import answers
from legos_envs.table import InvalidMove, Rules, Seat, Table
from legos_envs.tasks.problems import arithmetic, dataset, proposals
from legos_envs.tasks.problems.ensemble_vote import camps
from legos_envs.tasks.problems.proposed_problems import DOMAINS, Proposal, examine, problem_key
from legos_envs.tasks.splits import SPLITS, part_of
from legos_envs.text_env import TextEnv

REWARDS: dict[str, Callable[[float], float]] = {"goldilocks": proposals.goldilocks, "variance": proposals.variance}
FIELDS = ("Problem", "Answer")
FORM = "{need} You are paid most when about half of the solvers get it right.\nEnd with two lines:\n{example}"
EXAMPLES = {
    "arithmetic": "3 * (4 + 5)",
    "free": "Ana has 3 bags with 9 shells each. How many shells has she?",
}
"""The problem in the proposer's prompt, whose answer is 27; writing it again counts as a duplicate."""
NEEDS = {
    "arithmetic": "Write an arithmetic problem for other solvers, with whole numbers, + - * / and parentheses.",
    "free": "Write a problem in words for other solvers, with one short answer that can be checked. "
    "Do not state the answer in the problem.",
}
ASKED = {
    domain: FORM.format(need=need, example=f"Problem: {EXAMPLES[domain]}\nAnswer: 27") for domain, need in NEEDS.items()
}
SOLVE = {
    "arithmetic": "Work out: {problem}\nThe last line of your reply must be: Answer: NUMBER",
    "free": "{problem}\nThe last line of your reply must be: Answer: RESULT",
}
SOLVE_BOXED = {
    "arithmetic": "Work out: {problem}\nWrite the result as \\boxed{NUMBER}.",
    "free": "{problem}\nWrite the result as \\boxed{RESULT}.",
}


# --- players without a model -----------------------------------------------------------------------------------------


def _asked(decision: Decision) -> str:
    return decision.messages[0]["content"]


def _expression(rng: Random, decision: Decision) -> str:
    """An expression of the env's split whose value is not among its numbers, so that no question states its answer."""
    if rng.random() < 0.5:
        a, b, c = rng.sample(range(2, 10), 3)
        text = rng.choice((f"{a} + {b}", f"{a} * {b}", f"{a} - {b}"))
    else:
        a, b, c = rng.sample(range(2, 40), 3)
        text = rng.choice((f"{a} * {b} - {c}", f"({a} + {b}) * {c}", f"{a} / {b} + {c}", f"{c} - {a} * {b}"))
    split, domain = decision.info.get("split", "all"), DOMAINS["in words" in _asked(decision)]
    fits = split in ("all", part_of(problem_key(_problem(decision, text), domain)))
    return text if fits and abs(arithmetic.read(text).value) not in (a, b, c) else _expression(rng, decision)


def _problem(decision: Decision, expression: str) -> str:
    return f"What is {expression}?" if "in words" in _asked(decision) else expression


def _propose(decision: Decision, expression: str, answer: Fraction) -> str:
    problem = _problem(decision, expression)
    thought = f"Draft {10 + decision.seed % 90}."
    return f"{thought}\nProblem: {problem}\nAnswer: {answer}"


def _truth(decision: Decision) -> tuple[str, Fraction]:
    """The expression that a solver is asked about, and its value; 0 if there is none."""
    line = _asked(decision).partition("\n")[0].removeprefix("Work out: ").removeprefix("What is ").removesuffix("?")
    try:
        return line, arithmetic.read(line).value
    except arithmetic.BadExpression:
        return "0", Fraction(0)


def _player(decision: Decision, odds: float) -> str:
    """A proposer or solver that is right with the given odds."""
    rng = Random(decision.seed)
    error = 0 if rng.random() < odds else 1
    if decision.role == "proposer":
        expression = _expression(rng, decision)
        return _propose(decision, expression, arithmetic.read(expression).value + error)
    working, value = _truth(decision)
    return dataset.solution(working, value + error, decision)


def varied(decision: Decision) -> str:
    """A proposer of mostly good and some trivial or wrong problems; a solver that is right two times in three."""
    if decision.role == "proposer" and decision.seed % 7 == 0:
        return _propose(decision, "7", Fraction(7))
    return _player(decision, 0.95 if decision.role == "proposer" else 0.66)


class ProposerSolver(TextEnv):
    """One seat writes problems, several solve them at once; the proposer is paid for problems that half of them solve.

    Args:
        num_solvers: number of solvers per problem.
        num_problems: number of proposers, each of whom writes a problem.
        domain: `"arithmetic"` (expressions, evaluated by code) or `"free"` (words; the proposer's answer is the key).
        proposer_reward: `"goldilocks"` or `"variance"`.
        seen: problems that earn 0 as duplicates.
        num_checkers: number of seats that check the key by answering independently, in `"free"`; 0 leaves that to the
            solvers.
        split: problems that are played: `"all"`, `"train"` or `"test"`.
    """

    slow_steps = True
    name = "ProposerSolver-v0"
    default_memory = "state"
    hidden_information = True
    reset_options = {
        "problem": "the problem, instead of the proposers', so that only solvers play",
        "answer": "its answer; optional for arithmetic",
        "seen": "a list of problems that earn 0 as duplicates",
    }
    scripted_players = {
        "random": varied,
        "optimal": partial(_player, odds=1.0),
        "coin": partial(_player, odds=0.5),
        "liar": partial(_player, odds=0.0),
    }

    def __init__(
        self,
        num_solvers: int = 4,
        num_problems: int = 1,
        domain: str = "arithmetic",
        proposer_reward: str = "goldilocks",
        seen: Iterable[str] = (),
        split: str = "all",
        num_checkers: int = 2,
        **kwargs: Any,
    ):
        solvers = arguments.whole("num_solvers", num_solvers, 1, 64)
        self.num_problems = arguments.whole("num_problems", num_problems, 1, 64)
        self.domain = arguments.one_of("domain", domain, DOMAINS)
        self.pays = REWARDS[arguments.one_of("proposer_reward", proposer_reward, tuple(REWARDS))]
        self.split = arguments.one_of("split", split, SPLITS)
        self.seen = frozenset([*self._keys("seen", seen), problem_key(EXAMPLES[domain], domain)])
        self.solvers = [f"solver_{i}" for i in range(solvers)]
        self.seats = {f"proposer_{m}": Seat("proposer") for m in range(self.num_problems)} | {
            f"problem_{m}/{solver}": Seat("solver") for m in range(self.num_problems) for solver in self.solvers
        }
        checkers = arguments.whole("num_checkers", num_checkers, 0, 64) if domain == "free" else 0
        self.checkers = [f"checker_{i}" for i in range(checkers)]
        self.seats |= {
            f"problem_{m}/{checker}": Seat("checker") for m in range(self.num_problems) for checker in self.checkers
        }
        self.max_asks = len(self.seats)
        super().__init__(**kwargs)
        asked = SOLVE_BOXED if self.action_format == "boxed" else SOLVE
        self.solve = asked[self.domain]

    def _keys(self, name: str, problems: Any) -> list[str]:
        if isinstance(problems, str) or not isinstance(problems, Iterable):
            raise ValueError(f"{name} must be a list of problems; got {problems!r}")
        return [problem_key(arguments.text(f"a problem in {name}", problem), self.domain) for problem in problems]

    def private_texts(self, agent: str) -> list[str]:
        """The lines that a proposer wrote in addition to its problem."""
        if not agent.startswith("proposer"):
            return []
        lines = [line for who, text in self.log if who == agent for line in text.splitlines()]
        return [line for line in lines if line.strip() and not line.startswith(FIELDS)]

    def play(self, table: Table) -> Rules[list[str]]:
        proposers = [f"proposer_{m}" for m in range(self.num_problems)]
        given = self._given(table)
        if self.split != "all":
            table.note(split=self.split)  # for the scripted proposers
        if given is None:
            written = yield from table.gather(self._propose(table, proposer) for proposer in proposers)
        else:
            written = [given] * self.num_problems
        often = Counter(proposal.key for proposal in written if proposal is not None)
        seen = self.seen.union(self._keys("option seen", table.options.get("seen", ())))
        verdicts = []
        for proposal in written:
            if proposal is None:
                verdicts.append("invalid")
            elif given is None and proposal.verdict == "played" and (often[proposal.key] > 1 or proposal.key in seen):
                verdicts.append("duplicate")
            elif proposal.verdict == "played" and self.split not in ("all", part_of(proposal.key)):
                verdicts.append("off_split")
            else:
                verdicts.append(proposal.verdict)
        if self.domain == "free":
            answers.prepare(*[made.answer for made in written if made is not None], seconds=answers.WAIT)
        rates = yield from table.gather(
            self._solve(table.sub(f"problem_{m}"), proposal, given is None and self.domain == "free")
            for m, (proposal, verdict) in enumerate(zip(written, verdicts))
            if proposal is not None and verdict == "played"
        )
        paid = iter(rates)
        for m, (proposer, proposal) in enumerate(zip(proposers, written)):
            rate = next(paid) if verdicts[m] == "played" else None
            if verdicts[m] == "played" and rate is None:
                verdicts[m] = "disputed"
            if rate is not None and given is None:
                table.reward(proposer, self.pays(rate))
            if proposal is not None:
                table.note(proposer, problem=proposal.problem, truth=proposal.answer, solve_rate=rate)
        shared = verdicts[0] if len(set(verdicts)) == 1 else "mixed"
        table.note(verdicts=verdicts, outcome="invalid_problem" if shared == "invalid" else shared)
        return verdicts

    def _given(self, table: Table) -> Proposal | None:
        """The problem given by the options; it is played even if a proposer would earn nothing with it."""
        problem, answer = table.options.get("problem"), table.options.get("answer")
        if problem is None:
            if answer is not None:
                raise ValueError(f"option answer needs option problem; got answer {answer!r} alone")
            return None
        problem = arguments.text("option problem", problem, proposals.MAX_PROBLEM)
        if self.domain == "free" or answer is not None:
            answer = arguments.text("option answer", answer, proposals.MAX_ANSWER)
        try:
            proposal = examine(problem, answer or "", self.domain)
        except InvalidMove as error:
            raise ValueError(f"option problem cannot be played: {error}; got {problem!r}") from None
        if answer is not None and proposal.verdict == "wrong_answer":
            raise ValueError(
                f"option answer must be {proposal.answer!r}, which is what {problem!r} gives; got {answer!r}"
            )
        if self.split not in ("all", part_of(proposal.key)):
            raise ValueError(f"option problem must be of split {self.split!r}, and {problem!r} is not; use split 'all'")
        return proposal._replace(verdict="played")

    def _propose(self, table: Table, proposer: str) -> Rules[Proposal | None]:
        """Asks for a problem; None if there is no valid one, for which only the proposer is penalised."""

        def parse(text: str) -> Proposal:
            result = proposals.fields(text, FIELDS)
            return examine(result["Problem"], result["Answer"], self.domain)

        return (yield from table.attempt(table.ask(proposer, ASKED[self.domain], parse=parse)))

    def _solve(self, table: Table, proposal: Proposal, check: bool) -> Rules[float | None]:
        """Lets all solvers try a problem; returns the share that is right, or None if its key is disputed."""
        agents = self.solvers + (self.checkers if check else [])
        given = yield from table.gather(self._attempt(table, agent, proposal) for agent in agents)
        budget = answers.Budget(len(agents))
        right = [answer is not None and self._right(answer, proposal, budget) for answer in given]
        solved, count = right[: len(self.solvers)], len(self.solvers)
        if check and not (all(right[count:]) and _leads(given[:count], solved, budget)):
            for agent, answer in zip(agents, given):
                if answer is not None:  # saying nothing is already penalised
                    table.note(agent, trainable=False)
            table.note(problem=proposal.problem, truth=proposal.answer, solve_rate=None)
            return None
        for agent, answer, good in zip(agents, given, right):
            if answer is not None:
                table.reward(agent, float(good))
                table.note(agent, correct=good)
        rate = sum(solved) / count
        table.note(problem=proposal.problem, truth=proposal.answer, solve_rate=rate)
        return rate

    def _attempt(self, table: Table, agent: str, proposal: Proposal) -> Rules[str | None]:
        """The answer of a solver or checker: empty if its text has none, None if it says nothing."""
        text = yield from table.attempt(table.ask(agent, self.solve.replace("{problem}", proposal.problem)))
        return None if text is None else answers.final_answer(text) or ""

    def _right(self, answer: str, proposal: Proposal, budget: answers.Budget) -> bool:
        if self.domain == "arithmetic":
            return answers.same_number(answer, proposal.answer)
        return answers.same_answer(answer, proposal.answer, budget, known=False)


def _leads(given: Sequence[str | None], right: Sequence[bool], budget: answers.Budget) -> bool:
    """Whether no wrong answer is as frequent as the right one."""
    wrong = camps([answer or None for answer, good in zip(given, right) if not good], budget=budget)
    return not wrong or sum(right) > len(wrong[0])
