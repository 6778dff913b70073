"""Does training train? Each case runs `legos train` over several seeds and reports exact numbers, before and after.

    python -m benchmarks.learning kuhn --seeds 0 1 2 3 4
    python -m benchmarks.learning --list

    python -m benchmarks.learning tasks --seeds 0 1 2      # every environment: benchmarks.learning_tasks

Cases run one after another, each in its own process. `--json FILE` keeps the numbers.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CASES: dict[str, tuple[list[str], str, str]] = {
    "kuhn": ([], "nash_conv", "average"),
    "kuhn_expected": (["--preset", "kuhn_expected"], "nash_conv", "average"),
    "leduc_expected": (["--preset", "leduc_expected"], "nash_conv", "average"),
    "liarsdice_expected": (["--preset", "liarsdice_expected"], "nash_conv", "average"),
    "nim": (["--preset", "nim"], "optimal_move", "last"),
    "biased_rps": (["--preset", "biased_rps"], "nash_conv", "last"),
    "biased_rps_expected": (["--preset", "biased_rps_expected"], "nash_conv", "last"),
    "tictactoe": (["--preset", "tictactoe"], "no_loss", "last"),
    "tictactoe_expected": (["--preset", "tictactoe_expected"], "no_loss", "last"),
}
"""Flags of `legos train`, the number looked at, and of which weights. `legos train` alone is the preset `kuhn`."""


def run(case: str, seed: int, extra: list[str], root: Path) -> dict:
    """One training run in a process of its own."""
    flags, metric, weights = CASES[case]
    path = root / f"{case}-{seed}"
    began, spent = time.perf_counter(), _children()
    command = [
        sys.executable,
        "-m",
        "legos_train.cli.main",
        "train",
        *flags,
        "--seed",
        str(seed),
        "--run-dir",
        str(path),
    ]
    done = subprocess.run([*command, *extra], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{case}, seed {seed} failed:\n{done.stderr}")
    wall = time.perf_counter() - began
    result = json.loads((path / "result.json").read_text())
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return {
        "case": case,
        "seed": seed,
        "metric": metric,
        "weights": weights,
        "before": result["start"][metric],
        "after": result[weights][metric],
        "last": result["last"][metric],
        "best": result["best"].get(metric),
        "illegal": result[weights]["illegal"],
        "against_optimal": result[weights].get("no_loss_optimal"),
        "against_optimal_by_seat": {k: v for k, v in result[weights].items() if k.startswith("no_loss_optimal_as_")},
        "training_seconds": sum(row["seconds"] for row in rows),
        "wall_seconds": wall,
        "cpu_seconds": _children() - spent,
    }


def _children() -> float:
    """CPU seconds of the processes started so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    if sys.argv[1:2] == ["tasks"]:
        from benchmarks import learning_tasks

        del sys.argv[1]
        return learning_tasks.main()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], default=[])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--list", action="store_true", help="show the cases and their commands")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path, help="keep the run directories here")
    options, extra = parser.parse_known_args()
    if options.list or not options.cases:
        for name, (flags, metric, weights) in CASES.items():
            print(f"{name:12} {metric} of the {weights} weights: legos train {' '.join(flags)}")
        return
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        for case in options.cases:
            for seed in options.seeds:
                row = run(case, seed, extra, options.keep or Path(scratch))
                results.append(row)
                print(
                    f"{case:12} seed {seed}  {row['metric']} ({row['weights']})  {row['before']:.4f} -> "
                    f"{row['after']:.4f}  last {row['last']:.4f}  best {row['best']:.4f}  illegal {row['illegal']:.4f}"
                    f"  training {row['training_seconds']:.0f} s, all {row['wall_seconds']:.0f} s, "
                    f"{row['cpu_seconds']:.0f} CPU-s",
                    flush=True,
                )
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
