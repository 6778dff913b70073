"""The model card of an exported run: facts from the run's own files, and nothing about the machine it ran on."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from typing import Any

from inference import BUNDLED
from legos_train.export.run_source import Source
from legos_train.league import MODES
from legos_train.observe import eval_numbers
from legos_train.rollout.players import actors

PLAYED = ("vs_random", "wins_vs_base", "return", "accuracy")
LOCAL = ("run_dir", "init_adapter", "server", "logs")
"""Settings that reveal a machine or an account; the card omits them."""


def card(source: Source, base: str | None, license: str | None) -> str:
    """The model card, Markdown with the hub's metadata on top."""
    from legos_envs import __version__

    envs, config, result = source.envs, source.config, source.result
    head = ["---", *([f"base_model: {base}"] if base else []), *([f"license: {license}"] if license else [])]
    head += ["library_name: mlx", "pipeline_tag: text-generation", "tags:"]
    head += [f"- {tag}" for tag in ("legos", "lora", "self-play", "reinforcement-learning")] + ["---", ""]
    games = ", ".join(f"`{name}`" for name, _ in envs)
    own = config.get("model", "tiny")
    model = f"[{base}](https://huggingface.co/{base})" if base else f"`{own}`, a model that comes with Legos"
    credit, loss = config.get("credit", {}).get("name", ""), config.get("loss", {}).get("name", "")
    amount = f"{result.get('steps')} steps of {config.get('batch_size')} episodes"
    lines = [
        f"# LoRA adapter for {games}",
        "",
        f"Trained by self-play with Legos {__version__} on {model}.",
        "",
        "| | |",
        "|---|---|",
        *(f"| game | `{name}` {_shown(args)}|" for name, args in envs),
        f"| opponents in training | {_opponents(config)} |",
        f"| method | {credit} credit, {loss} loss, {amount} |",
        f"| trained on | `{trained_on(config.get('model', 'tiny'), base)}` |",
        f"| weights | {_weights(source)} |",
        f"| seed | {config.get('seed', 0)} |",
        f"| config | sha256 `{source.digest}` |",
        "",
        "## Before and after",
        "",
        *_numbers(source),
        "",
        "## Use",
        "",
        *_use(source, base),
        "",
        "## Settings",
        "",
        "Settings of the machine and of accounts are left out; the hash above is of the whole file.",
        "",
        "```toml",
        _settings(config).strip(),
        "```",
    ]
    return "\n".join([*head, *lines]) + "\n"


def _numbers(source: Source) -> list[str]:
    before, after = source.result.get("start") or {}, source.after
    named = [key for key in eval_numbers.results(before, after) if key in after and key != "step"]
    rows = [
        f"| {_label(key)} | {eval_numbers.formatted(before, key)} | {eval_numbers.formatted(after, key)} |"
        for key in named
    ]
    if not rows:
        return ["The run kept no numbers."]
    note = "Exact numbers come from the model's own probabilities of the legal actions; they have no sampling error."
    settings = source.config.get("eval", {})
    games, seed, held_out = settings.get("games", 256), source.config.get("seed", 0), settings.get("env", [])
    apart = {str(one.get("name") or one["id"]): one for one in held_out if isinstance(one, dict)}
    if any(kind in PLAYED and env not in apart for env, _, kind in (key.rpartition("/") for key in after)):
        note += f" Played results are over {games} games on seeds from {seed} up, with every seat on each seed; in "
        note += "self-play a game counts for each of its seats."
    for env, one in apart.items():
        if any(key.startswith(f"{env}/") and _label(key).endswith(" played") for key in named):
            count = one["games"] if one.get("games") is not None else games
            note += (
                f" Those of {env}, which was not trained on, are over {count} games from seed {one.get('seed', 0)} on."
            )
    if any((ends := eval_numbers.ends_of(after, key)) and not eval_numbers.is_point(ends) for key in named):
        note += " In brackets: 95 % intervals over the seeds."
    if any(key.rpartition("/")[2].startswith("return") for key in after):
        note += " Returns without an opponent are means over games in which it plays all the seats it was trained in."
    return ["| | before | after |", "|---|---|---|", *rows, "", note]


def _label(key: str) -> str:
    kind = "exact" if key.rpartition("/")[2].partition(eval_numbers.SEAT)[0] in eval_numbers.EXACT else "played"
    return f"{eval_numbers.metric_name(key)}, {kind}"


def _use(source: Source, base: str | None) -> list[str]:
    name, args = source.envs[0]
    model = trained_on(source.config.get("model", "tiny"), base)
    values = {key: public(value) for key, value in args.items()}
    words = [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in values.items()]
    options = "".join(f" --arg {shlex.quote(word)}" for word in words)
    lines = ["```text", f"legos eval {name}{options} -m {model}+FOLDER --opponent random"]
    if base:
        if model not in BUNDLED:  # which mlx-lm does not know by name
            lines += [f"mlx_lm.generate --model {model} --adapter-path FOLDER --prompt ..."]
        lines += [f'PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("{base}"), "FOLDER/peft")']
    return [*lines, "```"]


def _opponents(config: Mapping[str, Any]) -> str:
    league = config.get("league", {})
    mode = league.get("mode", "mirror")
    given = {role: str(actor.get("model", actors.POLICY)) for role, actor in config.get("actors", {}).items()}
    others = {role: model for role, model in given.items() if model != actors.POLICY}
    text = MODES[mode].opponents if mode in MODES else mode  # of a run whose mode is no more
    text = text.replace("every seat", "every other seat") if others else text
    names = [_named(str(opponent)) for opponent in league.get("opponents", ())]
    seats = [f"`{role}` played by {_named(model)}" for role, model in sorted(others.items())]
    return "; ".join([text, *([", ".join(names)] if names else []), *seats])


def _named(model: str) -> str:
    return "another model" if "/" in model else model


def _weights(source: Source) -> str:
    if source.which == "best":
        return f"best evaluation, at step {int(source.after.get('step', 0))}"
    if source.which.startswith("step_"):
        return f"checkpoint after step {source.result['steps']}"
    kind = source.result["published"] if source.which == "adapter" else source.which
    return "average over the steps" if kind == "average" else f"last step ({source.result.get('steps')})"


def trained_on(named: str, base: str | None) -> str:
    """The base model for Legos and mlx-lm: the run's own, unless others could not find it."""
    return named if base is None or named in BUNDLED or ("/" in named and public(named) == named) else base


def _settings(config: Mapping[str, Any]) -> str:
    import tomli_w

    return tomli_w.dumps(public({key: value for key, value in config.items() if key not in LOCAL}))


def public(value: Any) -> Any:
    """The value without what is only valid on this machine: paths and addresses."""
    if isinstance(value, Mapping):
        return {key: public(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [public(inner) for inner in value]
    if isinstance(value, str) and "://" in value:
        return "an address"
    if isinstance(value, str) and (value[:1] in ("/", "~", ".") or ("/" in value and os.path.exists(value))):
        return "a local path"
    return value


def _shown(args: Mapping[str, Any]) -> str:
    return f"{', '.join(f'{k} = {public(v)!r}' for k, v in args.items())} " if args else ""
