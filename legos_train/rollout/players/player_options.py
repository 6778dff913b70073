"""The options of players: name, default and help text of each, for Python and for the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, get_args

from inference import DrawParams
from inference.text import RENDERERS
from inference.thoughts import THINKING
from inference.types import Dequantize, Threads
from legos_train.rollout.players.actors import BUNDLED_TOKENS, CONNECTIONS, TIMEOUT, TOKENS
from legos_train.rollout.players.replies import REPLIES

LIMITS = ", ".join(f"{most} for `{model}`" for model, most in BUNDLED_TOKENS.items())


class Flag(NamedTuple):
    """How the command line shows a field: `metavar`, `type` and `choices` as for argparse; `least`, for numbers.

    One with the default () may be repeated, one with False is a switch.
    """

    help: str
    metavar: str = ""
    type: Any = None
    least: float | None = None
    choices: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class PlayerOptions(DrawParams):
    """How models and endpoints draw tokens, and how they are asked for answers: the arguments of `Cast`."""

    max_tokens: Annotated[
        int | None, Flag(f"maximum tokens per action (default: {LIMITS}, otherwise {TOKENS})", least=1)
    ] = None
    renderer: Annotated[
        str,
        Flag(f"how conversations become tokens: {', '.join(RENDERERS)}; auto uses the model's chat template", "NAME"),
    ] = "auto"
    thinking: Annotated[
        str,
        Flag(
            "whether models think before they answer, if their chat template has that switch; sent to endpoints as "
            "chat_template_kwargs.enable_thinking (default: auto, the template's default)",
            choices=tuple(THINKING),
        ),
    ] = "auto"
    thinking_tokens: Annotated[
        int | None,
        Flag(
            "maximum tokens per thought; they count towards the limit per action; sent to endpoints as "
            "thinking_token_budget (default: no separate limit)",
            least=0,
        ),
    ] = None
    reply: Annotated[
        str,
        Flag(
            f"how to ask for an answer: {', '.join(REPLIES)}, or your own text with {{observation}} in it", "TEMPLATE"
        ),
    ] = "env"
    threads: Annotated[
        Threads,
        Flag(
            "threads of the matrix library on a CPU; auto: one per core that is idle at startup for models of 50 "
            "million weights or more, otherwise 1",
            "N|auto",
        ),
    ] = "auto"
    dequantize: Annotated[
        Dequantize,
        Flag(
            "whether to dequantise weights at load: faster on a CPU, for four to eight times the memory (default: "
            "auto, on a CPU with enough memory)",
            choices=get_args(Dequantize),
        ),
    ] = "auto"
    connections: Annotated[int, Flag("concurrent requests to a server", least=1)] = CONNECTIONS
    timeout: Annotated[float, Flag("seconds for one request to a server", "S", float, 1e-3)] = TIMEOUT
