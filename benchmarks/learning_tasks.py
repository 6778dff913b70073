"""Does every id learn? A training run of a bundled model for each id and seed, measured on what it never saw.

    python -m benchmarks.learning_tasks --seeds 0 1 2                # all ids
    python -m benchmarks.learning_tasks PlanExecute-v0 --seeds 0     # one

Training uses the task's own method and items of the train split; the trained policy, the base and the best scripted
player are then measured on other seeds and on items of the test split, in the same games (`legos eval`). Where one
side's gain is another's loss they meet the base; else each plays all seats. Games that can be solved report exact
numbers. Finished cells are kept in `--out` and not run again.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from inference.loading import base_digest, bundled_digest, find_model
from legos_train.config.preset_files import preset
from legos_train.observe import verdict

EVAL_SEED = 5_000_000


class Task(NamedTuple):
    """How one id is trained and measured.

    Attributes:
        flags: of `legos train`, after those that all tasks share.
        scripted: the best scripted player, or None where the truth is exact.
        opponent: of the measured games: `base`, or `self` where each policy plays all seats.
        exact: the exact number that is looked at, instead of games.
        items: whether it has a test split, or what that split has in common with what base and training saw.
        seat: `ROLE=POLICY` of roles that are not trained, with spaces between them.
        args: of the environment, in training and in measuring.
        seats: how many equal seats a policy takes in one game. Each is counted as a game, so measuring takes so many
            times as many to see as many problems.
    """

    flags: tuple[str, ...]
    scripted: str | None = None
    opponent: str = "base"
    exact: str | None = None
    items: bool | str = False
    seat: str | None = None
    args: tuple[str, ...] = ()
    seats: int = 1

    @property
    def fixed(self) -> tuple[str, ...]:
        """What differs from the environment's defaults: its arguments, and who is not trained."""
        return self.args + self.roles

    @property
    def roles(self) -> tuple[str, ...]:
        """`ROLE=POLICY` of each role that is not trained."""
        return tuple((self.seat or "").split())


def _steps(steps: int, batch: int, *more: str) -> tuple[str, ...]:
    return ("--steps", str(steps), "--batch-size", str(batch), *more)


SMALL: tuple[str, ...] = (
    *("--model", "small", "--lora.rank", "16", "--optim.lr", "1e-3", "--optim.lr-end", "0.2"),
    *("--loss.kl", "0.02", "--loss.kl-end", "None", "--average.kind", "none", "--sampling.max-tokens", "64"),
    *("--eval.every", "25", "--eval.games", "64", "--checkpoint.every", "0"),
)
GROUP = ("--credit.name", "grpo", "--group-size", "8")
SAMPLES = (
    *("--credit.name", "grpo", "--group-size", "2", "--filter.zero-advantages"),
    *("--optim.beta1", "0.9", "--optim.lr-end", "0.02", "--loss.skip-forced", "1e-3"),
)
"""Where an episode is several answers to one problem already: eight or ten of them are compared, and those of problems
that are solved, most of them in the end, are left out.
"""
RAE = ("--credit.name", "rae")
FACTS = (
    *("--credit.name", "grpo", "--group-size", "2"),
    *("--loss.kl", "0.3", "--loss.kl-end", "0.01", "--optim.lr-end", "0.05"),
)
"""Where each answer must first be met by chance: with a small KL weight from the start, the policy gives up rare
answers before it has met the question for which they are right.
"""
BASE = ("--league.mode", "fixed", "--league.opponents", "base")
FEW = ("--eval.games", "32")  # where games are long
SLOW = ("--optim.lr", "5e-4")
LEGAL = ("--credit.gamma", "0.8", "--loss.legality", "1", *SLOW)  # where most losses are illegal moves
BRIEF = ("--credit.gamma", "0.8", "--loss.kl", "0.3")
"""Where messages grow with a small KL weight, until the guess at the end is cut off too."""
JUDGE = "judge=scripted:on_topic"
EASY = ("level=0",)
ROUND = ("one_round=True", "dice=1", "faces=3", "wild=True")
PROBLEM = Task((*_steps(400, 256), *GROUP), "oracle", "self", items=True, args=EASY)
CONTEST = Task((*_steps(60, 32), *RAE), "on_topic", "base", items=True, seat=JUDGE)
TASKS: dict[str, Task] = {
    "Amplification-v0": Task(
        *((*_steps(60, 64), *GROUP), "decompose", "self"),
        items=True,
        seat="person=scripted:calculator",
        args=("operations=2", "process_reward=0.5"),
    ),
    "CodeGen-v0": Task((*_steps(150, 32), *GROUP), "good", "self", items=True),
    "ConnectFour-v0": Task((*_steps(24, 24), *RAE, *BASE, *FEW, *LEGAL), "depth_4", "base"),
    "Dataset-v0": PROBLEM,
    "Debate-v0": CONTEST,
    "EloArena-v0": Task((*_steps(40, 8), *RAE), "on_topic", "base", items=True, seat=JUDGE),
    "EnsembleVote-v0": Task((*_steps(1040, 64), *SAMPLES), "oracle", "self", items=True, args=EASY, seats=5),
    "GSM8K-v0": PROBLEM,
    "HeadToHead-v0": CONTEST,
    "KuhnPoker-v0": Task(("--preset", "kuhn"), exact="nash_conv"),
    "LeducPoker-v0": Task(("--preset", "leduc_expected", "--steps", "110"), exact="nash_conv"),
    "LiarsDice-v0": Task(("--preset", "liarsdice_expected"), exact="nash_conv", args=ROUND),
    "MatrixGame-v0": Task(("--preset", "biased_rps_expected"), exact="nash_conv"),
    "Negotiation-v0": Task((*_steps(72, 24), *RAE, *BASE, *FEW), "trader", "base", args=("rounds=2",)),
    "Nim-v0": Task(("--preset", "nim"), exact="optimal_move"),
    "PigDice-v0": Task((*_steps(24, 48), *RAE, *BASE, *SLOW), "optimal", "base", args=("goal=20",)),
    "PlanExecute-v0": Task(
        (*_steps(40, 64), *GROUP), "good", "self", items=True, seat="critic=scripted:good", args=("steps=2",)
    ),
    "ProofVerification-v0": Task((*_steps(30, 32), *RAE), "good", "self", items=True, seat="prover=scripted:faithful"),
    "ProposerSolver-v0": Task(
        (*_steps(40, 64), *RAE),
        *("optimal", "self"),
        items="held out; the base has read four in ten as plain sums",
        seat="proposer=scripted:optimal",
    ),
    "RedBlue-v0": Task((*_steps(50, 64), *RAE, *BRIEF), "sound", "base", items=True, args=("probes=1",)),
    "RefineLoop-v0": Task((*_steps(60, 64), *GROUP), "good", "self", items=True),
    "SPICE-v0": Task(
        (*_steps(900, 64), *FACTS),
        *("reader", "self"),
        items="new passages about the same 224 facts",
        seat="challenger=scripted:cloze",
    ),
    "SelfDistillation-v0": Task(
        (*_steps(1300, 64), *SAMPLES),
        *("oracle", "self"),
        items=True,
        seat="verifier=scripted:oracle",
        args=(*EASY, "filter=truth"),
    ),
    "SimpleNegotiation-v0": Task((*_steps(140, 24), *RAE, *BASE, *FEW, *SLOW), "shrewd", "base", args=("turns=4",)),
    "TicTacToe-v0": Task(("--preset", "tictactoe"), exact="no_loss"),
    "Tournament-v0": Task((*_steps(40, 8), *RAE), "on_topic", "base", items=True, seat=JUDGE),
}
"""Every registered id."""


def base(task: Task) -> str:
    """The start of the SHA-256 of the bundled model that a task trains: cells are comparable where it is the same."""
    named = preset(task.flags[task.flags.index("--preset") + 1]) if "--preset" in task.flags else {"model": "small"}
    return str(bundled_digest(str(named.get("model", "tiny"))))


def training(env_id: str, task: Task, model: str | None = None) -> list[str]:
    """The flags of `legos train` for an id, but for the seed and the place."""
    flags = [*task.flags]
    if "--preset" not in flags:
        flags = ["--env", env_id, *SMALL, *flags]
        if model:
            flags += ["--model", model]
        for arg in ("split=train",) * bool(task.items) + task.args:
            flags += ["--arg", arg]
        for role in task.roles:
            flags += ["--seat", role]
    return flags


def train(env_id: str, task: Task, seed: int, folder: Path, model: str | None, extra: list[str]) -> float:
    """Trains into `folder`; returns the CPU seconds."""
    flags = training(env_id, task, model)
    before = _children()
    _legos("train", *flags, "--seed", str(seed), "--run-dir", str(folder), "--logs.progress", "plain", *extra)
    return _children() - before


def measure(env_id: str, task: Task, folder: Path, base: str, games: int) -> dict[str, Any]:
    """Before, after and best scripted, with the interval of the gain."""
    if task.exact:
        result = json.loads((folder / "result.json").read_text())
        weights = "average" if task.exact == "nash_conv" and "average" in result else "last"
        return {
            "metric": task.exact,
            "before": result["start"][task.exact],
            "after": result[weights][task.exact],
            "best": 0.0 if task.exact == "nash_conv" else 1.0,
            "illegal": result[weights].get("illegal"),
        }
    flags = ["-m", str(folder / "adapter"), "-m", base, "-m", f"scripted:{task.scripted}"]
    flags += ["--opponent", base if task.opponent == "base" else "self", "-n", str(games * task.seats), "--no-exact"]
    flags += ["--seed", str(EVAL_SEED), "--max-tokens", "64", "--json"]
    for arg in ("split=test",) * bool(task.items) + task.args:
        flags += ["--arg", arg]
    for role in task.roles:
        flags += ["--seat", role]
    said = json.loads(_legos("eval", env_id, *flags))
    after, before, best = said["results"]
    gain, ends = _gain(said["comparisons"], before, after)
    return {
        "metric": f"return against {task.opponent}",
        "games": games * task.seats,
        "before": before["mean"],
        "after": after["mean"],
        "gain": gain,
        "gain_ci95": ends,
        "best": best["mean"],
        "illegal": after["invalid"],
        "unscored": after["unscored"],
    }


def _gain(
    comparisons: list[dict[str, Any]], before: dict[str, Any], after: dict[str, Any]
) -> tuple[float, list[float]]:
    """The gain with its interval: by pairs of games where both met one opponent, else from both intervals, wider."""
    for pair in comparisons:
        if (pair["first"], pair["second"]) == (after["policy"], before["policy"]):
            return pair["difference"], pair["ci95"]
    tables = [{"return": r["mean"], "return_low": r["ci95"][0], "return_high": r["ci95"][1]} for r in (before, after)]
    change, low, high = verdict.gain(tables[0], tables[1], "return")
    return change, [low, high]


def cell(env_id: str, seed: int, options: argparse.Namespace, extra: list[str]) -> dict[str, Any]:
    """One id and seed: from the file of an earlier call if it is there and began from the same weights."""
    file = options.out / f"{env_id}-{seed}.json"
    task, folder = TASKS[env_id], options.out / f"{env_id}-{seed}"
    start = base_digest(find_model(options.model))[:12] if options.model else base(task)
    if file.exists() and (kept := json.loads(file.read_text())).get("base") == start:
        return kept
    if folder.exists():
        shutil.rmtree(folder)  # of a cell that was interrupted
    seconds = train(env_id, task, seed, folder, options.model, extra)
    flags = " ".join([*training(env_id, task, options.model), *extra])
    row = {"id": env_id, "seed": seed, "flags": flags, "base": start, "cpu_seconds": seconds}
    row |= measure(env_id, task, folder, options.model or "small", options.games)
    file.write_text(json.dumps(row, indent=2) + "\n")
    return row


def line(row: dict[str, Any]) -> str:
    """A cell for people."""
    gain = "exact"
    if "gain" in row:
        gain = f"{row['gain']:+.3f} [{row['gain_ci95'][0]:+.3f}, {row['gain_ci95'][1]:+.3f}]"
    illegal = "" if row["illegal"] is None else f"  illegal {row['illegal']:.1%}"
    return (
        f"{row['id']:22} seed {row['seed']}  {row['metric']:20} {row['before']:+.3f} -> {row['after']:+.3f}  "
        f"gain {gain}  best scripted {row['best']:+.3f}{illegal}  {row['cpu_seconds']:.0f} CPU-s"
    )


def _legos(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "legos_train", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"legos {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """The command of the module text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ids", nargs="*", choices=[*TASKS, []], metavar="ID")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--out", type=Path, default=Path("runs/learning"), help="finished cells and their runs")
    parser.add_argument("--games", type=int, default=512, help="games a policy is measured by")
    parser.add_argument("--model", help="a model directory instead of `small`")
    options, extra = parser.parse_known_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for env_id in options.ids or TASKS:
        for seed in options.seeds:
            print(line(cell(env_id, seed, options, extra)), flush=True)


if __name__ == "__main__":
    main()
