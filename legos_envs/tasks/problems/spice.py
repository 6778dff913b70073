r"""A challenger reads a document and writes a question about it; reasoners answer without the document. The challenger
is paid most if half of the reasoners are right, and the document keeps it honest, since it must contain the answer.
This is the task of SPICE (self-play in corpus environments).

| | |
|---|---|
| seats | `challenger_0`; `question_0/reasoner_0` to `question_0/reasoner_3` |
| horizon | 5 turns: the challenger, then four reasoners at once |
| sum of rewards | general-sum, from -4 to 4.05 |

```python
import legos_envs

env = legos_envs.make("SPICE-v0")
env.reset(seed=0, options={"document": "The capital of Peru is Lima."})
for agent in env.agent_iter():
    observation, reward, terminated, truncated, info = env.last()
    said = "Question: What is the capital of Peru?\nAnswer: Lima" if agent == "challenger_0" else "Answer: Lima"
    env.step(None if terminated or truncated else said)
```

## What each seat is told

The challenger: the document, and what makes a good question. Each reasoner: only the question. Nobody else sees the
document, the challenger's answer or its reasoning, and reasoners do not see one another.

## Actions

The challenger's reply ends with two lines, `Question: ...` and `Answer: ...`; any text before them is ignored. A
reasoner writes any text; its answer is read as in `Dataset-v0` (`\boxed{}`, `####`, `Answer:`, the last number) and
compared in the same way: words ignoring case and articles, numbers exactly.

## Rewards

- A reasoner: 1 if its answer is the challenger's, else 0.
- The challenger: `exp(-(v - 0.25)^2 / (2 * 0.01))`, where p is the share of reasoners that are right and v = p(1 - p)
  its variance. The reward is 1 for p = 1/2 and 0.044 if all or none are right.
- A question whose answer is not in the document word for word (`"unsupported"`), or that contains its answer
  (`"leaked"`), pays the challenger `bad_question_reward` (-0.1); no reasoner is asked.
- A challenger that writes no valid question (after the retries) and a reasoner that says nothing get `invalid_reward`,
  -1 by default. Nobody else is penalised.

## End

When all reasoners have answered. `info["outcome"]` is `"played"`, `"unsupported"`, `"leaked"` or `"invalid_question"`.
Only then do infos have `document`, `title`, `question`, `truth` and `solve_rate`, a reasoner's also `correct`.

## Arguments

`source="facts"`, the default, provides 4,000 passages, each with four facts about one of 32 towns of a made-up world.
The same 224 facts recur in many passages, so that a reasoner can learn them, just as it can learn facts about the real
world. `source="sample"` provides 24 passages about real things; other sources are your own documents.

`split="train"` and `split="test"` keep training and test apart: a fifth of the passages, by a hash of their text, is
for testing. So no passage is in both, but all facts are: a reasoner that answers test questions recalls what it met in
training.

## Scripted players

Challengers: `cloze` leaves out the last word of a sentence and asks for it, `forger` gives answers that are not in the
document. Reasoners: `reader` knows the bundled passages by heart, `coin` recalls them half of the time, `ignorant`
never answers correctly. `random` plays both roles; its reasoner guesses what it does not know.

| players | expected return | arguments | floor |
|---|---|---|---|
| `challenger=scripted:cloze reasoner=scripted:reader` | `challenger 0.04394, reasoner 1` | |
| `challenger=scripted:cloze reasoner=scripted:coin` | `challenger 0.79177, reasoner 0.5` | | `+0.05` |
| `challenger=scripted:forger reasoner=scripted:reader` | `challenger -0.1, reasoner 0` | |

With k of 4 reasoners right by chance, the second row is (2 * 0.04394 + 8 * 0.82258 + 6) / 16.

## Source

Liu et al. 2025, "SPICE: Self-Play In Corpus Environments Improves Reasoning", arXiv 2510.24684. Two parts of the paper
are left out: multiple-choice questions, and a model that rates a question before it is asked; here code checks that the
document contains the answer.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any

from legos_envs import arguments
from legos_envs.play import Decision
from legos_envs.scoring import answers
from legos_envs.table import Rules, Seat, Table
from legos_envs.tasks.given_items import without_source
from legos_envs.tasks.problems import facts, proposals, sources
from legos_envs.tasks.problems.corpus import BUILT_IN, Document, open_corpus
from legos_envs.tasks.raw_rows import HUB
from legos_envs.tasks.rows import BAD_ROWS
from legos_envs.tasks.splits import of_split
from legos_envs.text_env import TextEnv

FIELDS = ("Question", "Answer")
ASKED = (
    "Read the document. Write a question about it for others, who must answer without the document.\n"
    "The answer must stand word for word in the document, be short, and not be in the question.\n"
    "You are paid most when about half of them get it right.\n"
    "Document: {title}\n{text}\n"
    "End of the document. End your reply with two lines:\nQuestion: ...\nAnswer: ..."
)
ANSWER = {
    "bracket": "{question}\nThe last line of your reply must be: Answer: RESULT",
    "boxed": "{question}\nWrite the result as \\boxed{RESULT}.",
}
GAP = "____"
WINDOW = 10
"""Number of words of a sentence before the gap."""


def variance_reward(rate: float) -> float:
    """The challenger's reward for a question that a share `rate` of the reasoners got right: at most 1, at 1/2."""
    return math.exp(-((rate * (1 - rate) - 0.25) ** 2) / (2 * 0.01))


# --- players without a model -----------------------------------------------------------------------------------------


def cloze(decision: Decision) -> str:
    """A challenger that omits a sentence's last word, if unique in the passage; a reasoner that knows all passages."""
    if decision.role != "challenger":
        return _reasoner(decision, 1.0)
    prompt = decision.messages[0]["content"]
    body = prompt.partition("Document: ")[2].partition("\nEnd of the document.")[0].partition("\n")[2].split()
    once = Counter(proposals.words(" ".join(body)).split())
    ends = [i for i, word in enumerate(body) if word.endswith(".") or i == len(body) - 1]
    starts = [max(0, at - WINDOW, *[i + 1 for i in ends if i < at]) for at in ends]
    places = [
        (start, at)
        for start, at in zip(starts, ends)
        if start < at and once[proposals.words(body[at]).strip()] == 1 and len(body[at]) > 3
    ]
    start, at = Random(decision.seed).choice(places or [(max(0, len(body) // 2 - WINDOW), len(body) // 2)])
    return f"Question: Which word is missing: {' '.join([*body[start:at], GAP])}.\nAnswer: {body[at].rstrip('.')}"


def forger(decision: Decision) -> str:
    """A challenger whose answer is in no document."""
    return "Question: What is the password?\nAnswer: xyzzy plugh"


def _reasoner(decision: Decision, odds: float, guess: bool = False) -> str:
    """A reasoner that recalls any passage with the given odds; otherwise it guesses or admits that it does not know."""
    prompt, rng = decision.messages[0]["content"], Random(decision.seed)
    before = prompt.partition("\n")[0].partition("missing: ")[2].partition(GAP)[0]
    knows, result = rng.random() < odds, "I do not know"
    if knows and before:
        for text in (facts.all_sentences(), *(" ".join(document.text.split()) for document in open_corpus())):
            _, hit, rest = text.partition(before)
            if hit:
                result = rest.split()[0].rstrip(".")
    elif guess and (values := facts.values_after(before)):
        result = rng.choice(values)
    return f"\\boxed{{{result}}}" if "\\boxed" in prompt else f"Answer: {result}"


def varied(decision: Decision) -> str:
    """A challenger that leaves a word out, asks how a passage begins, or forges; a reasoner that knows or guesses."""
    if decision.role != "challenger":
        return _reasoner(decision, 0.5, guess=True)
    body = decision.messages[0]["content"].partition("Document: ")[2].partition("\n")[2]
    style = (decision.seed + len(body)) % 8
    if style < 4:
        return cloze(decision)
    return forger(decision) if style == 7 else f"Question: How does the passage begin?\nAnswer: {body.split()[0]}"


class SPICE(TextEnv):
    """A challenger asks about a document; reasoners answer without it. Questions that half of them get right pay best.

    Args:
        source: `"facts"`, `"sample"`; a path or several: `.txt`, or `.jsonl`, `.json` and `.parquet` with a field
            `text` and optionally `title`, or a directory of such files; `"hf:NAME"`; or a list of mappings.
        split: `"all"`, `"train"` or `"test"`; for a Hugging Face data set, one of its own splits.
        num_reasoners: number of reasoners, who answer concurrently.
        bad_question_reward: the challenger's reward for a question that contains its answer, or whose answer is not in
            the document.
        order: assignment of documents to seeds, as for `Dataset`.
        max_chars: maximum length of a passage; longer documents are split into several.
        fields: names of `text` and `title` in your source, such as `{"text": "body"}`.
        config: configuration of a Hugging Face data set.
        bad_rows: `"refuse"` or `"skip"`.

    Raises:
        ValueError: an argument or reset option is out of range, or the corpus cannot be read.
        FileNotFoundError: there is no such corpus.
    """

    slow_steps = True
    name = "SPICE-v0"
    default_memory = "state"
    hidden_information = True
    reset_options = {"index": "index of the passage, from 0", "document": "a text to ask about instead"}
    scripted_players = {
        "random": varied,
        "cloze": cloze,
        "forger": forger,
        "reader": partial(_reasoner, odds=1.0),
        "coin": partial(_reasoner, odds=0.5),
        "ignorant": partial(_reasoner, odds=0.0),
    }

    def __init__(
        self,
        source: Any = BUILT_IN[0],
        split: str = "all",
        num_reasoners: int = 4,
        bad_question_reward: float = -0.1,
        order: str = "seed",
        max_chars: int = 4000,
        fields: Mapping[str, str] | None = None,
        config: str | None = None,
        bad_rows: str = "refuse",
        **kwargs: Any,
    ):
        self.reasoners = [f"reasoner_{i}" for i in range(arguments.whole("num_reasoners", num_reasoners, 1, 64))]
        self.bad_question_reward = arguments.real("bad_question_reward", bad_question_reward)
        self.order = arguments.one_of("order", order, sources.ORDERS)
        max_chars = arguments.whole("max_chars", max_chars, 100)
        built_in = isinstance(source, str) and source in BUILT_IN
        if built_in:
            arguments.one_of("bad_rows", bad_rows, BAD_ROWS)
            without_source(fields=fields, config=config)
        if built_in and source == "facts":
            documents = facts.all_passages()
        else:
            opened = None if built_in else source
            documents = open_corpus(opened, max_chars, fields=fields, split=split, config=config, bad_rows=bad_rows)
        hub = isinstance(source, str) and source.startswith(HUB)
        self.documents = documents if hub else of_split(documents, split, lambda document: document.text)
        self.seats = {"challenger_0": Seat("challenger")} | {
            f"question_0/{reasoner}": Seat("reasoner") for reasoner in self.reasoners
        }
        self.max_asks = len(self.seats)
        super().__init__(**kwargs)

    def _document(self, table: Table) -> Document:
        given = table.options.get("document")
        if given is not None:
            return Document("given", arguments.text("option document", given))
        return self.documents[sources.choose(table, len(self.documents), self.order)]

    def private_texts(self, agent: str) -> list[str]:
        """The sentences of the document, which only the challenger may know before the end."""
        if agent != "challenger_0":
            return []
        sentences = self._read.text.replace("\n", ". ").split(". ")
        return [sentence for sentence in sentences if len(sentence) > 20 and '"' not in sentence]

    def play(self, table: Table) -> Rules[str]:
        document = self._read = self._document(table)
        asked = ASKED.replace("{title}", document.title).replace("{text}", document.text)
        posed = yield from table.attempt(table.ask("challenger_0", asked, parse=self._parse))
        if posed is None:
            table.note(document=document.text, title=document.title, outcome="invalid_question")
            return "invalid_question"
        question, truth = posed
        verdict, rate = "played", None
        if not proposals.contains(document.text, truth):
            verdict = "unsupported"
        elif proposals.gives_away(question, truth):
            verdict = "leaked"
        if verdict == "played":
            place = table.sub("question_0")
            answers.prepare(truth, seconds=answers.WAIT)
            budget = answers.Budget(len(self.reasoners))
            right = yield from table.gather(
                self._attempt(place, agent, question, truth, budget) for agent in self.reasoners
            )
            rate = sum(right) / len(right)
        table.reward("challenger_0", self.bad_question_reward if rate is None else variance_reward(rate))
        table.note(
            document=document.text,
            title=document.title,
            question=question,
            truth=truth,
            solve_rate=rate,
            outcome=verdict,
        )
        return verdict

    @staticmethod
    def _parse(text: str) -> tuple[str, str]:
        result = proposals.fields(text, FIELDS)
        return proposals.bounded("question", result["Question"]), proposals.bounded("answer", result["Answer"])

    def _attempt(self, table: Table, agent: str, question: str, truth: str, budget: answers.Budget) -> Rules[bool]:
        asked = ANSWER[self.action_format].replace("{question}", question)
        text = yield from table.attempt(table.ask(agent, asked))
        if text is None:
            return False
        right = answers.same_answer(answers.final_answer(text), truth, budget, known=False)
        table.reward(agent, float(right))
        table.note(agent, correct=right)
        return right
