"""What a policy's name refers to: code, a model, or the directory that holds its weights."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import tomllib
from pathlib import Path
from typing import Any

from inference import BUNDLED
from inference.files import adapter_folder, tensors
from legos_train.disk import bases
from legos_train.errors import PolicyError
from legos_train.rollout.players.chat_api import is_endpoint
from legos_train.rollout.players.policy_kinds import CODE_POLICIES, listed

PUBLISHED = ("last", "average", "best")


def spelled(spec: str) -> str:
    """The canonical spelling of a name: `./runs/x/` and the absolute path become `runs/x`."""
    if is_code(spec) or is_endpoint(spec):
        return spec
    if Path(spec).is_dir():
        return _directory(spec)
    return "".join(_directory(part) if part and Path(part).is_dir() else part for part in re.split(r"([+@])", spec))


def _directory(path: str) -> str:
    whole, here = Path(path).absolute(), Path.cwd()
    tidy = os.path.normpath(whole.relative_to(here) if whole.is_relative_to(here) else whole)
    return path if tidy == "." else tidy


def is_code(spec: str) -> bool:
    """Whether a name is a policy without a model."""
    return spec.partition(":")[0] in CODE_POLICIES and (":" in spec) == spec.startswith("scripted:")


def locate(spec: str) -> tuple[str, Path | None]:
    """The base model, and the adapter or checkpoint directory (or None), for a name; see `read_weights`.

    Raises:
        PolicyError: it is neither.
    """
    if pair := _model_and_adapter(spec):
        base, adapter = pair
        run, chosen = run_and_weights(adapter)
        if (Path(run) / "config.toml").is_file() and not adapter_folder.is_adapter(Path(adapter)):
            bases.check_same(str(run_settings(Path(run)).get("model", "tiny")), base, f"the run {run!r}")
            bases.check_run(Path(run), base)
            return base, _of_run(Path(run), chosen)
        bases.check_adapter(folder := _adapter(Path(adapter)), base)
        return base, folder
    name, which = run_and_weights(spec)
    at, path = name != spec, Path(name)
    if (path / "config.toml").exists() and not adapter_folder.is_adapter(path):
        model = str(run_settings(path).get("model", "tiny"))
        found = _of_run(path, which)
        bases.check_run(path, model)
        return _near(model, path), found
    if at and "/" in name and name[0] not in "./" and not path.parent.exists():
        return spec, None  # of the hub, at a revision
    if at:
        raise PolicyError(f"{spec!r}: {name!r} is not a run directory (no config.toml in it)")
    if adapter_folder.is_adapter(path):
        config = adapter_folder.read_config(path)
        named: Any = config.get("legos", {}).get("base_model") or config.get("model")
        if not named:
            raise PolicyError(f"the adapter {spec!r} does not say which model it is for; write MODEL+{spec}")
        bases.check_adapter(path)
        return _near(named, path), path
    if "/" in spec and not path.exists() and (runs := sorted(path.parent.glob("*/config.toml"))):
        names = ", ".join(str(found.parent) for found in runs[:8])
        raise PolicyError(f"no run {spec!r}; that folder has: {names}")
    if spec.startswith("runs/") and not path.exists():
        raise PolicyError(f"no run {spec!r}: there is no such directory; `legos train --run-dir {spec}` creates one")
    if (
        spec in BUNDLED
        or (path / "config.json").exists()
        or ("/" in spec and not path.exists() and spec[0] not in "./")
    ):
        return spec, None
    near = difflib.get_close_matches(spec, (*CODE_POLICIES, *BUNDLED), 1)
    hint = f" Did you mean http://{spec}?" if "#" in spec else f" Did you mean {near[0]!r}?" if near else ""
    raise PolicyError(f"no policy {spec!r}.{hint} Accepted: {listed(but=(), mark='', brief=False)}")


def run_and_weights(spec: str) -> tuple[str, str]:
    """The directory and the weights that a run's name stands for: `runs/x` and `last` for `runs/x@last`.

    A directory with the whole name takes precedence, so that a run may have an `@` in its name.
    """
    name, at, which = spec.rpartition("@")
    return (name, which) if at and not (Path(spec) / "config.toml").is_file() else (spec, "")


def _near(model: str, run: Path) -> str:
    """A base model as a run names it: relative to where it was started, which is this folder or one above the run."""
    if model in BUNDLED or Path(model).exists():
        return model
    above = (folder / model for folder in run.absolute().parents)
    return next((str(place) for place in above if (place / "config.json").is_file()), model)


def _model_and_adapter(spec: str) -> tuple[str, str] | None:
    """The parts of `MODEL+ADAPTER`; None for a directory that happens to have a plus in its name."""
    if "+" not in spec or Path(run_and_weights(spec)[0]).is_dir():
        return None
    parts = spec.split("+")
    pairs = [("+".join(parts[:at]), "+".join(parts[at:])) for at in range(1, len(parts))]
    return next((pair for pair in pairs if Path(pair[1]).is_dir()), pairs[0])


def run_settings(run: Path) -> dict[str, Any]:
    """The settings of a run directory from its `config.toml`.

    Raises:
        PolicyError: the file cannot be read.
    """
    try:
        return tomllib.loads((run / "config.toml").read_text())
    except (OSError, ValueError) as error:
        raise PolicyError(f"the settings of the run {str(run)!r} cannot be read: {error}") from None


def read_weights(where: Path) -> tuple[dict[str, Any], float, int]:
    """LoRA weights by mlx-lm's names, their scale and their version, from an adapter or a checkpoint directory.

    Raises:
        AdapterError, CorruptCheckpoint: the files are incomplete.
    """
    if adapter_folder.is_adapter(where):
        from inference import read_adapter

        found = read_adapter(where)
        return found.weights, found.scale, int(found.config.get("legos", {}).get("step", 0))
    from legos_train.disk import checkpoint

    scale = run_settings(where.parents[1])["lora"]["scale"]
    weights = tensors.from_bytes(checkpoint.read(where).groups["adapter"])
    return weights, float(scale), int(where.name.removeprefix("step_"))


def fingerprint(where: Path) -> str:
    """Identifies an adapter, or that of a checkpoint directory: the start of the SHA-256 of weights and scale."""
    file = where / (adapter_folder.WEIGHTS if adapter_folder.is_adapter(where) else "adapter.safetensors")
    try:
        weights = file.read_bytes()
    except FileNotFoundError:
        raise PolicyError(f"no weights in {str(where)!r}: {file.name} is missing") from None
    scale = read_weights(where)[1]  # the same matrices with another scale are another policy
    return hashlib.sha256(weights + repr(scale).encode()).hexdigest()[:12]


def _adapter(path: Path) -> Path:
    if not adapter_folder.is_adapter(path):
        if several := sorted(found.parent.name for found in path.glob(f"*/{adapter_folder.CONFIG}")):
            raise PolicyError(
                f"{str(path)!r} has the adapters of several learners, {', '.join(several)}: name one, such as "
                f"{path / several[0]}; in evaluations, --seat ROLE={path / several[-1]} gives a seat to another"
            )
        raise PolicyError(f"no adapter in {str(path)!r}: {adapter_folder.CONFIG} is missing")
    return path


def _of_run(run: Path, which: str) -> Path:
    """The path of a run's weights named `which`: the published ones (""), `last`, `step_40`, ..."""
    path = run / (which or "adapter")
    if which.startswith("step_"):
        path = run / "checkpoints" / which
        if several := sorted(path.glob("adapter.*.safetensors")):
            name = several[0].name.split(".")[1]
            raise PolicyError(
                f"{run}@{which} holds several learners; the last and the best are policies: {run}/last/{name}"
            )
        if (path / "adapter.safetensors").exists():
            return path
    elif path.exists():
        return _adapter(path)
    steps = (run / "checkpoints").glob("step_*/adapter.safetensors")
    kept = [file.parent.name for file in sorted(steps, key=lambda file: file.stat().st_mtime)]
    there = [name for name in PUBLISHED if adapter_folder.is_adapter(run / name)] + kept
    missing = "that checkpoint is not kept" if which.startswith("step_") else f"there are no weights {path.name!r}"
    have = ", ".join(f"{run}@{name}" for name in there) or "none (see checkpoint.keep)"
    go_on = "" if (run / "adapter").exists() else f"; `legos train --resume --run-dir {run}` finishes the run"
    raise PolicyError(f"{run}{'@' * bool(which)}{which}: {missing}; available: {have}{go_on}")
