"""A stranger's first day, scripted: a fresh clone in an empty home, the README's two commands, each of its blocks, and
the paths of three users, timed.

    uv run pytest -n 0 -m slow tests/test_first_day.py

Only what is committed is cloned. `LEGOS_FIRST_DAY=FOLDER` keeps everything there: the clone with its runs, `times.json`
and `pictures/` of report, viewer and browser. `LEGOS_FIRST_DAY_WHOLE=1` trains as long as the first command does, with
an empty package cache; otherwise trainings have four steps and packages come from the cache of this machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.first_day_pictures import PICTURES, photograph

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
WHOLE = bool(os.environ.get("LEGOS_FIRST_DAY_WHOLE"))
SHORT = ["--steps", "4", "--batch-size", "16", "--eval.every", "0", "--eval.games", "8"]
LEFT = ("PIP_", "UV_", "SSL_", "REQUESTS_", "http_", "https_", "HTTP_", "HTTPS_", "no_", "NO_")
"""What of this machine's environment a stranger would have, too: how packages are reached."""
TYPED = "[bet]\n[take]\n[call]\n[A]\n" * 5


class Day:
    """A folder with a clone, and the commands that were typed in it.

    Attributes:
        folder: everything is below it.
        clone: the repository, as it was committed.
        times: seconds that each step took, by its name.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.clone = folder, folder / "legos"
        self.pictures = folder / "pictures"
        self.times: dict[str, float] = {}
        home = folder / "home"
        home.mkdir(parents=True)
        self.pictures.mkdir()
        cache = home if WHOLE else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
        self.env = {name: value for name, value in os.environ.items() if name.startswith(LEFT)}
        path = f"{folder / 'python/bin'}:/usr/local/bin:/usr/bin:/bin"
        self.env |= {"HOME": str(home), "PATH": path, "UV_CACHE_DIR": str(cache / "uv"), "BROWSER": "true"}

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Notes how long the block took."""
        start = time.monotonic()
        yield
        self.times[name] = round(time.monotonic() - start, 1)
        (self.folder / "times.json").write_text(json.dumps(self.times, indent=1))

    def types(self, name: str, command: str | list[str], typed: str = TYPED, codes: tuple[int, ...] = (0,)) -> str:
        """What a command printed on standard output, which has to end well.

        Args:
            name: under which its time is kept.
            command: a line for bash, or words.
            typed: its standard input.
            codes: exit codes that are good.
        """
        words = ["bash", "-c", command] if isinstance(command, str) else command
        with self.timed(name):
            done = subprocess.run(words, cwd=self.clone, env=self.env, input=typed, capture_output=True, text=True)
        assert done.returncode in codes, (command, done.stdout[-3000:], done.stderr[-3000:])
        assert "Traceback" not in done.stderr, (command, done.stderr[-3000:])
        return done.stdout

    def legos(self, name: str, *arguments: str, typed: str = TYPED, codes: tuple[int, ...] = (0,)) -> str:
        return self.types(name, ["uv", "run", "legos", *arguments], typed, codes)

    @contextlib.contextmanager
    def running(self, name: str, words: list[str], until: str) -> Iterator[str]:
        """A command that goes on until it is interrupted; the line in which it said `until`."""
        log = self.folder / f"{name.replace(' ', '_').replace('/', '_')[:60]}.log"
        with (
            log.open("w") as out,
            subprocess.Popen(words, cwd=self.clone, env=self.env, stdout=out, stderr=out) as runs,
        ):
            try:
                with self.timed(name):
                    end = time.monotonic() + 120
                    while not (lines := [line for line in log.read_text().splitlines() if until in line]):
                        assert runs.poll() is None and time.monotonic() < end, log.read_text()
                        time.sleep(0.1)
                yield lines[0]
                runs.send_signal(signal.SIGINT)
                assert runs.wait(60) in (0, 130), log.read_text()
                assert "Traceback" not in log.read_text()
            finally:
                runs.kill()


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    kept = os.environ.get("LEGOS_FIRST_DAY")
    folder = Path(kept).resolve() if kept else tmp_path_factory.mktemp("day")
    assert not (folder / "legos").exists(), f"{folder} has had its day; give an empty folder"
    one = Day(folder)
    with one.timed("clone"):
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(one.clone)], check=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder / "python")], check=True)  # Python and pip, nothing else
    yield one
    print(json.dumps(one.times, indent=1))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def commands(language: str = "bash") -> list[str]:
    return [
        line.partition("  #")[0].strip()
        for kind, text in BLOCKS
        if kind == language
        for line in text.replace("\\\n", " ").splitlines()
        if line.strip()
    ]


FIRST, TESTS = commands()[:2]
REST = commands()[2:]


def test_the_first_command(day: Day) -> None:
    """`legos train`, from nothing but Python and pip."""
    said = day.types(
        "the first command", FIRST if WHOLE else " ".join([FIRST, *SHORT]), codes=(0,) if WHOLE else (0, 3)
    )
    (run,) = (day.clone / "runs").iterdir()
    result = json.loads((run / "result.json").read_text())
    assert result["start"]["nash_conv"] > 0.85 and f"runs/{run.name}" in said
    if WHOLE:
        assert result["average"]["nash_conv"] < 0.2


def test_the_second_command(day: Day) -> None:
    """The tests; here those of one environment."""
    assert TESTS.endswith("uv run pytest")
    assert "passed" in day.types("the second command, one file", f"{TESTS} -n 0 tests/envs/test_kuhn_poker.py")


@pytest.mark.parametrize("command", REST, ids=[line.removeprefix("uv run ")[:60] for line in REST])
def test_each_command_of_the_readme(day: Day, command: str) -> None:
    """As it stands, but trainings have four steps, evaluations few games, and servers any port."""
    name = command.removeprefix("uv run ")
    words = shlex.split(command)
    verb = words[3]
    (run, *_) = sorted((day.clone / "runs").iterdir(), key=lambda path: path.stat().st_mtime)
    words = [word.replace("runs/NAME", f"runs/{run.name}") for word in words]
    for word in words:
        assert not word.startswith("runs/") or (day.clone / word).is_dir(), f"{word} is not there after {FIRST}"
    if verb == "serve":
        port = str(free_port())
        words = [port if word == "8000" else word for word in words]
        words += [] if "--port" in words else ["--port", port]
        with day.running(name, words, f":{port}"):
            assert chat(int(port))
        return
    if verb == "view":
        with day.running(name, words, "watching at http") as said:
            photograph(re.search(r"http\S+", said)[0], "browser", day.pictures)  # type: ignore[index]
        return
    few = {"eval": ["-n", "8"], "tournament": ["-n", "4"]}.get(verb, [])
    if verb == "train":
        few = [*(SHORT[2:] if "--steps" in words else SHORT), "--steps", "2", "--run-dir", f"runs/day{len(day.times)}"]
    day.types(name, [*words, *few], codes=(0, 3) if verb == "train" else (0,))


def chat(port: int) -> Any:
    """What the server on a port answers, once it is ready."""
    body = {"messages": [{"role": "user", "content": "[bet] or [pass]?"}], "max_tokens": 8}
    end = time.monotonic() + 120
    while True:
        try:
            address = f"http://127.0.0.1:{port}/v1/chat/completions"
            asked = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
            with urllib.request.urlopen(asked, timeout=60) as answer:
                return json.load(answer)["choices"]
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.2)


PYTHON = [text for kind, text in BLOCKS if kind == "python"]


@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_each_python_block_of_the_readme(day: Day, number: int) -> None:
    file = day.clone / f"block_{number}.py"
    file.write_text(PYTHON[number])
    day.types(f"Python block {number + 1}", ["uv", "run", "python", file.name])
    file.unlink()


LEARNER = """
import numpy as np
import legos_envs
from legos_envs.wrappers import FillSeats
from legos_envs.wrappers.numeric import Numeric

rng, values = np.random.default_rng(0), {}
env = Numeric(FillSeats(legos_envs.make("Nim-v0"), {"player_1": "random"}))

def play(seed, greedy=False):
    env.reset(seed=seed)
    visited, total = [], 0.0
    for agent in env.agent_iter():
        seen, reward, terminated, truncated, info = env.last()
        if terminated or truncated:
            total += reward
            env.step(None)
            continue
        key, mask = seen["observation"].tobytes(), seen["action_mask"]
        row = values.setdefault(key, np.zeros(len(mask)))
        best = int(np.argmax(np.where(mask, row, -np.inf)))
        action = best if greedy or rng.random() > 0.2 else int(rng.choice(np.flatnonzero(mask)))
        visited.append((row, action))
        env.step(action)
    for row, action in [] if greedy else visited:
        row[action] += 0.2 * (total - row[action])
    return total

before = np.mean([play(s, greedy=True) for s in range(200)])
for s in range(3000):
    play(1000 + s)
after = np.mean([play(s, greedy=True) for s in range(200)])
print(f"return against random play: {before:.2f} before, {after:.2f} after")
assert after > before + 0.3
"""


def test_a_user_with_rl_code_of_their_own(day: Day) -> None:
    """The wheel without extras in an empty environment, and a Q-learner that steps a game as numbers."""
    python = f"{day.folder / 'own'}/bin/python"
    day.types("own RL code: wheel", ["uv", "build", "-q", "--wheel", "-o", str(day.folder / "dist")])
    (wheel,) = (day.folder / "dist").glob("legos_selfplay-*.whl")
    install = (
        f"uv venv -q --python {sys.executable} {day.folder / 'own'} && uv pip install -q --python {python} {wheel}"
    )
    day.types("own RL code: install", install)
    (day.folder / "learner.py").write_text(LEARNER)
    day.types("own RL code: learn", [python, str(day.folder / "learner.py")])
    assert "KuhnPoker-v0" in day.types("own RL code: list", [python, "-m", "legos_envs"])


def test_a_user_with_a_computer_and_a_model(day: Day) -> None:
    """Train, look at report and episodes, talk to it, export it."""
    run = "runs/nim"
    steps = ["--env", "Nim-v0", "--run-dir", run, *SHORT, "--logs.rollouts", "8"]
    day.legos("a model: train", "train", *steps, codes=(0, 3))
    photograph((day.clone / run / "report.html").as_uri(), "report", day.pictures)
    assert "view.html" in day.legos("a model: view", "view", run, "--no-open")
    photograph((day.clone / run / "view.html").as_uri(), "viewer", day.pictures)
    assert day.legos("a model: chat", "chat", "-m", run, typed="Take some.\n").strip()
    day.legos("a model: export", "export", "hub", run, "out_hub")
    assert (day.clone / "out_hub/README.md").exists()
    day.legos("a model: resume", "train", "--resume", "--run-dir", run, "--steps", "5", codes=(0, 3))


def test_a_user_who_only_evaluates(day: Day) -> None:
    """An endpoint is measured, its games are looked at; one that is not there is told within seconds."""
    port = free_port()
    with day.running("evaluate: serve", ["uv", "run", "legos", "serve", "--port", str(port)], f":{port}"):
        assert chat(port)
        endpoint = f"http://127.0.0.1:{port}/v1#tiny"
        against = ["--opponent", "optimal", "-n", "40", "--out", "runs/measured"]
        said = day.legos("evaluate: eval", "eval", "KuhnPoker-v0", "-m", endpoint, *against)
        assert "40 games" in said or "n=40" in said or " 40 " in said, said
    day.legos("evaluate: view", "view", "runs/measured", "--no-open")
    photograph((day.clone / "runs/measured/view.html").as_uri(), "evaluation", day.pictures)
    missing = f"http://127.0.0.1:{free_port()}/v1#tiny"
    day.legos("evaluate: nobody there", "eval", "KuhnPoker-v0", "-m", missing, "-n", "400", codes=(1,))
    assert day.times["evaluate: nobody there"] < 30


def test_the_pictures_are_there(day: Day) -> None:
    made = {path.stem for path in day.pictures.glob("*.png")}
    if shutil.which("chromium"):
        pages = ("report", "viewer", "browser", "evaluation")
        assert made >= {f"{page}_{picture.name}" for page in pages for picture in PICTURES}
