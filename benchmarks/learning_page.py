"""The finished cells of `benchmarks.learning_tasks` as a page with a table and one small learning curve for each id.

    python -m benchmarks.learning_page --runs runs/learning --docs docs

The cells are kept beside the page, in `learning.json`, with their curves: cells of `--runs` are added, or replace those
of the same id and seed, so seeds can be run on several machines. `docs/make_env_pages.py` writes a line of them
onto each env's page.
"""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.learning_tasks import TASKS, Task, base, training
from legos_train.observe import eval_numbers, verdict
from legos_train.observe.report.svg import Figure, Line, line_chart, standalone

HEAD = """# What learns

One command trains each environment on two CPU cores and measures it on seeds, and where there are any on items, that
training never saw. The models ship with Legos: `tiny` for games with exact numbers, `small` for Liar's dice and the
rest.

    python -m benchmarks.learning_tasks --seeds 0 1 2
    python -m benchmarks.learning_tasks LeducPoker-v0 --seeds 11 12 13 14 15
    python -m benchmarks.learning_tasks LiarsDice-v0 --seeds 2 3 5 6 7
    python -m benchmarks.learning_page

Ids with 128 games in the second column were measured with `--games 128`.

The first column lists arguments that differ from the defaults and the role that code plays, in training and evaluation
alike: with `proposer=scripted:optimal` only solvers learn. ConnectFour, PigDice and the negotiations train against the
base (`league.mode = "fixed"`), all other two-sided games by self-play; LeducPoker, LiarsDice and MatrixGame train
without sampling: the game's tree values every action.

*Before* is the base and *after* the trained policy, both measured by the number in the second column: an exact number,
or the mean return over the same games, either against the base or with the policy in every seat. *Gain* has a 95 %
interval over those games. *Illegal* is the share of seats that lost by an illegal move or, for exact numbers, the
probability of an illegal answer. *Best scripted* is the best scripted player in the policy's place; *reached* is how
far the policy got on the way from the base to it. *Items* says whether the problems, passages or exercises come from a
test split that neither the base nor the training saw, and what it shares with theirs: the facts that SPICE asks for
must be met in training, so its row shows recall of facts, not reading; and the base has been drilled on plain sums,
116 of the 300 test problems of ProposerSolver among them. *Roles*, shown where one policy plays roles with a common
interest, is what each earned in training, averaged over the first and the last five steps. An id counts as learned if
the interval of its gain excludes 0 and none of these roles earns less.
LeducPoker is shown on seeds 11 to 15, because its settings were chosen on 10, and LiarsDice on 2, 3, 5, 6 and 7,
because its settings were chosen on 0, 1 and 4; both rows report the weight average. The settings of EnsembleVote and
SelfDistillation were chosen on seed 9, except for the number of steps and the filter of zero advantages: these
followed runs on the seeds of the table that ended at 93 to 96 % of the best scripted player. We raised the steps of
LiarsDice, SimpleNegotiation and CodeGen after runs of 120, 96 and 60 steps on the seeds of the table, chose the
arguments of Amplification after runs on seed 0, and raised the first KL weight of Nim after seed 0 had got stuck.
The settings of SPICE were chosen on seed 9, with 600 steps; the KL weight and the discount of RedBlue, and the steps
and learning rate of Negotiation, on seed 9 too.
Dataset and GSM8K share their generated problems at `level=0`, so their rows are much alike.
The budget of a run was ten CPU minutes of the machine used for earlier versions of this table. The CPU seconds shown
are those of a slower, busy one: a HeadToHead run took 47 on the first and 99 to 115 on this. At half its speed 600
seconds are 1,200, within which all rows stay.
The base answers 30 % of the decision points of the one-round LiarsDice of this table illegally; with the default
arguments it hardly ever does (see the model's card).
"""
REASONS = """## What holds the others back

Runs named here that are not rows of the table started from an earlier `small`.

- *Amplification*: with four operations on two-digit numbers the base gets none right and never asks its helper for
  one, so all games of a step pay the same. The table's version has two operations, half a point for passing on the
  question's numbers, and a helper that calculates. The policy learns to pass numbers on, but not yet to answer.
- *ProposerSolver*: solvers rise to about 0.34 on held-out problems, and higher in training: in part they memorise
  results instead of working them out.
- *PlanExecute*: with four steps and a critic that learns too, the base earns about 0.02 of 1, so few of the 64 games
  of a step tell good from bad. The table's version has two steps and a scripted critic, who states the right list.
- *Contests, Debate*: the base names keywords it knows and garbles those that no training prompt has ("feather" became
  "glayer"). A HeadToHead run of 300 steps earned 0.875 (0.828 to 0.918) against the base on prompts of the train
  split and 0.680 (0.602 to 0.758) on those of the test split, 256 games each (`--steps 300`, then `legos eval`).
- *RedBlue*: with a KL weight of 0.02 and no discount it gained 0.26 to 0.27, but messages grew until 14 to 19 % of the
  games ended by a guess that the token limit had cut off, and a run took 661 to 796 CPU-s.
- *CodeGen*: coders improve from about 0.4 to 0.7. Testers, who earn by tests that wrong programs fail and the reference
  passes, only get to about a quarter.
- *ConnectFour, Negotiation, RefineLoop, PlanExecute*: still improving when their steps end, which is before the
  budget does. On seed 0, 90 steps of ConnectFour reached 0.734.
- *LiarsDice*: seeds 5 and 7 end at 0.079 and 0.095, the other three at 0.017 to 0.024. From the base before, seeds 5 to
  7 ended at 0.027, 0.016 and 0.032.
- *LeducPoker*: the NashConv is still falling after 110 steps; the preset takes 180 ([training](training.md)).
"""
PRESETS = """## Three presets that belong to no single environment

| preset | number | seed | before | after | CPU s |
|---|---|---|---|---|---|
| population | NashConv of the league's mixture | 0 | 0.886 | 0.003 | |
| population | NashConv of the league's mixture | 1 | 0.886 | 0.006 | |
| population | NashConv of the league's mixture | 2 | 0.886 | 0.003 | 223 |
| spiral | TicTacToe-v0 against `small` | 0 | -0.211 | 0.551 (gain +0.574 to +0.953; illegal 30% to 4%) | 1,496 |
| spiral | TicTacToe-v0 against `small` | 1 | -0.211 | 0.363 (gain +0.379 to +0.754; illegal 30% to 12%) | 1,346 |
| spiral | TicTacToe-v0 against `small` | 2 | -0.211 | 0.371 (gain +0.398 to +0.789; illegal 30% to 1%) | 1,493 |
| spiral | KuhnPoker-v0 against `small` | 0 | -0.453 | 0.500 (gain +0.844 to +1.062; illegal 48% to 0%) | 1,496 |
| spiral | KuhnPoker-v0 against `small` | 1 | -0.453 | 0.500 (gain +0.844 to +1.062; illegal 48% to 0%) | 1,346 |
| spiral | KuhnPoker-v0 against `small` | 2 | -0.453 | 0.500 (gain +0.844 to +1.062; illegal 48% to 0%) | 1,493 |
| spiral | SimpleNegotiation-v0 against `small` | 0 | -0.098 | 0.043 (gain +0.074 to +0.215; illegal 5% to 0%) | 1,496 |
| spiral | SimpleNegotiation-v0 against `small` | 1 | -0.098 | 0.023 (gain +0.051 to +0.195; illegal 5% to 0%) | 1,346 |
| spiral | SimpleNegotiation-v0 against `small` | 2 | -0.098 | 0.039 (gain +0.070 to +0.211; illegal 5% to 0%) | 1,493 |
| survivors | right answers, 512 problems | 0 | 0.197 | 0.980 (gain of return +0.665 to +0.741) | 195 |
| survivors | right answers, 512 problems | 1 | 0.197 | 0.979 (gain of return +0.662 to +0.739) | 188 |
| survivors | right answers, 512 problems | 2 | 0.197 | 0.988 (gain of return +0.674 to +0.748) | 192 |

    legos train --preset population --size small --seed 0
    legos train --preset spiral --size small --eval.every 0 --eval.games 32 --checkpoint.every 0 --seed 0
    legos train --preset survivors --size small --steps 150 --batch-size 256 --arg level=0 --arg split=train --seed 0
    legos eval GSM8K-v0 -m runs/NAME/adapter -m small --opponent self -n 512 --no-exact --seed 5000000 \\
        --max-tokens 64 --arg level=0 --arg split=test

The learning rates of *population* and *survivors* were chosen on seed 0, with an earlier `small`. Models trained with
*survivors* lose the format that `GSM8K` rewards with 0.1, since right answers without it are kept too.

*Spiral* trains one policy on three games with the prompts of the paper, which `small` has never read: it forfeits 5
to 48 % of its games by an illegal answer. Most of the gain comes from not doing so any more (*illegal*); in Kuhn poker
all of it, since `small` forfeits every game against a player that does not. Its CPU time, taken next to test runs on
the same two cores, exceeds the budget of the table. Each row is the mean return in 128 games against `small`; *before*
is `small` against itself:

    legos eval TicTacToe-v0 -m runs/NAME/adapter -m small --opponent small -n 128 --no-exact --seed 5000000 \\
        --max-tokens 64 --reply boxed_reasoning --arg preset=spiral --arg memory=chat
    legos eval KuhnPoker-v0 ... --arg preset=spiral --arg memory=chat --arg num_rounds=5
    legos eval SimpleNegotiation-v0 ... --arg preset=spiral
"""
COLUMNS = ("environment", "number", "seed", "before", "after", "gain", "best scripted", "reached", "roles", "items")
COLUMNS += ("illegal", "CPU s")
OTHER = "(other flags)"
"""Marks a row whose cell does not say that the flags of training were those of `TASKS`."""
EARLIER = "(earlier base)"
"""Marks a row that began from a bundled model of other weights than those that are shipped."""
MARKS = {
    OTHER: "were measured with earlier settings, or with settings that were not recorded",
    EARLIER: "started from an earlier version of a bundled model",
}
ENDS = 5
REACHED = 0.95
"""The share of the way from the base to the best scripted player from which on an id has reached it."""


def cells(folder: Path, file: Path) -> list[dict[str, Any]]:
    """The cells in `file` and all finished ones in a folder, by id and seed.

    Those of the folder get `roles`, what each role earned at both ends of the training, and `curve`, what was measured
    meanwhile.
    """
    rows = json.loads(file.read_text()) if file.exists() else []
    found = {(row["id"], row["seed"]): row for row in rows}
    for cell in sorted(folder.glob("*-v0-*.json")):
        row = json.loads(cell.read_text())
        run, task = folder / f"{row['id']}-{row['seed']}", TASKS[row["id"]]
        row |= {"roles": roles(run, task), "args": task.fixed, "curve": curve(run)}
        found[row["id"], row["seed"]] = row
    for row in found.values():
        task = TASKS[row["id"]]
        if row.get("flags") != " ".join(training(row["id"], task)):  # its settings are others now
            row["flags"] = None
        if row.get("base") != base(task):
            row["base"] = None
    return [found[key] for key in sorted(found)]


def roles(run: Path, task: Task) -> dict[str, list[float]]:
    """The mean rewards of trained roles over the first and the last steps; empty where one gains what another loses."""
    if task.exact or task.opponent != "self":
        return {}
    steps = [json.loads(line)["reward"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    ends = steps[:ENDS], steps[-ENDS:]
    fixed = {role.partition("=")[0] for role in task.roles}
    names = sorted({name for step in steps for name in step} - fixed)
    found = {name: [[step[name] for step in end if name in step] for end in ends] for name in names}
    return {name: [sum(end) / len(end) for end in both] for name, both in found.items() if all(both)}


def learned(row: Mapping[str, Any]) -> bool:
    """Whether the gain is above 0 beyond what chance explains, and at no role's cost; exact numbers have no chance."""
    if "gain" in row:
        return row["gain_ci95"][0] > 0 and all(first <= last for first, last in row["roles"].values())
    better = row["before"] - row["after"] if row["metric"] == "nash_conv" else row["after"] - row["before"]
    return better > 0


def reached(row: Mapping[str, Any]) -> float:
    """How much of the way from the base to the best scripted player was gone; above 1 where it plays better."""
    return (row["after"] - row["before"]) / (row["best"] - row["before"])


def number(row: Mapping[str, Any]) -> str:
    """What was measured, and by how many games where it is not an exact number."""
    return row["metric"].replace("_", " ") + (f", {row['games']} games" if "games" in row else "")


def marks(row: Mapping[str, Any]) -> tuple[str, ...]:
    """In which ways a row differs from one that the command would measure now."""
    return (OTHER,) * (not row["flags"]) + (EARLIER,) * (not row["base"])


def meaning(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the marks on rows mean, or that no row has one."""
    there = {mark for row in rows for mark in marks(row)}
    said = [f"Rows marked *{mark}* {why}." for mark, why in MARKS.items() if mark in there]
    return " ".join(said) or "All rows have the present settings and started from the bundled models as shipped."


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown, one line for each id and seed."""
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    for row in rows:
        gain = "exact"
        if "gain" in row:
            gain = f"{row['gain']:+.3f} ({row['gain_ci95'][0]:+.3f} to {row['gain_ci95'][1]:+.3f})"
        shown = ", ".join(f"{name} {first:.2f} to {last:.2f}" for name, (first, last) in row["roles"].items())
        illegal = "" if row["illegal"] is None else f"{row['illegal']:.1%}"
        lines.append(
            f"| {' '.join((row['id'], *row['args'], *marks(row)))} | {number(row)} | {row['seed']} | "
            f"{row['before']:.3f} | "
            f"{row['after']:.3f} | {gain} | {row['best']:.3f} | {reached(row):.0%} | {shown} | "
            f"{_items(TASKS[row['id']])} | "
            f"{illegal} | {row['cpu_seconds']:.0f} |"
        )
    return "\n".join(lines)


def _items(task: Task) -> str:
    return task.items if isinstance(task.items, str) else "held out" * task.items


def curve(run: Path) -> dict[str, Any] | None:
    """What a run measured meanwhile: `title`, `unit`, and `points` (step, value); None where it measured nothing."""
    measured = [(0, json.loads((run / "result.json").read_text())["start"])]
    for text in (run / "metrics.jsonl").read_text().splitlines():
        record = json.loads(text)
        measured += [(record["step"], record["eval"])] if record.get("eval") else []
    names = verdict.measures(measured[-1][1])
    if not names:
        return None
    points = [[step, float(f"{numbers[names[0]]:.4g}")] for step, numbers in measured if names[0] in numbers]
    title, unit = eval_numbers.metric_name(names[0]), eval_numbers.unit_of(names[0].rpartition("/")[2])
    return {"title": title, "unit": unit, "points": points}


def figure(env_id: str, rows: Sequence[Mapping[str, Any]]) -> str | None:
    """The curves of an id's seeds as SVG; None where there are none."""
    drawn = [(row["seed"], row["curve"]) for row in rows if row["curve"]]
    if not drawn:
        return None
    lines = [Line(f"seed {seed}", [(step, y) for step, y in one["points"]], colour=seed) for seed, one in drawn]
    title, unit = drawn[0][1]["title"], drawn[0][1]["unit"]
    return standalone(line_chart(Figure(env_id, f"{env_id}: {title}", unit, lines)))


def write(folder: Path, docs: Path) -> Path:
    """Writes the page and its figures; returns the page."""
    rows = [_rounded(row) | {"curve": row["curve"]} for row in cells(folder, docs / "learning.json")]
    images = docs / "images" / "learning"
    images.mkdir(parents=True, exist_ok=True)
    by_id: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_id.setdefault(row["id"], []).append(row)
    shown = sum(all(map(learned, found)) for found in by_id.values())
    failed = ", ".join(env_id for env_id, found in by_id.items() if not all(map(learned, found)))
    missing = ", ".join(env_id for env_id in TASKS if env_id not in by_id)
    counted = f"{shown} of {len(by_id)} ids learn on every seed that was run"
    counted += (f"; not yet: {failed}." if failed else ".") + (f" No result yet: {missing}." if missing else "")
    there = [env_id for env_id, found in by_id.items() if all(reached(row) >= REACHED for row in found)]
    counted += f" {len(there)} reach the best scripted player on every seed, by at least {REACHED:.0%} of the way from"
    counted += f" the base: {', '.join(there) or 'none'}. {meaning(rows)}"
    parts = [HEAD, textwrap.fill(counted, 120), "", table(rows), "", REASONS, PRESETS, "## Curves", ""]
    for env_id, found in by_id.items():
        drawn = figure(env_id, found)
        if drawn is not None:
            (images / f"{env_id}.svg").write_text(drawn)
            parts.append(f"![{env_id}: what was measured during training](images/learning/{env_id}.svg)")
    lines = ",\n".join(json.dumps(row) for row in rows)
    (docs / "learning.json").write_text(f"[\n{lines}\n]\n")
    page = docs / "learning.md"
    page.write_text("\n".join(parts) + "\n")
    return page


def _rounded(value: Any) -> Any:
    """Six decimal places, also in lists and mappings."""
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return round(value, 6) if isinstance(value, float) else value


def main() -> None:
    """The command of the module text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/learning"))
    parser.add_argument("--docs", type=Path, default=Path("docs"))
    options = parser.parse_args()
    print(write(options.runs, options.docs))


if __name__ == "__main__":
    main()
