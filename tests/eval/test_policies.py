"""From words to players, without loading more than they need."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from legos_train.cli import main
from legos_train.policies import Cast, PolicyError, fingerprint, is_code, locate

from .stub import chat, legal, serving

MODEL_LIBRARIES = {"mlx", "mlx_lm", "transformers", "tokenizers", "safetensors", "torch"}


def loaded(*arguments: str) -> set[str]:
    """Top-level modules in a fresh process after a command."""
    code = (
        "import sys; from legos_train.cli import main\n"
        f"assert main({list(arguments)!r}) == 0\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_code_policies_and_endpoints_load_no_model_library(tmp_path: Path) -> None:
    with serving(lambda number, body: chat(legal(body))) as stub:
        players = ["-m", "optimal", "-m", "scripted:first", "-m", stub.spec]
        found = loaded("eval", "KuhnPoker-v0", *players, "-n", "4", "--out", str(tmp_path / "e"))
    assert "httpx2" in found and not found & {*MODEL_LIBRARIES, "openai"}
    players = ["-m", "optimal", "-m", "random", "--no-leaderboard"]
    assert not loaded("tournament", "KuhnPoker-v0", *players, "-n", "4") & {*MODEL_LIBRARIES, "httpx2"}


def test_a_thousand_games_at_once_take_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    began = time.process_time()
    arguments = ["-m", "random", "--opponent", "scripted:last", "-n", "1000", "--concurrency", "1000", "--json"]
    assert main(["eval", "KuhnPoker-v0", *arguments]) == 0
    took = time.process_time() - began
    assert json.loads(capsys.readouterr().out)["results"][0]["games"] == 1000
    assert took < 5, took


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "kuhn"
    small = ["--steps", "2", "--batch-size", "16", "--threads", "1", "--lora.rank", "4", "--lora.scale", "3"]
    quiet = ["--eval.every", "0", "--checkpoint.every", "1", "--average.kind", "none", "--optim.lr", "0.01"]
    assert main(["train", *small, *quiet, "--run-dir", str(path)]) == 0
    return path


def test_checkpoints_of_a_run_are_policies(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    words = [f"{run_dir}@step_1", f"{run_dir}@step_2", f"{run_dir}@last", "tiny"]
    flags = [flag for word in words for flag in ("-m", word)]
    assert main(["eval", "KuhnPoker-v0", *flags, "--opponent", "random", "-n", "4", "--json"]) == 0
    first, second, last, base = (r["exact"]["nash_conv"] for r in json.loads(capsys.readouterr().out)["results"])
    assert second == pytest.approx(last, abs=1e-6), "the last checkpoint is the last adapter"
    assert len({round(x, 6) for x in (first, second, base)}) == 3
    assert locate(words[0]) == ("tiny", run_dir / "checkpoints/step_1")
    assert fingerprint(locate(words[0])[1]) != fingerprint(locate(words[1])[1])  # type: ignore[arg-type]


def test_other_weights_under_the_same_name_are_other_games(run_dir: Path) -> None:
    cast = Cast()
    before = cast.identity(f"{run_dir}@last")
    file = run_dir / "last/adapters.safetensors"
    kept = file.read_bytes()
    file.write_bytes(kept[:-4] + b"\0\0\x80?")
    try:
        assert cast.identity(f"{run_dir}@last") != before
    finally:
        file.write_bytes(kept)
    assert cast.identity(f"{run_dir}@last") == before and cast.identity("random") == {}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("{run}@step_9", "@step_2"),
        ("{run}@nothing", "no adapter"),
        ("nowhere@best", "no run directory"),
        ("http://127.0.0.1:1/v1", "names no model"),
        ("optimall", "Accepted: random"),
    ],
)
def test_wrong_words_are_explained(run_dir: Path, word: str, said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        Cast().player(word.format(run=run_dir))


@pytest.mark.parametrize(
    ("word", "code"),
    [("random", True), ("scripted:first", True), ("random:x", False), ("scripted", True), ("randomly/model", False)],
)
def test_words_of_code(word: str, code: bool) -> None:
    assert is_code(word) == code


def test_a_person_may_be_an_opponent(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("builtins.input", lambda prompt: "[check]" if "player_0" in prompt else "[fold]")
    said = iter(["check", "bet", "fold", "call"] * 20)
    monkeypatch.setattr("legos_envs.policies.HumanPolicy.__call__", lambda self, d: (d.legal_actions or ("",))[0])
    assert next(said)
    assert main(["eval", "KuhnPoker-v0", "-m", "human", "--opponent", "optimal", "-n", "2"]) == 0
    assert "a person's games" in capsys.readouterr().out


def test_judges_have_a_seat_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["eval", "HeadToHead-v0", "-m", "scripted:long", "--opponent", "scripted:short", "-n", "8", "--json"]
    assert main([*command, "--seat", "judge=scripted:longer"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["results"]
    assert row["mean"] == 1.0 and row["win"] == 1.0 and "margin" not in row and "judge" not in " ".join(row["advice"])
    assert main(command) == 0
    (row,) = json.loads(capsys.readouterr().out)["results"]
    assert "match_0/judge_0 played by random" in " ".join(row["advice"])
    assert main([*command, "--seat", "jugde=random"]) == 1
    assert "no agent or role ['jugde']" in capsys.readouterr().err


def test_general_sum_games_report_wins_minus_losses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "Negotiation-v0", "-m", "random", "--opponent", "self", "-n", "8", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["results"]
    assert row["margin_ci95"][0] <= row["margin"] <= row["margin_ci95"][1]
