"""What a run leaves behind against what it claims: rates, alarms, results, and the weights that are published."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import legos_envs
from legos_train import Result, train
from legos_train.cli.main import main
from legos_train.observe import progress_line
from legos_train.observe.viewer import exact_values
from legos_train.run import Trainer, build
from legos_train.run import trainer as trainer_module
from legos_train.run.preflight.notes import rarely_measured
from tests.train.helpers import digest, small

ENV = f"{Path(__file__).parent / 'honest_env.py'}:Honest-v0"
FLAGS = ["--batch-size", "8", "--steps", "2", "--lora.rank", "4", "--eval.games", "2", "--logs.progress", "plain"]


def rows_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def run_of(path: Path, kind: str, **changes: Any) -> Result:
    settings = {"batch_size": 8, "eval": {"every": 0, "games": 8}, "logs": {"rollouts": 8, "rollouts_every": 1}}
    return train(small(path, env=ENV, env_args={"kind": kind}, **{**settings, **changes}), quiet=True)


def test_a_run_without_an_update_ends_with_3_and_says_what_to_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the KL penalty of the defaults, whose gradient at the base is rounding and no lesson."""
    monkeypatch.setattr(progress_line, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(progress_line, "NEXT_SECONDS", 0.0)
    run = tmp_path / "run"
    assert main(["train", "--env", ENV, *FLAGS, "--run-dir", str(run)]) == 3
    said = capsys.readouterr().out
    assert "Learned nothing: no step made an update from rewards." in said
    for line in (r"\d/\d evaluation games of .*Honest-v0", r"\d/8 episodes of step 1", r"\d/8 episodes of step 2"):
        assert re.search(line, said), said  # what it was at meanwhile
    assert "every advantage was 0" in said.lower() and "--group-size" in said
    kept = json.loads((run / "result.json").read_text())
    assert kept["updates"] == 0 and kept["verdict"].startswith("Learned nothing")
    assert "Learned nothing" in (run / "report.html").read_text()
    assert all(row["zero_advantages"] == 1.0 and row["learning_updates"] == 0 for row in rows_of(run))


def test_a_run_that_learns_ends_with_0(tmp_path: Path) -> None:
    result = train(small(tmp_path / "run", batch_size=4), quiet=True)
    rows = rows_of(tmp_path / "run")
    assert result.updates == sum(row["updates"] for row in rows if row["zero_advantages"] < 1) == 2


def test_weights_that_answer_illegally_are_never_the_best_and_no_proof(tmp_path: Path) -> None:
    """At this learning rate the policy unlearns the format in two steps, while its NashConv falls."""
    result = train(
        small(tmp_path / "run", batch_size=8, optim={"lr": 0.05}, average={"kind": "none"}, eval={"every": 1}),
        quiet=True,
    )
    measured = [row["eval"] for row in rows_of(tmp_path / "run")]
    assert min(numbers["illegal"] for numbers in measured) > 0.3 and measured[-1]["nash_conv"] < 0.8
    assert result.verdict.startswith("Not shown to have learned") and not result.best


@pytest.mark.quick("wrong1")
@pytest.mark.parametrize("wrong", [["--seat", "player_1=nosuch"], ["--league.opponents", "nosuch"]])
def test_a_wrong_name_leaves_no_run(tmp_path: Path, wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    league = ["--league.mode", "fixed"] if "--league.opponents" in wrong else []
    command = ["train", *FLAGS, "--steps", "1", "--run-dir", str(run), *league]
    assert main([*command, *wrong]) == 1
    said = capsys.readouterr()
    assert "no policy 'nosuch'" in said.err and "before training" not in said.out, "before the first evaluation"
    assert ("error: league.opponents: " in said.err) == bool(league)
    assert not run.exists()
    assert main([*command, wrong[0], wrong[1].replace("nosuch", "random")]) == 0


def test_a_league_that_cannot_be_is_an_error_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", *FLAGS, "--run-dir", str(tmp_path / "run"), "--league.mode"]
    assert main([*command, "fixed"]) == 1 and "error: league.mode" in capsys.readouterr().err
    assert main([*command, "fsp", "--league.pool-from", str(tmp_path / "no")]) == 1
    assert "is not a directory" in capsys.readouterr().err


def test_a_large_game_says_when_it_is_measured(tmp_path: Path) -> None:
    entry = {"name": "ttt", "id": "TicTacToe-v0"}
    for every, told in (
        (None, ["ttt is measured only before the first step and after the last"]),
        (1, []),
    ):
        held_out = entry if every is None else {**entry, "every": every}
        parts = build(small(tmp_path / "run", eval={"every": 1, "games": 2, "env": [held_out]}))
        assert [said.partition(":")[0] for said in rarely_measured(parts.config, parts.measurer)] == told
        parts.close()


def test_rates_are_those_of_the_episodes(tmp_path: Path) -> None:
    """No turn has a list of legal actions, and every episode is invalid: the rate is 1, and an alarm says so."""
    run = tmp_path / "run"
    run_of(run, "deaf", monitor={"patience": 1, "window": 1})
    episodes = [json.loads(line)["episode"] for line in (run / "rollouts.jsonl").read_text().splitlines()]
    invalid = [episode["info"]["outcome"] == "invalid" for episode in episodes]
    assert len(invalid) == 16 and all(invalid)
    for row in rows_of(run):
        assert row["invalid_rate"] == 1.0 and row["outcomes"] == {"invalid": 8}
        assert row["illegal_rate"] is None, "nothing was listed"
    assert "invalid" in {alarm["name"] for alarm in rows_of(run)[0]["alarms"]}


@pytest.mark.slow
def test_steps_without_anything_to_train_on_have_no_numbers_and_set_off_alarms(tmp_path: Path) -> None:
    """A judge that `tiny` cannot be: all episodes are void."""
    run = tmp_path / "run"
    settings = {"batch_size": 2, "eval": {"every": 0, "games": 2}, "monitor": {"patience": 1, "window": 1}}
    result = train(small(run, env="Debate-v0", actors={"judge": {"model": "base"}}, **settings), quiet=True)
    first = rows_of(run)[0]
    assert first["zero_advantages"] is None and "entropy" not in first and "loss" not in first
    assert first["unscored_rate"] == 1.0
    assert {alarm["name"] for alarm in first["alarms"]} == {"unscored", "idle"}
    assert result.updates == 0 and "judge" in result.verdict


@pytest.mark.slow
def test_seats_on_scales_of_their_own_win_nothing_from_each_other(tmp_path: Path) -> None:
    """A coder with 0 does not beat a tester with -1: nobody succeeded."""
    run = tmp_path / "run"
    result = run_of(run, "apart")
    assert rows_of(run)[0]["success_rate"] == {"coder": 0.0, "tester": 0.0} and rows_of(run)[0]["win_rate"] == {}
    assert result.last["success"] == 0.0 and "win" not in result.last


@pytest.mark.slow
def test_a_contest_is_measured_against_the_base_and_the_runs_own_past(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its return against itself is 0 whatever it learns. The numbers are those of the games of `legos eval`."""
    run = tmp_path / "run"
    result = run_of(run, "race", steps=4, optim={"lr": 2e-3})
    assert "return" not in result.last and "return" not in result.start
    table = result.average if result.published == "average" else result.last
    assert set(result.against) >= {f"wins_vs_step_{step}" for step in (1, 2, 3)}
    assert f"win {table['wins_vs_base']:.0%} of their games against the base" in result.verdict
    assert f"the {result.published} weights" in result.verdict
    rates = [rows_of(run)[0]["win_rate"][role] for role in ("coder", "tester")]
    assert sum(rates) == pytest.approx(1.0)
    capsys.readouterr()
    assert main(["eval", ENV, "--arg", "kind=race", "-m", str(run), "--opponent", "tiny", "-n", "8", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["results"][0]
    assert row["score"] == table["wins_vs_base"] and row["competitive"]


@pytest.mark.quick("*last")
@pytest.mark.parametrize(("decay", "expected"), [(0.98, "last"), (0.0, "average")])
def test_the_adapter_is_the_better_weights_and_is_labelled_so(tmp_path: Path, decay: float, expected: str) -> None:
    """After three steps that all help, an average lags behind; an average that keeps nothing of itself is the last
    weights, and of equals the average is published. Whatever it is: files, labels and numbers are of the same weights.
    """
    run = tmp_path / "run"
    result = train(small(run, steps=3, batch_size=16, average={"decay": decay}), quiet=True)
    assert result.published == expected
    hashes = {name: digest(run / name / "adapters.safetensors") for name in ("adapter", "last", "average")}
    assert hashes["adapter"] == hashes[result.published]
    label = json.loads((run / "adapter/adapter_config.json").read_text())["legos"]
    assert label["weights"] == result.published and label["why"] == result.published_why
    own = {"last": result.last, "average": result.average}[result.published]
    assert own["nash_conv"] == min(result.last["nash_conv"], result.average["nash_conv"])
    assert f"{own['nash_conv']:.3f} ({result.published} weights)" in result.verdict
    again = Trainer(build(small(init_adapter=run / "adapter")))
    assert again.parts.measurer.measure("policy")["nash_conv"] == pytest.approx(own["nash_conv"], abs=1e-6)
    again.parts.close()


@pytest.mark.slow
def test_a_run_that_gets_worse_says_so(tmp_path: Path) -> None:
    """Steps that are far too long, from a policy that has learned: the sentence, the alarm and the numbers agree."""
    first, run = tmp_path / "first", tmp_path / "run"
    settings = {"average": {"kind": "none"}, "seed": 1}
    exact = {"loss": {"name": "expected", "kl": 0.2}, "optim": {"lr": 6e-4}}
    assert train(small(first, steps=30, **exact, **settings), quiet=True).verdict.startswith("Learned")
    settings |= {"optim": {"lr": 0.05, "grad_clip": 10.0}, "loss": {"kl": 0.0}, "eval": {"every": 1}}
    result = train(small(run, init_adapter=first / "adapter", steps=3, batch_size=16, **settings), quiet=True)
    assert result.last["nash_conv"] > result.start["nash_conv"]
    assert result.verdict.startswith("Worse than at the start: NashConv")
    assert "worse" in {alarm["name"] for row in rows_of(run) for alarm in row.get("alarms", ())}


def test_a_run_that_never_has_anything_to_train_on_ends_early_with_3_and_says_what_to_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trainer_module, "MAX_EMPTY", 1)
    flags = [*FLAGS, "--batch-size", "2", "--eval.games", "2", "--seat", "judge=base"]
    assert main(["train", "--env", "Debate-v0", *flags, "--run-dir", str(tmp_path / "run")]) == 3
    said = capsys.readouterr().err
    assert "steps in a row had nothing to train on" in said and "--seat judge=MODEL" in said


@pytest.mark.slow
def test_a_game_without_a_known_equilibrium_is_logged_without_its_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One round of liar's dice with three players ended its run after the first step."""
    three = legos_envs.make("LiarsDice-v0", num_players=3, one_round=True, dice=1, faces=2)

    def unknown(env: object) -> object:
        return exact_values(three)  # type: ignore[arg-type]

    monkeypatch.setattr("legos_train.observe.viewer.exact_values", unknown)
    run = tmp_path / "run"
    train(small(run, batch_size=4, logs={"rollouts": 2, "rollouts_every": 1}), quiet=True)
    lines = [json.loads(line) for line in (run / "rollouts.jsonl").read_text().splitlines()]
    assert len(lines) == 4 and not any(line.get("exact") for line in lines)
