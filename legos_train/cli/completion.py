"""`legos completion bash|zsh|fish`: a shell script that completes verbs, flags, environments and files."""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from legos_train.cli.arguments import Parser

SHELLS = ("bash", "zsh", "fish")
DESCRIPTION = """Print a script that completes `legos` in your shell: verbs, flags, environment ids and files.

The examples write it where each shell looks for it. Regenerate it after an update."""
EXAMPLES = """
legos completion bash > ~/.local/share/bash-completion/completions/legos
legos completion zsh > "${fpath[1]}/_legos"
legos completion fish > ~/.config/fish/completions/legos.fish
"""


def make_parser() -> Parser:
    p = Parser("completion", DESCRIPTION, EXAMPLES)
    p.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")
    return p


def run(arguments: Sequence[str]) -> int:
    print(script(make_parser().parse_args(arguments).shell))
    return 0


def script(shell: str) -> str:
    """The completion script of a shell."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](dict(words()))


def words() -> Iterator[tuple[str, list[str]]]:
    """What may follow each verb or subcommand (`""`: the verbs themselves), with env ids where a verb takes an env."""
    from legos_envs.registry import known_ids
    from legos_train.cli.main import VERBS

    yield "", [*VERBS, "--help", "--version"]
    for verb, (module, _) in VERBS.items():
        try:
            made = importlib.import_module(module)
            parsers = list(_parsers(verb, getattr(made, "full_parser", made.make_parser)()))
        except ModuleNotFoundError:  # an extra is missing
            yield verb, ["--help"]
            continue
        for name, parser in parsers:
            flags, inner, envs = [], [], False
            for action in parser._actions:
                if action.help == argparse.SUPPRESS:
                    continue
                if isinstance(action, argparse._SubParsersAction):
                    inner += list(action.choices)
                elif not action.option_strings and action.choices is not None:
                    inner += [str(choice) for choice in action.choices]
                envs |= "env" in action.dest.split("_")
                flags += [flag for flag in action.option_strings if flag.startswith("--")]
            yield name, inner + (known_ids() if envs else []) + flags


def _parsers(name: str, parser: Any) -> Iterator[tuple[str, Any]]:
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb, inner in action.choices.items():
                yield f"{name} {verb}", inner


def _cases(known: dict[str, list[str]]) -> str:
    return "\n".join(f"    {json.dumps(name)}) all={json.dumps(' '.join(what))} ;;" for name, what in known.items())


def _bash(known: dict[str, list[str]]) -> str:
    return f"""_legos() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" key="" all=""
  [ "$COMP_CWORD" -gt 1 ] && key="${{COMP_WORDS[1]}}"
  case "$key ${{COMP_WORDS[2]}}" in
{_pairs(known)}
  esac
  case "$key" in
{_cases(known)}
  esac
  COMPREPLY=($(compgen -W "$all" -- "$word"))
}}
complete -o default -o bashdefault -F _legos legos"""


def _pairs(known: dict[str, list[str]]) -> str:
    """Cases for subcommands: `legos envs show` completes by a two-word key, once the second word is typed."""
    pairs = [name for name in known if " " in name]
    return "\n".join(f'    "{name}") [ "$COMP_CWORD" -gt 2 ] && key="{name}" ;;' for name in pairs)


def _zsh(known: dict[str, list[str]]) -> str:
    return f"""#compdef legos
_legos() {{
  local key="" all=""
  (( CURRENT > 2 )) && key="$words[2]"
  case "$key $words[3]" in
{_pairs(known).replace('"$COMP_CWORD" -gt 2', '"$CURRENT" -gt 3')}
  esac
  case "$key" in
{_cases(known)}
  esac
  compadd -- ${{=all}}
  _files
}}
if [ "$funcstack[1]" = "_legos" ]; then _legos "$@"; else compdef _legos legos; fi"""


def _fish(known: dict[str, list[str]]) -> str:
    lines = [f"complete -c legos -n __fish_use_subcommand -f -a '{' '.join(known[''])}'"]
    for name, what in known.items():
        if not name:
            continue
        verb, _, inner = name.partition(" ")
        here = f"__fish_seen_subcommand_from {verb}" + (f"; and __fish_seen_subcommand_from {inner}" if inner else "")
        lines.append(f"complete -c legos -n '{here}' -a '{' '.join(what)}'")
    return "\n".join(lines)
