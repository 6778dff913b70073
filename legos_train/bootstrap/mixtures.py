"""Training data of the bundled model `small`: every registered environment, played by mixtures of scripted players.

If only play is at stake (`GAMES`), all seats play uniformly random legal moves, and the model learns to play each with
equal probability. In the other environments a seat is taken by its best scripted player or by a weak one, and the model
learns to answer like the best with probability `BEST_SHARE`: good answers exist but are rare, as reinforcement learning
needs them. Half of what it reads is still play of the best, with less weight on the replies, so that it knows where
good play leads; and the best player's reply must be readable off the hidden state by a matrix that is discarded
(`training_rows.READ_BEST`). So the model reads operands, lists and boards, although it mostly answers as if it had
not. In `DRAWN` it learns the distribution of the replies instead of one of them.

Problems, passages and exercises of the test split are never read.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any, cast

import legos_envs
from legos_envs.parsing import write_action
from legos_envs.play import Decision, Policy, Runner
from legos_envs.policies import ScriptedPolicy
from legos_envs.records import Trajectory
from legos_train.bootstrap import text_shares, texts
from legos_train.bootstrap.sentences import WORDS, sentence
from legos_train.bootstrap.texts import Dialogue, Exchange, made_up_choice, plain, signed, sums

BEST_SHARE = 0.2
BEST_SHARES = {"Amplification-v0": 0.5, "PlanExecute-v0": 0.5}
"""Shares of the best player in environments where a reward takes several good answers in a row."""
READ_SHARE = 0.5
"""Share of seats played by the best player in the data; `Exchange.share` corrects for the rest."""
CHAT_SHARE = 0.15
BLOCK = 4
"""Number of consecutive rows from one source: they share prefixes and are trained together."""
HELD = 96  # buffered rows of a source, so that those of an episode are spread out
SPOILED = 0.06  # share of free replies, so that the model meets refusals; they are read but not learned
EPISODE_ROWS = 6  # maximum rows of one agent in one episode
MOST_TURNS = 150
DRAWN = {"Negotiation-v0": 300, "SimpleNegotiation-v0": 300}
"""How many replies are drawn from the mixture at each decision. Where a legal reply depends on numbers in the prompt,
the model learns that from the distribution of the replies, and hardly from one of them."""

GAMES = (*texts.GAMES, "ConnectFour-v0", "LeducPoker-v0", "LiarsDice-v0", "PigDice-v0")
"""Played uniformly at random."""

SeatPolicies = Mapping[str, tuple[str, ...]]
"""By role: the best scripted player, then the weak ones, each as often as it is listed. `"*"`: any other role."""
_PROBLEMS = {"*": ("oracle", "random", "random", "random", "wrong", "unmarked")}
_SPEECHES = {"*": ("on_topic", "random", "random", "short", "long")}
SEATINGS: dict[str, SeatPolicies] = {
    "Amplification-v0": {
        "assistant": ("decompose", "guess", "guess", "random"),
        "*": ("calculator", "calculator", "liar"),
    },
    "CodeGen-v0": {"coder": ("good", "almost", "almost", "poor"), "tester": ("good", "single", "poor")},
    "Dataset-v0": _PROBLEMS,
    "Debate-v0": _SPEECHES,
    "EloArena-v0": _SPEECHES,
    "EnsembleVote-v0": {"*": ("oracle", "random", "random", "wrong")},
    "GSM8K-v0": _PROBLEMS,
    "HeadToHead-v0": _SPEECHES,
    "Negotiation-v0": {"*": ("trader", "random", "greedy", "greedy", "greedy")},
    "PlanExecute-v0": {"*": ("good", "poor", "poor", "poor", "lost")},
    "ProofVerification-v0": {"prover": ("faithful", "poor", "poor", "random"), "*": ("good", "random")},
    "ProposerSolver-v0": {"proposer": ("optimal", "liar"), "*": ("optimal", "coin", "liar", "liar")},
    "RedBlue-v0": {
        "attacker": ("guesser", "ask_nicely", "ask_nicely", "random"),
        "defender": ("sound", "leaky", "silent", "random"),
    },
    "RefineLoop-v0": {"generator": ("good", "half"), "critic": ("good", "random")},
    "SPICE-v0": {"challenger": ("cloze", "forger", "random"), "reasoner": ("reader", "coin", "ignorant", "random")},
    "SelfDistillation-v0": {"generator": ("oracle", "wrong", "random"), "*": ("oracle", "coin", "trusting", "strict")},
    "SimpleNegotiation-v0": {"*": ("shrewd", "random", "random", "trusting")},
    "Tournament-v0": _SPEECHES,
}
"""The players in environments that are not in `GAMES`. One in neither is played at random."""


def _liars_dice(rng: Random) -> dict[str, Any]:
    return {"one_round": True, "dice": rng.randrange(1, 4)} if rng.random() < 0.4 else {}


def _few_goods(rng: Random) -> dict[str, Any]:
    return {"quantities": (1, rng.randrange(1, 4))} if rng.random() < 0.5 else {}


def _words(rng: Random) -> dict[str, Any]:
    return {"level": 0} if rng.random() < 0.7 else {}


VARIANTS: dict[str, Callable[[Random], dict[str, Any]]] = {
    **texts.VARIANTS,
    "Dataset-v0": _words,
    "Debate-v0": lambda rng: {"about": "principle"} if rng.random() < 0.25 else {},
    "EnsembleVote-v0": _words,
    "GSM8K-v0": _words,
    "LiarsDice-v0": _liars_dice,
    "Negotiation-v0": _few_goods,
    "RedBlue-v0": lambda rng: {"variant": rng.choice(("policy", "patch"))} if rng.random() < 0.3 else {},
    "SelfDistillation-v0": _words,
}
"""Constructor arguments to draw, as `texts.VARIANTS`."""


def stream(
    seed: int | str, of: Mapping[str, float] = text_shares.FIRST, chat: float = CHAT_SHARE
) -> Iterator[Dialogue]:
    """An endless stream of dialogues, `BLOCK` from one source at a time: a function of seed and registered rules.

    Args:
        seed: of the draws.
        of: shares of the sources.
        chat: share of the episodes with `memory="chat"`.
    """
    rng = Random(f"mixtures {seed}")
    sources: dict[str, Callable[[Random], list[Dialogue]]] = {
        "made-up choices": lambda r: [made_up_choice(r)],
        "sentences": lambda r: [plain(r)],
    }
    if "sums" in of:
        sources["sums"] = lambda r: [sums(r)]
    for env_id in legos_envs.registered():
        sources[env_id] = lambda r, env_id=env_id: play(env_id, r, chat)  # type: ignore[misc]
    names = sorted(sources)
    held: dict[str, list[Dialogue]] = {name: [] for name in names}
    given = {name: rng.random() for name in names}
    while True:
        name = min(names, key=lambda n: given[n] / of.get(n, 1.0))
        given[name] += BLOCK
        rows = held[name]
        while len(rows) < HELD:
            rows += sources[name](rng)
        for _ in range(BLOCK):
            at = rng.randrange(len(rows))
            rows[at], rows[-1] = rows[-1], rows[at]
            yield rows.pop()


def play(env_id: str, rng: Random, chat: float = CHAT_SHARE) -> list[Dialogue]:
    """The dialogues of one episode: uniformly random legal play in `GAMES`, elsewhere a mixture of players."""
    kwargs = VARIANTS[env_id](rng) if env_id in VARIANTS else {}
    memory = "chat" if rng.random() < chat else "state"
    style = "boxed" if rng.random() < 0.2 else "bracket"
    if _has_items(env_id):
        kwargs["split"] = "train"
    env = legos_envs.make(env_id, memory=memory, action_format=style, **kwargs)
    seats = _Seats(env_id, dict(env.unwrapped.scripted_players), style, rng)
    runner = Runner(env, rng.randrange(2**31))
    turns = 0
    while not runner.done and turns < MOST_TURNS:
        for decision in runner.pending():
            turns += 1
            runner.answer(decision, seats.reply(decision))
    if not runner.done:
        return []
    rows: list[Dialogue] = []
    for agent, trajectory in runner.episode.trajectories.items():
        rows += seats.rows(trajectory, env.observe(agent)["messages"], memory)
    return rows


@functools.cache
def _has_items(env_id: str) -> bool:
    """Whether an environment has problems, passages or the like, some of which are held out."""
    try:
        legos_envs.make(env_id, split="train")
    except (TypeError, ValueError):
        return False
    return True


class _Seats:
    """The players of one episode, and what the model should learn from each answer."""

    def __init__(self, env_id: str, players: dict[str, Policy], style: str, rng: Random):
        self.env_id, self.style, self.rng = env_id, style, rng
        self.players = cast(dict[str, Callable[[Decision], str]], players)
        self.seating = SEATINGS.get(env_id, {})
        self.names: dict[str, str] = {}
        self.exchanges: dict[str, list[Exchange]] = {}
        self.recall = texts.RECALLED.get(env_id, 0)

    def reply(self, decision: Decision) -> str:
        """The answer; recorded with what to learn from it."""
        reply, share, best = self._said(decision)
        legal = decision.legal_actions
        if legal and reply not in legal:
            legal = ()
        if not legal and self.seating and self.rng.random() < SPOILED:
            reply, legal, best = self._spoil(reply), (), None
        elif not legal and self.env_id in DRAWN:
            legal = (reply, *self._drawn(decision))
        prompt = decision.messages[-1]["content"]
        exchange = Exchange(prompt, reply, legal, 0.0 if legal is not None else share, best)
        self.exchanges.setdefault(decision.agent, []).append(exchange)
        return reply

    def _names(self, decision: Decision) -> tuple[str, ...]:
        """The best player for a decision, then the weak ones."""
        names = self.seating.get(decision.role, self.seating.get("*", ()))
        return tuple(name for name in names if name in self.players)

    def _said(self, decision: Decision) -> tuple[str, float, str | None]:
        """The reply, its share, and the best player's reply."""
        legal, rng = decision.legal_actions, self.rng
        names = self._names(decision)
        best_share = BEST_SHARES.get(self.env_id, BEST_SHARE)
        best = self._ask(names[0], decision) if names else None
        if legal and best not in legal:
            best = None
        if legal:
            garbage = rng.random() < texts.GARBAGE
            reply = write_action(rng.choice(WORDS["noun"]), self.style) if garbage else rng.choice(legal)
            return reply, 0.0, best
        if not names:
            players = [name for name in self.players if name == "random"] or list(self.players)
            return self._ask(rng.choice(players), decision) or sentence(rng), 1.0, None
        if decision.agent not in self.names:
            weak = names[1:] or names
            self.names[decision.agent] = names[0] if rng.random() < READ_SHARE else rng.choice(weak)
        name = self.names[decision.agent]
        if name == names[0] and best is not None:
            return best, best_share / READ_SHARE, best
        return self._ask(name, decision) or sentence(rng), (1.0 - best_share) / (1.0 - READ_SHARE), best

    def _drawn(self, decision: Decision) -> list[str]:
        """Replies of the mixture, each as often as it is likely."""
        best, *weak = self._names(decision)
        count, best_share = DRAWN[self.env_id], BEST_SHARES.get(self.env_id, BEST_SHARE)
        often = {best: best_share} | {name: (1.0 - best_share) * weak.count(name) / len(weak) for name in weak}
        drawn = [
            self._ask(name, replace(decision, salt=self.rng.getrandbits(63)))
            for name, share in often.items()
            for _ in range(round(share * count))
        ]
        return [reply for reply in drawn if reply is not None]

    def _spoil(self, reply: str) -> str:
        """A part of a reply, or something else that an environment mostly refuses."""
        return sentence(self.rng) if self.rng.random() < 0.5 else reply[: self.rng.randrange(1, len(reply) + 1)]

    def _ask(self, name: str, decision: Decision) -> str | None:
        answer = ScriptedPolicy(self.players[name])(decision)
        return answer if isinstance(answer, str) and answer.strip() else None

    def rows(self, trajectory: Trajectory, messages: tuple[dict[str, str], ...], memory: str) -> list[Dialogue]:
        """The training rows of a seat: the whole conversation, or each exchange separately."""
        exchanges = self.exchanges.get(trajectory.agent, [])
        if not exchanges:
            return []
        read = len(trajectory.turns[-1].observation) + 1
        last = "".join(f"{message['content']}\n" for message in messages[read:])
        result = f"{last}Result: {signed(trajectory.total)}"
        system = sentence(self.rng) if self.rng.random() < 0.05 else None
        if memory == "chat":
            return [Dialogue(self.env_id, tuple(exchanges), result, system)]
        kept = [one for one in exchanges if one.legal != ()]
        kept = self.rng.sample(kept, min(EPISODE_ROWS, len(kept)))
        return [Dialogue(self.env_id, (one,), result, system, self.recall) for one in kept]
