"""An episode while it is played: who answers for each seat, and what every model seat has read and written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from legos_envs import Decision, Runner
from legos_envs.records import Turn
from legos_train.rollout.jobs import Job
from legos_train.rollout.players import ModelPlayer, Player, actors

if TYPE_CHECKING:  # policies of code and endpoints need no tokenizer
    from inference.text import Conversation

TOKENS = ("prompt_tokens", "action_tokens", "logprobs", "policy_version", "finish_reason", "token_versions", "written")
"""The fields of a turn with the tokens read and written."""


@dataclass(slots=True)
class OpenTurn:
    """A single message, and the model's reply (None: not yet)."""

    messages: tuple[dict[str, str], ...]
    reply: Sequence[int] | None = None


@dataclass(slots=True, eq=False)
class LiveEpisode:
    """An episode being played.

    Attributes:
        index: its place in the batch.
        runner: steps its env.
        declared: agent -> whether the env trains the seat.
        slow: whether its steps may take long (`slow_steps.py`).
        conversations: of model seats that were asked with more than a single message.
        begun: of the others, the last message and reply: a conversation is only made where a second message comes.
    """

    index: int
    job: Job
    runner: Runner
    declared: Mapping[str, bool]
    slow: bool
    conversations: dict[str, Conversation] = field(default_factory=dict)
    begun: dict[str, OpenTurn] = field(default_factory=dict)

    def player(self, decision: Decision) -> Player:
        """Who answers.

        Raises:
            KeyError: the job has no player for that seat.
        """
        declared = self.declared.get(decision.agent, True)
        player: Player | None = actors.lookup(self.job.players, decision.agent, decision.role, declared)
        if player is None:
            raise KeyError(
                f"no player for {decision.agent!r} (role {decision.role!r}); players are given for "
                f"{sorted(self.job.players)}"
            )
        return player

    def conversation(self, agent: str, player: ModelPlayer) -> Conversation:
        """The dialogue of an agent; it begins with the reply to its last single message, if there was one."""
        conversation = self.conversations.get(agent)
        if conversation is None:
            from inference.text import Conversation

            conversation = self.conversations[agent] = Conversation(player.renderer, player.system)
            begun = self.begun.pop(agent, None)
            if begun is not None:
                conversation.prompt(begun.messages)
                if begun.reply is not None:
                    conversation.record(begun.reply)
        return conversation

    def record(self, agent: str, tokens: Sequence[int]) -> None:
        """Adds what a model seat has written to what it has read."""
        begun = self.begun.get(agent)
        if begun is None:
            self.conversations[agent].record(tokens)
        else:
            begun.reply = tokens

    def settle(self, decision: Decision, turn: Turn) -> None:
        """Steps the env, unless an answer before this one has reached the turn limit."""
        if not self.runner.done:
            self.runner.take(decision, turn)

    def answer_again(self) -> None:
        """Replays the answers that the episode starts with.

        Raises:
            RuntimeError: the env does not repeat its questions.
        """
        job = self.job
        waiting: dict[str, Decision] = {}
        for agent, turn in job.begin:
            waiting |= {decision.agent: decision for decision in self.runner.pending()}
            decision = waiting.pop(agent, None)
            if decision is None or list(decision.messages) != list(turn.observation):
                raise RuntimeError(
                    f"{job.env} cannot continue from the middle of an episode: after the same seed ({job.seed}) and "
                    f"answers {agent!r} was not asked the same again. Its reset must determine all chance by the seed "
                    "(`legos envs check`)"
                )
            if isinstance(player := self.player(decision), ModelPlayer) and turn.action_tokens is not None:
                conversation = self.conversation(agent, player)
                conversation.prompt(decision.messages)
                conversation.record(turn.action_tokens)
            self.runner.answer(decision, turn.action, **{name: getattr(turn, name) for name in TOKENS})
        self.runner.out.difference_update(waiting)  # they are asked again, of the players that continue


def turn_of(decision: Decision, text: str, **tokens: Any) -> Turn:
    """A decision's turn, in which the seat says `text`."""
    return Turn(decision.messages, text, legal_actions=decision.legal_actions, **tokens)
