"""System prompts of an evaluation: one for everybody, and those of single agents and roles, `ROLE=TEXT`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from legos_train.evaluation.env_words import SettingError


class SystemPrompts(NamedTuple):
    """System prompts by whom they are for.

    Attributes:
        general: that of all others.
        by_env: those of agents and roles, by env.
        trained: those of trained seats, by the given name.
    """

    general: str | None
    by_env: dict[str, dict[str, str]]
    trained: dict[str, str]


def system_prompts(texts: Sequence[str], envs: Mapping[str, Mapping[str, Any]]) -> SystemPrompts:
    """System prompts as given; `NAME=` counts only if an env has an agent or role of that name.

    Args:
        texts: `TEXT` or `NAME=TEXT`.
        envs: by title, the infos of an env's agents.

    Raises:
        SettingError: there are two general prompts.
    """
    roles = {title: {a: info.get("role", a) for a, info in infos.items()} for title, infos in envs.items()}
    known = {name for of_env in roles.values() for pair in of_env.items() for name in pair}
    named: dict[str, str] = {}
    general = []
    for text in texts:
        name, sign, own = text.partition("=")
        if sign and name in known:
            named[name] = own
        elif sign and name.isidentifier() and (near := difflib.get_close_matches(name, known, 1)):
            raise SettingError(f"--system {name}=TEXT names no role or agent; did you mean {near[0]}=TEXT?")
        else:
            general.append(text)
    if len(general) > 1:
        raise SettingError(
            f"--system {general[1]!r} is a second general prompt; for one role write --system ROLE=TEXT, "
            f"with one of {', '.join(sorted(known)) or 'the roles of `legos envs show`'}"
        )
    found = SystemPrompts(general[0] if general else None, {}, {})
    for title, of_env in roles.items():
        for agent, role in of_env.items():
            if envs[title][agent].get("trainable", True):
                found.trained.update({name: named[name] for name in (agent, role) if name in named})
            for name, key in ((role, role), (agent, role), (agent, agent)):
                if key in named:
                    found.by_env.setdefault(title, {})[name] = named[key]
    return found
