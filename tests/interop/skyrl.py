"""The real SkyRL on a CPU: `python -m tests.interop.skyrl` installs it beside this project and runs its tests.

It wants Python 3.12 and JAX, so it gets an environment of its own (`build/skyrl`; or where `LEGOS_SKYRL` says). The
tests need the extra `tinker`. Arguments go to pytest.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

VERSION, PYTHON = "0.4.0", "3.12"
ROOT = Path(__file__).parents[2]
HOME = Path(os.environ.get("LEGOS_SKYRL", ROOT / "build" / "skyrl"))
MODEL = "inference/models/tiny"
START_SECONDS = 600.0


def install() -> Path:
    """Makes the environment, if it is not there, and returns its Python."""
    python, done = HOME / "bin" / "python", HOME / "installed"
    if not done.exists():
        uv = [sys.executable, "-m", "uv"] if shutil.which("uv") is None else ["uv"]
        subprocess.run([*uv, "venv", "--clear", "--python", PYTHON, str(HOME)], check=True)
        packages = [f"skyrl[tinker,jax]=={VERSION}", "aiohttp"]
        subprocess.run([*uv, "pip", "install", "--python", str(python), *packages], check=True)
        done.touch()
    return python


def wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until the server answers. RuntimeError with the end of its log when it does not."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url + "/api/v1/get_server_capabilities", timeout=10):
                return
        except OSError:
            time.sleep(1.0)
    raise RuntimeError(f"SkyRL does not answer; its log ends with {log.read_text()[-2000:]}")


def main(arguments: list[str]) -> int:
    """Starts the server, runs the tests, ends it; the exit code of pytest."""
    python = install()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url, here = f"http://127.0.0.1:{port}", Path(__file__)
    with tempfile.TemporaryDirectory(prefix="legos-skyrl-") as folder:
        log = Path(folder) / "log"
        script = str(here.with_name("skyrl_server.py"))
        # -P: this file, in the script's folder, is not the package skyrl.
        command = [str(python), "-P", script, MODEL, "--port", str(port), "--folder", folder]
        with log.open("wb") as out:
            server = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, start_new_session=True)
        try:
            wait(url, server, log)
            tests = [str(here.with_name("test_skyrl.py")), *arguments]
            known = {"LEGOS_TINKER_URL": url, "LEGOS_TINKER_BASE": MODEL}
            # The SDK leaves a connection open, which is found when pytest has ended.
            quiet = ["-W", "ignore::ResourceWarning", "-W", "ignore::pytest.PytestUnraisableExceptionWarning"]
            pytest = [sys.executable, "-m", "pytest", "-n", "0", "-m", "slow", *quiet, *tests]
            return subprocess.call(pytest, cwd=ROOT, env={**os.environ, **known})
        finally:
            end(server)


def end(server: subprocess.Popen[bytes]) -> None:
    """Ends the server and its engine's process."""
    if server.poll() is None:
        os.killpg(server.pid, 15)
    try:
        server.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, 9)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
