"""SkyRL's Tinker API on this machine's CPU, in a Python environment of its own (3.12), without its `uv run` child.

uv venv --python 3.12 build/skyrl
uv pip install --python build/skyrl/bin/python "skyrl[tinker,jax]==0.4.0" aiohttp
build/skyrl/bin/python tests/interop/skyrl_server.py inference/models/tiny --port 8795
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

JAX = {"max_lora_adapters": 8, "max_lora_rank": 16, "train_micro_batch_size": 16, "sample_max_num_sequences": 64}


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("--port", type=int, default=8795)
    p.add_argument("--folder", help="what the server keeps; a server started there again knows all of it")
    options = p.parse_args()
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / "legos-jax-cache"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")

    import uvicorn
    from skyrl.tinker import api
    from skyrl.tinker.config import EngineConfig, config_to_argv

    folder = Path(options.folder or tempfile.mkdtemp(prefix="legos-skyrl-"))
    folder.mkdir(parents=True, exist_ok=True)
    api._build_uv_run_cmd_engine = lambda _, config: [
        sys.executable, "-m", "skyrl.tinker.engine", *config_to_argv(config),
    ]  # fmt: skip
    api.app.state.engine_config = EngineConfig(
        base_model=options.model,
        backend="jax",
        backend_config=json.loads(json.dumps(JAX)),
        checkpoints_base=folder / "saved",
        database_url=f"sqlite:///{folder / 'tinker.db'}",
    )
    uvicorn.run(api.app, host="127.0.0.1", port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
