"""A thin layer over PettingZoo's registry: `make("Kuhn...")` is `pettingzoo.make("aec", "legos/Kuhn...")`.

Neither PettingZoo nor Gymnasium (>= 1.0) reads plugin entry points: import a module that calls `register`.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pettingzoo
from pettingzoo import AECEnv, EnvSpec

from legos_envs import arguments

NAMESPACE = "legos"
_refused: dict[str, str] = {}
_families: dict[str, str] = {}
_brought: dict[str, list[str]] = {}
"""The ids that importing a module or file registered, by the module or path in an environment id."""


class UnknownEnv(LookupError):
    """No environment is registered under the id; the message suggests the nearest ones."""


class BadArguments(TypeError, ValueError):
    """The constructor refused its arguments; the message names them, and where to find the accepted ones."""


def register(
    id: str, entry_point: Callable[..., Any] | str | None = None, *, family: str | None = None, **kwargs: Any
) -> None:
    """Registers an environment as `legos/ID`, or as given if the id has a namespace.

    Args:
        id: `Name-v0`, or `namespace/Name-v0`.
        entry_point: a class or factory, or `"module:attribute"` (imported only when an env is created).
        family: its heading in `legos envs list` and the docs; "others" by default.
        **kwargs: default constructor arguments.

    Raises:
        TypeError: the entry point is neither callable nor a str.
    """
    if entry_point is not None and not isinstance(entry_point, str) and not callable(entry_point):
        raise TypeError(f"register({id!r}, ...) takes a class, a function or 'module:attribute'; got {entry_point!r}")
    pettingzoo.register("aec", _full(id), entry_point, kwargs=kwargs)
    if family is not None:
        _families[_short(_full(id))] = family


def refuse(id: str, reason: str) -> None:
    """Makes the lookup of an id fail with a reason, for environments that users may expect but cannot create."""
    _refused[_full(id)] = reason


def registered(namespace: str = NAMESPACE) -> list[str]:
    """The short ids of all registered environments of a namespace, sorted."""
    prefix = f"{namespace}/"
    return sorted(id.removeprefix(prefix) for id in pettingzoo.aec_registry if id.startswith(prefix))


def families() -> dict[str, list[str]]:
    """The ids of each family, both in order of registration."""
    out: dict[str, list[str]] = {}
    for id, family in _families.items():
        if _full(id) in pettingzoo.aec_registry:
            out.setdefault(family, []).append(id)
    return out


def family_of(id: str) -> str | None:
    """The family that an id was registered under."""
    return _families.get(_short(_full(id)))


def spec(id: str) -> EnvSpec:
    """The registered spec of an id. An id without a version selects the newest one, with a warning.

    Raises:
        UnknownEnv: nothing is registered under the id.
    """
    full = _full(id)
    if full in pettingzoo.aec_registry:
        return pettingzoo.aec_registry[full]
    versions = [known for known in pettingzoo.aec_registry if known.rpartition("-v")[0].casefold() == full.casefold()]
    if versions:
        newest = max(versions, key=lambda known: int(known.rpartition("-v")[2]))
        warnings.warn(f"{id!r} names no version; using the newest, {_short(newest)!r}", UserWarning, stacklevel=3)
        return pettingzoo.aec_registry[newest]
    if full in _refused:
        raise UnknownEnv(f"{id!r} cannot be created: {_refused[full]}.")
    close = _nearest(full)
    hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
    if id.endswith(".py"):
        hint = f" One that a file registers is named '{id}:Name-v0'."
    raise UnknownEnv(f"no environment {id!r} is registered.{hint} `legos envs list` shows all {len(registered())}.")


def make(id: str | EnvSpec, **kwargs: Any) -> AECEnv:
    """Creates an environment.

    Args:
        id: `"KuhnPoker-v0"`; or `"package.module:Name-v0"` or `"path/to/file.py:Name-v0"`, which are imported first; or
            a spec.
        **kwargs: constructor arguments, which override the registered defaults.

    Raises:
        UnknownEnv: nothing is registered under the id, or its module cannot be imported or does not register it.
        BadArguments: the constructor does not take these arguments. It is a TypeError and a ValueError.
        TypeError: the id is neither a str nor a spec.
    """
    if not isinstance(id, str | EnvSpec):
        raise TypeError(
            f"make() takes the id of an environment, such as 'KuhnPoker-v0', or its spec; got {id!r}. "
            f"`python -m legos_envs` lists the ids"
        )
    module, _, name = id.rpartition(":") if isinstance(id, str) else ("", "", id.id)
    if module:
        _import(module)
    try:
        env_spec = spec(name) if isinstance(id, str) else id
    except UnknownEnv as error:
        if not module:
            raise
        if _brought.get(module):
            own = ", ".join(f"{module}:{known}" for known in _brought[module])
            raise UnknownEnv(f"{module!r} registers no {name!r}; it has {own}") from error
        raise UnknownEnv(f"{error} {module!r} was imported; does it call `register({name!r}, ...)`?") from error
    try:
        return pettingzoo.make("aec", env_spec, **kwargs)
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
        refusal = isinstance(error, ValueError) or (isinstance(error, TypeError) and "argument" in str(error))
        if not kwargs or not (refusal or env_spec.namespace == NAMESPACE):  # a fault of a user's env: a traceback helps
            raise
        given = " ".join(f"{key}={value!r}" for key, value in kwargs.items())
        shown = id if isinstance(id, str) else name
        accepted = arguments.accepted(_entry_point(env_spec))
        wrong = next((key for key in kwargs if key not in accepted), None) if accepted is not None else None
        if accepted is not None and wrong is not None:
            why = arguments.unknown(f"{shown}: argument", wrong, list(accepted))
            raise BadArguments(f"{why} `legos envs show {shown}` says what they mean") from error
        why = str(error).rstrip(".")
        raise BadArguments(
            f"{shown} cannot be created with {given}: {why}. `legos envs show {shown}` has its arguments"
        ) from error


def known_ids(namespace: str = NAMESPACE) -> list[str]:
    """The ids of a namespace, as `make` takes them: this project's by family, others sorted."""
    if namespace != NAMESPACE:
        return [f"{namespace}/{id}" for id in registered(namespace)]
    familiar = [id for ids in families().values() for id in ids]
    return familiar + [id for id in registered() if id not in familiar]


def describe(id: str) -> dict[str, Any]:
    """An environment's entry in lists: id, family, seats (roles by agent), zero_sum, memory, about.

    If an extra is missing, `about` says what is needed.
    """
    row: dict[str, Any] = {"id": id, "family": family_of(id), "seats": {}, "zero_sum": None, "memory": None}
    try:
        env: Any = make(id)
    except Exception as error:
        if not isinstance(error.__cause__ or error, ImportError):
            raise
        return row | {"about": f"cannot be created here: {error}"}
    return row | {
        "seats": {agent: seat.role for agent, seat in getattr(env, "seats", {}).items()},
        "zero_sum": getattr(env, "zero_sum", None),
        "memory": getattr(env, "memory", None),
        "about": (inspect.getdoc(type(env)) or "").partition("\n")[0],
    }


def catalogue(namespace: str = NAMESPACE) -> str:
    """All environments of a namespace, one per line. This project's are grouped by family, with a sentence each."""
    ids = known_ids(namespace)
    if namespace != NAMESPACE:
        return "\n".join(ids) or f"nothing is registered under the namespace {namespace!r}"
    width, family = max(map(len, ids)), None
    lines: list[str] = []
    for row in map(describe, ids):
        if lines == [] or row["family"] != family:
            family = row["family"]
            lines += ["", family or "others"] if lines else [family or "others"]
        count = len(row["seats"])
        seats = f"{count:4} seat{'s' if count > 1 else ' '}" if count else ""
        lines.append(f"{row['id']:{width}}{seats}  {row['about']}".rstrip())
    return "\n".join(lines)


def pprint_registry() -> None:
    """Prints the ids of this project's namespace, one per line."""
    print("\n".join(registered()))


def _entry_point(env_spec: EnvSpec) -> Any:
    """The class or factory that creates the env."""
    point = env_spec.entry_point
    if not isinstance(point, str):
        return point
    module, _, name = point.partition(":")
    return getattr(importlib.import_module(module), name)


def _import(module: str) -> None:
    before = registered()
    if module.endswith(".py"):
        _import_file(Path(module).resolve())
    else:
        try:
            importlib.import_module(module)
        except Exception as error:
            raise UnknownEnv(_why_not(module, error)) from error
    _brought.setdefault(module, []).extend(id for id in registered() if id not in before)


def _import_file(path: Path) -> None:
    """Imports a file once, under a unique name, so that its classes can be pickled in this process."""
    if not path.is_file():
        raise UnknownEnv(f"no file {str(path)!r}, named before the ':' of the environment id")
    name = f"legos_file_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return
    file_spec = importlib.util.spec_from_file_location(name, path)
    assert file_spec is not None and file_spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(file_spec)
    try:
        file_spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, Exception):
            raise UnknownEnv(_why_not(str(path), error)) from error
        raise


def _why_not(module: str, error: Exception) -> str:
    """Why a module or file cannot be imported, with the line that failed."""
    reason = str(error) if isinstance(error, ModuleNotFoundError) else f"{type(error).__name__}: {error}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == module]
    at = f" (line {lines[-1]})" if lines else ""  # for files; a SyntaxError names its own line
    return f"cannot import {module!r}, named before the ':' of the environment id: {reason}{at}"


_WRAPPED = re.compile("-(raw|train)$")  # TextArena's suffixes for ids with other wrappers
_VERSION = re.compile(r"-v\d+$")
_PETTINGZOO = {"atari", "butterfly", "classic", "mpe", "sisl"}  # namespaces without text games


def _nearest(full: str) -> list[str]:
    """The ids most likely meant: the same name in another version or namespace, else similar spellings."""
    texts = (known for known in pettingzoo.aec_registry if known.partition("/")[0] not in _PETTINGZOO)
    names = {_short(known): _bare(known) for known in texts}
    wanted = _WRAPPED.sub("", _bare(full))
    asked, _, _ = full.rpartition("/")
    for means in (lambda name: name == wanted, lambda name: _VERSION.sub("", name) == _VERSION.sub("", wanted)):
        same = [id for id, name in names.items() if means(name)]
        if same:
            return sorted(same, key=lambda id: (not _full(id).startswith(f"{asked}/"), id))[:3]
    here = {name: id for id, name in names.items() if _full(id).startswith(f"{asked}/")}
    spelt = {id.casefold(): id for id in names}
    close = [here[name] for name in difflib.get_close_matches(wanted, here, 3, cutoff=0.5)]
    return close or [spelt[id] for id in difflib.get_close_matches(_short(full).casefold(), spelt, 3, cutoff=0.5)]


def _bare(id: str) -> str:
    """An id without its namespace, in lower case."""
    return id.rpartition("/")[2].casefold()


def _full(id: str) -> str:
    return id if "/" in id else f"{NAMESPACE}/{id}"


def _short(id: str) -> str:
    return id.removeprefix(f"{NAMESPACE}/")
