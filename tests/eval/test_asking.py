"""`--reply` and `--thinking` of eval and play, and what is said where a run was trained otherwise."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from legos_train.cli.main import main


def test_a_reply_template_sets_the_format_and_the_prompt(tmp_path: Path, thinking_model_dir: Path, capsys) -> None:
    command = ["eval", "KuhnPoker-v0", "-m", str(thinking_model_dir), "-n", "2", "--max-tokens", "4"]
    asked = ["--thinking", "off", "--reply", "boxed_reasoning", "--out", str(tmp_path / "out"), "--json"]
    assert main([*command, *asked]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["results"][0]["args"] == {"action_format": "boxed"} and "exact" not in result["results"][0]
    assert result["setting"]["reply"] == "boxed_reasoning" and result["setting"]["thinking"] == "off"
    asked = (tmp_path / "out" / "rollouts.jsonl").read_text()
    assert "\\\\boxed{check}" in asked and "reason step by step" not in asked  # the env's own prompt is recorded
    assert main([*command, "--reply", "boxed", "--json"]) == 0  # no reasoning asked for: exact numbers are back
    assert "exact" not in json.loads(capsys.readouterr().out)["results"][0]  # but this template thinks by itself
    assert main([*command, "--reply", "boxed", "--thinking", "off", "--json"]) == 0
    assert "exact" in json.loads(capsys.readouterr().out)["results"][0]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["-m", "tiny", "--thinking", "on"], 1, "tiny: this model's chat template has no enable_thinking"),
        (["-m", "tiny", "--thinking", "perhaps"], 2, "invalid choice: 'perhaps'"),
        (["-m", "tiny", "--thinking-tokens", "12"], 1, "must be less than max_tokens (12)"),
        (["-m", "random", "--reply", "boxt"], 1, "did you mean 'boxed'?"),
        (["-m", "random", "--reply", "boxed", "--arg", "action_format=bracket"], 1, "needs action_format = 'boxed'"),
    ],
)
def test_what_cannot_be_asked_for(arguments: list[str], code: int, said: str, capsys) -> None:
    try:
        result = main(["eval", "KuhnPoker-v0", "-n", "2", *arguments])
    except SystemExit as stop:
        result = stop.code
    assert result == code and said in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_that_was_asked_otherwise_is_told(tmp_path: Path, capsys) -> None:
    run = tmp_path / "run"
    small = ["--steps", "1", "--batch-size", "8", "--lora.rank", "2", "--eval.every", "0", "--eval.games", "2"]
    assert main(["train", *small, "--reply", "boxed", "--run-dir", str(run), "--logs.progress", "plain"]) == 0
    capsys.readouterr()
    assert main(["eval", "KuhnPoker-v0", "-m", str(run), "-n", "2", "--no-exact"]) == 0
    assert "was trained with reply = 'boxed'; here it is 'env' (--reply)" in capsys.readouterr().out


def test_play_asks_in_the_format(capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\\boxed{check}\n\\boxed{fold}\n\\boxed{fold}\n"))
    assert main(["play", "KuhnPoker-v0", "--reply", "boxed", "--seed", "1"]) == 0
    assert "\\boxed{check}" in capsys.readouterr().out
