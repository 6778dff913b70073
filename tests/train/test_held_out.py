"""Environments that a run measures and never trains on: their numbers, what `best` follows, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from legos_train import Actor, Arena, ConfigError, train
from legos_train.cli.main import main
from legos_train.cli.train import make_parser, settings
from legos_train.config import TrainConfig, from_dict, merged, preset
from legos_train.disk import MetricsFile
from legos_train.observe.report.trackers import flatten
from legos_train.run import build
from legos_train.run.build import arena_of
from legos_train.run.periodic_eval import evaluate
from tests.train.helpers import digest, small

TRANSFER = Path(__file__).parents[2] / "examples/transfer.toml"
MATH = {"id": "GSM8K-v0", "name": "math", "games": 4, "samples": 2, "every": 1}
NIM = {"id": "Nim-v0", "opponent": "random", "games": 4, "every": 2}
UNEQUAL = {"seconds", "seconds_play", "seconds_pack", "seconds_learn", "seconds_publish"}
UNEQUAL |= {"tokens_per_second", "resumed_from", "run"}


def held_out(*entries: dict[str, Any] | str, **changes: Any) -> dict[str, Any]:
    return {"every": 0, "env": list(entries), **changes}


def test_numbers_of_held_out_envs_come_when_they_are_due_and_best_follows_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best = "Nim-v0.vs_random"
    config = small(tmp_path / "run", steps=3, eval=held_out(MATH, NIM, "MatrixGame-v0", best=best))
    result = train(config, quiet=True)
    rows = MetricsFile.read(tmp_path / "run/metrics.jsonl")
    measured = [{name.rpartition("/")[0] for name in row["eval"] if not name.endswith("_average")} for row in rows]
    assert measured == [{"math"}, {"math", "Nim-v0"}, {"", "math", "Nim-v0", "MatrixGame-v0"}]
    assert {"math/accuracy", "math/accuracy_low", "math/pass@2", "math/accuracy_average"} <= set(rows[0]["eval"])
    assert "MatrixGame-v0/nash_conv" in result.last and "nash_conv" in result.last
    assert flatten(rows[0])["eval/math/accuracy"] == rows[0]["eval"]["math/accuracy"], "what trackers are given"
    wins = [row["eval"][name] for row in rows[1:] for name in ("Nim-v0/vs_random", "Nim-v0/vs_random_average")]
    assert result.best["Nim-v0/vs_random"] == max(wins)
    assert result.best["step"] == 2 + wins.index(max(wins)) // 2
    page = (tmp_path / "run/report.html").read_text()
    assert "math: share of right answers" in page and "math: share of problems solved in 2 tries" in page
    assert "Nim-v0: mean return against random play" in page and "What the policy does" in page
    assert TrainConfig.load(tmp_path / "run/config.toml").eval == config.eval

    sampling = ["--max-tokens", "12", "--no-exact", "--json", "-m", f"{tmp_path / 'run'}@last"]
    assert main(["eval", "Nim-v0", "--opponent", "random", "-n", "4", *sampling]) == 0
    assert main(["eval", "GSM8K-v0", "-n", "4", "--samples", "2", *sampling]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.replace("}\n{", "}\0{").split("\0")]
    assert found[0]["results"][0]["mean"] == result.last["Nim-v0/vs_random"]
    accuracy = found[1]["results"][0]["accuracy"]
    assert accuracy["mean@2"] == result.last["math/accuracy"] and accuracy["pass@2"] == result.last["math/pass@2"]


@pytest.mark.slow
def test_a_resumed_run_measures_what_the_uninterrupted_one_does(tmp_path: Path) -> None:
    def run(name: str, steps: int, *, resume: bool = False) -> Path:
        watched = held_out(MATH, {**NIM, "every": 1}, every=1, best="Nim-v0/win")
        changes = {"steps": steps, "eval": watched, "checkpoint": {"every": 1}, "optim": {"lr_end": 1.0}}
        train(small(tmp_path / name, loss={"kl_end": None}, **changes), resume=resume, quiet=True)
        return tmp_path / name

    whole, broken = run("whole", 2), run("broken", 1)
    run("broken", 2, resume=True)
    rows = [MetricsFile.read(path / "metrics.jsonl") for path in (whole, broken)]
    for a, b in zip(*rows, strict=True):
        assert {k: v for k, v in a.items() if k not in UNEQUAL} == {k: v for k, v in b.items() if k not in UNEQUAL}
    for file in ("best/adapters.safetensors", "adapter/adapters.safetensors"):
        assert digest(whole / file) == digest(broken / file)


@pytest.mark.parametrize("given", [{"temperature": 0.0}, {"max_tokens": 1}, {"games": 5}, {"samples": 3}, {"seed": 1}])
def test_settings_of_games_where_none_are_played_are_refused(given: dict[str, Any]) -> None:
    (name,) = given
    held_out = {"id": "KuhnPoker-v0", "name": "kuhn", **given}
    with pytest.raises(ConfigError, match=f"eval.env 'kuhn': {name} have no effect.*give opponent"):
        build(small(env="Nim-v0", eval={"every": 0, "env": [held_out]}))
    build(small(env="Nim-v0", eval={"every": 0, "env": [{**held_out, "opponent": "random"}]})).close()


def test_all_ranks_choose_the_best_by_what_rank_0_measured() -> None:
    class Told:
        """Rank 1, to whom rank 0 tells that the weight average won all games."""

        rank, answers = 1, [{"Nim-v0/win": 0.25}, {"Nim-v0/win": 1.0}]

        def share(self, data: bytes) -> bytes:
            return json.dumps(self.answers.pop(0)).encode()

    parts = build(small(eval=held_out(NIM, best="Nim-v0.win")))
    parts.learner.step = 1
    parts.sync.policy()
    parts.world = Told()  # type: ignore[assignment]
    assert evaluate(parts, ["Nim-v0"]) == {"Nim-v0/win": 0.25, "Nim-v0/win_average": 1.0}
    assert parts.best is not None and (parts.best.kind, parts.best.numbers) == ("average", {"Nim-v0/win": 1.0})
    parts.close()


def test_a_number_of_which_less_is_better_is_followed_downwards(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = build(small(eval=held_out(NIM, best="Nim-v0.loss"), average={"kind": "none"}))
    for step, loss in enumerate((0.5, 0.75, 0.25), start=1):
        parts.learner.step = step
        monkeypatch.setattr(parts.measurer, "measure", lambda *_, loss=loss: {"Nim-v0/loss": loss, "nash_conv": loss})
        evaluate(parts)
    assert parts.best is not None and parts.best.step == 3
    monkeypatch.setattr(parts.measurer, "measure", lambda *_: {"nash_conv": 0.0})
    evaluate(parts)
    assert parts.best.step == 3, "a step that did not measure it has nothing to say"
    parts.close()


def test_actors_are_those_named_for_the_env_and_no_others() -> None:
    arena = Arena()
    arena.add_actor(Actor("cards/player_1", model="optimal"))
    actors = {
        "player_1": {"model": "random"},
        "cards/*": {"system_prompt": "Think."},
        "talk/judge": {"model": "scripted:x"},
    }
    watched = held_out({"id": "LeducPoker-v0", "name": "cards"}, {"id": "Debate-v0", "name": "talk"}, "Nim-v0")
    config = small(actors=actors, eval=watched)
    from legos_train.evaluation import eval_tasks_of

    tasks = {task.slot.name: task for task in eval_tasks_of(arena_of(config, arena), config)}
    assert tasks["Nim-v0"].own == ["player_0", "player_1"], "random has the seat of the run's env only"
    cards = tasks["cards"]
    assert cards.own == ["player_0"] and cards.players["*"].system_prompt == "Think."
    assert tasks["talk"].players["judge"].model == "scripted:x"
    assert tasks["KuhnPoker-v0"].own == ["player_0"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"env": ["KuhnPoker-v1x"]}, "eval.env 'KuhnPoker-v1x' cannot be created: .*Did you mean 'KuhnPoker-v0'"),
        ({"env": [{**MATH, "source": "gone.jsonl"}]}, r"eval.env 'math' cannot be created: .*gone\.jsonl"),
        ({"env": [{**NIM, "source": "x"}]}, "eval.env 'Nim-v0' cannot be created: .*source"),
        ({"env": [{**MATH, "args": {"level": 9}}]}, "eval.env 'math' cannot be created: .*level must be one of"),
        ({"env": [{**NIM, "opponent": "optimall"}]}, "eval.env 'Nim-v0': opponent: no policy 'optimall'.*optimal"),
        ({"env": [{**MATH, "opponent": "random"}]}, "'random' has no seat, because the policy plays GSM8K-v0 alone"),
        (
            {"env": [MATH], "best": "math.acuracy"},
            "did you mean 'math.accuracy'.* Available: nash_conv, .*math.return",
        ),
        ({"env": [NIM], "best": "accuracy"}, "'accuracy' is not a metric of this run.*Nim-v0.vs_random"),
        ({"env": [{**NIM, "oponent": "x"}]}, "unknown key 'eval.env.0.oponent', did you mean 'eval.env.0.opponent'"),
        ({"env": [{**NIM, "samples": 0}]}, "eval.env.0.samples: .*greater than or equal to 1, got 0"),
        ({"env": ["KuhnPoker-v0"]}, "two environments are named 'KuhnPoker-v0'; give the held-out one its own name"),
        ({"env": [{**NIM, "name": "a/b"}]}, "name may contain only letters, .* got 'a/b'"),
        ({"env": [{**MATH, "source": "a", "args": {"source": "b"}}]}, "math: give source once"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_the_first_step(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build(small(eval=changes))


def test_an_actor_for_no_role_of_a_held_out_env_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"actors names 'math/solvr'; math has the roles .*solver"):
        build(small(eval=held_out(MATH), actors={"math/solvr": {"system_prompt": "x"}}))


def test_the_command_line_names_held_out_envs(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--eval-env", "Nim-v0", "--eval-env", "hard=GSM8K-v0", "--eval-arg", "hard:level=3"]
    found = from_dict(settings(make_parser().parse_args(words))).eval.env
    assert [(entry.label, entry.id, entry.args) for entry in found] == [
        ("Nim-v0", "Nim-v0", {}),
        ("hard", "GSM8K-v0", {"level": 3}),
    ]
    nobody = [*words[:2], *words[4:]]
    for wrong, said in ((["--eval-arg", "level=3"], "give --eval-env ID too"), (nobody, "'hard'; there are Nim-v0")):
        assert main(["train", *wrong]) == 1 and said in capsys.readouterr().err


def test_the_transfer_example_measures_what_it_does_not_train_on() -> None:
    config = TrainConfig.load(TRANSFER)
    assert config == from_dict(settings(make_parser().parse_args(["--config", str(TRANSFER)])))
    assert config.reply == preset("spiral")["reply"] and [e.id for e in config.env] == [
        e["id"] for e in preset("spiral")["env"]
    ]
    gsm8k = config.eval.env[0]
    assert (gsm8k.id, gsm8k.source, gsm8k.args["split"], gsm8k.games) == ("GSM8K-v0", "hf", "test", 200)
    assert {"gsm8k", "connect_four", "liars_dice"} == {entry.label for entry in config.eval.env}
    assert not {entry.label for entry in config.eval.env} & {entry.label for entry in config.env}


@pytest.mark.slow
def test_the_transfer_example_trains_on_games_and_measures_problems(tmp_path: Path) -> None:
    data = settings(make_parser().parse_args(["--config", str(TRANSFER), "--smoke"]))
    problems = Path(__file__).parents[1] / "envs/data/gsm8k.jsonl"
    config = from_dict(merged(data, {"run_dir": tmp_path / "run", "batch_size": 2, "eval": {"games": 2}}))
    gsm8k, *games = config.eval.env
    entries = [replace_entry(gsm8k, source=str(problems), args={**gsm8k.args, "split": "all"}, games=3, max_tokens=16)]
    entries += [replace_entry(game, games=2, max_tokens=16) for game in games]
    config = config.model_copy(update={"eval": config.eval.model_copy(update={"env": tuple(entries)})})
    result = train(config, quiet=True)
    assert result.steps == 2 and not {"gsm8k", "connect_four", "liars_dice"} & {e.label for e in config.env}
    wanted = {"gsm8k/accuracy", "connect_four/vs_random", "liars_dice/vs_random"}
    assert wanted <= set(result.start) and wanted <= set(result.last)


def replace_entry(entry: Any, **changes: Any) -> Any:
    return entry.model_copy(update=changes)
