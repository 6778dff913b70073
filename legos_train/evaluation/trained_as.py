"""How a run was trained: what its evaluation should repeat, or say that it does not."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from legos_train.evaluation.games import Pairing
from legos_train.evaluation.session_options import SessionOptions
from legos_train.rollout.players import replies, words
from legos_train.settings import as_entries, with_none

ASKED = {"thinking": "auto", "reply": "env"}
"""Settings of a run for how answers are asked for, with their defaults."""


def trained_otherwise(
    word: str, pairing: Pairing, options: SessionOptions, unprompted: Collection[str]
) -> Iterator[str]:
    """Notes on how the training of a run differs from its games; none for other policies.

    Args:
        word: the policy.
        pairing: its games.
        options: how they are played.
        unprompted: agents and roles of the env without a system prompt.
    """
    trained = trained_args(word, pairing.env)
    if trained and pairing.args not in trained:
        yield (
            f"{word} was trained with the env arguments {' and '.join(map(str, trained))}; these games have "
            f"{pairing.args} (--arg)."
        )
    settings = _run_of(word)
    for name, default in ASKED.items() if settings else ():
        then, now = settings.get(name, default), getattr(options, name)
        if then != now:
            yield f"{word} was trained with {name} = {then!r}; here it is {now!r} (--{name})."
    if roles := set(prompted_roles(word, pairing.env)).intersection(unprompted):
        yield (
            f"{word} was trained with system prompts for {', '.join(sorted(roles))}; there is none here "
            "(--system ROLE=TEXT)."
        )


def trained_args(word: str, env: str) -> list[dict[str, Any]]:
    """The arguments of each env with that id that a run was trained on, with the action format of its `reply`; empty
    for anything but a run.
    """
    settings = _run_of(word)
    args = [
        {**e.get("args", {}), **settings.get("env_args", {})}
        for e in as_entries(settings.get("env", ()))
        if e.get("id") == env
    ]
    return [replies.formatted(with_none(one), settings.get("reply", "env"), env) for one in args]


def prompted_roles(word: str, env: str) -> list[str]:
    """The roles that had a system prompt in an env in training, including those set for all envs."""
    settings = _run_of(word)
    entries = as_entries(settings.get("env", ()))
    label_of = [(entry.get("name") or entry["id"], entry.get("id")) for entry in entries]
    roles = set()
    for key in [role for role, actor in settings.get("actors", {}).items() if actor.get("system_prompt")]:
        found = [(key.removeprefix(f"{label}/"), name) for label, name in label_of if key.startswith(f"{label}/")]
        roles |= {role for role, name in found or [(key, env)] if name == env}
    return sorted(roles)


def _run_of(word: str) -> dict[str, Any]:
    """The settings of the run with that name; empty for other policies."""
    run = Path(words.run_and_weights(word)[0])
    if words.is_code(word) or words.is_endpoint(word) or not (run / "config.toml").exists():
        return {}
    return words.run_settings(run)
