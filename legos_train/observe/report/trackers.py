"""Trackers besides metrics.jsonl: Weights & Biases, trackio, TensorBoard. Each is imported only if it is used."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from legos_envs import arguments
from legos_train.config import TrainConfig
from legos_train.disk import MetricsFile, RunDirectory
from legos_train.errors import RunError
from legos_train.observe.report.figures import figures
from legos_train.observe.report.lost_games import messages_of, sample_games
from legos_train.observe.report.svg import line_chart, standalone
from legos_train.observe.viewer import LOG
from legos_train.observe.viewer.compact import turn_order

Track = Callable[[dict[str, Any]], None]


class Tracker(NamedTuple):
    """An open tracker. `log` takes numbers and their step; `close` takes whether the run has failed."""

    name: str
    log: Callable[[dict[str, float], int], None]
    close: Callable[[bool], None]


@contextmanager
def trackers(config: TrainConfig, path: Path, start: int, note: Callable[[str], None]) -> Iterator[Track]:
    """All trackers in the config, as one function of a metrics record.

    A tracker that fails later is dropped, with a note: a run does not stop because it cannot be tracked.

    Args:
        config: the settings of the run.
        path: its directory.
        start: the step after which it resumes; whatever was tracked for later steps is removed if possible.
        note: called with a sentence about a tracker that failed.

    Raises:
        RunError: a configured tracker is not installed; the message says how to install it.
    """
    opened: list[Tracker] = []

    def attempt(tracker: Tracker, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            opened.remove(tracker)
            note(f"{tracker.name} failed and gets no more numbers: {type(error).__name__}: {error}")

    def track(record: dict[str, Any]) -> None:
        flat = flatten(record) if opened else {}
        for each in list(opened):
            attempt(each, partial(each.log, flat, int(record["step"])))

    failed = True
    try:
        for name, tracker in TRACKERS.items():
            if getattr(config.logs, name) not in (None, False):
                opened.append(tracker(config, path, start))
        yield track
        failed = False
    finally:
        for each in list(opened):
            attempt(each, partial(each.close, failed))


def flatten(record: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of a nested record, `reward/player_0` and so on."""
    out: dict[str, float] = {}
    for key, value in record.items():
        if isinstance(value, Mapping):
            out |= flatten(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            out[prefix + key] = float(value)
    return out


def _wandb(config: TrainConfig, path: Path, start: int) -> Tracker:
    try:
        import wandb
    except ImportError:
        raise RunError(f"logs.wandb needs the extra: {arguments.install('wandb')}") from None
    try:
        session = wandb.init(
            project=config.logs.wandb,
            name=path.name,
            id=_id(path),  # a resumed run goes on in its own
            resume="allow",
            dir=str(path),
            config=config.plain(),
            settings=wandb.Settings(save_code=False),
        )
    except wandb.errors.Error as error:
        raise RunError(f"logs.wandb: {str(error).rstrip('. ')}; with WANDB_MODE=offline it writes files") from error
    last = None

    def log(numbers: dict[str, float], step: int) -> None:
        nonlocal last
        last = step
        session.log(numbers, step=step)

    def close(failed: bool) -> None:
        try:
            shown: dict[str, Any] = {
                f"figures/{name}": wandb.Html(svg, inject=False) for name, svg in figure_files(path).items()
            }
            if rows := episode_rows(path):
                shown["sample_episodes"] = wandb.Table(columns=list(COLUMNS), data=rows)
            session.log(shown, step=last)  # with a step of its own, a resumed run would lose its first row
        finally:
            session.finish(exit_code=int(failed))

    return Tracker("Weights & Biases", log, close)


def _id(path: Path) -> str:
    return str(RunDirectory(path).read_json("run.json")["id"])


def _trackio(config: TrainConfig, path: Path, start: int) -> Tracker:
    try:
        import trackio
    except ImportError:
        raise RunError(f"logs.trackio needs trackio: {arguments.install_package('trackio')}") from None
    name = f"{path.name}-{_id(path)}"  # by which a resumed run goes on in its own
    with contextlib.redirect_stdout(sys.stderr):  # it prints, and stdout may be read by a program
        trackio.init(project=config.logs.trackio, name=name, config=config.plain(), resume="allow")

    def quietly(call: Callable[..., Any], *given: Any, **named: Any) -> None:
        with contextlib.redirect_stdout(sys.stderr):
            call(*given, **named)

    return Tracker(
        "trackio",
        lambda numbers, step: quietly(trackio.log, numbers, step=step),
        lambda failed: quietly(trackio.finish),
    )


def _tensorboard(config: TrainConfig, path: Path, start: int) -> Tracker:
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise RunError(
                f"logs.tensorboard needs tensorboardX: {arguments.install_package('tensorboardX')}"
            ) from None
    writer = SummaryWriter(str(path / "tensorboard"), purge_step=start + 1 if start else None)

    def log(numbers: dict[str, float], step: int) -> None:
        for name, value in numbers.items():
            writer.add_scalar(name, value, step)

    return Tracker("TensorBoard", log, lambda failed: writer.close())


TRACKERS: dict[str, Callable[[TrainConfig, Path, int], Tracker]] = {
    "wandb": _wandb,
    "trackio": _trackio,
    "tensorboard": _tensorboard,
}
"""Opens each tracker, by its setting in `[logs]`."""


COLUMNS = ("step", "game", "env", "seed", "agent", "player", "told", "action", "reward", "outcome")
GAMES, CHARACTERS = 16, 4000
"""Maximum games of the first and of the last step, and characters per text."""


def episode_rows(path: Path) -> list[list[Any]]:
    """A row for each turn, in the order of play, of games of the first and the last step in a run's log: `COLUMNS`."""
    rows: list[list[Any]] = []
    for number, line in enumerate(game for games in sample_games(path / LOG, GAMES) for game in games):
        seats = line["episode"]["trajectories"]
        for seat, turn in turn_order(seats, line.get("order")):
            agent, taken = seats[seat]["agent"], seats[seat]["turns"][turn]
            who, ended = line.get("players", {}).get(agent, ""), line.get("outcome", {}).get(agent, "")
            texts = (messages_of(taken)[:CHARACTERS], str(taken["action"])[:CHARACTERS])
            facts = (line["step"], number, str(line["env"]), line["episode"].get("seed"), agent, str(who))
            rows.append([*facts, *texts, float(taken.get("reward") or 0.0), str(ended)])
    return rows


def figure_files(path: Path) -> dict[str, str]:
    """The current figures of a run by name, as SVG text."""
    if not (file := path / "metrics.jsonl").exists():
        return {}
    drawn = figures(MetricsFile.read(file), RunDirectory(path).first_numbers())
    return {figure.name: standalone(line_chart(figure)) for figure in drawn}
