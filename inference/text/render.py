"""Conversations to token ids, delta by delta.

The next prompt of a conversation is what the model has already seen (prompt and sampled ids) plus the rendering of the
new message, never a second rendering of the whole. Chat templates drop earlier `<think>` text, trim white space, move
system prompts and print dates, and re-tokenised replies differ from sampled ones, so a re-render would neither hit the
KV cache nor match the recorded log-probabilities.

Contents never pass through the template: they are encoded separately (`TextEncoder.plain`), so no seat can forge a
turn.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from inference.bounded_cache import BoundedCache
from inference.text.encoding import TextEncoder
from inference.text.layout import Layout, choose_template
from inference.thoughts import OPEN, markers_of
from inference.types import OBSERVATION

__all__ = ["Conversation", "Message", "Renderer"]

logger = logging.getLogger(__name__)

Message = Mapping[str, str]


class Renderer:
    """Renders the conversations of one tokenizer's model. Its cache takes about 40 MiB at most.

    Args:
        tokenizer: from transformers (with a `tokenizers` backend), or mlx_lm's wrapper of one.
        kind: a name in `RENDERERS`, for models without a usable template. "auto" takes the tokenizer's own template if
            it can render a user message, else "chatml" if the tokenizer has its markers, else "plain".
        enable_thinking: passed to the template; None leaves it to the template. A model that does not support the
            choice is refused.
        ask: wrapper for every user message: a text in which `{observation}` stands for the message; "" for none.
        tools: tools the assistant may call, in OpenAI's format; passed to the template.
        date_string: the date for templates that print one; constant, so that a resumed run gets the same prompts.

    Attributes:
        incremental: False for a template without a delta: `extend` then returns None, and every turn is rendered in
            full.
        reason: why it is not incremental.
        stop_ids: the tokens that end a reply.
        ask: as given.
        thoughts: the ids of `<think>` and `</think>`, if the vocabulary has them.
        opens_thought: whether the generation prompt ends inside a thought that the template opened.
        reasons: whether replies should hold more than an action: thoughts are on, or `ask` adds to the message.

    Raises:
        ValueError: tools that the template does not show or whose text holds a marker, an unknown kind, a kind whose
            markers the tokenizer lacks, a thinking switch that the template lacks, an `ask` without `{observation}`, or
            an unreadable date.
        TypeError: a tokenizer without a backend.
    """

    def __init__(
        self,
        tokenizer: Any,
        kind: str = "auto",
        enable_thinking: bool | None = None,
        *,
        ask: str = "",
        tools: Sequence[dict[str, Any]] = (),
        date_string: str = "26 Jul 2024",
    ) -> None:
        if ask and OBSERVATION not in ask:
            raise ValueError(f"ask must hold {OBSERVATION} where the message goes, got {ask!r}")
        self.tokenizer, self.ask = tokenizer, ask
        self._encoder = TextEncoder(tokenizer)
        options: dict[str, Any] = {"date_string": date_string}
        if enable_thinking is not None:
            options |= {
                "enable_thinking": enable_thinking,
                "thinking": enable_thinking,
            }  # a few families say `thinking`
        if tools:
            self._check_texts(tools)
            options["tools"] = list(tools)
        self.kind, self._template = choose_template(tokenizer, kind, options, self._encoder.markers)
        if tools:
            self._template.check_tools(tools)
        self.thoughts = markers_of(tokenizer)
        self.opens_thought = self._template.opens_thought()
        off, on = (
            self._generation_prompt(kind, {**options, "enable_thinking": b, "thinking": b}) for b in (False, True)
        )
        thinks = on != off and self._template.layout(("user",)).texts[-1] == on
        self.reasons = bool(ask) or thinks or self.opens_thought
        if enable_thinking is not None and on == off and enable_thinking != self.opens_thought:
            only = "'on'" if self.opens_thought else "'off'"
            what = "always opens a thought" if self.opens_thought else "has no enable_thinking"
            raise ValueError(f"this model's chat template {what}: thinking must be 'auto' or {only}")
        self._has_system_role = self._template.accepts("system", "user")
        self._trimmed = frozenset(role for role in ("system", "user", "assistant") if self._template.trims(role))
        self._drops_thoughts = self._template.drops_thoughts()

        self.reason = self._template.why_no_delta()
        self.incremental = not self.reason
        if self.reason:
            logger.warning("every turn is rendered in full and becomes its own row: %s", self.reason)
        self._end, self._closers, self.stop_ids = self._find_stops()
        if not self.stop_ids:
            logger.warning("neither tokenizer nor chat template names an end token: replies end by length only")

        self._replies: BoundedCache[str] = BoundedCache(1024, 8 << 20)
        self._starts: BoundedCache[tuple[int, ...]] = BoundedCache(1024, 16 << 20)
        self._pieces: BoundedCache[tuple[tuple[tuple[int, ...], str], ...]] = BoundedCache(512, 8 << 20)

    def start(self, messages: Sequence[Message], system: str | None = None) -> tuple[int, ...]:
        """Returns the ids of a whole conversation and the assistant's generation prompt; cached by contents.

        `system` goes before the messages; if the template has no system role, it is put at the start of the first
        user message. Raises `ValueError` for an empty conversation and if the template refuses these roles.
        """
        key = tuple([(message["role"], message["content"]) for message in messages]), system
        try:
            found = self._starts.get(key)
        except TypeError:  # an unhashable content fails here already, with a message about hashing
            _check_contents(key[0])
            raise
        return self._starts.put(key, self._render_start(*key)) if found is None else found

    def knows(self, roles: tuple[str, ...]) -> bool:
        """Whether a conversation of these roles can be rendered without running the model's template."""
        return self._template.knows(roles)

    def extend(
        self, prompt_ids: Sequence[int], sampled_ids: Sequence[int], new_messages: Sequence[Message]
    ) -> tuple[int, ...] | None:
        """Returns `prompt_ids + sampled_ids + delta`: the prompt of the turn after `new_messages`.

        `new_messages` follow the assistant's reply. A reply stopped by length is closed with the end-of-turn token it
        lacks; a reply that has an end token keeps that one. Returns None if the template allows no delta.
        """
        layout = self._template.after_reply(tuple(message["role"] for message in new_messages))
        if not self.incremental or layout is None:
            return None
        pairs = [(message["role"], message["content"]) for message in new_messages]
        _check_contents(pairs)
        delta = self._fill(layout, pairs, first=False)
        if sampled_ids and sampled_ids[-1] in self._closers:
            delta = delta[self._closing_length(delta) :]
        return (*prompt_ids, *sampled_ids, *delta)

    def reply(self, sampled_ids: Sequence[int]) -> str:
        """Returns a reply's text without its end token; other markers, such as `<think>`, stay as text.

        A thought opened by the template begins with its `<think>`: without it, a truncated thought would pass for an
        answer.
        """
        ids = tuple(sampled_ids)
        found = self._replies.get(ids)
        return self._replies.put(ids, self._decode_reply(ids)) if found is None else found

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a seat's text alone; no marker in it becomes a control id."""
        return self._encoder.plain(text)

    @property
    def end_id(self) -> int:
        """The token this template ends a reply with. Raises `ValueError` for a model without one."""
        if self._end is None:
            raise ValueError("this model has no end token: replies end by length only")
        return self._end

    @property
    def markers(self) -> Mapping[str, int]:
        """The added tokens of the vocabulary, by their text."""
        return self._encoder.markers

    def _check_texts(self, tools: Sequence[dict[str, Any]]) -> None:
        """Tools pass through the template, so a marker in them would become a control id."""
        text = json.dumps(tools, ensure_ascii=False)
        found = [marker for marker in (*self._encoder.markers, "zqslot") if marker in text]
        if found:
            raise ValueError(f"the tools hold {found[0]!r}, which this model reads as a marker; leave it out")

    def _decode_reply(self, ids: tuple[int, ...]) -> str:
        kept = ids[:-1] if ids and ids[-1] in self.stop_ids else ids
        text: str = self.tokenizer.decode(list(kept), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return OPEN + text if self.opens_thought else text

    def _generation_prompt(self, kind: str, options: dict[str, Any]) -> str:
        """The text after a user message under the given template options."""
        _, template = choose_template(self.tokenizer, kind, options, self._encoder.markers)
        return template.layout(("user",)).texts[-1] if template.accepts("user") else ""

    def _render_start(self, messages: tuple[tuple[str, str], ...], system: str | None) -> tuple[int, ...]:
        if not messages:
            raise ValueError("cannot render an empty conversation: give at least one message")
        _check_contents(messages)
        pairs = list(messages)
        if system is not None:
            if pairs[0][0] == "system":
                pairs[0] = ("system", f"{system}\n\n{pairs[0][1]}")
            else:
                pairs.insert(0, ("system", system))
        if pairs[0][0] == "system" and not self._has_system_role:
            folded = pairs.pop(0)[1]
            if pairs and pairs[0][0] == "user":
                folded = f"{folded}\n\n{pairs.pop(0)[1]}"
            pairs.insert(0, ("user", folded))
        if self._drops_thoughts:
            pairs = [(role, _without_thought(text) if role == "assistant" else text) for role, text in pairs]
        return tuple(self._fill(self._template.layout(tuple(role for role, _ in pairs)), pairs, first=True))

    def _fill(self, layout: Layout, pairs: Sequence[tuple[str, str]], *, first: bool) -> list[int]:
        """Encodes a layout with its contents. `first`: the layout opens a prompt rather than continues one."""
        pieces = self._pieces.get((layout, first))
        if pieces is None:
            pieces = self._pieces.put((layout, first), self._encode_layout(layout, first))
        ids = list(pieces[0][0])
        for slot, (_, spaces), (piece, _) in zip(layout.slots, pieces, pieces[1:], strict=False):
            role, content = pairs[slot]
            if self.ask and role == "user":
                content = self.ask.replace(OBSERVATION, content)
            ids += self._encoder.plain(spaces + (content.strip() if role in self._trimmed else content))
            ids += piece
        return ids

    def _encode_layout(self, layout: Layout, first: bool) -> tuple[tuple[tuple[int, ...], str], ...]:
        """Returns the ids of each text and the spaces at its end, which are encoded with the content they precede.

        In most vocabularies a space belongs to the following word: " word" is one token, " " and "word" are two.
        """
        pieces, known = [], dict[str, tuple[int, ...]]()  # a long conversation repeats the same few texts
        for i, text in enumerate(layout.texts):
            stem = text.rstrip(" ") if i < len(layout.slots) else text
            ids = known.get(stem)
            if i == 0 or ids is None:
                ids = tuple(self._encoder.markup(stem, first=first and i == 0))
                known |= {stem: ids} if i else {}
            pieces.append((ids, text[len(stem) :]))
        return tuple(pieces)

    def _closing_length(self, ids: Sequence[int]) -> int:
        """Returns how many leading ids close a reply: white space up to the first control id, or none at all."""
        for i, token in enumerate(ids):
            if token in self._encoder.control_ids:
                return i + 1 if not self.tokenizer.decode(list(ids[:i])).strip() else 0
        return 0

    def _find_stops(self) -> tuple[int | None, frozenset[int], frozenset[int]]:
        """Returns the template's own end of a reply, the ids that close a turn, and all ids that end a reply.

        The last two differ for a template that closes nothing and only opens the next turn: its opening marker ends a
        reply and stands for itself when sampled, but still has to follow the tokenizer's end token.
        """
        eos_ids = getattr(self.tokenizer, "eos_token_ids", None)  # mlx_lm: a set; transformers: None or one number
        eos = set(eos_ids) if isinstance(eos_ids, (set, list, tuple)) else {self.tokenizer.eos_token_id} - {None}
        last = self._encoder.markup(self._template.end_of_reply())
        final = last[: self._closing_length(last)][-1:]
        ends = eos.union(final)
        between = self._template.after_reply(("user",))
        ids = self._encoder.markup(between.texts[0]) if between else []
        length = self._closing_length(ids)
        if not length:
            return next(iter(final), min(eos, default=None)), frozenset(), frozenset(ends)
        closing = ids[length - 1]
        opens_too = (
            closing not in eos
            and self._encoder.control_ids.isdisjoint(ids[length:])
            and closing in self._encoder.markup(self._template.layout(("user",)).texts[0])
        )
        ends.add(closing)
        return closing, frozenset({closing} if opens_too else ends), frozenset(ends)


class Conversation:
    """One agent's dialogue: observations in, prompts out, keeping the sampled ids of every turn unchanged."""

    def __init__(self, renderer: Renderer, system: str | None = None) -> None:
        self._renderer = renderer
        self._system = system
        self._messages: list[tuple[str, str]] = []
        self._prompt: tuple[int, ...] = ()
        self._sampled: tuple[int, ...] | None = None

    def prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Returns the prompt for an observation.

        Repeating the last observation returns the last prompt. The last observation, then the recorded reply as the
        assistant's message, then more messages give the last prompt, the recorded ids and the delta. Anything else,
        including an edited reply, starts afresh.
        """
        pairs = [(message["role"], message["content"]) for message in messages]
        count = len(self._messages)
        prompt = None
        if count and pairs[:count] == self._messages:
            if len(pairs) == count:
                return self._prompt
            if self._sampled is not None and pairs[count] == ("assistant", self._renderer.reply(self._sampled)):
                prompt = self._renderer.extend(self._prompt, self._sampled, messages[count + 1 :])
        self._prompt = self._renderer.start(messages, self._system) if prompt is None else prompt
        self._messages, self._sampled = pairs, None
        return self._prompt

    def record(self, sampled_ids: Sequence[int]) -> None:
        """Records the model's answer to the last prompt, including its end token if there was one.

        Raises `RuntimeError` before the first prompt.
        """
        if not self._messages:
            raise RuntimeError("record() was called before prompt(): there is no prompt these ids could answer")
        self._sampled = tuple(sampled_ids)


def _check_contents(pairs: Sequence[tuple[str, str]]) -> None:
    for i, (role, content) in enumerate(pairs):
        if not isinstance(content, str):
            raise TypeError(f"message {i} ({role}): content must be a string, got {type(content).__name__}")


def _without_thought(text: str) -> str:
    return text.rpartition("</think>")[2].lstrip("\n") if "</think>" in text else text
