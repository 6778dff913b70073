"""The text a chat template puts around messages, found by rendering slots in place of contents.

A template is a program: it may trim, drop, move or refuse. The renderer learns everything it needs from the output for
a few small conversations, so no model family is named here.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from inference.bounded_cache import BoundedCache
from inference.text.deadline import Overdue, within
from inference.text.templates import RENDERERS, named_template, pin_clock
from inference.thoughts import CLOSE, OPEN
from inference.tool_calls import ARGUMENTS, CALLER, NAME, UNSUPPORTED, is_written_so, whole

__all__ = ["ChatTemplate", "Layout", "choose_template"]

logger = logging.getLogger(__name__)

_SECONDS, _MOST_CHARACTERS = 2.0, 4 << 20
_SLOT = "zqslot{}qz"  # letters and digits only: nothing for a template to trim, split or escape
_FIND_SLOT = re.compile(r"zqslot(\d+)qz")
_ARGUMENTS = re.compile(r'\{"(zqslot\d+qz)": ?0\}')
"""Stand-in for the arguments of a tool call: an object whose text the slot replaces."""


class Layout(NamedTuple):
    """A conversation without its contents: `texts[0] + content[slots[0]] + texts[1] + content[slots[1]] + ...`."""

    texts: tuple[str, ...]
    slots: tuple[int, ...]


class TemplateRefused(ValueError):
    """The template does not render a conversation of these roles; being too slow once is not a refusal."""


class ChatTemplate:
    """One tokenizer's chat template, probed with slots.

    `jinja`: the template's source, or None for a tokenizer that renders in its own code. `options` reach the
    template as variables (`enable_thinking`, `date_string`).
    """

    def __init__(self, tokenizer: Any, jinja: str | None, options: dict[str, Any]) -> None:
        self._tokenizer = tokenizer
        self._options = options if jinja is None else {**options, "chat_template": jinja}
        self._layouts: BoundedCache[Layout] = BoundedCache(512, 8 << 20)

    def _render(self, roles: Sequence[str], contents: Sequence[str], generate: bool) -> str:
        messages = whole(roles, contents)

        def render() -> str:
            text: str = self._tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=generate, **self._options
            )
            if len(text) > _MOST_CHARACTERS:
                raise ValueError(f"it writes {len(text)} characters")
            return _ARGUMENTS.sub(r"\1", text)

        try:
            return within(_SECONDS, render)
        except Overdue as error:
            raise ValueError(
                f"the chat template did not finish the roles {', '.join(roles)}: {error}. If the machine was busy, try "
                "again; otherwise the template never ends: use a named renderer, such as chatml, instead"
            ) from None
        except Exception as error:  # a template can fail like any program
            raise TemplateRefused(f"the chat template refuses the roles {', '.join(roles)}: {error}") from error

    def knows(self, roles: tuple[str, ...]) -> bool:
        """Whether `layout` has the answer cached and need not run the template."""
        return self._layouts.get((roles, True)) is not None

    def layout(self, roles: tuple[str, ...], generate: bool = True) -> Layout:
        """Returns the layout of a conversation of these roles, ending with the generation prompt.

        Raises `TemplateRefused` if the template fails or omits a message to the assistant, and `ValueError` if it
        takes too long.
        """
        found = self._layouts.get((roles, generate))
        return self._layouts.put((roles, generate), self._layout(roles, generate)) if found is None else found

    def _layout(self, roles: tuple[str, ...], generate: bool) -> Layout:
        parts = _FIND_SLOT.split(self._render(roles, [_SLOT.format(i) for i in range(len(roles))], generate))
        slots = tuple(int(number) for number in parts[1::2])
        shown = set(slots)
        for i, role in enumerate(roles):
            if i not in shown and role not in ("assistant", CALLER):
                raise TemplateRefused(
                    f"the chat template leaves out message {i} ({role}) of the roles {', '.join(roles)}"
                )
        return Layout(tuple(parts[::2]), slots)

    def accepts(self, *roles: str) -> bool:
        """Tells whether a conversation of these roles can be rendered."""
        try:
            self.layout(roles)
        except TemplateRefused:
            return False
        return True

    def trims(self, role: str) -> bool:
        """Tells whether the template strips white space from both ends of this role's contents."""
        roles: tuple[str, ...] = ("user", "assistant", "user") if role == "assistant" else (role, "user")
        if not self.accepts(*roles):
            roles = (role,)
        at = roles.index(role)
        contents = [_SLOT.format(i) for i in range(len(roles))]
        try:
            bare = self._render(roles, contents, True)
            contents[at] = f" \n {contents[at]} \n "
            return self._render(roles, contents, True) == bare
        except TemplateRefused:
            return False

    def drops_thoughts(self) -> bool:
        """Tells whether a `<think>...</think>` before an earlier answer is left out."""
        thought, answer = _SLOT.format(1), _SLOT.format(2)
        contents = [_SLOT.format(0), f"<think>\n{thought}\n</think>\n\n{answer}", _SLOT.format(3)]
        try:
            text = self._render(("user", "assistant", "user"), contents, True)
        except TemplateRefused:
            return False
        return thought not in text and answer in text

    def opens_thought(self) -> bool:
        """Tells whether the generation prompt ends inside its own `<think>`."""
        try:
            prompt = self.layout(("user",)).texts[-1]
        except TemplateRefused:
            return False
        return prompt.rfind(OPEN) > prompt.rfind(CLOSE)

    def why_no_delta(self) -> str:
        """Returns why a longer conversation cannot be rendered by adding to a shorter one's text; "" when it can.

        How the template repeats an earlier reply does not matter (it is never rendered again). Only the text before the
        first message, the text after each reply, and the generation prompt must not depend on the conversation's
        length.
        """
        try:
            one, two, three = (self.layout(("user", "assistant") * n + ("user",)) for n in range(3))
        except TemplateRefused as error:
            return str(error)
        for layout, length in ((one, 1), (two, 3), (three, 5)):
            if layout.slots != tuple(range(length)):
                return f"the chat template shows {length} messages in the order {layout.slots}"
        if not one.texts[0] == two.texts[0] == three.texts[0]:
            return "the chat template changes the text before the first message as the conversation grows"
        if not one.texts[-1] == two.texts[-1] == three.texts[-1]:
            return "the chat template's generation prompt changes as the conversation grows"
        if not two.texts[2] == three.texts[2] == three.texts[4]:
            return "the chat template changes the text after a reply as the conversation grows"
        return ""

    def after_reply(self, roles: tuple[str, ...]) -> Layout | None:
        """Returns the text after an assistant's reply when messages of these roles come next (slots count from 0).

        None if the template refuses or rearranges such a conversation.
        """
        try:
            layout = self.layout(("user", "assistant", *roles))
        except TemplateRefused:
            return None
        if layout.slots != tuple(range(len(roles) + 2)) or layout.texts[0] != self.layout(("user",)).texts[0]:
            return None
        return Layout(layout.texts[2:], tuple(range(len(roles))))

    def check_tools(self, tools: Sequence[dict[str, Any]]) -> None:
        """ValueError unless the template, rendered with these tools, shows them and writes calls in our format."""
        try:
            prompt = "".join(self.layout(("user",)).texts)
            call = self.layout(("user", CALLER, NAME, ARGUMENTS, "tool"))
        except TemplateRefused as error:
            raise ValueError(f"{UNSUPPORTED}: {error}") from error
        if not all(tool["function"]["name"] in prompt for tool in tools):
            raise ValueError(UNSUPPORTED)
        if call.slots != (0, 2, 3, 4) or not is_written_so(call.texts[1:4]):
            raise ValueError(f"{UNSUPPORTED} in a format that Legos reads")

    def end_of_reply(self) -> str:
        """Returns the text after a reply that ends the conversation; "" if nothing follows or the reply is hidden."""
        try:
            layout = self.layout(("user", "assistant"), False)
        except TemplateRefused:
            return ""
        return layout.texts[-1] if layout.slots[-1] == 1 else ""


def choose_template(
    tokenizer: Any, kind: str, options: dict[str, Any], markers: Collection[str]
) -> tuple[str, ChatTemplate]:
    """Returns the kind in use ("auto" for the tokenizer's own template) and its template.

    `markers`: the tokenizer's added tokens. Raises `ValueError` as `named_template` and `pin_clock` do.
    """
    # mlx_lm's wrapper sets enable_thinking itself and renders a few families in code; only the latter is wanted.
    coded = getattr(tokenizer, "_chat_template", None) is not None
    inner = getattr(tokenizer, "_tokenizer", None)
    renders = inner if hasattr(inner, "apply_chat_template") else tokenizer
    if kind == "auto":
        source = tokenizer.chat_template
        if isinstance(source, dict):
            source = source.get("default")
        if coded:
            own = ChatTemplate(tokenizer, None, options)
        else:
            own = ChatTemplate(renders, pin_clock(source, options["date_string"]) if source else None, options)
        if own.accepts("user"):
            return kind, own
        kind = "chatml" if all(marker in markers for marker in RENDERERS["chatml"].markers) else "plain"
        if source:
            logger.warning("the tokenizer's chat template cannot render a user message of text: using %s", kind)
    return kind, ChatTemplate(renders, pin_clock(named_template(kind, markers), options["date_string"]), options)
