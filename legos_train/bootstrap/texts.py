"""Training texts of the bundled model: random play in registered environments, made-up choices, and plain sentences.

A `Dialogue` is one training row. If an environment lists the legal replies, the row keeps the list: the model learns to
give each with equal probability, and nothing about which is better. After the last reply, a further message gives the
agent's return. To predict it, the model must read the cards or the board; a model that only learns to copy legal
replies does not, and then reinforcement learning has nothing to build on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from random import Random
from typing import Any, NamedTuple

import legos_envs
from legos_envs.games import MATRIX_GAMES
from legos_envs.parsing import write_action
from legos_envs.play import Runner
from legos_envs.records import Turn
from legos_train.bootstrap.sentences import WORDS, exchange, sentence, small_sum, table_fact


class Exchange(NamedTuple):
    """A user message and the reply.

    Attributes:
        prompt: the user message.
        reply: the reply.
        legal: legal replies, which the model learns to give in proportion to how often they are listed: all of them
            once, or as drawn from a mixture. None if there is no list. An empty list marks a reply that is not legal:
            it is context for what follows and never a target.
        share: without a list, how strongly the model learns this reply; 0 for text that is only read.
        best: the reply of the best scripted player, which must be readable off the hidden state; None: unknown.
    """

    prompt: str
    reply: str
    legal: tuple[str, ...] | None = None
    share: float = 0.0
    best: str | None = None


class Dialogue(NamedTuple):
    """One row: an optional system message, exchanges, and an optional last user message (the result).

    recall: number of last prompt tokens that the hidden state must contain at the choice.
    """

    source: str
    exchanges: tuple[Exchange, ...]
    result: str | None = None
    system: str | None = None
    recall: int = 0

    def texts(self) -> Iterator[str]:
        """All message contents."""
        if self.system is not None:
            yield self.system
        for one in self.exchanges:
            yield one.prompt
            yield one.reply
        if self.result is not None:
            yield self.result


def _kuhn(rng: Random) -> dict[str, Any]:
    return {"num_rounds": rng.randrange(2, 5)} if rng.random() < 0.15 else {}


def _matrix(rng: Random) -> dict[str, Any]:
    rounds = rng.choice((1, 1, 1, 1, 2, 3, 4))
    if rng.random() < 0.75:
        return {"game": rng.choice(list(MATRIX_GAMES)), "rounds": rounds}
    sizes = rng.randrange(2, 5), rng.randrange(2, 5)
    words = rng.sample(WORDS["move"], sum(sizes))
    payoffs = [[[rng.randrange(-3, 10) for _ in range(sizes[1])] for _ in range(sizes[0])] for _ in range(2)]
    return {"payoffs": payoffs, "actions": [words[: sizes[0]], words[sizes[0] :]], "rounds": rounds}


def _nim(rng: Random) -> dict[str, Any]:
    if rng.random() < 0.6:
        return {}
    most = rng.choice((None, 2, 3, 4, 5))
    if rng.random() < 0.5:
        low = rng.randrange(1, 12)
        return {"heap_range": (low, low + rng.randrange(8)), "max_take": most or 3, "misere": rng.random() < 0.5}
    heaps = [rng.randrange(1, 6) for _ in range(rng.randrange(2, 4))]
    return {"heaps": heaps, "max_take": most, "misere": rng.random() < 0.3}


GAMES = ("KuhnPoker-v0", "MatrixGame-v0", "Nim-v0", "TicTacToe-v0")
"""The environments that the model `tiny` reads."""

VARIANTS: dict[str, Callable[[Random], dict[str, Any]]] = {
    "KuhnPoker-v0": _kuhn,
    "MatrixGame-v0": _matrix,
    "Nim-v0": _nim,
}
"""Constructor arguments to draw for an environment that has variants; the others are created without any."""

RECALLED = {"TicTacToe-v0": 15}
"""By environment, how many last prompt tokens the hidden state at the choice must contain; see `training_rows.Site`."""

SHARES = {"TicTacToe-v0": 7.5, "made-up choices": 0.4, "sentences": 0.3}
"""The share of each source, in rows; an unnamed environment has share 1."""

GARBAGE = 0.03  # share of illegal replies, so that the model meets the message about them


def stream(seed: int | str) -> Iterator[Dialogue]:
    """An endless stream of dialogues, a function of the seed, of `GAMES` and of their rules."""
    rng = Random(f"texts {seed}")
    sources: dict[str, Callable[[Random], list[Dialogue]]] = {
        "made-up choices": lambda r: [made_up_choice(r)],
        "sentences": lambda r: [plain(r)],
    }
    for env_id in GAMES:
        sources[env_id] = lambda r, env_id=env_id: random_play(env_id, r)  # type: ignore[misc]
    names = sorted(sources)
    counts = dict.fromkeys(names, 0.0)
    while True:
        # An episode gives several rows: the source furthest behind its share is next, so that rows, not
        # episodes, have the shares.
        name = min(names, key=lambda n: counts[n] / SHARES.get(n, 1.0))
        rows = sources[name](rng)
        counts[name] += len(rows)
        yield from rows


def shuffled(dialogues: Iterator[Dialogue], size: int, rng: Random) -> Iterator[Dialogue]:
    """The dialogues in another order, so that the turns of an episode do not share a batch; `size` are buffered."""
    pool = list(islice(dialogues, size))
    while True:
        at = rng.randrange(len(pool))
        dialogue, pool[at] = pool[at], next(dialogues)
        yield dialogue


def random_play(env_id: str, rng: Random) -> list[Dialogue]:
    """The dialogues of one episode of uniformly random legal play."""
    kwargs = VARIANTS[env_id](rng) if env_id in VARIANTS else {}
    memory = "chat" if rng.random() < 0.1 else "state"
    style = "boxed" if rng.random() < 0.15 else "bracket"
    env = legos_envs.make(env_id, memory=memory, action_format=style, **kwargs)
    runner = Runner(env, rng.randrange(2**31))
    while not runner.done:
        for decision in runner.pending():
            legal = decision.legal_actions
            reply = rng.choice(legal) if legal else sentence(rng)
            if legal and rng.random() < GARBAGE:
                reply = write_action(rng.choice(WORDS["noun"]), style)
            runner.answer(decision, reply)
    rows: list[Dialogue] = []
    for agent, trajectory in runner.episode.trajectories.items():
        system = sentence(rng) if rng.random() < 0.05 else None
        exchanges = [_exchange(turn) for turn in trajectory.turns]
        if not exchanges:
            continue
        read = len(trajectory.turns[-1].observation) + 1
        messages = "".join(f"{message['content']}\n" for message in env.observe(agent)["messages"][read:])
        result = f"{messages}Result: {signed(trajectory.total)}"
        if memory == "chat":
            rows.append(Dialogue(env_id, tuple(exchanges), result, system))
        else:
            recall = RECALLED.get(env_id, 0)
            rows += [Dialogue(env_id, (one,), result, system, recall) for one in exchanges if one.legal != ()]
    return rows


def _exchange(turn: Turn) -> Exchange:
    legal = turn.legal_actions
    replies = legal if legal is None or turn.action in legal else ()
    return Exchange(turn.observation[-1]["content"], turn.action, replies)


def signed(value: float) -> str:
    """A return as text: `+2`, `-0.5`, `0`."""
    return f"{value:+.4g}" if value else "0"


def made_up_choice(rng: Random) -> Dialogue:
    """A choice among random words or numbers, in the form of environments, so that unknown games can be played too."""
    style = "boxed" if rng.random() < 0.2 else "bracket"
    count = rng.randrange(1, 10)
    kind = rng.choices(("numbers", "cells", "words"), (60, 20, 20))[0]
    if kind == "numbers":
        low = rng.choice((0, 1, 1, 1, rng.randrange(90)))
        moves = [str(n) for n in sorted(rng.sample(range(low, low + 10), count))]
    elif kind == "cells":
        moves = sorted(rng.sample([f"{letter}{n}" for letter in "ABCDEFGH" for n in range(1, 10)], count))
    else:
        moves = rng.sample(sorted(set(WORDS["move"])), count)
    legal = tuple(dict.fromkeys(write_action(move, style) for move in moves))
    text = f"{sentence(rng)}\nReply with one legal action: {' '.join(legal)}"
    return Dialogue("made-up choices", (Exchange(text, rng.choice(legal), legal),))


SUMS = 12  # per row


def sums(rng: Random) -> Dialogue:
    """A row of sums, each with its answer, which the model learns to give; most have one-digit numbers."""
    exchanges = []
    for _ in range(SUMS):
        asked, answer = table_fact(rng) if rng.random() < 0.7 else small_sum(rng)
        before = rng.choice(("Work out: {}", "What is {}?", "Compute {}.", "{} = ?"))
        after = rng.choice(("{1}", "Answer: {1}", "[{1}]", "\\boxed{{{1}}}", "{0} = {1}", "{0} = {1}\nAnswer: {1}"))
        exchanges.append(Exchange(before.format(asked), after.format(asked, answer), share=0.5))
    return Dialogue("sums", tuple(exchanges))


def plain(rng: Random) -> Dialogue:
    """A request and its answer in words."""
    system = sentence(rng) if rng.random() < 0.2 else None
    return Dialogue("sentences", (Exchange(*exchange(rng)),), None, system)
