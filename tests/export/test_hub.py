"""The folder for a hub: what the card says, what it keeps to itself, and that nothing is sent unasked."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inference import read_adapter
from legos_train.cli.main import main
from legos_train.config import TrainConfig, to_toml
from legos_train.errors import ExportError
from legos_train.export import hub, open_run
from legos_train.export.peft import to_mlx


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """What a stand-in for huggingface_hub was asked to do."""
    calls: list[tuple[str, dict[str, Any]]] = []

    class HfApi:
        def create_repo(self, repo: str, **options: Any) -> str:
            calls.append(("create", {"repo": repo, **options}))
            return f"https://hub.example/{repo}"

        def upload_folder(self, **options: Any) -> None:
            options["files"] = sorted(p.name for p in Path(options["folder_path"]).iterdir())
            calls.append(("upload", options))

    module = types.ModuleType("huggingface_hub")
    module.HfApi = HfApi  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return calls


def test_the_folder_and_its_card(run_dir: Path, tmp_path: Path, sent: list[Any], capsys: Any) -> None:
    out = tmp_path / "hub"
    assert main(["export", "hub", str(run_dir), str(out), "--base-model", "org/base", "--license", "mit"]) == 0
    assert "nothing was sent" in capsys.readouterr().out and not sent
    card = (out / "README.md").read_text()
    head, body = card.split("---\n")[1:3]
    assert head.splitlines()[:4] == [
        "base_model: org/base",
        "license: mit",
        "library_name: mlx",
        "pipeline_tag: text-generation",
    ]
    digest = hashlib.sha256((run_dir / "config.toml").read_bytes()).hexdigest()
    facts = (
        "KuhnPoker-v0",
        "earlier versions of itself",
        "; random",
        "40 steps of 64 episodes",
        "| seed | 7 |",
        digest,
    )
    assert not [fact for fact in facts if fact not in body] and digest in body
    assert "| NashConv (0 is an equilibrium), exact | 0.9167 | 0.2500 |" in body, (
        "the published weights are the average"
    )
    assert read_adapter(out).weights.keys() == read_adapter(run_dir / "adapter").weights.keys()
    assert (out / "adapters.safetensors").read_bytes() == (run_dir / "adapter/adapters.safetensors").read_bytes()
    assert json.loads((out / "peft/adapter_config.json").read_text())["base_model_name_or_path"] == "org/base"
    to_mlx(out / "peft", tmp_path / "back")
    for name in ("adapters.safetensors", "adapter_config.json"):
        assert (tmp_path / "back" / name).read_bytes() == (out / name).read_bytes()


def test_other_weights_and_their_numbers(run_dir: Path, tmp_path: Path) -> None:
    files = hub.write_folder(open_run(f"{run_dir}@best", tmp_path / "scratch"), tmp_path / "hub")
    assert files == ["README.md", "adapter_config.json", "adapters.safetensors"], "tiny has no repository for PEFT"
    card = (tmp_path / "hub/README.md").read_text()
    assert "| 0.9167 | 0.2200 |" in card and "at step 30" in card and "base_model:" not in card
    assert (tmp_path / "hub/adapters.safetensors").read_bytes() == (run_dir / "best/adapters.safetensors").read_bytes()


def test_a_checkpoint_is_exported_like_the_adapter_that_it_holds(run_dir: Path, tmp_path: Path, capsys: Any) -> None:
    """Checkpoint 40 of the fixture has the weights of `last`: the same bytes and settings come out, for PEFT too."""
    path = shutil.copytree(run_dir, tmp_path / "run")
    (path / "result.json").unlink()  # a run that goes on has none
    for word, name in ((f"{path}@step_40", "a"), (f"{path}@last", "b")):
        assert main(["export", "peft", word, str(tmp_path / name), "--base-model", "org/base"]) == 0
    of_checkpoint, of_last = ((tmp_path / name / "adapter_config.json").read_text() for name in "ab")
    assert of_checkpoint == of_last
    to_mlx(tmp_path / "a", tmp_path / "back")
    assert (tmp_path / "back/adapters.safetensors").read_bytes() == (path / "last/adapters.safetensors").read_bytes()
    config, last = (read_adapter(folder).config for folder in (tmp_path / "back", path / "last"))
    assert config["legos"]["weights"] == "checkpoint step_40" and config["legos"]["step"] == 40
    assert {k: v for k, v in config.items() if k != "legos"} == {k: v for k, v in last.items() if k != "legos"}
    assert main(["export", "hub", f"{path}@step_40", str(tmp_path / "hub")]) == 0
    card = (tmp_path / "hub/README.md").read_text()
    assert "| weights | checkpoint after step 40 |" in card and "| 0.9167 | 0.3100 |" in card
    capsys.readouterr()
    for form in ("peft", "hub"):
        assert main(["export", form, f"{path}@step_7", str(tmp_path / "no"), "--base-model", "org/base"]) == 1
        assert "not kept; available:" in capsys.readouterr().err
    assert main(["export", "hub", str(path), str(tmp_path / "no")]) == 1
    assert "or export RUN@step_N" in capsys.readouterr().err
    (path / "checkpoints/step_40/adapter.safetensors").write_bytes(b"torn")
    assert main(["export", "peft", f"{path}@step_40", str(tmp_path / "no"), "--base-model", "org/base"]) == 1
    assert "the checkpoint is damaged" in capsys.readouterr().err and not (tmp_path / "no").exists()


def test_played_numbers_come_with_their_seeds(run_dir: Path, tmp_path: Path) -> None:
    path = shutil.copytree(run_dir, tmp_path / "run")
    result = json.loads((path / "result.json").read_text())
    ends = {"Debate-v0/vs_random_low": 0.25, "Debate-v0/vs_random_high": 0.75, "Debate-v0/truncated": 0.0}
    result["average"] = {"Debate-v0/vs_random": 0.5, **ends}
    (path / "result.json").write_text(json.dumps(result))
    card = hub.card(open_run(str(path), tmp_path / "scratch"), None, None)
    assert "| Debate-v0: mean return against random play, played |  | 0.500 (0.25 to 0.75) |" in card
    assert "random_low" not in card and "Debate-v0: truncated" not in card and "In brackets: 95 % intervals" in card
    exact = {
        "Debate-v0/no_loss_as_player_0": 0.5,
        "Debate-v0/win_low": 0.5,
        "Debate-v0/win_high": 0.5,
        "Debate-v0/win": 0.5,
    }
    told = hub.card(replace(open_run(str(path), tmp_path / "scratch"), result={**result, "average": exact}), None, None)
    assert "as player_0, exact" in told and "In brackets" not in told, "a seat's number is as exact as the whole"
    assert "over 256 games on seeds from 7 up" in card and "not trained on" not in card
    held_out = {"id": "Debate-v0", "games": 12}
    config = TrainConfig(seed=7, eval={"env": [held_out]})  # type: ignore[arg-type]
    (path / "config.toml").write_text(to_toml(config))
    card = hub.card(open_run(str(path), tmp_path / "scratch"), None, None)
    assert "Those of Debate-v0, which was not trained on, are over 12 games from seed 0 on." in card
    assert "seeds from 7" not in card


def test_the_card_names_the_bundled_model_and_the_arguments_that_the_numbers_are_for(
    run_dir: Path, tmp_path: Path
) -> None:
    path = shutil.copytree(run_dir, tmp_path / "run")
    env = {"id": "KuhnPoker-v0", "args": {"memory": "chat", "zero": "a b"}}
    config = TrainConfig(model="small", env=[env], env_args={"num_rounds": 3})  # type: ignore[arg-type]
    (path / "config.toml").write_text(to_toml(config))
    card = hub.card(open_run(str(path), tmp_path / "scratch"), None, None)
    assert "with Legos" in card and "on `small`, a model that comes with Legos." in card and "tiny" not in card
    command = "legos eval KuhnPoker-v0 --arg memory=chat --arg 'zero=a b' --arg num_rounds=3 -m small+FOLDER"
    assert f"{command} --opponent random" in card


def test_no_path_or_address_of_this_machine_is_published(run_dir: Path, tmp_path: Path) -> None:
    path = shutil.copytree(run_dir, tmp_path / "secret_run")
    model = tmp_path / "secret_model"
    model.mkdir()
    text = (path / "config.toml").read_text()
    text = text.replace('model = "tiny"', f'model = "{model}"').replace(
        '"random"', f'"random", "{path}@last", "http://secret_host/v1#m"'
    )
    text = text.replace("[logs]", '[logs]\nwandb = "secret_project"')
    text = text.replace("urls = []", 'urls = ["http://secret_host:8000"]')
    text = text.replace(
        'env = "KuhnPoker-v0"', f'env = "Dataset-v0"\nenv_args = {{ path = "{model}/secret_data.jsonl" }}'
    )
    (path / "config.toml").write_text(text)
    config = json.loads((path / "adapter/adapter_config.json").read_text())
    config["legos"]["base_model"] = str(model)
    (path / "adapter/adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(ExportError, match="is a folder on this machine"):
        hub.write_folder(open_run(str(path), tmp_path / "scratch"), tmp_path / "hub")
    assert not (tmp_path / "hub").exists()
    hub.write_folder(open_run(str(path), tmp_path / "scratch"), tmp_path / "hub", base_model="org/base")
    for file in (tmp_path / "hub").rglob("*"):
        if file.is_file():
            assert b"secret" not in file.read_bytes() and str(tmp_path).encode() not in file.read_bytes(), file
    assert 'path = "a local path"' in (tmp_path / "hub/README.md").read_text()


def test_paths_are_those_of_where_the_run_was_started(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From another folder, `secret/model` looked like a repository of the hub."""
    path = shutil.copytree(run_dir, tmp_path / "start/runs/x")
    (tmp_path / "start/secret/model").mkdir(parents=True)
    (tmp_path / "start/secret/q.jsonl").touch()
    prompt = "Read a/b. " + 300 * "x"
    text = (path / "config.toml").read_text().replace('model = "tiny"', 'model = "secret/model"')
    text = text.replace('env = "KuhnPoker-v0"', 'env = "Dataset-v0"\nenv_args = { source = "secret/q.jsonl" }')
    (path / "config.toml").write_text(text + f'\n[actors.solver]\nsystem_prompt = "{prompt}"\n')
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    with pytest.raises(ExportError, match="is a folder on this machine"):
        hub.write_folder(open_run("../start/runs/x", tmp_path / "scratch"), tmp_path / "hub")
    hub.write_folder(open_run("../start/runs/x", tmp_path / "scratch"), tmp_path / "hub", base_model="org/base")
    card = (tmp_path / "hub/README.md").read_text()
    assert "secret" not in card and "a local path" in card and prompt in card


def test_an_export_over_another_leaves_nothing_of_it(run_dir: Path, tmp_path: Path, sent: list[Any]) -> None:
    out = tmp_path / "hub"
    assert main(["export", "hub", str(run_dir), str(out), "--base-model", "org/base"]) == 0
    (out / "mine.txt").touch()
    assert main(["export", "hub", str(run_dir), str(out), "--overwrite", "--push", "org/name"]) == 0
    assert not list(out.glob("peft/*")), "the matrices of an earlier run"
    assert sent[1][1]["allow_patterns"] == ["README.md", "adapter_config.json", "adapters.safetensors"]
    assert main(["export", "hub", str(run_dir), str(run_dir), "--overwrite"]) == 1


@pytest.mark.parametrize("public", [False, True])
def test_pushing_is_asked_for(run_dir: Path, tmp_path: Path, sent: list[Any], capsys: Any, public: bool) -> None:
    out = tmp_path / "hub"
    options = ["--push", "me/kuhn", *(["--public"] if public else [])]
    assert main(["export", "hub", str(run_dir), str(out), *options]) == 0
    (create, made), (upload, given) = sent
    assert (create, upload) == ("create", "upload")
    assert made == {"repo": "me/kuhn", "private": not public, "exist_ok": True}
    assert given["repo_id"] == "me/kuhn" and given["folder_path"] == str(out)
    assert given["files"] == ["README.md", "adapter_config.json", "adapters.safetensors"]
    assert "pushed to https://hub.example/me/kuhn" in capsys.readouterr().out


def test_what_is_no_finished_run_is_refused(run_dir: Path, tmp_path: Path, sent: list[Any], capsys: Any) -> None:
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    shutil.copy(run_dir / "config.toml", unfinished)
    cases = {
        str(unfinished): "has not finished",
        str(tmp_path): "not a run directory",
        f"{run_dir}@first": "RUN@last, RUN@average, RUN@best and RUN@step_N",
    }
    for spec, message in cases.items():
        assert main(["export", "hub", spec, str(tmp_path / "hub"), "--push", "me/kuhn"]) == 1
        assert message in capsys.readouterr().err
    assert not sent and not (tmp_path / "hub").exists()
    with pytest.raises(SystemExit):
        main(["export", "hub", str(run_dir), str(tmp_path / "hub"), "--public"])


def test_a_run_of_several_learners_is_exported_one_by_one(run_dir: Path, tmp_path: Path, capsys: Any) -> None:
    path = shutil.copytree(run_dir, tmp_path / "run")
    for name in ("a", "b"):
        shutil.copytree(run_dir / "adapter", path / "both" / name)
    shutil.rmtree(path / "adapter")
    (path / "both").rename(path / "adapter")
    assert main(["export", "hub", str(path), str(tmp_path / "hub")]) == 1
    said = capsys.readouterr().err
    assert "has the adapters of several learners, a, b" in said
    words = said.partition("`legos ")[2].partition("`")[0].replace("OUT", str(tmp_path / "out")).split()
    assert main([*words[:-1], "org/base"]) == 0 and (tmp_path / "out/adapter_config.json").exists()


def test_weights_that_are_not_finite_are_not_published(run_dir: Path, tmp_path: Path, sent: list[Any]) -> None:
    path = shutil.copytree(run_dir, tmp_path / "run")
    file = path / "adapter/adapters.safetensors"
    file.write_bytes(file.read_bytes()[:-4] + b"\x00\x00\xc0\x7f")
    assert main(["export", "hub", str(path), str(tmp_path / "hub"), "--push", "me/kuhn"]) == 1
    assert not sent and not (tmp_path / "hub").exists()


def test_the_card_names_who_played_the_other_seats(run_dir: Path, tmp_path: Path) -> None:
    source = open_run(str(run_dir), tmp_path / "scratch")
    source = replace(source, config={**source.config, "league": {}})
    alone = hub.card(source, None, None)
    actors = {"player_1": {"model": "random"}, "judge": {"model": "org/big"}, "player_0": {"system_prompt": "Bluff."}}
    told = hub.card(replace(source, config={**source.config, "actors": actors}), None, None)
    assert "| opponents in training | itself in every seat |" in alone
    said = "itself in every other seat; `judge` played by another model; `player_1` played by random"
    assert f"| opponents in training | {said} |" in told


def test_a_card_that_cannot_be_made_leaves_no_half_folder(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As without the extra `train`: the command could not be repeated, since the folder was not empty."""

    def missing(*arguments: Any) -> str:
        raise ModuleNotFoundError("No module named 'tomli_w'", name="tomli_w")

    monkeypatch.setattr(hub, "card", missing)
    assert main(["export", "hub", str(run_dir), str(tmp_path / "out")]) == 1
    assert not (tmp_path / "out").exists()
