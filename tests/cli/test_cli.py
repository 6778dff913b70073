"""The command line: what it prints, and what it says to wrong input."""

from __future__ import annotations

import inspect
import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from inference import Engine
from inference.forward import fastblas
from inference.server import Settings
from legos_train.cli import serve
from legos_train.cli.main import main

SMALL = ["--steps", "2", "--batch-size", "4", "--threads", "1", "--lora.rank", "4", "--eval.every", "0"]


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "kuhn"
    assert main(["train", *SMALL, "--run-dir", str(path)]) == 0
    return path


def test_envs_list_and_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"KuhnPoker-v0", "Nim-v0", "TicTacToe-v0", "MatrixGame-v0"} <= {row["id"] for row in rows}
    assert main(["envs", "show", "KuhnPoker-v0", "--arg", "num_rounds=3"]) == 0
    shown = capsys.readouterr().out
    assert "num_rounds = 1" in shown and "player_1: role player_1" in shown and "Round 1 of 3" in shown


@pytest.mark.parametrize(
    "verb",
    [
        pytest.param(("envs", "show", "KuhnPoker-v0"), marks=pytest.mark.slow),
        ("view", "--terminal"),
        ("--help",),
        ("doctor", "--help"),
    ],
)
def test_a_reader_that_has_gone_is_no_error(verb: tuple[str, ...], run_dir: Path) -> None:
    more = [str(run_dir)] if verb[0] == "view" else []
    command = [sys.executable, "-m", "legos_train.cli.main", *verb, *more]
    late = {**os.environ, "PYTHONUNBUFFERED": ""}  # what is printed is written at the end
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=late) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == "" and process.wait(60) == 141


def test_envs_check_tells_by_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs", "check", "KuhnPoker-v0", "--episodes", "20"]) == 0
    assert "0 failed" in capsys.readouterr().out


def test_training_without_a_terminal_prints_a_line_a_step_and_json_for_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "r"
    assert main(["train", *SMALL, "--run-dir", str(folder)]) == 0
    told = capsys.readouterr()
    assert [line.split()[1] for line in told.out.splitlines() if line.startswith("step ")] == ["1/2", "2/2"]
    assert f"report: {folder / 'report.html'}\n" in told.out and "NashConv" in told.out
    assert "\x1b[" not in told.out + told.err
    folder = tmp_path / "s"
    assert main(["train", *SMALL, "--run-dir", str(folder), "--logs.progress", "json"]) == 0
    told = capsys.readouterr()
    lines = [json.loads(line) for line in told.out.splitlines()]
    assert [line["step"] for line in lines if "step" in line] == [1, 2] and "nash_conv" in lines[-2]["eval"]
    assert lines[-1]["result"]["report"] == str(folder / "report.html") and (folder / "report.html").exists()
    assert "\x1b[" not in told.out + told.err


@pytest.mark.quick("random")
@pytest.mark.parametrize("opponent", ["random", "optimal"])
def test_eval_prints_one_json_object(
    run_dir: Path, opponent: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["eval", "KuhnPoker-v0", "-m", str(run_dir), "-m", "tiny", "-m", "random", "--opponent", opponent]
    assert main([*arguments, "-n", "16", "--seed", "1", "--json", "--out", str(tmp_path)]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [r["policy"] for r in results] == [str(run_dir), "tiny", "random"]
    for line in map(json.loads, (tmp_path / "rollouts.jsonl").read_text().splitlines()):
        for seat in line["episode"]["trajectories"]:  # who looks at the log has no tokenizer
            model = line["players"][seat["agent"]] in (str(run_dir), "tiny")
            for turn in seat["turns"]:
                assert ("action_texts" in turn) == model
                assert not model or "".join(turn["action_texts"]).startswith(turn["action"])
    for result in results:
        assert (
            result["opponent"] == opponent
            and result["games"] == 16
            and set(result["seats"]) == {"player_0", "player_1"}
        )
        low, high = result["ci95"]
        assert low <= result["mean"] <= high
        kinds = ("win", "draw", "loss", "invalid", "opponent_invalid", "truncated")
        assert sum(result[kind] for kind in kinds) == pytest.approx(1)
    assert results[2]["exact"]["nash_conv"] == pytest.approx(11 / 12)
    assert results[1]["exact"]["nash_conv"] != results[0]["exact"]["nash_conv"], "the adapter was not used"


def test_eval_of_the_optimal_policy_is_exact_and_random_play_loses_what_it_must(capsys) -> None:
    assert main(["eval", "KuhnPoker-v0", "-m", "optimal", "-n", "2000", "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["exact"]["nash_conv"] == pytest.approx(0, abs=1e-9)
    low, high = result["ci95"]
    # Uniform play's best response gains 11/12 over both seats; equilibrium play gains less, but surely something.
    assert low > 0 and high < 11 / 24 + 0.1


def test_every_form_of_a_policy_is_found(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forms = [
        str(run_dir),
        f"{run_dir}@last",
        f"{run_dir}@best",
        str(run_dir / "adapter"),
        f"tiny+{run_dir / 'adapter'}",
    ]
    flags = [flag for form in forms for flag in ("-m", form)]
    assert main(["eval", "KuhnPoker-v0", *flags, "-n", "2", "--json"]) == 0
    found = [r["exact"]["nash_conv"] for r in json.loads(capsys.readouterr().out)["results"]]
    assert found[0] == found[3] == found[4]


def test_play_against_a_policy_in_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["play", "KuhnPoker-v0", "--opponent", "optimal", "--seed", "5"]
    monkeypatch.setattr("sys.stdin", io.StringIO("[check]\n[fold]\n[fold]\n"))
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "Your card:" in out and "player_0 (human):" in out
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert main(command) == 1 and "game left" in capsys.readouterr().out


def test_dry_run_prints_settings_and_an_estimate_and_writes_nothing(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--dry-run", *SMALL, "--optim.lr", "1e-3"]) == 0
    out = capsys.readouterr().out
    assert 'env = "KuhnPoker-v0"' in out and "lr = 0.001" in out and "MiB" in out and "s if episodes keep" in out
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_says_what_is_trained_it_is_the_preset_of_kuhn(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("legos_train.run.estimate", lambda config: "")  # takes steps to see how long they are
    outs = []
    for flags in ((), ("--preset", "kuhn"), ("--env", "KuhnPoker-v0"), ("--model", "small")):
        assert main(["train", "--dry-run", *flags]) == 0
        outs.append('magnet = "average"' in capsys.readouterr().out)
    assert outs == [True, True, False, False]
    assert main(["train", "--dry-run", "--steps", "7", "--loss.kl", "0.3"]) == 0
    out = capsys.readouterr().out
    assert "steps = 7" in out and "kl = 0.3" in out and 'magnet = "average"' in out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["trian"], 2, "did you mean 'train'"),
        (["train", "--env", "KuhnPokr-v0"], 1, "Did you mean 'KuhnPoker-v0'"),
        (["train", "--optim.lrr", "1"], 2, "--optim.lr"),
        (["train", "--steps", "many"], 2, "many"),
        (["train", "--steps", "0"], 2, "greater than or equal to 1"),
        (["train", "--batch-size", "10", "--group-size", "4"], 2, "multiple of group_size"),
        (["train", "--config", "nowhere.toml"], 1, "cannot read the config file"),
        (["train", "--model", "nothing-here"], 1, "no such model"),
        (["train", "--train-roles", "dealer"], 1, "has the roles"),
        (["eval", "KuhnPoker-v0", "-m", "nobody"], 1, "no policy 'nobody'"),
        (["eval", "KuhnPoker-v0", "-m", "randm"], 1, "random"),
        (["eval", "Chess-v0", "-m", "random"], 1, "no environment 'Chess-v0'"),
        (["play", "KuhnPoker-v0", "--seat", "player_7=human"], 2, "player_7"),
        (["envs", "show", "nowhere_module:X-v0"], 1, "cannot import"),
    ],
)
def test_wrong_input_is_explained(
    arguments: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        result = main(arguments)
    except SystemExit as error:
        result = int(str(error.code))
    printed = capsys.readouterr()
    assert result == code and said in printed.err + printed.out, printed


def test_a_config_file_is_read_and_the_command_line_wins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "kuhn.toml"
    file.write_text('env = "Nim-v0"\nsteps = 3\n[optim]\nlr = 0.01\n')
    assert main(["train", "--dry-run", *SMALL, "--config", str(file)]) == 0
    out = capsys.readouterr().out
    assert 'env = "Nim-v0"' in out and "steps = 2" in out and "lr = 0.01" in out
    file.write_text("[optim]\nlrr = 0.01\n")
    assert main(["train", "--config", str(file)]) == 1
    assert "unknown key 'optim.lrr', did you mean 'optim.lr'" in capsys.readouterr().err
    file.write_text("steps = [")
    assert main(["train", "--config", str(file)]) == 1
    assert "not valid TOML" in capsys.readouterr().err


@pytest.mark.parametrize("harm", ["corrupt", "mismatched", "missing"])
def test_a_bad_adapter_is_refused(run_dir: Path, harm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import mlx.core as mx

    bad = tmp_path / "adapter"
    bad.mkdir()
    (bad / "adapter_config.json").write_bytes((run_dir / "adapter/adapter_config.json").read_bytes())
    good = (run_dir / "adapter/adapters.safetensors").read_bytes()
    if harm == "corrupt":
        (bad / "adapters.safetensors").write_bytes(good[: len(good) // 2])
    elif harm == "mismatched":
        weights = dict(mx.load(str(run_dir / "adapter/adapters.safetensors")))
        name = sorted(weights)[0]
        mx.save_safetensors(str(bad / "adapters.safetensors"), {**weights, name: weights[name][:-1]})
    assert main(["eval", "KuhnPoker-v0", "-m", str(bad), "-n", "2"]) == 1
    said = capsys.readouterr().err
    assert (said.startswith("error:") and str(bad) in said) or "lora" in said, said


def test_a_server_takes_runs_as_adapters_and_the_model_that_they_are_for(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import numpy as np

    from inference import read_adapter

    seen: list[Settings] = []
    monkeypatch.setattr("inference.server.create_app", seen.append)
    monkeypatch.setattr("inference.server.serve", lambda *args: 0)
    assert main(["serve", "--adapter", f"kuhn={run_dir}", "--adapter", f"best={run_dir}@best"]) == 0
    assert seen[0].model == "tiny" and seen[0].adapters == {"kuhn": run_dir / "adapter", "best": run_dir / "best"}
    assert main(["serve", "--model", "small", "--adapter", f"kuhn={run_dir}"]) == 0
    assert seen[1].model == "small" and "adapters for tiny are served over small" in capsys.readouterr().err
    monkeypatch.setattr("inference.server.serve", lambda *args: kept.append(read_adapter(seen[-1].adapters["k"])) or 0)
    kept: list[Any] = []
    assert main(["serve", "--adapter", f"k={run_dir}@step_2"]) == 0
    last = read_adapter(run_dir / "last").weights
    assert all(np.array_equal(w, last[name]) for name, w in kept[0].weights.items()) and len(kept[0].weights) == len(
        last
    )
    for wrong, said in {"kuhn=tiny": "is a model", f"k={run_dir}@step_9": "not kept", "k=/no": "no policy"}.items():
        assert main(["serve", "--adapter", wrong]) == 1
        assert said in capsys.readouterr().err


def test_legos_serve_has_the_defaults_of_the_server_and_the_engine() -> None:
    options = serve.make_parser().parse_args([])
    for name in ("max_adapters", "max_lora_rank", "max_queue", "threads"):
        assert getattr(options, name) == getattr(Settings(), name)
    engine = {name: one.default for name, one in inspect.signature(Engine).parameters.items()}
    assert options.max_rows == engine["max_rows"] and options.max_lora_rank == engine["max_lora_rank"]
    assert options.max_kv_mib << 20 == engine["max_kv_bytes"]
    assert options.prefix_cache_mib << 20 == engine["prefix_cache_bytes"]


@pytest.mark.parametrize(("flags", "threads"), [([], 1), (["--threads", "2"], 2)])
def test_an_evaluation_takes_the_threads_that_suit_its_model(
    flags: list[str], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library's default, a thread for each core, makes small products several times slower on a busy machine."""
    taken: list[int] = []
    here = threading.get_ident()  # a server of another test may still be loading
    monkeypatch.setattr(fastblas, "set_threads", lambda n: taken.append(n) if threading.get_ident() == here else None)
    assert main(["eval", "KuhnPoker-v0", "-m", "tiny", "-n", "2", "--no-exact", *flags]) == 0
    assert taken == [threads]
