"""What is shown while a run works: the dashboard, plain lines, JSON lines."""

from __future__ import annotations

import io
import json
import re
import sys
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from rich.console import Console

from legos_envs import Episode
from legos_envs.records import Trajectory, Turn
from legos_train.observe import Progress, dashboard, dashboard_text, progress_line
from legos_train.observe.dashboard import clock, settled
from legos_train.observe.dashboard_text import memory, sparkline
from legos_train.observe.progress_line import ProgressLine
from legos_train.run.records.episode_metrics import episode_metrics, standard_error


def record(step: int, **changes: Any) -> dict[str, Any]:
    return {
        "step": step,
        "reward": {"player_0": 0.25 * step, "player_1": -0.25 * step},
        "win_rate": {"player_0": 0.625},
        "invalid_rate": 0.01,
        "entropy": 0.5,
        "kl": 0.02,
        "grad_norm": 0.3,
        "tokens_per_second": 12345.0,
        "seconds": 2.0,
        "seconds_play": 1.25,
        "seconds_learn": 0.5,
        "seconds_publish": 0.012,
        "staleness_mean": 0.4,
        "staleness_max": 1.0,
        **changes,
    }


def drawn(progress: Progress, last: dict[str, Any], width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), force_terminal=True, record=True)
    progress._console = console
    console.print(progress.panel(last))
    return console.export_text().splitlines()


def shown(records: list[dict[str, Any]], width: int = 100) -> str:
    """The dashboard after the last record."""
    progress = Progress("a run", 10, mode="rich")
    progress.before({"nash_conv": 0.9})
    for each in records:
        progress._remember(each)
    return "\n".join(drawn(progress, records[-1], width))


def test_the_dashboard_has_what_is_asked_of_it() -> None:
    text = shown([record(1), record(2, eval={"nash_conv": 0.4, "nash_conv_average": 0.3})])
    for wanted in ("step 2/10", "player_0  +0.500   62%", "▁", "0.900  0.400", "12,345 tok/s", "0.4, most 1", "12 ms"):
        assert wanted in text, text
    assert "0.500 nats" in text and "1.25 s, 0.50 s" in text
    assert " player_1 -0.500 - " in " ".join(text.split()), "a role without a win rate has none"


def test_held_out_envs_have_lines_of_their_own_under_their_names() -> None:
    progress = Progress("a run", 10, mode="rich")
    progress.before({"nash_conv": 0.9, "math/accuracy": 0.125, "Nim-v0/vs_random": -0.25})
    measured = {"nash_conv": 0.4, "math/accuracy": 0.5, "math/accuracy_low": 0.31, "math/accuracy_high": 0.69}
    last = record(1, eval={**measured, "Nim-v0/vs_random": 0.75})
    progress._remember(last)
    lines = [" ".join(line.split()) for line in drawn(progress, last, 100)]
    assert any("math/accuracy 0.125 0.500 0.31 to 0.69" in line for line in lines), lines
    assert any("Nim-v0/vs_random -0.250 0.750" in line for line in lines), lines
    assert any("nash_conv 0.900 0.400" in line for line in lines), lines
    assert not any("accuracy_low" in line for line in lines)


@pytest.mark.parametrize("width", [20, 40, 60, 75, 76, 120, 300])
def test_it_fits_terminals_of_any_width(width: int) -> None:
    """Several envs, long names, many roles; no line is longer than the terminal."""
    roles = {f"SomeLongEnvironment-v0/role_number_{k}": 0.1 * k for k in range(14)}
    measured = {f"SomeLongEnvironment-v0/measure_{k}": 0.5 for k in range(12)}
    alarm = {"name": "entropy", "text": "[bold]no markup[/bold] " * 4, "done": "stopping"}
    text = shown([record(1, reward=roles, win_rate=roles, eval=measured, alarms=[alarm])], width)
    assert all(len(line) <= width for line in text.splitlines())
    if width >= 40:
        assert "and 4 more" in text and "alarm" in text and "step 1/10" in text
    if width >= 75:
        assert "[bold]no markup[/bold]" in text, "text of a run is not markup"


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (60, 24), (50, 30)])
def test_it_fits_the_terminals_height(width: int, height: int) -> None:
    """A terminal cuts off the end, and the speed stands there: fewer roles and numbers are shown instead."""
    console = Console(width=width, height=height, file=io.StringIO(), force_terminal=True)
    roles = {f"Env-v0/role_{k}": float("nan") for k in range(9)}
    measured = {f"Env-v0/{name}": 0.5 for name in ("nash_conv", "illegal", "no_loss", *(f"m{k}" for k in range(9)))}
    last = record(1, reward=roles, eval=measured | {f"{name}_average": 0.4 for name in measured},
                  league={"members": 3.0, "win_rate": 0.5, "rating": float("nan")})  # fmt: skip
    with Progress("a run", 3, console=console) as progress:
        progress._remember(last)
        lines = console.render_lines(progress.panel(last))
        text = "\n".join("".join(piece.text for piece in line) for line in lines)
    assert len(lines) < height and "memory" in text and "rating" in text
    assert "more" in text and "nan" in text and "Env-v0/nash_conv " in text


def test_several_learners_have_a_row_each() -> None:
    own = {"kl": 0.02, "entropy": 0.5, "grad_norm": 0.3, "updates": 4}
    learners = {"solver": {"reward": 0.25, "win_rate": 0.625, **own}, "[b]proposer": {"reward": None, "updates": 0}}
    wide = " ".join(shown([record(1, learners=learners)]).split())
    assert "learner reward wins KL entropy gradient updates" in wide
    assert "solver +0.250 62% 0.020 0.500 0.300 4" in wide and "[b]proposer - - - - - 0" in wide
    narrow = shown([record(1, learners=learners)], 40)
    assert "solver" in narrow and "updates" not in narrow
    assert "learner" not in shown([record(1, learners={"all": own})]), "one learner is the run"


def test_many_learners_fit_the_terminals_height() -> None:
    console = Console(width=80, height=24, file=io.StringIO(), force_terminal=True)
    last = record(1, learners={f"learner_{k}": {"reward": 0.1} for k in range(12)}, eval={"nash_conv": 0.5})
    with Progress("a run", 3, console=console) as progress:
        progress._remember(last)
        lines = console.render_lines(progress.panel(last))
    text = "\n".join("".join(piece.text for piece in line) for line in lines)
    assert len(lines) < 24 and "memory" in text and "learner_0" in text and "more" in text


def test_records_of_other_kinds_of_steps() -> None:
    """An idle step and a run on a league: what is missing is a dash, nothing breaks."""
    text = shown([{"step": 3, "reward": {}, "league": {"members": 4.0, "win_rate": 0.51}}])
    rated = {"members": 4.0, "win_rate": 0.5, "rating": 25.25, "rating_sigma": 1.5}
    assert "25.2 ± 2.9" in shown([{"step": 3, "reward": {}, "league": rated}])
    assert "4 members, wins 51%" in text and "invalid" in text and "- tok/s" in text


def test_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("a run", 3, mode="json") as progress:
        progress.note("hello")
        for step in (1, 2, 3):
            progress.update(record(step, kl=float("nan")))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == {"note": "hello"} and [line["step"] for line in lines[1:]] == [1, 2, 3]
    assert lines[1] == {**record(1), "kl": None}, "JSON has no NaN"


def test_auto_is_the_dashboard_on_a_terminal_and_lines_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert (
        settled("auto") == "plain"
        and settled("json") == "json"
        and settled("plain") == "plain"
        and settled("rich") == "rich"
    )
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert settled("auto") == "rich"
    notebook = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    assert Progress("a run", 100).every == 1
    monkeypatch.setattr("sys.stdout", notebook())
    assert settled("auto") == "plain" and Progress("a run", 100).every == 10


def test_a_line_a_step_is_short(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("a run", 300, mode="plain") as progress:
        for step in range(1, 4):
            progress.update(record(step, eval={"nash_conv": 0.5, "illegal": 0.1}))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and max(map(len, lines)) <= 120


def test_no_markup_is_printed_after_a_note_or_an_interruption() -> None:
    console = Console(width=90, file=io.StringIO(), force_terminal=True)
    with suppress(KeyboardInterrupt), Progress("a run", 3, console=console) as progress:
        progress.update(record(1, eval={"nash_conv": 0.5, "nash_conv_low": 0.4, "nash_conv_high": 0.6}))
        progress.live.refresh()  # as four times a second: a note draws again what is there
        progress.note("a note")
        progress.update(record(2))
        raise KeyboardInterrupt
    assert isinstance(console.file, io.StringIO)
    said = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue())
    assert "a note" in said and "[bold]" not in said and "[dim]" not in said and "[/]" not in said


def test_plain_lines_and_alarms(capsys: pytest.CaptureFixture[str]) -> None:
    alarm = {"name": "kl", "text": "too far", "done": "KL weight now 0.4"}
    with Progress("a run", 25, every=10, mode="plain") as progress:
        for step in range(1, 26):
            changes: dict[str, Any] = {"alarms": [alarm]} if step == 13 else {}
            progress.update(record(step, **changes, **({"eval": {"nash_conv": 0.5}} if step == 20 else {})))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1].rstrip(":") for line in lines] == ["1/25", "10/25", "13", "20/25", "25/25"]
    assert lines[2] == "step 13: alarm kl: too far (KL weight now 0.4)" and lines[3].endswith("| nash_conv 0.500")


def test_quiet_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for mode in ("rich", "plain", "json"):
        with Progress("a run", 3, quiet=True, mode=mode) as progress:  # type: ignore[arg-type]
            progress.note("hello")
            progress.update(record(1))
    assert capsys.readouterr().out == ""
    with pytest.raises(ValueError, match="must be auto, rich, plain or json; got 'yaml'"):
        Progress("a run", 3, mode="yaml")  # type: ignore[arg-type]


def test_live_on_a_console_and_notes_that_look_like_markup() -> None:
    console = Console(width=90, file=io.StringIO(), force_terminal=True)
    with Progress("a run", 3, console=console) as progress:
        progress.note("run directory [runs/x]")
        progress.update(record(1))
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue()
    assert "run directory [runs/x]" in said and "player_0" in said and "a run" in said


@pytest.mark.parametrize("mode", ["plain", "json", "rich"])
def test_what_an_evaluation_is_at_is_shown(
    mode: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Minutes of games before the first step, and after the last, showed nothing at all."""
    for wait in ("FIRST_SECONDS", "NEXT_SECONDS", "TERMINAL_SECONDS"):
        monkeypatch.setattr(progress_line, wait, 0.0)
    console = Console(file=io.StringIO(), force_terminal=True, width=90) if mode == "rich" else None
    with Progress("a run", 3, mode=mode, console=console) as progress:
        progress.working("games of Nim-v0", 3, 8)
        progress.working("games of Nim-v0", 8, 8)
        progress.update(record(1))
        progress.working("episodes of step 2", 1, 4)
        progress.working("episodes of step 2", 2, 4)
    progress.working("games of Nim-v0", 2, 8)  # at the end of a run
    said = capsys.readouterr().out
    ends = [line for line in said.splitlines() if "games of" in line or "episodes of" in line]
    assert [line.partition(" of ")[0] for line in ends] == {
        "plain": ["3/8 games", "8/8 games", "1/4 episodes", "2/4 episodes", "2/8 games"],
        "json": [],
        "rich": ["2/8 games"],
    }[mode]
    if console is not None:  # below the dashboard
        assert re.search(r"╯\S*\n.*2/4 episodes of step 2", console.file.getvalue())  # type: ignore[attr-defined]


def test_many_short_batches_are_shown_like_a_long_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Payoff games of a league: each pair's ended before its first line was due."""
    now = [0.0]
    monkeypatch.setattr(dashboard, "ProgressLine", partial(ProgressLine, clock=lambda: now[0]))
    with Progress("a run", 3, mode="plain") as progress:
        for _ in range(20):
            for done in range(1, 5):
                progress.working("games", done, 4)
                now[0] += 1.0
    assert len(capsys.readouterr().out.splitlines()) == 3, "in 80 seconds: after 10, 40 and 70"


def test_the_time_left_follows_the_pace_of_the_last_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    progress = Progress("a run", 1000, start=100, quiet=False, mode="plain", every=10**6)
    assert progress.left() == "?"
    for step in range(101, 201):
        now[0] += 100.0 if step < 150 else 2.0  # slow at first: a download, a measurement
        progress.update(record(step))
    assert progress.left() == clock(800 * 2.0) == "26:40"
    assert clock(59.6) == "1:00" and clock(3661) == "1:01:01"


def test_sparklines() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█" and sparkline([3, 3]) == "▁▁" and sparkline([]) == ""
    assert sparkline([float("nan"), 1, 2]) == "▁█"
    long = sparkline(range(1000), width=20)
    assert len(long) == 20 and long[0] == "▁" and long[-1] == "█" and list(long) == sorted(long)


def test_memory_is_a_number_of_mebibytes() -> None:
    size = float(memory().split()[0].replace(",", ""))
    assert 10 < size < 10_000 and dashboard_text.memory().endswith(("MiB", "MiB at most"))


def episode(returns: dict[str, float], group: str | None = None, **info: dict[str, Any]) -> Episode:
    def trajectory(agent: str, total: float) -> Trajectory:
        role = agent.rpartition("/")[2]
        return Trajectory(agent, role, "member" not in info.get(agent, {}), [Turn((), "x", total)], 0.0,
                          info.get(agent, {}))  # fmt: skip

    return Episode("E-v0", 0, {}, {a: trajectory(a, r) for a, r in returns.items()}, group=group)


def test_the_error_of_a_mean_counts_groups_and_not_games() -> None:
    values = [1.0, 3.0, 2.0, 6.0]
    alone = standard_error(values, range(4))
    assert alone == pytest.approx(((sum((v - 3) ** 2 for v in values) / 3) / 4) ** 0.5)
    # every game four times over, in one group each, tells no more than the games alone
    assert standard_error([v for v in values for _ in range(4)], [k for k in range(4) for _ in range(4)]) == alone
    assert standard_error(values, [0] * 4) is None
    games = [episode({"a": v, "b": -v}, group=str(k)) for k, v in enumerate(values) for _ in range(4)]
    assert episode_metrics(games)["reward_error"] == {"a": pytest.approx(alone), "b": pytest.approx(alone)}
    assert episode_metrics(games[:4])["reward_error"] == {"a": None, "b": None}


def test_win_rates_are_the_learners_where_two_compete() -> None:
    games = [
        episode({"a": 1.0, "b": -1.0}),
        episode({"a": 0.0, "b": 0.0}),
        episode({"a": 1.0, "b": -1.0}, b={"member": "step_5"}),  # a league opponent: only a is the learner
        episode({"x/a": 0.0, "x/b": 1.0, "y/a": 1.0, "y/b": 0.0}),  # two tables
        episode({"c": 5.0}),
        episode({"d": 1.0, "e": 2.0, "f": 3.0}),  # three: no duel
    ]
    found = episode_metrics(games)["win_rate"]
    assert found == {"a": pytest.approx((1 + 0.5 + 1 + 0 + 1) / 5), "b": pytest.approx((0 + 0.5 + 1 + 0) / 4)}
    assert set(episode_metrics(games[:1], by_env=True)["win_rate"]) == {"E-v0/a", "E-v0/b"}


def test_rewards_are_the_learners_where_a_league_plays_the_role_too() -> None:
    """A learner that loses to every opponent from both seats had a reward of about 0 in both."""
    games = [
        episode({"a": -1.0, "b": 1.0}, b={"member": "step_5"}),
        episode({"a": 1.0, "b": -0.5}, a={"member": "optimal"}),
        episode({"c": 3.0, "a": 0.0}, c={"member": "base"}),  # nobody else has this role
    ]
    assert episode_metrics(games)["reward"] == {"a": -0.5, "b": -0.5, "c": 3.0}


def test_a_game_without_a_verdict_has_no_returns() -> None:
    void = replace(episode({"a": 0.0, "b": 0.0}), info={"outcome": "unscored"})
    found = episode_metrics([episode({"a": 1.0, "b": -1.0}), void])
    assert found["reward"] == {"a": 1.0, "b": -1.0} and found["win_rate"] == {"a": 1.0, "b": 0.0}
    assert found["unscored_rate"] == 0.5 and found["unscored_trajectories"] == 2
