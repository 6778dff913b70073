"""Every example trains for two steps on the bundled model; every preset does so with `--smoke`."""

from __future__ import annotations

import importlib.util
import json
import runpy
from pathlib import Path

import pytest

from legos_train import ConfigError, train
from legos_train.config import from_dict, merged, preset, preset_names
from legos_train.disk import MetricsFile
from legos_train.run.build import arena_of
from legos_train.run.parts.parts import Parts

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("train_*.py"))
EXACT = {"kuhn_expected", "leduc_expected", "biased_rps_expected", "tictactoe_expected"}
GAMES = {"kuhn", "nim", "tictactoe", "biased_rps", *EXACT}


class Built(Exception):
    """A run could take its first step."""


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_gets_to_its_first_step(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(parts: Parts) -> None:
        parts.close()
        raise Built

    monkeypatch.setattr("legos_train.run.loop.Trainer", begin)
    with pytest.raises(Built):
        runpy.run_path(str(path))["main"](2, tmp_path / "run")


@pytest.mark.slow  # by default test_docs.py trains train_kuhn.py and the README's run with a preset of debate
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_trains(path: Path, tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert len(path.read_text().splitlines()) <= 60
    module.main(2, tmp_path / "run")
    records = MetricsFile.read(tmp_path / "run" / "metrics.jsonl")
    assert [r["step"] for r in records] == [1, 2] and all(r["episodes"] for r in records)
    assert (tmp_path / "run" / "adapter" / "adapters.safetensors").exists()


SELFPLAY = EXAMPLES[0].parent / "selfplay_in_one_file.py"


def test_selfplay_in_one_file_takes_two_steps_and_fits_on_a_page() -> None:
    assert len(SELFPLAY.read_text().splitlines()) <= 150
    main = runpy.run_path(str(SELFPLAY))["main"]
    main.__globals__["UPDATES"] = 1
    before, after = main(steps=2, games=32)
    assert abs(before - 0.342) < 0.01 and after > before


@pytest.mark.slow
def test_selfplay_in_one_file_learns_nim() -> None:
    before, after = runpy.run_path(str(SELFPLAY))["main"]()
    assert before < 0.35 and after > 0.97


def test_spirals_presets_take_returns_as_they_are() -> None:
    """The paper divides by nothing; Kuhn poker is played for up to 2."""
    for name in ("spiral", "spiral_async", "spiral_fsp"):
        assert type(from_dict(preset(name), name).credit.make()).__name__ == "RAECredit"


def test_every_preset_is_a_config() -> None:
    for name in preset_names():
        assert (from_dict(preset(name), name).model == "tiny") == (name in GAMES)
        assert from_dict(preset(name, smoke=True), name).steps == 2
    with pytest.raises(ConfigError, match="did you mean 'debate'"):
        preset("debat")


@pytest.mark.slow
@pytest.mark.parametrize("name", preset_names())
def test_a_preset_runs_small_and_has_something_to_learn_from(name: str, tmp_path: Path) -> None:
    settings = merged(preset(name, smoke=True), {"logs": {"rollouts": 1000, "rollouts_every": 1}})
    config = from_dict({**settings, "run_dir": tmp_path / "run"}, name)
    result = train(config=config, quiet=True)
    assert result.steps == 2 and (tmp_path / "run" / "report.html").exists()
    records = MetricsFile.read(tmp_path / "run" / "metrics.jsonl")
    assert any(r["learning_updates"] >= 1 for r in records), records
    if not config.loss.token_loss.all_actions:  # else the game's tree values actions, and not what was played
        assert any(len(returns) > 1 for returns in returns_by_step_and_role(tmp_path / "run").values())


def returns_by_step_and_role(run: Path) -> dict[tuple[int, str], set[float]]:
    """Which different returns the roles that are trained had in the episodes of a step, filtered ones among them."""
    found: dict[tuple[int, str], set[float]] = {}
    trained = set()
    for line in (run / "rollouts.jsonl").read_text().splitlines():
        row = json.loads(line)
        for seat in row["episode"]["trajectories"]:
            role = f"{row['env']} {seat['role']}"
            paid = seat["carry"] + sum(turn["reward"] for turn in seat["turns"])
            found.setdefault((row["step"], role), set()).add(round(paid, 6))
            trained |= {role} if seat["trainable"] else set()
    return {(step, role): returns for (step, role), returns in found.items() if role in trained}


@pytest.mark.slow
def test_with_a_bundled_model_code_judges_and_the_output_says_so(tmp_path: Path, capsys) -> None:
    settings = {"env": "Debate-v0", "batch_size": 2, "steps": 1, "eval": {"every": 0, "games": 2}, "lora": {"rank": 2}}

    class Told(Exception):
        pass

    def enough(_: object) -> None:
        raise Told

    with pytest.raises(Told):
        train(config=from_dict({**settings, "run_dir": tmp_path / "a", "logs": {"progress": "plain"}}), on_step=enough)
    assert "Debate-v0: scripted:on_topic judges, since tiny cannot" in capsys.readouterr().out
    arena = arena_of(from_dict({**settings, "actors": {"judge": {"model": "scripted:longer"}}}))
    assert arena.judged_by_code == [] and arena_of(from_dict(settings)).judged_by_code == ["Debate-v0"]
    assert arena_of(from_dict({**settings, "model": "org/other"})).judged_by_code == []  # the base model judges
    assert arena_of(from_dict({"env": "KuhnPoker-v0"})).judged_by_code == []


def test_spirals_constants_are_the_papers() -> None:
    config = from_dict(preset("spiral_fsp"))
    credit = config.credit
    assert (credit.name, credit.decay, credit.gamma, credit.std) == ("rae", 0.95, 1.0, False)
    assert (config.loss.clip_low, config.loss.clip_high, config.loss.kl, config.optim.epochs) == (0.2, 0.2, 0.0, 2)
    assert (config.optim.beta1, config.optim.beta2, config.optim.grad_clip, config.lora.rank) == (0.9, 0.95, 1.0, 64)
    assert (config.batch_size, config.league.pool, config.league.snapshot_every) == (128, 25, 5)
    assert (config.filter.draws, config.filter.draw_retries) == (1.0, 5)
    assert from_dict(preset("spiral_async")).replay.max_staleness == 5
