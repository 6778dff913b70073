"""Nothing that lies beside a model, an adapter or a data set is run or unpickled, and no import reaches the network."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import legos_envs

ROOT = Path(__file__).parents[1]

# --- S09: imports ----------------------------------------------------------------------------------------------------

IMPORTS = """
import sys
seen = []
NETWORK = ("socket.", "urllib.", "http.", "ftplib.", "smtplib.", "ssl.")
sys.addaudithook(lambda event, args: seen.append(f"{event} {args!r}"[:200]) if event.startswith(NETWORK) else None)
import importlib, pkgutil
names = ["legos_envs", "inference", "legos_train"]
if sys.argv[1] == "all":
    for package in list(names):
        names += [m.name for m in pkgutil.walk_packages(importlib.import_module(package).__path__, package + ".")]
for name in names:
    if not name.endswith(("__main__", "maths_worker")):
        importlib.import_module(name)
print(len(names))
if sys.argv[1] == "trial":
    import socket
    socket.getaddrinfo("localhost", 1)
print("\\n".join(seen))
"""


def during_imports(what: str) -> tuple[int, list[str]]:
    """How many modules were imported, and what the hook saw of the network."""
    done = subprocess.run([sys.executable, "-c", IMPORTS, what], capture_output=True, text=True, check=True, cwd=ROOT)
    count, *seen = done.stdout.split("\n")
    return int(count), [line for line in seen if line]


def test_importing_the_packages_opens_no_socket_and_resolves_no_name() -> None:
    assert during_imports("packages") == (3, [])


@pytest.mark.slow
def test_no_module_opens_a_socket_or_resolves_a_name_when_it_is_imported() -> None:
    count, seen = during_imports("all")
    assert count > 250 and seen == []
    assert during_imports("trial")[1]  # the hook does see it


# --- S01, S02: what lies beside --------------------------------------------------------------------------------------

watched: list[tuple[str, str]] | None = None
"""What the audit hook has seen: exec, compile, import and open by file name, pickle by name. A hook stays for good."""
TRACE = "LEGOS_CANARY"


def hook(event: str, args: tuple[Any, ...]) -> None:
    if watched is None:
        return
    if event == "exec":
        watched.append((event, str(getattr(args[0], "co_filename", args[0]))))
    elif event == "compile":
        watched.append((event, str(args[1])))
    elif event in ("open", "import"):
        watched.append((event, str(args[0])))
    elif event == "pickle.find_class":
        watched.append((event, f"{args[0]}.{args[1]}"))


@contextmanager
def watching() -> Iterator[list[tuple[str, str]]]:
    global watched
    if not hook_added:
        sys.addaudithook(hook)
        hook_added.append(True)
    watched = seen = []
    try:
        yield seen
    finally:
        watched = None


hook_added: list[bool] = []


class Canary:
    """Unpickled, it leaves a trace."""

    def __reduce__(self) -> Any:
        return exec, (f"import os; os.environ[{TRACE!r}] = 'unpickled'",)


CODE = f"import os\nos.environ[{TRACE!r}] = 'run'\n"
SCRIPTS = (
    "modeling_evil.py",
    "tokenization_evil.py",
    "configuration_evil.py",
    "__init__.py",
    "conftest.py",
    "sitecustomize.py",
    "usercustomize.py",
    "rows.py",
    "dataset.py",
    "mlx.py",
    "json.py",
    "evil.pth",
)
PICKLES = (
    "pytorch_model.bin",
    "adapter_model.bin",
    "model.pkl",
    "training_args.bin",
    "optimizer.pt",
    "weights.npz",
    "rows.pkl",
    "rows.bin",
)


def bait(folder: Path) -> Path:
    """Puts code and pickles into a folder, under names that loaders look for."""
    for name in SCRIPTS:
        (folder / name).write_text(CODE)
    for name in PICKLES:
        (folder / name).write_bytes(pickle.dumps(Canary()))
    with zipfile.ZipFile(folder / "consolidated.bin", "w") as archive:
        archive.writestr("consolidated/data.pkl", pickle.dumps(Canary()))
    return folder


def harmless(seen: list[tuple[str, str]], folder: Path) -> None:
    """Nothing in the folder was run, compiled, imported or unpickled, and no pickle was even opened."""
    import os

    assert os.environ.pop(TRACE, None) is None
    inside = [(event, name) for event, name in seen if name.startswith(str(folder))]
    assert not [pair for pair in inside if pair[0] != "open"], inside
    opened = {Path(name).name for _, name in inside}
    assert not opened & {*SCRIPTS, *PICKLES, "consolidated.bin"}, opened
    assert not [name for event, name in seen if event == "pickle.find_class" and name.endswith(".exec")]


def test_the_hook_sees_what_it_looks_for(tmp_path: Path) -> None:
    import os

    bait(tmp_path)
    with watching() as seen:
        pickle.loads((tmp_path / "rows.pkl").read_bytes())
        exec(compile(CODE, str(tmp_path / "rows.py"), "exec"))
    assert os.environ[TRACE] == "run"
    with pytest.raises(AssertionError):
        harmless(seen, tmp_path)
    os.environ.pop(TRACE, None)
    for one in (("compile", "rows.py"), ("exec", "rows.py"), ("open", "rows.pkl")):
        assert (one[0], str(tmp_path / one[1])) in seen
    assert ("pickle.find_class", "builtins.exec") in seen


def test_a_model_is_loaded_without_what_lies_beside_it(random_model_dir: Path, tmp_path: Path) -> None:
    from inference import UnsafeModel, load

    folder = bait(shutil.copytree(random_model_dir, tmp_path / "model"))
    with watching() as seen:
        model, tokenizer, info = load(folder)
        assert info.digest and tokenizer.encode("[bet]")
    harmless(seen, folder)
    assert (folder / "model.safetensors").name in {Path(name).name for event, name in seen if event == "open"} or model
    for file, key, value in (
        ("config.json", "auto_map", {"AutoModel": "modeling_evil.Evil"}),
        ("config.json", "model_file", "modeling_evil.py"),
        ("tokenizer_config.json", "auto_map", {"AutoTokenizer": ["tokenization_evil.Evil", None]}),
    ):
        whole = (folder / file).read_text()
        (folder / file).write_text(json.dumps({**json.loads(whole), key: value, "trust_remote_code": True}))
        with watching() as seen:
            try:
                load(folder)
            except UnsafeModel:
                pass
            else:
                assert file == "tokenizer_config.json", f"{key} in {file} was accepted"
        harmless(seen, folder)
        (folder / file).write_text(whole)


def test_a_model_of_pickles_alone_is_refused_unread(random_model_dir: Path, tmp_path: Path) -> None:
    from inference import load

    folder = bait(shutil.copytree(random_model_dir, tmp_path / "model"))
    (folder / "model.safetensors").unlink()
    with watching() as seen, pytest.raises(Exception, match="safetensors"):
        load(folder)
    harmless(seen, folder)


def test_an_adapter_is_read_without_what_lies_beside_it(
    make_adapter: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    import mlx.core as mx

    from inference import AdapterError, read_adapter

    bait(tmp_path)
    parameters = {"rank": 4, "scale": 2.0, "dropout": 0.0, "keys": []}
    config = {"fine_tune_type": "lora", "num_layers": 2, "lora_parameters": parameters, "auto_map": {"x": "rows.Evil"}}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    with watching() as seen, pytest.raises(AdapterError, match=r"adapters\.safetensors is missing"):
        read_adapter(tmp_path)
    harmless(seen, tmp_path)
    (tmp_path / "adapters.safetensors").write_bytes(pickle.dumps(Canary()))
    with watching() as seen, pytest.raises(AdapterError, match="damaged"):
        read_adapter(tmp_path)
    harmless(seen, tmp_path)
    mx.save_safetensors(str(tmp_path / "adapters.safetensors"), make_adapter(1))
    with watching() as seen:
        assert read_adapter(tmp_path).rank == 4
    harmless(seen, tmp_path)


def test_a_data_set_is_read_without_what_lies_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bait(tmp_path)
    monkeypatch.chdir(tmp_path)  # where a careless import would find json.py
    row = {"question": "What is 1 + 1?", "answer": "2", "__reduce__": "rows.Evil", "_target_": "os.system"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "rows.json").write_text(json.dumps([row]))
    for name in ("rows.jsonl", "rows.json"):
        with watching() as seen:
            env = legos_envs.make("Dataset-v0", source=str(tmp_path / name))
            env.reset(seed=0)
            env.step("Answer: 2")
            assert env.infos["solver_0"]["correct"]
        harmless(seen, tmp_path)
    for name in (*PICKLES, "rows.py", "consolidated.bin", "."):
        with watching() as seen, pytest.raises(ValueError, match="source must be"):
            legos_envs.make("Dataset-v0", source=str(tmp_path / name))
        harmless(seen, tmp_path)


# --- the same episodes everywhere ------------------------------------------------------------------------------------

EPISODES = """
import hashlib, json, random, sys
import legos_envs
from legos_envs.play import Decision
from legos_envs.policies import make_policy
from legos_envs.scoring import formulas
from legos_envs.testing.fuzzing import hostile
formulas.installed = lambda: False
for id in legos_envs.registered():
    env = legos_envs.make(id)
    own = make_policy("random", env)
    said, rng = [], random.Random(7)
    for seed in range(3):
        env.reset(seed=seed)
        while env.agents:
            agent = env.agent_selection
            observation, reward, terminated, truncated, info = env.last()
            said.append([agent, observation, reward, terminated, truncated, info])
            text = None
            if not (terminated or truncated):
                text = own(Decision(agent, info["role"], observation, info, len(said), seed))
                if seed == 2 and id != "CodeGen-v0" and rng.random() < 0.3:  # there time decides about some
                    text = hostile(env, agent, text, rng)
            said.append(text)
            env.step(text)
    whole = json.dumps(said, default=repr).encode("utf-8", "surrogatepass")
    print(id, len(said), hashlib.sha256(whole).hexdigest())
"""


BUILT_IN = sorted(id for ids in legos_envs._BUILT_IN.values() for id in ids)  # other tests register ids of their own


@pytest.mark.slow  # by default check_env compares with another process for two envs: tests/envs/test_check_env.py
def test_episodes_are_the_same_in_every_process(tmp_path: Path) -> None:
    """Same seeds and answers: equal bytes, whatever the hash seed, the folder, the time zone and the language are."""
    settings = (
        {"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C.UTF-8"},
        {"PYTHONHASHSEED": "4242", "TZ": "Asia/Kathmandu", "LC_ALL": "C"},
    )
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", EPISODES],
            env={**one, "PYTHONPATH": str(ROOT)},
            cwd=where,
            stdout=subprocess.PIPE,
            text=True,
        )
        for one, where in zip(settings, (ROOT, tmp_path))
    ]
    here, there = (run.communicate()[0].splitlines() for run in runs)
    assert [line.split()[0] for line in here] == BUILT_IN and len(here) == 26
    assert [one for one, other in zip(here, there) if one != other] == []
    assert len({line.split()[2] for line in here}) >= 25  # GSM8K without its data is Dataset


# --- for people who host this on GitHub ------------------------------------------------------------------------------


def test_the_workflows_run_the_commands_of_the_readme() -> None:
    yaml = pytest.importorskip("yaml")
    (test,) = re.findall(r"^(python3 -m pip install .*pytest.*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    flows = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github/workflows").glob("*.yml")}
    assert set(flows) == {"ci", "nightly", "audit", "docs", "release"}
    commands = [step.get("run", "") for job in flows["ci"]["jobs"].values() for step in job["steps"]]
    for command in (test, "uv run ruff check .", "uv run ruff format --check .", "uv run mypy"):
        assert any(command in one for one in commands), command
    systems = flows["ci"]["jobs"]["test"]["strategy"]["matrix"]["os"]
    assert {system.partition("-")[0] for system in systems} == {"ubuntu", "macos"}
    assert any("uv run pytest -m slow" in step.get("run", "") for step in flows["nightly"]["jobs"]["slow"]["steps"])
    assert all(flows[name][True]["schedule"] for name in ("audit", "nightly"))  # YAML reads `on` as true
    publishing = {"pages": "write", "id-token": "write"}  # of the documentation's pages; nothing writes to the code
    for name, flow in flows.items():
        assert flow["permissions"] == {"contents": "read"} | (publishing if name == "docs" else {})
    audit = "\n".join(step.get("run", "") for step in flows["audit"]["jobs"]["audit"]["steps"])
    asked = re.findall(r"^    (python3 -m uv export .*|.*pip-audit .*)$", (ROOT / "CONTRIBUTING.md").read_text(), re.M)
    assert len(asked) == 2 and all(command in audit for command in asked)
