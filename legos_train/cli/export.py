"""`legos export FORMAT ...`: adapters, rollouts and environments for other tools."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from legos_train.cli.arguments import Parser
from legos_train.config import parse_assignments
from legos_train.errors import ExportError

FORMATS = {
    "peft": ("ADAPTER_OR_RUN", "an adapter for PEFT and vLLM (a run: runs/x, @last, @best, @step_40)"),
    "mlx": ("PEFT_DIR", "a PEFT adapter in mlx-lm's layout, for legos and mlx-lm"),
    "hub": ("RUN", "a folder with the adapter and a model card"),
    "parquet": ("RUN_OR_LOG", "rollouts as a Parquet file, for `datasets` (runs/x@step_40: only that step)"),
    "jsonl": ("RUN_OR_LOG", "rollouts as JSON Lines"),
    "verifiers": ("ENV_ID", "an environment as a package for verifiers v1 and prime-rl"),
}
"""For each format, what it reads and what it writes."""
NOTHING_LEAVES = "Nothing leaves this machine, except with hub --push."
DESCRIPTION = "\n".join(
    [
        f"Write files for other tools. {NOTHING_LEAVES}",
        "`legos export FORMAT --help` shows the options of one format.",
        "",
        *(f"  {name:<10} {f'{source} OUT':<19} {what}" for name, (source, what) in FORMATS.items()),
    ]
)
EXAMPLES = """
legos export peft runs/kuhn kuhn_peft --base-model org/base       # for PEFT and vLLM; runs/kuhn@last, runs/kuhn@best
legos export mlx kuhn_peft kuhn_mlx                               # back to mlx-lm's layout
legos export hub runs/kuhn kuhn_hub                               # a folder with adapter and model card
legos export parquet runs/kuhn kuhn.parquet                       # rollouts as a data set; needs the extra `datasets`
legos export jsonl runs/kuhn kuhn.jsonl --by episode              # rollouts as JSON Lines, one line per episode
legos export verifiers KuhnPoker-v0 kuhn_verifiers                # an environment for verifiers and prime-rl
"""
FORMATS_OF = {
    "base_model": ("peft", "hub"),
    "by": ("parquet", "jsonl"),
    "license": ("hub",),
    "push": ("hub",),
    "public": ("hub",),
    "arg": ("verifiers",),
}
"""The formats that take each option; options not listed work with all formats."""


def make_parser(format: str | None = None) -> Parser:
    """The parser for all formats, or for a single one with its own help."""
    if format is None:
        p = Parser("export", DESCRIPTION, EXAMPLES)
        p.add_argument("format", choices=tuple(FORMATS), help="what to write")
        p.add_argument("source", metavar="SOURCE", help="what to export; the list above shows what each format takes")
    else:
        source, what = FORMATS[format]
        leaves = "Nothing leaves this machine" + (", except with --push." if format == "hub" else ".")
        examples = "\n".join(line for line in EXAMPLES.splitlines() if f" export {format} " in line)
        p = Parser(f"export {format}", f"Write {what}.\n\n{leaves}", examples)
        p.add_argument("source", metavar=source, help="what to export")

    def takes(name: str) -> bool:
        return format is None or format in FORMATS_OF[name]

    def only(name: str) -> str:
        return f"{', '.join(FORMATS_OF[name])}: " if format is None else ""

    p.add_argument("out", type=Path, metavar="OUT", help="the new or empty folder, or the new file, to write")
    if takes("base_model"):
        p.value(
            "--base-model",
            metavar="ORG/NAME",
            help=f"{only('base_model')}the repository of the original weights (default: the run's model, if it is a "
            "repository)",
        )
    if takes("by"):
        p.add_argument("--by", choices=("turn", "episode"), help=f"{only('by')}what a row is (default: turn)")
    if takes("license"):
        p.add_argument("--license", metavar="NAME", help=f"{only('license')}license named on the card (default: none)")
        p.add_argument("--push", metavar="REPO", help=f"{only('push')}also upload the folder to this repository")
        p.add_argument("--public", action="store_true", help=f"{only('public')}make the repository of --push public")
    if takes("arg"):
        p.env_arguments(f"{only('arg')}constructor argument of the env")
    p.add_argument("--overwrite", action="store_true", help="replace existing files in OUT")
    return p


def run(arguments: Sequence[str]) -> int:
    if arguments[:1] and arguments[0] in FORMATS and {"-h", "--help"} & set(arguments):
        make_parser(arguments[0]).parse_args(["--help"])
    p = make_parser()
    options = p.parse_args(arguments)
    _check(p, options)
    {"peft": _peft, "mlx": _mlx, "hub": _hub, "parquet": _rows, "jsonl": _rows, "verifiers": _verifiers}[
        options.format
    ](options)
    return 0


def _check(p: Parser, options: argparse.Namespace) -> None:
    """Rejects options that the format does not take."""
    for name, formats in FORMATS_OF.items():
        if getattr(options, name) and options.format not in formats:
            p.error(f"--{name.replace('_', '-')} only works with {' and '.join(formats)}")
    if options.public and not options.push:
        p.error("--public needs --push")


def find_adapter(spec: str, scratch: Path) -> tuple[str | None, Path]:
    """The base model's name, if known, and the adapter's folder; an adapter from a checkpoint is written to `scratch`.

    Raises:
        PolicyError, ExportError: no such adapter exists.
    """
    from legos_train.export import is_checkpoint, peft, unpack
    from legos_train.rollout.players import words

    if (Path(spec) / peft.CONFIG).is_file():
        config, _ = peft.read_config(Path(spec) / peft.CONFIG)
        named = (config.get("legos") or {}).get("base_model") or config.get("model")
        return (str(named) if named else None), Path(spec)
    base, adapter = words.locate(spec)
    if is_checkpoint(words.run_and_weights(spec)[1]):
        return unpack(spec, scratch)
    if adapter is None:
        raise ExportError(f"{spec!r} is a model without an adapter; give an adapter folder, a run, or MODEL+ADAPTER")
    return base, adapter


def _peft(options: argparse.Namespace) -> None:
    from legos_train.export import peft

    with tempfile.TemporaryDirectory() as scratch:
        named, adapter = find_adapter(options.source, Path(scratch))
        base = peft.original_model(named, options.base_model)
        layers = peft.to_peft(adapter, options.out, base, overwrite=options.overwrite)
    print(f"wrote {options.out}: PEFT LoRA on {len(layers)} layers of {base}")


def _mlx(options: argparse.Namespace) -> None:
    from legos_train.export import peft

    layers = peft.to_mlx(Path(options.source), options.out, overwrite=options.overwrite)
    print(f"wrote {options.out}: mlx-lm LoRA on {len(layers)} layers")


def _hub(options: argparse.Namespace) -> None:
    from legos_train.export import hub, open_run

    with tempfile.TemporaryDirectory() as scratch:
        source = open_run(options.source, Path(scratch))
        files = hub.write_folder(
            source, options.out, base_model=options.base_model, license=options.license, overwrite=options.overwrite
        )
    print(f"wrote {options.out}: {', '.join(files)}")
    if options.push:
        print(f"pushed to {hub.push(options.out, files, options.push, private=not options.public)}")
    else:
        print("nothing was sent; --push ORGANISATION/NAME uploads it")


def _rows(options: argparse.Namespace) -> None:
    from legos_train.export import rows

    write = rows.write_parquet if options.format == "parquet" else rows.write_jsonl
    by = options.by or "turn"
    source, step = rows.source_of(options.source)
    count, remarks = write(source, options.out, by, step=step, overwrite=options.overwrite)
    for remark in remarks:
        print(remark, file=sys.stderr)
    print(f"wrote {options.out}: {count} rows, one per {by}")


def _verifiers(options: argparse.Namespace) -> None:
    from legos_train.export import write_package

    arguments = parse_assignments(options.arg, "--arg")
    package, roles = write_package(options.source, options.out, arguments=arguments, overwrite=options.overwrite)
    print(f"wrote {options.out}: package {package}, seats {', '.join(roles)}")
