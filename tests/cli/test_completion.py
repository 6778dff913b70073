"""`legos completion`, and what flags of other trainers are answered with."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from legos_train.cli import elsewhere
from legos_train.cli.completion import script, words
from legos_train.cli.main import VERBS, main
from legos_train.cli.train import full_parser

TRAIN = full_parser().flags()


@pytest.fixture(scope="module")
def scripts() -> dict[str, str]:
    return {shell: script(shell) for shell in ("bash", "zsh", "fish")}


def completed(text: str, *line: str) -> list[str]:
    """What bash offers for a command line whose last word is being written."""
    asked = " ".join(f"'{word}'" for word in line)
    tail = f'\nCOMP_WORDS=({asked}); COMP_CWORD={len(line) - 1}; _legos; printf "%s\\n" "${{COMPREPLY[@]}}"'
    return subprocess.run(["bash", "-c", text + tail], capture_output=True, text=True, check=True).stdout.split()


def test_bash_completes_verbs_flags_and_environments(scripts: dict[str, str]) -> None:
    assert completed(scripts["bash"], "legos", "to") == ["tournament"]
    assert {*VERBS} <= {*completed(scripts["bash"], "legos", "")}
    assert completed(scripts["bash"], "legos", "train", "--optim.lr") == ["--optim.lr", "--optim.lr-end"]
    assert completed(scripts["bash"], "legos", "eval", "Kuhn") == ["KuhnPoker-v0"]
    assert completed(scripts["bash"], "legos", "envs", "sh") == ["show"]
    assert completed(scripts["bash"], "legos", "envs", "show", "TicT") == ["TicTacToe-v0"]
    assert completed(scripts["bash"], "legos", "completion", "") == ["bash", "zsh", "fish", "--help"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_that_the_shell_reads(shell: str, scripts: dict[str, str]) -> None:
    text = scripts[shell]
    assert "tournament" in text and "KuhnPoker-v0" in text and "--league.mode" in text
    if found := shutil.which(shell):
        subprocess.run([found, "-n", "/dev/stdin"], input=text, text=True, check=True)


def test_every_verb_is_known() -> None:
    known = dict(words())
    assert {*VERBS} <= {*known} and all("--help" in what for name, what in known.items() if name)
    assert {"--steps", "--credit.name", "--resume"} <= {*known["train"]}


@pytest.mark.parametrize("theirs", sorted(elsewhere.FLAGS))
def test_their_flag_is_none_of_ours_and_ours_exists(theirs: str) -> None:
    assert theirs not in TRAIN, "a flag that we have must not be refused"
    first, *rest = elsewhere.FLAGS[theirs].split()
    assert {first, *(word for word in rest if word.startswith("--"))} <= {*TRAIN}, elsewhere.FLAGS[theirs]


def test_a_setting_of_ours_is_not_refused_for_its_last_word() -> None:
    assert elsewhere.translated([f"{flag}=1" for flag in TRAIN], TRAIN) is None


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (["--num-steps", "5"], "--num-steps is another trainer's flag; here it is `--steps 5`."),
        (["--num_steps=5"], "here it is `--steps 5`"),
        (["--n-solver-rollouts", "4"], "here it is `--arg num_solvers=4`"),
        (["--optim.learning-rate", "1e-4"], "here it is `--optim.lr 1e-4`"),
        (["--max-turns"], "here it is `--arg max_turns=VALUE`"),
        (["--use-role-baseline", "true"], "here it is `--credit.name rae`"),
        (["--load-checkpoint-path", "runs/a"], "here it is `--resume --run-dir runs/a`"),
        (["--sampling.max_new_tokens=8"], "here it is `--sampling.max-tokens 8`"),
        (["--max-turns=9"], "here it is `--arg max_turns=9`"),
        (["--lora-alpha", "32"], "here it is `--lora.scale ALPHA/RANK`"),
        (["--groups-per-batch", "8"], "here it is `--batch-size GROUPS*SIZE`"),
    ],
)
def test_a_flag_of_theirs_is_answered_with_ours(line: list[str], answer: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as end:
        main(["train", "--env", "KuhnPoker-v0", *line])
    assert end.value.code == 2
    assert answer in capsys.readouterr().err
