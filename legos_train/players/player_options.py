"""The options of players: name, default and help text of each, for Python and for the command line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import get_args

from inference.text import RENDERERS
from inference.thoughts import THINKING
from inference.types import Dequantize, Threads
from legos_train.players import replies
from legos_train.players.actors import BUNDLED_TOKENS, CONNECTIONS, TIMEOUT, TOKENS

LIMITS = ", ".join(f"{most} for `{model}`" for model, most in BUNDLED_TOKENS.items())


@dataclass(frozen=True, kw_only=True)
class PlayerOptions:
    """How models and endpoints are asked for answers; all but `reply` are arguments of `Cast`, which explains them.

    The metadata of a field is how the command line shows it: `help`; `metavar`, `type` and `choices` as for argparse;
    `least` for a number. An option with the default () may be repeated, one with False is a switch.
    """

    temperature: float = field(
        default=1.0,
        metadata={"help": "sampling temperature of models and endpoints", "type": float, "metavar": "T", "least": 0},
    )
    max_tokens: int | None = field(
        default=None,
        metadata={"help": f"maximum tokens per action (default: {LIMITS}, otherwise {TOKENS})", "least": 1},
    )
    renderer: str = field(
        default="auto",
        metadata={
            "help": f"how conversations become tokens: {', '.join(RENDERERS)}; auto uses the model's chat template",
            "metavar": "NAME",
        },
    )
    thinking: str = field(
        default="auto",
        metadata={
            "help": "whether models think before they answer, if their chat template has that switch; sent to "
            "endpoints as chat_template_kwargs.enable_thinking (default: auto, the template's default)",
            "choices": tuple(THINKING),
        },
    )
    thinking_tokens: int | None = field(
        default=None,
        metadata={
            "help": "maximum tokens per thought; they count towards the limit per action; sent to endpoints as "
            "thinking_token_budget (default: no separate limit)",
            "least": 0,
        },
    )
    reply: str = field(
        default="env",
        metadata={
            "help": f"how to ask for an answer: {', '.join(replies.REPLIES)}, or your own text with {{observation}} in "
            "it",
            "metavar": "TEMPLATE",
        },
    )
    threads: Threads = field(
        default="auto",
        metadata={
            "help": "threads of the matrix library on a CPU; auto: one per core that is idle at startup for models of "
            "50 million weights or more, otherwise 1",
            "metavar": "N|auto",
        },
    )
    dequantize: Dequantize = field(
        default="auto",
        metadata={
            "help": "whether to dequantise weights at load: faster on a CPU, for four to eight times the memory "
            "(default: auto, on a CPU with enough memory)",
            "choices": get_args(Dequantize),
        },
    )
    connections: int = field(default=CONNECTIONS, metadata={"help": "concurrent requests to a server", "least": 1})
    timeout: float = field(
        default=TIMEOUT,
        metadata={"help": "seconds for one request to a server", "type": float, "metavar": "S", "least": 1e-3},
    )
