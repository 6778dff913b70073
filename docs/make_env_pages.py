"""Writes a page for every registered environment, with a picture of an episode; and the table of all of them.

python docs/make_env_pages.py          # the pages, into docs/_generated; conf.py does it too
python docs/make_env_pages.py table    # the table in docs/environments.md
"""

from __future__ import annotations

import asyncio
import io
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import CONSOLE_SVG_FORMAT, Console
from rich.text import Text

import legos_envs
from legos_envs.policies import make_policy
from legos_envs.registry import families
from legos_envs.testing import page

BEGIN, END = "a test compares it with the registry -->\n", "<!-- end of table -->"

COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")
WIDTH = 100
PROMPT_CHARACTERS = 600
TURNS = 8
# Without the web font that rich names: a page of ours loads nothing from elsewhere.
SVG = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def write(folder: Path) -> list[str]:
    """Writes `index.md`, and `ID.md` with `ID.svg` for each environment, into a folder; returns the ids."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = legos_envs.registered()
    for env_id in ids:
        _put(folder / f"{env_id}.svg", picture(env_id))
        text = f"# {env_id}\n\n{page(env_id).text}\n\n{learning(env_id)}"
        text += "## An episode\n\nRandom play in every seat, seed 0.\n\n"
        _put(folder / f"{env_id}.md", f"{text}![An episode of {env_id}]({env_id}.svg)\n")
    toctree = "\n".join(["```{toctree}", ":maxdepth: 1", "", *ids, "```"])
    _put(folder / "index.md", f"# Every environment\n\n{toctree}\n")
    for old in folder.iterdir():
        if old.is_file() and old.stem not in {*ids, "index"}:
            old.unlink()
    return ids


def _put(file: Path, text: str) -> None:
    """Writes a file unless it says so already, so that Sphinx reads again only what has changed."""
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        file.write_text(text, encoding="utf-8")


def learning(env_id: str) -> str:
    """What a bundled model learned here, by the cells of `benchmarks.learning_page`; nothing where none were run."""
    cells = json.loads((Path(__file__).parent / "learning.json").read_text(encoding="utf-8"))
    rows = [row for row in cells if row["id"] == env_id]
    if not rows:
        return ""
    rows = [row for row in rows if row["args"] == rows[0]["args"]]  # not those of a task with earlier settings
    number = rows[0]["metric"].replace("_", " ")
    if rows[0]["args"]:
        number += f" with `{' '.join(rows[0]['args'])}`"
    shown = []
    for row in rows:
        roles = ", ".join(f"{name} {first:.2f} to {last:.2f}" for name, (first, last) in row["roles"].items())
        shown.append(
            f"seed {row['seed']}: {row['before']:.3f} to {row['after']:.3f}" + (f" ({roles})" if roles else "")
        )
    seconds = max(row["cpu_seconds"] for row in rows)
    return (
        f"## Learning\n\nA bundled model, trained for at most {seconds:.0f} CPU seconds; {number} before and after: "
        f"{'; '.join(shown)}. [What learns](../learning.md) has intervals, curves and the command.\n\n"
    )


def table() -> str:
    """The table of all environments, by family, as Markdown."""
    lines = []
    for family, ids in families().items():
        lines += [f"**{family}**", "", "| id | seats | what |", "|---|---|---|"]
        lines += [
            f"| [`{env_id}`](_generated/{env_id}.md) | {seats(env_id)} | {first_sentence(page(env_id).pitch)} |"
            for env_id in ids
        ]
        lines.append("")
    return "\n".join(lines)


def seats(env_id: str) -> str:
    """How many seats an environment has by default, and in which roles where these are not players' own."""
    env: Any = legos_envs.make(env_id)
    roles = Counter(seat.role for seat in env.seats.values())
    if set(roles) == set(env.seats):
        return str(len(env.seats))
    return ", ".join(role if count == 1 else f"{count} {role}" for role, count in roles.items())


def first_sentence(text: str) -> str:
    return re.split(r"(?<=[.!?])\s", " ".join(text.split()), maxsplit=1)[0]


def write_table(guide: Path) -> None:
    """Puts the table into the guide, between its two marks."""
    head, begin, rest = guide.read_text(encoding="utf-8").partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{guide} lacks the marks of the table, {BEGIN!r} and {END!r}")
    _put(guide, f"{head}{begin}\n{table()}{end}{tail}")


def picture(env_id: str) -> str:
    """An episode as SVG: what each seat is asked, what it answers, and what it gets."""
    env: Any = legos_envs.make(env_id)
    episode = asyncio.run(legos_envs.play(env, make_policy("random", env), seed=0))
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    colour = {agent: COLOURS[i % len(COLOURS)] for i, agent in enumerate(env.possible_agents)}
    trajectories = episode.trajectories
    turns = dict.fromkeys(trajectories, 0)
    for agent, action in env.unwrapped.log[:TURNS]:
        asked = trajectories[agent].turns[turns[agent]].observation[-1]["content"]
        turns[agent] += 1
        console.print(Text(f"to {agent}", style=f"bold {colour[agent]}"))
        console.print(Text(cut(asked), style="dim"))
        console.print(Text(f"{agent}> {cut(action)}\n", style=colour[agent]))
    if len(env.unwrapped.log) > TURNS:
        console.print(Text(f"... {len(env.unwrapped.log) - TURNS} more actions\n", style="dim"))
    returns = ", ".join(f"{agent} {trajectory.total:+g}" for agent, trajectory in trajectories.items())
    console.print(Text(f"outcome: {episode.outcome or 'ended'}\nreturns: {returns}", style="bold"))
    unique = re.sub(r"\W", "", env_id)
    return console.export_svg(title=env_id, code_format=SVG, unique_id=f"terminal-{unique}")


def cut(text: str) -> str:
    """A text with its middle left out where it is long."""
    half = PROMPT_CHARACTERS // 2
    return text if len(text) <= PROMPT_CHARACTERS else f"{text[:half]}\n[...]\n{text[-half:]}"


if __name__ == "__main__":
    if sys.argv[1:] == ["table"]:
        write_table(Path(__file__).parent / "environments.md")
    else:
        write(Path(__file__).parent / "_generated")
