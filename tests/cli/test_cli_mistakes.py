"""Mistakes of a first day at the command line: each ends with a message that says what to do, none with a traceback."""

from __future__ import annotations

import errno
import signal
import socket
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

from inference import ServerUnavailable
from legos_train.cli import eval as eval_cli
from legos_train.cli import main as cli
from legos_train.cli import play, serve, setting_flags, train
from legos_train.config import TrainConfig, parse_assignments, to_toml
from legos_train.errors import ConfigError

GIVEN = ["--arg", "foo=1"]
NO_FOO = "KuhnPoker-v0: argument 'foo' is unknown"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["envs", "show", "KuhnPoker-v0", *GIVEN], NO_FOO),
        (["envs", "check", "KuhnPoker-v0", *GIVEN], NO_FOO),
        (["play", "KuhnPoker-v0", *GIVEN], NO_FOO),
        (["train", "--env", "KuhnPoker-v0", *GIVEN], NO_FOO),
        (["eval", "KuhnPoker-v0", "-m", "random", *GIVEN], NO_FOO),
        (["envs", "show", "KuhnPoker-v0", "--arg", "num_rounds=0"], "num_rounds must be a whole number from 1 to 100"),
        (["envs", "check", "KuhnPokr-v0"], "Did you mean 'KuhnPoker-v0'"),
        (["play", "mine.py"], "'mine.py:Name-v0'"),
        (["play", "mine.py:Mine-v0"], "call `register('Mine-v0', ...)`"),
        (["play", "broken.py:Mine-v0"], "SyntaxError"),
        (["eval", "missing.py:Mine-v0", "-m", "random"], "No module named 'nowhere_at_all' (line 2)"),
        (["train", "--resume"], "give --run-dir runs/NAME"),
        (["train", "--smoke"], "give --preset NAME too"),
        (["train", "--config", "types.toml"], "env: must be a list, got 3; actors: must be a table, got [1]"),
    ],
)
def test_a_mistake_is_explained_and_leaves_nothing_behind(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {"broken.py": "def (\n", "missing.py": "x = 1\nimport nowhere_at_all\n", "mine.py": "x = 1\n"}
    files["types.toml"] = "env = 3\nactors = [1]\n"
    for name, text in files.items():
        Path(name).write_text(text)
    assert cli.main(arguments) == 1
    streams = capsys.readouterr()
    assert streams.err.startswith("error: ") and said in streams.err and streams.out == ""
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__", "runs"} == set(files)
    assert not list(tmp_path.glob("runs/*"))


def test_each_format_of_export_has_its_own_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["export", "peft", "--help"])
    said = capsys.readouterr().out
    assert "usage: legos export peft" in said and "ADAPTER_OR_RUN" in said and "--base-model" in said
    assert "--by" not in said and "--push" not in said and "legos export mlx" not in said


@pytest.mark.parametrize("flag", ["--optim.learning-rate", "--optim.learning_rate=1e-4", "--learning-rate"])
def test_names_of_other_libraries_are_answered_with_ours(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["train", flag, "1e-4"])
    assert end.value.code == 2 and "here it is `--optim.lr" in capsys.readouterr().err


def test_a_port_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(["serve", "--port", "99999"])
    assert left.value.code == 2 and "--port must be from 0 to 65535, got 99999" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--max-queue", "--max-rows", "--max-lora-rank", "--max-kv-mib"])
def test_a_server_that_could_answer_nothing_is_not_started(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`--max-queue 0` served, was healthy, and answered each completion with 400 as if the request were at fault."""
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(SystemExit) as left:
        cli.main(["serve", "--port", str(taken.getsockname()[1]), flag, "0"])
    assert left.value.code == 2 and f"{flag} must be at least 1, got 0" in capsys.readouterr().err


def test_a_port_that_is_taken_is_told_before_the_model_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert cli.main(["serve", "--port", str(port)]) == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in capsys.readouterr().err


def test_methods_may_be_given_by_name_and_envs_not_as_arenas() -> None:
    from legos_train import TrainConfig, train

    assert TrainConfig(credit="rae", loss="gspo").loss.name == "gspo"  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"TrainConfig\(env=...\)"):
        train("KuhnPoker-v0")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"steps": -3, "foo": 2},
            "^steps: must be greater than or equal to 1, got -3; unknown key 'foo'; accepted: env",
        ),
        ({"optim": {"lrr": 1}}, "^unknown key 'optim.lrr', did you mean 'optim.lr'.$"),
        ({"credit": "nope"}, "^credit.name: must be 'agent_turn', .*, got 'nope'$"),
    ],
)
def test_a_config_made_in_python_is_answered_in_the_same_words(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        TrainConfig(**settings)


@pytest.mark.parametrize(
    ("flag", "ours"), [("--num-games", "--games"), ("--max_new_tokens", "--max-tokens"), ("--gamse", "--games")]
)
def test_flags_of_other_projects_are_answered_by_every_command(
    flag: str, ours: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["eval", "Nim-v0", "-m", "random", flag, "3"])
    assert end.value.code == 2 and f"did you mean {ours}?" in capsys.readouterr().err


def test_the_same_note_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several parts of an evaluation look an id up, each with a warning of its own."""
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    cli._for_people()
    notes = [warnings.formatwarning(UserWarning(text), UserWarning, "file", k) for k, text in enumerate("aba")]
    assert notes == ["note: a\n", "note: b\n", ""]


def test_a_model_that_is_not_there_is_told_before_anything_listens(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve", "--model", "nope", "--port", "0"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: no such model 'nope'") and "running" not in said


def test_a_server_that_cannot_be_reached_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(**_: object) -> None:
        raise ServerUnavailable("no endpoint is usable")

    monkeypatch.setattr("legos_train.run.train", train)
    assert cli.main(["train", "--server", "http://127.0.0.1:9"]) == 1
    assert capsys.readouterr().err == "error: no endpoint is usable\n"


CODE = """
from legos_envs import Seat, TextEnv, register

class Mine(TextEnv):
    seats = {"a_0": Seat("a")}

    def __init__(self, size=3):
        super().__init__()
        size + None

register("mistakes/Mine-v0", Mine)
"""


def test_a_mistake_in_the_code_of_an_env_keeps_its_traceback(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(CODE)
    with pytest.raises(TypeError, match="unsupported operand"):
        cli.main(["envs", "show", f"{tmp_path}/mine.py:mistakes/Mine-v0", "--arg", "size=4"])


@pytest.mark.slow
def test_serve_without_its_extra_names_it() -> None:
    program = """
import sys
import threading
sys.modules["threadpoolctl"] = None
from legos_train.cli.main import main
sys.exit(main(["serve", "--port", "0"]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "legos serve needs threadpoolctl, from the extra 'serve': uv sync --extra serve" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["--server.urls", "http://a:1,http://b:2"],
        ["--server.urls=http://a:1,http://b:2"],
        ["--server.urls", "http://a:1", "http://b:2"],
        ["--server.urls", "http://a:1,http://b:2", "--steps", "3"],
    ],
)
def test_addresses_of_servers_are_joined_by_commas_or_spaces(words: list[str]) -> None:
    config = setting_flags.parse(words, TrainConfig())
    assert config.server.urls == ("http://a:1", "http://b:2")


def test_an_address_of_vllm_says_so() -> None:
    config = setting_flags.parse(["--server.urls", "vllm://a:1,http://b:2/"], TrainConfig())
    assert config.server.urls == ("vllm://a:1", "http://b:2")


def test_who_plays_is_told_with_one_flag_in_all_commands() -> None:
    seats = ["--seat", "judge=tiny", "--seat", "con=random"]
    for verb, first in ((train, []), (eval_cli, ["Debate-v0", "-m", "tiny"]), (play, ["Debate-v0"])):
        assert verb.make_parser().parse_args([*first, *seats]).seat == ["judge=tiny", "con=random"]


@pytest.mark.parametrize("word", ["none", "None"])
def test_none_is_written_as_in_settings_files(word: str) -> None:
    base = TrainConfig()
    assert base.loss.kl_end is not None and base.average.kind != "none"
    config = setting_flags.parse(["--loss.kl-end", word, "--monitor.kl", word, "--average.kind", "none"], base)
    assert (config.loss.kl_end, config.monitor.kl, config.average.kind) == (None, None, "none")
    assert 'kl_end = "none"' in to_toml(config)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["eval", "KuhnPoker-v0", "-m", "random", "--opponnent", "optimal"], "optimal; did you mean --opponent?"),
        (["envs", "check", "KuhnPoker-v0", "--episods=3"], "--episods=3; did you mean --episodes?"),
        (["chat", "--xyz"], "--xyz; accepted: --help, --model, --system"),
        (["train", "--optim.lr", "-1"], "optim.lr: must be greater than 0, got -1.0"),
        (["train", "--batch-size", "0"], "batch_size: must be greater than or equal to 1, got 0"),
        (
            ["train", "--steps", "many"],
            "steps: must be a valid integer, unable to parse string as an integer, got 'many'",
        ),
        (["train", "--thinking", "yes"], "thinking: must be 'auto', 'on' or 'off', got 'yes'"),
        (["train", "--credit.roles", "pro"], "credit.roles.pro: must be a valid string, got None"),
        (["train", "--optim.lrr", "1"], "--optim.lrr 1; did you mean --optim.lr?"),
    ],
)
def test_an_unknown_flag_is_answered_with_the_nearest_and_a_wrong_value_with_what_is_accepted(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2 and said in capsys.readouterr().err


@pytest.mark.parametrize(("verb", "of_run"), [("train", True), ("export", False), ("view", False)])
def test_only_a_run_is_said_to_be_resumed(
    verb: str, of_run: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.toml").touch()

    def refused(arguments: Any) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "out.jsonl"))

    monkeypatch.setattr(f"legos_train.cli.{verb}.run", refused)
    assert cli.main([verb]) == 1
    said = capsys.readouterr().err
    assert "lacks permission" in said and "out.jsonl" in said and "{" not in said
    assert ("--resume" in said, "--run-dir" in said) == (of_run, of_run)


def test_arguments_are_read_as_json_or_as_messages_write_them() -> None:
    """A message says "must be one of False, True": so these must do."""
    pairs = ["a=True", "b=true", "c=None", "d=null", "e=1.5", "f=[1, true]", 'g="True"', "h=Truely", "i=x=1", "j="]
    pairs += ["k=NaN", "l=1e999"]
    assert parse_assignments(pairs, "--arg") == {
        **{"a": True, "b": True, "c": None, "d": None, "e": 1.5, "f": [1, True]},
        **{"g": "True", "h": "Truely", "i": "x=1", "j": "", "k": "NaN", "l": "1e999"},
    }
    assert cli.main(["envs", "show", "LiarsDice-v0", "--arg", "one_round=True", "--arg", "wild=False"]) == 0


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals come to the main thread")
def test_a_server_ended_while_it_starts_leaves_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    folders: list[Path] = []

    def starting(options: Any, folder: Path) -> int:
        folders.append(folder)
        assert folder.is_dir()
        signal.raise_signal(signal.SIGTERM)
        return 0

    monkeypatch.setattr(serve, "_serve", starting)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        serve.run(["--adapter", "kuhn=runs/kuhn"])
    assert ended.value.code == 143 and not folders[0].exists()
    assert signal.getsignal(signal.SIGTERM) is before
