r"""One problem, one answer, checked by code: the plain task of reinforcement learning with verifiable rewards. Problems
come from the built-in generator, a local file or a Hugging Face data set. The reward is a rubric: correctness, format
and length, with weights that you choose, or your own functions.

| | |
|---|---|
| seats | `solver_0` |
| horizon | 1 turn (2 with a second try after saying nothing) |
| sum of rewards | 0 to 1.1 with the default weights |
| sample action | `"Answer: 12"` |

## What each seat is told

The question, inserted into the prompt template. Never the true answer, nor anything computed from it.

## Actions

Any text. The answer is read from the last `\boxed{...}`, else after the last `####`, else after the last `Answer:`,
else it is the last number. An action with no text outside thoughts is invalid; once retries are used up, it ends the
episode with `invalid_reward`. A text without any answer is wrong, not invalid.

## Rewards

The weighted sum of three functions, from 0 to 1.1 by default:

- `correct` (weight 1): 1 if the answer is the true one, else 0. See `legos_envs.scoring`: numbers exactly (`$1,234.00`
  is 1234), words as text, formulas by value or, if installed (`pip install "legos-selfplay[tasks]"`), by math-verify.
- `format` (weight 0.1): 1 if the text marks its answer by `\boxed{}`, `####` or `Answer:`, right or wrong.
- `length` (weight 0, so only a metric): minus the text's length as a share of `max_chars`, from 0 to -1.

`rubric=Rubric([...])` replaces them with your own functions, which may take `answer`, `truth`, `text`, `question`.

## End

After the answer. Then `info` has `correct`, `answer` (as read), `truth`, `scores` (every part of the rubric) and
`outcome`, which is `"correct"` or `"wrong"`; `index` is available from the start.

## Scripted players

They know the generated problems: `oracle` answers correctly, `unmarked` does so without marking the answer, and `wrong`
is off by one. `random` combines two numbers of the question.

| players | expected return | arguments | floor |
|---|---|---|---|
| `*=scripted:oracle` | `solver_0 1.1` | | `solver_0 +0.15` |
| `*=scripted:unmarked` | `solver_0 1.0` | `level=3` |
| `*=scripted:wrong` | `solver_0 0.1` | `order="random"` |
| `*=scripted:oracle` | `solver_0 2` | `weights={"correct": 2, "format": 0}` |

## Source

Rewards checked by code: Lambert et al. 2024, "Tulu 3", arXiv 2411.15124. The word problems are our own.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from legos_envs import arguments
from legos_envs.play import Decision
from legos_envs.scoring import RewardFunction, Rubric, Scores, answers
from legos_envs.table import Rules, Seat, Table
from legos_envs.tasks.problems import sources
from legos_envs.tasks.problems.word_problems import LEVELS, WordProblem, word_problem
from legos_envs.text_env import TextEnv

PROMPTS = {
    "bracket": "{question}\nSolve it step by step. The last line of your reply must be: Answer: RESULT",
    "boxed": "{question}\nSolve it step by step. Write the result as \\boxed{RESULT}.",
}
"""The default template for each `action_format`."""
WEIGHTS = {"correct": 1.0, "format": 0.1, "length": 0.0}


def correct(answer: str | None, truth: str) -> float:
    """1 if the answer is the true one."""
    return float(answers.same_answer(answer, truth))


def format(text: str) -> float:
    r"""1 if the text marks its answer, by `\boxed{}`, `####` or `Answer:`."""
    return float(answers.stated_answer(text) is not None)


def length(max_chars: int) -> RewardFunction:
    """A function that returns minus the text's length as a share of `max_chars`, at least -1."""

    def length(text: str) -> float:
        return -min(1.0, len(text) / max_chars)

    return length


def scored_by(weights: Mapping[str, float] | None, rubric: Rubric | None, max_chars: int) -> Rubric:
    """The rubric that the constructor arguments specify.

    Raises:
        ValueError: both a rubric and weights are given, or a weight is unknown or not a finite number.
    """
    if rubric is not None:
        if weights is not None:
            raise ValueError(f"give either weights or rubric, not both; got weights {weights!r}")
        if not isinstance(rubric, Rubric):
            raise ValueError(f"rubric must be a legos_envs.Rubric; got {rubric!r}")
        return rubric
    weights = arguments.mapping("weights", weights)
    for key in weights:
        if key not in WEIGHTS:
            raise ValueError(arguments.unknown("weight", key, list(WEIGHTS)))
    chosen = {key: arguments.real(f"weight {key}", value) for key, value in {**WEIGHTS, **weights}.items()}
    return Rubric([correct, format, length(arguments.whole("max_chars", max_chars, 1))], list(chosen.values()))


def template(prompt: str | None, action_format: str) -> str:
    """The prompt template.

    Raises:
        ValueError: it has no `{question}`.
    """
    chosen = PROMPTS[action_format] if prompt is None else arguments.text("prompt", prompt)
    if "{question}" not in chosen:
        raise ValueError(f"prompt must contain {{question}}; got {chosen!r}")
    return chosen


# --- players without a model -----------------------------------------------------------------------------------------


def known(decision: Decision) -> WordProblem | None:
    """The generated word problem of an episode, from its index in the info; None for other problems."""
    prompt = decision.messages[0]["content"]
    for level in (None, *LEVELS):
        made = word_problem(decision.info["index"], level)
        if made.question in prompt:
            return made
    return None


def known_answer(decision: Decision) -> int | None:
    """The answer to a generated word problem; None for other problems."""
    made = known(decision)
    return None if made is None else made.answer


def marked(answer: Any, decision: Decision) -> str:
    """An answer, marked as the prompt asks."""
    return f"\\boxed{{{answer}}}" if "\\boxed" in decision.messages[0]["content"] else f"Answer: {answer}"


def solution(working: str, answer: Any, decision: Decision) -> str:
    """A line of working, and the answer, marked as the prompt asks."""
    return f"{working} = {answer}\n{marked(answer, decision)}"


def guess(decision: Decision) -> str:
    """Adds, subtracts, multiplies or divides two numbers of the question; may or may not mark the answer."""
    rng = Random(decision.seed)
    numbers = [int(match) for match in answers.NUMBER.findall(decision.messages[0]["content"]) if match.isdigit()]
    one, other = rng.sample([*numbers, 1, 2], 2)
    result = rng.choice((one + other, abs(one - other), one * other, one // max(other, 1)))
    return rng.choice(
        (f"It is {result}.", marked(result, decision), f"First {one}, then {other}.\n{marked(result, decision)}")
    )


def oracle(decision: Decision) -> str:
    """The working of a generated problem and its true answer."""
    made = known(decision)
    return marked(None, decision) if made is None else solution(made.working, made.answer, decision)


def unmarked(decision: Decision) -> str:
    """The true answer to a generated problem, in a sentence."""
    return f"I get {known_answer(decision)}."


def wrong(decision: Decision) -> str:
    """One more than the true answer to a generated problem."""
    return marked((known_answer(decision) or 0) + 1, decision)


class ProblemEnv(TextEnv):
    """Base of environments whose episodes begin with a problem from a data set or the generator.

    Its arguments are those of `Dataset` about the source of the problems and the prompt.
    """

    slow_steps = True
    default_memory = "state"
    reset_options = {"index": "index of the problem, from 0"}

    def __init__(
        self,
        source: Any = sources.WORDS,
        *,
        question: str = "question",
        answer: str | None = "answer",
        fields: Mapping[str, str] | None = None,
        answer_pattern: str | None = None,
        config: str | None = None,
        split: str | None = None,
        bad_rows: str = "refuse",
        level: int | None = None,
        size: int = 10_000,
        order: str = "seed",
        prompt: str | None = None,
        **kwargs: Any,
    ):
        self.order = arguments.one_of("order", order, sources.ORDERS)
        self.problems = sources.open_source(
            source,
            question=question,
            answer=answer,
            fields=fields,
            answer_pattern=answer_pattern,
            config=config,
            split=split,
            bad_rows=bad_rows,
            level=level,
            size=size,
        )
        self.drawn = sources.drawn(self.problems, source, split)
        self.knows_truth = answer is not None
        super().__init__(**kwargs)
        self.prompt = template(prompt, self.action_format)

    def problem(self, table: Table) -> tuple[str, str | None, str]:
        """The episode's question, its true answer if known, and the prompt."""
        index = sources.choose(table, len(self.problems), self.order, self.drawn)
        question, truth = self.problems[index]
        table.note(index=index)
        if self.knows_truth and truth is not None:
            answers.prepare(truth)
        return question, truth if self.knows_truth else None, self.prompt.replace("{question}", question)


class Dataset(ProblemEnv):
    r"""One problem from a data set or the generator, one answer, a rubric for the reward.

    Args:
        source: `"words"`; a `.jsonl`, `.json` or `.parquet` file; `"hf:NAME"`; or a sequence of mappings.
        question: name of the field with the question.
        answer: name of the field with the true answer.
        fields: both names at once, as in the other tasks: `{"question": "problem", "answer": "solution"}`.
        answer_pattern: marker in that field after which the answer begins, such as `"####"`. None takes what a worked
            answer marks (`#### 72`, `\boxed{72}`), else the whole field.
        config: configuration of a Hugging Face data set, which is loaded when the env is created.
        split: for a Hugging Face data set, one of its own splits, `"train"` by default. Otherwise `"train"`, `"test"`
            or `"all"`: a fifth of the problems, by a hash of the question, is for testing. By default `"words"` uses
            training problems, and a file or sequence all of its problems.
        bad_rows: what to do with rows of a source that do not fit: `"refuse"`, or `"skip"` with a warning.
        level: level of `"words"`: 0 (one step, small numbers), 1 (one step) to 3; None for all but 0.
        size: number of problems of `"words"`.
        order: `"seed"` (seeds 0 to N-1 take each of N problems once, shuffled), `"sequential"` or `"random"`.
        prompt: template that contains `{question}`; the default asks for `Answer:`, or for a box.
        weights: weights of the reward's parts, `{"correct": 1, "format": 0.1, "length": 0}` by default; any may be left
            out.
        rubric: a `legos_envs.Rubric`, instead of `weights`.
        max_chars: text length at which `length` is -1.

    Raises:
        ValueError, FileNotFoundError: an argument is out of range, or the source cannot be read as specified.
        ImportError: a package that the source needs is missing.
        RuntimeError: a Hugging Face data set cannot be loaded.
    """

    name = "Dataset-v0"
    default_max_turns = 50
    seats = {"solver_0": Seat("solver")}
    scripted_players = {
        "random": guess,
        "oracle": oracle,
        "unmarked": unmarked,
        "wrong": wrong,
    }

    def __init__(
        self,
        source: Any = sources.WORDS,
        *,
        answer: str = "answer",
        weights: Mapping[str, float] | None = None,
        rubric: Rubric | None = None,
        max_chars: int = 4000,
        **kwargs: Any,
    ):
        self.rubric = scored_by(weights, rubric, max_chars)
        super().__init__(source, answer=arguments.text("answer", answer, 200), **kwargs)

    def play(self, table: Table) -> Rules[Scores]:
        question, truth, asked = self.problem(table)
        assert truth is not None
        text = yield from table.ask("solver_0", asked)
        answer = answers.final_answer(text)
        scores = self.rubric(answer=answer, truth=truth, text=text, question=question)
        right = scores.parts["correct"] if "correct" in scores.parts else correct(answer, truth)
        table.reward("solver_0", scores.total)
        table.note(
            correct=right == 1,
            answer=None if answer is None else answer[: answers.MAX_CHARS],
            truth=truth,
            scores=dict(scores.parts),
            outcome="correct" if right == 1 else "wrong",
        )
        return scores
