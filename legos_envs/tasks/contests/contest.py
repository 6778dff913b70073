"""A contest: several players answer the same prompt without seeing each other, and judges compare every two answers.

It has no id: it is the default match of `HeadToHead-v0` and `EloArena-v0`. Seats are `answer_0`, `answer_1`, ... and
one judge per pair, `judge_0`, ..., so that all pairs are judged at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from legos_envs import arguments
from legos_envs.play import Decision
from legos_envs.scoring import judging
from legos_envs.table import Forfeit, Rules, Seat, Table
from legos_envs.tasks import on_topic, open_prompts
from legos_envs.tasks.given_items import given_items
from legos_envs.tasks.problems.sources import choose
from legos_envs.tasks.talk import excerpt
from legos_envs.text_env import TextEnv

PROMPTS = (
    "Explain to a child of eight why the sky is blue.",
    "Give a shy person one piece of advice for a first day at a new job.",
    "How does a vaccine protect somebody who never gets it?",
    "Name one thing that a city could do to have fewer cars, and say why it would work.",
    "Tell a story of three sentences that begins with a lost key.",
    "What is the difference between weather and climate?",
    "Why do most bridges have a gap at their ends?",
    "Describe how to tie a shoelace to somebody who cannot see you.",
    "What should one look at before signing a contract for a flat?",
    "Is it better to read one book twice or two books once? Give your reasons.",
    "Why does ice float, and what would happen to lakes if it sank?",
    "Write a note to a neighbour who plays loud music at night.",
)
MOST = 8
ASKED = "\nAnswer in at most"


class Contest(TextEnv):
    """Two or more players answer the same prompt; judges compare every pair in both orders.

    An answer's reward is the mean of its verdicts against the others: 1 for a win, 0 for a draw, -1 for a loss. One in
    eight of the built-in prompts is handwritten, the others come from templates.

    Args:
        criteria: criteria for the judges, one text or several; None leaves the choice of criteria to the judges.
        source: prompts (field `prompt`): a path (`.jsonl`, `.json`, `.parquet`), `"hf:NAME"` or a list; None for the
            built-in ones.
        fields: the source's names for the task's fields, such as `{"prompt": "question"}`.
        split: items to use, built-in or from a source: `"all"`, `"train"` or `"test"`; for a Hugging Face data set, one
            of its own splits.
        config: configuration of a Hugging Face data set.
        bad_rows: what to do with rows of a source that do not fit: `"refuse"`, or `"skip"` with a warning.
        num_answers: number of answers, 2 to 8.
        max_answer_chars: maximum length of an answer that judges read.
    """

    name = "Contest"
    zero_sum = True
    default_memory = "state"
    reset_options = {"prompt": "what all answer"}

    def __init__(
        self,
        criteria: str | Sequence[str] | None = None,
        source: Any = None,
        fields: Mapping[str, str] | None = None,
        split: str = "all",
        config: str | None = None,
        bad_rows: str = "refuse",
        num_answers: int = 2,
        max_answer_chars: int = 2000,
        **kwargs: Any,
    ):
        self.split = split
        self.items = given_items(source, {"prompt": "prompt"}, fields, split, config, bad_rows, make=_prompt)
        self.task = "You compare two answers, A and B, to the same prompt."
        if criteria is not None:
            self.task += f" What counts: {' '.join(judging.criteria(criteria))}"
        self.max_answer_chars = arguments.whole("max_answer_chars", max_answer_chars, 1, self.max_action_chars)
        self.authors = [f"answer_{i}" for i in range(arguments.whole("num_answers", num_answers, 2, MOST))]
        self.pairs = list(combinations(self.authors, 2))
        self.seats = dict.fromkeys(self.authors, Seat("answer"))
        self.seats |= {f"judge_{k}": Seat("judge", trainable=False) for k in range(len(self.pairs))}
        self.max_asks = len(self.authors) + 2 * len(self.pairs)
        super().__init__(**kwargs)

    def play(self, table: Table) -> Rules[Forfeit | None]:
        """Returns the forfeit of the seats that gave no answer, if the others could be compared without them."""
        given = table.options.get("prompt")
        prompt = self._draw(table) if given is None else arguments.text("option prompt", given)
        replies = yield from table.gather([self._answer(table, author, prompt) for author in self.authors])
        answers = {author: reply for author, reply in zip(self.authors, replies) if isinstance(reply, str)}
        forfeits = [reply for reply in replies if isinstance(reply, Forfeit)]
        if len(answers) < 2:
            raise Forfeit.joint(forfeits)
        judged = [(f"judge_{k}", pair) for k, pair in enumerate(self.pairs) if answers.keys() >= {*pair}]
        verdicts = yield from table.gather([self._judge(table, judge, pair, prompt, answers) for judge, pair in judged])
        for (_, (first, second)), won in zip(judged, verdicts):
            table.reward(first, won / (len(answers) - 1))
            table.reward(second, -won / (len(answers) - 1))
        table.note(verdicts=[[*pair, won] for (_, pair), won in zip(judged, verdicts)])
        if not forfeits:
            return None
        table.settle(Forfeit.joint(forfeits))
        return Forfeit.joint(forfeits)

    def _draw(self, table: Table) -> str:
        if self.items is None:
            return open_prompts.draw(table.rng, PROMPTS, self.split)
        return self.items[choose(table, len(self.items), "seed")]

    def _answer(self, table: Table, author: str, prompt: str) -> Rules[str | Forfeit]:
        task = f"{prompt}{ASKED} {self.max_answer_chars} characters. A judge compares your answer with others."
        try:
            return excerpt((yield from table.ask(author, task)), self.max_answer_chars)
        except Forfeit as forfeit:
            return forfeit

    def _judge(
        self, table: Table, judge: str, pair: tuple[str, str], prompt: str, answers: dict[str, str]
    ) -> Rules[int]:
        return (
            yield from judging.compare(
                table.branch(judge),  # judges draw the nonces of their quotes concurrently
                judge,
                self.task,
                [answers[author] for author in pair],
                "Which answer is better, A or B?",
                context={"prompt": prompt},
            )
        )


def _prompt(row: dict[str, Any]) -> str:
    return arguments.text("prompt", row["prompt"])


# --- scripted players ------------------------------------------------------------------------------------------------

ANSWERS = (
    "It depends.",
    "Start with what you can see, and ask one question.",
    "Because the small parts add up, and nobody notices them one at a time.",
    "Three things matter here: time, money and who decides. The last one is the one that people forget.",
)


def _random(decision: Decision) -> str:
    choices = decision.legal_actions or ANSWERS
    said = None if decision.legal_actions else on_topic.say(_subject(decision), decision.seed)
    return said or choices[decision.seed % len(choices)]


def _subject(decision: Decision) -> str:
    return decision.messages[0]["content"].partition(ASKED)[0]


def _longer(decision: Decision) -> str:
    """A judge that prefers the longer answer (A on a tie); answers at random."""
    if not decision.legal_actions:
        return _random(decision)
    shown = judging.unquoted(decision.messages[0]["content"])
    return judging.LABELS[len(shown["B"]) > len(shown["A"])]


def _long(decision: Decision) -> str:
    return _longer(decision) if decision.legal_actions else ANSWERS[-1]


def _short(decision: Decision) -> str:
    return _longer(decision) if decision.legal_actions else ANSWERS[0]


def _first(decision: Decision) -> str:
    return judging.LABELS[0] if decision.legal_actions else _random(decision)


def _on_topic(decision: Decision) -> str:
    if decision.legal_actions:
        return on_topic.verdict(decision.messages[0]["content"])
    return on_topic.say(_subject(decision)) or ANSWERS[0]


Contest.scripted_players = {
    "random": _random,
    "long": _long,
    "short": _short,
    "longer": _longer,
    "first": _first,
    "on_topic": _on_topic,
}
