"""Chat templates for models without a usable one, and a pinned clock for templates that print the date.

Each is Jinja in the dialect of transformers (`messages`, `add_generation_prompt`, `enable_thinking`,
`bos_token`, `eos_token`) and lists the tokens it needs: for a tokenizer without them, its markers would be ordinary
text that any player can type.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection
from typing import NamedTuple

DATE_FORMAT = "%d %b %Y"
_CLOCK_CALL = re.compile(r"""strftime_now\(\s*(?:"([^"]*)"|'([^']*)')\s*\)""")


class NamedTemplate(NamedTuple):
    """A Jinja chat template and the added tokens it needs."""

    jinja: str
    markers: tuple[str, ...]


_CHATML = """
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif -%}
"""

# A thinking model answers `<think>...</think>answer`. Replies in a history are shown without their thoughts, and an
# empty thought in the generation prompt makes the family answer at once.
_QWEN3 = """
{%- for message in messages -%}
{%- set text = message.content -%}
{%- if message.role == 'assistant' and '</think>' in text -%}
{%- set text = text.split('</think>')[-1].lstrip('\n') -%}
{%- endif -%}
{{ '<|im_start|>' + message.role + '\n' + text + '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\n' }}
{%- if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{% endif -%}
{%- endif -%}
"""

_LLAMA3 = """
{{- '<|begin_of_text|>' -}}
{%- for message in messages -%}
{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content|trim + '<|eot_id|>' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif -%}
"""

_DEEPSEEK = """
{{- '<|begin▁of▁sentence|>' -}}
{%- for message in messages -%}
{%- if message.role == 'system' -%}{{ message.content }}
{%- elif message.role == 'user' -%}{{ '<|User|>' + message.content }}
{%- else -%}
{%- set text = message.content.split('</think>')[-1] -%}
{{ '<|Assistant|>' + text + '<|end▁of▁sentence|>' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|Assistant|>' }}{% endif -%}
"""

# For base models: names on their own lines, so that no space straddles the border between template and content.
_PLAIN = """
{{- bos_token -}}
{%- for message in messages -%}
{%- if message.role == 'system' -%}{{ message.content + '\n\n' }}
{%- elif message.role == 'user' -%}{{ 'User:\n' + message.content + '\n\n' }}
{%- else -%}{{ 'Assistant:\n' + message.content }}{{ eos_token }}{{ '\n\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ 'Assistant:\n' }}{% endif -%}
"""

_IM = ("<|im_start|>", "<|im_end|>")
RENDERERS: dict[str, NamedTemplate] = {
    "chatml": NamedTemplate(_CHATML, _IM),
    "qwen3": NamedTemplate(_QWEN3, (*_IM, "<think>", "</think>")),
    "llama3": NamedTemplate(_LLAMA3, ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")),
    "deepseek": NamedTemplate(_DEEPSEEK, ("<|begin▁of▁sentence|>", "<|User|>", "<|Assistant|>", "<|end▁of▁sentence|>")),
    "plain": NamedTemplate(_PLAIN, ()),
}
"""The chat renderers by name. A new one needs only a row here: settings, help and docs read this table."""


def named_template(kind: str, markers: Collection[str]) -> str:
    """Returns the Jinja source of `kind`. `markers`: the tokenizer's added tokens.

    Raises `ValueError` for an unknown kind and for a kind whose markers the tokenizer lacks.
    """
    if kind not in RENDERERS:
        raise ValueError(f"unknown renderer {kind!r}; accepted: auto, {', '.join(RENDERERS)}")
    missing = [marker for marker in RENDERERS[kind].markers if marker not in markers]
    if missing:
        usable = [name for name, template in RENDERERS.items() if all(m in markers for m in template.markers)]
        raise ValueError(
            f"renderer {kind!r} needs the added tokens {', '.join(missing)}, which this tokenizer lacks, so a player "
            f"could type them; use one of: auto, {', '.join(usable)}"
        )
    return RENDERERS[kind].jinja


def pin_clock(jinja: str, date_string: str) -> str:
    """Replaces every `strftime_now("...")` in a template by the given date (written like "26 Jul 2024").

    The result replaces the call, since transformers passes templates only plain data, not functions. Raises
    `ValueError` when `date_string` has another format.
    """
    try:
        date = datetime.datetime.strptime(date_string, DATE_FORMAT)
    except ValueError:
        raise ValueError(f"date_string must be a date written like '26 Jul 2024', got {date_string!r}") from None
    return _CLOCK_CALL.sub(lambda call: repr(date.strftime(call[1] or call[2] or "")), jinja)
