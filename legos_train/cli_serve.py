"""`legos serve`: the OpenAI-compatible server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from legos_train.cli import parser

LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Refused(ValueError):
    """The server cannot be started in this way."""


def run(arguments: Sequence[str]) -> int:
    p = parser("serve", "Serve a model over HTTP, with OpenAI's API and adapters that are swapped while it runs.")
    p.add_argument("--model", default="tiny", help="`tiny`, a directory in mlx-lm's layout, or a hub name")
    p.add_argument(
        "--adapter", action="append", default=[], metavar="NAME=PATH", help="publish an adapter at the start"
    )
    p.add_argument("--adapter-root", type=Path, help="clients may load adapters by path from below this directory")
    p.add_argument("--max-adapters", type=int, default=8)
    p.add_argument("--max-lora-rank", type=int, default=64)
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int, default=8000)
    p.add_argument("--allowed-host", action="append", default=[], metavar="NAME", help="accept this name in Host, too")
    p.add_argument("--api-key-file", type=Path, help="a file with one key a line; clients need one of them")
    p.add_argument("--max-queue", type=int, default=512, help="completions that may wait or run before 429")
    p.add_argument("--max-rows", type=int, default=64, help="sequences decoded at once")
    p.add_argument("--max-kv-mib", type=int, default=4096, help="memory for keys and values of running sequences")
    p.add_argument("--prefix-cache-mib", type=int, default=256, help="memory for beginnings that are kept")
    p.add_argument("--threads", type=int, default=1, help="BLAS threads on a CPU")
    p.add_argument("--drain-seconds", type=int, default=30, help="how long running requests may go on after SIGTERM")
    options = p.parse_args(arguments)
    keys, adapters = _keys(options.api_key_file), _adapters(options.adapter)
    if options.host not in LOOPBACK and not keys:
        raise Refused(
            f"--host {options.host} can be reached from other machines: give --api-key-file FILE, or serve on 127.0.0.1"
        )

    from inference import fastblas
    from inference.server.app import Settings, create_app
    from inference.server.running import serve

    fastblas.enable(options.threads)
    settings = Settings(
        model=options.model,
        adapters=adapters,
        adapter_root=options.adapter_root,
        max_adapters=options.max_adapters,
        max_lora_rank=options.max_lora_rank,
        keys=keys,
        hosts=(*LOOPBACK, options.host, *options.allowed_host),
        max_queue=options.max_queue,
        engine={
            "max_rows": options.max_rows,
            "max_kv_bytes": options.max_kv_mib << 20,
            "prefix_cache_bytes": options.prefix_cache_mib << 20,
        },
    )
    return serve(create_app(settings), options.host, options.port, options.drain_seconds)


def _keys(file: Path | None) -> tuple[str, ...]:
    if file is None:
        return ()
    keys = tuple(line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip())
    if not keys or min(map(len, keys)) < 16:
        raise Refused(f"{file} must have at least one API key of 16 or more characters, one a line")
    return keys


def _adapters(given: Sequence[str]) -> dict[str, Path]:
    adapters = {}
    for item in given:
        name, equals, path = item.partition("=")
        if not (name and equals and path):
            raise Refused(f"--adapter takes NAME=PATH; got {item!r}")
        adapters[name] = Path(path)
    return adapters
