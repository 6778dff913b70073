"""How a policy may be named: one table for help, errors and the guide."""

from __future__ import annotations

import re
import textwrap
from typing import NamedTuple

from inference import BUNDLED


class PolicyKind(NamedTuple):
    """Names of one kind.

    Attributes:
        typed: what is typed.
        plays: who plays then.
        listed: how a sentence lists them; by default as they are typed.
        code: whether it is code of the env, or a person, and no directory or address.
    """

    typed: tuple[str, ...]
    plays: str
    listed: tuple[str, ...] = ()
    code: bool = False


CODE = PolicyKind(("random", "optimal", "scripted:NAME"), "code; `legos envs show ENV` has the names", code=True)
HUMAN = PolicyKind(("human",), "you, in the terminal", code=True)
ENDPOINT = PolicyKind(
    ("http://HOST:PORT/v1#MODEL",),
    "a server with OpenAI's API; its key is read from LEGOS_API_KEY (OPENAI_API_KEY, OPENROUTER_API_KEY for those "
    "services)",
    ("an endpoint http://HOST:PORT/v1#MODEL",),
)
POLICY_KINDS = (
    CODE,
    HUMAN,
    PolicyKind(
        (*BUNDLED, "DIRECTORY", "ORG/NAME"),
        "a model, `+ADAPTER` with LoRA weights; `ORG/NAME@REVISION` pins a commit",
        (*BUNDLED, "a model directory or hub name (with +ADAPTER if wanted)"),
    ),
    PolicyKind(("ADAPTER",), "a directory with an adapter, which names its model", ("an adapter directory",)),
    PolicyKind(
        ("runs/x", "runs/x@best"),
        "a run's published weights, its best; `@last`, `@average`, or `@step_40` of a kept checkpoint",
        ("a run directory (with @last, @average, @best or @step_N)",),
    ),
    PolicyKind(
        ("runs/x/exploiter",), "a strategy that `legos exploit` saved", ("a strategy directory of `legos exploit`",)
    ),
    ENDPOINT,
)
CODE_POLICIES = tuple(word.partition(":")[0] for kind in POLICY_KINDS if kind.code for word in kind.typed)


def listed(*more: str, but: tuple[PolicyKind, ...] = (HUMAN,), mark: str = "`", brief: bool = True) -> str:
    """The names as a sentence lists them, after some that are accepted only there.

    Args:
        more: these.
        but: kinds that are not accepted there.
        mark: put around what is typed as it is.
        brief: without what is in parentheses.
    """
    kinds = [kind for kind in POLICY_KINDS if kind not in but]
    names = [*more, *(name for kind in kinds for name in kind.listed or kind.typed)]
    names = [name if " " in name else f"{mark}{name}{mark}" for name in names]
    return re.sub(r" \([^)]*\)", "", ", ".join(names)) if brief else ", ".join(names)


def policy_help() -> str:
    """The table, for the help of a command."""
    lines = ["Policies:"]
    for kind in POLICY_KINDS:
        head, *rest = textwrap.wrap(kind.plays, 66)
        lines += [f"  {', '.join(kind.typed):<32} {head}", *(f"{'':35}{line}" for line in rest)]
    return "\n".join(lines)
