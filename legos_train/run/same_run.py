"""What a run that is continued must share with its first start, whether anything is left to do, and what more steps
change.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from legos_train.config import TrainConfig
from legos_train.disk import RunDirectory
from legos_train.errors import RunError
from legos_train.observe import Result

CODE = "arena"
"""The key in `run.json` for what a run took from an arena built in Python."""


def finished(run: RunDirectory, config: TrainConfig) -> bool:
    """Whether nothing is left to do: a run that ended normally may continue if more steps are asked for."""
    if not run.finished:
        return False
    result = read_result(run.path)
    if result.stopped is not None and config.steps > TrainConfig.load(run.path / "config.toml").steps:
        raise RunError(
            f"{str(run.path)!r} stopped itself at step {result.steps} ({result.stopped}); --steps cannot "
            f"extend it. Start a new run from its weights: --init-adapter {run.path}"
        )
    return result.stopped is not None or result.steps >= config.steps


def read_result(path: Path) -> Result:
    """The result of a run that has ended."""
    kept = RunDirectory(path).read_json("result.json")
    try:
        return Result.from_kept(path, kept)
    except TypeError as error:
        raise RunError(
            f"{str(path / 'result.json')!r} is not a run's result ({error}). Remove it: --resume writes it again"
        ) from None


def check_code(run: RunDirectory, code: str) -> None:
    """Checks that a resumed run has what its first start took from an arena, which the config does not record."""
    kept = run.read_json("run.json").get(CODE) if (run.path / "run.json").exists() else None
    if kept is not None and kept != code:  # None: run.json was lost, or made again with the id alone
        before = f"an arena of its own ({kept})" if kept else "nothing but a config"
        raise RunError(
            f"{str(run.path)!r} was started with {before}, and is resumed with {code or 'nothing but a config'}: "
            "call train(arena, config, resume=True) in Python with the same arena"
        )


def check_settings(new: TrainConfig, old: TrainConfig) -> None:
    """Checks that a resumed run keeps its settings; the number of steps may grow, and its logs may be others."""
    if new.steps < old.steps:
        raise RunError(f"a run of {old.steps} steps cannot be resumed as one of {new.steps}; --steps may only grow")
    display: Any = {"run_dir": True, "logs": True, "steps": True}
    changed = _changed(old.model_dump(exclude=display), new.model_dump(exclude=display))
    if changed:
        listed = "; ".join(changed)
        raise RunError(
            f"cannot resume with other settings ({listed}); use those it was started with, or start a new --run-dir"
        )


def _changed(old: Any, new: Any, key: str = "") -> list[str]:
    """Each setting in which two configs differ, down to the single value."""
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        return [each for name in old for each in _changed(old[name], new[name], f"{key}.{name}".lstrip("."))]
    if isinstance(old, list | tuple) and isinstance(new, list | tuple) and len(old) == len(new):
        return [each for at, pair in enumerate(zip(old, new)) for each in _changed(*pair, f"{key}[{at}]")]
    return [] if old == new else [f"{key}: was {old!r}, now {new!r}"]


def schedules(config: TrainConfig) -> list[str]:
    """The settings whose schedules span all steps of a run."""
    found: list[str] = []
    for learner, own in (config.learners or {"": config}).items():
        loss, average = own.loss, own.average
        spanning = {
            "optim.lr_end": own.optim.lr_end != 1,
            "loss.kl_end": loss.kl_end not in (None, loss.kl),
            "average.start": average.kind == "uniform" and average.start > 0,
        }
        of = f" of {learner}" if learner else ""
        found += [f"{name}{of}" for name, used in spanning.items() if used]
    return found
