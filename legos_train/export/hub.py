"""A run as a folder for a model hub: the adapter for mlx-lm and for PEFT, and a card that says what it is.

Nothing is sent anywhere unless `push` is called. The card has what the run's own files say and nothing else: numbers
before and after with their seeds, who it played, the settings, and a hash of the config file.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from legos_train.export import ExportError, fresh_folder, peft
from legos_train.storage import write_bytes

NAMES = {
    "nash_conv": "NashConv, exact (0 is an equilibrium)",
    "optimal_move": "probability of an optimal move, exact",
    "no_loss": "no-loss rate against random play, exact",
    "illegal": "probability of an illegal answer, exact",
    "vs_random": "mean return against random play, played",
    "invalid": "games lost by an invalid move, played",
}
PLAYED = ("vs_random", "invalid", "return")
LOCAL = ("run_dir", "init_adapter", "server", "logs")
"""Settings that say something about a machine or an account; the card leaves them out."""


@dataclass(frozen=True, slots=True)
class Source:
    """A finished run: its directory, config as plain values, config hash, result, and which weights are meant."""

    path: Path
    config: dict[str, Any]
    digest: str
    result: dict[str, Any]
    which: str

    @property
    def adapter(self) -> Path:
        return self.path / self.which

    @property
    def after(self) -> dict[str, Any]:
        """The numbers of the weights that are exported."""
        kind = self.result["published"] if self.which == "adapter" else self.which
        found: dict[str, Any] = self.result.get(kind) or {}
        return found

    @property
    def envs(self) -> list[tuple[str, dict[str, Any]]]:
        """Id and constructor arguments of each environment."""
        entries = self.config.get("env", "KuhnPoker-v0")
        listed = entries if isinstance(entries, list) else [entries]
        tables: list[dict[str, Any]] = [{"id": e} if isinstance(e, str) else e for e in listed]
        shared: dict[str, Any] = self.config.get("env_args", {})
        return [(t["id"], {**t.get("args", {}), **shared}) for t in tables]


def open_run(spec: str) -> Source:
    """The run called `runs/x`, `runs/x@last` or `runs/x@best`.

    Raises:
        ExportError: it is no run, or has not finished.
    """
    name, _, which = spec.partition("@")
    path = Path(name)
    if not (path / "config.toml").is_file():
        raise ExportError(f"{name!r} is no run directory (no config.toml in it)")
    data = (path / "config.toml").read_bytes()
    try:
        config = tomllib.loads(data.decode())
        result = json.loads((path / "result.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ExportError(f"{name!r} has no result.json: the run has not finished; go on with --resume") from None
    except ValueError as error:
        raise ExportError(f"{name!r} cannot be read: {error}") from None
    source = Source(path, config, hashlib.sha256(data).hexdigest(), result, which or "adapter")
    if source.which not in ("adapter", "last", "best") or not (source.adapter / peft.CONFIG).is_file():
        raise ExportError(f"{spec!r}: the run has no adapter {source.which!r}; there are RUN, RUN@last and RUN@best")
    return source


def write_folder(
    source: Source, out: Path, *, base_model: str | None = None, license: str | None = None, overwrite: bool = False
) -> list[str]:
    """Writes the folder and returns the files in it.

    Args:
        base_model: repository of the original weights; needed for a quantized or local model. Without it a run of
            `tiny` is exported for Legos and mlx-lm alone.
        license: for the card's metadata, such as `mit`; by default none is claimed.

    Raises:
        ExportError: the adapter cannot be exported, or a base model must be named.
    """
    named = source.config.get("model", "tiny")
    base = None if named == "tiny" and base_model is None else peft.original_model(named, base_model)
    weights = _checked(source.adapter / peft.WEIGHTS)
    fresh_folder(out, overwrite=overwrite)
    if base is not None:
        peft.to_peft(source.adapter, out / "peft", base, overwrite=overwrite)
    config, _ = peft.read_config(source.adapter / peft.CONFIG)
    own = named if base is None or named == "tiny" or (named == _public(named) and "/" in named) else base
    config["legos"] = {**config.get("legos", {}), "base_model": own}
    write_bytes(out / peft.WEIGHTS, weights)
    write_bytes(out / peft.CONFIG, (json.dumps(config, indent=2, sort_keys=True) + "\n").encode())
    write_bytes(out / "README.md", card(source, base, license).encode())
    if base is not None and (out / "peft").is_dir():
        _forget_paths(out / "peft", config)
    return sorted(str(f.relative_to(out)) for f in out.rglob("*") if f.is_file())


def push(folder: Path, repo: str, *, private: bool = True) -> str:
    """Uploads a folder to the Hugging Face hub and returns its address. The token is the one that hub tools keep.

    Raises:
        ModuleNotFoundError: huggingface_hub is not installed.
    """
    import huggingface_hub

    api = huggingface_hub.HfApi()
    created = api.create_repo(repo, private=private, exist_ok=True)
    api.upload_folder(repo_id=repo, folder_path=str(folder), commit_message="Adapter trained with Legos")
    return str(created)


def card(source: Source, base: str | None, license: str | None) -> str:
    """The model card, Markdown with the hub's metadata on top."""
    from legos_envs import __version__

    envs, config, result = source.envs, source.config, source.result
    head = ["---", *([f"base_model: {base}"] if base else []), *([f"license: {license}"] if license else [])]
    head += ["library_name: mlx", "pipeline_tag: text-generation", "tags:"]
    head += [f"- {tag}" for tag in ("legos", "lora", "self-play", "reinforcement-learning")] + ["---", ""]
    games = ", ".join(f"`{name}`" for name, _ in envs)
    model = f"[{base}](https://huggingface.co/{base})" if base else "`tiny`, the model that comes with Legos"
    credit, loss = config.get("credit", {}).get("name", ""), config.get("loss", {}).get("name", "")
    played = f"{result.get('steps')} steps of {config.get('batch_size')} episodes"
    lines = [
        f"# LoRA adapter for {games}",
        "",
        f"Trained by self-play with Legos {__version__} on {model}.",
        "",
        "| | |",
        "|---|---|",
        *(f"| game | `{name}` {_shown(args)}|" for name, args in envs),
        f"| opponents in training | {_opponents(config.get('league', {}))} |",
        f"| method | {credit} credit, {loss} loss, {played} |",
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
    rows = [f"| {_label(key)} | {_cell(before.get(key))} | {_cell(after.get(key))} |" for key in after if key != "step"]
    if not rows:
        return ["The run kept no numbers."]
    note = "Exact numbers come from the model's own probabilities of the legal actions; they have no sampling error."
    if any(key.rpartition("/")[2] in PLAYED for key in after):
        games, seed = source.config.get("eval", {}).get("games", 256), source.config.get("seed", 0)
        note += f" Played ones are over {games} games on the seeds from {seed} on, every seat on each seed."
    return ["| | before | after |", "|---|---|---|", *rows, "", note]


def _label(key: str) -> str:
    env, slash, name = key.rpartition("/")
    return f"{env}{slash and ': '}{NAMES.get(name, name)}"


def _cell(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, int | float) else ""


def _use(source: Source, base: str | None) -> list[str]:
    name, _ = source.envs[0]
    model = base or "tiny"
    lines = ["```text", f"legos eval {name} -m {model}+FOLDER --opponent random"]
    if base:
        lines += [f"mlx_lm.generate --model {model} --adapter-path FOLDER --prompt ..."]
        lines += [f'PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("{base}"), "FOLDER/peft")']
    return [*lines, "```"]


def _opponents(league: Mapping[str, Any]) -> str:
    mode = league.get("mode", "mirror")
    said = {
        "mirror": "itself in every seat",
        "fsp": "earlier versions of itself, all equally often",
        "pfsp": "earlier versions of itself, the harder the more often",
        "psro": "earlier versions of itself, by the meta-Nash of their payoffs",
        "fixed": "fixed opponents only",
    }.get(mode, mode)
    listed = [str(o) if "/" not in str(o) else "another model" for o in league.get("opponents", ())]
    return said + (f"; {', '.join(listed)}" if listed else "")


def _weights(source: Source) -> str:
    if source.which == "best":
        return f"best evaluation, at step {int(source.after.get('step', 0))}"
    kind = source.result["published"] if source.which == "adapter" else "last"
    return "average over the steps" if kind == "average" else f"last step ({source.result.get('steps')})"


def _settings(config: Mapping[str, Any]) -> str:
    import tomli_w

    return tomli_w.dumps(_public({key: value for key, value in config.items() if key not in LOCAL}))


def _public(value: Any) -> Any:
    """The value without what only this machine understands: paths and addresses."""
    if isinstance(value, Mapping):
        return {key: _public(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_public(inner) for inner in value]
    if isinstance(value, str) and "://" in value:
        return "an address"
    if isinstance(value, str) and (value[:1] in ("/", "~", ".") or ("/" in value and Path(value).exists())):
        return "a local path"
    return value


def _shown(args: Mapping[str, Any]) -> str:
    return f"{', '.join(f'{k} = {_public(v)!r}' for k, v in args.items())} " if args else ""


def _checked(source: Path) -> bytes:
    """The file of weights, after a look at them: a damaged one must not be published."""
    from legos_train.export import tensor_file

    matrices, _, _ = tensor_file.read(source)
    if bad := sorted(name for name, matrix in matrices.items() if not matrix.finite):
        raise ExportError(f"{bad[0]} holds NaN or infinity; nothing was exported")
    return source.read_bytes()


def _forget_paths(folder: Path, config: Mapping[str, Any]) -> None:
    """The PEFT file carries mlx-lm's config: here the one that is published beside it."""
    from legos_train.export import tensor_file

    matrices, _, metadata = tensor_file.read(folder / peft.PEFT_WEIGHTS)
    metadata["mlx_lm_config"] = json.dumps(config, indent=2, sort_keys=True) + "\n"
    write_bytes(folder / peft.PEFT_WEIGHTS, tensor_file.render(matrices, metadata))
