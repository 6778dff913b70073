"""Every hint that a message gives can be followed: the table of `tests/hints.py`, and mistakes made and mended."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import legos_envs.arguments
from legos_train.cli import completion
from legos_train.cli import main as cli
from tests.hints import ROOT, Hint, hints

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
OTHERS = {
    "--chat-template": "vLLM",
    "--dtype": "vLLM",
    "--enable-lora": "vLLM",
    "--max-model-len": "vLLM",
    "--adapter-path": "mlx_lm.generate",
    "--prompt": "mlx_lm.generate",
    "--force-reinstall": "pip",
    "--no-deps": "pip",
    "--extra": "uv",
    "--env.scripted": "vf-eval",
    "--env.taskset.first-seed": "vf-eval",
    "--env.taskset.num-tasks": "vf-eval",
}
"""Flags of other programs that messages name."""
WORDS = dict(completion.words())


def of(kind: str) -> list[Hint]:
    found = [hint for hint in hints() if hint.kind == kind]
    assert found
    return found


def owner(words: list[str]) -> str:
    """The key of `completion.words` that a command line belongs to: a verb, or a verb and its own verb."""
    inner = f"{words[1]} {words[2]}" if len(words) > 2 else ""
    return inner if inner in WORDS else words[1]


def test_every_command_is_one() -> None:
    wrong = []
    for hint in of("command"):
        words = shlex.split(hint.words.partition(" > ")[0].replace("{}", "x").replace('"${', ""))
        known = WORDS.get(owner(words), []) if words[1] in cli.VERBS else []
        flags = [word.partition("=")[0] for word in words if word.startswith("--")]
        wrong += [hint[:3]] if words[1] not in cli.VERBS or {*flags} - {*known, "--help"} else []
    assert wrong == []


def test_every_flag_is_known_to_a_command() -> None:
    from legos_train.cli import elsewhere

    ours = {word for words in WORDS.values() for word in words}
    sections = {flag.rpartition(".")[0] for flag in WORDS["train"]} - {""}
    wrong, others = [], set()
    for hint in of("flag"):
        name = hint.words
        if hint.place.startswith("legos_train/cli/elsewhere.py") and hint.text in elsewhere.FLAGS:
            continue  # theirs, which are answered with ours
        if name in OTHERS:
            others.add(name)
        elif not {name, name.replace(".no-", ".")} & ours and name not in sections:
            wrong.append(hint[:3])
    assert wrong == [] and others == {*OTHERS}


def test_every_extra_page_and_variable_exists() -> None:
    for hint in of("extra"):
        assert {*hint.words.strip(",").split(",")} <= {*EXTRAS}, hint
    for hint in of("page"):
        assert (ROOT / hint.words).exists(), hint
    source = "\n".join(
        file.read_text() for package in ("inference", "legos_train") for file in (ROOT / package).rglob("*.py")
    )
    for hint in of("variable"):
        name = re.escape(hint.words)
        assert re.search(rf'environ(?:\.get\(|\[)"{name}"|= "{name}"', source), hint


def test_every_installation_is_one_that_can_be_typed() -> None:
    """A package or an extra, by `legos_envs.arguments` where it depends on how Legos was installed."""
    for hint in of("install"):
        what = hint.words.removeprefix("uv ").removeprefix("pip install ").removeprefix("sync").strip()
        known = ["{}", "-e .", "--force-reinstall", "--extra", "scipy-openblas32", "'tinker>=", '"legos-selfplay[', ""]
        assert any(what.startswith(one) for one in known) or what == "", hint
    calls = [
        (file.relative_to(ROOT), extra)
        for package in ("legos_envs", "legos_train", "inference")
        for file in (ROOT / package).rglob("*.py")
        for extra in re.findall(r"(?<!def )\binstall\(['\"]([a-z]+)['\"]\)", file.read_text())
    ]
    assert len(calls) > 5 and {extra for _, extra in calls} | {*cli.EXTRAS.values()} <= {*EXTRAS}


SHORT = ["--steps", "2", "--batch-size", "8", "--eval.every", "0", "--eval.games", "4"]


class Mistake(NamedTuple):
    """A command line that fails, what its message has to say, and the one to type then, made of the groups of that."""

    typed: str
    said: str
    then: str
    again: bool = False  # the first line works now


MISTAKES = {
    "a run that is not there": Mistake(
        "eval KuhnPoker-v0 -m runs/mine -n 4",
        r"`legos (train --run-dir runs/mine)` creates one",
        r"\1 SHORT",
        again=True,
    ),
    "a run that is there already": Mistake(
        "train --run-dir runs/mine SHORT",
        "'runs/mine' already holds a run; (--resume) continues",
        r"train --run-dir runs/mine SHORT --steps 3 \1",
    ),
    "a run by another name": Mistake("report runs/main", r"", "report runs/mine"),
    "to resume without saying what": Mistake(
        "train --resume", "give (--run-dir) runs/NAME", r"train --resume \1 runs/mine --steps 4"
    ),
    "to resume what is not there": Mistake(
        "train --resume --run-dir runs/main", "the nearest is (--run-dir runs/mine)", r"train --resume \1 --steps 5"
    ),
    "fewer steps than there were": Mistake(
        "train --resume --run-dir runs/mine --steps 1",
        "(--steps) may only grow",
        r"train --resume --run-dir runs/mine \1 6",
    ),
    "an environment by another name": Mistake(
        "envs check KuhnPokr-v0", "Did you mean '(KuhnPoker-v0)'", r"envs check \1 --episodes 3"
    ),
    "an environment nobody knows": Mistake("play Frog-v0", "`legos (envs list)` shows all", r"\1"),
    "an argument that is none": Mistake("play KuhnPoker-v0 --arg foo=1", "`legos (envs show KuhnPoker-v0)`", r"\1"),
    "a folder that holds files": Mistake(
        "export hub runs/mine full", "or (--overwrite) to replace files", r"export hub runs/mine full \1"
    ),
    "a file that exists": Mistake(
        "export jsonl runs/mine full/one.jsonl", "or (--overwrite)", r"export jsonl runs/mine full/one.jsonl \1"
    ),
    "a preset's name left out": Mistake(
        "train --smoke", "give (--preset) NAME too", r"train --smoke \1 kuhn --dry-run"
    ),
    "a flag of another trainer": Mistake(
        "train --learning-rate 1e-4 SHORT", "here it is `(--optim.lr 1e-4)`", r"train \1 SHORT --run-dir runs/flag"
    ),
    "a page of no run": Mistake("view full", r"`legos (train)` writes it", r"view runs/mine --no-open"),
    "an episode in the browser": Mistake(
        "view runs/mine --episode 1", "--episode needs (--terminal)", r"view runs/mine --episode 1 \1"
    ),
    "a verb with a typo": Mistake("trian", "did you mean '(train)'", r"\1 --help"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all are typed, in their order: later ones need the run of the first."""
    made = tmp_path_factory.mktemp("hints")
    (made / "full").mkdir()
    (made / "full/one.jsonl").write_text("{}\n")
    return made


def slow_or_not() -> Iterator[Any]:
    for name, mistake in MISTAKES.items():
        needs_a_run = "runs/mine" in " ".join(map(str, mistake)) or "SHORT" in mistake.then
        yield pytest.param(name, marks=[pytest.mark.slow] if needs_a_run else [])


@pytest.mark.parametrize("name", list(slow_or_not()))
def test_following_the_message_works(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    mistake = MISTAKES[name]
    code, said = typed(mistake.typed, capsys)
    found = re.search(mistake.said, said)
    assert code in (1, 2) and found and "Traceback" not in said, said
    for line in [found.expand(mistake.then), *([mistake.typed] if mistake.again else [])]:
        code, said = typed(line, capsys)
        assert code in ((0, 3) if line.startswith("train") else (0,)), (line, said)


def typed(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code of a command, and all that it printed."""
    words = [word for one in shlex.split(line) for word in (SHORT if one == "SHORT" else [one])]
    try:
        code = cli.main(words)
    except SystemExit as end:
        code = int(end.code or 0)
    streams = capsys.readouterr()
    return code, streams.err + streams.out


def test_a_port_that_is_taken_names_the_flag_that_helps(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, said = typed(f"serve --port {taken.getsockname()[1]}", capsys)
    assert code == 1 and "give another --port" in said


@pytest.mark.parametrize("checkout", [True, False])
def test_hints_of_installations(checkout: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """uv for a checkout, whose environment has no pip; pip otherwise."""
    if not checkout:
        monkeypatch.setattr(legos_envs.arguments, "__file__", str(tmp_path / "legos_envs/arguments.py"))
    said: Callable[[str], str] = legos_envs.arguments.install_package
    assert said("trackio") == ("uv pip install trackio" if checkout else "pip install trackio")
    assert legos_envs.arguments.install("train").startswith("uv sync --extra" if checkout else "pip install")


@pytest.mark.slow
def test_uv_takes_every_extra() -> None:
    for extra in EXTRAS:
        done = subprocess.run(
            ["uv", "sync", "--dry-run", "--frozen", "--extra", extra], cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
