"""An environment as a package for verifiers v1, the library that prime-rl trains with.

The package has a taskset (one task per seed) and an `Env` whose config has one agent per role, so that each seat can
have its own model: `--env.player_1.model ...`. Seats are conversations; the environment's rules run in the
process of the `Env`. Written for verifiers 0.4: a plugin there is a module that exports its classes in `__all__`.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from legos_train.disk import fsops
from legos_train.errors import ExportError
from legos_train.export import table
from legos_train.export.folder import fresh_folder

TAKEN = ("id", "taskset", "timeout", "retries", "max_concurrent_agents", "interception", "arguments", "scripted")
"""Fields that the env's config already has."""


def write_package(
    env_id: str, out: Path, *, arguments: Mapping[str, Any] | None = None, overwrite: bool = False
) -> tuple[str, dict[str, bool]]:
    """Writes the package.

    Args:
        env_id: a registered environment.
        out: the folder to write.
        arguments: constructor arguments stored in the package; its users can add others.
        overwrite: replace existing files.

    Returns:
        The package's name, and for each role whether it is trained.

    Raises:
        ExportError: the environment is not of this library, or a role cannot be the name of a setting.
        UnknownEnv: no such environment exists.
    """
    import legos_envs

    kwargs = {"memory": "chat", **(arguments or {})}
    if ":" in env_id:
        raise ExportError(f"{env_id!r} is not a registered id; a package can only name what its users can install")
    env: Any = legos_envs.make(env_id, **kwargs)
    env.reset(seed=0)
    roles = {str(i.get("role", a)): bool(i.get("trainable", True)) for a, i in env.infos.items()}
    fields = {role: _field(role) for role in roles}
    if len(set(fields.values())) != len(fields):
        raise ExportError(f"{env_id}: roles {sorted(roles)} give the same setting name twice")
    stem = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+", "_", env_id).lower().strip("_")
    package, title = f"legos_{stem}", re.sub(r"\W", "", env_id.partition("-v")[0].rpartition("/")[2])
    names = {
        "ENV_ID": repr(env_id),
        "ARGUMENTS": repr(kwargs),
        "ROLES": repr(roles),
        "FIELDS": repr(fields),
        "PACKAGE": repr(package),
        "TITLE": title,
        "SEATS": "\n".join(f"    {field}: vf.AgentConfig = SEAT" for field in fields.values()),
        "DASHED": package.replace("_", "-"),
        "PLAIN_ENV": env_id,
        "PLAIN_PACKAGE": package,
        "FIRST": next(iter(fields.values())),
        "LAST": list(fields.values())[-1],
    }
    fresh_folder(out, overwrite=overwrite)
    (out / package).mkdir(exist_ok=True)
    files = {"pyproject.toml": PYPROJECT, "README.md": README, f"{package}/__init__.py": MODULE}
    for name, template in files.items():
        fsops.write_bytes(out / name, re.sub(r"@(\w+)@", lambda found: names[found[1]], template).encode())
    fsops.write_bytes(out / package / "table.py", Path(table.__file__).read_bytes())
    return package, roles


def _field(role: str) -> str:
    field = re.sub(r"\W", "_", role)
    if not field.isidentifier() or keyword.iskeyword(field) or field.startswith(("_", "model_")):
        raise ExportError(f"role {role!r} cannot be the name of a setting")
    return f"{field}_seat" if field in TAKEN else field


PYPROJECT = """\
[project]
name = "@DASHED@"
version = "0.1.0"
description = "@PLAIN_ENV@ of Legos, for verifiers."
requires-python = ">=3.11"
dependencies = ["legos-selfplay", "verifiers>=0.4,<0.5"]

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
packages = ["@PLAIN_PACKAGE@"]
"""

README = """\
# @DASHED@

`@PLAIN_ENV@` of Legos as a package for verifiers v1. Every role of the game is an agent of the environment's config.

    uv pip install -e .
    uv run vf-eval @DASHED@ -n 5
    uv run vf-eval @DASHED@ -n 5 --env.@LAST@.model another-model
    uv run vf-eval @DASHED@ -n 5 --env.scripted '{"@LAST@": "random"}'

In prime-rl's `rl.toml`:

    [[orchestrator.train.env]]
    name = "@DASHED@"
    env = { taskset = { id = "@DASHED@" } }

A task is a seed (`--env.taskset.first-seed`, `--env.taskset.num-tasks`). The reward `return` of a seat's trace is what
its agent got in the episode. A seat with its own model is not trained. `legos` must be the library that this was
exported from; install it from there if the package index has none or another one of that name.
"""

MODULE = '''\
"""@PLAIN_ENV@ of Legos, for verifiers v1: a taskset of seeds, and an environment with one agent per role."""

import itertools
from collections.abc import Iterator
from contextlib import asynccontextmanager
from typing import Any

import verifiers.v1 as vf

from @PLAIN_PACKAGE@.table import play

ENV_ID = @ENV_ID@
ARGUMENTS: dict[str, Any] = @ARGUMENTS@
ROLES = @ROLES@
"""Role -> whether it is trained."""
FIELDS = @FIELDS@
"""Role -> its setting."""
SEAT = vf.AgentConfig(harness={"id": "null"}, runtime=vf.SubprocessConfig())
"""A chat without tools, on this machine."""


class @TITLE@Data(vf.TaskData):
    seed: int


class @TITLE@Task(vf.Task[@TITLE@Data, vf.State, vf.TaskConfig]):
    """An episode with this seed."""


class @TITLE@Config(vf.TasksetConfig):
    first_seed: int = 0
    num_tasks: int | None = None
    """How many seeds; None: no end."""


class @TITLE@Taskset(vf.Taskset[@TITLE@Task, @TITLE@Config]):
    INFINITE = True

    def load(self) -> Iterator[@TITLE@Task]:
        seeds = itertools.count(self.config.first_seed)
        for seed in itertools.islice(seeds, self.config.num_tasks):
            yield @TITLE@Task(@TITLE@Data(name=f"{ENV_ID}#{seed}", seed=seed), self.config.task)


class @TITLE@EnvConfig(vf.EnvConfig):
@SEATS@
    arguments: dict[str, Any] = {}
    """Constructor arguments of the game, over those of the package."""
    scripted: dict[str, str] = {}
    """Role -> "random", "optimal" or "scripted:NAME": who plays it without a model."""


class Talk:
    def __init__(self, interaction: vf.Interaction):
        self.interaction = interaction

    async def turn(self, text: str | None) -> str | None:
        segment = await (self.interaction.turn() if text is None else self.interaction.turn(text))
        if segment.terminated and self.interaction.trace.errors:  # the endpoint failed: no fault of the player
            raise RuntimeError(str(self.interaction.trace.errors[-1].message))
        return None if segment.terminated else segment.last_reply


class @TITLE@Env(vf.Env[@TITLE@EnvConfig]):
    async def setup(self, agents: vf.Agents) -> None:
        for role, trained in ROLES.items():
            seat = getattr(self.config, FIELDS[role])
            getattr(agents, FIELDS[role]).trainable = trained and seat.model is None and seat.client is None

    async def run(self, task: @TITLE@Task, agents: vf.Agents) -> None:
        traces: list[tuple[str, vf.Trace]] = []

        @asynccontextmanager
        async def converse(agent, role, messages):
            system = "\\n".join(m["content"] for m in messages if m["role"] == "system") or None
            rest = [m for m in messages if m["role"] != "system"]
            plain = all(m["role"] == "user" for m in rest)
            prompt = "\\n".join(m["content"] for m in rest) if plain else rest
            shown = vf.Task(vf.TaskData(idx=task.data.idx, name=f"{task.data.name} {agent}", prompt=prompt,
                                        system_prompt=system))
            async with getattr(agents, FIELDS[role]).interaction(shown) as interaction:
                traces.append((agent, interaction.trace))
                yield Talk(interaction)

        arguments = {**ARGUMENTS, **self.config.arguments}
        episode = await play(ENV_ID, arguments, task.data.seed, converse, self.config.scripted)
        for agent, trace in traces:
            trace.record_reward("return", episode.returns[agent])
            trace.record_metric("game_turns", float(len(episode.trajectories[agent].turns)))
            trace.record_metric("truncated", float(episode.truncated))
            trace.record_metric("invalid", float(agent in episode.info.get("offenders", ())))
            trace.info["legos"] = {"agent": agent, "seed": task.data.seed, "outcome": episode.outcome}


def load_environment(**settings: Any) -> vf.Env:
    """The environment with these settings, such as `player_1={"model": "..."}`."""
    taskset = {**settings.pop("taskset", {}), "id": @PACKAGE@}
    return vf.load_environment(vf.resolve_env_config({**settings, "taskset": taskset}))


__all__ = ["@TITLE@Env", "@TITLE@Taskset", "load_environment"]
'''
