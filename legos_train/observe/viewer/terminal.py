"""A game in the terminal, turn by turn."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING, Any

from legos_train.observe.plain_text import clean, repeated, squared
from legos_train.observe.viewer.compact import Json, compact
from legos_train.observe.viewer.log import LogError, LogLine

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

SHADES = ((0.05, "bold white on red"), (0.2, "red"), (0.5, "yellow"), (1.01, ""))
HELP = "[Enter] next  [b] back  [w] worst turn  [a] all the rest  [q] quit"


def replay(
    lines: Sequence[LogLine],
    episode: int | None = None,
    *,
    out: IO[str] | None = None,
    ask: Callable[[], str] | None = None,
) -> None:
    """Shows an episode turn by turn: the observation, tokens coloured by probability, reward and credit.

    Args:
        lines: from `read_log`.
        episode: the line number in the log, as on the page; the last episode by default.
        out: a terminal, or a file or pipe, which gets plain text; standard output by default.
        ask: called after each turn for a line of input, None if there is nobody to ask: by default `input` if both
            standard input and `out` are terminals.

    Raises:
        LogError: no such episode.
    """
    from rich.console import Console

    chosen = {line.number: line for line in lines}.get(lines[-1].number if episode is None else episode)
    if chosen is None:
        raise LogError(f"no episode {episode}; this log has {lines[0].number} to {lines[-1].number}")
    console = Console(file=out or sys.stdout, highlight=False, soft_wrap=True)
    if ask is None and out is None and console.is_terminal and sys.stdin.isatty():
        ask = input
    row, body = compact(chosen)
    _opening(console, row)
    order = body["order"]
    at, free = 0, ask is None
    while at < len(order):
        _turn(console, row, body, at)
        at += 1
        if free or at == len(order):
            continue
        key = _answer(console, ask)
        if key == "q":
            return
        if key == "b":
            at = max(0, at - 2)
        elif key == "w":
            at = _worst(row, order)
        free = key == "a"
    _ending(console, row)


def _answer(console: Console, ask: Callable[[], str] | None) -> str:
    """One of the letters of `HELP`, "" for Enter; asks until it is valid. The end of input quits."""
    while ask is not None:
        console.print(HELP, style="dim", markup=False, end=" ")
        try:
            key = ask().strip().lower()
        except EOFError:
            return "q"
        if key in ("", "n", "b", "w", "a", "q"):
            return key
    return ""


def _opening(console: Console, row: Json) -> None:
    from rich.text import Text

    when = " against ".join(row["measured"]) if "measured" in row else f"step {row['step']}"
    title = f"episode {row['n']} · {row['env']} · {when} · seed {row['seed']}"
    console.rule(Text(clean(title)), style="dim")  # a plain string would be read as rich's markup
    for seat in row["seats"]:
        why = "trained" if seat["trained"] else f"not trained: {seat['why']}"
        trained = "" if "measured" in row else f", {why}"
        console.print(clean(f"  {seat['agent']}: {_player(seat)}{trained}"), markup=False)


def _turn(console: Console, row: Json, body: Json, at: int) -> None:
    from rich.text import Text

    seat, number = body["order"][at]
    facts, turns = row["seats"][seat], body["seats"][seat]["turns"]
    turn = turns[number]
    title = f"{at + 1}/{len(body['order'])} · {facts['agent']} ({_player(facts)}), turn {number + 1} of {len(turns)}"
    console.print()
    console.rule(Text(clean(title), style="bold"), align="left", style="dim")
    if turn["kept"]:
        console.print(f"({turn['kept']} message{'s' * (turn['kept'] > 1)} as before)", style="dim")
    before = turns[number - 1]["messages"] if number and not turn["kept"] else []
    for index, message in enumerate(turn["messages"]):
        text = str(message.get("content", ""))
        lines = text.split("\n")
        same = repeated(lines, str(before[index].get("content", "")).split("\n") if index < len(before) else [])
        same = same if same < len(lines) else 0  # an observation that repeats in full is shown in full
        if same:
            console.print(f"({same} line{'s' * (same > 1)} as before)", style="dim")
        shown = squared("\n".join(lines[same:]))
        console.print(Text(clean(shown), style="cyan" if message.get("role") != "user" else ""))
    console.print(_said(turn))
    console.print(Text(_numbers(turn), style="dim"))


def _said(turn: Json) -> Text:
    from rich.text import Text

    said = Text().append("> ", style="bold green")
    texts, logprobs = turn.get("texts"), turn.get("logprobs")
    if texts and logprobs and len(texts) == len(logprobs):
        for text, logprob in zip(texts, logprobs):
            p = math.exp(logprob) if isinstance(logprob, int | float) else 0.0
            said.append(clean(text), style=next((style for limit, style in SHADES if p < limit), ""))
    else:
        said.append(clean(turn["action"]), style="bold")
    return said


def _numbers(turn: Json) -> str:
    parts = [f"reward {_number(turn['reward'])}"]
    if "advantage" in turn:
        parts.append(f"advantage {_number(turn['advantage'])}")
    if "exact" in turn:
        before, after = turn["exact"]
        parts.append(f"exact value {_number(before)} to {_number(after)} ({_number(after - before)})")
    logprobs = [v for v in turn.get("logprobs", ()) if isinstance(v, int | float)]
    if logprobs:
        parts.append(f"{len(logprobs)} tokens, probability {math.exp(sum(logprobs)):.3g}")
    if "version" in turn:
        parts.append(f"policy version {turn['version']}")
    if turn.get("finish") not in (None, "stop"):
        parts.append(f"finish: {turn['finish']}")
    return clean(" · ".join(parts))


def _player(seat: Json) -> str:
    """Who plays the seat and, if there are several learners, which one: `policy, learner solver`."""
    return seat["player"] + (f", learner {seat['learner']}" if seat["learner"] else "")


def _number(value: Any) -> str:
    return f"{value:{'+' if value else ''}.3g}" if isinstance(value, int | float) else str(value)


def _worst(row: Json, order: list[list[int]]) -> int:
    """The position of the turn to look at first: a loser's, otherwise anyone's."""
    seats = list(enumerate(row["seats"]))
    lost = [(n, s) for n, s in seats if s["outcome"] in ("loss", "invalid") and s["worst"]] or seats
    rank = {"exact": 0, "advantage": 1, "last": 2, "luck": 3}
    candidates = [(n, s["worst"]) for n, s in lost if s["worst"]]
    _, _, seat, turn = min((rank[worst["by"]], worst["value"] or 0.0, n, worst["turn"]) for n, worst in candidates)
    return order.index([seat, turn])


def _ending(console: Console, row: Json) -> None:
    console.print()
    console.rule("end", style="dim")
    for seat in row["seats"]:
        outcome = f" ({seat['outcome']})" if seat["outcome"] else ""
        console.print(clean(f"  {seat['agent']}: {seat['return']:+g}{outcome}"), markup=False)
