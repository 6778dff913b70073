"""Rollouts as data sets: `rollouts.jsonl` of a run or an evaluation as JSONL or Parquet, by turn or by episode.

docs/export.md lists the columns. Both files load with Hugging Face's `datasets`; Parquet stores its types and stays
readable if a column is null in the first part of a long file.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from legos_train.errors import ExportError
from legos_train.observe.viewer import LogLine, LogReader, find_log

Row = dict[str, Any]
PART = 500
"""Rows written, and held in memory, at a time."""


def turn_rows(line: LogLine, ids: Mapping[str, str] | None = None) -> Iterator[Row]:
    """One row per action, one agent after another; `ids`: ids of the run's envs, by name."""
    data, episode = line.data, line.data["episode"]
    shared = _episode_facts(line, ids or {})
    for trajectory in episode["trajectories"]:
        agent = trajectory["agent"]
        advantages = (data.get("advantages") or {}).get(agent) or []
        for number, turn in enumerate(trajectory["turns"]):
            yield {
                **shared,
                **_agent_facts(data, trajectory),
                "turn": number,
                "messages": _messages(turn),
                "action": turn["action"],
                "reward": float(turn.get("reward", 0.0)),
                "advantage": float(advantages[number]) if number < len(advantages) else None,
                "legal_actions": turn.get("legal_actions"),
                "finish_reason": turn.get("finish_reason"),
                "sampled_by": turn.get("policy_version"),
                "prompt_tokens": turn.get("prompt_tokens"),
                "action_tokens": turn.get("action_tokens"),
                "logprobs": turn.get("logprobs"),
            }


def episode_rows(line: LogLine, ids: Mapping[str, str] | None = None) -> Iterator[Row]:
    """One row per episode, with nested trajectories and turns; `ids` as for `turn_rows`."""
    data, episode = line.data, line.data["episode"]
    yield {
        **_episode_facts(line, ids or {}),
        "options": json.dumps(episode.get("options") or {}, sort_keys=True),
        "info": json.dumps(episode.get("info") or {}, sort_keys=True),
        "trajectories": [
            {
                **_agent_facts(data, trajectory),
                "carry": float(trajectory.get("carry", 0.0)),
                "turns": [
                    {"messages": _messages(t), "action": t["action"], "reward": float(t.get("reward", 0.0))}
                    for t in trajectory["turns"]
                ],
            }
            for trajectory in episode["trajectories"]
        ],
    }


ROWS: dict[str, Callable[[LogLine, Mapping[str, str]], Iterator[Row]]] = {"turn": turn_rows, "episode": episode_rows}


def source_of(spec: str) -> tuple[Path, int | None]:
    """A run, an evaluation or a log, and the step in `runs/x@step_40`."""
    name, at, which = spec.rpartition("@")
    if Path(spec).exists() or not at:
        return Path(spec), None
    if not (match := re.fullmatch(r"step_(\d+)", which)):
        raise ExportError(f"{spec!r}: rollouts come from a run, RUN, or one of its steps, RUN@step_N")
    return Path(name), int(match[1])


def write_jsonl(
    source: Path, out: Path, by: str = "turn", *, step: int | None = None, overwrite: bool = False
) -> tuple[int, list[str]]:
    """Writes one JSON object per line; returns their number, and remarks on lines that could not be read.

    Args:
        source: a run or an evaluation, or its log.
        out: the file to write.
        by: what a row is, "turn" or "episode".
        step: only the episodes of this step.
        overwrite: replace an existing file.

    Raises:
        ExportError: `out` exists, or `by` is neither "turn" nor "episode".
        LogError: `source` has no log, or no episode in it.
        OSError: a file cannot be read or written.
    """
    parts, reader = _parts(source, by, step)
    count = 0
    with _replacing(out, overwrite) as temporary, temporary.open("w", encoding="utf-8") as file:
        for part in parts:
            file.writelines(json.dumps(row) + "\n" for row in part)
            count += len(part)
    return count, _remarks(reader)


def write_parquet(
    source: Path, out: Path, by: str = "turn", *, step: int | None = None, overwrite: bool = False
) -> tuple[int, list[str]]:
    """Like `write_jsonl`, as Parquet with zstd. Needs pyarrow (the extra `datasets`).

    Raises:
        ExportError, LogError, OSError: as `write_jsonl`.
        ModuleNotFoundError: pyarrow is not installed.
    """
    import pyarrow
    from pyarrow import parquet

    parts, reader = _parts(source, by, step)
    schema = _schema(by)
    count = 0
    with (
        _replacing(out, overwrite) as temporary,
        parquet.ParquetWriter(temporary, schema, compression="zstd") as writer,
    ):
        for part in parts:
            writer.write_table(pyarrow.Table.from_pylist(part, schema=schema))
            count += len(part)
    return count, _remarks(reader)


def _parts(source: Path, by: str, step: int | None) -> tuple[Iterator[list[Row]], LogReader]:
    if by not in ROWS:
        raise ExportError(f"by must be one of {', '.join(ROWS)}; got {by!r}")
    reader = LogReader(source if source.is_file() else find_log(source))
    lines = reader.read()
    if not lines:
        bad = f" (line {reader.bad[0][0]}: {reader.bad[0][1]})" if reader.bad else ""
        raise ExportError(f"{reader.path} has no readable episode{bad}")
    if step is not None:
        steps = sorted({int(line.data.get("step") or 0) for line in lines})
        lines = [line for line in lines if line.data.get("step") == step]
        if not lines:
            raise ExportError(f"{reader.path} has no episode of step {step}; it has steps {', '.join(map(str, steps))}")

    ids = _ids(reader.path.with_name("config.toml"))

    def parts() -> Iterator[list[Row]]:
        part: list[Row] = []
        for line in lines:
            try:
                part += list(ROWS[by](line, ids))
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                reader.bad.append((line.number, f"{type(error).__name__}: {error}"))
            if len(part) >= PART:
                yield part
                part = []
        if part:
            yield part

    return parts(), reader


def _ids(config: Path) -> dict[str, str]:
    """The ids of a run's named envs; the log of a run has only the names."""
    try:
        envs = tomllib.loads(config.read_text(encoding="utf-8")).get("env")
    except (OSError, ValueError):
        return {}
    named = [e for e in (envs if isinstance(envs, list) else [envs]) if isinstance(e, dict)]
    return {str(e["name"]): str(e["id"]) for e in named if e.get("name") and e.get("id")}


def _remarks(reader: LogReader) -> list[str]:
    return [f"{reader.path}: line {number} was left out: {reason}" for number, reason in reader.bad]


@contextmanager
def _replacing(out: Path, overwrite: bool) -> Iterator[Path]:
    """A temporary path next to `out`, moved into place at the end, and removed if anything fails."""
    if out.is_dir():
        raise ExportError(f"{str(out)!r} is a folder; give a file name")
    if out.exists() and not overwrite:
        raise ExportError(f"{str(out)!r} exists; give another name, or --overwrite")
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".tmp-{out.name}")
    try:
        yield temporary
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)


def _episode_facts(line: LogLine, ids: Mapping[str, str]) -> Row:
    data, episode = line.data, line.data["episode"]
    group = episode.get("group")
    named = (data.get("game") or {}).get("env_id") or ids.get(data.get("env") or "")
    return {
        "episode": line.number,
        "env_id": named or episode.get("env_id") or data.get("env") or "",
        "env": data.get("env") or episode.get("env_id") or "",
        "seed": int(episode.get("seed") or 0),
        "group": None if group is None else str(group),
        "step": int(data.get("step") or 0),
        "policy_version": int(data.get("policy_version") or 0),
        "truncated": bool(episode.get("truncated")),
    }


def _agent_facts(data: dict[str, Any], trajectory: dict[str, Any]) -> Row:
    agent = trajectory["agent"]
    returned = float(trajectory.get("carry", 0.0)) + sum(float(t.get("reward", 0.0)) for t in trajectory["turns"])
    return {
        "agent": agent,
        "role": trajectory.get("role") or agent,
        "player": (data.get("players") or {}).get(agent, "policy"),
        "learner": (trajectory.get("info") or {}).get("learner"),
        "trainable": bool(trajectory.get("trainable", True)),
        "trained": bool((data.get("trained") or {}).get(agent, False)),
        "why_not": (data.get("why_not") or {}).get(agent),
        "outcome": (data.get("outcome") or {}).get(agent),
        "return": returned,
    }


def _messages(turn: dict[str, Any]) -> list[dict[str, str]]:
    return [{"role": str(m.get("role", "")), "content": str(m.get("content", ""))} for m in turn.get("observation", [])]


def _schema(by: str) -> Any:
    import pyarrow as pa

    text, whole, number, yes = pa.string(), pa.int64(), pa.float64(), pa.bool_()
    messages = pa.list_(pa.struct([("role", text), ("content", text)]))
    episode = [("episode", whole), ("env_id", text), ("env", text), ("seed", whole), ("group", text), ("step", whole)]
    episode += [("policy_version", whole), ("truncated", yes)]
    agent = [("agent", text), ("role", text), ("player", text), ("learner", text)]
    agent += [("trainable", yes), ("trained", yes), ("why_not", text), ("outcome", text), ("return", number)]
    if by == "turn":
        turn = [("turn", whole), ("messages", messages), ("action", text), ("reward", number), ("advantage", number)]
        turn += [("legal_actions", pa.list_(text)), ("finish_reason", text), ("sampled_by", whole)]
        turn += [("prompt_tokens", pa.list_(whole)), ("action_tokens", pa.list_(whole)), ("logprobs", pa.list_(number))]
        return pa.schema(episode + agent + turn)
    turns = pa.list_(pa.struct([("messages", messages), ("action", text), ("reward", number)]))
    trajectories = pa.list_(pa.struct([*agent, ("carry", number), ("turns", turns)]))
    return pa.schema([*episode, ("options", text), ("info", text), ("trajectories", trajectories)])
