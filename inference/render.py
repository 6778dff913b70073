"""Conversations to token ids, delta by delta.

The next prompt of a conversation is what the model has already seen (prompt and sampled ids) plus the rendering of the
new message, never a second rendering of the whole: chat templates drop earlier ``<think>`` text, trim white space, move
system prompts and print dates, and re-tokenised replies differ from sampled ones, so a re-render would neither hit the
KV cache nor be the text that the recorded log-probabilities belong to.

How the delta is found: the template is rendered with slots in place of contents. Slots show which text it puts between
messages; contents never pass through it and are encoded apart (`TextEncoder.plain`), so a seat cannot forge a turn.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from inference.encoding import TextEncoder
from inference.templates import KINDS, named_template, pin_clock

__all__ = ["Conversation", "Message", "Renderer"]

logger = logging.getLogger(__name__)

Message = Mapping[str, str]
_SLOT = re.compile(r"zqslot(\d+)qz")
_SLOT_TEXT = "zqslot{}qz"


class Renderer:
    """Renders one tokenizer's conversations.

    ``tokenizer``: of transformers (with a `tokenizers` backend) or mlx_lm's wrapper of one. ``kind``: "auto" takes the
    tokenizer's own chat template where it renders a user message, else "chatml" where its markers exist, else "plain";
    the other kinds are for models without a usable template. ``enable_thinking``: passed to the template; None leaves
    it unsaid. ``date_string``: the date for templates that print one; constant, so that a run resumed tomorrow has the
    same prompts.

    ``incremental`` is False for a template without a delta (``reason`` says why): `extend` then returns None, every
    turn is rendered in full, and each makes a training row of its own.

    Raises ``ValueError`` for an unknown kind, a kind whose markers the tokenizer lacks, or an unreadable date, and
    ``TypeError`` for a tokenizer without a backend.
    """

    def __init__(
        self,
        tokenizer: Any,
        kind: str = "auto",
        enable_thinking: bool | None = None,
        *,
        date_string: str = "26 Jul 2024",
    ) -> None:
        self.tokenizer = tokenizer
        self.encoder = TextEncoder(tokenizer)
        self._options: dict[str, Any] = {"date_string": date_string}
        if enable_thinking is not None:
            self._options["enable_thinking"] = enable_thinking
        self.kind = self._choose_template(kind, date_string)

        self._has_system_role = self._renders(("system", "user"))
        self._trimmed_roles = self._find_trimmed_roles()
        self._drops_thoughts = self._find_dropped_thoughts()
        self.reason = self._why_not_incremental()
        self.incremental = not self.reason
        if self.reason:
            logger.warning("%s: %s; every turn is rendered in full and becomes a row of its own", kind, self.reason)

        eos = getattr(tokenizer, "eos_token_ids", None) or [tokenizer.eos_token_id]
        self._closing_id, self._closers, self.stop_ids = self._find_stops(frozenset(eos) - {None})
        if not self.stop_ids:
            logger.warning("%s: neither tokenizer nor template names an end token; replies end by length only", kind)
        self._start = functools.lru_cache(maxsize=1024)(self._render_start)
        self._delta = functools.lru_cache(maxsize=256)(self._render_delta)

    # -- what callers use -----------------------------------------------------------------------------------------

    def start(self, messages: Sequence[Message], system: str | None = None) -> tuple[int, ...]:
        """Return the ids of a whole conversation followed by the assistant's generation prompt (cached by contents).

        ``system`` goes before the messages; a template without a system role gets it at the head of the first user
        message. Raises ``ValueError`` where the template refuses the order of roles or leaves a message out.
        """
        return self._start(tuple([(message["role"], message["content"]) for message in messages]), system)

    def extend(
        self, prompt_ids: Sequence[int], sampled_ids: Sequence[int], new_messages: Sequence[Message]
    ) -> tuple[int, ...] | None:
        """Return ``prompt_ids + sampled_ids + delta``, the prompt of the turn after ``new_messages``.

        ``new_messages`` are those after the assistant's reply. A reply that was cut by length gets the end-of-turn
        token it lacks; one that has it keeps the one it has. Returns None where the template gives no delta.
        """
        if not self.incremental:
            return None
        delta = self._delta(tuple(message["role"] for message in new_messages))
        if delta is None:
            return None
        closing, layout = delta
        ended = bool(sampled_ids) and sampled_ids[-1] in self._closers
        contents = [message["content"] for message in new_messages]
        return (*prompt_ids, *sampled_ids, *(() if ended else closing), *self._fill(layout, contents, new_messages))

    def reply(self, sampled_ids: Sequence[int]) -> str:
        """Return the text of a reply without its end token. Other markers, such as ``<think>``, stay as text."""
        ids = list(sampled_ids)
        if ids and ids[-1] in self.stop_ids:
            ids.pop()
        return self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
