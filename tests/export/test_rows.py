"""Rollouts as data sets: every row is what the episodes say, and `datasets` reads both files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from legos_train.cli.main import main
from legos_train.errors import ExportError
from legos_train.export import rows

Line = dict[str, Any]


@pytest.fixture(autouse=True)
def quiet_datasets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")


def load(kind: str, file: Path, cache: Path) -> list[dict[str, Any]]:
    import datasets

    datasets.disable_progress_bars()
    found = datasets.load_dataset(kind, data_files=str(file), split="train", cache_dir=str(cache))
    return [dict(row) for row in found]


@pytest.mark.slow
def test_turns_in_both_formats(run_dir: Path, lines: list[Line], tmp_path: Path) -> None:
    count, remarks = rows.write_parquet(run_dir, tmp_path / "t.parquet")
    assert rows.write_jsonl(run_dir / "rollouts.jsonl", tmp_path / "deep/t.jsonl") == (count, []) and not remarks
    found = load("parquet", tmp_path / "t.parquet", tmp_path / "cache")
    plain = [json.loads(line) for line in (tmp_path / "deep/t.jsonl").read_text().split("\n") if line]
    assert found == plain, "the two formats hold different rows"
    assert load("json", tmp_path / "deep/t.jsonl", tmp_path / "cache") == found
    turns = [
        (number, t["agent"], k, turn)
        for number, line in enumerate(lines, 1)
        for t in line["episode"]["trajectories"]
        for k, turn in enumerate(t["turns"])
    ]
    assert len(turns) == count == len(found)
    for row, (number, agent, k, turn) in zip(found, turns, strict=True):
        line = lines[number - 1]
        assert (row["episode"], row["agent"], row["turn"], row["step"]) == (number, agent, k, line["step"])
        assert row["messages"] == turn["observation"] and row["action"] == turn["action"]
        assert row["env_id"] == line["episode"]["env_id"] and row["env"] == line["env"]
        assert row["player"] == line["players"][agent] and row["outcome"] == line["outcome"].get(agent)
        for name in ("legal_actions", "prompt_tokens", "action_tokens", "logprobs", "finish_reason"):
            assert row[name] == turn.get(name), name
        assert row["sampled_by"] == turn.get("policy_version")
        assert row["trained"] == line["trained"][agent] and row["why_not"] == line["why_not"].get(agent)
    kuhn = [row for row in found if row["env_id"] == "KuhnPoker-v0"]
    assert {row["advantage"] for row in kuhn} == {0.5} and {row["logprobs"][1] for row in kuhn} == {-0.25}
    assert {row["trained"] for row in kuhn} == {True, False} and {row["advantage"] for row in found} == {0.5, None}
    assert all(row["learner"] == {"player_0": "bluffer"}.get(row["agent"]) for row in found)
    judge = [row for row in found if row["role"] == "judge"]
    assert judge and not any(row["trainable"] or row["trained"] for row in judge)


def test_rewards_add_up_to_the_return(run_dir: Path, tmp_path: Path) -> None:
    rows.write_parquet(run_dir, tmp_path / "t.parquet")
    sums: dict[tuple[int, str], float] = {}
    returns: dict[tuple[int, str], float] = {}
    for row in load("parquet", tmp_path / "t.parquet", tmp_path / "cache"):
        if row["env_id"] == "KuhnPoker-v0":  # its players are paid for their own actions alone
            key = row["episode"], row["agent"]
            sums[key] = sums.get(key, 0.0) + row["reward"]
            returns[key] = row["return"]
    assert sums == returns and any(returns.values())


def test_episodes_hold_whole_trajectories(run_dir: Path, lines: list[Line], tmp_path: Path) -> None:
    assert rows.write_parquet(run_dir, tmp_path / "e.parquet", "episode") == (len(lines), [])
    rows.write_jsonl(run_dir, tmp_path / "e.jsonl", "episode")
    found = load("parquet", tmp_path / "e.parquet", tmp_path / "cache")
    assert found == [json.loads(line) for line in (tmp_path / "e.jsonl").read_text().split("\n") if line]
    for row, line in zip(found, lines, strict=True):
        episode = line["episode"]
        assert json.loads(row["info"]) == episode["info"] and row["seed"] == episode["seed"]
        assert row["group"] == episode["group"]
        for trajectory, true in zip(row["trajectories"], episode["trajectories"], strict=True):
            assert trajectory["agent"] == true["agent"] and trajectory["carry"] == true["carry"]
            assert [t["action"] for t in trajectory["turns"]] == [t["action"] for t in true["turns"]]
            assert trajectory["return"] == true["carry"] + sum(t["reward"] for t in true["turns"])


def test_long_logs_are_written_in_parts(lines: list[Line], tmp_path: Path) -> None:
    """A column that is null in the first parts and not in the last keeps its type."""
    bare = [json.loads(json.dumps(line)) for line in lines[:6]]
    for line in bare:
        for trajectory in line["episode"]["trajectories"]:
            for turn in trajectory["turns"]:
                for name in ("logprobs", "finish_reason", "policy_version"):
                    turn.pop(name)
    log = tmp_path / "rollouts.jsonl"
    log.write_text("".join(json.dumps(line) + "\n" for line in [*(bare * 50), *lines]))
    count, _ = rows.write_parquet(tmp_path, tmp_path / "t.parquet")
    found = load("parquet", tmp_path / "t.parquet", tmp_path / "cache")
    assert len(found) == count and all(row["logprobs"] is None for row in found[: rows.PART + 1])
    assert next(row["logprobs"] for row in found if row["logprobs"]) == [-0.5, -0.25]


def test_lines_that_cannot_be_read_are_told(lines: list[Line], tmp_path: Path, capsys: Any) -> None:
    good = json.dumps(lines[0])
    odd = json.dumps({"episode": {"seed": "no number", "trajectories": [{"agent": "a", "turns": []}]}})
    (tmp_path / "rollouts.jsonl").write_text(f"{good}\nno json\n{{}}\n{good}\n{odd}\n{good[:50]}")
    out = tmp_path / "t.jsonl"
    assert main(["export", "jsonl", str(tmp_path), str(out), "--by", "episode"]) == 0
    printed = capsys.readouterr()
    assert "2 rows" in printed.out and "line 2 was left out" in printed.err and "line 3" in printed.err
    assert "line 5 was left out: ValueError" in printed.err
    assert [json.loads(line)["episode"] for line in out.read_text().splitlines()] == [1, 4]


def test_nothing_is_replaced_unasked_or_left_half_written(
    run_dir: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "t.jsonl"
    out.write_text("mine")
    assert main(["export", "jsonl", str(run_dir), str(out)]) == 1
    assert "exists" in capsys.readouterr().err and out.read_text() == "mine"
    assert main(["export", "jsonl", str(run_dir), str(out), "--overwrite"]) == 0 and out.read_text() != "mine"

    def full(*_: object) -> Any:
        yield {"episode": 1}
        raise OSError("the disk is full")

    monkeypatch.setitem(rows.ROWS, "turn", full)
    for write, name in ((rows.write_jsonl, "new.jsonl"), (rows.write_parquet, "new.parquet")):
        with pytest.raises(OSError, match="disk is full"):
            write(run_dir, tmp_path / name)
    assert [file.name for file in tmp_path.iterdir()] == ["t.jsonl"]


def test_sources_without_episodes(tmp_path: Path, capsys: Any) -> None:
    assert main(["export", "parquet", str(tmp_path), str(tmp_path / "t.parquet")]) == 1
    assert "has no rollouts.jsonl" in capsys.readouterr().err
    (tmp_path / "rollouts.jsonl").write_text("")
    assert main(["export", "parquet", str(tmp_path), str(tmp_path / "t.parquet")]) == 1
    assert "has no readable episode" in capsys.readouterr().err
    with pytest.raises(ExportError, match="turn, episode; got 'game'"):
        rows.write_jsonl(tmp_path, tmp_path / "t.jsonl", "game")


def test_the_rollouts_of_one_step(run_dir: Path, lines: list[Line], tmp_path: Path) -> None:
    out = tmp_path / "two.jsonl"
    assert main(["export", "jsonl", f"{run_dir}@step_2", str(out), "--by", "episode"]) == 0
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["episode"] for row in found] == [n for n, line in enumerate(lines, 1) if line["step"] == 2]
    assert rows.source_of(str(run_dir)) == (run_dir, None)
    with pytest.raises(ExportError, match="no episode of step 7; it has steps 1, 2"):
        rows.write_jsonl(run_dir, tmp_path / "no", step=7)
    with pytest.raises(ExportError, match="rollouts come from a run"):
        rows.source_of(f"{run_dir}@best")


def test_an_env_with_a_name_of_its_own_keeps_its_id(run_dir: Path, tmp_path: Path) -> None:
    path = shutil.copytree(run_dir, tmp_path / "run")
    (path / "config.toml").write_text('[[env]]\nid = "KuhnPoker-v0"\n[[env]]\nid = "Debate-v0"\nname = "talk"\n')
    lines = [json.loads(line) for line in (path / "rollouts.jsonl").read_text().splitlines()]
    for line in lines:  # as a run writes it
        line["episode"]["env_id"] = line["env"]
    (path / "rollouts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = ["--arg", "a:num_rounds=2", "-m", "random", "-n", "2", "--no-exact", "--out", str(tmp_path / "eval")]
    assert main(["eval", "a=KuhnPoker-v0", *words]) == 0
    found = set()
    for by in ("turn", "episode"):
        for name, source in (("run", path), ("eval", tmp_path / "eval")):
            out = tmp_path / f"{by}-{name}"
            assert main(["export", "jsonl", str(source), str(out), "--by", by]) == 0
            found |= {(row["env"], row["env_id"]) for row in map(json.loads, out.read_text().splitlines())}
    assert found == {("KuhnPoker-v0", "KuhnPoker-v0"), ("talk", "Debate-v0"), ("a", "KuhnPoker-v0")}
