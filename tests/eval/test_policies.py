"""From words to players, without loading more than they need."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import legos_envs
from legos_train import train
from legos_train.cli.main import main
from legos_train.config import TrainConfig, from_dict
from legos_train.errors import PolicyError
from legos_train.evaluation.games import Pairing
from legos_train.evaluation.outcomes import OUTCOMES
from legos_train.evaluation.session import Session
from legos_train.evaluation.session_options import SessionOptions
from legos_train.evaluation.trained_as import prompted_roles, trained_args
from legos_train.rollout.players.words import Cast, fingerprint, is_code, locate, read_weights
from legos_train.run.build import arena_of
from tests.eval.stub import chat, legal, serving
from tests.train.helpers import small

MODEL_LIBRARIES = {"mlx", "mlx_lm", "transformers", "tokenizers", "safetensors", "torch"}


@pytest.mark.slow
def test_code_policies_and_endpoints_load_no_model_library(tmp_path: Path) -> None:
    with serving(lambda number, body: chat(legal(body))) as stub:
        players = ["-m", "optimal", "-m", "scripted:first", "-m", stub.spec, "-n", "4"]
        commands = [
            ["eval", "KuhnPoker-v0", *players, "--out", str(tmp_path / "e")],
            ["tournament", "KuhnPoker-v0", *players, "--out", str(tmp_path / "t")],
        ]
        code = (
            "import sys; from legos_train.cli.main import main\n"
            f"for command in {commands!r}: assert main(command) == 0, command\n"
            "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    found = set(done.stdout.splitlines()[-1].split())
    assert {"httpx2", "scipy", "openskill"} <= found and not found & {*MODEL_LIBRARIES, "openai"}


@pytest.mark.slow
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
    small = ["--steps", "2", "--batch-size", "8", "--threads", "1", "--lora.rank", "4", "--lora.scale", "3"]
    small += ["--lora.layers", "1", "--lora.targets", "self_attn", "down_proj"]
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
    config = run_dir / "last/adapter_config.json"
    settings = config.read_text()
    config.write_text(json.dumps(json.loads(settings) | {"lora_parameters": {"rank": 4, "scale": 0.5}}))
    try:
        assert cast.identity(f"{run_dir}@last") != before, "the same matrices with another scale are another policy"
    finally:
        config.write_text(settings)
    assert cast.identity(f"{run_dir}@last") == before


def test_a_run_is_an_adapter_of_the_model_named_before_it(run_dir: Path, tmp_path: Path) -> None:
    assert locate(f"tiny+{run_dir}") == ("tiny", run_dir / "adapter")
    assert locate(f"tiny+{run_dir}@step_1") == ("tiny", run_dir / "checkpoints/step_1")
    for word in (run_dir, run_dir / "adapter"):
        with pytest.raises(PolicyError, match="was trained on 'tiny'; it does not fit 'small'"):
            locate(f"small+{word}")
    with pytest.raises(PolicyError, match="was trained on 'tiny'; it does not fit 'small'"):
        train(small(tmp_path / "run", model="small", steps=1, init_adapter=f"{run_dir}@last"), quiet=True)


def test_other_weights_in_a_model_directory_are_other_games(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    seen = []
    for weights in (b"one", b"other", b"one"):
        (tmp_path / "model.safetensors").write_bytes(weights)
        seen.append(Cast().identity(str(tmp_path)))
    assert seen[0] == seen[2] != seen[1] and "weights" not in Cast().identity("Qwen/Qwen3-0.6B")


def test_other_env_arguments_than_in_training_are_told(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["eval", "KuhnPoker-v0", "-m", f"{run_dir}@last", "-n", "2"]
    assert main(command) == 0
    assert "was trained with" not in capsys.readouterr().out
    assert main([*command, "--arg", "preset=spiral"]) == 0
    assert "was trained with the env arguments {}; these games have {'preset': 'spiral'}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("{run}@step_9", "@step_2"),
        ("{run}@nothing", "there are no weights 'nothing'; available: .*@last"),
        ("nowhere@best", "not a run directory"),
        ("http://127.0.0.1:1/v1", "names no model"),
        ("optimall", r"Did you mean 'optimal'\? Accepted: random"),
        ("scripted:nobody", "Accepted: 'random', 'optimal', 'human', 'scripted:first'"),
        ("localhost:8000#m", "Did you mean http://localhost:8000#m"),
        ("{run}nd", "that folder has: .*kuhn"),
        ("runs/nowhere", "no run 'runs/nowhere': there is no such directory"),
        ("./nowhere", "Accepted: random"),
        ("tiny+nowhere", "no adapter in 'nowhere'"),
    ],
)
def test_wrong_words_are_explained(
    run_dir: Path, word: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a folder in which nobody has trained yet
    with pytest.raises(PolicyError, match=said):
        Cast(legos_envs.make("KuhnPoker-v0")).player(word.format(run=run_dir))


def test_a_policy_that_does_not_fit_the_env_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "Debate-v0", "-m", "optimal", "-n", "2"]) == 1
    assert capsys.readouterr().err.startswith("error: Debate-v0 has no exact solution")


def test_the_hub_is_not_waited_for_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    from inference import ModelNotFound

    def unknown(*_: Any) -> Any:
        raise OSError("Name or service not known")

    asked = []
    real = huggingface_hub.snapshot_download

    def download(*given: Any, **named: Any) -> Any:
        asked.append(named["local_files_only"])
        return real(*given, **named)

    monkeypatch.setattr("urllib.request.getproxies", dict)
    monkeypatch.setattr("socket.getaddrinfo", unknown)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(ModelNotFound, match=r"'nobody/none': it is not a directory, .* the hub cannot be reached"):
        Cast().player("nobody/none")
    assert asked == [True], "its client would go on for 20 seconds"


def test_training_measures_what_an_evaluation_measures(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same weights on the same seeds: against random play, against a seat that is given away, and alone."""
    from inference import Engine
    from inference.text import Renderer
    from legos_train.evaluation import Measurer, eval_tasks_of, followed

    word = f"{run_dir}@last"
    engine = Engine.load("tiny")
    weights, scale, version = read_weights(run_dir / "last")
    engine.publish("trained", weights, scale=scale, version=version)
    two_rounds = {"id": "KuhnPoker-v0", "args": {"num_rounds": 2}}
    cases: list[tuple[str, dict[str, Any], list[str]]] = [
        ("vs_random", {"env": [two_rounds]}, ["KuhnPoker-v0", "--arg", "num_rounds=2"]),
        (
            "return",
            {"env": "KuhnPoker-v0", "actors": {"player_1": {"model": "optimal"}}},
            ["KuhnPoker-v0", "--seat", "player_1=optimal"],
        ),
        ("return", {"env": "Dataset-v0"}, ["Dataset-v0"]),
    ]
    capsys.readouterr()
    for name, settings, arguments in cases:
        config = from_dict({**settings, "eval": {"games": 12}, "seed": 7})
        arena = arena_of(config)
        tasks = eval_tasks_of(arena, config)
        measurer = Measurer(tasks, engine, Renderer(engine.tokenizer), engine.context, followed(None, tasks))
        found = measurer.measure("trained")
        measurer.close()
        sampling = ["--max-tokens", str(arena.default.max_tokens), "--no-exact", "--json"]
        assert main(["eval", *arguments, "-m", word, "-n", "12", "--seed", "7", *sampling]) == 0
        (row,) = json.loads(capsys.readouterr().out)["results"]
        assert measurer.key(found) == (name, 1)
        assert (found[name], [found[f"{name}_low"], found[f"{name}_high"]]) == (row["mean"], row["ci95"])
        kinds = {kind: kind for kind in OUTCOMES} if row["competitive"] else {"success": "win", "invalid": "invalid"}
        assert {kind: found[kind] for kind in kinds} == {kind: row[other] for kind, other in kinds.items()}
        if "accuracy" in row:
            assert found["accuracy"] == row["accuracy"]["mean@1"]
    engine.close()


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


def test_a_person_may_leave(monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("bet\n"))
    command = ["eval", "KuhnPoker-v0", "-m", "human", "--opponent", "scripted:first", "-n", "4"]
    assert main([*command, "--out", str(tmp_path / "e")]) == 1
    said = capsys.readouterr().err
    assert "1 game kept in" in said and "error: the input ended while 'player_1' was to act" in said


def test_judges_have_a_seat_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["eval", "HeadToHead-v0", "-m", "scripted:long", "--opponent", "scripted:short", "-n", "8", "--json"]
    assert main([*command, "--seat", "judge=scripted:longer"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["results"]
    assert row["mean"] == 1.0 and row["win"] == 1.0 and "margin" not in row and "judge" not in " ".join(row["advice"])
    assert main(command) == 0
    (row,) = json.loads(capsys.readouterr().out)["results"]
    assert "match_0/judge_0 played by random" in " ".join(row["advice"])
    asked: list[dict[str, Any]] = []

    def script(number: int, body: dict[str, Any]) -> Any:
        asked.append(body)
        return chat("[A]")

    with serving(script) as stub:
        assert (
            main(["eval", "HeadToHead-v0", "-m", stub.spec, "--seat", f"judge={stub.spec}", "-n", "4", "--json"]) == 0
        )
    said = json.loads(capsys.readouterr().out)
    judged = [body for body in asked if "JSON with quoted texts" in body["messages"][-1]["content"]]
    assert 0 < len(judged) < len(asked) and said["setting"]["judge_temperature"] == 0
    assert {body["temperature"] for body in judged} == {0.0} and {b["temperature"] for b in asked} == {0.0, 1.0}
    assert main([*command, "--seat", "jugde=random"]) == 1
    assert "no agent or role ['jugde']" in capsys.readouterr().err


def test_general_sum_games_report_wins_minus_losses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "Negotiation-v0", "-m", "random", "--opponent", "self", "-n", "8", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["results"]
    assert row["margin_ci95"][0] <= row["margin"] <= row["margin_ci95"][1]


def test_our_own_server_is_evaluated_to_the_end(random_model_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.inference.live import serving as server

    with server(random_model_dir) as live:
        spec = f"{live.url}/v1#{random_model_dir}"
        code = main(
            ["eval", "KuhnPoker-v0", "-m", spec, "--opponent", "optimal", "-n", "12", "--max-tokens", "4", "--json"]
        )
    results = json.loads(capsys.readouterr().out)
    (row,) = results["results"]
    assert code == 0 and row["games"] == 12 and row["failed"] == 0
    assert row["usage"][spec]["completion_tokens"] > 0 and "exact" not in row


MUTE = """
import legos_envs
from legos_envs.games.kuhn_poker import KuhnPoker

class Mute(KuhnPoker):
    name = "Mute-v0"
    scripted_players = {"mute": lambda decision: ""}

legos_envs.register("Mute-v0", Mute)
"""


@pytest.mark.parametrize(
    ("args", "penalty"), [({}, -1.0), ({"preset": "spiral"}, -1.5), ({"invalid_reward": -3}, -3.0)]
)
def test_an_invalid_move_costs_the_same_in_training_and_in_evaluation(
    args: dict[str, Any], penalty: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SPIRAL's authors punish it with -1.5 in training and with -1 in evaluation; here the env's arguments decide."""
    file = tmp_path / "mute.py"
    file.write_text(MUTE)
    name = f"{file}:Mute-v0"
    arena = arena_of(from_dict({"env": [{"id": name, "args": args}]}))
    (slot,) = arena.envs.values()
    trained = asyncio.run(legos_envs.play(slot.make(), lambda decision: "", 5))
    flags = [flag for key, value in args.items() for flag in ("--arg", f"{key}={value}")]
    assert main(["eval", name, "-m", "scripted:mute", "-n", "8", "--json", *flags]) == 0
    (row,) = json.loads(capsys.readouterr().out)["results"]
    assert row["seats"]["player_0"] == trained.returns["player_0"] == penalty
    assert row["seats"]["player_1"] == penalty and row["invalid"] == 1.0 and row["loss"] == 0.0


def test_what_a_run_was_told_in_training_is_remembered(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        '[[env]]\nid = "Debate-v0"\nargs = {rounds = 1}\n[actors.pro]\nsystem_prompt = "Be brief."\n[actors.con]\n'
    )
    assert prompted_roles(f"{tmp_path}@best", "Debate-v0") == ["pro"]
    assert prompted_roles("random", "Debate-v0") == []
    assert trained_args(str(tmp_path), "Debate-v0") == [{"rounds": 1}]
    assert trained_args(str(tmp_path), "KuhnPoker-v0") == [] == trained_args("tiny", "KuhnPoker-v0")


def test_prompted_roles_may_be_those_of_agents_inside_a_table(tmp_path: Path) -> None:
    prompted = "".join(
        f'[actors."{key}"]\nsystem_prompt = "Be brief."\n' for key in ("m_0/p_0", "table/m_1/p_1", "nim/first", "all")
    )
    (tmp_path / "config.toml").write_text(
        f'[[env]]\nid = "Nim-v0"\nname = "nim"\n[[env]]\nid = "Match-v0"\nname = "table"\n{prompted}'
    )
    assert prompted_roles(str(tmp_path), "Match-v0") == ["all", "m_0/p_0", "m_1/p_1"]
    assert prompted_roles(str(tmp_path), "Nim-v0") == ["all", "first", "m_0/p_0"]


def test_only_prompts_for_roles_of_the_env_are_missed(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        'env = ["Debate-v0", "KuhnPoker-v0"]\n[actors.pro]\nsystem_prompt = "Be brief."\n'
        '[actors."Debate-v0/con"]\nsystem_prompt = "Be kind."\n[actors."KuhnPoker-v0/player_0"]\nsystem_prompt = "X."\n'
    )
    session = Session(SessionOptions(env=["KuhnPoker-v0", "Debate-v0"]))
    kuhn, debate = (
        [said for said in session.remarks(Pairing(env, str(tmp_path), "random", sides)) if "--system" in said]
        for env, sides in (("KuhnPoker-v0", (("player_0",), ("player_1",))), ("Debate-v0", (("pro",), ("con",))))
    )
    assert len(kuhn) == len(debate) == 1
    assert "prompts for player_0; there" in kuhn[0] and "prompts for con, pro; there" in debate[0]
    session = Session(SessionOptions(env=["Nim-v0"]))
    pairing = Pairing("Nim-v0", str(tmp_path), "random", (("player_0",), ("player_1",)))
    assert not [said for said in session.remarks(pairing) if "--system" in said]


@pytest.mark.parametrize(
    "text",
    [
        'env = "KuhnPoker-v0"\nreply = "boxed"\n',
        '[env_args]\naction_format = "boxed"\n[[env]]\nid = "KuhnPoker-v0"\ncredit = "rae"\n',
        '[[env]]\nid = "KuhnPoker-v0"\nname = "a"\n[[env]]\nid = "KuhnPoker-v0"\nname = "b"\n'
        'args = {action_format = "boxed"}\n',
    ],
)
def test_the_same_env_arguments_as_in_training_are_not_remarked(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    session = Session(SessionOptions(env=["KuhnPoker-v0"], arg={"action_format": "boxed"}))
    args = session.envs["KuhnPoker-v0"].args
    pairing = Pairing("KuhnPoker-v0", str(tmp_path), "random", (("player_0",), ("player_1",)), args)
    assert not [said for said in session.remarks(pairing) if "env arguments" in said]
    assert TrainConfig.load(tmp_path / "config.toml").envs[-1].args == pairing.args


def test_a_run_that_was_stopped_names_what_can_be_played_and_how_it_goes_on(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('model = "tiny"')
    for word in (str(tmp_path), f"{tmp_path}@best", f"{tmp_path}@step_9"):
        with pytest.raises(PolicyError, match=r"available: none .*; `legos train --resume .*` finishes the run"):
            locate(word)
    (tmp_path / "checkpoints" / "step_3").mkdir(parents=True)
    (tmp_path / "checkpoints" / "step_3" / "adapter.safetensors").touch()
    for word in (str(tmp_path), f"{tmp_path}@best", f"{tmp_path}@step_9"):
        with pytest.raises(PolicyError, match=r"available: .*@step_3; `legos train --resume") as caught:
            locate(word)
        assert f"{tmp_path}@last" not in str(caught.value), "names what is not there"
    assert locate(f"{tmp_path}@step_3") == ("tiny", tmp_path / "checkpoints" / "step_3")


@pytest.mark.parametrize("verb", [["eval", "-m", "optimal"], ["play", "--opponent", "optimal"]])
def test_who_knows_one_round_is_refused_for_several(verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb[0], "KuhnPoker-v0", *verb[1:], "--arg", "num_rounds=3"]) == 1
    assert "KuhnPoker-v0 is played for 3 rounds here (num_rounds)" in capsys.readouterr().err


def test_who_is_its_own_opponent_is_measured_once(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["-m", "random", "-m", "scripted:first", "--opponent", "self", "--opponent", "random", "-n", "4"]
    assert main(["eval", "KuhnPoker-v0", *words, "--no-exact", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = [(row["policy"], row["opponent"]) for row in found["results"]]
    assert rows == [("random", "random"), ("scripted:first", "scripted:first"), ("scripted:first", "random")]
    assert len(found["comparisons"]) == 1
