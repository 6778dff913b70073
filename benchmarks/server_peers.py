"""The server against llama.cpp's and vLLM's on a CPU, over HTTP, in wall time.

    uv run --with xllamacpp --with gguf python -m benchmarks.server_peers --cases llamacpp
    LEGOS_VLLM=build/vllm uv run python -m benchmarks.server_peers --cases vllm8,vllm32

The sides take turns, each alone on the machine, with the same random Qwen3 in float32, different prompts in every round
and greedy decoding. llama.cpp comes as the package `xllamacpp`; its server runs in a separate process on a GGUF file
of the same weights, with one thread or with all cores, whichever is faster. vLLM is the one that
`python -m tests.interop.vllm` installs; it and `legos serve` use all cores.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measuring import Case, Found, compare, options, report
from benchmarks.models import save_model
from benchmarks.server import NEW, PROMPT, prompts
from benchmarks.servers import Server, ask_all
from inference.loading import prepare_mlx

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
START_SECONDS = 600.0
_OURS = (sys.executable, "-m", "legos_train.cli.main", "serve")
_LLAMACPP = """
import sys, threading, xllamacpp
model, threads, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[sys.argv.index("--port") + 1])
params = xllamacpp.CommonParams()
params.model.path, params.port, params.n_ctx, params.n_parallel = model, port, 4096, 1
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
params.hostnames = ["127.0.0.1"]
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
threading.Event().wait()
"""


def write_gguf(folder: Path) -> Path:
    """The Qwen3 of `folder` as a GGUF file in float32, which llama.cpp reads.

    Raises:
        ImportError: the package `gguf` is missing.
    """
    import gguf
    import mlx.core as mx

    config = json.loads((folder / "config.json").read_text())
    pieces = json.loads((folder / "tokenizer.json").read_text())["model"]
    path = folder / "model.gguf"
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    ordered = sorted(pieces["vocab"].items(), key=lambda item: item[1])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([text for text, _ in ordered])
    special = gguf.TokenType.CONTROL
    writer.add_token_types([special if text.startswith("<|") else gguf.TokenType.NORMAL for text, _ in ordered])
    writer.add_token_merges([" ".join(pair) if isinstance(pair, list) else pair for pair in pieces["merges"]])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(False)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, config["num_hidden_layers"])
    weights: Any = mx.load(str(folder / "model.safetensors"))
    for name, array in weights.items():
        stem, _, suffix = name.rpartition(".")
        writer.add_tensor(f"{names.get_name(stem)}.{suffix}", np.array(array, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@contextmanager
def serving(commands: dict[str, tuple[Sequence[str], str]], logs: Path) -> Iterator[dict[str, Server]]:
    """The servers of `name: (command, model)`, all started and answering."""
    servers: dict[str, Server] = {}
    try:
        for name, (command, model) in commands.items():
            servers[name] = Server(command, logs / f"{name}.log", model)
        for server in servers.values():
            server.wait(START_SECONDS)
        yield servers
    finally:
        for server in servers.values():
            server.stop()


def in_turns(folder: Path, servers: dict[str, Server], at_once: int, repeats: int) -> Found:
    """Tokens per wall second of `ours` and of the fastest other side, after a round to warm up and one to choose it."""
    count = max(at_once, 8)
    seconds: dict[str, list[float]] = {name: [] for name in servers}
    equal: list[bool] = []
    names = list(servers)
    for round_ in range(repeats + 2):
        texts, _ = prompts(str(folder), count)
        said = {}
        for name in names if round_ % 2 else names[::-1]:
            start = time.perf_counter()
            said[name] = ask_all(servers[name], texts, NEW, at_once)
            seconds[name].append(time.perf_counter() - start)
        equal += [a.lstrip() == b.lstrip() for name in names[1:] for a, b in zip(said["ours"], said[name])]
        if round_ == 1:
            names = ["ours", min(names[1:], key=lambda name: seconds[name][1])]
    found = compare(seconds["ours"][2:], seconds[names[1]][2:], count * NEW)
    same = statistics.mean(equal)
    return found | {"unit": "tokens per second", "baseline_is": names[1], "equal": same}


def with_model(size: str, measure: Callable[[Path], Found]) -> Found:
    """What `measure` finds with a random model of that size in a directory."""
    with tempfile.TemporaryDirectory() as name:
        save_model(Path(name), size)
        return measure(Path(name))


def llamacpp(repeats: int) -> Found:
    """One request at a time on the 4 M model, against llama.cpp's server."""

    def measure(folder: Path) -> Found:
        path = write_gguf(folder)
        commands: dict[str, tuple[Sequence[str], str]] = {"ours": ((*_OURS, "--model", str(folder)), str(folder))}
        for threads in sorted({1, CORES}):
            commands[f"threads-{threads}"] = ((sys.executable, "-c", _LLAMACPP, str(path), str(threads)), str(path))
        with serving(commands, folder) as servers:
            return in_turns(folder, servers, 1, repeats)

    return with_model("4m", measure)


def vllm(at_once: int, repeats: int) -> Found:
    """`at_once` clients on the 89 M model, against vLLM for CPUs, both with all cores."""
    home = Path(os.environ.get("LEGOS_VLLM", "build/vllm"))
    command = home / "venv" / "bin" / "vllm"
    if not command.exists():
        raise SystemExit(f"{command} does not exist; install vLLM with python -m tests.interop.vllm, or set LEGOS_VLLM")

    def measure(folder: Path) -> Found:
        size = ("--dtype", "float32", "--max-model-len", "1024", "--max-num-batched-tokens", "16384")
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")  # GiB; by default it wants nearly all memory
        theirs = (str(command), "serve", str(folder), "--served-model-name", str(folder), "--enforce-eager", *size)
        ours = (*_OURS, "--model", str(folder), "--threads", str(CORES))
        commands: dict[str, tuple[Sequence[str], str]] = {"ours": (ours, str(folder)), "vllm": (theirs, str(folder))}
        with serving(commands, folder) as servers:
            return in_turns(folder, servers, at_once, repeats)

    return with_model("100m", measure)


CASES = {
    "llamacpp": Case(f"1 at a time, {PROMPT} + {NEW} tokens, 4 M, against llama.cpp", 0.9, llamacpp),
    **{
        f"vllm{n}": Case(f"{n} at once, {PROMPT} + {NEW} tokens, 89 M, against vLLM", 1.0, partial(vllm, n))
        for n in (8, 32)
    },
}


def main() -> int:
    chosen = options("The server against llama.cpp's and vLLM's.", CASES)
    prepare_mlx()
    return 1 if report(CASES, chosen) else 0


if __name__ == "__main__":
    sys.exit(main())
