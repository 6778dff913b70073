"""`legos chat -m MODEL`: chat with a trained model in the terminal."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from inference import BUNDLED, Completion, InferenceError, Request
from inference.text import RENDERERS, Conversation
from legos_envs import Decision
from legos_train.cli.arguments import Parser
from legos_train.cli.playing_flags import add_drawing, add_loading, chosen
from legos_train.errors import PolicyError
from legos_train.observe import plain_text
from legos_train.rollout.players import ModelPlayer, words

DESCRIPTION = """Chat with a model, a run or a server, in the terminal. Piped input is read as one message per line.

  /new     starts a new conversation      /undo   takes back the last question and its answer
  /again   asks the last question again   /quit   exits; Ctrl-C stops an answer, or exits between answers"""
EXAMPLES = """
legos chat -m runs/kuhn                               # the published weights of a run; runs/kuhn@best, runs/kuhn@last
legos chat -m runs/kuhn --system "Answer in French."
legos chat -m http://127.0.0.1:8000/v1#kuhn           # a running `legos serve --adapter kuhn=runs/kuhn`
"""
COMMANDS = ("new", "undo", "again", "quit")
MOST_TOKENS = 512


def make_parser() -> Parser:
    p = Parser("chat", DESCRIPTION, EXAMPLES)
    p.value(
        "-m", "--model", default="tiny", metavar="MODEL", help="a run, a model, an adapter or an endpoint URL#MODEL"
    )
    p.value("--system", metavar="TEXT", help="system prompt (default: none)")
    add_drawing(p)
    p.option(words.PlayerOptions, "max_tokens", help="maximum tokens per answer", default=MOST_TOKENS)
    p.number("--seed", help="the same seed gives the same answers (default: random)", metavar="S")
    p.option(words.PlayerOptions, "renderer", help=f"how messages become tokens: {', '.join(RENDERERS)}")
    p.option(
        words.PlayerOptions,
        "thinking",
        help="whether the model thinks, if its chat template has that switch (default: auto)",
    )
    add_loading(p)
    return p


def run(arguments: Sequence[str]) -> int:
    options = make_parser().parse_args(arguments)
    if words.is_code(options.model):
        raise PolicyError(f"{options.model} is code and does not chat; give -m a model, a run or an endpoint")
    cast = words.Cast.from_options(chosen(words.PlayerOptions, options), system=options.system)
    try:
        player: Any = cast.player(options.model)
        if isinstance(player, ModelPlayer) and (base := words.locate(options.model)[0]) in BUNDLED:
            print(f"note: {base!r} has learned to answer Legos's environments, not to converse", file=sys.stderr)
        seed = secrets.randbits(31) if options.seed is None else options.seed
        return ChatSession(player, options.system, seed).run(options.model)
    finally:
        cast.close()


class ChatSession:
    """A conversation with a model in this process, with streamed output, or behind an endpoint.

    Args:
        player: gives the answers.
        system: the system prompt; an endpoint prepends it to the messages itself.
        seed: combined with the number of each answer.
        read: asks the user for a line; EOFError ends the session.
        write: shows text.
    """

    def __init__(
        self,
        player: Any,
        system: str | None,
        seed: int,
        read: Callable[[str], str] = input,
        write: Callable[[str], object] | None = None,
    ):
        self.player, self.system, self.seed = player, system, seed
        self.read, self.write = read, write or _show
        self.messages: list[dict[str, str]] = []
        self._answers = 0
        self._begin()

    def run(self, name: str) -> int:
        """Runs until the user leaves. Returns the exit code."""
        person = sys.stdin.isatty()
        if person:
            self.write(f"{name}. /new starts over, /undo, /again, /quit.\n")
        while True:
            try:
                line = self.read("\nyou> " if person else "").strip()
            except (EOFError, KeyboardInterrupt):
                self.write("\n" if person else "")
                return 0
            if line == "/quit":
                return 0
            if not line or not self._obeyed(line):
                continue
            try:
                self._answer()
            except KeyboardInterrupt:
                del self.messages[-1]
                self.write(" (stopped; this question was dropped)\n")
            except (InferenceError, OSError) as error:
                del self.messages[-1]
                self.write(f"error: {error}\n")
                if not person:
                    return 1

    def _obeyed(self, line: str) -> bool:
        """Runs a command; returns whether a question is now waiting for an answer."""
        command = line.removeprefix("/") if line.startswith("/") else ""
        if command and command not in COMMANDS:
            self.write(f"unknown command {line}; available: {', '.join(f'/{name}' for name in COMMANDS)}\n")
            return False
        if command == "new":
            self.messages.clear()
            self._begin()
            self.write("a new conversation\n")
            return False
        if command:
            if self.messages and self.messages[-1]["role"] == "assistant":
                del self.messages[-1]
            if command == "again" and self.messages:
                return True
            self.write("taken back\n" if self.messages else "nothing to take back\n")
            del self.messages[-1:]
            return False
        self.messages.append({"role": "user", "content": line})
        return True

    def _begin(self) -> None:
        if isinstance(self.player, ModelPlayer):
            self._conversation = Conversation(self.player.renderer, self.system)

    def _answer(self) -> None:
        self._answers += 1
        if isinstance(self.player, ModelPlayer):
            said = ""
            for piece in self._streamed(self.player):
                said += piece
                self.write(plain_text.clean(piece))
        else:
            observation = {"messages": tuple(self.messages)}
            decision = Decision("chat", "chat", observation, {}, self._answers, self.seed)
            said = str(asyncio.run(self.player(decision)))
            self.write(plain_text.clean(said))
        self.write("\n")
        self.messages.append({"role": "assistant", "content": said})

    def _streamed(self, player: ModelPlayer) -> Iterator[str]:
        """Pieces of the answer; joined, they are the whole reply."""
        engine: Any = player.engine
        prompt = self._conversation.prompt(self.messages)
        sampling = player.sampling(player.max_tokens, self.seed * 10_007 + self._answers)
        request = engine.submit(Request(prompt, sampling, player.adapter, stream=True, park=True))
        tokens: list[int] = []
        shown = ""
        done: Completion | None = None
        try:
            while done is None:
                done = next((one for one in engine.step() if one.request_id == request), None)
                tokens += [token for delta in engine.deltas() if delta.request_id == request for token in delta.tokens]
                text = player.renderer.reply(done.tokens if done else tokens)
                whole = done is not None or not text.endswith("\ufffd")  # a character may be several tokens
                if whole and text.startswith(shown):
                    yield text[len(shown) :]
                    shown = text
        finally:
            if done is None:
                engine.abort(request)
                engine.settle()
        self._conversation.record(done.tokens)


def _show(text: str) -> None:
    print(text, end="", flush=True)
