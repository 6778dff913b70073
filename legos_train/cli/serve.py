"""`legos serve`: the OpenAI-compatible server."""

from __future__ import annotations

import argparse
import signal
import socket
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import get_args

from inference.files import adapter_folder
from inference.server import Settings
from inference.types import MAX_KV_BYTES, MAX_ROWS, PREFIX_CACHE_BYTES, Lookahead
from legos_train.cli.arguments import Parser
from legos_train.cli.playing_flags import add_loading
from legos_train.errors import PolicyError
from legos_train.export import unpack
from legos_train.rollout.players import words

DEFAULTS = Settings()


class CannotServe(ValueError):
    """The server cannot be started with these options."""


DESCRIPTION = """Serve a model over HTTP with OpenAI's API; adapters can be swapped while it runs.

By default it listens on this machine only and needs no key. Any other --host needs --api-key-file. There is no TLS."""
EXAMPLES = """
legos serve                                                             # the bundled model at http://127.0.0.1:8000/v1
legos serve --adapter kuhn=runs/kuhn --adapter best=runs/kuhn@best      # a run's adapters, as two more models
legos serve --host 0.0.0.0 --allowed-host gpu.lan --api-key-file keys.txt   # for other machines
"""


def make_parser() -> Parser:
    p = Parser("serve", DESCRIPTION, EXAMPLES)

    def number(flag: str, default: int, help: str, least: int = 1) -> None:
        p.number(flag, default=default, help=help, least=least)

    p.value(
        "-m",
        "--model",
        metavar="MODEL",
        help="`tiny`, `small`, a directory in mlx-lm's layout, or a hub name (default: the adapters' model, else tiny)",
    )
    p.repeated(
        "--adapter",
        metavar="NAME=PATH",
        help="publish an adapter directory or a run (runs/x, runs/x@best, runs/x@step_40) as the model NAME",
    )
    p.value(
        "--adapter-root", type=Path, metavar="DIR", help="let clients load adapters below DIR by path (default: none)"
    )
    number("--max-adapters", DEFAULTS.max_adapters, "maximum number of adapters loaded", least=0)
    number("--max-lora-rank", DEFAULTS.max_lora_rank, "maximum rank of an adapter")
    p.value("--host", metavar="HOST", default="127.0.0.1", help="address to listen on")
    p.number("--port", help="port to listen on", default=8000, most=65535)
    p.repeated("--allowed-host", metavar="NAME", help="also accept requests whose Host header is NAME")
    p.value(
        "--api-key-file",
        type=Path,
        metavar="FILE",
        help="API keys of at least 16 characters, one per line; clients must send one of them (default: no key)",
    )
    number("--max-queue", DEFAULTS.max_queue, "maximum completions waiting or running; further requests get status 429")
    number("--max-rows", MAX_ROWS, "maximum sequences decoded concurrently")
    number("--max-kv-mib", MAX_KV_BYTES >> 20, "maximum MiB for keys and values of running sequences")
    number("--prefix-cache-mib", PREFIX_CACHE_BYTES >> 20, "maximum MiB for cached prompt prefixes", least=0)
    add_loading(p, default=DEFAULTS.threads)
    p.add_argument(
        "--lookahead",
        choices=get_args(Lookahead),
        default="auto",
        help="whether to submit a step before the previous step's tokens are known; the output is the same (default: "
        "auto, on Metal and CUDA)",
    )
    number(
        "--patience",
        round(DEFAULTS.stuck_after),
        "seconds that one step, including long prompts, may take before /health reports the engine as stuck",
    )
    number("--drain-seconds", 30, "seconds that running requests may continue after SIGTERM", least=0)
    return p


def run(arguments: Sequence[str]) -> int:
    options = make_parser().parse_args(arguments)
    unpacked = tempfile.TemporaryDirectory(prefix="legos-serve-") if options.adapter else nullcontext("")
    with _leaves_on_sigterm(), unpacked as folder:
        return _serve(options, Path(folder))


@contextmanager
def _leaves_on_sigterm() -> Iterator[None]:
    """Until the server handles signals itself, SIGTERM raises an exception, so that temporary files are removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _serve(options: argparse.Namespace, folder: Path) -> int:
    keys, (adapters, bases) = _keys(options.api_key_file), _adapters(options.adapter, folder)
    model = _model(options.model, bases)
    if options.host not in DEFAULTS.hosts and not keys:
        raise CannotServe(
            f"--host {options.host} is reachable from other machines: give --api-key-file FILE, or serve on 127.0.0.1"
        )

    _check_port(options.host, options.port)
    from inference import loading
    from inference.forward import fastblas
    from inference.server import create_app, serve

    if loading.is_here(model):  # else it is downloaded while requests get 503
        loading.find_model(model)
    fastblas.enable(1 if options.threads == "auto" else options.threads)
    settings = Settings(
        model=model,
        adapters=adapters,
        adapter_root=options.adapter_root,
        max_adapters=options.max_adapters,
        max_lora_rank=options.max_lora_rank,
        keys=keys,
        hosts=(*DEFAULTS.hosts, options.host, *options.allowed_host),
        max_queue=options.max_queue,
        stuck_after=options.patience,
        dequantize=options.dequantize,
        threads=options.threads,
        engine={
            "max_rows": options.max_rows,
            "lookahead": options.lookahead,
            "max_kv_bytes": options.max_kv_mib << 20,
            "prefix_cache_bytes": options.prefix_cache_mib << 20,
        },
    )
    return serve(create_app(settings), options.host, options.port, options.drain_seconds)


def _check_port(host: str, port: int) -> None:
    """Checks the port before the model is loaded. If it is taken in the meantime, the server reports it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise CannotServe(f"cannot listen on {host} port {port} ({error.strerror}); give another --port") from error


def _keys(file: Path | None) -> tuple[str, ...]:
    if file is None:
        return ()
    keys = tuple(line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip())
    if not keys or min(map(len, keys)) < 16:
        raise CannotServe(f"{file} must have at least one API key of 16 or more characters, one per line")
    mode = stat.S_IMODE(file.stat().st_mode)
    if mode & 0o077:
        print(
            f"warning: {file} has mode {mode:04o}, so other users of this machine may read or change the keys in it; "
            f"fix it with chmod 600 {file}",
            file=sys.stderr,
        )
    return keys


def _adapters(items: Sequence[str], folder: Path) -> tuple[dict[str, Path], set[str]]:
    """The adapter directories by name, and the base models that they were trained for; checkpoints are converted to
    adapters below `folder`.
    """
    adapters, bases = {}, set()
    for item in items:
        name, equals, word = item.partition("=")
        if not (name and equals and word):
            raise CannotServe(f"--adapter takes NAME=PATH; got {item!r}")
        if name in adapters:
            raise CannotServe(f"two --adapter are named {name!r}; give each its own name")
        try:
            base, path = words.locate(word)
        except PolicyError:
            if not adapter_folder.is_adapter(Path(word)):
                raise
            base, path = None, Path(word)  # its base model is not known
        if path is None:
            raise CannotServe(f"--adapter {item}: {word!r} is a model; give an adapter directory or a run")
        if not adapter_folder.is_adapter(path):
            _, path = unpack(word, folder / name)
        adapters[name] = path
        bases |= set() if base is None else {base}
    return adapters, bases


def _model(model: str | None, bases: set[str]) -> str:
    """The base model: as given, or the one the adapters were trained for."""
    if model is None and len(bases) > 1:
        raise CannotServe(
            f"the adapters are for different models, {', '.join(sorted(bases))}; a server serves only one model"
        )
    if model is not None and bases - {model}:
        print(f"note: adapters for {', '.join(sorted(bases - {model}))} are served over {model}", file=sys.stderr)
    return model or next(iter(bases), "tiny")
