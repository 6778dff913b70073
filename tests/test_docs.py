"""README, docs and examples run as they stand."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import json
import re
import runpy
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import legos_envs
from legos_envs.registry import families

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def few_games(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured by games in a run is measured by a few."""
    from legos_train.evaluation import during_training

    real = during_training.head_to_head

    def few(*given: Any, **options: Any) -> Any:
        *before, games, seed = given
        return real(*before, min(games, 4), seed, **options)

    monkeypatch.setattr(during_training, "head_to_head", few)


def blocks(language: str) -> list[tuple[str, str]]:
    return [(page.name, text) for page in PAGES for kind, text in BLOCK.findall(page.read_text()) if kind == language]


def python_blocks() -> list[Any]:
    """Every Python block, named by its page and line; the lines above it are blank, so that tracebacks are right."""
    found = []
    for page in PAGES:
        text = page.read_text()
        for match in BLOCK.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            if match[1] == "python":
                trains = "train(" in match[2] and page.name != "README.md"
                marks = [pytest.mark.slow] if trains else []
                found.append(pytest.param(page, "\n" * line + match[2], id=f"{page.name}:{line}", marks=marks))
    return found


@pytest.mark.parametrize(("page", "code"), python_blocks())
def test_python_blocks_run(page: Path, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = ModuleType("docs_block")  # a module that can be imported, so that what it defines can be pickled
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(code, page, "exec"), module.__dict__)


PATH = "getting_started.md"  # its commands build on one another


def commands_of(texts: Iterable[str]) -> list[str]:
    """Every `legos ...` line of shell blocks, without what starts it."""
    lines = [
        re.sub(r"(^|\s)#.*", "", line).strip() for text in texts for line in text.replace("\\\n", " ").splitlines()
    ]
    found = [line.rpartition("uv run ")[2].removesuffix(" &") for line in lines]
    found = [re.sub(r"^mlx\.launch .* -- python -m legos_train", "legos train", line) for line in found]
    return [line for line in found if line.startswith("legos ")]


def commands(*, of_readme: bool) -> list[str]:
    """Those of the README, or of all other pages but `PATH` that are not among them."""
    readme = set(commands_of(text for page, text in blocks("bash") if page == "README.md"))
    others = set(commands_of(text for page, text in blocks("bash") if page != PATH)) - readme
    return sorted(readme if of_readme else others)


SHORT = ["--steps", "2", "--batch-size", "8", "--eval.every", "0", "--eval.games", "2", "--run-dir", "short"]
FEWER = {
    "train": [*SHORT, "--steps", "1", "--batch-size", "4"],
    "eval": ["-n", "2"],
    "tournament": ["-n", "2"],
    "envs check": ["--episodes", "5", "--fuzz", "50"],
}


def legos(arguments: list[str], folder: Path) -> None:
    """Runs a command in a folder, with answers for a game on standard input; it must end well.

    In this process: what a process of its own would add, mostly imports, is most of the time. tests/cli starts some.
    """
    from legos_train.cli.main import main

    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.StringIO("[bet]\n[take]\n[call]\n[A]\n" * 5))
        well = (0, 3) if arguments[0] == "train" else (0,)  # two steps may well make no update
        assert main(arguments) in well, arguments


@pytest.fixture(scope="module")
def short_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two steps: what the plain first command leaves, but short."""
    folder = tmp_path_factory.mktemp("docs")
    legos(["train", *SHORT], folder)
    return folder / "short"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def serve_here(arguments: list[str], folder: Path) -> None:
    """Starts the application of a server without its process and its socket, until it says that it is ready."""
    from starlette.testclient import TestClient

    def until_ready(app: Any, *_: Any) -> int:
        with TestClient(app, base_url="http://127.0.0.1") as client:
            end = time.monotonic() + 60
            while client.get("/ready").status_code != 200:
                assert time.monotonic() < end
                time.sleep(0.05)
        return 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("inference.server.serve", until_ready)
        legos(["serve", *arguments, "--port", str(free_port())], folder)


def serve(arguments: list[str], folder: Path) -> None:
    """Starts a server in a folder, waits until it says that it is ready, and ends it; it must end well."""
    port = free_port()
    log = folder / "server.log"
    command = [
        sys.executable,
        "-m",
        "legos_train.cli.main",
        "serve",
        *arguments,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    with log.open("w") as out, subprocess.Popen(command, cwd=folder, stdout=out, stderr=out) as process:
        try:
            end = time.monotonic() + 60
            while not ready(port):
                assert process.poll() is None and time.monotonic() < end, log.read_text()
                time.sleep(0.05)
            if not arguments and shutil.which("curl"):
                ask(port)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0, log.read_text()
        finally:
            process.kill()


def ask(port: int) -> None:
    """The requests that the docs send with curl, to a server on another port."""
    texts = [text for _, text in blocks("bash") if text.startswith("curl ")]
    assert texts
    for text in texts:
        command = [*shlex.split(text.replace(":8000", f":{port}").replace("\\\n", " ")), "--silent", "--fail"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and "choices" in json.loads(done.stdout), (command, done)


def ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


@pytest.mark.parametrize(
    "command",
    [*commands(of_readme=True), *(pytest.param(c, marks=pytest.mark.slow) for c in commands(of_readme=False))],
)
def test_commands_run(command: str, short_run: Path, tmp_path: Path) -> None:
    """As written, but trainings with one step, few games, and the short run for `runs/...`.

    The keys of servers are in `keys.txt`.
    """
    verb, *arguments = shlex.split(command)[1:]
    if verb == "bootstrap":
        pytest.skip("the whole recipe: tests/train/test_bootstrap.py runs it with few steps")
    if verb == "train" and not arguments:
        return  # `short_run` has run it
    if verb == "doctor" and not arguments:
        return  # tests/cli/test_doctor.py runs it
    arguments = [str(ROOT / a) if a.startswith("examples/") else a for a in arguments]
    if verb == "serve":
        (tmp_path / "keys.txt").write_text("a-key-for-the-docs-0123\n")
        start = serve_here if arguments else serve  # one is a process of its own, which the docs' requests are sent to
        start([re.sub(r"\bruns/\w+", str(short_run), a) for a in arguments], tmp_path)
        return
    if verb == "view" and "runs" in arguments:
        arguments = [str(short_run.parent) if a == "runs" else a for a in arguments] + ["--no-open"]  # it would serve
    arguments = [str(short_run) if a.startswith("runs/") else a for a in arguments]
    fewer = FEWER.get(verb, FEWER.get(" ".join([verb, *arguments[:1]]), []))
    legos([verb, *arguments, *fewer], tmp_path)


@pytest.mark.parametrize(
    "command",
    [
        *sorted(set(commands_of(text for kind in ("text", "sh") for _, text in blocks(kind)))),
        *commands(of_readme=False),
    ],
)
def test_commands_that_need_more_than_this_machine_are_understood(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks marked `text` or `sh` name hub models, servers or long runs: their options are read, and nothing is done.

    So it is with commands that `test_commands_run` only runs when slow tests are run.
    """
    from legos_train.cli import main as cli

    monkeypatch.chdir(tmp_path)
    verb, *arguments = shlex.split(command)[1:]
    if verb == "train":
        seen: list[Any] = []
        done = SimpleNamespace(updates=1)
        monkeypatch.setattr("legos_train.run.train", lambda **given: seen.append(given["config"]) or done)
        arguments = [a for a in arguments if a != "--dry-run"]  # its estimate would load the model
        assert cli.main([verb, *arguments]) == 0 and len(seen) == 1
    else:
        importlib.import_module(cli.VERBS[verb][0]).make_parser().parse_args(arguments)


@pytest.mark.parametrize(("page", "text"), blocks("toml"))
def test_settings_files_are_valid(page: str, text: str) -> None:
    from legos_train.config import from_dict

    assert from_dict(tomllib.loads(text), page)


@pytest.mark.slow
def test_the_first_ten_minutes(tmp_path: Path) -> None:
    """All commands of the page in their order, in one folder; trainings are short and the server is stopped."""
    given = commands_of(text for page, text in blocks("bash") if page == PATH)
    shorter = {"train": [*SHORT[:-2], "--steps", "2"], "eval": ["-n", "8"], "view": ["--no-open"]}
    for command in given:
        verb, *arguments = shlex.split(command)[1:]
        if verb == "serve":
            serve(arguments, tmp_path)
        else:
            legos([verb, *arguments, *shorter.get(verb, [])], tmp_path)
    assert {"play", "eval", "train", "view", "export", "serve", "envs"} <= {shlex.split(c)[1] for c in given}
    left = ["runs/kuhn/view.html", "runs/kuhn/report.html", "kuhn_hub/README.md", "kuhn.jsonl", "runs/mine/result.json"]
    assert all((tmp_path / name).stat().st_size for name in left)


@pytest.mark.slow
def test_examples_run(tmp_path: Path) -> None:
    kuhn = runpy.run_path(str(ROOT / "examples/train_kuhn.py"))
    kuhn["main"](steps=2, run_dir=tmp_path / "run")
    assert (tmp_path / "run/adapter/adapters.safetensors").exists()
    runpy.run_path(str(ROOT / "examples/evaluate_async.py"))["main"](games=4)


@pytest.mark.slow
def test_the_example_environment_passes_every_check() -> None:
    from legos_envs.testing import check_env

    check_env(f"{ROOT / 'examples/haggle.py'}:Haggle-v0", episodes=10, raise_on_failure=True)


@pytest.fixture(scope="module")
def env_pages() -> ModuleType:
    """docs/make_env_pages.py, imported."""
    found = importlib.util.spec_from_file_location("make_env_pages", ROOT / "docs/make_env_pages.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_guide_lists_every_environment(env_pages: ModuleType) -> None:
    """After a change of an environment: python docs/make_env_pages.py table"""
    listed = [env_id for family in families().values() for env_id in family]
    assert sorted(listed) == legos_envs.registered()
    guide = (ROOT / "docs/environments.md").read_text()
    assert guide.partition(env_pages.BEGIN)[2].partition(env_pages.END)[0].strip() == env_pages.table().strip()


def test_the_readme_lists_every_environment() -> None:
    readme = (ROOT / "README.md").read_text()
    for family, ids in families().items():
        (row,) = [line for line in readme.splitlines() if line.startswith(f"| {family} |")]
        assert re.findall(r"`([\w-]+)`", row) == [env_id.removesuffix("-v0") for env_id in ids]


@pytest.mark.parametrize("env_id", ["KuhnPoker-v0", "MatrixGame-v0"])
def test_pictures_of_episodes(env_id: str, env_pages: ModuleType) -> None:
    picture = env_pages.picture(env_id)
    assert picture.startswith("<svg") and "player_1&gt;" in picture and "returns:" in picture.replace("&#160;", " ")
    assert (
        picture == env_pages.picture(env_id)
        and "@font-face" not in picture
        and "http"
        not in re.sub(r'xmlns="[^"]+"', "", picture)
        .replace("https://www.textualize.io", "")
        .replace("http://www.w3.org", "")
    )


@pytest.mark.slow
def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    pytest.importorskip("furo")
    pytest.importorskip("myst_nb")
    docs = ["-W", "--keep-going", "-q", str(ROOT / "docs"), str(tmp_path / "site")]
    done = subprocess.run([sys.executable, "-m", "sphinx", *docs], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for env_id in legos_envs.registered():
        assert (tmp_path / f"site/_generated/{env_id}.html").exists()


@pytest.mark.slow
def test_the_first_command_in_full(tmp_path: Path) -> None:
    """Plain `legos train`: ends well, and the published adapter is close to an equilibrium."""
    import json

    done = subprocess.run(
        [sys.executable, "-m", "legos_train.cli.main", "train"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (result,) = tmp_path.glob("runs/*/result.json")
    numbers = json.loads(result.read_text())
    assert numbers["start"]["nash_conv"] >= 0.85 and numbers["average"]["nash_conv"] <= 0.20


@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*.toml")), ids=lambda file: file.name)
def test_example_settings_are_valid(file: Path) -> None:
    from legos_train.config import TrainConfig

    TrainConfig.load(file)
