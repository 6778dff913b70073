"""A game with human players. Every answer is kept, so a typo can be taken back and the game continued.

To take back an entry, the episode is replayed from its seed with all earlier answers, so models and endpoints are not
asked for those again. Everything after the entry is asked for again.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pettingzoo import AECEnv

from legos_envs import Decision, Episode, Policy, play
from legos_envs.policies import HumanPolicy, written
from legos_train.observe import plain_text

if TYPE_CHECKING:
    from legos_train.rollout.players import ModelPlayer

HELP = """\
  an action      with or without its brackets, in any case: bet, [bet], BET
  text\\          any text, if no move is asked for; a final \\ continues on the next line
  ? /help        this
  /look          your last observation, with the board
  /legal         the legal actions
  /undo          take back your last entry; the game continues from there
  /quit          leave
If a move is asked for, the slash may be left out."""
COMMANDS = ("help", "look", "legal", "undo", "quit")


class TakenBack(Exception):
    """A person took back their last entry: replay with the remaining answers."""


class PlayerLeft(Exception):
    """A person has left the game."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer in the game."""

    agent: str
    turn: int
    text: str
    by_person: bool


class PlaySession:
    """One episode with people in some seats.

    Args:
        env: the environment to play.
        players: by agent; `None` is a person.
        seed: seed of the episode.
        read, write: as in `HumanPolicy`.
        pass_on: called with an agent before a person's turn if another person was asked last, to hide what only the
            other may see.
    """

    def __init__(
        self,
        env: AECEnv,
        players: Mapping[str, Policy | ModelPlayer | None],
        seed: int,
        read: Callable[[str], str] = input,
        write: Callable[[str], Any] = print,
        pass_on: Callable[[str], None] | None = None,
    ):
        self.env, self.seed, self.write = env, seed, write
        self.answers: list[Answer] = []
        self._input, self._pass_on = read, pass_on
        self._legal = self._agent = ""
        self._position: set[str] = set()
        self._last_lines: dict[str, list[str]] = {}
        self._known: dict[tuple[str, int], str] = {}
        self._seats: dict[str, Policy] = {}
        self._human = self._person()
        for agent, player in players.items():
            if player is None:
                self._seats[agent] = self._seat(self._ask, person=True)
            else:
                self._seats[agent] = self._seat(player if callable(player) else ModelSeat(player), person=False)

    async def play(self) -> Episode:
        """Plays to the end, and again after each entry that is taken back.

        Raises:
            PlayerLeft: a person has left.
            NoInput: the input has ended.
        """
        while True:
            try:
                return await play(self.env, self._seats, self.seed)
            except TakenBack:
                continue

    def take_back(self) -> bool:
        """Drops the last entry of a person and all answers after it; False if there is none."""
        last = max((k for k, answer in enumerate(self.answers) if answer.by_person), default=None)
        if last is None:
            return False
        text = self.answers[last].text
        del self.answers[last:]
        self._known = {(answer.agent, answer.turn): answer.text for answer in self.answers}
        self._human = self._person()  # shows the position again
        self.write(f"taken back: {text}")
        return True

    def since(self) -> list[Answer]:
        """The others' answers since a person's last entry."""
        last = max((k for k, answer in enumerate(self.answers) if answer.by_person), default=-1)
        return self.answers[last + 1 :]

    def _ask(self, decision: Decision) -> str:
        if self._pass_on is not None and self._agent not in ("", decision.agent):
            self._pass_on(decision.agent)
        self._agent, self._position = decision.agent, {message["content"] for message in decision.messages}
        told, legal = decision.messages[-1]["content"], decision.legal_actions or ()
        named = {word.strip("[](),.:;") for word in told.split()}
        self._legal = "" if {action.strip("[]") for action in legal} <= named else f"Legal: {' '.join(legal)}"
        return self._human(decision)

    def _person(self) -> HumanPolicy:
        return HumanPolicy(self._read, self._show, self._command)

    def _read(self, prompt: str) -> str:
        if self._legal:
            self.write(self._legal)  # below the observation, if that does not list them
            self._legal = ""
        return self._input(prompt)

    def _show(self, text: str) -> None:
        """Writes an observation without the leading lines it shares with the last one: rules are shown only once."""
        if text not in self._position:
            self.write(text)
            return
        lines, before = text.split("\n"), self._last_lines.get(self._agent, [])
        same = plain_text.repeated(lines, before)
        self._last_lines[self._agent] = lines
        self.write(plain_text.squared("\n".join(lines[same:] if same < len(lines) else lines)))

    def _seat(self, policy: Policy, *, person: bool) -> Policy:
        def answer(decision: Decision) -> str | Awaitable[str]:
            earlier = self._known.get((decision.agent, decision.turn))
            if earlier is not None:
                if isinstance(policy, ModelSeat):
                    policy.hear(decision)
                return earlier
            reply = policy(decision)
            if inspect.isawaitable(reply):
                return self._later(decision, reply)
            return self._note(decision, reply, person)

        return answer

    async def _later(self, decision: Decision, reply: Awaitable[str]) -> str:
        return self._note(decision, await reply, False)

    def _note(self, decision: Decision, text: str, person: bool) -> str:
        self.answers.append(Answer(decision.agent, decision.turn, text, person))
        self._known[decision.agent, decision.turn] = text
        return text

    def _command(self, text: str, decision: Decision) -> bool:
        """Runs a line if it is a command rather than an action; see `HELP`."""
        word, legal = text.strip().casefold(), decision.legal_actions
        if legal and written(text.strip(), decision) in legal:
            return False
        name = "help" if word == "?" else word.removeprefix("/")
        if name not in COMMANDS or not (legal or word == "?" or word.startswith("/")):
            return False
        if name == "help":
            self.write(HELP)
        elif name == "look":
            self.write(plain_text.squared(decision.messages[-1]["content"]))
        elif name == "legal":
            self.write(" ".join(legal) if legal else "any text")
        elif name == "quit":
            raise PlayerLeft
        elif self.take_back():
            raise TakenBack
        else:
            self.write("nothing to take back yet")
        return True


class ModelSeat:
    """A model as a policy, one answer at a time. Conversations are kept per agent, as in training."""

    def __init__(self, player: ModelPlayer):
        self.player = player
        self._conversations: dict[str, Any] = {}
        self._tokens: dict[tuple[str, int], tuple[int, ...]] = {}

    def __call__(self, decision: Decision) -> str:
        """The model's reply; empty, and so an invalid move, if the prompt exceeds its context, as in training.

        Raises:
            RuntimeError: the engine failed.
        """
        from inference import ContextOverflow, Request

        player, prompt = self.player, self._prompt(decision)
        room = player.room(prompt)
        if room < 1:
            return ""
        sampling = player.sampling(room, decision.seed)
        try:
            number = player.engine.submit(Request(prompt, sampling, player.adapter))
        except ContextOverflow:
            return ""
        completion = None
        while completion is None:
            completion = next((done for done in player.engine.step() if done.request_id == number), None)
        if completion.finish_reason == "error":
            raise RuntimeError(f"the engine failed on {decision.agent!r}: {completion.error}")
        self._conversations[decision.agent].record(completion.tokens)
        self._tokens[decision.agent, decision.turn] = tuple(completion.tokens)
        return player.renderer.reply(completion.tokens)

    def hear(self, decision: Decision) -> None:
        """Replays a turn that was already answered, so that the next prompt contains it exactly as sampled."""
        self._prompt(decision)
        tokens = self._tokens.get((decision.agent, decision.turn))
        if tokens is not None:
            self._conversations[decision.agent].record(tokens)

    def _prompt(self, decision: Decision) -> tuple[int, ...]:
        from inference.text import Conversation

        if not decision.turn or decision.agent not in self._conversations:
            self._conversations[decision.agent] = Conversation(self.player.renderer, self.player.system)
        prompt: tuple[int, ...] = self._conversations[decision.agent].prompt(decision.messages)
        return prompt
