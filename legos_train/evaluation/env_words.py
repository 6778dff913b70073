"""Envs on the command line: `ENV` or `NAME=ENV`, with constructor arguments for all envs or for one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from pettingzoo import AECEnv

import legos_envs
from legos_envs import BadArguments, UnknownEnv
from legos_envs.registry import NAMESPACE
from legos_train.config import parse_assignments
from legos_train.evaluation.session_options import Assignments

NAMED = re.compile(r"([A-Za-z][\w.-]*)=(.+)")


class SettingError(ValueError):
    """The options do not fit an env; the message says why."""


class EnvWord(NamedTuple):
    """`title`: its name in results; `id`: its name for `legos_envs.make`; `args`: its constructor arguments."""

    title: str
    id: str
    args: dict[str, Any]

    @property
    def files(self) -> list[Any]:
        """The files its rules and items may come from: one before the `:` of its id, and every `source`."""
        named = [values.get("source") for values in (self.args, *self.args.values()) if isinstance(values, Mapping)]
        sources = [one for value in named for one in (value if isinstance(value, list | tuple) else [value])]
        return [self.id.rpartition(":")[0], *sources]


def env_words(words: Iterable[str], assignments: Assignments, flag: str = "--arg") -> dict[str, EnvWord]:
    """The envs by title.

    Args:
        words: `KuhnPoker-v0`, or `math=Dataset-v0` to name it `math`, so that an env can appear twice.
        assignments: `NAME=VALUE` for all of them, `TITLE:NAME=VALUE` for one, which takes precedence.
        flag: the flag of the assignments on the command line.

    Raises:
        SettingError: two envs have one title or are the same, or an argument is for none of them.
    """
    envs: dict[str, EnvWord] = {}
    for word in dict.fromkeys(words):
        named = NAMED.fullmatch(word)
        name = _registered(named[2] if named else word)
        title = named[1] if named else name
        if title in envs:
            raise SettingError(f"two envs are named {title!r}: {envs[title].id} and {name}; give one another name")
        envs[title] = EnvWord(title, name, {})
    arguments = parse_assignments(assignments, flag)
    for special in (False, True):
        for key, value in arguments.items():
            title, colon, name = key.rpartition(":")
            if bool(colon) != special:
                continue
            if special and title not in envs:
                there = ", ".join(envs) or "none"
                raise SettingError(f"{flag} {key}=... is for an env named {title!r}; there are {there}")
            for one in [envs[title]] if special else envs.values():
                one.args[name] = value
    for title, one in envs.items():
        for other in list(envs.values())[list(envs).index(title) + 1 :]:
            if one[1:] == other[1:]:
                raise SettingError(f"{title} and {other.title} are the same env with the same arguments")
    return envs


def _registered(name: str) -> str:
    """The id that a name stands for, so that `kuhnpoker` and `KuhnPoker-v0` are one env; a file's stays as it is."""
    with suppress(UnknownEnv):  # `make` says so, and what is near
        return name if ":" in name else legos_envs.spec(name).id.removeprefix(f"{NAMESPACE}/")
    return name


def made(name: str, args: Mapping[str, Any]) -> AECEnv:
    """The env.

    Raises:
        SettingError: it does not take these arguments, or a dependency is missing.
    """
    try:
        return legos_envs.make(name, **args)
    except BadArguments as error:
        raise SettingError(f"{error}; with several envs, --arg ENV:NAME=VALUE is for one of them") from error
    except (TypeError, ValueError, RuntimeError, ImportError) as error:
        missing = isinstance(error, ModuleNotFoundError)  # the command line names the missing extra
        mistake = isinstance(error, TypeError) and "argument" not in str(error)  # in the env's own code
        if missing or mistake:
            raise
        arguments = f" with {' '.join(f'{key}={value!r}' for key, value in args.items())}" if args else ""
        raise SettingError(
            f"{name} cannot be created{arguments}: {error}. `legos envs show {name}` has its arguments; with several "
            "envs, --arg ENV:NAME=VALUE is for one of them"
        ) from error
