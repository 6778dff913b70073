"""Self-play training: play a batch of episodes, assign credit, take one optimiser step, publish, repeat.

Method: policy gradient on LoRA weights with a baseline per role (SPIRAL, arXiv 2506.24119) or per prompt, PPO's clip
(1707.06347), and a KL penalty to a reference, the base model or earlier weights of the run, which makes self-play
settle on mixed equilibria (compare R-NaD, 2206.15378, and magnetic mirror descent, 2206.05825).

In synchronous mode, the default, one process alternates: everything in a step is a function of the state at its start.
Caches whose contents depend on what was computed together are dropped at every checkpoint, in every run, so that a
resumed run repeats an uninterrupted one bit for bit. With `asynchronous.enabled` episodes are generated while the
learner is still working on the previous step (overlap.py).
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType

from legos_train.arena import JUDGE, Arena
from legos_train.config import TrainConfig, sections, to_toml
from legos_train.disk import MetricsFile, RunDirectory, bases, checkpoint, crashpoint, fsops, new_run_directory
from legos_train.errors import ConfigError, NothingToLearn, PolicyError, RunError, Stopped
from legos_train.model import World, joined
from legos_train.observe import Progress, Result, eval_numbers, trackers
from legos_train.rollout.players import actors
from legos_train.run import same_run, state
from legos_train.run.build import build
from legos_train.run.finish import finish
from legos_train.run.garbage import rarely_collected
from legos_train.run.league_value import league_value
from legos_train.run.places import GivenBackend
from legos_train.run.preflight import notes
from legos_train.run.preflight.without_effect import without_effect
from legos_train.run.steps import OnStep, Steps
from legos_train.run.stopping import Stopping
from legos_train.run.trainer import Trainer


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Run options: the arguments of `train` that are not settings."""

    resume: bool = False
    quiet: bool = False
    on_step: OnStep | None = None
    watch: int | None = None
    backend: GivenBackend | None = None
    world: World | None = None
    code: str = ""
    """What the arena adds to the config, see `Arena.of_code`."""


def train(
    arena: Arena | TrainConfig | None = None,
    config: TrainConfig | None = None,
    *,
    resume: bool = False,
    quiet: bool = False,
    on_step: OnStep | None = None,
    watch: int | None = None,
    backend: GivenBackend | None = None,
) -> Result:
    """Trains to the end of the run. Started by `mlx.launch` on several ranks, they share one run, and rank
    0 writes it (model/ranks.py).

    Args:
        arena: actors and envs of the run; if missing or without envs, those of the config. A config may be passed here
            instead.
        config: settings of the run; without a `run_dir` a new directory below `runs/` is created.
        resume: continue from the latest checkpoint of the run in `run_dir`; from the start if it has none. A finished
            run continues if the config has more steps than before; otherwise there is nothing to do.
        quiet: print nothing.
        on_step: called with every metrics record.
        watch: a port on this machine (0: any) where a browser can view the run's episodes as they are written.
        backend: the caller's own `TrainerBackend` (with several learners one of each by name), or a `Place` of one with
            its own engines; by default as `config.backend` says. A resumed run needs one that is made alike.

    Raises:
        RunError: the run directory is in use, holds another run, or has no run to resume.
        TrainingError: training would be pointless; the message says why (NothingToLearn: and what to change).
        Stopped: SIGINT or SIGTERM arrived; the checkpoint of the last complete step is written, and the result so far
            is printed.
    """
    if not isinstance(arena, (Arena, TrainConfig, NoneType)):
        raise TypeError(f"train takes an Arena, a TrainConfig or both, got {arena!r}; try TrainConfig(env=...)")
    if isinstance(arena, TrainConfig):
        if config is not None:
            raise TypeError("train takes an arena and a config, got two configs")
        arena, config = None, arena
    config = config or TrainConfig()
    if resume and config.run_dir is None:
        raise ConfigError("resume needs the run to continue: give --run-dir runs/NAME (in Python run_dir)")
    if arena is not None:
        arena.forget_config()
    if arena is not None and arena.envs:
        if config.env != TrainConfig().env or config.env_args:
            raise ConfigError("envs are given both in the arena and in the config; give them in only one")
        config = config.model_copy(update={"env": tuple(slot.entry() for slot in arena.envs.values())})
    with joined() as world:
        code = "" if arena is None else arena.of_code(config.actors, sampled=config.curriculum.sampler is not None)
        options = RunOptions(resume, quiet, on_step, watch, backend, world, code)
        return _begin(config, arena, options) if world is None or not world.rank else _follow(config, arena, options)


def _begin(config: TrainConfig, arena: Arena | None, options: RunOptions) -> Result:
    """The run of a single process, or of rank 0, with its directory."""
    path = config.run_dir or new_run_directory(Path("runs"), config.title, config.model, config.seed)
    directory = RunDirectory(path)
    if options.resume:
        directory.check_resumable()
    with directory as run:
        if run.started and not options.resume:
            raise RunError(f"{str(path)!r} already holds a run; --resume continues it, or give another --run-dir")
        if not run.started and run.left:
            raise RunError(
                f"{str(path)!r} has {' and '.join(run.left)} of a run whose config.toml is gone: give another "
                "--run-dir, or put config.toml back and --resume"
            )
        if run.started:
            same_run.check_code(run, options.code)
            same_run.check_settings(config, TrainConfig.load(path / "config.toml"))
            bases.check_run(path, config.model)
        finished = same_run.finished(run, config)
        if options.world is not None:
            options.world.share(json.dumps({"path": str(path), "finished": finished, "run": run.id}).encode())
            if not finished:
                _agree(config, options.world)
        if finished:
            if not options.quiet:
                Progress("", config.steps, mode=config.logs.progress).note(f"{path} is finished; nothing to do")
            return same_run.read_result(path)
        with Stopping() as stopping, stopping.cleared():
            return _run(config, arena, run, options, stopping)


def _follow(config: TrainConfig, arena: Arena | None, options: RunOptions) -> Result:
    """The run of a rank above 0: what it writes is discarded."""
    assert options.world is not None
    told = json.loads(options.world.share(b""))
    path = Path(told["path"])
    if told["finished"]:
        return same_run.read_result(path) if path.exists() else Result(path, config.steps, 0.0)
    _agree(config, options.world)
    config = config.model_copy(update={"logs": sections.LogSettings(rollouts=0)})
    with tempfile.TemporaryDirectory(prefix="legos-rank-") as folder, Stopping(quiet=True) as stopping:
        with RunDirectory(Path(folder), told["run"]) as run, stopping.cleared():
            result = _run(config, arena, run, replace(options, quiet=True, watch=None), stopping)
        return replace(result, run_dir=path)


def _agree(config: TrainConfig, world: World) -> None:
    plain = config.model_copy(update={"run_dir": None}).plain()
    world.agree("the config", json.dumps(plain, sort_keys=True).encode())


def _run(
    config: TrainConfig, arena: Arena | None, run: RunDirectory, options: RunOptions, stopping: Stopping
) -> Result:
    began = time.perf_counter()
    trainer, start = _trainer(config, arena, run, options)
    parts = trainer.parts
    try:
        # The directory counts as a run only from here on, so that a start with a wrong setting can be retried.
        facts = {**bases.identity(config.model), same_run.CODE: options.code}
        run.begin(to_toml(config.model_copy(update={"run_dir": None})), facts)
        if run.finished:  # and more steps are asked for
            fsops.unlink(run.path / "result.json")
        stopping.check()
        crashpoint("loop.resumed")
        parts.check = stopping.check if options.world is None else options.world.checked(stopping.check)
        title = f"{config.title} with {config.model}, {_methods(config)}, seed {config.seed}"
        first: dict[str, float] = {}
        try:
            with Progress(title, config.steps, start, quiet=options.quiet, mode=config.logs.progress) as progress:
                parts.tell = progress.working
                progress.note(f"{title}; run directory {run.path}")
                if judged := parts.arena.judged_by_code:
                    said = f"{JUDGE} judges, since {config.model} cannot; to change it: --seat judge=MODEL"
                    progress.note(f"{', '.join(judged)}: {said}")
                own_notes = () if parts.decisions is None else parts.decisions.notes
                rare = notes.rarely_measured(config, parts.measurer)
                settings = (*without_effect(config), *notes.rising_kl(config), *rare)
                for said in (*parts.backend.notes, *own_notes, *settings):
                    progress.note(said)
                if options.resume and not start:
                    progress.note("no checkpoint to resume from: starting at step 0")
                changed = {}
                if start and parts.steps_were != config.steps and (schedules := ", ".join(same_run.schedules(config))):
                    changed = {"steps_were": parts.steps_were}
                    progress.note(
                        f"--steps was {parts.steps_were} and is {config.steps}: {schedules} span all steps, so "
                        f"this differs from a run with {config.steps} from the start"
                    )
                # Before the first evaluation, which may take long: a missing login should be said at once.
                with trackers(config, run.path, start, progress.note) as track:
                    first = _first_numbers(trainer, run, start, progress)
                    progress.before(first)
                    steps = Steps(trainer, run, start, first, stopping, progress, options.on_step, options.watch)
                    with rarely_collected():
                        steps.take(changed, track)
                if parts.stop_reason:
                    progress.note(f"stopped after step {trainer.learner.step}: {parts.stop_reason}")
            crashpoint("loop.finishing")
            seconds = time.perf_counter() - began
            if options.world is not None and options.world.rank:
                return Result(run.path, trainer.learner.step, seconds, first)
            result = finish(trainer, run, start, first, seconds, options.quiet)
        except NothingToLearn as error:
            rows = MetricsFile.read(run.path / "metrics.jsonl")
            raise NothingToLearn(f"{error}. {Result.from_rows(run.path, rows, first, {}, 'last').verdict}") from error
        except (PolicyError, RunError):  # a player's name is wrong, a tracker cannot start
            if not options.resume and not trainer.learner.step:
                run.withdraw()
            raise
        except Stopped:
            if not options.quiet:
                _tell_so_far(run.path, config, first)
            raise
        crashpoint("loop.finished")
        return result
    finally:
        parts.close()


def _methods(config: TrainConfig) -> str:
    def own(of: TrainConfig) -> str:
        return of.loss.name if of.loss.token_loss.all_actions else f"{of.credit.name} + {of.loss.name}"

    return ", ".join(f"{name} {own(of)}" for name, of in config.learners.items()) or own(config)


def _tell_so_far(path: Path, config: TrainConfig, first: Mapping[str, float]) -> None:
    from legos_train.observe.report import print_table

    records = MetricsFile.read(path / "metrics.jsonl")
    print_table(Result.so_far(path, records, first, config.steps, "interrupted"), config.logs.progress)


def _trainer(config: TrainConfig, arena: Arena | None, run: RunDirectory, options: RunOptions) -> tuple[Trainer, int]:
    """The trainer, ready to continue, and how many steps it has done."""
    root = run.path / "checkpoints"
    kept = options.resume and root.is_dir() and checkpoint.load_newest(root, run.id) is not None
    # Built once: ranks agree while they build, and those above 0 do not know whether a checkpoint is complete.
    trainer = Trainer(build(config, arena, options.world, backend=options.backend, fresh=not kept, run_id=run.id))
    try:
        return trainer, state.restore(trainer.parts, root) if options.resume else 0
    except BaseException:
        trainer.parts.close()
        raise


def _first_numbers(trainer: Trainer, run: RunDirectory, start: int, progress: Progress) -> dict[str, float]:
    """The evaluation before the first step; done once and stored in the run directory."""
    if (kept := run.first_numbers()) is not None:
        return kept
    if start:
        return {}
    numbers = {**league_value(trainer.parts), **trainer.parts.measurer.measure(actors.POLICY)}
    run.write_json("start.json", numbers)
    trainer.parts.drop_caches()
    progress.note(
        "before training: "
        + "  ".join(f"{k} {eval_numbers.formatted(numbers, k, 3)}" for k in eval_numbers.results(numbers))
    )
    return numbers
